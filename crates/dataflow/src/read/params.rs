//! Reads the parameters of a node.

use nervure_protocol::params::{MAX_NODE_PARAMS_BYTES, ParamKind, ParamSpec, is_less};
use serde_json::{Number, Value as Json};

use super::json::read_json;
use super::map::{Keys, read_entries, read_keys};
use super::reader::{Reader, wrong_type};
use super::variables::{FilledType, Variables};
use crate::diagnostic::{Code, Finding};
use crate::keys::{PARAM, PARAM_TYPES, Shape};
use crate::quote::quoted;
use crate::tree::{Entry, Kind, Value};

pub(super) fn read_params(
    reader: &mut Reader<'_>,
    variables: &Variables<'_>,
    value: &Value,
) -> Vec<ParamSpec> {
    let (shape, code) = (Shape::Params, Code::DuplicateKey);
    let entries = read_entries(reader, value, shape, code, "parameter").unwrap_or_default();
    let params: Vec<_> = entries
        .iter()
        .filter_map(|entry| read_param(reader, variables, entry))
        .collect();
    let bytes = serde_json::to_vec(&params).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_NODE_PARAMS_BYTES {
        let message = format!("the parameters take {bytes} bytes as JSON");
        let finding = Finding::error(Code::OutOfRange, value.span, message)
            .expected(format!("at most {MAX_NODE_PARAMS_BYTES}"))
            .hint("put data into files, and their names into parameters");
        reader.report(finding);
    }
    params
}

fn read_param(
    reader: &mut Reader<'_>,
    variables: &Variables<'_>,
    entry: &Entry,
) -> Option<ParamSpec> {
    let Entry { key: name, value } = entry;
    let is_named = reader.check_name(name, "parameter");
    let spec = match &value.kind {
        Kind::Map(_) => {
            let hint = "write `{value: 30, min: 1, max: 60}`, for example";
            let keys = read_keys(reader, value, &PARAM, Some(hint))?;
            read_long_param(reader, variables, &name.text, &keys)
        }
        _ => {
            let (initial, kind) = read_value(reader, variables, value, FilledType::ByQuotes)?;
            check_initial(reader, plain_param(&name.text, kind, initial), value)
        }
    };
    spec.filter(|_| is_named)
}

/// A parameter as a map of keys.
fn read_long_param(
    reader: &mut Reader<'_>,
    variables: &Variables<'_>,
    name: &str,
    keys: &Keys<'_>,
) -> Option<ParamSpec> {
    let kind = keys
        .value("type")
        .map(|value| reader.one_of(value, PARAM_TYPES));
    let filled_type = match kind {
        Some(Some("str")) => FilledType::Text,
        Some(Some("bool" | "int" | "float")) => FilledType::Scalar,
        _ => FilledType::ByQuotes,
    };
    let initial = keys
        .value("value")
        .and_then(|value| read_value(reader, variables, value, filled_type));
    let min = read_bound(reader, keys, "min");
    let max = read_bound(reader, keys, "max");
    let one_of = keys
        .value("one_of")
        .map(|value| read_choices(reader, variables, value, filled_type));
    let read_only = keys
        .value("read_only")
        .and_then(|value| reader.boolean(value));
    let description = keys
        .value("description")
        .and_then(|value| reader.text(value, Shape::Words));
    let (initial, natural_kind) = initial?;
    let kind = match kind {
        Some(word) => kind_of(word?),
        None => natural_kind,
    };
    check_bounds(reader, keys, kind, min.as_ref(), max.as_ref())?;
    let mut spec = ParamSpec {
        min,
        max,
        read_only: read_only.unwrap_or(false),
        description: description.map(|text| text.text),
        ..plain_param(name, kind, initial)
    };
    // Each choice must have the type and be within the bounds; then the value must be one of the
    // choices.
    if let Some(choices) = one_of {
        let accepted: Vec<_> = choices?
            .iter()
            .map(|(at, choice)| accept(reader, &spec, choice, at))
            .collect();
        spec.one_of = accepted.into_iter().collect::<Option<_>>()?;
    }
    check_initial(reader, spec, keys.value("value")?)
}

fn check_bounds(
    reader: &mut Reader<'_>,
    keys: &Keys<'_>,
    kind: ParamKind,
    min: Option<&Number>,
    max: Option<&Number>,
) -> Option<()> {
    if let (Some(min), Some(max), Some(value)) = (min, max, keys.value("max"))
        && is_less(max, min)
    {
        let message = format!("`max` is {max} and `min` is {min}");
        reader.report(Finding::error(Code::ConflictingKeys, value.span, message));
        return None;
    }
    let is_unordered = matches!(kind, ParamKind::Bool | ParamKind::Str);
    for bound in ["min", "max"] {
        if let Some(entry) = keys.entry(bound).filter(|_| is_unordered) {
            let kind = kind.as_str();
            let message = format!("`{bound}` has no meaning for a parameter of type {kind}");
            let hint = "remove it; `one_of` lists the values that are possible";
            let finding = Finding::error(Code::ConflictingKeys, entry.key.span, message);
            reader.report(finding.hint(hint));
            return None;
        }
    }
    Some(())
}

/// A value and its natural type.
fn read_value(
    reader: &mut Reader<'_>,
    variables: &Variables<'_>,
    value: &Value,
    filled_type: FilledType,
) -> Option<(Json, ParamKind)> {
    let value = &variables.fill(reader, value, filled_type)?;
    let json = match &value.kind {
        Kind::Map(_) | Kind::Null => None,
        _ => Some(read_json(reader, value)?),
    };
    let found = json.and_then(|json| ParamKind::of(&json).map(|kind| (json, kind)));
    if found.is_none() {
        reader.report(wrong_type(value, Shape::ParamValue.describe()));
    }
    found
}

fn read_bound(reader: &mut Reader<'_>, keys: &Keys<'_>, name: &str) -> Option<Number> {
    let value = keys.value(name)?;
    match read_json(reader, value)? {
        Json::Number(number) => Some(number),
        _ => {
            reader.report(wrong_type(value, Shape::Number.describe()));
            None
        }
    }
}

fn read_choices<'t>(
    reader: &mut Reader<'_>,
    variables: &Variables<'_>,
    value: &'t Value,
    filled_type: FilledType,
) -> Option<Vec<(&'t Value, Json)>> {
    match &value.kind {
        Kind::List(items) if !items.is_empty() => {
            let choices: Vec<_> = items
                .iter()
                .map(|item| Some((item, read_value(reader, variables, item, filled_type)?.0)))
                .collect();
            choices.into_iter().collect()
        }
        _ => {
            reader.report(wrong_type(value, Shape::ParamValues.describe()));
            None
        }
    }
}

/// `spec` with its initial value as the parameter accepts it.
fn check_initial(reader: &mut Reader<'_>, spec: ParamSpec, at: &Value) -> Option<ParamSpec> {
    let value = accept(reader, &spec, &spec.value, at)?;
    Some(ParamSpec { value, ..spec })
}

/// `value` as the parameter accepts it; reports at `at` if it does not.
fn accept(reader: &mut Reader<'_>, spec: &ParamSpec, value: &Json, at: &Value) -> Option<Json> {
    let error = match spec.accept(value.clone()) {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    let finding = Finding::error(Code::InvalidValue, at.span, error.to_string());
    reader.report(match &at.kind {
        Kind::Integer(_, text) | Kind::Float(_, text) | Kind::Boolean(_, text)
            if spec.kind == ParamKind::Str =>
        {
            let quoted = quoted(&format!("\"{text}\""));
            finding.hint(format!("to use it as text, put it into quotes: {quoted}"))
        }
        _ => finding,
    });
    None
}

fn plain_param(name: &str, kind: ParamKind, value: Json) -> ParamSpec {
    ParamSpec {
        name: name.to_owned(),
        kind,
        value,
        min: None,
        max: None,
        one_of: Vec::new(),
        read_only: false,
        description: None,
    }
}

fn kind_of(word: &str) -> ParamKind {
    match word {
        "bool" => ParamKind::Bool,
        "int" => ParamKind::Int,
        "float" => ParamKind::Float,
        "str" => ParamKind::Str,
        _ => ParamKind::List,
    }
}
