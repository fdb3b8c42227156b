//! Reads the dataflow's own keys.

use std::collections::BTreeMap;

use crate::diagnostic::{Code, Finding};
use crate::keys::{DATAFLOW, FORMAT_VERSION, Shape};
use crate::parsed::ParsedDataflow;
use crate::quote::quoted;
use crate::reader::Reader;
use crate::tree::{Entry, Kind, Value};

impl Reader<'_> {
    /// The dataflow that `tree` says, or `None` if there is nothing to go on with.
    pub fn dataflow(&mut self, tree: &Value) -> Option<ParsedDataflow> {
        let hint = match tree.kind {
            Kind::List(_) => Some("write `nodes:` above the list of nodes"),
            _ => Some("a dataflow file begins with `nodes:`"),
        };
        let keys = self.keys(tree, &DATAFLOW, hint)?;
        if let Some(version) = keys.get("nervure") {
            self.format_version(&version.value);
        }
        let name = keys
            .get("name")
            .and_then(|entry| self.name(&entry.value, "name of the dataflow"));
        let env = keys
            .get_some("env")
            .map(|entry| self.environment(&entry.value))
            .unwrap_or_default();
        let nodes = keys
            .get("nodes")
            .map(|entry| self.nodes(&entry.value))
            .unwrap_or_default();
        Some(ParsedDataflow { name, env, nodes })
    }

    fn format_version(&mut self, value: &Value) {
        let finding = match value.kind {
            Kind::Integer(FORMAT_VERSION, _) => return,
            Kind::Integer(version, _) if version > FORMAT_VERSION => {
                let message = format!("the file is written for version {version} of the format");
                Finding::error(Code::UnsupportedVersion, value.span, message)
                    .hint("a newer Nervure reads it; this one reads version 1")
            }
            _ => Finding::error(
                Code::UnsupportedVersion,
                value.span,
                "there is no such version of the format",
            )
            .hint("write `nervure: 1`, or leave the key out"),
        };
        self.findings
            .push(finding.expected(FORMAT_VERSION.to_string()));
    }

    fn nodes(&mut self, value: &Value) -> Vec<crate::parsed::ParsedNode> {
        let Kind::List(items) = &value.kind else {
            let finding = self.wrong_type(value, &Shape::Nodes.describe());
            self.findings.push(match &value.kind {
                Kind::Map(_) => {
                    finding.hint("write each node as `- id: camera`, followed by its other keys")
                }
                _ => finding,
            });
            return Vec::new();
        };
        if items.is_empty() {
            let finding =
                Finding::error(Code::InvalidValue, value.span, "the dataflow has no nodes")
                    .expected("at least one node");
            self.findings.push(finding);
        }
        self.builder = items.iter().find_map(builder);
        items.iter().filter_map(|item| self.node(item)).collect()
    }

    /// Environment variables, with the host's variables filled in.
    pub fn environment(&mut self, value: &Value) -> BTreeMap<String, String> {
        let entries = self
            .entries(value, Shape::Environment, Code::DuplicateKey, "variable")
            .unwrap_or_default();
        let mut variables = BTreeMap::new();
        for entry in entries {
            self.check_variable_name(entry);
            if let Some(text) = self.variable_value(entry) {
                variables.insert(entry.key.text.clone(), text);
            }
        }
        variables
    }

    fn check_variable_name(&mut self, entry: &Entry) {
        let name = &entry.key.text;
        let is_allowed = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let fine = name.chars().all(is_allowed)
            && !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit());
        if !fine {
            let message = format!(
                "{} cannot be the name of an environment variable",
                quoted(name)
            );
            let finding = Finding::error(Code::InvalidName, entry.key.span, message)
                .expected("letters (a-z, A-Z), digits and `_`, no digit first");
            self.findings.push(finding);
        }
    }

    fn variable_value(&mut self, entry: &Entry) -> Option<String> {
        let value = &entry.value;
        match &value.kind {
            Kind::Boolean(value, _) => Some(value.to_string()),
            Kind::Integer(_, text) | Kind::Float(_, text) => Some(text.clone()),
            Kind::Text(text) if text.contains('\0') => {
                let message = "a value of an environment variable contains a zero byte";
                let finding =
                    Finding::error(Code::InvalidValue, value.span, message).expected("text");
                self.findings.push(finding);
                None
            }
            Kind::Text(text) => self.expanded(text, value.span),
            Kind::Null | Kind::List(_) | Kind::Map(_) => {
                let finding = self.wrong_type(value, "text, a number, `true` or `false`");
                self.findings.push(match &value.kind {
                    Kind::Null => finding.hint("for an empty variable write `\"\"`"),
                    Kind::Map(_) => finding.hint(format!(
                        "for the host's variable write `${}`",
                        entry.key.text
                    )),
                    _ => finding,
                });
                None
            }
        }
    }
}

/// The id of a node that has a `build`.
fn builder(node: &Value) -> Option<String> {
    let Kind::Map(entries) = &node.kind else {
        return None;
    };
    let value = |key: &str| {
        entries
            .iter()
            .find(|entry| entry.key.text == key)
            .map(|entry| &entry.value.kind)
    };
    match (value("build")?, value("id")?) {
        (Kind::Text(_), Kind::Text(id)) => Some(id.clone()),
        _ => None,
    }
}
