//! A definition as JSON, with all messages that it uses: for processes that read no files of types.
//!
//! Comments and constants are not in it, because no sample has them, nor the fields of Foxglove's message,
//! which nodes do not need.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::definition::{Definition, Kind, Literal};
use crate::error::DefinitionError;
use crate::library::Library;
use crate::sections::{Format, Sections};
use crate::sidecar::Sidecar;

/// Why a text is no definition.
#[derive(Debug, thiserror::Error)]
pub enum PortableError {
    /// It is not JSON of the right form.
    #[error("it is not a definition as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A message in it cannot be used.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
}

#[derive(Deserialize)]
struct Portable {
    /// The type itself.
    name: String,
    /// It and all that it uses.
    messages: BTreeMap<String, Message>,
}

#[derive(Serialize, Deserialize)]
struct Message {
    /// Its fields, in the syntax of `.msg` files.
    text: String,
    #[serde(flatten)]
    sidecar: Sidecar,
}

impl Definition {
    /// The definition as JSON.
    pub fn to_portable(&self) -> Value {
        let mut messages = BTreeMap::new();
        collect(self, &mut messages);
        json!({"name": self.name, "messages": messages})
    }

    /// The definition in JSON of [`Definition::to_portable`].
    ///
    /// # Errors
    /// [`PortableError`].
    pub fn from_portable(value: &Value) -> Result<Arc<Self>, PortableError> {
        let Portable { name, messages } = Portable::deserialize(value)?;
        let mut sections = Sections::default();
        for (name, Message { text, sidecar }) in messages {
            sections.add_file(Format::Message, &name, &name, text.as_bytes())?;
            sections.set_sidecar(&name, sidecar)?;
        }
        Ok(Library::new(&[&sections]).definition(&name)?)
    }
}

fn collect(definition: &Definition, messages: &mut BTreeMap<String, Message>) {
    if messages.contains_key(&definition.name) {
        return;
    }
    let mut text = String::new();
    for field in &definition.fields {
        let default = field.default.as_ref();
        let default = default.map_or(String::new(), |value| format!(" {}", written(value)));
        writeln!(text, "{} {}{default}", field.kind, field.name).expect("a text takes all");
    }
    let sidecar = Sidecar::of(definition);
    messages.insert(definition.name.clone(), Message { text, sidecar });
    for field in &definition.fields {
        let mut kind = &field.kind;
        while let Kind::Array(item, _) | Kind::Sequence(item, _) = kind {
            kind = item;
        }
        if let Kind::Message(inner) = kind {
            collect(inner, messages);
        }
    }
}

/// A default in the syntax of `.msg` files.
fn written(value: &Literal) -> String {
    match value {
        Literal::Text(text) => format!("\"{}\"", text.replace('"', "\\\"")),
        Literal::List(items) => {
            let items: Vec<String> = items.iter().map(written).collect();
            format!("[{}]", items.join(", "))
        }
        Literal::Bool(_) | Literal::Integer(_) | Literal::Float(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Part, compare, humble, standard_names, standard_type};

    /// All but the constants.
    fn differences(sent: &Definition, passed: &Definition) -> Vec<String> {
        let is_constant = |change: &Change| match change {
            Change::Changed { part, .. } => *part == Part::Value,
            Change::Added { .. } | Change::Removed { .. } | Change::ConstantAdded => false,
        };
        let found = compare(sent, passed).into_iter();
        let found = found.filter(|found| !is_constant(&found.change));
        found.map(|found| found.to_string()).collect()
    }

    #[test]
    fn defaults_pass_as_json() {
        let text = concat!(
            "bool on true\nint8 low -128\nuint64 high 0xffffffffffffffff\nfloat64 least 1e-300\n",
            "float32 far inf\nstring name it's \\ \"here\"\nstring quoted 'a \"b\" \\'\n",
            "string empty \"\"\nint32[] list [1, -2]\nstring[2] words ['a b', \"c\"]\nbool[] none []\n",
        );
        let mut sections = Sections::default();
        let added = sections.add_file(Format::Message, "a/B", "B.msg", text.as_bytes());
        added.unwrap();
        assert_eq!(sections.errors("a/B").next(), None);
        let definition = Library::new(&[&sections]).definition("a/B").unwrap();
        assert!(
            definition
                .fields
                .iter()
                .all(|field| field.default.is_some())
        );
        let value = serde_json::from_str(&definition.to_portable().to_string()).unwrap();
        let passed = Definition::from_portable(&value).unwrap();
        for (sent, passed) in definition.fields.iter().zip(&passed.fields) {
            assert_eq!(sent.default, passed.default, "{}", sent.name);
        }
    }

    #[test]
    fn every_type_passes_as_json() {
        let sources = [humble()];
        let mut library = Library::new(&sources);
        let ros = humble()
            .names()
            .into_iter()
            .map(|name| library.definition(name).unwrap());
        let standard = standard_names().map(|name| standard_type(&name).unwrap());
        let mut count = 0;
        for definition in ros.collect::<Vec<_>>().into_iter().chain(standard) {
            let value = definition.to_portable();
            let text = serde_json::to_string(&value).unwrap();
            let passed = serde_json::from_str(&text).unwrap();
            let passed = Definition::from_portable(&passed).unwrap();
            let mut facts = definition.facts.clone();
            facts.foxglove_fields.clear();
            assert_eq!(passed.facts, facts);
            assert_eq!(
                differences(&definition, &passed),
                [""; 0],
                "{}",
                definition.name
            );
            assert_eq!(passed.to_portable(), value);
            count += 1;
        }
        assert_eq!(count, humble().names().len() + 42);
    }

    #[test]
    fn other_json_is_refused() {
        for (value, expected) in [
            (json!({"name": "a/B"}), "missing field `messages`"),
            (
                json!({"name": "a/B", "messages": {}}),
                "there is no definition of a/B",
            ),
            (
                json!({"name": "a/B", "messages": {"a/B": {"text": "B b", "facts": {}, "fields": {}}}}),
                "a/B contains itself",
            ),
            (
                json!({"name": "a/B", "messages": {"a/B": {"text": "int32", "facts": {}, "fields": {}}}}),
                "a/B:1:6: found",
            ),
        ] {
            let error = Definition::from_portable(&value).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
