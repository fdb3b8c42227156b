//! Reads values as JSON.

use serde_json::{Number, Value as Json};

use super::map::read_entries;
use super::reader::Reader;
use crate::diagnostic::{Code, Finding};
use crate::keys::Shape;
use crate::quote::quoted;
use crate::tree::{Kind, Value};

/// `value` as JSON. Reports what JSON cannot hold: infinities, NaN, and keys that appear twice.
pub(crate) fn read_json(reader: &mut Reader<'_>, value: &Value) -> Option<Json> {
    Some(match &value.kind {
        Kind::Null => Json::Null,
        Kind::Boolean(value, _) => Json::Bool(*value),
        Kind::Integer(number, _) => Json::from(*number),
        Kind::Float(number, text) => {
            let Some(number) = Number::from_f64(*number) else {
                let message = format!("the number {} is not finite", quoted(text));
                let finding = Finding::error(Code::InvalidValue, value.span, message);
                reader.report(finding.expected("a finite number"));
                return None;
            };
            Json::Number(number)
        }
        Kind::Text(text) => Json::String(text.clone()),
        Kind::List(items) => {
            let items: Vec<_> = items.iter().map(|item| read_json(reader, item)).collect();
            Json::Array(items.into_iter().collect::<Option<_>>()?)
        }
        Kind::Map(_) => {
            let entries = read_entries(reader, value, Shape::Value, Code::DuplicateKey, "key")?;
            let values: Vec<_> = entries
                .iter()
                .map(|entry| Some((entry.key.text.clone(), read_json(reader, &entry.value)?)))
                .collect();
            Json::Object(values.into_iter().collect::<Option<_>>()?)
        }
    })
}
