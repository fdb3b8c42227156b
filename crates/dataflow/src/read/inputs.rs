//! Reads the inputs of a node.

use std::time::Duration;

use nervure_protocol::nearest;
use nervure_protocol::wiring::{MAX_NODE_INPUTS, Policy};

use super::machines::read_qos;
use super::map::{Keys, read_entries, read_keys};
use super::reader::{MIN_INTERVAL, Reader, wrong_type};
use super::sources::read_source;
use super::types::{assign_types, has_ports_elsewhere, read_type, read_types};
use crate::diagnostic::{Code, Finding};
use crate::graph::{InputQueue, QueuePolicy};
use crate::keys::{INPUT, MAX_HELD, QUEUE_POLICIES, QUEUE_SIZE, Shape};
use crate::parsed::{ParsedInput, ParsedSource};
use crate::quote::{listed, quoted};
use crate::tree::{Entry, Kind, Text, Value};

/// The inputs, and whether all of them could be read.
pub(super) fn read_inputs(reader: &mut Reader<'_>, node: &Keys<'_>) -> (Vec<ParsedInput>, bool) {
    let errors_before = reader.errors();
    let mut inputs = node
        .value_if_any("inputs")
        .map(|value| read_input_map(reader, value))
        .unwrap_or_default();
    let types = node
        .value_if_any("input_types")
        .map(|value| read_types(reader, value))
        .unwrap_or_default();
    let ports = inputs
        .iter_mut()
        .map(|input| (&input.name, &mut input.type_name))
        .collect();
    assign_types(reader, ports, types, "input");
    let is_complete = reader.errors() == errors_before && !has_ports_elsewhere(node, "inputs");
    (inputs, is_complete)
}

fn read_input_map(reader: &mut Reader<'_>, value: &Value) -> Vec<ParsedInput> {
    if let Kind::List(_) = value.kind {
        let hint = "inputs have names: write `image: camera/image` instead of `- camera/image`";
        reader.report(wrong_type(value, Shape::Inputs.describe()).hint(hint));
        return Vec::new();
    }
    let entries = read_entries(reader, value, Shape::Inputs, Code::DuplicateInput, "input")
        .unwrap_or_default();
    if let Some(first_beyond) = entries.get(MAX_NODE_INPUTS as usize) {
        let message = format!("the node has {} inputs", entries.len());
        let finding = Finding::error(Code::OutOfRange, first_beyond.key.span, message)
            .expected(format!("at most {MAX_NODE_INPUTS} inputs"))
            .hint("divide the node, or let another node combine some of them");
        reader.report(finding);
    }
    entries
        .iter()
        .filter_map(|entry| read_input(reader, entry))
        .collect()
}

fn read_input(reader: &mut Reader<'_>, entry: &Entry) -> Option<ParsedInput> {
    let Entry { key: name, value } = entry;
    let is_named = reader.check_port_name(name, "input");
    let input = if let Kind::Map(_) = value.kind {
        read_long_input(reader, name, value)
    } else {
        let source = match reader.text(value, Shape::Source) {
            Some(text) => read_source(reader, &text),
            None => ParsedSource::Invalid,
        };
        let queue = if let ParsedSource::Timer { .. } = source {
            InputQueue::LATEST
        } else {
            InputQueue::DEFAULT
        };
        Some(ParsedInput {
            name: name.clone(),
            source,
            queue,
            type_name: None,
            expect_every: None,
            qos: Default::default(),
            policy_span: value.span,
        })
    };
    input.filter(|_| is_named)
}

/// An input as a map of keys.
fn read_long_input(reader: &mut Reader<'_>, name: &Text, value: &Value) -> Option<ParsedInput> {
    let keys = read_keys(reader, value, &INPUT, None)?;
    let text = keys
        .value("source")
        .and_then(|value| reader.text(value, Shape::Source));
    let source = text
        .as_ref()
        .map_or(ParsedSource::Invalid, |text| read_source(reader, text));
    let queue = if let ParsedSource::Timer { .. } = source {
        read_timer_queue(reader, &keys)
    } else {
        read_queue(reader, &keys)
    };
    let source_span = text.map_or(value.span, |text| text.span);
    let expect_every = read_expect_every(reader, &keys, &source);
    Some(ParsedInput {
        name: name.clone(),
        source,
        queue,
        type_name: keys
            .value("type")
            .and_then(|value| read_type(reader, value)),
        expect_every,
        qos: keys
            .value("qos")
            .map(|value| read_qos(reader, value))
            .unwrap_or_default(),
        policy_span: keys
            .value("queue_policy")
            .map_or(source_span, |policy| policy.span),
    })
}

/// `expect_every`, or dora's `input_timeout`.
fn read_expect_every(
    reader: &mut Reader<'_>,
    keys: &Keys<'_>,
    source: &ParsedSource,
) -> Option<Duration> {
    let own = keys
        .value("expect_every")
        .and_then(|value| reader.interval(value));
    let Some(timeout) = keys.entry("input_timeout") else {
        return own;
    };
    let duration = reader.duration(&timeout.value);
    if let Some(own) = keys.entry("expect_every") {
        let message = "`input_timeout` is `expect_every` in dora's words";
        let finding = Finding::error(Code::ConflictingKeys, timeout.key.span, message);
        reader.report(
            finding
                .hint("remove one of them")
                .related(own.key.span, "here too"),
        );
    }
    let has_effect = !matches!(source, ParsedSource::Timer { .. });
    let is_first_use = INPUT
        .find("input_timeout")
        .is_some_and(|key| !has_effect && reader.is_first_use(key));
    if is_first_use {
        let message = "`input_timeout` has no effect: ticks are the node's own";
        reader.report(Finding::warning(
            Code::UselessKey,
            timeout.key.span,
            message,
        ));
    }
    // dora accepts 0, which means at once; the shortest interval is as good.
    own.or(duration
        .filter(|_| has_effect)
        .map(|duration| duration.max(MIN_INTERVAL)))
}

fn read_queue(reader: &mut Reader<'_>, keys: &Keys<'_>) -> InputQueue {
    let policy = keys
        .value("queue_policy")
        .and_then(|value| read_queue_policy(reader, value));
    let depth = keys
        .value("queue_size")
        .and_then(|value| read_queue_size(reader, value));
    let max_held = keys
        .value("max_held")
        .and_then(|value| reader.unsigned(value, &MAX_HELD));
    let policy = policy.unwrap_or(InputQueue::DEFAULT.policy);
    let mut queue = match policy {
        QueuePolicy::Latest => InputQueue::LATEST,
        QueuePolicy::Edge(policy) => {
            InputQueue::new(policy, depth.unwrap_or(InputQueue::DEFAULT.depth))
        }
    };
    if let (QueuePolicy::Latest, Some(entry)) = (policy, keys.entry("queue_size")) {
        let message = "`queue_size` has no meaning with `queue_policy: latest`";
        let finding = Finding::error(Code::ConflictingKeys, entry.key.span, message)
            .hint("`latest` keeps one sample; remove `queue_size`, or use `drop_oldest`");
        reader.report(finding);
    }
    if let (Some(max_held), Some(value)) = (max_held, keys.value("max_held")) {
        queue.max_held = max_held;
        if max_held <= queue.depth {
            let depth = queue.depth;
            let message = format!("`max_held` is {max_held} and the queue alone can hold {depth}");
            let finding = Finding::error(Code::ConflictingKeys, value.span, message)
                .expected(format!("at least {}", depth + 1))
                .hint("`max_held` counts the samples that wait and those that the node uses; make `queue_size` smaller or `max_held` larger");
            reader.report(finding);
        }
    }
    queue
}

fn read_queue_policy(reader: &mut Reader<'_>, value: &Value) -> Option<QueuePolicy> {
    match reader.one_of(value, QUEUE_POLICIES)? {
        "latest" => Some(QueuePolicy::Latest),
        "backpressure" => Some(QueuePolicy::Edge(Policy::Block)),
        word => {
            let policy = Policy::ALL.into_iter().find(|policy| policy.name() == word);
            policy.map(QueuePolicy::Edge)
        }
    }
}

fn read_queue_size(reader: &mut Reader<'_>, value: &Value) -> Option<u32> {
    if let Kind::Integer(0, _) = value.kind {
        let message = "a queue of 0 would never deliver anything";
        let hint =
            "for the newest sample only, remove `queue_size` and write `queue_policy: latest`";
        let finding = Finding::error(Code::OutOfRange, value.span, message)
            .expected(Shape::Integer(&QUEUE_SIZE).describe())
            .hint(hint);
        reader.report(finding);
        return None;
    }
    reader.unsigned(value, &QUEUE_SIZE)
}

/// Whether a policy contradicts that ticks are not queued: a missed tick is counted in the next one.
fn contradicts_timer(policy: QueuePolicy) -> bool {
    match policy.on_edge() {
        Policy::DropOldest => false,
        Policy::DropNewest | Policy::Block => true,
    }
}

/// The queue of a timer: ticks are not queued. A `queue_size` has no effect; dora's files have it.
fn read_timer_queue(reader: &mut Reader<'_>, keys: &Keys<'_>) -> InputQueue {
    keys.value("queue_size")
        .map(|value| read_queue_size(reader, value));
    if let Some(value) = keys.value("queue_policy")
        && read_queue_policy(reader, value).is_some_and(contradicts_timer)
    {
        let message = "a timer has no queue to be full";
        let hint =
            "remove `queue_policy`: ticks that the node misses become a count in the next one";
        reader.report(Finding::error(Code::ConflictingKeys, value.span, message).hint(hint));
    }
    for (name, reason) in [
        ("max_held", "a tick carries no data"),
        ("type", "a tick carries no data"),
        ("qos", "ticks are the node's own, and cross no link"),
        (
            "expect_every",
            "ticks are the node's own, and those that it misses are counted",
        ),
    ] {
        if let Some(entry) = keys.entry(name) {
            let message = format!("`{name}` has no meaning for a timer");
            let finding = Finding::error(Code::ConflictingKeys, entry.key.span, message);
            reader.report(finding.hint(format!("remove `{name}`: {reason}")));
        }
    }
    InputQueue::LATEST
}

pub(super) fn unknown_input(name: &Text, inputs: &[ParsedInput]) -> Finding {
    let names = || inputs.iter().map(|input| input.name.text.as_str());
    let message = format!("the node has no input {}", quoted(&name.text));
    Finding::error(Code::UnknownInput, name.span, message).nearest(
        nearest(&name.text, names()),
        || match inputs {
            [] => {
                Some("the node has no inputs: add a timer, `tick: nervure/timer/hz/200`".to_owned())
            }
            _ => Some(format!("its inputs are {}", listed(names()))),
        },
    )
}
