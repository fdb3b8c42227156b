//! The identity of an end: an Ed25519 key pair.
//!
//! Peers know each other's public keys beforehand, as with SSH, so there are no certificates: the
//! keys themselves go through the TLS handshake (raw public keys, RFC 7250). That leaves out X.509
//! and its parsers, and makes the handshake small enough for one packet in each direction.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ring::signature::{Ed25519KeyPair, KeyPair as _};
use zeroize::Zeroizing;

const PREFIX: &str = "ed25519:";
const FILE_PREFIX: &str = "nervure-private-key ed25519:";
/// A key file is shorter.
const FILE_BYTES_MAX: usize = 1024;

/// The identity of a peer.
///
/// The text form names the whole key, so it is its own fingerprint:
///
/// ```
/// use nervure_identity::{KeyPair, PublicKey};
///
/// let key = KeyPair::generate()?.public();
/// let text = key.to_string();
/// assert!(text.starts_with("ed25519:") && text.len() == 72);
/// assert_eq!(text.parse::<PublicKey>().unwrap(), key);
/// # Ok::<(), nervure_identity::IdentityError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; 32]);

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a public key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no public key: expected \"ed25519:\" and 64 hexadecimal digits")]
pub struct ParsePublicKeyError {
    text: String,
}

impl FromStr for PublicKey {
    type Err = ParsePublicKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let key = text.trim().strip_prefix(PREFIX).and_then(parse_hex);
        key.map(Self).ok_or_else(|| ParsePublicKeyError {
            text: text.chars().take(100).collect(),
        })
    }
}

/// The identity of this end. Its debug output leaves the private key out, and its memory is
/// overwritten when it is dropped. (The expanded keys within `ring`, which signs, are not.)
pub struct KeyPair {
    seed: Zeroizing<[u8; 32]>,
    public: PublicKey,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair")
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

/// Why a key pair could not be made, read or written.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The system gives no random numbers.
    #[error("the system gives no random numbers for a key")]
    NoRandomness,
    /// The file cannot be read or written.
    #[error("key file {path}: {error}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        error: io::Error,
    },
    /// Users other than the owner can read the file.
    #[error(
        "key file {path} can be read by others: its mode is {mode:o}, expected 600\nhint: chmod 600 {path}"
    )]
    Exposed {
        /// Path of the file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file belongs to another user, and its owner could replace the key.
    #[error(
        "key file {path} belongs to user {owner}, expected user {expected} or root\nhint: chown {expected} {path}"
    )]
    Owner {
        /// Path of the file.
        path: PathBuf,
        /// The user that owns it.
        owner: u32,
        /// The user of this process.
        expected: u32,
    },
    /// The file does not hold a key.
    #[error(
        "key file {path} holds no key: expected \"{FILE_PREFIX}\" and 64 hexadecimal digits\nhint: remove the file to make a new key, and give peers the new public key"
    )]
    Malformed {
        /// Path of the file.
        path: PathBuf,
    },
}

impl KeyPair {
    /// Generates a key pair.
    ///
    /// # Errors
    ///
    /// When the system gives no random numbers.
    pub fn generate() -> Result<Self, IdentityError> {
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *seed).map_err(|_| IdentityError::NoRandomness)?;
        Ok(Self::of(seed))
    }

    /// The key pair of a seed, for tests. The seed is as secret as the key.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self::of(Zeroizing::new(seed))
    }

    fn of(seed: Zeroizing<[u8; 32]>) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&*seed).expect("every 32 bytes are a seed");
        let public = pair
            .public_key()
            .as_ref()
            .try_into()
            .expect("a public key has 32 bytes");
        Self {
            seed,
            public: PublicKey(public),
        }
    }

    /// Reads the key pair from a file, or makes one and writes it there, readable by the owner
    /// alone.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or written, can be read by others, or holds something else.
    pub fn load_or_generate(path: &Path) -> Result<Self, IdentityError> {
        match Self::load(path) {
            Err(IdentityError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        let pair = Self::generate()?;
        match pair.store(path) {
            // Another process was faster; its key counts.
            Err(IdentityError::Io { error, .. })
                if error.kind() == io::ErrorKind::AlreadyExists =>
            {
                Self::load(path)
            }
            other => other.map(|()| pair),
        }
    }

    /// Reads the key pair from a file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, belongs to another user, can be read by others, or holds
    /// something else.
    pub fn load(path: &Path) -> Result<Self, IdentityError> {
        let failed = |error| IdentityError::Io {
            path: path.to_owned(),
            error,
        };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        check_owner(path, metadata.uid(), rustix::process::geteuid().as_raw())?;
        let mode = metadata.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(IdentityError::Exposed {
                path: path.to_owned(),
                mode,
            });
        }
        // With this capacity nothing is copied to a larger buffer.
        let mut text = Zeroizing::new(Vec::with_capacity(2 * FILE_BYTES_MAX));
        file.take(FILE_BYTES_MAX as u64)
            .read_to_end(&mut text)
            .map_err(failed)?;
        let seed = std::str::from_utf8(&text)
            .ok()
            .and_then(|text| text.trim().strip_prefix(FILE_PREFIX));
        let seed = seed
            .and_then(|digits| parse_hex(digits).map(Zeroizing::new))
            .ok_or_else(|| IdentityError::Malformed {
                path: path.to_owned(),
            })?;
        Ok(Self::of(seed))
    }

    /// Writes the key pair to a new file, readable by the owner alone. The file appears complete or
    /// not at all.
    ///
    /// # Errors
    ///
    /// When the file exists or cannot be written.
    pub fn store(&self, path: &Path) -> Result<(), IdentityError> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        let temporary = PathBuf::from(name);
        let written = self
            .write_new(&temporary)
            .and_then(|()| std::fs::hard_link(&temporary, path));
        // Removal fails only if writing failed, and that error is the one to report.
        let _ = std::fs::remove_file(&temporary);
        written.map_err(|error| IdentityError::Io {
            path: path.to_owned(),
            error,
        })
    }

    fn write_new(&self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        let mut line = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX));
        line.extend_from_slice(FILE_PREFIX.as_bytes());
        for byte in self.seed.iter() {
            let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
            line.extend([digit(byte >> 4), digit(byte & 15)]);
        }
        line.push(b'\n');
        file.write_all(&line)?;
        file.sync_all()
    }

    /// The public key, which peers need to accept this end.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// The private key: for keys that are derived from it.
    pub fn seed(&self) -> &[u8; 32] {
        &self.seed
    }
}

/// The user that owns a key file must be this process's, or root.
fn check_owner(path: &Path, owner: u32, expected: u32) -> Result<(), IdentityError> {
    if owner == expected || owner == 0 {
        return Ok(());
    }
    Err(IdentityError::Owner {
        path: path.to_owned(),
        owner,
        expected,
    })
}

fn parse_hex(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_file_of_another_user_is_refused() {
        let path = Path::new("/keys/robot");
        for (owner, user) in [(1000, 1000), (0, 1000), (0, 0)] {
            check_owner(path, owner, user).expect("the user's own, or root's");
        }
        for (owner, user) in [(1001, 1000), (1000, 0)] {
            let error = check_owner(path, owner, user).unwrap_err().to_string();
            let expected = format!("belongs to user {owner}, expected user {user} or root");
            assert!(
                error.contains("/keys/robot") && error.contains(&expected),
                "{error}"
            );
        }
    }

    /// Only root can give a file away.
    #[test]
    fn the_owner_of_a_key_file_is_checked_when_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        KeyPair::load_or_generate(&path).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            let error = KeyPair::load(&path).unwrap_err();
            assert!(
                matches!(error, IdentityError::Owner { owner: 65_534, .. }),
                "{error}"
            );
        }
    }

    #[test]
    fn a_stored_key_is_the_same_and_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let made = KeyPair::load_or_generate(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(
            KeyPair::load_or_generate(&path).unwrap().public(),
            made.public()
        );
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing else is left"
        );

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = KeyPair::load_or_generate(&path).unwrap_err().to_string();
        assert!(
            error.contains("mode is 640") && error.contains("hint: chmod 600"),
            "{error}"
        );
    }

    #[test]
    fn a_file_that_holds_no_key_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        for content in [
            "",
            "hello",
            &format!("{FILE_PREFIX}{}", "0g".repeat(32)),
            &"ä".repeat(600),
        ] {
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            let error = KeyPair::load_or_generate(&path).unwrap_err();
            assert!(matches!(error, IdentityError::Malformed { .. }), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
    }

    #[test]
    fn an_invalid_public_key_is_reported() {
        for text in [
            "",
            "ed25519:",
            "ed25519:+f",
            &format!("ed25519:{}", "g".repeat(64)),
            &"0".repeat(64),
        ] {
            assert!(
                text.parse::<PublicKey>()
                    .unwrap_err()
                    .to_string()
                    .contains("expected \"ed25519:\"")
            );
        }
    }
}
