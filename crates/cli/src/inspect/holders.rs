//! `nervure holders`: lists the nodes that hold samples.

use std::process::ExitCode;

use nervure_inspect::{
    answers::{self, Holders},
    edges::Edge,
    holders::consumer_pid,
    topics::{SelectedTopics, edges_of, select_topics},
};

use super::{arguments::TopicsArguments, exit_code};
use crate::{
    failure::Failure,
    output,
    run::edge_table::known,
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
        output::write(&answers::line(&Holders::of(&state, &edges)))?;
        return Ok(exit_code(&state));
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
    Ok(exit_code(&state))
}
