//! Paths to values in records, such as `pose.position.x` and `ranges[0]`.

use std::fmt;
use std::str::FromStr;

use super::view::{Items, RecordValue, RecordView, RecordViewError, number};
use crate::layout::Scalar;
use crate::tensor::TensorLayout;

/// A path from a record to one of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPath {
    steps: Vec<PathStep>,
}

/// A step of a [`RecordPath`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    /// `.name`: a field of a record.
    Field(Box<str>),
    /// `[3]`: an item of a list, or an index along an axis of a tensor.
    Item(usize),
    /// `[]`: the item that the caller's loop has reached.
    EachItem,
}

/// A value that a path leads to, with its place in the record.
#[derive(Clone, Debug)]
pub struct FoundValue<'a> {
    /// The value.
    pub value: RecordValue<'a>,
    /// The column of the value.
    pub column: usize,
    /// The row of the value.
    pub row: usize,
}

/// Why a text is not a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no path to a field: {reason}; expected names and indices, as in `pose.position.x` or `ranges[0]`"
)]
pub struct PathError {
    text: String,
    reason: &'static str,
}

/// Why a path leads to no value of a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathMiss {
    /// There is no such field.
    #[error("{within} has no field `{name}`")]
    Field {
        /// The record, in the words of users.
        within: String,
        /// The name in the path.
        name: String,
        /// The fields that exist.
        known: Vec<String>,
    },
    /// The list or axis is shorter.
    #[error("{within} has {length} items, so there is no [{index}]")]
    Index {
        /// The list, in the words of users.
        within: String,
        /// The index in the path.
        index: usize,
        /// Number of items.
        length: usize,
    },
    /// A name follows a value that has no fields, or an index one that has no items.
    #[error("{within} is {found}, which has no {wanted}")]
    Kind {
        /// The value, in the words of users.
        within: String,
        /// Its kind, in the words of users.
        found: String,
        /// Fields or items.
        wanted: &'static str,
    },
    /// The record is damaged.
    #[error(transparent)]
    Damaged(#[from] RecordViewError),
}

impl RecordPath {
    /// The steps, from the outermost.
    pub fn steps(&self) -> &[PathStep] {
        &self.steps
    }

    /// The path without its last `count` steps, in the words of users.
    fn shown(&self, count: usize) -> String {
        match count {
            0 => "the sample".to_owned(),
            count => format!("`{}`", Self::text(&self.steps[..count])),
        }
    }

    fn text(steps: &[PathStep]) -> String {
        let mut text = String::new();
        for step in steps {
            match step {
                PathStep::Field(name) if text.is_empty() => text.push_str(name),
                PathStep::Field(name) => text.push_str(&format!(".{name}")),
                PathStep::Item(index) => text.push_str(&format!("[{index}]")),
                PathStep::EachItem => text.push_str("[]"),
            }
        }
        text
    }
}

impl fmt::Display for RecordPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Self::text(&self.steps))
    }
}

impl FromStr for RecordPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let refuse = |reason| PathError {
            text: text.chars().take(200).collect(),
            reason,
        };
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let (index, after) = after
                    .split_once(']')
                    .ok_or_else(|| refuse("a bracket is open"))?;
                steps.push(match index {
                    "" => PathStep::EachItem,
                    digits => PathStep::Item(
                        digits
                            .parse()
                            .map_err(|_| refuse("an index is a whole number"))?,
                    ),
                });
                rest = after;
                continue;
            }
            let name = match (rest.strip_prefix('.'), steps.is_empty()) {
                (Some(name), false) => name,
                (None, true) => rest,
                (Some(_), true) => return Err(refuse("it begins with a dot")),
                (None, false) => return Err(refuse("a dot is missing")),
            };
            let end = name.find(['.', '[', ']']).unwrap_or(name.len());
            if end == 0 {
                return Err(refuse("a name is empty"));
            }
            steps.push(PathStep::Field(name[..end].into()));
            rest = &name[end..];
        }
        match steps.is_empty() {
            true => Err(refuse("it is empty")),
            false => Ok(Self { steps }),
        }
    }
}

impl<'a> RecordView<'a> {
    /// The value at a path. The n-th `[]` of the path is the n-th of `loops`. A path through a null
    /// leads to null.
    ///
    /// # Errors
    /// [`PathMiss`].
    pub fn find(&self, path: &RecordPath, loops: &[usize]) -> Result<FoundValue<'a>, PathMiss> {
        let mut found = match self.list() {
            Some(items) => FoundValue {
                value: RecordValue::List(items),
                column: 0,
                row: 0,
            },
            None => self.found(0, 0)?,
        };
        let mut loops = loops.iter().copied();
        for (at, step) in path.steps.iter().enumerate() {
            let index = match step {
                PathStep::Field(name) => {
                    found = self.field(&found, name, &|| path.shown(at))?;
                    continue;
                }
                PathStep::Item(index) => *index,
                PathStep::EachItem => loops.next().unwrap_or(usize::MAX),
            };
            let within = || path.shown(at);
            found = match &found.value {
                RecordValue::Null => return Ok(found),
                RecordValue::List(items) => self.item(items, index, &within)?,
                RecordValue::Tensor(layout, bytes) => {
                    let rest = path.steps[at + 1..].iter().map(|step| match step {
                        PathStep::Field(_) => None,
                        PathStep::Item(index) => Some(*index),
                        PathStep::EachItem => loops.next(),
                    });
                    let indices: Option<Vec<usize>> =
                        std::iter::once(Some(index)).chain(rest).collect();
                    let indices = indices.ok_or_else(|| self.kind(&found, "fields", within()))?;
                    let scalar = tensor_item(layout, bytes, &indices, &within)?;
                    let value = RecordValue::Scalar(scalar);
                    return Ok(FoundValue { value, ..found });
                }
                _ => return Err(self.kind(&found, "items", within())),
            };
        }
        Ok(found)
    }

    fn found(&self, column: usize, row: usize) -> Result<FoundValue<'a>, RecordViewError> {
        Ok(FoundValue {
            value: self.value(column, row)?,
            column,
            row,
        })
    }

    fn field(
        &self,
        of: &FoundValue<'a>,
        name: &str,
        within: &dyn Fn() -> String,
    ) -> Result<FoundValue<'a>, PathMiss> {
        match of.value {
            RecordValue::Null => return Ok(of.clone()),
            RecordValue::Record => {}
            _ => return Err(self.kind(of, "fields", within())),
        }
        match self.columns().field(of.column, name) {
            Some(column) => Ok(self.found(column, of.row)?),
            None => {
                let columns = self.columns();
                let known = columns
                    .children(of.column)
                    .map(|child| columns.column(child).name().to_owned());
                Err(PathMiss::Field {
                    within: within(),
                    name: name.to_owned(),
                    known: known.collect(),
                })
            }
        }
    }

    fn item(
        &self,
        items: &Items,
        index: usize,
        within: &dyn Fn() -> String,
    ) -> Result<FoundValue<'a>, PathMiss> {
        match items.rows.clone().nth(index) {
            Some(row) => Ok(self.found(items.column, row)?),
            None => Err(PathMiss::Index {
                within: within(),
                index,
                length: items.rows.len(),
            }),
        }
    }

    fn kind(&self, found: &FoundValue<'a>, wanted: &'static str, within: String) -> PathMiss {
        PathMiss::Kind {
            within,
            found: self.columns().column(found.column).kind().to_string(),
            wanted,
        }
    }
}

/// The element of a tensor at an index for each axis.
///
/// # Errors
/// [`PathMiss`].
pub fn tensor_item(
    layout: &TensorLayout,
    bytes: &[u8],
    indices: &[usize],
    within: &dyn Fn() -> String,
) -> Result<Scalar, PathMiss> {
    let wrong = |wanted| PathMiss::Kind {
        within: within(),
        found: format!(
            "a tensor of {} with {} dimensions",
            layout.dtype(),
            layout.shape().len()
        ),
        wanted,
    };
    if indices.len() != layout.shape().len() {
        return Err(wrong("items: write an index for each dimension"));
    }
    let mut place = 0;
    for ((&index, &length), stride) in indices.iter().zip(layout.shape()).zip(&*layout.strides()) {
        if index >= length {
            return Err(PathMiss::Index {
                within: within(),
                index,
                length,
            });
        }
        place += index * stride;
    }
    let item = bytes.get(place..).unwrap_or_default();
    if item.len() < layout.dtype().item_bytes() {
        return Err(wrong("such element"));
    }
    number(layout.dtype(), item, 0).ok_or_else(|| wrong("numbers"))
}
