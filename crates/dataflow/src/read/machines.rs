//! Reads the roles of machines, and the quality of service on the links between them.

use std::collections::BTreeMap;

use super::map::{read_entries, read_keys};
use super::reader::Reader;
use crate::diagnostic::{Code, Finding};
use crate::graph::{Labels, Qos, TrafficClass};
use crate::keys::{MACHINE, QOS, RELIABILITIES, Shape, TRAFFIC_CLASSES};
use crate::tree::{Kind, Text, Value};

/// The roles, in the order of the file, and the labels that their machines must have.
pub(super) fn read_machines(reader: &mut Reader<'_>, value: &Value) -> (Vec<Text>, Labels) {
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
    let (mut roles, mut labels) = (Vec::new(), Labels::new());
    for entry in entries {
        if !matches!(entry.value.kind, Kind::Null) {
            let keys = read_keys(reader, &entry.value, &MACHINE, Some("write `robot: {}`"));
            if let Some(value) = keys.as_ref().and_then(|keys| keys.value("labels")) {
                let role = entry.key.text.clone();
                labels.insert(role, read_labels(reader, value));
            }
        }
        if reader.check_name(&entry.key, "machine") {
            roles.push(entry.key.clone());
        }
    }
    labels.retain(|_, labels| !labels.is_empty());
    (roles, labels)
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
