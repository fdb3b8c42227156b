//! Identifiers of nodes, operators and data.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

/// A text that is no identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidId(pub String);

macro_rules! identifier {
    ($name:ident, $what:literal, $separator:literal) => {
        #[doc = concat!("The identifier of ", $what, ".")]
        ///
        /// `parse` checks the characters. `From` takes any text, as in dora 0.5: the name of an
        /// undeclared output is reported when it is used.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                check(text, $separator).map(|()| Self(text.to_owned()))
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl Deref for $name {
            type Target = String;

            fn deref(&self) -> &String {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<String> for $name {
            fn as_ref(&self) -> &String {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<String> for $name {
            fn borrow(&self) -> &String {
                &self.0
            }
        }
    };
}

identifier!(NodeId, "a node", false);
identifier!(OperatorId, "an operator", false);
identifier!(DataId, "an input or output", true);

/// A new identifier of a request. Later ones are greater.
pub(crate) fn new_request_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Letters, digits, `_`, `-`, `.`, and for data `/` between non-empty parts.
fn check(text: &str, may_have_parts: bool) -> Result<(), InvalidId> {
    let is_allowed =
        |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c) || (may_have_parts && c == '/');
    if let Some(other) = text.chars().find(|&c| !is_allowed(c)) {
        return Err(InvalidId(format!(
            "the identifier {text:?} contains {other:?}: only letters, digits and `_-.` are allowed"
        )));
    }
    if text.split('/').any(str::is_empty) {
        return Err(InvalidId(format!(
            "the identifier {text:?} has an empty part"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_accepts_what_dora_accepts() {
        assert!("camera_1.left-eye".parse::<NodeId>().is_ok());
        assert!("operator/status".parse::<DataId>().is_ok());
        for text in ["", "a b", "a/b", "ä"] {
            assert!(text.parse::<NodeId>().is_err(), "{text}");
        }
        for text in ["/a", "a/", "a//b", "a;b"] {
            assert!(text.parse::<DataId>().is_err(), "{text}");
        }
        let error = "a b".parse::<DataId>().unwrap_err();
        assert!(error.to_string().contains("contains ' '"), "{error}");
    }

    #[test]
    fn an_identifier_is_used_as_text() {
        let id = DataId::from("image");
        assert_eq!((id.as_str(), id.len()), ("image", 5));
        assert_eq!(*id, "image");
        let known = std::collections::HashMap::from([(id, 1)]);
        assert_eq!(known.get("image"), Some(&1));
    }
}
