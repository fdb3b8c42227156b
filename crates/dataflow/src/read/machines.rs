//! Reads the roles of machines, and the quality of service on the links between them.

use std::collections::BTreeMap;

use super::map::{read_entries, read_keys};
use super::reader::Reader;
use crate::diagnostic::{Code, Finding};
use crate::graph::{Labels, Qos, Resources, TrafficClass};
use crate::keys::{COUNT, MACHINE, QOS, RELIABILITIES, RESOURCES, Shape, TRAFFIC_CLASSES};
use crate::tree::{Kind, Text, Value};

/// The key `machines`.
#[derive(Default)]
pub(super) struct Machines {
    /// In the order of the file.
    pub roles: Vec<Text>,
    pub labels: Labels,
    pub resources: BTreeMap<String, Resources>,
}

pub(super) fn read_machines(reader: &mut Reader<'_>, value: &Value) -> Machines {
    let entries = read_entries(
        reader,
        value,
        Shape::Machines,
        Code::DuplicateMachine,
        "machine",
    )
    .unwrap_or_default();
    if let (Kind::Map(_), []) = (&value.kind, entries) {
        let message = "there is no machine for the nodes";
        let finding = Finding::error(Code::InvalidValue, value.span, message);
        reader.report(finding.hint("name one, as in `{robot: {}}`, or leave `machines` out"));
    }
    let mut machines = Machines::default();
    for entry in entries {
        if !matches!(entry.value.kind, Kind::Null) {
            let keys = read_keys(reader, &entry.value, &MACHINE, Some("write `robot: {}`"));
            let role = &entry.key.text;
            if let Some(value) = keys.as_ref().and_then(|keys| keys.value("labels")) {
                let labels = read_labels(reader, value);
                machines.labels.insert(role.clone(), labels);
            }
            if let Some(value) = keys.as_ref().and_then(|keys| keys.value("resources")) {
                let resources = read_resources(reader, value);
                machines.resources.insert(role.clone(), resources);
            }
        }
        if reader.check_name(&entry.key, "machine") {
            machines.roles.push(entry.key.clone());
        }
    }
    machines.labels.retain(|_, labels| !labels.is_empty());
    let needs_nothing = Resources::default();
    machines
        .resources
        .retain(|_, needs| *needs != needs_nothing);
    machines
}

fn read_resources(reader: &mut Reader<'_>, value: &Value) -> Resources {
    let hint = "write `{cpus: 4, memory: 2GiB}`, for example";
    let Some(keys) = read_keys(reader, value, &RESOURCES, Some(hint)) else {
        return Resources::default();
    };
    let mut count = |key| {
        let value = keys.value(key)?;
        reader.unsigned(value, &COUNT)
    };
    let (cpus, gpus) = (count("cpus"), count("gpus"));
    let memory = keys.value("memory");
    Resources {
        cpus,
        memory: memory.and_then(|value| reader.size(value, false)),
        gpus,
    }
}

fn read_labels(reader: &mut Reader<'_>, value: &Value) -> BTreeMap<String, String> {
    let (shape, code) = (Shape::Labels, Code::DuplicateKey);
    let entries = read_entries(reader, value, shape, code, "label").unwrap_or_default();
    let texts = entries.iter().filter_map(|entry| {
        let text = reader.text(&entry.value, Shape::Words)?;
        Some((entry.key.text.clone(), text.text))
    });
    texts.collect()
}

pub(super) fn read_qos(reader: &mut Reader<'_>, value: &Value) -> Qos {
    let hint = "write `{traffic_class: bulk, lifespan: 300ms}`, for example";
    let Some(keys) = read_keys(reader, value, &QOS, Some(hint)) else {
        return Qos::default();
    };
    let reliability = keys
        .value("reliability")
        .and_then(|value| reader.one_of(value, RELIABILITIES));
    let class = keys
        .value("traffic_class")
        .and_then(|value| reader.one_of(value, TRAFFIC_CLASSES));
    Qos {
        best_effort: reliability == Some("best_effort"),
        lifespan: keys
            .value("lifespan")
            .and_then(|value| reader.interval(value)),
        traffic_class: match class {
            Some("control") => TrafficClass::Control,
            Some("bulk") => TrafficClass::Bulk,
            _ => TrafficClass::Default,
        },
    }
}
