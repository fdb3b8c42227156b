//! Reads the types of inputs and outputs: `type`, and dora's `input_types` and `output_types`.

use std::collections::BTreeMap;

use nervure_protocol::nearest;
use nervure_types::{STANDARD_NAMESPACE, standard_names};

use super::map::{Keys, read_entries};
use super::reader::Reader;
use crate::diagnostic::{Code, Finding};
use crate::keys::{OTHER_KINDS_OF_NODES, Shape};
use crate::name::TypeName;
use crate::parsed::DeclaredType;
use crate::quote::quoted;
use crate::tree::{Text, Value};
use crate::type_folders::TypeError;

/// The type in `type`.
pub(super) fn read_type(reader: &mut Reader<'_>, value: &Value) -> Option<DeclaredType> {
    read_declared(reader, value, true)
}

fn read_declared(reader: &mut Reader<'_>, value: &Value, is_strict: bool) -> Option<DeclaredType> {
    let text = reader.text(value, Shape::Type)?;
    match text.text.parse() {
        Ok(value) if !check_standard(reader, &text, &value) => None,
        Ok(value) => {
            let defined = match reader.types().find(&text, &value) {
                Ok(defined) => defined,
                Err(error) => {
                    report(reader, error);
                    return None;
                }
            };
            Some(DeclaredType {
                span: text.span,
                value,
                is_strict,
                defined,
            })
        }
        Err(message) => {
            let finding = Finding::error(Code::InvalidValue, text.span, message);
            reader.report(finding.expected(Shape::Type.describe()));
            None
        }
    }
}

fn report(reader: &mut Reader<'_>, error: TypeError) {
    match error {
        TypeError::Declared(finding) => reader.report(*finding),
        TypeError::Defined(findings) => reader.absorb(findings),
        TypeError::Known => {}
    }
}

/// False for a type of the namespace `std`, with a version, that is not in the standard set, which is
/// reported. Without a version it is a mere name, as those of dora are (`std/media/v1/Image`).
fn check_standard(reader: &mut Reader<'_>, text: &Text, declared: &TypeName) -> bool {
    let Some((STANDARD_NAMESPACE, name)) = declared.name().split_once('/') else {
        return true;
    };
    if declared.version().is_none() {
        return true;
    }
    let declared = declared.to_string();
    let names: Vec<_> = standard_names().collect();
    if names.iter().any(|known| known.to_string() == declared) {
        return true;
    }
    let near = nearest(name, names.iter().map(|known| known.name()));
    let near = near.and_then(|near| names.iter().find(|known| known.name() == near));
    let near = near.map(ToString::to_string);
    let message = format!("there is no standard type {}", quoted(&declared));
    let finding = Finding::error(Code::UnknownType, text.span, message)
        .expected("a type of `nervure types list`, or of a namespace of your own");
    reader.report(finding.nearest(near.as_deref(), || None));
    false
}

/// Types by the name of an input or output: `input_types` or `output_types`.
pub(super) fn read_types(reader: &mut Reader<'_>, value: &Value) -> Vec<(Text, DeclaredType)> {
    let entries =
        read_entries(reader, value, Shape::Types, Code::DuplicateKey, "name").unwrap_or_default();
    entries
        .iter()
        .filter_map(|entry| {
            Some((
                entry.key.clone(),
                read_declared(reader, &entry.value, false)?,
            ))
        })
        .collect()
}

/// Gives each port its type from `types`; `what` is "input" or "output".
pub(super) fn assign_types(
    reader: &mut Reader<'_>,
    ports: Vec<(&Text, &mut Option<DeclaredType>)>,
    types: Vec<(Text, DeclaredType)>,
    what: &str,
) {
    let mut ports: BTreeMap<&str, _> = ports
        .into_iter()
        .map(|(name, type_name)| (name.text.as_str(), type_name))
        .collect();
    for (name, type_name) in types {
        let Some(current) = ports.get_mut(name.text.as_str()) else {
            reader.report_with(|| unknown_port(&name, ports.keys().copied(), what));
            continue;
        };
        match current {
            None => **current = Some(type_name),
            Some(first) if first.value == type_name.value => {}
            Some(first) => reader.report(two_types(&name, first, &type_name, what)),
        }
    }
}

fn unknown_port<'p>(name: &Text, ports: impl Iterator<Item = &'p str>, what: &str) -> Finding {
    let code = if what == "output" {
        Code::UnknownOutput
    } else {
        Code::UnknownInput
    };
    let message = format!("the node has no {what} {}", quoted(&name.text));
    Finding::error(code, name.span, message).nearest(nearest(&name.text, ports), || {
        Some(format!("add it to `{what}s`, or remove its type"))
    })
}

fn two_types(name: &Text, first: &DeclaredType, second: &DeclaredType, what: &str) -> Finding {
    let message = format!(
        "the {what} {} has two types, `{}` and `{}`",
        quoted(&name.text),
        first.value,
        second.value
    );
    Finding::error(Code::ConflictingKeys, second.span, message)
        .hint(format!("remove it here: `type` in `{what}s` is enough"))
        .related(first.span, "first here")
}

/// Whether the inputs or outputs (`key`) are inside a key that was refused.
pub(super) fn has_ports_elsewhere(node: &Keys<'_>, key: &str) -> bool {
    node.is_refused(key)
        || OTHER_KINDS_OF_NODES
            .iter()
            .any(|name| node.is_refused(name))
}
