//! Reads environment variables: `env` of the dataflow and of a node.

use std::collections::BTreeMap;

use super::map::read_entries;
use super::reader::{Reader, wrong_type};
use super::variables::Variables;
use crate::diagnostic::{Code, Finding};
use crate::keys::Shape;
use crate::quote::quoted;
use crate::tree::{Entry, Kind, Text, Value};

/// Environment variables, with the host's filled in.
pub(super) fn read_environment(
    reader: &mut Reader<'_>,
    variables: &Variables<'_>,
    value: &Value,
) -> BTreeMap<String, String> {
    let (shape, code) = (Shape::Environment, Code::DuplicateKey);
    let entries = read_entries(reader, value, shape, code, "variable").unwrap_or_default();
    let mut environment = BTreeMap::new();
    for entry in entries {
        check_variable_name(reader, &entry.key);
        if let Some(text) = read_variable(reader, variables, entry) {
            environment.insert(entry.key.text.clone(), text);
        }
    }
    environment
}

fn check_variable_name(reader: &mut Reader<'_>, name: &Text) {
    let text = &name.text;
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let is_valid = text.chars().all(is_allowed)
        && !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit());
    if !is_valid {
        let message = format!(
            "{} cannot be the name of an environment variable",
            quoted(text)
        );
        let finding = Finding::error(Code::InvalidName, name.span, message);
        reader.report(finding.expected("letters (a-z, A-Z), digits and `_`, no digit first"));
    }
}

fn read_variable(
    reader: &mut Reader<'_>,
    variables: &Variables<'_>,
    entry: &Entry,
) -> Option<String> {
    let value = &entry.value;
    match &value.kind {
        Kind::Boolean(value, _) => Some(value.to_string()),
        Kind::Integer(_, text) | Kind::Float(_, text) => Some(text.clone()),
        Kind::Text(text) if text.contains('\0') => {
            let message = "a value of an environment variable contains a zero byte";
            let finding = Finding::error(Code::InvalidValue, value.span, message);
            reader.report(finding.expected("text"));
            None
        }
        Kind::Text(text) => variables.fill_text(reader, text, value.span),
        Kind::Null | Kind::List(_) | Kind::Map(_) => {
            let finding = wrong_type(value, "text, a number, `true` or `false`");
            reader.report(match &value.kind {
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
