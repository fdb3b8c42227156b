//! Dataflows that run on this host: which there are, and a connection to the keeper of one.
//!
//! For tools, as the `nervure` command. A connection can ask for the state of the dataflow, follow it, and give
//! orders: see [`nervure_protocol::cli_to_keeper`]. [`crate::Observer`] receives samples.

use nervure_protocol::address::KeeperAddress;
use nervure_protocol::cli_to_keeper::{self, Hello};
use nervure_protocol::keeper_to_cli::{self, Refused, Welcome};
use nervure_protocol::{DATAFLOW_VARIABLE, MAX_MESSAGE_BYTES, ProtocolError, VERSIONS, nearest};
use nervure_shm::{Received, Seqpacket};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::time::{Duration, Instant};

/// How long a keeper may take to answer: it never waits for anybody, so that one that does not answer is stopped.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Why there is no connection, or no answer.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The list of sockets cannot be read.
    #[error("cannot list the running dataflows: {0}")]
    List(io::Error),
    /// There is none.
    #[error("no dataflow runs")]
    NoneRuns,
    /// There is none of that name.
    #[error("no dataflow `{name}` runs; these do: {running}")]
    NotRunning {
        /// The name that was asked for.
        name: String,
        /// Those that run.
        running: String,
        /// Of these, the one that was probably meant.
        nearest: Option<String>,
    },
    /// It has to be said which.
    #[error("several dataflows run: {running}")]
    Several {
        /// Those that run.
        running: String,
    },
    /// The keeper is of another user.
    #[error("dataflow `{dataflow}` is of user {theirs}, this is user {ours}")]
    OtherUser {
        /// Its name.
        dataflow: String,
        /// Its user.
        theirs: u32,
        /// The user of this process.
        ours: u32,
    },
    /// The keeper ended, or hung up.
    #[error("the keeper of dataflow `{0}` is gone")]
    Gone(String),
    /// The keeper is stopped, or in trouble.
    #[error(
        "the keeper of dataflow `{dataflow}` (process {keeper}) has not answered within {PATIENCE:?}"
    )]
    NoAnswer {
        /// The dataflow's name.
        dataflow: String,
        /// The keeper's process.
        keeper: u32,
    },
    /// The keeper refused.
    #[error("{}", .0.reason)]
    Refused(Refused),
    /// The keeper said what cannot be understood.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The keeper said something else than was to be expected.
    #[error("the keeper gave an unexpected answer: {0}")]
    Unexpected(String),
    /// The system refused something.
    #[error("cannot talk to the keeper: {0}")]
    System(#[from] io::Error),
}

impl ConnectionError {
    /// The likely fix.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoneRuns => Some("start one with `nervure run FILE`".to_owned()),
            Self::Several { .. } => {
                let text = "say which with `-d NAME`, or with `-d PID` where names are the same; a program by \
                            `dataflow=`; both by NERVURE_DATAFLOW in the environment";
                Some(text.to_owned())
            }
            Self::NotRunning { name, .. } if named_by_environment().as_ref() == Some(name) => Some(
                format!("{DATAFLOW_VARIABLE} is `{name}` in the environment"),
            ),
            Self::NotRunning { nearest, .. } => nearest
                .as_ref()
                .map(|near| format!("did you mean `{near}`?")),
            Self::OtherUser { theirs, .. } => {
                Some(format!("run this as user {theirs}, or as root"))
            }
            Self::NoAnswer { keeper, .. } => Some(format!(
                "is it stopped? `kill -CONT {keeper}` lets it go on"
            )),
            Self::Refused(refused) => refused.hint.clone(),
            _ => None,
        }
    }
}

/// The dataflows of this user, or for root those of every user, by name. Those of other network namespaces
/// (containers) are not seen.
///
/// # Errors
/// When /proc cannot be read.
pub fn dataflows() -> Result<Vec<KeeperAddress>, ConnectionError> {
    let (ours, _) = ours_and_others()?;
    Ok(ours)
}

/// The dataflows of other users as far as their sockets' names say, which anybody may take; for root there are none.
///
/// # Errors
/// When /proc cannot be read.
pub fn dataflows_of_others() -> Result<Vec<KeeperAddress>, ConnectionError> {
    let (_, others) = ours_and_others()?;
    Ok(others)
}

fn ours_and_others() -> Result<(Vec<KeeperAddress>, Vec<KeeperAddress>), ConnectionError> {
    let bytes = std::fs::read("/proc/net/unix").map_err(ConnectionError::List)?;
    let own = rustix::process::geteuid();
    let mut found = listed(&String::from_utf8_lossy(&bytes));
    found.sort();
    Ok(found
        .into_iter()
        .partition(|address| own.is_root() || address.uid == own.as_raw()))
}

/// The name, or else what `NERVURE_DATAFLOW` in the environment says.
pub fn named(name: Option<&str>) -> Option<String> {
    name.map(str::to_owned).or_else(named_by_environment)
}

fn named_by_environment() -> Option<String> {
    std::env::var(DATAFLOW_VARIABLE)
        .ok()
        .filter(|name| !name.is_empty())
}

/// The dataflow of that name, or whose keeper is the process of that number; without a name, that which
/// `NERVURE_DATAFLOW` in the environment names, or the only one that runs.
///
/// # Errors
/// [`ConnectionError::NoneRuns`], [`ConnectionError::NotRunning`] or [`ConnectionError::Several`], which list those that
/// run.
pub fn find(name: Option<&str>) -> Result<KeeperAddress, ConnectionError> {
    choose(&dataflows()?, named(name).as_deref())
}

/// A connection to the keeper of a dataflow.
#[derive(Debug)]
pub struct Connection {
    address: KeeperAddress,
    socket: Seqpacket,
    buffer: Vec<u8>,
    welcome: Welcome,
}

impl Connection {
    /// Connects as `program`, which is for people.
    ///
    /// # Errors
    /// [`ConnectionError`]; a version that is not understood says so.
    pub fn open(address: &KeeperAddress, program: &str) -> Result<Self, ConnectionError> {
        let socket =
            Seqpacket::connect(&address.to_string()).map_err(|error| match error.kind() {
                io::ErrorKind::ConnectionRefused => ConnectionError::Gone(address.dataflow.clone()),
                io::ErrorKind::WouldBlock => no_answer(address),
                _ => error.into(),
            })?;
        // Anybody may have taken the name.
        let (ours, theirs) = (rustix::process::geteuid().as_raw(), socket.peer()?.uid);
        if theirs != address.uid || ours != 0 && theirs != ours {
            return Err(ConnectionError::OtherUser {
                dataflow: address.dataflow.clone(),
                theirs,
                ours,
            });
        }
        let mut connection = Self {
            address: address.clone(),
            socket,
            buffer: Vec::with_capacity(MAX_MESSAGE_BYTES),
            welcome: Welcome {
                version: 0,
                dataflow: String::new(),
                library: String::new(),
                folder: String::new(),
                file: None,
                log_folder: String::new(),
                started_utc_nanos: 0,
                state: keeper_to_cli::DataflowState::Unknown,
                nodes: 0,
                running: 0,
                observers: 0,
                detached: false,
            },
        };
        let hello = Hello {
            versions: VERSIONS,
            program: program.to_owned(),
        };
        match connection.ask(&cli_to_keeper::Message::Hello(hello))? {
            keeper_to_cli::Message::Welcome(welcome) => connection.welcome = welcome,
            other => return Err(ConnectionError::Unexpected(format!("{other:?}"))),
        }
        Ok(connection)
    }

    /// What the keeper said of its dataflow when this connection was opened.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Where the keeper is.
    pub fn address(&self) -> &KeeperAddress {
        &self.address
    }

    /// Sends a message.
    ///
    /// # Errors
    /// When the keeper is gone.
    pub fn send(&self, message: &cli_to_keeper::Message) -> Result<(), ConnectionError> {
        let bytes = nervure_protocol::encode(message)?;
        self.socket
            .send(&bytes, &[])
            .map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => no_answer(&self.address),
                _ => ConnectionError::Gone(self.address.dataflow.clone()),
            })
    }

    /// Sends a message, and waits for the one that answers it.
    ///
    /// # Errors
    /// [`ConnectionError::Refused`], and when there is no answer in time.
    pub fn ask(
        &mut self,
        message: &cli_to_keeper::Message,
    ) -> Result<keeper_to_cli::Message, ConnectionError> {
        self.send(message)?;
        match self.receive_until(Instant::now() + PATIENCE)? {
            Some((keeper_to_cli::Message::Refused(refused), _)) => {
                Err(ConnectionError::Refused(refused))
            }
            Some((answer, _)) => Ok(answer),
            None => Err(no_answer(&self.address)),
        }
    }

    /// The next message, if there is one, with its descriptor.
    ///
    /// # Errors
    /// [`ConnectionError::Gone`] after the last one.
    pub fn try_receive(
        &mut self,
    ) -> Result<Option<(keeper_to_cli::Message, Option<OwnedFd>)>, ConnectionError> {
        match self.socket.receive(&mut self.buffer) {
            Ok(Received::Packet(fds)) => Ok(Some((
                nervure_protocol::decode(&self.buffer)?,
                fds.into_iter().next(),
            ))),
            Ok(Received::Closed) => Err(ConnectionError::Gone(self.address.dataflow.clone())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for the next message; `None` when there was none until `deadline`.
    ///
    /// # Errors
    /// As [`Connection::try_receive`].
    pub fn receive_until(
        &mut self,
        deadline: Instant,
    ) -> Result<Option<(keeper_to_cli::Message, Option<OwnedFd>)>, ConnectionError> {
        loop {
            if let Some(message) = self.try_receive()? {
                return Ok(Some(message));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
            match rustix::event::poll(&mut polled, Some(&timespec(left))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }

    pub(crate) fn into_socket(self) -> Seqpacket {
        self.socket
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn no_answer(address: &KeeperAddress) -> ConnectionError {
    ConnectionError::NoAnswer {
        dataflow: address.dataflow.clone(),
        keeper: address.keeper,
    }
}

fn timespec(duration: Duration) -> Timespec {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec {
        tv_sec: seconds,
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Keepers that listen, in the text of /proc/net/unix.
///
/// A line is `<address>: <references> <protocol> <flags> <type> <state> <inode> [@name]`, where a socket that listens
/// has bit 16 of the flags (`__SO_ACCEPTCON`), and `@` stands for the zero byte of the abstract namespace.
fn listed(text: &str) -> Vec<KeeperAddress> {
    const ACCEPTS: u32 = 1 << 16;
    let address = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        let name = fields.nth(3)?.strip_prefix('@')?;
        (flags & ACCEPTS != 0).then(|| KeeperAddress::parse(name))?
    };
    text.lines().filter_map(address).collect()
}

fn choose(found: &[KeeperAddress], name: Option<&str>) -> Result<KeeperAddress, ConnectionError> {
    let is_meant = |one: &&KeeperAddress| {
        name.is_none_or(|name| one.dataflow == name || one.keeper.to_string() == name)
    };
    let mut chosen = found.iter().filter(is_meant);
    match (chosen.next(), chosen.next()) {
        (Some(only), None) => Ok(only.clone()),
        (Some(_), Some(_)) => Err(ConnectionError::Several {
            running: names(found),
        }),
        (None, _) if found.is_empty() => Err(ConnectionError::NoneRuns),
        (None, _) => {
            let name = name.unwrap_or_default();
            let near = nearest(name, found.iter().map(|one| one.dataflow.as_str()));
            Err(ConnectionError::NotRunning {
                name: name.to_owned(),
                running: names(found),
                nearest: near.map(str::to_owned),
            })
        }
    }
}

/// `drive`, and `drive (process 4711)` where there are several of that name.
fn names(found: &[KeeperAddress]) -> String {
    let name = |one: &KeeperAddress| {
        let is_only = found
            .iter()
            .filter(|other| other.dataflow == one.dataflow)
            .count()
            == 1;
        if is_only {
            one.dataflow.clone()
        } else {
            format!("{} (process {})", one.dataflow, one.keeper)
        }
    };
    found.iter().map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKETS: &str = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0005 01 20501 @nervure/1000/drive/4711
0000000000000000: 00000003 00000000 00000000 0005 03 20502 @nervure/1000/drive/4711
0000000000000000: 00000002 00000000 00010000 0001 01 20503 /run/nervure/1000/x/1
0000000000000000: 00000002 00000000 00010000 0005 01 20504 @nervure/1000/drive/4712
0000000000000000: 00000002 00000000 00010000 0005 01 20505 @nervure/0/arm/99
0000000000000000: 00000002 00000000 00000000 0002 01 20506
";

    fn address(dataflow: &str, keeper: u32, uid: u32) -> KeeperAddress {
        KeeperAddress {
            dataflow: dataflow.to_owned(),
            keeper,
            uid,
        }
    }

    #[test]
    fn only_sockets_of_keepers_that_listen_are_listed() {
        let expected = [
            address("drive", 4711, 1000),
            address("drive", 4712, 1000),
            address("arm", 99, 0),
        ];
        assert_eq!(listed(SOCKETS), expected);
    }

    #[test]
    fn the_only_one_needs_no_name_and_of_several_one_has_to_be_named() {
        let found = listed(SOCKETS);
        let text = |name| choose(&found, name).unwrap_err().to_string();
        assert_eq!(choose(&found, Some("arm")).unwrap().keeper, 99);
        assert_eq!(choose(&found, Some("4712")).unwrap().keeper, 4712);
        let several = "several dataflows run: drive (process 4711), drive (process 4712), arm";
        assert_eq!(
            (text(None), text(Some("drive"))),
            (several.to_owned(), several.to_owned())
        );
        assert!(
            text(Some("leg")).starts_with("no dataflow `leg` runs; these do: drive (process 4711)")
        );
        let hint = choose(&found, Some("drvie")).unwrap_err().hint();
        assert_eq!(hint.as_deref(), Some("did you mean `drive`?"));
        assert!(matches!(
            choose(&[], Some("leg")),
            Err(ConnectionError::NoneRuns)
        ));
        assert_eq!(choose(&found[..1], None).unwrap().keeper, 4711);
    }
}
