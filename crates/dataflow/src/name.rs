//! Names of dataflows, nodes, inputs and outputs, and names of types.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::quote::{is_invisible, quoted};

/// Longest name, in bytes. Names are part of topics, log lines and file names.
pub const MAX_NAME_BYTES: usize = 64;
/// Longest name of an input or output, in bytes, with its slashes.
pub const MAX_PORT_NAME_BYTES: usize = 2 * MAX_NAME_BYTES + 1;
/// Longest name of a type, in bytes.
const MAX_TYPE_BYTES: usize = 128;

/// The grammar of names, for messages.
pub(crate) const NAME_GRAMMAR: &str = "letters a-z, digits, `_`, `-` and `.`, not `-` or `.` first";

/// The grammar of names of inputs and outputs, for messages.
pub(crate) const PORT_NAME_GRAMMAR: &str =
    "letters a-z, digits, `_`, `-` and `.`, not `-` or `.` first; `/` between parts";

/// The rule that a name breaks. The message ends a sentence that begins with the name: "contains a
/// space".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It has no character.
    #[error("is empty")]
    Empty,
    /// It is too long.
    #[error("is {bytes} bytes long; the limit is {limit}")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// It has a character that no name may have.
    #[error("contains {}", describe_character(*.0))]
    Character(char),
    /// It begins with a character that no name may begin with.
    #[error("begins with `{0}`")]
    Begin(char),
    /// A part of the name of an input or output is empty.
    #[error("has an empty part: `/` stands between two names")]
    EmptyPart,
}

/// Checks that `text` can be the name of a dataflow or a node.
///
/// A name is 1 to 64 ASCII letters, digits, `_`, `-` and `.`, and begins with neither `-` (options)
/// nor `.` (`..`).
///
/// # Errors
/// The first rule that it breaks.
pub fn check_name(text: &str) -> Result<(), NameError> {
    let first = text.chars().next().ok_or(NameError::Empty)?;
    check_length(text, MAX_NAME_BYTES)?;
    let wrong = text
        .chars()
        .find(|&character| !is_name_character(character));
    match wrong {
        Some(character) => Err(NameError::Character(character)),
        None if matches!(first, '-' | '.') => Err(NameError::Begin(first)),
        None => Ok(()),
    }
}

fn check_length(text: &str, limit: usize) -> Result<(), NameError> {
    let bytes = text.len();
    match bytes > limit {
        true => Err(NameError::TooLong { bytes, limit }),
        false => Ok(()),
    }
}

/// Checks that `text` can be the name of an input or an output: names as of [`check_name`], with a
/// slash between them.
///
/// # Errors
/// As [`check_name`].
pub(crate) fn check_port_name(text: &str) -> Result<(), NameError> {
    if !text.contains('/') {
        return check_name(text);
    }
    check_length(text, MAX_PORT_NAME_BYTES)?;
    text.split('/').try_for_each(|part| match part {
        "" => Err(NameError::EmptyPart),
        _ => check_name(part),
    })
}

/// A valid name of an input or output close to `text`, if it can be guessed.
pub(crate) fn repair_port_name(text: &str) -> Option<String> {
    let parts = text.split('/').filter(|part| !part.is_empty());
    let repaired: Option<Vec<String>> = parts.map(repair_name).collect();
    repaired
        .map(|parts| parts.join("/"))
        .filter(|name| check_port_name(name).is_ok())
}

/// A valid name close to `text`, if it can be guessed.
pub(crate) fn repair_name(text: &str) -> Option<String> {
    let repaired: String = text
        .trim()
        .chars()
        .map(|character| {
            if is_name_character(character) {
                character
            } else {
                '_'
            }
        })
        .take(MAX_NAME_BYTES)
        .collect();
    let repaired = repaired
        .trim_start_matches(['-', '.', '_'])
        .trim_end_matches('_');
    // No guess for letters outside ASCII, invisible characters and names that are too long.
    let is_guess = text.len() <= MAX_NAME_BYTES
        && text.chars().all(|character| matches!(character, ' '..='~'));
    (is_guess && check_name(repaired).is_ok()).then(|| repaired.to_owned())
}

fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.')
}

fn describe_character(character: char) -> String {
    match character {
        ' ' => "a space".to_owned(),
        '\t' => "a tab".to_owned(),
        '\n' | '\r' => "a line break".to_owned(),
        _ if is_invisible(character) => {
            format!("the invisible character U+{:04X}", u32::from(character))
        }
        _ if character.is_alphabetic() => {
            format!(
                "`{character}` (U+{:04X}), which is not an ASCII letter",
                u32::from(character)
            )
        }
        _ => format!("`{character}`"),
    }
}

/// The type of an output or an input: a name, with a version if the text ends in `@` and a number.
///
/// ```
/// let image: nervure_dataflow::TypeName = "std/Image@1".parse().unwrap();
/// assert_eq!((image.name(), image.version()), ("std/Image", Some(1)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TypeName {
    name: String,
    version: Option<u32>,
}

impl TypeName {
    /// The name without the version.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version, if the text has one.
    #[must_use]
    pub fn version(&self) -> Option<u32> {
        self.version
    }
}

impl std::str::FromStr for TypeName {
    type Err = String;

    fn from_str(text: &str) -> Result<TypeName, String> {
        if text.is_empty() {
            return Err("a type is empty".to_owned());
        }
        if text.len() > MAX_TYPE_BYTES {
            return Err(format!(
                "a type is {} bytes long; the limit is {MAX_TYPE_BYTES}",
                text.len()
            ));
        }
        if let Some(character) = text.chars().find(|character| !character.is_ascii_graphic()) {
            return Err(format!(
                "the type {} contains {}",
                quoted(text),
                describe_character(character)
            ));
        }
        let (name, version) = match text.split_once('@') {
            None => (text, None),
            Some((name, version)) => {
                let version = version.parse().ok().filter(|&version: &u32| version > 0);
                let version = version.ok_or_else(|| {
                    format!(
                        "the version of the type {} is not a number from 1",
                        quoted(text)
                    )
                })?;
                (name, Some(version))
            }
        };
        if name.is_empty() {
            return Err(format!("the type {} has no name", quoted(text)));
        }
        Ok(TypeName {
            name: name.to_owned(),
            version,
        })
    }
}

impl fmt::Display for TypeName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Some(version) => write!(formatter, "{}@{version}", self.name),
            None => formatter.write_str(&self.name),
        }
    }
}

impl Serialize for TypeName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_bounded() {
        for name in [
            "camera",
            "Camera_2",
            "imu-left.raw",
            "2d",
            "_x",
            &"n".repeat(64),
        ] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        let too_long = NameError::TooLong {
            bytes: 65,
            limit: MAX_NAME_BYTES,
        };
        for (name, error) in [
            ("", NameError::Empty),
            ("..", NameError::Begin('.')),
            (".x", NameError::Begin('.')),
            ("-x", NameError::Begin('-')),
            ("a/b", NameError::Character('/')),
            ("a b", NameError::Character(' ')),
            ("a\nb", NameError::Character('\n')),
            ("саmera", NameError::Character('с')),
            ("a\u{202e}", NameError::Character('\u{202e}')),
            ("a\0", NameError::Character('\0')),
            (&"n".repeat(65), too_long),
        ] {
            assert_eq!(check_name(name), Err(error), "{name:?}");
        }
    }

    #[test]
    fn names_of_inputs_and_outputs_may_have_parts() {
        let long = format!("{}/{}", "n".repeat(64), "n".repeat(64));
        for name in ["image", "camera/image", "a/b/c", &long] {
            assert_eq!(check_port_name(name), Ok(()), "{name}");
        }
        for name in ["", "/", "/a", "a/", "a//b", "a/../b", "a/-b", "a /b", "a:b"] {
            assert!(check_port_name(name).is_err(), "{name:?}");
        }
        assert_eq!(
            repair_port_name("/left camera//image/").as_deref(),
            Some("left_camera/image")
        );
        assert_eq!(repair_port_name("../../etc"), None);
    }

    #[test]
    fn a_repaired_name_is_a_name() {
        assert_eq!(repair_name("my camera").as_deref(), Some("my_camera"));
        assert_eq!(repair_name("../../etc").as_deref(), Some("etc"));
        assert_eq!(repair_name("kamera-ö"), None);
        assert_eq!(repair_name("//"), None);
    }

    #[test]
    fn types_have_a_version_or_not() {
        let image: TypeName = "std/Image@2".parse().unwrap();
        assert_eq!(
            (image.name(), image.version(), image.to_string()),
            ("std/Image", Some(2), "std/Image@2".to_owned())
        );
        let dora: TypeName = "std/media/v1/AudioFrame[sample_type=f32]".parse().unwrap();
        assert_eq!(dora.version(), None);
        for text in [
            "",
            "@1",
            "std/Image@",
            "std/Image@0",
            "std/Image@x",
            "std/Image@-1",
            "std Image",
            "a@1@2",
        ] {
            assert!(text.parse::<TypeName>().is_err(), "{text}");
        }
    }
}
