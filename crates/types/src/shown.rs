//! How samples of a type become messages that a viewer displays: each field of the message, and its
//! source.
//!
//! ```toml
//! foxglove = "foxglove.Grid"
//!
//! [foxglove_fields]
//! pose = "info.origin"                                            # a value of the sample
//! cell_size = { x = "info.resolution", y = "info.resolution" }    # a message of such values
//! cell_stride = 1                                                 # always this
//! fields = [{ name = "'occupancy'", type = 2 }]                   # a list of one message
//! ```
//!
//! A record becomes a message by the names of its fields. Further sources are `@stamp` and `@frame`, from
//! the header of the sample, `level / 10`, and `corners(bbox)`, the four corners of a rectangle. A table
//! with the key `each` is a message for each item of a list: `joints = { each = "name", name = "name[]" }`.
//! The n-th `[]` of a path is the item of the n-th list.

use std::collections::BTreeMap;

use nervure_message::record::{PathError, RecordPath};
use serde::Deserialize;

/// The source of a field of a message.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub enum Source {
    /// The stamp of the sample.
    Stamp,
    /// The frame of the sample.
    Frame,
    /// Always this number; 1 for a truth value.
    Number(f64),
    /// Always this text.
    Text(String),
    /// The value at a path in the sample.
    Value(RecordPath),
    /// The number at a path, divided by this.
    Quotient(RecordPath, f64),
    /// The corners of the `std/BoundingBox2D` at a path.
    Corners(RecordPath),
    /// A message with these fields.
    Fields(BTreeMap<String, Source>),
    /// A list of these.
    List(Vec<Source>),
    /// One for each item of the list at a path.
    Each(RecordPath, Box<Source>),
}

/// Why a value of TOML is no source.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A path is wrong.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Another value.
    #[error(
        "`{0}` is no source of a field: expected a path, a number, a text in quotes such as `'base'`, `@stamp`, `@frame`, `PATH / 10`, `corners(PATH)`, a table or a list"
    )]
    Unknown(String),
}

impl Source {
    /// All paths in it, with the number of loops around each.
    pub fn paths(&self) -> Vec<(&RecordPath, usize)> {
        let mut paths = Vec::new();
        self.add_paths(0, &mut paths);
        paths
    }

    fn add_paths<'s>(&'s self, loops: usize, paths: &mut Vec<(&'s RecordPath, usize)>) {
        match self {
            Self::Stamp | Self::Frame | Self::Number(_) | Self::Text(_) => {}
            Self::Value(path) | Self::Quotient(path, _) | Self::Corners(path) => {
                paths.push((path, loops));
            }
            Self::Fields(fields) => {
                fields
                    .values()
                    .for_each(|field| field.add_paths(loops, paths));
            }
            Self::List(items) => items.iter().for_each(|item| item.add_paths(loops, paths)),
            Self::Each(path, item) => {
                paths.push((path, loops));
                item.add_paths(loops + 1, paths);
            }
        }
    }
}

impl std::fmt::Display for Source {
    /// The source, in the words of the reference.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stamp => f.write_str("the stamp"),
            Self::Frame => f.write_str("the frame"),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => write!(f, "`{text}`"),
            Self::Value(path) => write!(f, "`{path}`"),
            Self::Quotient(path, divisor) => write!(f, "`{path} / {divisor}`"),
            Self::Corners(path) => write!(f, "the corners of `{path}`"),
            Self::Fields(fields) => {
                f.write_str("(")?;
                for (number, (name, source)) in fields.iter().enumerate() {
                    let comma = if number > 0 { ", " } else { "" };
                    write!(f, "{comma}`{name}`: {source}")?;
                }
                f.write_str(")")
            }
            Self::List(items) => items.iter().try_for_each(|item| item.fmt(f)),
            Self::Each(path, item) => write!(f, "for each of `{path}`: {item}"),
        }
    }
}

impl TryFrom<toml::Value> for Source {
    type Error = SourceError;

    fn try_from(value: toml::Value) -> Result<Self, SourceError> {
        Ok(match value {
            toml::Value::String(text) => Self::of_text(&text)?,
            toml::Value::Integer(number) => Self::Number(number as f64),
            toml::Value::Float(number) => Self::Number(number),
            toml::Value::Boolean(is_true) => Self::Number(f64::from(u8::from(is_true))),
            toml::Value::Array(items) => {
                let items = items.into_iter().map(Self::try_from);
                Self::List(items.collect::<Result<_, _>>()?)
            }
            toml::Value::Table(mut table) => {
                let each = table.remove("each");
                let fields = table.into_iter();
                let fields = fields.map(|(name, value)| Ok((name, Self::try_from(value)?)));
                let fields = Self::Fields(fields.collect::<Result<_, SourceError>>()?);
                match each {
                    None => fields,
                    Some(toml::Value::String(path)) => Self::Each(path.parse()?, Box::new(fields)),
                    Some(other) => return Err(SourceError::Unknown(other.type_str().to_owned())),
                }
            }
            toml::Value::Datetime(_) => return Err(SourceError::Unknown("datetime".to_owned())),
        })
    }
}

impl Source {
    fn of_text(text: &str) -> Result<Self, SourceError> {
        if let Some(inner) = text.strip_prefix('\'') {
            let inner = inner.strip_suffix('\'');
            let inner = inner.ok_or_else(|| SourceError::Unknown(text.to_owned()))?;
            return Ok(Self::Text(inner.to_owned()));
        }
        if let Some(inner) = text.strip_prefix("corners(") {
            let inner = inner.strip_suffix(')');
            let inner = inner.ok_or_else(|| SourceError::Unknown(text.to_owned()))?;
            return Ok(Self::Corners(inner.parse()?));
        }
        if let Some((path, divisor)) = text.split_once(" / ") {
            let divisor = divisor.parse();
            let divisor = divisor.map_err(|_| SourceError::Unknown(text.to_owned()))?;
            return Ok(Self::Quotient(path.parse()?, divisor));
        }
        match text {
            "@stamp" => Ok(Self::Stamp),
            "@frame" => Ok(Self::Frame),
            _ if text.starts_with('@') => Err(SourceError::Unknown(text.to_owned())),
            path => Ok(Self::Value(path.parse()?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::Source;

    fn read(text: &str) -> Result<BTreeMap<String, Source>, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn sources_are_read_and_shown() {
        for (text, shown) in [
            ("a = \"@stamp\"", "the stamp"),
            ("a = \"pose.position\"", "`pose.position`"),
            ("a = \"level / 10\"", "`level / 10`"),
            ("a = \"'base'\"", "`base`"),
            ("a = true", "1"),
            ("a = \"corners(d[].bbox)\"", "the corners of `d[].bbox`"),
            ("a = [{ b = 2 }]", "(`b`: 2)"),
            (
                "a = { each = \"d\", b = \"d[].c\" }",
                "for each of `d`: (`b`: `d[].c`)",
            ),
        ] {
            assert_eq!(read(text).unwrap()["a"].to_string(), shown, "{text}");
        }
    }

    #[test]
    fn other_values_are_no_sources() {
        for (text, found) in [
            ("a = \"@time\"", "`@time` is no source"),
            ("a = \"'base\"", "is no source"),
            ("a = \"corners(b\"", "is no source"),
            ("a = \"b / c\"", "is no source"),
            ("a = \"b..c\"", "`b..c` is no path"),
            ("a = { each = 1 }", "is no source"),
            ("a = 2026-01-01", "`datetime` is no source"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(found), "{text}: {error}");
        }
    }
}
