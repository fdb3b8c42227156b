//! Reads the values that the consumers of a node receive when it fails: `on_failure`.

use nervure_message::JsonSample;
use nervure_protocol::graph::LastValueSpec;
use nervure_protocol::{MAX_LAST_VALUE_BYTES, nearest};

use super::json::read_json;
use super::map::read_keys;
use super::reader::Reader;
use crate::diagnostic::{Code, Finding};
use crate::keys::{ON_FAILURE, Shape};
use crate::parsed::ParsedOutput;
use crate::quote::{listed, quoted};
use crate::tree::{Kind, Text, Value};

/// One `{output: .., value: ..}`, or a list of them. `outputs_complete` says whether every output
/// of the node could be read.
pub(super) fn read_last_values(
    reader: &mut Reader<'_>,
    value: &Value,
    outputs: &[ParsedOutput],
    outputs_complete: bool,
) -> Vec<LastValueSpec> {
    let items = match &value.kind {
        Kind::List(items) => items.as_slice(),
        _ => std::slice::from_ref(value),
    };
    let mut values: Vec<LastValueSpec> = Vec::new();
    for item in items {
        let Some(last) = read_last_value(reader, item, outputs, outputs_complete) else {
            continue;
        };
        if values.iter().any(|other| other.output == last.output) {
            let name = &outputs[last.output].name.text;
            let message = format!("the output {} has two values in `on_failure`", quoted(name));
            let finding = Finding::error(Code::ConflictingKeys, item.span, message);
            reader.report(finding.hint("remove one of them"));
            continue;
        }
        values.push(last);
    }
    values
}

fn read_last_value(
    reader: &mut Reader<'_>,
    item: &Value,
    outputs: &[ParsedOutput],
    outputs_complete: bool,
) -> Option<LastValueSpec> {
    let hint = "write `{output: cmd, value: 0.0}`, for example";
    let keys = read_keys(reader, item, &ON_FAILURE, Some(hint))?;
    let value = keys
        .value("value")
        .and_then(|value| read_sendable(reader, value));
    let name = keys
        .value("output")
        .and_then(|value| reader.text(value, Shape::Name))?;
    let output = outputs
        .iter()
        .position(|output| output.name.text == name.text);
    // An output that could not be read may be this one.
    if output.is_none() && outputs_complete {
        reader.report(unknown_output(&name, outputs));
    }
    Some(LastValueSpec {
        output: output?,
        value: value?,
    })
}

fn unknown_output(name: &Text, outputs: &[ParsedOutput]) -> Finding {
    let names = || outputs.iter().map(|output| output.name.text.as_str());
    let message = format!("the node has no output {}", quoted(&name.text));
    Finding::error(Code::UnknownOutput, name.span, message).nearest(
        nearest(&name.text, names()),
        || match outputs {
            [] => Some(format!(
                "the node has no outputs: add `outputs: [{}]` to it",
                name.text
            )),
            _ => Some(format!("its outputs are {}", listed(names()))),
        },
    )
}

/// A value that a node can send.
fn read_sendable(reader: &mut Reader<'_>, value: &Value) -> Option<serde_json::Value> {
    let json = read_json(reader, value)?;
    let bytes = json.to_string().len();
    let reason = if bytes > MAX_LAST_VALUE_BYTES {
        format!("the value takes {bytes} bytes as JSON; the limit is {MAX_LAST_VALUE_BYTES}")
    } else {
        match JsonSample::new(&json) {
            Ok(_) => return Some(json),
            Err(error) => error.to_string(),
        }
    };
    let finding = Finding::error(Code::InvalidValue, value.span, reason);
    reader.report(finding.expected(Shape::Value.describe()));
    None
}
