//! The graph as a Mermaid diagram.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::graph::{Dataflow, Input, InputQueue, QueuePolicy, Source};

impl Dataflow {
    /// The graph as a [Mermaid](https://mermaid.js.org) flowchart. Nodes are boxes, timers are
    /// rounded. Arrows carry the name of the output, the name of the input if it differs, and the
    /// queue if it is not the default.
    #[must_use]
    pub fn to_mermaid(&self) -> String {
        let mut text = String::from("flowchart LR\n");
        for (index, node) in self.nodes.iter().enumerate() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "    n{index}[\"{}\"]", escaped(&node.id));
        }
        let timers = self.timers();
        for (period_nanos, index) in &timers {
            let _ = writeln!(text, "    t{index}([\"{}\"])", period(*period_nanos));
        }
        for (consumer, node) in self.nodes.iter().enumerate() {
            for input in &node.inputs {
                let (source, label) = match input.source {
                    Source::Timer { period_nanos } => {
                        (format!("t{}", timers[&period_nanos]), escaped(&input.name))
                    }
                    Source::Output { node, output } => (
                        format!("n{node}"),
                        label(&self.nodes[node].outputs[output].name, input),
                    ),
                };
                let _ = writeln!(text, "    {source} -- \"{label}\" --> n{consumer}");
            }
        }
        text
    }

    /// The number of each timer, by its period in nanoseconds.
    fn timers(&self) -> BTreeMap<u64, usize> {
        let inputs = self.nodes.iter().flat_map(|node| &node.inputs);
        let periods = inputs.filter_map(|input| match input.source {
            Source::Timer { period_nanos } => Some(period_nanos),
            Source::Output { .. } => None,
        });
        let mut timers: BTreeMap<u64, usize> = periods.map(|period| (period, 0)).collect();
        for (index, number) in timers.values_mut().enumerate() {
            *number = index;
        }
        timers
    }
}

fn label(output: &str, input: &Input) -> String {
    let mut label = escaped(output);
    if output != input.name {
        let _ = write!(label, " as {}", escaped(&input.name));
    }
    let queue = input.queue;
    let default = InputQueue::DEFAULT;
    let is_default = (queue.policy, queue.depth) == (default.policy, default.depth);
    match queue.policy {
        QueuePolicy::Latest => label.push_str(" (latest)"),
        QueuePolicy::Edge(_) if is_default => {}
        QueuePolicy::Edge(policy) => {
            let _ = write!(label, " ({} {})", policy.name(), queue.depth);
        }
    }
    label
}

fn period(nanos: u64) -> String {
    let rate = 1e9 / nanos as f64;
    let rounded = rate.round();
    // 33333333 ns stands for 30 Hz.
    if rate >= 1.0 && (rate - rounded).abs() / rate < 1e-6 {
        return format!("{rounded} Hz");
    }
    format!("every {:?}", std::time::Duration::from_nanos(nanos))
}

/// Escapes what Mermaid would interpret. Names that follow today's grammar contain nothing of the
/// kind.
fn escaped(name: &str) -> String {
    name.replace('#', "#35;")
        .replace('"', "#quot;")
        .replace('<', "#lt;")
        .replace('>', "#gt;")
}
