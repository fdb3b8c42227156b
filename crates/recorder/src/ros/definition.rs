//! Message definitions of ROS 2 (`ros2msg`), as they stand in the schema of a channel: the text of
//! the message's own file, then the texts of all messages it uses, each after a line of `=`.
//!
//! The text is untrusted, so everything in it has a limit. Types must not contain themselves, and
//! fields are counted each time their type is used.

use std::collections::HashMap;
use std::sync::Arc;

/// Limit on the fields of a message, including those of nested messages.
const MAX_FIELDS: usize = 4096;
/// Limit on the nesting of messages.
const MAX_DEPTH: usize = 24;
/// Limit on the text of a definition.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// A message type whose fields are all known.
#[derive(Debug, PartialEq)]
pub(crate) struct Definition {
    /// `package/Name`
    pub(crate) name: String,
    pub(crate) fields: Vec<Field>,
    /// Number of its fields, including those of nested messages.
    weight: usize,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Bool,
    Number(Number),
    Text,
    Message(Arc<Definition>),
    /// A fixed number of values.
    Array(Box<Kind>, usize),
    /// Any number of values.
    Sequence(Box<Kind>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

/// Why a definition cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    /// A line is not a field.
    #[error("`{line}` in the definition of {message} is not a field")]
    Line {
        /// Type of the message.
        message: String,
        /// The line.
        line: String,
    },
    /// The definition of a field's type is missing.
    #[error("{message} has a field of type `{name}`, whose definition is missing")]
    Missing {
        /// Type of the message.
        message: String,
        /// Type of the field.
        name: String,
    },
    /// A field is UTF-16 text, which the implementations of ROS 2 encode differently.
    #[error("{message} has a field of type `wstring`, which is not read")]
    WideText {
        /// Type of the message.
        message: String,
    },
    /// A type contains itself, or is nested too deeply.
    #[error("{name} contains itself, or more than {MAX_DEPTH} messages in each other")]
    Depth {
        /// The type.
        name: String,
    },
    /// The definition or its fields exceed a limit.
    #[error(
        "the definition is larger than the limits: {MAX_FIELDS} fields, {MAX_TEXT_BYTES} bytes"
    )]
    TooLarge,
    /// The definition is not UTF-8.
    #[error("the definition is not UTF-8 text")]
    NotText,
}

impl Definition {
    /// Parses the definition of the message `name` (`package/msg/Name`), with which the text
    /// begins.
    ///
    /// # Errors
    /// [`DefinitionError`].
    pub(crate) fn parse(name: &str, text: &[u8]) -> Result<Arc<Self>, DefinitionError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(DefinitionError::TooLarge);
        }
        let text = std::str::from_utf8(text).map_err(|_| DefinitionError::NotText)?;
        let name = plain_name(name);
        let mut library = Library {
            texts: texts(&name, text),
            known: HashMap::new(),
        };
        library.resolve(&name, MAX_DEPTH)
    }

    /// Whether it has exactly these fields, as names and types.
    pub(crate) fn has_fields(&self, fields: &[(&str, &str)]) -> bool {
        let shown = self
            .fields
            .iter()
            .map(|field| (field.name.as_str(), field.kind.to_string()));
        shown.eq(fields
            .iter()
            .map(|(name, kind)| (*name, (*kind).to_owned())))
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Number(number) => f.write_str(number.name()),
            Self::Text => f.write_str("string"),
            Self::Message(definition) => f.write_str(&definition.name),
            Self::Array(item, count) => write!(f, "{item}[{count}]"),
            Self::Sequence(item) => write!(f, "{item}[]"),
        }
    }
}

impl Number {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::I8 => "int8",
            Self::U8 => "uint8",
            Self::I16 => "int16",
            Self::U16 => "uint16",
            Self::I32 => "int32",
            Self::U32 => "uint32",
            Self::I64 => "int64",
            Self::U64 => "uint64",
            Self::F32 => "float32",
            Self::F64 => "float64",
        }
    }
}

/// The lines of each message, by its name.
fn texts<'a>(name: &str, text: &'a str) -> HashMap<String, Vec<&'a str>> {
    let mut texts = HashMap::from([(name.to_owned(), Vec::new())]);
    let mut current = name.to_owned();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix("MSG:") {
            current = plain_name(name.trim());
            // A message without fields must be known too.
            texts.entry(current.clone()).or_insert_with(Vec::new);
        } else if !line.is_empty() && !line.starts_with("===") {
            texts
                .entry(current.clone())
                .or_insert_with(Vec::new)
                .push(line);
        }
    }
    texts
}

/// Converts `package/msg/Name` to `package/Name`.
fn plain_name(name: &str) -> String {
    name.replacen("/msg/", "/", 1)
}

struct Library<'a> {
    texts: HashMap<String, Vec<&'a str>>,
    known: HashMap<String, Arc<Definition>>,
}

impl Library<'_> {
    fn resolve(&mut self, name: &str, depth: usize) -> Result<Arc<Definition>, DefinitionError> {
        if let Some(known) = self.known.get(name) {
            return Ok(known.clone());
        }
        if depth == 0 {
            return Err(DefinitionError::Depth {
                name: name.to_owned(),
            });
        }
        let lines = self.texts.get(name).cloned().unwrap_or_default();
        let mut fields: Vec<Field> = Vec::new();
        let mut weight = 0_usize;
        for line in lines {
            let (type_name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let rest = rest.trim_start();
            let end = rest
                .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .unwrap_or(rest.len());
            let (field, after) = rest.split_at(end);
            if after.trim_start().starts_with('=') {
                // Constants are not part of a message.
                continue;
            }
            let is_field =
                !field.is_empty() && (after.is_empty() || after.starts_with(char::is_whitespace));
            if !is_field || fields.iter().any(|known| known.name == field) {
                return Err(DefinitionError::Line {
                    message: name.to_owned(),
                    line: shortened(line),
                });
            }
            let kind = self.kind(name, type_name, line, depth)?;
            weight += 1 + weight_of(&kind);
            if weight > MAX_FIELDS {
                return Err(DefinitionError::TooLarge);
            }
            fields.push(Field {
                name: field.to_owned(),
                kind,
            });
        }
        let definition = Arc::new(Definition {
            name: name.to_owned(),
            fields,
            weight,
        });
        self.known.insert(name.to_owned(), definition.clone());
        Ok(definition)
    }

    fn kind(
        &mut self,
        message: &str,
        text: &str,
        line: &str,
        depth: usize,
    ) -> Result<Kind, DefinitionError> {
        let no_field = || DefinitionError::Line {
            message: message.to_owned(),
            line: shortened(line),
        };
        let Some((item, count)) = text.strip_suffix(']').and_then(|text| text.split_once('['))
        else {
            return self.plain_kind(message, text, depth);
        };
        let item = Box::new(self.plain_kind(message, item, depth)?);
        let (is_bound, digits) = match count.strip_prefix("<=") {
            Some(digits) => (true, digits),
            None => (false, count),
        };
        match digits.parse::<usize>() {
            Ok(1..) if is_bound => Ok(Kind::Sequence(item)),
            Ok(count @ 1..) => Ok(Kind::Array(item, count)),
            Err(_) if count.is_empty() => Ok(Kind::Sequence(item)),
            _ => Err(no_field()),
        }
    }

    fn plain_kind(
        &mut self,
        message: &str,
        text: &str,
        depth: usize,
    ) -> Result<Kind, DefinitionError> {
        // A string may have a length limit, which does not matter here.
        let bare = text.split("<=").next().unwrap_or(text);
        Ok(match bare {
            "bool" => Kind::Bool,
            "int8" => Kind::Number(Number::I8),
            "uint8" | "byte" | "char" => Kind::Number(Number::U8),
            "int16" => Kind::Number(Number::I16),
            "uint16" => Kind::Number(Number::U16),
            "int32" => Kind::Number(Number::I32),
            "uint32" => Kind::Number(Number::U32),
            "int64" => Kind::Number(Number::I64),
            "uint64" => Kind::Number(Number::U64),
            "float32" => Kind::Number(Number::F32),
            "float64" => Kind::Number(Number::F64),
            "string" => Kind::Text,
            "wstring" => {
                return Err(DefinitionError::WideText {
                    message: message.to_owned(),
                });
            }
            name => {
                let package = message.split('/').next().unwrap_or_default();
                let name = if name.contains('/') {
                    plain_name(name)
                } else {
                    format!("{package}/{name}")
                };
                if !self.texts.contains_key(&name) {
                    let message = message.to_owned();
                    return Err(DefinitionError::Missing {
                        message,
                        name: shortened(&name),
                    });
                }
                Kind::Message(self.resolve(&name, depth - 1)?)
            }
        })
    }
}

fn weight_of(kind: &Kind) -> usize {
    match kind {
        Kind::Message(definition) => definition.weight,
        Kind::Array(item, _) | Kind::Sequence(item) => 1 + weight_of(item),
        Kind::Bool | Kind::Number(_) | Kind::Text => 0,
    }
}

fn shortened(line: &str) -> String {
    const MOST: usize = 80;
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}..", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ODOMETRY: &str = "\
# An estimate
std_msgs/Header header
string child_frame_id
geometry_msgs/PoseWithCovariance pose
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp   # when
string frame_id
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
================================================================================
MSG: geometry_msgs/PoseWithCovariance
Pose pose
float64[36] covariance
================================================================================
MSG: geometry_msgs/Pose
Point position
================================================================================
MSG: geometry_msgs/Point
float64 x 0
float64 y -1.5
";

    #[test]
    fn nested_messages_are_found_in_their_own_package_too() {
        let definition = Definition::parse("nav_msgs/msg/Odometry", ODOMETRY.as_bytes()).unwrap();
        let kinds = [
            ("header", "std_msgs/Header"),
            ("child_frame_id", "string"),
            ("pose", "geometry_msgs/PoseWithCovariance"),
        ];
        assert!(definition.has_fields(&kinds), "{definition:?}");
        let Kind::Message(pose) = &definition.fields[2].kind else {
            panic!("{definition:?}")
        };
        assert!(pose.has_fields(&[
            ("pose", "geometry_msgs/Pose"),
            ("covariance", "float64[36]")
        ]));
    }

    #[test]
    fn constants_defaults_and_bounds_are_distinguished_from_fields() {
        let text = "uint8 OK=0\nuint8 BAD = 1\nstring NAME='a b'\nstring<=10 name \"a=b\"\nuint8[<=3] few\nint8[] any\nbool on true";
        let definition = Definition::parse("a/msg/B", text.as_bytes()).unwrap();
        let kinds = [
            ("name", "string"),
            ("few", "uint8[]"),
            ("any", "int8[]"),
            ("on", "bool"),
        ];
        assert!(definition.has_fields(&kinds), "{definition:?}");
    }

    #[test]
    fn errors_name_the_line() {
        for (text, expected) in [
            ("int32", "`int32` in the definition of a/B is not a field"),
            ("int32 a\nint32 a", "`int32 a`"),
            ("int32[0] a", "`int32[0] a`"),
            ("int32[x] a", "`int32[x] a`"),
            ("int32[99999999999999999999] a", "is not a field"),
            ("wstring a", "wstring"),
            (
                "other/Thing a",
                "`other/Thing`, whose definition is missing",
            ),
            ("B again", "contains itself"),
        ] {
            let error = Definition::parse("a/msg/B", text.as_bytes())
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert_eq!(
            Definition::parse("a/B", b"\xff"),
            Err(DefinitionError::NotText)
        );
    }

    #[test]
    fn a_definition_that_grows_exponentially_is_refused() {
        let mut text = String::from("M0 a\nM0 b\n");
        for level in 0..20 {
            text += &format!("===\nMSG: a/M{level}\n");
            text += &(0..10)
                .map(|field| format!("M{} f{field}\n", level + 1))
                .collect::<String>();
        }
        text += "===\nMSG: a/M20\nint8 x\n";
        assert_eq!(
            Definition::parse("a/B", text.as_bytes()),
            Err(DefinitionError::TooLarge)
        );
    }
}
