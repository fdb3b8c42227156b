//! Counts unmet expectations of a dataflow file: stale inputs, loops that missed their deadline, and
//! samples of `sync` without a partner.

use std::time::Duration;

use nervure_inspect::{
    edges::Edges,
    format::{self, count},
};
use nervure_keeper::plan::{NodePlan, Plan};
use nervure_protocol::{graph::SyncSpec, nanos::nanos};
use serde_json::{Value, json};

/// The expectations of a dataflow, with their counts.
#[derive(Debug)]
pub struct Watched(Vec<Expectation>);

#[derive(Debug)]
struct Expectation {
    node: u32,
    input: u32,
    /// `node/input`.
    name: String,
    kind: Kind,
    /// Number of times that it was not met.
    count: u64,
    max_overrun_nanos: u64,
    received: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `expect_every` of an input.
    Sample { within: Duration },
    /// `finish_within` of a node's loop.
    Turn { within: Duration },
    /// `sync`: the most samples that wait, and the largest difference between stamps, if there is one.
    Partner {
        most_waiting: u32,
        tolerance: Option<Duration>,
    },
    /// `transforms` of a node.
    Transform,
}

impl Watched {
    pub fn new(plan: &Plan) -> Self {
        let mut expectations = Vec::new();
        for (node, plan) in (0..).zip(&plan.nodes) {
            let mut expect = |input: usize, kind| {
                let name = format!("{}/{}", plan.id, plan.inputs[input].name);
                let input = u32::try_from(input).expect("a node has fewer than 2^32 inputs");
                expectations.push(Expectation {
                    node,
                    input,
                    name,
                    kind,
                    count: 0,
                    max_overrun_nanos: 0,
                    received: 0,
                });
            };
            for (at, input) in plan.inputs.iter().enumerate() {
                if let Some(nanos) = input.expect_every_nanos {
                    let within = Duration::from_nanos(nanos);
                    expect(at, Kind::Sample { within });
                }
            }
            if let Some(deadline) = plan.settings.loop_deadline {
                let within = deadline.finish_within;
                expect(deadline.input, Kind::Turn { within });
            }
            if let Some(sync) = &plan.settings.sync {
                for (input, kind) in partners(sync, plan) {
                    expect(input, kind);
                }
            }
            for &input in plan.settings.transforms.iter().flat_map(|it| &it.inputs) {
                expect(input, Kind::Transform);
            }
        }
        Self(expectations)
    }

    /// Reads the counters.
    pub fn read(&mut self, edges: &Edges) {
        for expectation in &mut self.0 {
            // Unreadable counters leave the last values.
            let Some(counters) = edges.input_of(expectation.node, expectation.input) else {
                continue;
            };
            expectation.max_overrun_nanos = counters.max_overrun_nanos;
            expectation.received = counters.received;
            expectation.count = match expectation.kind {
                Kind::Sample { .. } => counters.stale,
                Kind::Turn { .. } => counters.deadlines_missed,
                Kind::Partner { .. } | Kind::Transform => counters.unused,
            };
        }
    }

    /// A line for each expectation that was not met.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.unmet().map(Expectation::line)
    }

    /// The unmet expectations as JSON.
    pub fn json(&self) -> Value {
        self.unmet().map(Expectation::json).collect()
    }

    fn unmet(&self) -> impl Iterator<Item = &Expectation> {
        self.0.iter().filter(|expectation| expectation.count > 0)
    }
}

/// The inputs of `sync`, with the limits for their samples.
fn partners<'s>(
    sync: &'s SyncSpec,
    plan: &'s NodePlan,
) -> impl Iterator<Item = (usize, Kind)> + 's {
    let matched = sync.inputs.iter().map(|&input| {
        let kind = Kind::Partner {
            most_waiting: sync.queue_size,
            tolerance: sync.tolerance,
        };
        (input, kind)
    });
    let collected = sync.collect.iter().map(|&input| {
        let kind = Kind::Partner {
            most_waiting: plan.inputs[input].queue.map_or(1, |queue| queue.depth),
            tolerance: None,
        };
        (input, kind)
    });
    matched.chain(collected)
}

impl Expectation {
    fn line(&self) -> String {
        let name = &self.name;
        let times = count(self.count as usize, "time");
        match self.kind {
            Kind::Sample { within } => {
                format!("input `{name}` was stale {times} (`expect_every` is {within:?})")
            }
            Kind::Turn { within } => format!(
                "the loop of `{name}` was late {times}, by {} at most (`finish_within` is {within:?})",
                format::latency(Some(self.max_overrun_nanos))
            ),
            Kind::Partner {
                most_waiting,
                tolerance,
            } => {
                let within = tolerance.map(|within| format!("`tolerance` is {within:?}, "));
                format!(
                    "{} of {} samples of `{name}` found no partner for `sync` ({}at most {most_waiting} \
                     wait)",
                    self.count,
                    self.received,
                    within.unwrap_or_default()
                )
            }
            Kind::Transform => format!(
                "{} of {} transforms of `{name}` were refused (the log of the node has the reasons)",
                self.count, self.received
            ),
        }
    }

    fn json(&self) -> Value {
        match self.kind {
            Kind::Sample { within } => json!({
                "kind": "stale",
                "input": self.name,
                "expect_every_nanos": nanos(within),
                "count": self.count,
            }),
            Kind::Turn { within } => json!({
                "kind": "deadline_missed",
                "input": self.name,
                "finish_within_nanos": nanos(within),
                "count": self.count,
                "max_overrun_nanos": self.max_overrun_nanos,
            }),
            Kind::Partner { tolerance, .. } => json!({
                "kind": "unmatched",
                "input": self.name,
                "tolerance_nanos": tolerance.map(nanos),
                "count": self.count,
                "received": self.received,
            }),
            Kind::Transform => json!({
                "kind": "refused_transforms",
                "input": self.name,
                "count": self.count,
                "received": self.received,
            }),
        }
    }
}
