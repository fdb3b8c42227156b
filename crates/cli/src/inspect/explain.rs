//! `nervure explain`: explains where and why samples were lost.

use std::process::ExitCode;

use nervure_inspect::{
    answers::{self, Explanations},
    edges::Edge,
    explain::{read_counters, streams_of},
    format::{self, count},
    losses, streams,
    topics::{SelectedTopics, edges_of, select_topics},
};

use super::{arguments::TopicsArguments, exit_code};
use crate::{failure::Failure, output};

/// Explains every loss on the edges of the topics.
pub fn explain(arguments: &TopicsArguments) -> Result<ExitCode, Failure> {
    let SelectedTopics { mut state, topics } = select_topics(
        &arguments.topics,
        arguments.target.dataflow.as_deref(),
        "explain",
    )?;
    read_counters(&mut state)?;
    if arguments.target.json {
        output::write(&answers::line(&Explanations::of(&state, &topics)))?;
        return Ok(exit_code(&state));
    }
    let edges: Vec<&Edge> = topics
        .iter()
        .flat_map(|topic| edges_of(&state, topic))
        .collect();
    let streams = streams_of(&state, &topics);
    let lossy: Vec<_> = edges.iter().filter(|edge| edge.lost() > 0).collect();
    let mut paragraphs: Vec<String> = lossy.iter().map(|edge| explanation(edge)).collect();
    for edge in edges.iter().filter(|edge| edge.lost() == 0) {
        if let Some((what, remedy)) = losses::takes_nothing(edge) {
            let queued = count(edge.totals().queued() as usize, "sample");
            paragraphs.push(format!(
                "{}: {what}, and {queued} wait for it\n      {remedy}\n",
                edge.name()
            ));
        }
    }
    for edge in edges
        .iter()
        .filter(|edge| edge.totals().output.blocked_nanos > 0)
    {
        let waited = format::latency(Some(edge.totals().output.blocked_nanos));
        paragraphs.push(format!(
            "{} waited {waited} for {}: the queue is `block` and loses no samples\n",
            edge.topic,
            edge.consumer_name()
        ));
    }
    let lossy_streams = streams.filter(|stream| !stream.lost.is_empty());
    paragraphs.extend(lossy_streams.map(streams::explanation));
    let unknown: Vec<_> = edges.iter().filter(|edge| !edge.has_output()).collect();
    paragraphs.extend(unknown.iter().filter_map(|edge| {
        let why = edge.unreadable()?;
        Some(format!("{}: unknown losses: {why}\n", edge.name()))
    }));
    let intact = edges.len() - lossy.len() - unknown.len();
    paragraphs.extend(
        match (edges.is_empty(), lossy.is_empty() && unknown.is_empty()) {
            (true, _) => {
                Some("no node or observer receives this: no samples can be lost\n".to_owned())
            }
            (_, true) => Some(format!(
                "nothing was lost on {}\n",
                count(edges.len(), "edge")
            )),
            _ if intact > 0 => Some(format!(
                "nothing was lost on {}\n",
                count(intact, "other edge")
            )),
            _ => None,
        },
    );
    output::write(&paragraphs.join("\n"))?;
    Ok(exit_code(&state))
}

fn explanation(edge: &Edge) -> String {
    let totals = edge.totals();
    let mut text = format!(
        "{}: {} of {} lost\n",
        edge.name(),
        totals.lost(),
        totals.published()
    );
    for loss in losses::explanations(&totals, edge) {
        text.push_str(&format!("  {}: {}\n", loss.count, loss.what));
        text.push_str(&format!("      {}\n", loss.remedy.text));
    }
    if edge.is_latest() {
        text.push_str("      a queue of one is right if only the newest sample counts\n");
    }
    text
}
