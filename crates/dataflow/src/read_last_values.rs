//! Reads what the consumers of a node get when it fails: `on_failure`.

use nervure_message::JsonSample;
use nervure_protocol::{MAX_LAST_VALUE_BYTES, nearest};

use crate::diagnostic::{Code, Finding};
use crate::graph::LastValue;
use crate::keys::{ON_FAILURE, Shape};
use crate::parsed::ParsedOutput;
use crate::quote::{listed, quoted};
use crate::reader::Reader;
use crate::tree::{Kind, Value};

impl Reader<'_> {
    /// One `{output: .., value: ..}`, or a list of them.
    pub fn last_values(
        &mut self,
        value: &Value,
        outputs: &[ParsedOutput],
        outputs_complete: bool,
    ) -> Vec<LastValue> {
        let items = match &value.kind {
            Kind::List(items) => items.as_slice(),
            _ => std::slice::from_ref(value),
        };
        let mut values: Vec<LastValue> = Vec::new();
        for item in items {
            let Some(last) = self.last_value(item, outputs, outputs_complete) else {
                continue;
            };
            if values.iter().any(|other| other.output == last.output) {
                let name = &outputs[last.output].name.text;
                let message = format!("the output {} has two values in `on_failure`", quoted(name));
                let finding = Finding::error(Code::ConflictingKeys, item.span, message);
                self.findings.push(finding.hint("remove one of them"));
                continue;
            }
            values.push(last);
        }
        values
    }

    fn last_value(
        &mut self,
        item: &Value,
        outputs: &[ParsedOutput],
        outputs_complete: bool,
    ) -> Option<LastValue> {
        let keys = self.keys(
            item,
            &ON_FAILURE,
            Some("write `{output: cmd, value: 0.0}`, for example"),
        )?;
        let value = keys
            .get("value")
            .and_then(|entry| self.sendable(&entry.value));
        let name = keys
            .get("output")
            .and_then(|entry| self.text(&entry.value, Shape::Name))?;
        let output = outputs
            .iter()
            .position(|output| output.name.text == name.text);
        // What could not be read may be this output.
        if output.is_none() && outputs_complete {
            let names = || outputs.iter().map(|output| output.name.text.as_str());
            let message = format!("the node has no output {}", quoted(&name.text));
            let finding = Finding::error(Code::UnknownOutput, name.span, message).nearest(
                nearest(&name.text, names()),
                || match outputs {
                    [] => Some(format!(
                        "the node has no outputs: add `outputs: [{}]` to it",
                        name.text
                    )),
                    _ => Some(format!("its outputs are {}", listed(names()))),
                },
            );
            self.findings.push(finding);
        }
        Some(LastValue {
            output: output?,
            value: value?,
        })
    }

    /// A value that can be sent.
    fn sendable(&mut self, value: &Value) -> Option<serde_json::Value> {
        let json = self.json(value)?;
        let bytes = json.to_string().len();
        let reason = if bytes > MAX_LAST_VALUE_BYTES {
            format!(
                "the value takes {bytes} bytes as JSON, at most {MAX_LAST_VALUE_BYTES} are possible"
            )
        } else {
            match JsonSample::new(&json) {
                Ok(_) => return Some(json),
                Err(error) => error.to_string(),
            }
        };
        let finding = Finding::error(Code::InvalidValue, value.span, reason)
            .expected(Shape::Value.describe());
        self.findings.push(finding);
        None
    }
}
