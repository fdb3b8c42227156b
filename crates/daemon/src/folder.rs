//! The state of a machine on disk.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nervure_coordinator::{Address, Endpoint};
use nervure_identity::PublicKey;
use nervure_protocol::domain::Domain;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The environment variable with the folder.
pub const STATE_VARIABLE: &str = "NERVURE_STATE";

/// File of the pairing.
pub const PAIRING: &str = "machine.json";

/// File of the last desired state.
pub(crate) const DESIRED: &str = "desired.json";

/// The folder: keys, the machine's pairing, the last desired state, the files of its runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

/// The pairing of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pairing {
    /// Name of this machine.
    pub name: String,
    /// Address of the coordinator; on its own machine the address that it listens on.
    pub address: Address,
    /// Its other addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Address>,
    /// Key of the coordinator.
    pub coordinator: String,
    /// Port of the link in the last process; 0 if unknown.
    #[serde(default)]
    pub link_port: u16,
    /// Labels of this machine, by which roles find it.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

impl Pairing {
    /// The key of the coordinator.
    ///
    /// # Errors
    /// If the file was altered.
    pub fn coordinator_key(&self) -> io::Result<PublicKey> {
        self.coordinator.parse().map_err(io::Error::other)
    }

    /// Endpoints of the coordinator: its addresses other than names.
    ///
    /// # Errors
    /// If the file was altered.
    pub fn endpoints(&self) -> io::Result<Vec<Endpoint>> {
        let key = self.coordinator_key()?;
        let addresses = std::iter::once(&self.address).chain(&self.others);
        let endpoints: Vec<Endpoint> = addresses
            .filter_map(Address::ip)
            .map(|address| Endpoint {
                address: reachable(address),
                key,
            })
            .collect();
        match endpoints.is_empty() {
            true => Err(io::Error::other(
                "no IP address of the coordinator is known",
            )),
            false => Ok(endpoints),
        }
    }
}

/// The address at which this machine reaches a coordinator that listens on all addresses of this machine.
pub fn reachable(listens: SocketAddr) -> SocketAddr {
    let loopback: IpAddr = match listens {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    match listens.ip().is_unspecified() {
        true => SocketAddr::new(loopback, listens.port()),
        false => listens,
    }
}

impl Folder {
    /// The folder of this user: `$NERVURE_STATE`, or `nervure` in `$XDG_STATE_HOME`, which is
    /// `~/.local/state` by default; in a domain other than the default one, a folder within it. It
    /// is made if it does not exist.
    ///
    /// # Errors
    /// If there is no home, the domain's name is invalid, or the folder cannot be made.
    pub fn of_user() -> io::Result<Self> {
        Self::at(&Self::path_of_user()?)
    }

    /// As [`Folder::of_user`], and `None` if it does not exist, or is in the home of another user.
    ///
    /// # Errors
    /// If it cannot be found.
    pub fn existing() -> io::Result<Option<Self>> {
        let domain = Domain::of_environment().map_err(io::Error::other)?;
        match Self::path_of_default_domain().map(|path| domain.folder_in(path)) {
            Ok(path) => match path.canonicalize() {
                Ok(path) => Ok(Some(Self(path))),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
                    ) =>
                {
                    Ok(None)
                }
                Err(error) => Err(error),
            },
            // Without a home there is no fleet either.
            Err(_) => Ok(None),
        }
    }

    fn path_of_user() -> io::Result<PathBuf> {
        let domain = Domain::of_environment().map_err(io::Error::other)?;
        Ok(domain.folder_in(Self::path_of_default_domain()?))
    }

    fn path_of_default_domain() -> io::Result<PathBuf> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        match (
            variable(STATE_VARIABLE),
            variable("XDG_STATE_HOME"),
            variable("HOME"),
        ) {
            (Some(path), _, _) => Ok(PathBuf::from(path)),
            (_, Some(state), _) => Ok(Path::new(&state).join("nervure")),
            (_, _, Some(home)) => Ok(Path::new(&home).join(".local/state/nervure")),
            _ => Err(io::Error::other("neither NERVURE_STATE nor HOME is set")),
        }
    }

    /// The folder with this path. It is made if it does not exist.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn at(path: &Path) -> io::Result<Self> {
        make(path)?;
        Ok(Self(path.canonicalize()?))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file with the machine's private key.
    pub fn key(&self) -> PathBuf {
        self.0.join("key")
    }

    /// Makes the folder of the coordinator, and returns its path.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn coordinator(&self) -> io::Result<PathBuf> {
        let path = self.0.join("coordinator");
        make(&path.join("bundles"))?;
        Ok(path)
    }

    /// The files of a run.
    pub fn run(&self, run: &str) -> PathBuf {
        self.runs().join(run)
    }

    /// The folder of all runs.
    pub fn runs(&self) -> PathBuf {
        self.0.join("runs")
    }

    /// Takes the lock that only one daemon can have.
    ///
    /// # Errors
    /// If another daemon has it.
    pub fn lock(&self) -> io::Result<File> {
        let path = self.0.join("daemon.lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }

    /// Reads a value; `None` if there is no such file.
    ///
    /// # Errors
    /// If the file cannot be read, or holds something else: then [`io::ErrorKind::InvalidData`]. Each names
    /// the file.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        let path = self.0.join(name);
        let named = |kind, error: &dyn std::fmt::Display| {
            io::Error::new(kind, format!("{}: {error}", path.display()))
        };
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
                named(
                    io::ErrorKind::InvalidData,
                    &format_args!("it is damaged: {error}"),
                )
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                Err(named(io::ErrorKind::InvalidData, &error))
            }
            Err(error) => Err(named(error.kind(), &error)),
        }
    }

    /// As [`Folder::read`], for a file that can be made again. A damaged one is set aside with a warning,
    /// and counts as none.
    ///
    /// # Errors
    /// If it cannot be read, or set aside.
    pub fn read_cache<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        let error = match self.read(name) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => error,
            read => return read,
        };
        let (path, aside) = (self.0.join(name), self.0.join(format!("{name}.damaged")));
        // Left from an earlier time; may be a folder.
        let _ = fs::remove_file(&aside).or_else(|_| fs::remove_dir_all(&aside));
        fs::rename(&path, &aside)?;
        tracing::warn!(
            "{error}; it is set aside as {}, and made again",
            aside.display()
        );
        Ok(None)
    }

    /// Writes a value durably: after a power failure the file has the old or the new one. A value that the
    /// file has already is not written, and needs no room on a full disk.
    ///
    /// # Errors
    /// If it cannot be written; the old value is left.
    pub fn write(&self, name: &str, value: &impl Serialize) -> io::Result<()> {
        let (path, temporary) = (self.0.join(name), self.0.join(format!("{name}.new")));
        let json = serde_json::to_vec_pretty(value)?;
        if fs::read(&path).is_ok_and(|known| known == json) {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let mut file = options.open(&temporary)?;
        file.write_all(&json)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        // Makes the rename durable.
        File::open(&self.0)?.sync_all()
    }
}

/// Makes a folder that only its owner can enter.
pub(crate) fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Opens a file that only its owner can read, which is made if it does not exist.
pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .create(true)
        .truncate(false)
        .append(true)
        .mode(0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_cache_is_set_aside_and_any_other_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache.json");
        let folder = Folder::at(folder.path()).unwrap();
        folder.write("cache.json", &vec![1, 2, 3]).unwrap();
        let whole = fs::read(&path).unwrap();
        type Damage<'d> = &'d dyn Fn();
        let cut: Damage<'_> = &|| fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let empty: Damage<'_> = &|| fs::write(&path, "").unwrap();
        let garbage: Damage<'_> = &|| fs::write(&path, [0xff; 300]).unwrap();
        let dir: Damage<'_> = &|| {
            fs::create_dir(&path).unwrap();
            fs::write(path.join("file"), "").unwrap();
        };
        for damage in [cut, empty, dir, garbage, dir] {
            damage();
            let error = folder.read::<Vec<u8>>("cache.json").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
            let text = error.to_string();
            assert!(text.starts_with(&format!("{}: ", path.display())), "{text}");
            assert_eq!(folder.read_cache::<Vec<u8>>("cache.json").unwrap(), None);
            assert!(path.with_extension("json.damaged").exists() && !path.exists());
        }
        folder.write("cache.json", &vec![4]).unwrap();
        assert_eq!(folder.read_cache("cache.json").unwrap(), Some(vec![4]));
        assert_eq!(folder.read_cache::<Vec<u8>>("none.json").unwrap(), None);
    }
}
