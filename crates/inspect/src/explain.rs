//! Where and why samples were lost.

use std::time::Instant;

use nervure_protocol::daemon_to_daemon::StreamReport;

use crate::{
    Error, State,
    activity::ConsumerActivity,
    answers::{Cause, ExplainedEdge, ExplainedStream, Explanations},
    edges::Edge,
    losses, streams,
    topics::{SelectedTopics, Topic, edges_of, select_topics},
};

/// The losses of the topics that match.
///
/// # Errors
/// If the dataflow cannot be found or reached, and for a pattern without a match.
pub fn explanations(dataflow: &str, patterns: &[String]) -> Result<Explanations, Error> {
    let SelectedTopics { mut state, topics } = select_topics(patterns, Some(dataflow), "explain")?;
    read_counters(&mut state)?;
    Ok(Explanations::of(&state, &topics))
}

/// Reads the counters; twice, if it takes some time to see whether a consumer takes samples or an
/// edge still loses some.
///
/// # Errors
/// If a keeper cannot be followed.
pub fn read_counters(state: &mut State) -> Result<(), Error> {
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

/// The streams of some topics to other machines.
pub fn streams_of<'s>(
    state: &'s State,
    topics: &'s [Topic],
) -> impl Iterator<Item = &'s StreamReport> {
    let is_of_topic = |stream: &&StreamReport| topics.iter().any(|it| it.name == stream.topic);
    state.streams.iter().filter(is_of_topic)
}

impl Explanations {
    /// The losses of some topics of a state whose counters were read by [`read_counters`].
    pub fn of(state: &State, topics: &[Topic]) -> Self {
        let edges = topics.iter().flat_map(|topic| edges_of(state, topic));
        Self {
            dataflow: state.welcome().dataflow.clone(),
            edges: edges.map(explained_edge).collect(),
            streams: streams_of(state, topics).map(explained_stream).collect(),
            unreachable: state.unreachable_machines(),
        }
    }
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
