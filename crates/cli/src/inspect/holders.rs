//! `nervure holders`: lists the nodes that hold samples.

use std::process::ExitCode;

use serde_json::json;

use super::{
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
    let pid = |edge: &Edge| consumer_pid(&state, edge);
    if arguments.target.json {
        let edge = |edge: &&Edge| {
            let totals = edge.totals();
            json!({
                "topic": edge.topic,
                "consumer": edge.consumer_name(),
                "pid": pid(edge),
                "held": edge.has_input().then_some(totals.input.held),
                "queued": (edge.has_input() && edge.has_output()).then(|| totals.queued()),
                "max_held": edge.queue.max_held,
                "missed_held": edge.has_output().then_some(totals.output.missed_held),
                "unreadable": edge.unreadable(),
            })
        };
        let edges: Vec<_> = edges.iter().map(edge).collect();
        output::write(&format!(
            "{}\n",
            json!({"dataflow": state.welcome().dataflow, "holders": edges})
        ))?;
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
            pid(edge).map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
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

fn consumer_pid(state: &State, edge: &Edge) -> Option<u32> {
    state.nodes.get(&edge.consumer_node())?.pid()
}
