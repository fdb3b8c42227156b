//! Counts unmet expectations of a dataflow file: stale inputs, and loops that missed their
//! deadline.

use std::time::Duration;

use nervure_inspect::{
    edges::Edges,
    format::{self, count},
};
use nervure_keeper::plan::Plan;
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
    within: Duration,
    kind: Kind,
    /// Number of times that it was not met.
    count: u64,
    max_overrun_nanos: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `expect_every` of an input.
    Sample,
    /// `finish_within` of a node's loop.
    Turn,
}

impl Watched {
    pub fn new(plan: &Plan) -> Self {
        let mut expectations = Vec::new();
        for (node, plan) in (0..).zip(&plan.nodes) {
            let mut expect = |input: usize, within, kind| {
                let name = format!("{}/{}", plan.id, plan.inputs[input].name);
                let input = u32::try_from(input).expect("a node has fewer than 2^32 inputs");
                expectations.push(Expectation {
                    node,
                    input,
                    name,
                    within,
                    kind,
                    count: 0,
                    max_overrun_nanos: 0,
                });
            };
            for (at, input) in plan.inputs.iter().enumerate() {
                if let Some(nanos) = input.expect_every_nanos {
                    expect(at, Duration::from_nanos(nanos), Kind::Sample);
                }
            }
            if let Some(deadline) = plan.settings.loop_deadline {
                expect(deadline.input, deadline.finish_within, Kind::Turn);
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
            expectation.count = match expectation.kind {
                Kind::Sample => counters.stale,
                Kind::Turn => counters.deadlines_missed,
            };
        }
    }

    /// A line for each expectation that was not met.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.unmet().map(|Expectation { name, within, kind, count: times, max_overrun_nanos, .. }| {
            let times = count(*times as usize, "time");
            match kind {
                Kind::Sample => format!("input `{name}` was stale {times} (`expect_every` is {within:?})"),
                Kind::Turn => format!(
                    "the loop of `{name}` was late {times}, by {} at most (`finish_within` is {within:?})",
                    format::latency(Some(*max_overrun_nanos))
                ),
            }
        })
    }

    /// The unmet expectations as JSON.
    pub fn json(&self) -> Value {
        let unmet = self.unmet().map(|expectation| {
            let within_nanos = u64::try_from(expectation.within.as_nanos()).unwrap_or(u64::MAX);
            match expectation.kind {
                Kind::Sample => json!({
                    "kind": "stale",
                    "input": expectation.name,
                    "expect_every_nanos": within_nanos,
                    "count": expectation.count,
                }),
                Kind::Turn => json!({
                    "kind": "deadline_missed",
                    "input": expectation.name,
                    "finish_within_nanos": within_nanos,
                    "count": expectation.count,
                    "max_overrun_nanos": expectation.max_overrun_nanos,
                }),
            }
        });
        unmet.collect()
    }

    fn unmet(&self) -> impl Iterator<Item = &Expectation> {
        self.0.iter().filter(|expectation| expectation.count > 0)
    }
}
