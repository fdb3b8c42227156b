//! Domains: teams that share a machine, each with its own dataflows. The tools of a domain see no
//! dataflow of another.
//!
//! A domain separates names. It is no protection: every process of its user can enter it.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The environment variable with the name of the domain. Processes inherit it from the command that
/// started them.
pub const DOMAIN_VARIABLE: &str = "NERVURE_DOMAIN";

/// The most bytes of a name: with it, the address of a keeper still fits into a socket's address.
pub const MAX_DOMAIN_BYTES: usize = 15;

/// A domain. The default one has no name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Domain(Option<String>);

/// A text that is no name of a domain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} cannot be the name of a domain: it needs 1 to {MAX_DOMAIN_BYTES} letters a-z, digits, `_` and `-`, not \
     `-` first"
)]
pub struct DomainError {
    text: String,
}

impl Domain {
    /// The domain of this process, as the environment says.
    ///
    /// # Errors
    /// If the variable holds no valid name.
    pub fn of_environment() -> Result<Self, DomainError> {
        Self::from_variable(std::env::var_os(DOMAIN_VARIABLE))
    }

    fn from_variable(value: Option<OsString>) -> Result<Self, DomainError> {
        value.unwrap_or_default().to_string_lossy().parse()
    }

    /// The name; `None` for the default domain.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// The folder of this domain, from that of the default domain. No dataflow has such a name.
    #[must_use]
    pub fn folder_in(&self, default: PathBuf) -> PathBuf {
        match &self.0 {
            Some(name) => default.join(format!("@{name}")),
            None => default,
        }
    }

    /// The end of a sentence: empty for the default domain, or ``" in domain `red`"``.
    #[must_use]
    pub fn phrase(&self) -> String {
        self.0
            .as_ref()
            .map_or_else(String::new, |name| format!(" in domain `{name}`"))
    }

    /// ` --domain red`, for command lines in messages; empty for the default domain.
    #[must_use]
    pub fn option(&self) -> String {
        self.0
            .as_ref()
            .map_or_else(String::new, |name| format!(" --domain {name}"))
    }
}

impl FromStr for Domain {
    type Err = DomainError;

    /// Parses a name. An empty text is the default domain.
    fn from_str(text: &str) -> Result<Self, DomainError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if text.is_empty() {
            return Ok(Self(None));
        }
        if text.len() > MAX_DOMAIN_BYTES || text.starts_with('-') || !text.bytes().all(is_allowed) {
            return Err(DomainError {
                text: text.to_owned(),
            });
        }
        Ok(Self(Some(text.to_owned())))
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_checked_and_an_empty_one_is_the_default() {
        for name in ["red", "Team-7", "_", "123456789012345"] {
            let domain: Domain = name.parse().unwrap();
            assert_eq!(
                (domain.name(), domain.to_string()),
                (Some(name), name.to_owned())
            );
        }
        assert_eq!(Domain::from_variable(None), Ok(Domain::default()));
        assert_eq!("".parse(), Ok(Domain::default()));
        for name in [
            "-red",
            "a b",
            "a/b",
            "a@b",
            "a.b",
            "rot\n",
            "größe",
            "1234567890123456",
        ] {
            assert!(name.parse::<Domain>().is_err(), "{name}");
        }
        let error = "a/b".parse::<Domain>().unwrap_err();
        assert!(
            error.to_string().starts_with("\"a/b\" cannot be"),
            "{error}"
        );
    }

    #[test]
    fn the_default_domain_has_the_folders_of_before() {
        let folder = PathBuf::from("/state/nervure");
        assert_eq!(Domain::default().folder_in(folder.clone()), folder);
        let red: Domain = "red".parse().unwrap();
        assert_eq!(red.folder_in(folder), PathBuf::from("/state/nervure/@red"));
        assert_eq!(red.phrase(), " in domain `red`");
    }
}
