//! `nervure explain`: explains where and why samples were lost.

use std::{process::ExitCode, time::Instant};

use nervure_protocol::daemon_to_daemon::StreamReport;
use serde_json::{Value, json};

use super::{
    arguments::TopicsArguments,
    streams,
    topic::edges_of,
    topics::{SelectedTopics, select_topics},
};
use crate::{
    failure::Failure,
    format::{self, count},
    output,
    run::{activity::ConsumerActivity, edges::Edge, losses},
};

/// Explains every loss on the edges of the topics.
pub fn explain(arguments: &TopicsArguments) -> Result<ExitCode, Failure> {
    let SelectedTopics { mut state, topics } = select_topics(
        &arguments.topics,
        arguments.target.dataflow.as_deref(),
        "explain",
    )?;
    state.sample();
    if state
        .edges
        .iter()
        .any(|edge| edge.activity().is_undecided())
    {
        state.follow_until(Instant::now() + ConsumerActivity::decided_after())?;
        state.sample();
    }
    let edges: Vec<&Edge> = topics
        .iter()
        .flat_map(|topic| edges_of(&state, topic))
        .collect();
    let streams: Vec<_> = state
        .streams
        .iter()
        .filter(|stream| topics.iter().any(|topic| topic.name == stream.topic))
        .collect();
    if arguments.target.json {
        let streams: Vec<_> = streams
            .iter()
            .map(|stream| stream_as_json(stream))
            .collect();
        let edges: Vec<_> = edges.iter().map(|edge| as_json(edge)).collect();
        output::write(&format!(
            "{}\n",
            json!({"dataflow": state.welcome().dataflow, "edges": edges, "streams": streams})
        ))?;
        return Ok(state.exit_code());
    }
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
    let lossy_streams = streams.iter().filter(|stream| !stream.lost.is_empty());
    paragraphs.extend(lossy_streams.map(|stream| streams::explanation(stream)));
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
    Ok(state.exit_code())
}

fn explanation(edge: &Edge) -> String {
    let totals = edge.totals();
    let mut text = format!(
        "{}: {} of {} lost\n",
        edge.name(),
        totals.lost(),
        totals.output.published()
    );
    for loss in losses::explanations(&totals, edge) {
        text.push_str(&format!("  {}: {}\n", loss.count, loss.what));
        text.push_str(&format!("      {}\n", loss.remedy));
    }
    if edge.is_latest() {
        text.push_str("      a queue of one is right if only the newest sample counts\n");
    }
    text
}

fn as_json(edge: &Edge) -> Value {
    let totals = edge.totals();
    let causes = losses::explanations(&totals, edge).into_iter();
    let counted = |value: u64| edge.has_output().then_some(value);
    json!({
        "topic": edge.topic,
        "consumer": edge.consumer_name(),
        "sent": counted(totals.output.published()),
        "lost": edge.unreadable().is_none().then(|| totals.lost()),
        "took_nothing_seconds": edge.activity().took_nothing_for().map(|idle| idle.as_secs_f64()),
        "blocked_nanos": counted(totals.output.blocked_nanos),
        "unreadable": edge.unreadable(),
        "causes": causes
            .map(|loss| json!({"count": loss.count, "what": loss.what, "remedy": loss.remedy}))
            .collect::<Vec<_>>(),
    })
}

fn stream_as_json(stream: &StreamReport) -> Value {
    let causes = stream.lost.iter().map(|(cause, count)| {
        let (what, remedy) = streams::explain(cause);
        json!({"cause": cause, "count": count, "what": what, "remedy": remedy})
    });
    json!({
        "topic": stream.topic,
        "machine": stream.machine,
        "sent": stream.accepted,
        "delivered": stream.delivered,
        "causes": causes.collect::<Vec<_>>(),
    })
}
