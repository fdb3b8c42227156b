//! Names of sample types: `std/Image@1`.

use std::fmt;
use std::str::FromStr;

/// The name of a sample type: namespace, name and version, written `std/Image@1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TypeName {
    namespace: Box<str>,
    name: Box<str>,
    version: u32,
}

/// Why a text is not a type name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} does not name a type: {reason}; expected namespace/Name@version, as in std/Image@1"
)]
pub struct TypeNameError {
    text: String,
    reason: &'static str,
}

impl TypeName {
    /// The namespace: `std`, or that of a project.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name without namespace and version.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version, from 1. Both ends of an edge must have the same.
    pub fn version(&self) -> u32 {
        self.version
    }
}

impl FromStr for TypeName {
    type Err = TypeNameError;

    fn from_str(text: &str) -> Result<Self, TypeNameError> {
        let refuse = |reason| TypeNameError {
            text: text.chars().take(80).collect(),
            reason,
        };
        let (namespace, rest) = text
            .split_once('/')
            .ok_or_else(|| refuse("there is no namespace"))?;
        let (name, version) = rest
            .split_once('@')
            .ok_or_else(|| refuse("there is no version"))?;
        if !is_word(namespace, |first| first.is_ascii_lowercase()) {
            return Err(refuse(
                "a namespace is letters, digits and _, the first a small letter",
            ));
        }
        if !is_word(name, |first| first.is_ascii_uppercase()) {
            return Err(refuse(
                "a name is letters, digits and _, the first a capital letter",
            ));
        }
        let canonical = !version.starts_with(['0', '+']);
        let version = version.parse().ok().filter(|_| canonical);
        let version = version.ok_or_else(|| refuse("a version is a whole number from 1"))?;
        Ok(Self {
            namespace: namespace.into(),
            name: name.into(),
            version,
        })
    }
}

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.namespace, self.name, self.version)
    }
}

fn is_word(text: &str, first: impl Fn(char) -> bool) -> bool {
    text.len() <= 64
        && text.starts_with(first)
        && text
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let image: TypeName = "std/Image@1".parse().unwrap();
        assert_eq!(
            (image.namespace(), image.name(), image.version()),
            ("std", "Image", 1)
        );
        assert_eq!(image.to_string(), "std/Image@1");
        assert_eq!(
            "my_robot2/Goal@12".parse::<TypeName>().unwrap().to_string(),
            "my_robot2/Goal@12"
        );
    }

    #[test]
    fn invalid_names_are_refused_with_the_reason() {
        for (text, reason) in [
            ("Image@1", "there is no namespace"),
            ("std/Image", "there is no version"),
            ("Std/Image@1", "a namespace is"),
            ("std/image@1", "a name is"),
            ("std/a/B@1", "a name is"),
            ("std/Image@0", "a version is"),
            ("std/Image@+1", "a version is"),
            ("std/Image@1@2", "a version is"),
            ("std/Image@99999999999", "a version is"),
            ("", "there is no namespace"),
        ] {
            let error = text.parse::<TypeName>().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
