//! Values of a file that are passed on as they are.

use serde_json::Value as Json;

use crate::diagnostic::{Code, Finding};
use crate::quote::quoted;
use crate::reader::Reader;
use crate::tree::{Kind, Value};

impl Reader<'_> {
    /// The value as JSON. Infinities have no JSON, and keys that are there twice no meaning.
    pub fn json(&mut self, value: &Value) -> Option<Json> {
        Some(match &value.kind {
            Kind::Null => Json::Null,
            Kind::Boolean(value, _) => Json::Bool(*value),
            Kind::Integer(number, _) => Json::from(*number),
            Kind::Float(number, text) => {
                let Some(number) = serde_json::Number::from_f64(*number) else {
                    let message = format!("the number {} is not finite", quoted(text));
                    let finding = Finding::error(Code::InvalidValue, value.span, message);
                    self.findings.push(finding.expected("a finite number"));
                    return None;
                };
                Json::Number(number)
            }
            Kind::Text(text) => Json::String(text.clone()),
            Kind::List(items) => {
                let items: Vec<_> = items.iter().map(|item| self.json(item)).collect();
                Json::Array(items.into_iter().collect::<Option<_>>()?)
            }
            Kind::Map(_) => {
                let entries =
                    self.entries(value, crate::keys::Shape::Value, Code::DuplicateKey, "key")?;
                let values: Vec<_> = entries
                    .iter()
                    .map(|entry| Some((entry.key.text.clone(), self.json(&entry.value)?)))
                    .collect();
                Json::Object(values.into_iter().collect::<Option<_>>()?)
            }
        })
    }
}
