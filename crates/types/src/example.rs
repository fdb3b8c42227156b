//! Values of types, for tests.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::definition::{Definition, Kind};

/// A value with fields in a given order, which JSON's maps do not keep.
#[derive(Clone, Debug)]
pub(crate) enum Example {
    Null,
    Bool,
    Integer(i64),
    Float,
    Text,
    List(Vec<Self>),
    Fields(Vec<(String, Self)>),
}

impl Example {
    /// A value of a type, with or without its optional fields.
    pub(crate) fn of(definition: &Definition, with_optional: bool) -> Self {
        let fields = definition
            .fields
            .iter()
            .filter(|field| with_optional || !field.is_optional);
        let fields = fields.map(|field| {
            (
                field.name.clone(),
                Self::of_kind(&field.kind, with_optional),
            )
        });
        Self::Fields(fields.collect())
    }

    fn of_kind(kind: &Kind, with_optional: bool) -> Self {
        match kind {
            Kind::Bool => Self::Bool,
            Kind::Number(number) if number.is_float() => Self::Float,
            Kind::Number(_) => Self::Integer(3),
            Kind::Text(_) => Self::Text,
            Kind::Message(message) => Self::of(message, with_optional),
            Kind::Array(item, count) => {
                Self::List(vec![Self::of_kind(item, with_optional); *count])
            }
            Kind::Sequence(item, _) => Self::List(vec![Self::of_kind(item, with_optional); 2]),
        }
    }

    /// The fields of the value at a path such as `pose.position` or `detections.0.bbox`.
    pub(crate) fn fields(&mut self, path: &str) -> &mut Vec<(String, Self)> {
        match self.at(path) {
            Self::Fields(fields) => fields,
            other => panic!("{path} is {other:?}"),
        }
    }

    /// The value at a path.
    pub(crate) fn at(&mut self, path: &str) -> &mut Self {
        path.split('.')
            .filter(|step| !step.is_empty())
            .fold(self, |value, step| match value {
                Self::Fields(fields) => {
                    let found = fields.iter_mut().find(|(name, _)| name == step);
                    &mut found.unwrap_or_else(|| panic!("no {step} in {path}")).1
                }
                Self::List(items) => &mut items[step.parse::<usize>().unwrap()],
                other => panic!("{other:?} has no {step}"),
            })
    }
}

impl Serialize for Example {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_none(),
            Self::Bool => serializer.serialize_bool(true),
            Self::Integer(value) => serializer.serialize_i64(*value),
            Self::Float => serializer.serialize_f64(0.5),
            Self::Text => serializer.serialize_str("text"),
            Self::List(items) => items.serialize(serializer),
            Self::Fields(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}
