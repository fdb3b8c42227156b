//! `nervure topic`: lists, shows and measures topics.

use std::{collections::BTreeSet, process::ExitCode};

#[cfg(feature = "api")]
use super::answers::TopicInfos;
use super::{
    answers::{self, ListedTopic, Producer, TopicInfo, Topics},
    arguments::{TopicAction, TopicArguments, TopicsArguments},
    echo, measure,
    state::State,
    topics::{SelectedTopics, Topic, select_topics},
};
use crate::{
    failure::Failure,
    output,
    run::{edge_table::known, edges::Edge, json::edge as edge_json},
    table::{Align, Table},
};

/// Runs a subcommand of `nervure topic`.
pub fn topic(arguments: &TopicArguments) -> Result<ExitCode, Failure> {
    match &arguments.action {
        TopicAction::List(arguments) => list(arguments),
        TopicAction::Info(arguments) => info(arguments),
        TopicAction::Echo(arguments) => echo::echo(arguments),
        TopicAction::Hz(arguments) => measure::measure(arguments, measure::Quantity::Rate),
        TopicAction::Bw(arguments) => measure::measure(arguments, measure::Quantity::Bandwidth),
        TopicAction::Delay(arguments) => measure::measure(arguments, measure::Quantity::Delay),
    }
}

/// The edges of a topic.
pub fn edges_of<'a>(state: &'a State, topic: &'a Topic) -> impl Iterator<Item = &'a Edge> {
    state.edges.iter().filter(|edge| edge.topic == topic.name)
}

fn list(arguments: &TopicsArguments) -> Result<ExitCode, Failure> {
    let SelectedTopics { state, topics } = select_topics(
        &arguments.topics,
        arguments.target.dataflow.as_deref(),
        "topic-list",
    )?;
    let listed = listed(&state, &topics);
    if arguments.target.json {
        output::write(&answers::line(&listed))?;
        return Ok(state.exit_code());
    }
    let mut table = Table::new(&[
        ("topic", Align::Left),
        ("type", Align::Left),
        ("history", Align::Right),
        ("consumers", Align::Right),
        ("observers", Align::Right),
    ]);
    for topic in listed.topics {
        table.row(vec![
            topic.topic,
            topic.r#type.unwrap_or_else(|| "-".to_owned()),
            topic.history.to_string(),
            topic.consumers.to_string(),
            topic.observers.to_string(),
        ]);
    }
    output::write(&table.render(None))?;
    Ok(state.exit_code())
}

/// The topics as `--json` writes them.
#[cfg(feature = "api")]
pub fn topics_of(dataflow: &str) -> Result<Topics, Failure> {
    let SelectedTopics { state, topics } = select_topics(&[], Some(dataflow), "topic-list")?;
    Ok(listed(&state, &topics))
}

fn listed(state: &State, topics: &[Topic]) -> Topics {
    let count = |topic: &Topic, observer| {
        edges_of(state, topic)
            .filter(|edge: &&Edge| edge.observer == observer)
            .count()
    };
    let topic = |topic: &Topic| ListedTopic {
        topic: topic.name.clone(),
        r#type: topic.output.type_name.clone(),
        history: topic.output.history,
        consumers: count(topic, false),
        observers: count(topic, true),
    };
    Topics {
        dataflow: state.welcome().dataflow.clone(),
        topics: topics.iter().map(topic).collect(),
    }
}

fn info(arguments: &TopicsArguments) -> Result<ExitCode, Failure> {
    let SelectedTopics { mut state, topics } = select_topics(
        &arguments.topics,
        arguments.target.dataflow.as_deref(),
        "topic-info",
    )?;
    state.sample();
    let mut text = String::new();
    for topic in &topics {
        if arguments.target.json {
            text.push_str(&answers::line(&info_of(&state, topic)));
        } else {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&info_text(&state, topic));
        }
    }
    output::write(&text)?;
    Ok(state.exit_code())
}

fn info_text(state: &State, topic: &Topic) -> String {
    let producer = &state.nodes[&topic.node];
    let mut text = format!("{}\n", topic.name);
    text.push_str(&format!(
        "  type     {}\n",
        topic.output.type_name.as_deref().unwrap_or("not declared")
    ));
    let process = producer
        .pid()
        .map(|pid| format!(" (process {pid})"))
        .unwrap_or_default();
    text.push_str(&format!(
        "  sent by  {} {}{process}\n",
        producer.declared.id,
        producer.state()
    ));
    if topic.output.history > 0 {
        text.push_str(&format!("  history  {}\n", topic.output.history));
    }
    let mut table = Table::new(&[
        ("  received by", Align::Left),
        ("policy", Align::Left),
        ("queue", Align::Right),
        ("max held", Align::Right),
        ("sent", Align::Right),
        ("received", Align::Right),
        ("lost", Align::Right),
        ("not taken", Align::Right),
    ]);
    let mut edges = edges_of(state, topic).peekable();
    if edges.peek().is_none() {
        text.push_str("  received by no node or observer\n");
        return text;
    }
    let mut unreadable = BTreeSet::new();
    for edge in edges {
        let totals = edge.totals();
        table.row(vec![
            format!("  {}", edge.consumer_name()),
            edge.queue.policy_name().to_owned(),
            format!(
                "{}/{}",
                known(edge.has_output() && edge.has_input(), totals.queued()),
                edge.queue.depth
            ),
            edge.queue.max_held.to_string(),
            known(edge.has_output(), totals.published()),
            known(edge.has_input(), totals.received()),
            known(edge.unreadable().is_none(), totals.lost()),
            known(edge.unreadable().is_none(), totals.not_taken()),
        ]);
        unreadable.extend(edge.unreadable().map(|why| format!("  {why}\n")));
    }
    text + &table.render(None) + &unreadable.into_iter().collect::<String>()
}

fn info_of(state: &State, topic: &Topic) -> TopicInfo {
    let producer = &state.nodes[&topic.node];
    TopicInfo {
        topic: topic.name.clone(),
        r#type: topic.output.type_name.clone(),
        history: topic.output.history,
        producer: Producer {
            id: producer.declared.id.clone(),
            state: producer.state(),
            pid: producer.pid(),
        },
        edges: edges_of(state, topic).map(edge_json).collect(),
    }
}

/// The topics that match, as `nervure topic info --json` writes each.
#[cfg(feature = "api")]
pub fn infos_of(dataflow: &str, patterns: &[String]) -> Result<TopicInfos, Failure> {
    let SelectedTopics { mut state, topics } =
        select_topics(patterns, Some(dataflow), "topic-info")?;
    state.sample();
    Ok(TopicInfos {
        dataflow: state.welcome().dataflow.clone(),
        topics: topics.iter().map(|topic| info_of(&state, topic)).collect(),
        unreachable: state.unreachable_machines(),
    })
}
