//! The JSON schema of dataflow files, for editors.

use serde_json::{Map, Value, json};

use crate::keys::{
    ACTION, DATAFLOW, INPUT, Key, LEVELS, Level, MACHINE, NODE, ON_FAILURE, OPERATOR, OUTPUT,
    PARAM, PYTHON_SOURCE, STATIC_TRANSFORM, Shape, Status,
};
use crate::name::{MAX_NAME_BYTES, MAX_PORT_NAME_BYTES};

/// A part of the name of an input or output, as a pattern.
const PART: &str = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}";

/// The JSON schema of a dataflow file, draft 2020-12.
///
/// [`crate::parse`] also checks rules beyond the schema language: names that refer to each other,
/// files that must exist.
#[must_use]
pub fn schema() -> Value {
    let mut schema = level_schema(&DATAFLOW);
    let definitions: Map<String, Value> = LEVELS
        .iter()
        .skip(1)
        .map(|level| (level.name.to_owned(), level_schema(level)))
        .collect();
    let fields = schema.as_object_mut().into_iter();
    for fields in fields {
        fields.insert(
            "$schema".to_owned(),
            json!("https://json-schema.org/draft/2020-12/schema"),
        );
        fields.insert("title".to_owned(), json!("Nervure dataflow"));
        fields.insert("$defs".to_owned(), Value::Object(definitions.clone()));
    }
    schema
}

fn level_schema(level: &Level) -> Value {
    let mut properties = Map::new();
    for key in level.usable() {
        for name in std::iter::once(&key.name).chain(key.aliases) {
            properties.insert((*name).to_owned(), key_schema(key));
        }
    }
    let is_required = |key: &&Key| matches!(key.status, Status::Required);
    let required: Vec<&str> = level
        .keys
        .iter()
        .filter(is_required)
        .map(|key| key.name)
        .collect();
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    let fields = schema.as_object_mut().into_iter();
    for (fields, one_of) in fields.zip(alternatives(level)) {
        fields.insert("oneOf".to_owned(), one_of);
    }
    schema
}

/// The keys of which a map needs exactly one.
fn alternatives(level: &Level) -> Option<Value> {
    level.keys.iter().find_map(|key| {
        let Status::RequiredUnless(others) = key.status else {
            return None;
        };
        let others = others.iter().filter_map(|other| level.find(other));
        let names = std::iter::once(key)
            .chain(others)
            .filter(|key| key.is_usable())
            .flat_map(|key| std::iter::once(&key.name).chain(key.aliases));
        Some(names.map(|name| json!({ "required": [name] })).collect())
    })
}

fn key_schema(key: &Key) -> Value {
    let mut schema = shape_schema(key.shape);
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("description".to_owned(), json!(key.doc));
    }
    schema
}

/// The schema of a value. `${args.NAME}` may stand for one that is no text.
fn shape_schema(shape: Shape) -> Value {
    let schema = value_schema(shape);
    match shape {
        Shape::Integer(_)
        | Shape::Duration
        | Shape::Interval
        | Shape::Size
        | Shape::OneOf(_)
        | Shape::Number
        | Shape::Numbers(_)
        | Shape::Boolean
        | Shape::Processors => json!({ "anyOf": [
            schema,
            { "type": "string", "pattern": r"^\$\{args\.[^}]+\}$" },
        ] }),
        _ => schema,
    }
}

fn value_schema(shape: Shape) -> Value {
    let text = json!({ "type": "string", "minLength": 1 });
    let name_pattern = format!("^[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{}}}$", MAX_NAME_BYTES - 1);
    let names = || json!({ "pattern": name_pattern });
    let port_pattern = format!("^{PART}(/{PART})*$");
    let ports = || json!({ "pattern": port_pattern, "maxLength": MAX_PORT_NAME_BYTES });
    let port = || json!({ "type": "string", "pattern": port_pattern });
    let reference = |level: &Level| json!({ "$ref": format!("#/$defs/{}", level.name) });
    match shape {
        Shape::Words | Shape::Path => text,
        Shape::Name => json!({ "type": "string", "pattern": name_pattern }),
        Shape::Source => json!({ "type": "string", "pattern": "^[^/]+(/[^/]+)+$" }),
        Shape::Type => json!({ "type": "string", "pattern": "^[!-?A-~]+(@[1-9][0-9]*)?$" }),
        Shape::Integer(range) => {
            json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() })
        }
        Shape::Duration => json!({ "oneOf": [
            { "type": "number", "minimum": 0 },
            { "type": "string", "pattern": "^[0-9.]+ ?(ns|us|µs|ms|s|min|h)$" },
        ] }),
        Shape::Interval => {
            json!({ "type": "string", "pattern": "^[0-9.]+ ?(ns|us|µs|ms|s|min|h)$" })
        }
        Shape::Size => json!({ "oneOf": [
            { "type": "integer", "minimum": 1 },
            { "type": "string", "pattern": "^[0-9.]+ ?([kKmMgGtT][iI]?)?[bB]$" },
        ] }),
        Shape::OneOf(words) => json!({ "enum": both_spellings(words) }),
        Shape::Arguments => json!({ "oneOf": [
            { "type": ["string", "number", "boolean"] },
            { "type": "array", "items": { "type": ["string", "number", "boolean"] } },
        ] }),
        Shape::Environment => json!({
            "type": ["object", "null"],
            "propertyNames": { "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" },
            "additionalProperties": { "type": ["string", "number", "boolean"] },
        }),
        Shape::Labels => json!({
            "type": "object",
            "additionalProperties": { "type": "string" },
        }),
        Shape::Processors => json!({
            "type": "array",
            "minItems": 1,
            "items": shape_schema(Shape::Integer(&crate::keys::PROCESSOR)),
        }),
        Shape::Nodes => json!({ "type": "array", "minItems": 1, "items": reference(&NODE) }),
        Shape::Inputs => json!({
            "type": ["object", "null"],
            "propertyNames": ports(),
            "additionalProperties": { "oneOf": [shape_schema(Shape::Source), reference(&INPUT)] },
        }),
        Shape::Outputs => json!({ "oneOf": [
            { "type": "array", "items": port(), "uniqueItems": true },
            {
                "type": ["object", "null"],
                "propertyNames": ports(),
                "additionalProperties": { "oneOf": [{ "type": "null" }, reference(&OUTPUT)] },
            },
        ] }),
        Shape::Types => json!({
            "type": ["object", "null"],
            "propertyNames": ports(),
            "additionalProperties": shape_schema(Shape::Type),
        }),
        Shape::LastValues => json!({ "oneOf": [
            reference(&ON_FAILURE),
            { "type": "array", "minItems": 1, "items": reference(&ON_FAILURE) },
        ] }),
        Shape::Value => json!({}),
        Shape::Params => json!({
            "type": ["object", "null"],
            "propertyNames": names(),
            "additionalProperties": { "oneOf": [shape_schema(Shape::ParamValue), reference(&PARAM)] },
        }),
        Shape::ParamValue => json!({ "oneOf": [
            { "type": ["boolean", "number", "string"] },
            { "type": "array", "items": { "type": ["boolean", "number", "string"] } },
        ] }),
        Shape::ParamValues => {
            json!({ "type": "array", "minItems": 1, "items": shape_schema(Shape::ParamValue) })
        }
        Shape::Names => {
            json!({ "type": "array", "items": shape_schema(Shape::Name), "uniqueItems": true })
        }
        Shape::Actions => json!({ "oneOf": [
            shape_schema(Shape::Names),
            {
                "type": ["object", "null"],
                "propertyNames": names(),
                "additionalProperties": { "oneOf": [{ "type": "null" }, reference(&ACTION)] },
            },
        ] }),
        Shape::Folders => json!({ "type": "array", "items": text }),
        Shape::Clients => json!({
            "type": ["object", "null"],
            "propertyNames": names(),
            "additionalProperties": { "type": "string", "pattern": "^[^/]+/[^/]+$" },
        }),
        Shape::Operators => {
            json!({ "type": "array", "minItems": 1, "items": reference(&OPERATOR) })
        }
        Shape::PythonSource => json!({ "oneOf": [text, reference(&PYTHON_SOURCE)] }),
        Shape::Number => json!({ "type": "number" }),
        Shape::Boolean => json!({ "type": "boolean" }),
        Shape::Machines => json!({
            "type": "object",
            "minProperties": 1,
            "propertyNames": names(),
            "additionalProperties": { "oneOf": [{ "type": "null" }, reference(&MACHINE)] },
        }),
        Shape::StaticTransforms => {
            json!({ "type": "array", "items": reference(&STATIC_TRANSFORM) })
        }
        Shape::Numbers(count) => json!({
            "type": "array",
            "items": { "type": "number" },
            "minItems": count,
            "maxItems": count,
        }),
        Shape::Map(level) => reference(level),
        Shape::Anything => json!({}),
    }
}

/// The words, with `-` and `_` exchanged as well.
fn both_spellings(words: &[&str]) -> Vec<String> {
    let spellings = |word: &&str| {
        [
            (*word).to_owned(),
            word.replace('-', "_"),
            word.replace('_', "-"),
        ]
    };
    let mut all: Vec<String> = words.iter().flat_map(spellings).collect();
    let mut known = std::collections::HashSet::new();
    all.retain(|word| known.insert(word.clone()));
    all
}
