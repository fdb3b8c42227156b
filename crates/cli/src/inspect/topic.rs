//! `nervure topic`: lists, shows and measures topics.

use std::{collections::BTreeSet, process::ExitCode};

use nervure_inspect::{
    State,
    answers::{self, TopicInfo, Topics},
    topics::{SelectedTopics, Topic, edges_of, select_topics},
};

use super::{
    arguments::{TopicAction, TopicArguments, TopicsArguments},
    echo, exit_code, measure, publish,
};
use crate::{
    failure::Failure,
    output,
    run::edge_table::known,
    table::{Align, Table},
};

/// Runs a subcommand of `nervure topic`.
pub fn topic(arguments: &TopicArguments) -> Result<ExitCode, Failure> {
    match &arguments.action {
        TopicAction::List(arguments) => list(arguments),
        TopicAction::Info(arguments) => info(arguments),
        TopicAction::Echo(arguments) => echo::echo(arguments),
        TopicAction::Pub(arguments) => publish::publish(arguments),
        TopicAction::Hz(arguments) => measure::measure(arguments, measure::Quantity::Rate),
        TopicAction::Bw(arguments) => measure::measure(arguments, measure::Quantity::Bandwidth),
        TopicAction::Delay(arguments) => measure::measure(arguments, measure::Quantity::Delay),
    }
}

fn list(arguments: &TopicsArguments) -> Result<ExitCode, Failure> {
    let SelectedTopics { state, topics } = select_topics(
        &arguments.topics,
        arguments.target.dataflow.as_deref(),
        "topic-list",
    )?;
    let listed = Topics::of(&state, &topics);
    if arguments.target.json {
        output::write(&answers::line(&listed))?;
        return Ok(exit_code(&state));
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
    Ok(exit_code(&state))
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
            text.push_str(&answers::line(&TopicInfo::of(&state, topic)));
        } else {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&info_text(&state, topic));
        }
    }
    output::write(&text)?;
    Ok(exit_code(&state))
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
