//! Reads the outputs of a node.

use std::collections::HashMap;

use super::map::{Keys, duplicate_name, read_entries, read_keys};
use super::reader::{Reader, wrong_type};
use super::types::{assign_types, has_ports_elsewhere, read_type, read_types};
use crate::diagnostic::Code;
use crate::keys::{HISTORY, OUTPUT, Shape};
use crate::parsed::ParsedOutput;
use crate::quote::shown;
use crate::source::Span;
use crate::tree::{Entry, Kind, Text, Value};

/// The outputs, and whether all of them could be read.
pub(super) fn read_outputs(reader: &mut Reader<'_>, node: &Keys<'_>) -> (Vec<ParsedOutput>, bool) {
    let errors_before = reader.errors();
    let outputs = node.value_if_any("outputs").map(|value| match &value.kind {
        Kind::List(items) => read_output_list(reader, items),
        _ => read_output_map(reader, value),
    });
    let mut outputs = outputs.unwrap_or_default();
    let types = node
        .value_if_any("output_types")
        .map(|value| read_types(reader, value))
        .unwrap_or_default();
    let ports = outputs
        .iter_mut()
        .map(|output| (&output.name, &mut output.type_name))
        .collect();
    assign_types(reader, ports, types, "output");
    let is_complete = reader.errors() == errors_before && !has_ports_elsewhere(node, "outputs");
    (outputs, is_complete)
}

fn read_output_list(reader: &mut Reader<'_>, items: &[Value]) -> Vec<ParsedOutput> {
    let mut outputs = Vec::new();
    let mut first: HashMap<String, Span> = HashMap::new();
    for item in items {
        if let Kind::Map(_) = item.kind {
            let hint = "for outputs with properties write a map, without `-`: `image: {type: std/Image@1}`";
            reader.report(wrong_type(item, "the name of an output").hint(hint));
            continue;
        }
        let Some(name) = reader.port_name(item, "output") else {
            continue;
        };
        if let Some(&first) = first.get(&name.text) {
            reader.report(duplicate_name(
                Code::DuplicateOutput,
                "output",
                &name,
                first,
            ));
            continue;
        }
        first.insert(name.text.clone(), name.span);
        outputs.push(plain_output(name));
    }
    outputs
}

fn read_output_map(reader: &mut Reader<'_>, value: &Value) -> Vec<ParsedOutput> {
    if let Kind::Text(name) = &value.kind {
        let finding = wrong_type(value, Shape::Outputs.describe());
        reader.report(finding.hint(format!("write `[{}]`", shown(name))));
        return Vec::new();
    }
    let (shape, code) = (Shape::Outputs, Code::DuplicateOutput);
    let entries = read_entries(reader, value, shape, code, "output").unwrap_or_default();
    let mut outputs = Vec::new();
    for Entry { key: name, value } in entries {
        let is_named = reader.check_port_name(name, "output");
        let output = match value.kind {
            Kind::Null => Some(plain_output(name.clone())),
            _ => read_long_output(reader, name, value),
        };
        outputs.extend(output.filter(|_| is_named));
    }
    outputs
}

/// An output as a map of keys.
fn read_long_output(reader: &mut Reader<'_>, name: &Text, value: &Value) -> Option<ParsedOutput> {
    let hint = match &value.kind {
        Kind::Text(text) if text.contains('/') => {
            format!("write `{{type: {}}}`", shown(text))
        }
        _ => "write `{type: std/Image@1, history: 1}`, or `{}` for neither".to_owned(),
    };
    let keys = read_keys(reader, value, &OUTPUT, Some(&hint))?;
    let type_name = keys
        .value("type")
        .and_then(|value| read_type(reader, value));
    let history = keys
        .value("history")
        .and_then(|value| reader.unsigned(value, &HISTORY));
    Some(ParsedOutput {
        history: history.unwrap_or(0),
        type_name,
        ..plain_output(name.clone())
    })
}

pub(super) fn plain_output(name: Text) -> ParsedOutput {
    ParsedOutput {
        name,
        history: 0,
        type_name: None,
    }
}
