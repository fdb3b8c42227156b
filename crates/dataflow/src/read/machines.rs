//! Reads the roles of machines, and the quality of service on the links between them.

use super::map::{read_entries, read_keys};
use super::reader::Reader;
use crate::diagnostic::{Code, Finding};
use crate::graph::{Qos, TrafficClass};
use crate::keys::{MACHINE, QOS, RELIABILITIES, Shape, TRAFFIC_CLASSES};
use crate::tree::{Kind, Text, Value};

/// The roles, in the order of the file.
pub(super) fn read_machines(reader: &mut Reader<'_>, value: &Value) -> Vec<Text> {
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
    let mut roles = Vec::new();
    for entry in entries {
        if !matches!(entry.value.kind, Kind::Null) {
            read_keys(reader, &entry.value, &MACHINE, Some("write `robot: {}`"));
        }
        if reader.check_name(&entry.key, "machine") {
            roles.push(entry.key.clone());
        }
    }
    roles
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
