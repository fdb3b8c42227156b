//! The consumers of topics, with the samples that they hold.

use crate::{
    Error, State,
    answers::{Holder, Holders},
    edges::Edge,
    topics::{SelectedTopics, edges_of, select_topics},
};

/// The consumers of the topics that match.
///
/// # Errors
/// If the dataflow cannot be found or reached, and for a pattern without a match.
pub fn holders(dataflow: &str, patterns: &[String]) -> Result<Holders, Error> {
    let SelectedTopics { mut state, topics } = select_topics(patterns, Some(dataflow), "holders")?;
    state.sample();
    let edges = topics.iter().flat_map(|topic| edges_of(&state, topic));
    Ok(Holders::of(&state, &edges.collect::<Vec<_>>()))
}

impl Holders {
    /// The consumers of some edges of a state whose counters were read.
    pub fn of(state: &State, edges: &[&Edge]) -> Self {
        let holder = |edge: &&Edge| {
            let totals = edge.totals();
            Holder {
                topic: edge.topic.clone(),
                consumer: edge.consumer_name().to_owned(),
                pid: consumer_pid(state, edge),
                held: edge.has_input().then_some(totals.input.held),
                queued: (edge.has_input() && edge.has_output()).then(|| totals.queued()),
                max_held: edge.queue.max_held,
                missed_held: edge.has_output().then_some(totals.output.missed_held),
                unreadable: edge.unreadable(),
            }
        };
        Self {
            dataflow: state.welcome().dataflow.clone(),
            holders: edges.iter().map(holder).collect(),
            unreachable: state.unreachable_machines(),
        }
    }
}

/// The process of the consumer of an edge.
pub fn consumer_pid(state: &State, edge: &Edge) -> Option<u32> {
    state.nodes.get(&edge.consumer_node())?.pid()
}
