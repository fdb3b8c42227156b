//! `nervure holders`: lists the nodes that hold samples.

use std::process::ExitCode;

use super::{
    answers::{self, Holder, Holders},
    arguments::TopicsArguments,
    state::State,
    topic::edges_of,
    topics::{SelectedTopics, select_topics},
};
use crate::{
    failure::Failure,
    output,
    run::{edge_table::known, edges::Edge},
    table::{Align, Table},
};

/// Lists the consumers of the topics, with the samples that they hold and those in their queues.
pub fn holders(arguments: &TopicsArguments) -> Result<ExitCode, Failure> {
    let SelectedTopics { mut state, topics } = select_topics(
        &arguments.topics,
        arguments.target.dataflow.as_deref(),
        "holders",
    )?;
    state.sample();
    let edges: Vec<&Edge> = topics
        .iter()
        .flat_map(|topic| edges_of(&state, topic))
        .collect();
    if arguments.target.json {
        output::write(&answers::line(&answer(&state, &edges)))?;
        return Ok(state.exit_code());
    }
    let mut table = Table::new(&[
        ("topic", Align::Left),
        ("held by", Align::Left),
        ("pid", Align::Right),
        ("held", Align::Right),
        ("queued", Align::Right),
        ("max held", Align::Right),
        ("missed for it", Align::Right),
    ]);
    for edge in &edges {
        let totals = edge.totals();
        table.row(vec![
            edge.topic.clone(),
            edge.consumer_name().to_owned(),
            consumer_pid(&state, edge).map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            known(edge.has_input(), totals.input.held),
            known(edge.has_input() && edge.has_output(), totals.queued()),
            edge.queue.max_held.to_string(),
            known(edge.has_output(), totals.output.missed_held),
        ]);
    }
    output::write(&table.render(None))?;
    for unreadable in state.edges.unreadable() {
        note!("{unreadable}");
    }
    let full = edges
        .iter()
        .filter(|edge| edge.totals().input.held >= u64::from(edge.queue.max_held));
    for edge in full {
        note!(
            "{} holds the maximum of samples of {}: it receives no more until it releases one",
            edge.consumer_name(),
            edge.topic
        );
    }
    Ok(state.exit_code())
}

/// The consumers of the topics that match, as `--json` writes them.
#[cfg(feature = "api")]
pub fn holders_of(dataflow: &str, patterns: &[String]) -> Result<Holders, Failure> {
    let SelectedTopics { mut state, topics } = select_topics(patterns, Some(dataflow), "holders")?;
    state.sample();
    let edges = topics.iter().flat_map(|topic| edges_of(&state, topic));
    Ok(answer(&state, &edges.collect::<Vec<_>>()))
}

fn answer(state: &State, edges: &[&Edge]) -> Holders {
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
    Holders {
        dataflow: state.welcome().dataflow.clone(),
        holders: edges.iter().map(holder).collect(),
        unreachable: state.unreachable_machines(),
    }
}

fn consumer_pid(state: &State, edge: &Edge) -> Option<u32> {
    state.nodes.get(&edge.consumer_node())?.pid()
}
