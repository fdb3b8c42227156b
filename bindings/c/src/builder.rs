//! Records that are built field by field.

use std::sync::Arc;

use nervure_node::binding::nearest;
use nervure_node::message::{Encode, Scalar, SerdeSample, Tensor, TensorLayout};
use nervure_types::{Definition, Field, Kind as FieldKind, Literal};
use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::path::{Step, steps};
use crate::status::{Failure, Status};

/// A record that is built field by field, by paths as of `nervure_record`. It can be sent many times, and changed between.
#[derive(Debug)]
pub struct Builder {
    /// Name and definition of its type, if it is known.
    known: Option<(String, Arc<Definition>)>,
    pub(crate) root: Node,
}

/// A value of a record.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Null,
    Scalar(Scalar),
    Text(String),
    Bytes(Vec<u8>),
    Tensor(TensorLayout, Vec<u8>),
    List(Vec<Self>),
    Fields(Vec<(String, Self)>),
}

/// The type of a value, if it is known.
#[derive(Clone, Copy)]
enum Expected<'a> {
    Any,
    Record(&'a Definition),
    Field(&'a Field, &'a FieldKind),
}

impl Builder {
    pub(crate) fn new(known: Option<(&str, &Arc<Definition>)>) -> Result<Self, Failure> {
        let Some((name, definition)) = known else {
            return Ok(Self {
                known: None,
                root: Node::Fields(Vec::new()),
            });
        };
        if let Some(payload) = definition.payload() {
            let message = format!(
                "a sample of {name} is no record, but its `{}`: send that",
                payload.name
            );
            return Err(Failure::new(Status::Kind, message));
        }
        Ok(Self {
            root: Node::record(definition),
            known: Some((name.to_owned(), definition.clone())),
        })
    }

    pub(crate) fn set(&mut self, path: &str, value: Node) -> Result<(), Failure> {
        let name = self.known.as_ref().map_or("the record", |(name, _)| name);
        let name = name.to_owned();
        let wrong = |reason: String| {
            Failure::new(Status::Kind, format!("{name}, field `{path}`: {reason}"))
        };
        let whole = match &self.known {
            Some((_, definition)) => Expected::Record(definition),
            None => Expected::Any,
        };
        let steps = steps(path).collect::<Result<Vec<_>, _>>()?;
        if steps.is_empty() {
            return Err(Failure::argument(
                "the path is empty: set the fields of the record",
            ));
        }
        let mut expected = whole;
        for step in &steps {
            expected = expected.at(*step).map_err(wrong)?;
        }
        let value = expected.convert(value).map_err(wrong)?;
        self.root.put(&steps, whole, value).map_err(wrong)
    }

    /// The record, to be sent.
    pub(crate) fn sample(&self) -> Result<impl Encode + '_, Failure> {
        SerdeSample::new(&self.root).map_err(|error| Failure::argument(error.to_string()))
    }
}

impl<'a> Expected<'a> {
    /// The type of a part.
    fn at(self, step: Step<'_>) -> Result<Self, String> {
        let record = match self {
            Self::Any => return Ok(Self::Any),
            Self::Record(definition) => definition,
            Self::Field(field, kind) => match (kind, step) {
                (FieldKind::Message(definition), _) => definition,
                (FieldKind::Array(_, count), Step::Index(index)) if index >= *count => {
                    return Err(format!(
                        "expected an index below {count} (`{kind}`), found {index}"
                    ));
                }
                (FieldKind::Array(item, _) | FieldKind::Sequence(item, _), Step::Index(_)) => {
                    return Ok(Self::Field(field, item));
                }
                (kind, Step::Index(index)) => {
                    return Err(format!("expected `{kind}`, found an item [{index}]"));
                }
                (kind, Step::Field(name)) => {
                    return Err(format!("expected `{kind}`, found a field `{name}`"));
                }
            },
        };
        let Step::Field(name) = step else {
            return Err(format!(
                "expected a field of {}, found an index",
                record.name
            ));
        };
        let found = record.fields.iter().find(|field| field.name == name);
        found
            .map(|field| Self::Field(field, &field.kind))
            .ok_or_else(|| {
                let names: Vec<&str> = record
                    .fields
                    .iter()
                    .map(|field| field.name.as_str())
                    .collect();
                let hint = nearest(name, names.iter().copied());
                let hint = hint.map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
                format!("expected one of {}, found `{name}`{hint}", names.join(", "))
            })
    }

    /// A value as the type has it: integers are numbers, too.
    fn convert(self, value: Node) -> Result<Node, String> {
        let Self::Field(field, kind) = self else {
            return Ok(value);
        };
        let is_whole = std::ptr::eq(kind, &field.kind);
        let is_float = matches!(kind, FieldKind::Number(number) if number.is_float());
        match (kind, value) {
            (_, Node::Null) if is_whole && field.is_optional => Ok(Node::Null),
            (FieldKind::Sequence(..), Node::Null) => Ok(Node::List(Vec::new())),
            (FieldKind::Message(_), value @ Node::Fields(_)) => Ok(value),
            (FieldKind::Bool, value @ Node::Scalar(Scalar::Bool(_)))
            | (FieldKind::Text(_), value @ Node::Text(_))
            | (
                FieldKind::Array(..) | FieldKind::Sequence(..),
                value @ (Node::Tensor(..) | Node::Bytes(_)),
            ) => Ok(value),
            (FieldKind::Number(_), Node::Scalar(Scalar::Integer(value))) if is_float => {
                Ok(Node::Scalar(Scalar::Float(value as f64)))
            }
            (FieldKind::Number(_), Node::Scalar(Scalar::Float(value))) if is_float => {
                Ok(Node::Scalar(Scalar::Float(value)))
            }
            (
                FieldKind::Number(_),
                value @ Node::Scalar(Scalar::Integer(_) | Scalar::Unsigned(_)),
            ) if !is_float => Ok(value),
            (kind, value) => Err(format!("expected `{kind}`, found {}", value.name())),
        }
    }

    /// The value of a part that is not set.
    fn empty(self) -> Node {
        match self {
            Self::Any => Node::Null,
            Self::Record(definition) => Node::record(definition),
            Self::Field(field, kind) => {
                let is_whole = std::ptr::eq(kind, &field.kind);
                Node::of(field.default.as_ref().filter(|_| is_whole), kind)
            }
        }
    }
}

impl Node {
    /// A record with the values that its fields have unless others are given. Optional fields are absent.
    fn record(definition: &Definition) -> Self {
        let field = |field: &Field| {
            let value = match field.is_optional {
                true => Self::Null,
                false => Self::of(field.default.as_ref(), &field.kind),
            };
            (field.name.clone(), value)
        };
        Self::Fields(definition.fields.iter().map(field).collect())
    }

    /// The default of a field, or zeros.
    fn of(default: Option<&Literal>, kind: &FieldKind) -> Self {
        match (kind, default) {
            (FieldKind::Bool, Some(Literal::Bool(value))) => Self::Scalar(Scalar::Bool(*value)),
            (FieldKind::Bool, _) => Self::Scalar(Scalar::Bool(false)),
            (FieldKind::Number(number), default) => Self::Scalar(match default {
                Some(Literal::Float(value)) => Scalar::Float(*value),
                Some(Literal::Integer(value)) if number.is_float() => Scalar::Float(*value as f64),
                Some(Literal::Integer(value)) => match i64::try_from(*value) {
                    Ok(value) => Scalar::Integer(value),
                    Err(_) => Scalar::Unsigned(u64::try_from(*value).unwrap_or(0)),
                },
                _ if number.is_float() => Scalar::Float(0.0),
                _ => Scalar::Integer(0),
            }),
            (FieldKind::Text(_), Some(Literal::Text(text))) => Self::Text(text.clone()),
            (FieldKind::Text(_), _) => Self::Text(String::new()),
            (FieldKind::Message(definition), _) => Self::record(definition),
            (
                FieldKind::Array(item, _) | FieldKind::Sequence(item, _),
                Some(Literal::List(items)),
            ) => Self::List(
                items
                    .iter()
                    .map(|value| Self::of(Some(value), item))
                    .collect(),
            ),
            (FieldKind::Array(item, count), _) => Self::List(vec![Self::of(None, item); *count]),
            (FieldKind::Sequence(..), _) => Self::List(Vec::new()),
        }
    }

    /// Puts a value at a path. Missing parts are added, with the values of their types; none after a failure.
    fn put(
        &mut self,
        path: &[Step<'_>],
        expected: Expected<'_>,
        value: Self,
    ) -> Result<(), String> {
        let Some((step, rest)) = path.split_first() else {
            *self = value;
            return Ok(());
        };
        if matches!(self, Self::Null) {
            let mut made = match (expected.empty(), step) {
                (Self::Null, Step::Field(_)) => Self::Fields(Vec::new()),
                (Self::Null, Step::Index(_)) => Self::List(Vec::new()),
                (value, _) => value,
            };
            made.put(path, expected, value)?;
            *self = made;
            return Ok(());
        }
        let inner = expected.at(*step)?;
        let found = self.name();
        match (self, step) {
            (Self::Fields(fields), Step::Field(name)) => {
                if let Some((_, known)) = fields.iter_mut().find(|(known, _)| known == name) {
                    return known.put(rest, inner, value);
                }
                let mut made = Self::Null;
                made.put(rest, inner, value)?;
                fields.push(((*name).to_owned(), made));
            }
            (Self::List(items), Step::Index(index)) => {
                let count = items.len();
                if let Some(known) = items.get_mut(*index) {
                    return known.put(rest, inner, value);
                }
                if *index > count {
                    return Err(format!(
                        "expected an index of at most {count}, which appends an item, found {index}"
                    ));
                }
                let mut made = inner.empty();
                made.put(rest, inner, value)?;
                items.push(made);
            }
            (_, Step::Field(name)) => {
                return Err(format!("expected a record with `{name}`, found {found}"));
            }
            (_, Step::Index(_)) => return Err(format!("expected a list, found {found}")),
        }
        Ok(())
    }

    /// The value, in the words of users.
    fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Scalar(Scalar::Bool(_)) => "a truth value",
            Self::Scalar(Scalar::Integer(_) | Scalar::Unsigned(_)) => "an integer",
            Self::Scalar(Scalar::Float(_)) => "a floating-point number",
            Self::Text(_) => "text",
            Self::Bytes(_) => "bytes",
            Self::Tensor(..) => "a tensor",
            Self::List(_) => "a list",
            Self::Fields(_) => "a record",
        }
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_none(),
            Self::Scalar(Scalar::Bool(value)) => serializer.serialize_bool(*value),
            Self::Scalar(Scalar::Integer(value)) => serializer.serialize_i64(*value),
            Self::Scalar(Scalar::Unsigned(value)) => serializer.serialize_u64(*value),
            Self::Scalar(Scalar::Float(value)) => serializer.serialize_f64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Bytes(bytes) => serializer.serialize_bytes(bytes),
            Self::Tensor(layout, data) => {
                let tensor = Tensor::from_bytes(layout.clone(), data);
                tensor
                    .map_err(serde::ser::Error::custom)?
                    .serialize(serializer)
            }
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
