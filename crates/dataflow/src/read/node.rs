//! Reads the keys of a node.

use std::path::PathBuf;
use std::time::Duration;

use nervure_protocol::graph::{DeadlineSpec, NodeSettings, Ready, Scheduling};

use super::environment::read_environment;
use super::git::read_git;
use super::inputs::{read_inputs, unknown_input};
use super::last_values::read_last_values;
use super::log_outputs::read_log_outputs;
use super::map::{Keys, read_keys};
use super::operators::{ProgramAndPorts, read_operators};
use super::outputs::read_outputs;
use super::params::read_params;
use super::program::{ProgramLocator, read_arguments, read_build, read_program};
use super::reader::{Reader, wrong_type};
use super::restart::read_restart;
use super::scheduling::{read_processors, read_scheduling};
use super::services::{read_clients, read_services};
use super::sync::{hold_for_sync, read_sync};
use super::transforms::read_transforms;
use super::variables::Variables;
use crate::diagnostic::{Code, Finding};
use crate::keys::{CUSTOM, DEPLOY, LOG_LEVELS, LOOP, NODE, ON_PARTITION, READY, Shape};
use crate::parsed::ParsedNode;
use crate::quote::quoted;
use crate::surroundings;
use crate::tree::{Entry, Kind, Text, Value};

/// Ids that begin the names of timers.
const RESERVED_IDS: &[&str] = &["nervure", "dora"];
/// Shortest timeout: a process needs time to act.
const MIN_TIMEOUT: Duration = Duration::from_millis(10);
/// Least shared memory in which a node can send something.
const MIN_SHARED_MEMORY_BYTES: u64 = 1_000_000;

/// The parts of the host that nodes refer to.
pub(super) struct Host<'h> {
    pub variables: Variables<'h>,
    pub programs: ProgramLocator<'h>,
}

pub(super) fn read_node(
    reader: &mut Reader<'_>,
    host: &Host<'_>,
    value: &Value,
) -> Option<ParsedNode> {
    let hint = "write each node as `- id: camera`, followed by its other keys";
    let flattened = flatten_custom(value);
    let keys = read_keys(
        reader,
        flattened.as_ref().unwrap_or(value),
        &NODE,
        Some(hint),
    )?;
    if let Some(custom) = keys.value("custom") {
        reader.report(wrong_type(custom, Shape::Map(&CUSTOM).describe()));
    }
    let git = read_git(reader, &host.programs.directory, &keys);
    let deployed = keys
        .value_if_any("deploy")
        .and_then(|value| read_folder(reader, host, value));
    let folder = git.as_ref().map(|git| git.folder.clone()).or(deployed);
    let host = &Host {
        variables: host.variables.clone(),
        programs: ProgramLocator {
            directory: folder
                .as_deref()
                .map_or_else(|| host.programs.directory.clone(), Into::into),
            ..host.programs.clone()
        },
    };
    let id = keys
        .value("id")
        .and_then(|value| reader.name(value, "node id"));
    if let Some(id) = &id {
        check_not_reserved(reader, id);
    }
    let code = match read_operators(reader, &host.programs, &keys) {
        Some(operators) => operators,
        None => own_program(reader, host, &keys),
    };
    let (services, services_complete) = read_services(reader, &keys);
    let mut node = ParsedNode {
        id,
        span: value.span,
        machine: keys
            .value("machine")
            .and_then(|value| reader.name(value, "machine")),
        process: keys
            .value("process")
            .and_then(|value| reader.name(value, "process")),
        args_span: keys.entry("args").map(|entry| entry.key.span),
        stops_on_partition: keys
            .value("on_partition")
            .and_then(|value| reader.one_of(value, ON_PARTITION))
            == Some("stop"),
        name: read_words(reader, &keys, "name"),
        description: read_words(reader, &keys, "description"),
        program: code.program,
        settings: NodeSettings::default(),
        build: code.build,
        git,
        inputs: code.inputs,
        inputs_complete: code.inputs_complete,
        outputs: code.outputs,
        log_outputs: code.log_outputs,
        outputs_complete: code.outputs_complete,
        services,
        services_complete,
        clients: keys
            .value_if_any("clients")
            .map(|value| read_clients(reader, value))
            .unwrap_or_default(),
        shared_memory: read_shared_memory(reader, &keys),
        single_operator: code.single,
    };
    node.settings = read_settings(reader, host, &keys, &node);
    hold_for_sync(&node.settings, &mut node.inputs);
    if let (Scheduling::Deadline { .. }, Some(entry)) =
        (node.settings.scheduling, keys.entry("cpu_affinity"))
    {
        let message = "`policy: deadline` requires that the thread may run on all processors";
        let finding = Finding::error(Code::ConflictingKeys, entry.key.span, message);
        reader.report(finding.hint("remove `cpu_affinity`, or use `policy: fifo`"));
    }
    node.settings.folder.clone_from(&folder);
    for key in ["startup_timeout", "memory_lock"] {
        if let (false, Some(entry)) = (may_connect(&node), keys.entry(key)) {
            let message =
                format!("`{key}` has no effect: a node without inputs and outputs never connects");
            let finding = Finding::warning(Code::UselessKey, entry.key.span, message);
            reader.report(finding.hint("remove it"));
        }
    }
    Some(node)
}

/// A node with the keys of its `custom` among its own, as in dora since 0.3.
fn flatten_custom(value: &Value) -> Option<Value> {
    let Kind::Map(entries) = &value.kind else {
        return None;
    };
    let is_custom =
        |entry: &&Entry| entry.key.text == "custom" && matches!(entry.value.kind, Kind::Map(_));
    let Kind::Map(inner) = &entries.iter().find(is_custom)?.value.kind else {
        return None;
    };
    let mut flat: Vec<Entry> = entries
        .iter()
        .filter(|entry| !is_custom(entry))
        .cloned()
        .collect();
    flat.extend(inner.iter().cloned().map(|mut entry| {
        entry.key.text = match entry.key.text.as_str() {
            "source" => "path".to_owned(),
            "envs" => "env".to_owned(),
            _ => entry.key.text,
        };
        entry
    }));
    Some(Value {
        kind: Kind::Map(flat),
        ..*value
    })
}

/// The working directory of a node that `deploy` names, if it exists on this host.
fn read_folder(reader: &mut Reader<'_>, host: &Host<'_>, value: &Value) -> Option<PathBuf> {
    let keys = read_keys(reader, value, &DEPLOY, None)?;
    let path = reader.text(keys.value("working_dir")?, Shape::Path)?;
    let folder = host.programs.directory.join(&path.text);
    if host.programs.surroundings.entry(&folder) == surroundings::Entry::Folder {
        return Some(folder);
    }
    let message = format!(
        "there is no folder {}: the node runs in the folder of this file",
        quoted(&folder.display().to_string())
    );
    reader.report(
        Finding::warning(Code::UselessKey, path.span, message)
            .hint("`working_dir` is relative to this file"),
    );
    None
}

/// The program of a node without operators, with its inputs and outputs.
fn own_program(reader: &mut Reader<'_>, host: &Host<'_>, keys: &Keys<'_>) -> ProgramAndPorts {
    let (inputs, inputs_complete) = read_inputs(reader, keys);
    let (mut outputs, outputs_complete) = read_outputs(reader, keys);
    let log_outputs = read_log_outputs(reader, keys, &mut outputs);
    ProgramAndPorts {
        program: read_program(reader, &host.programs, keys),
        build: keys
            .value_if_any("build")
            .and_then(|value| read_build(reader, value)),
        inputs,
        outputs,
        log_outputs,
        inputs_complete,
        outputs_complete,
        single: None,
    }
}

/// The settings of `node`, whose other parts are already read.
fn read_settings(
    reader: &mut Reader<'_>,
    host: &Host<'_>,
    keys: &Keys<'_>,
    node: &ParsedNode,
) -> NodeSettings {
    NodeSettings {
        args: keys
            .value_if_any("args")
            .map(|value| read_arguments(reader, &host.variables, value))
            .unwrap_or_default(),
        env: keys
            .value_if_any("env")
            .map(|value| read_environment(reader, &host.variables, value))
            .unwrap_or_default(),
        restart: read_restart(reader, keys),
        startup_timeout: read_timeout(reader, keys, "startup_timeout"),
        health_check_timeout: read_timeout(reader, keys, "health_check_timeout"),
        version: String::new(),
        held: false,
        params: keys
            .value_if_any("params")
            .map(|value| read_params(reader, &host.variables, value))
            .unwrap_or_default(),
        on_failure: keys
            .value("on_failure")
            .map(|value| read_last_values(reader, value, &node.outputs, node.outputs_complete))
            .unwrap_or_default(),
        process: node.process.as_ref().map(|process| process.text.clone()),
        cpu_affinity: keys
            .value("cpu_affinity")
            .map(|value| read_processors(reader, value))
            .unwrap_or_default(),
        scheduling: keys
            .value("scheduling")
            .map(|value| read_scheduling(reader, value))
            .unwrap_or_default(),
        memory_lock: keys
            .value("memory_lock")
            .and_then(|value| reader.boolean(value))
            .unwrap_or(false),
        ready: read_ready(reader, keys),
        folder: None,
        min_log_level: keys.value("min_log_level").and_then(known_log_level),
        loop_deadline: keys
            .value("loop")
            .and_then(|value| read_loop_deadline(reader, value, node)),
        sync: keys
            .value("sync")
            .and_then(|value| read_sync(reader, value, node)),
        transforms: keys
            .value("transforms")
            .and_then(|value| read_transforms(reader, value, node)),
    }
}

/// The level, if it is valid. `read_log_outputs` reports invalid ones.
fn known_log_level(value: &Value) -> Option<String> {
    let Kind::Text(text) = &value.kind else {
        return None;
    };
    let mut levels = LOG_LEVELS.iter();
    let level = levels.find(|level| level.eq_ignore_ascii_case(text));
    level.map(|level| (*level).to_owned())
}

/// Whether the node has inputs or outputs, or some that could not be read.
fn may_connect(node: &ParsedNode) -> bool {
    !node.inputs.is_empty()
        || !node.outputs.is_empty()
        || !node.inputs_complete
        || !node.outputs_complete
        || !node.services.is_empty()
        || !node.clients.is_empty()
        || node.settings.transforms.is_some()
}

fn check_not_reserved(reader: &mut Reader<'_>, id: &Text) {
    if RESERVED_IDS.contains(&id.text.as_str()) {
        let message = format!("the node id `{}` is reserved", id.text);
        let hint = format!(
            "`{0}/timer/..` names timers; call the node `{0}-node`, for example",
            id.text
        );
        reader.report(Finding::error(Code::InvalidName, id.span, message).hint(hint));
    }
}

fn read_words(reader: &mut Reader<'_>, keys: &Keys<'_>, name: &str) -> Option<String> {
    let text = reader.text(keys.value(name)?, Shape::Words)?;
    Some(text.text)
}

fn read_shared_memory(reader: &mut Reader<'_>, keys: &Keys<'_>) -> Option<u64> {
    let entry = keys.entry("shared_memory")?;
    // dora's key allows a number of bytes without a unit; Nervure's does not.
    let bytes = reader.size(&entry.value, entry.key.text != "shared_memory")?;
    if bytes < MIN_SHARED_MEMORY_BYTES {
        let message = "this is too little to send anything";
        let finding = Finding::error(Code::OutOfRange, entry.value.span, message);
        reader.report(finding.expected("at least 1MB"));
        return None;
    }
    Some(bytes)
}

fn read_ready(reader: &mut Reader<'_>, keys: &Keys<'_>) -> Ready {
    match keys
        .value("ready")
        .and_then(|value| reader.one_of(value, READY))
    {
        Some("manual") => Ready::Manual,
        _ => Ready::Auto,
    }
}

fn read_timeout(reader: &mut Reader<'_>, keys: &Keys<'_>, name: &str) -> Option<Duration> {
    let value = keys.value(name)?;
    let timeout = reader.duration(value)?;
    if timeout < MIN_TIMEOUT {
        let message = format!("{timeout:?} is too short for `{name}`");
        let finding = Finding::error(Code::OutOfRange, value.span, message)
            .expected("at least 10ms")
            .hint(format!("leave `{name}` out for no limit"));
        reader.report(finding);
        return None;
    }
    Some(timeout)
}

fn read_loop_deadline(
    reader: &mut Reader<'_>,
    value: &Value,
    node: &ParsedNode,
) -> Option<DeadlineSpec> {
    let hint = "write `{input: tick, finish_within: 2ms}`, for example";
    let keys = read_keys(reader, value, &LOOP, Some(hint))?;
    let finish_within = keys
        .value("finish_within")
        .and_then(|value| reader.interval(value));
    let name = keys
        .value("input")
        .and_then(|value| reader.text(value, Shape::Name))?;
    let mut inputs = node.inputs.iter();
    let input = inputs.position(|input| input.name.text == name.text);
    // An input that could not be read may be this one.
    if input.is_none() && node.inputs_complete {
        reader.report(unknown_input(&name, &node.inputs));
    }
    Some(DeadlineSpec {
        input: input?,
        finish_within: finish_within?,
    })
}
