//! `nervure explain`: explains where and why samples were lost.

use std::{process::ExitCode, time::Instant};

use nervure_protocol::daemon_to_daemon::StreamReport;

use super::{
    answers::{self, Cause, ExplainedEdge, ExplainedStream, Explanations},
    arguments::TopicsArguments,
    state::State,
    streams,
    topic::edges_of,
    topics::{SelectedTopics, Topic, select_topics},
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
    read_counters(&mut state)?;
    if arguments.target.json {
        output::write(&answers::line(&answer(&state, &topics)))?;
        return Ok(state.exit_code());
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
    Ok(state.exit_code())
}

/// The losses of the topics that match, as `--json` writes them.
#[cfg(feature = "api")]
pub fn explanations_of(dataflow: &str, patterns: &[String]) -> Result<Explanations, Failure> {
    let SelectedTopics { mut state, topics } = select_topics(patterns, Some(dataflow), "explain")?;
    read_counters(&mut state)?;
    Ok(answer(&state, &topics))
}

/// Reads the counters; twice, if it takes some time to see whether a consumer takes samples or an
/// edge still loses some.
fn read_counters(state: &mut State) -> Result<(), Failure> {
    state.sample();
    if state
        .edges
        .iter()
        .any(|edge| edge.activity().is_undecided() || edge.lost() > 0)
    {
        state.follow_until(Instant::now() + ConsumerActivity::decided_after())?;
        state.sample();
    }
    Ok(())
}

fn streams_of<'s>(state: &'s State, topics: &'s [Topic]) -> impl Iterator<Item = &'s StreamReport> {
    let is_of_topic = |stream: &&StreamReport| topics.iter().any(|it| it.name == stream.topic);
    state.streams.iter().filter(is_of_topic)
}

fn answer(state: &State, topics: &[Topic]) -> Explanations {
    let edges = topics.iter().flat_map(|topic| edges_of(state, topic));
    Explanations {
        dataflow: state.welcome().dataflow.clone(),
        edges: edges.map(explained_edge).collect(),
        streams: streams_of(state, topics).map(explained_stream).collect(),
        unreachable: state.unreachable_machines(),
    }
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

fn explained_edge(edge: &Edge) -> ExplainedEdge {
    let totals = edge.totals();
    let causes = losses::explanations(&totals, edge).into_iter();
    let counted = |value: u64| edge.has_output().then_some(value);
    ExplainedEdge {
        topic: edge.topic.clone(),
        consumer: edge.consumer_name().to_owned(),
        sent: counted(totals.published()),
        lost: edge.unreadable().is_none().then(|| totals.lost()),
        took_nothing_seconds: edge
            .activity()
            .took_nothing_for()
            .map(|idle| idle.as_secs_f64()),
        blocked_nanos: counted(totals.output.blocked_nanos),
        unreadable: edge.unreadable(),
        causes: causes
            .map(|loss| Cause {
                cause: None,
                count: loss.count,
                what: loss.what.into_owned(),
                remedy: loss.remedy.text,
            })
            .collect(),
    }
}

fn explained_stream(stream: &StreamReport) -> ExplainedStream {
    let causes = stream.lost.iter().map(|(cause, count)| {
        let (what, remedy) = streams::explain(cause);
        Cause {
            cause: Some(cause.to_string()),
            count: *count,
            what: what.to_owned(),
            remedy: remedy.to_owned(),
        }
    });
    ExplainedStream {
        topic: stream.topic.clone(),
        machine: stream.machine.clone(),
        sent: stream.accepted,
        delivered: stream.delivered,
        causes: causes.collect(),
    }
}
