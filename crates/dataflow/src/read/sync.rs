//! Reads the inputs that a node gets together: `sync`.

use nervure_protocol::graph::{NodeSettings, Program, SyncPolicy, SyncSpec};

use super::inputs::unknown_input;
use super::map::{Keys, duplicate_name, read_keys};
use super::reader::{Reader, wrong_type};
use crate::diagnostic::{Code, Finding};
use crate::keys::{MAX_HELD, SYNC, SYNC_POLICIES, SYNC_QUEUE_SIZE, Shape};
use crate::parsed::{LocatedProgram, ParsedInput, ParsedNode, ParsedSource};
use crate::quote::quoted;
use crate::tree::{Kind, Text, Value};

/// Default number of samples of an input that wait for their partners, as in ROS 2's examples.
const DEFAULT_QUEUE_SIZE: u32 = 10;

/// `sync` of a node whose inputs are read.
pub(super) fn read_sync(
    reader: &mut Reader<'_>,
    value: &Value,
    node: &ParsedNode,
) -> Option<SyncSpec> {
    let hint =
        "write `{inputs: [image, cloud], policy: approximate, tolerance: 50ms}`, for example";
    let keys = read_keys(reader, value, &SYNC, Some(hint))?;
    if let Some(LocatedProgram {
        program: Program::Operators(_),
        ..
    }) = &node.program
    {
        let message = "operators get each sample by a call of its own";
        let finding = Finding::error(Code::ConflictingKeys, value.span, message);
        reader.report(finding.hint("write the operator as a node of its own to use `sync`"));
        return None;
    }
    let mut seen = Vec::new();
    let inputs = read_members(reader, &keys, "inputs", node, &mut seen);
    let collect = read_members(reader, &keys, "collect", node, &mut seen);
    let policy = keys.value("policy").map_or(Some("approximate"), |value| {
        reader.one_of(value, SYNC_POLICIES)
    });
    let tolerance = keys.value("tolerance").map(|value| reader.duration(value));
    let queue_size = keys
        .value("queue_size")
        .map_or(Some(DEFAULT_QUEUE_SIZE), |value| {
            reader.unsigned(value, &SYNC_QUEUE_SIZE)
        });
    let span = keys.value("inputs")?.span;
    let (inputs, collect) = (inputs?, collect?);
    if inputs.is_empty() || inputs.len() + collect.len() < 2 {
        let message = "`sync` needs two inputs to match, or one and another to collect";
        let finding = Finding::error(Code::OutOfRange, span, message);
        reader.report(finding.hint("add the other input, or remove `sync`"));
        return None;
    }
    Some(SyncSpec {
        inputs,
        collect,
        policy: match policy? {
            "exact" => SyncPolicy::Exact,
            _ => SyncPolicy::Approximate,
        },
        tolerance: match tolerance {
            Some(tolerance) => Some(tolerance?),
            None => None,
        },
        queue_size: queue_size?,
    })
}

/// The indices of the inputs in a list of names; `None` if some could not be read.
fn read_members(
    reader: &mut Reader<'_>,
    keys: &Keys<'_>,
    key: &str,
    node: &ParsedNode,
    seen: &mut Vec<Text>,
) -> Option<Vec<usize>> {
    let Some(value) = keys.value_if_any(key) else {
        return Some(Vec::new());
    };
    let Kind::List(items) = &value.kind else {
        reader.report(wrong_type(value, Shape::Names.describe()));
        return None;
    };
    let members: Vec<Option<usize>> = items
        .iter()
        .map(|item| {
            let name = reader.text(item, Shape::Name)?;
            if let Some(first) = seen.iter().find(|other| other.text == name.text) {
                let (code, first) = (Code::DuplicateInput, first.span);
                reader.report(duplicate_name(code, "input", &name, first));
                return None;
            }
            seen.push(name.clone());
            member(reader, &name, node)
        })
        .collect();
    members.into_iter().collect()
}

fn member(reader: &mut Reader<'_>, name: &Text, node: &ParsedNode) -> Option<usize> {
    let mut inputs = node.inputs.iter();
    let at = inputs.position(|input| input.name.text == name.text);
    // An input that could not be read may be this one.
    if at.is_none() && node.inputs_complete {
        reader.report(unknown_input(name, &node.inputs));
    }
    let at = at?;
    if let ParsedSource::Timer { .. } = node.inputs[at].source {
        let message = format!(
            "{} is a timer, whose ticks carry no data",
            quoted(&name.text)
        );
        let finding = Finding::error(Code::ConflictingKeys, name.span, message);
        reader.report(finding.hint("remove it from `sync`: the node gets its ticks as they come"));
        return None;
    }
    Some(at)
}

/// Lets the node hold the samples that wait for their partners, in addition to those that it uses.
pub(super) fn hold_for_sync(settings: &NodeSettings, inputs: &mut [ParsedInput]) {
    let Some(sync) = &settings.sync else {
        return;
    };
    let most = u32::try_from(*MAX_HELD.end()).unwrap_or(u32::MAX);
    // Those that wait, one that comes, and the sets that wait for collected samples.
    let matched = (sync.queue_size + 1) * if sync.collect.is_empty() { 1 } else { 2 };
    for &input in &sync.inputs {
        let queue = &mut inputs[input].queue;
        queue.max_held = queue.max_held.saturating_add(matched).min(most);
    }
    for &input in &sync.collect {
        let queue = &mut inputs[input].queue;
        queue.max_held = queue.max_held.saturating_add(queue.depth + 1).min(most);
    }
}

/// Adapts the settings that name inputs by their indices to a node some of whose inputs were removed:
/// `kept` has the new index of each.
pub(super) fn renumber_inputs(settings: &mut NodeSettings, kept: &[Option<usize>]) {
    settings.loop_deadline = settings.loop_deadline.and_then(|mut deadline| {
        deadline.input = kept[deadline.input]?;
        Some(deadline)
    });
    if let Some(sync) = &mut settings.sync {
        for members in [&mut sync.inputs, &mut sync.collect] {
            *members = members.iter().filter_map(|&input| kept[input]).collect();
        }
        if sync.inputs.is_empty() {
            settings.sync = None;
        }
    }
}
