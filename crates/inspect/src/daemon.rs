//! The daemon of this machine.

use nervure_node::running::{self, ConnectionError, DaemonConnection};

use crate::Error;

/// Whether this machine belongs to a fleet.
///
/// # Errors
/// If the state folder of this machine cannot be used.
pub fn belongs_to_fleet() -> Result<bool, Error> {
    socket_name().map(|name| name.is_some())
}

/// The process of the daemon, also if it does not answer; `None` if none runs.
///
/// # Errors
/// As [`belongs_to_fleet`], and if the system does not name the process.
pub fn process() -> Result<Option<u32>, Error> {
    let Some(name) = socket_name()? else {
        return Ok(None);
    };
    match running::daemon_process(&name) {
        Ok(process) => Ok(Some(process)),
        Err(ConnectionError::NoDaemon) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Connects to the daemon; `None` if this machine belongs to no fleet.
///
/// # Errors
/// As [`belongs_to_fleet`]; [`Error::Connection`] if the daemon does not run or gives no answer.
pub fn connect_if_paired(program: &str) -> Result<Option<DaemonConnection>, Error> {
    let Some(name) = socket_name()? else {
        return Ok(None);
    };
    Ok(Some(DaemonConnection::open(&name, program)?))
}

/// Connects to the daemon.
///
/// # Errors
/// As [`connect_if_paired`], and if this machine belongs to no fleet.
pub fn connect(program: &str) -> Result<DaemonConnection, Error> {
    connect_if_paired(program)?.ok_or(Error::Connection(ConnectionError::NoDaemon))
}

/// The name of the daemon's socket; `None` if this machine belongs to no fleet.
#[cfg(feature = "fleet")]
fn socket_name() -> Result<Option<String>, Error> {
    use nervure_daemon::{
        PAIRING,
        folder::{Folder, Pairing},
    };
    use nervure_identity::KeyPair;

    // Most hosts belong to no fleet, and nothing is made on their disks.
    let Some(folder) = Folder::existing().map_err(Error::Folder)? else {
        return Ok(None);
    };
    let pairing: Option<Pairing> = folder.read(PAIRING).map_err(Error::Folder)?;
    if pairing.is_none() {
        return Ok(None);
    }
    let key = KeyPair::load(&folder.key()).map_err(Error::Key)?;
    Ok(Some(nervure_daemon::socket_name(key.public())))
}

#[cfg(not(feature = "fleet"))]
fn socket_name() -> Result<Option<String>, Error> {
    Ok(None)
}
