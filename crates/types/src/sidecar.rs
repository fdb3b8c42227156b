//! Facts about a type that its `.msg` file cannot say, from a file in TOML beside it.
//!
//! ```toml
//! version = 1
//! ros = "sensor_msgs/Image"
//! foxglove = "foxglove.RawImage"
//! payload = "data"
//!
//! [fields.data]
//! tensors = [{ dtypes = ["u1"], shapes = [["height", "width"], ["height", "width", 3]] }]
//!
//! [fields.encoding]
//! optional = true
//! ```

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use nervure_protocol::nearest;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::definition::{Definition, Facts};
use crate::error::{Place, SyntaxError};
use crate::line::{Item, Line};
use crate::shown::Source;
use crate::tensor_rule::TensorRule;

/// The content of a file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sidecar {
    facts: Facts,
    fields: BTreeMap<String, FieldFacts>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: Option<NonZeroU32>,
    ros: Option<String>,
    foxglove: Option<String>,
    #[serde(default)]
    foxglove_fields: BTreeMap<String, Source>,
    payload: Option<Spanned<String>>,
    #[serde(default)]
    fields: BTreeMap<Spanned<String>, FieldFacts>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldFacts {
    #[serde(default)]
    optional: bool,
    /// Prefix of the constants that are its values.
    #[serde(rename = "enum")]
    enumeration: Option<String>,
    #[serde(default)]
    tensors: Vec<TensorRule>,
}

impl Sidecar {
    /// Reads a file beside the definition with these lines.
    pub(crate) fn parse(source: &str, text: &str, lines: &[Line]) -> Result<Self, SyntaxError> {
        let place = |at: usize| place_of(source, text, at);
        let file: File = toml::from_str(text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            SyntaxError {
                place: place(span.start),
                found: text.get(span).unwrap_or_default().trim().to_owned(),
                expected: "what a file beside a definition has".to_owned(),
                hint: Some(error.message().to_owned()),
            }
        })?;
        let fields: Vec<&str> = lines.iter().filter_map(field_name).collect();
        let known = |name: &Spanned<String>| match fields.contains(&name.get_ref().as_str()) {
            true => Ok(name.get_ref().clone()),
            false => Err(SyntaxError {
                place: place(name.span().start),
                found: name.get_ref().clone(),
                expected: format!("a field of the type: {}", fields.join(", ")),
                hint: nearest(name.get_ref(), fields.iter().copied())
                    .map(|near| format!("did you mean `{near}`?")),
            }),
        };
        let facts = Facts {
            version: file.version,
            ros: file.ros,
            foxglove: file.foxglove,
            foxglove_fields: file.foxglove_fields,
            payload: file.payload.as_ref().map(known).transpose()?,
        };
        let fields = file
            .fields
            .iter()
            .map(|(name, facts)| Ok((known(name)?, facts.clone())));
        Ok(Self {
            facts,
            fields: fields.collect::<Result<_, SyntaxError>>()?,
        })
    }

    /// The facts of a definition.
    pub(crate) fn of(definition: &Definition) -> Self {
        let fields = definition.fields.iter().map(|field| {
            let facts = FieldFacts {
                optional: field.is_optional,
                enumeration: field.enumeration.clone(),
                tensors: field.tensors.clone(),
            };
            (field.name.clone(), facts)
        });
        Self {
            facts: definition.facts.clone(),
            fields: fields.collect(),
        }
    }

    /// Adds the facts to the definition.
    pub(crate) fn apply(&self, definition: &mut Definition) {
        definition.facts.clone_from(&self.facts);
        for field in &mut definition.fields {
            if let Some(facts) = self.fields.get(&field.name) {
                field.is_optional = facts.optional;
                field.enumeration.clone_from(&facts.enumeration);
                field.tensors.clone_from(&facts.tensors);
            }
        }
    }
}

fn field_name(line: &Line) -> Option<&str> {
    match &line.item {
        Ok(Item::Field(field)) => Some(&field.name),
        _ => None,
    }
}

fn place_of(source: &str, text: &str, at: usize) -> Place {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    Place {
        source: Arc::from(source),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Format, Library, Sections};

    fn sidecar(text: &str) -> Result<(), String> {
        let mut sections = Sections::default();
        let file = b"uint8[] data\nstring encoding\n";
        sections
            .add_file(Format::Message, "a/B", "a/B.msg", file)
            .unwrap();
        sections
            .add_sidecar("a/B", "a/B.toml", text)
            .map_err(|error| error.to_string())?;
        Library::new(&[&sections])
            .definition("a/B")
            .map(drop)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn errors_name_file_line_and_column() {
        sidecar("payload = 'data'\n[fields.data]\ntensors = [{shapes = [['n', 3]], dtypes = ['f4', 'struct']}]").unwrap();
        for (text, expected) in [
            (
                "payload = 'dta'",
                "a/B.toml:1:11: found `dta`, expected a field of the type: data, encoding (did you mean `data`?)",
            ),
            (
                "\n[fields.encodin]\noptional = true",
                "a/B.toml:2:9: found `encodin`, expected a field",
            ),
            ("version = 0", "a/B.toml:1:11: found `0`"),
            (
                "[fields.data]\noptinal = true",
                "a/B.toml:2:1: found `optinal`",
            ),
            (
                "[fields.data]\ntensors = [{shapes = [], dtypes = ['f5']}]",
                "`f5` is no type of elements",
            ),
            ("payload", "a/B.toml:1:"),
        ] {
            let error = sidecar(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
