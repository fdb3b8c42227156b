//! The dataflows that run on this host, and connections to their keepers.
//!
//! For tools, such as the `nervure` command. A connection can ask for the state of the dataflow,
//! follow it, and send commands: see [`nervure_protocol::cli_to_keeper`]. [`crate::Observer`]
//! receives samples.

use crate::packets::{PacketError, Packets};
use nervure_protocol::address::KeeperAddress;
use nervure_protocol::cli_to_keeper::{self, Hello};
use nervure_protocol::daemon_to_daemon::{Answer, Cost, Request, Usage};
use nervure_protocol::domain::{DOMAIN_VARIABLE, Domain, DomainError};
use nervure_protocol::keeper_to_cli::{self, Refused, Welcome};
use nervure_protocol::{
    DATAFLOW_VARIABLE, ProtocolError, VERSIONS, cli_to_daemon, daemon_to_cli, nearest,
};
use nervure_shm::Seqpacket;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::time::{Duration, Instant};

/// How long a keeper may take to answer. A keeper never blocks, so one that does not answer in time
/// is stopped.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Why there is no connection, or no answer.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The list of sockets cannot be read.
    #[error("cannot list the running dataflows: {0}")]
    List(io::Error),
    /// The environment names no valid domain.
    #[error("{DOMAIN_VARIABLE}: {0}")]
    Domain(#[from] DomainError),
    /// No dataflow runs in the domain.
    #[error("no dataflow runs{}", .0.phrase())]
    NoneRuns(Domain),
    /// No dataflow with that name runs.
    #[error("no dataflow `{name}` runs; these do: {running}")]
    NotRunning {
        /// The name that was asked for.
        name: String,
        /// The dataflows that run.
        running: String,
        /// The dataflow that was probably meant.
        nearest: Option<String>,
    },
    /// Several dataflows run, and none was named.
    #[error("several dataflows run: {running}")]
    Several {
        /// The dataflows that run.
        running: String,
    },
    /// The keeper runs as another user.
    #[error("dataflow `{dataflow}` belongs to user {theirs}, and this is user {ours}")]
    OtherUser {
        /// The dataflow's name.
        dataflow: String,
        /// The user ID of the keeper.
        theirs: u32,
        /// The user ID of this process.
        ours: u32,
    },
    /// The keeper ended, or closed the connection.
    #[error("the keeper of dataflow `{0}` is gone")]
    Gone(String),
    /// The keeper did not answer in time: it is probably stopped.
    #[error(
        "the keeper of dataflow `{dataflow}` (process {keeper}) has not answered within {PATIENCE:?}"
    )]
    NoAnswer {
        /// The dataflow's name.
        dataflow: String,
        /// The keeper's process ID.
        keeper: u32,
    },
    /// The keeper refused the request.
    #[error("{}", .0.reason)]
    Refused(Refused),
    /// The daemon of this machine is needed, and does not run.
    #[error("the daemon of this machine does not run")]
    NoDaemon,
    /// The daemon of this machine gives no answer.
    #[error("the daemon of this machine has not answered within {0:?}")]
    DaemonSilent(Duration),
    /// The keeper's message could not be decoded.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The keeper answered with a message that does not fit the request.
    #[error("the keeper gave an unexpected answer: {0}")]
    Unexpected(String),
    /// A system call failed.
    #[error("cannot talk to the keeper: {0}")]
    System(#[from] io::Error),
}

impl ConnectionError {
    /// The likely fix.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoneRuns(_) => Some("start one with `nervure run FILE`".to_owned()),
            Self::Several { .. } => {
                let text = "select one with `-d NAME`, or with `-d PID` where names are the same; in a program with \
                            `dataflow=`; or with NERVURE_DATAFLOW in the environment";
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
            Self::NoAnswer { keeper, .. } => {
                Some(format!("is it stopped? `kill -CONT {keeper}` continues it"))
            }
            Self::Refused(refused) => refused.hint.clone(),
            Self::NoDaemon => Some("`nervure up` or `nervure join` starts it".to_owned()),
            _ => None,
        }
    }
}

/// The dataflows of this user, or for root of all users, in this process's domain, sorted by name.
/// Dataflows in other network namespaces (containers) are not visible.
///
/// # Errors
/// [`ConnectionError::List`] if /proc cannot be read, [`ConnectionError::Domain`].
pub fn dataflows() -> Result<Vec<KeeperAddress>, ConnectionError> {
    let (ours, _) = ours_and_others()?;
    Ok(ours)
}

/// The dataflows of other users in this process's domain, according to the names of their sockets,
/// which any user can forge. Empty for root.
///
/// # Errors
/// [`ConnectionError::List`] if /proc cannot be read, [`ConnectionError::Domain`].
pub fn dataflows_of_others() -> Result<Vec<KeeperAddress>, ConnectionError> {
    let (_, others) = ours_and_others()?;
    Ok(others)
}

fn ours_and_others() -> Result<(Vec<KeeperAddress>, Vec<KeeperAddress>), ConnectionError> {
    let domain = Domain::of_environment()?;
    let bytes = std::fs::read("/proc/net/unix").map_err(ConnectionError::List)?;
    let own = rustix::process::geteuid();
    let mut found = listed(&String::from_utf8_lossy(&bytes));
    found.retain(|address| address.domain == domain);
    found.sort();
    Ok(found
        .into_iter()
        .partition(|address| own.is_root() || address.uid == own.as_raw()))
}

/// The given name, or else the value of `NERVURE_DATAFLOW` in the environment.
pub fn named(name: Option<&str>) -> Option<String> {
    name.map(str::to_owned).or_else(named_by_environment)
}

fn named_by_environment() -> Option<String> {
    std::env::var(DATAFLOW_VARIABLE)
        .ok()
        .filter(|name| !name.is_empty())
}

/// Finds a dataflow by its name or the process ID of its keeper. Without a name, finds the dataflow
/// that `NERVURE_DATAFLOW` in the environment names, or the only one that runs.
///
/// # Errors
/// [`ConnectionError::NoneRuns`], [`ConnectionError::NotRunning`] or [`ConnectionError::Several`];
/// the last two list the dataflows that run.
pub fn find(name: Option<&str>) -> Result<KeeperAddress, ConnectionError> {
    choose(
        &dataflows()?,
        named(name).as_deref(),
        &Domain::of_environment()?,
    )
}

/// A connection to the keeper of a dataflow, on this machine or, through the daemons, on another.
#[derive(Debug)]
pub struct Connection {
    address: KeeperAddress,
    /// The other machine.
    machine: Option<String>,
    packets: Packets,
    welcome: Welcome,
    remote: Remote,
}

/// What the daemons add for a keeper of another machine.
#[derive(Clone, Debug, Default)]
pub struct Remote {
    /// What the connection has cost on the link.
    pub cost: Cost,
    /// When `usages` were read, in nanoseconds of the machine's monotonic clock.
    pub usages_at_nanos: u64,
    /// CPU time and memory of its nodes.
    pub usages: Vec<Usage>,
    /// The first ones, and when they were read.
    pub first_usages: Option<(u64, Vec<Usage>)>,
}

impl Connection {
    /// Connects to a keeper. `program` names this program in messages to users.
    ///
    /// # Errors
    /// [`ConnectionError`], also if the keeper speaks no common version of the protocol.
    pub fn open(address: &KeeperAddress, program: &str) -> Result<Self, ConnectionError> {
        let socket =
            Seqpacket::connect(&address.to_string()).map_err(|error| match error.kind() {
                io::ErrorKind::ConnectionRefused => ConnectionError::Gone(address.dataflow.clone()),
                io::ErrorKind::WouldBlock => no_answer(address),
                _ => error.into(),
            })?;
        // Any user can take the name, so the kernel is asked for the owner.
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
            machine: None,
            packets: Packets::new(socket),
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
            remote: Remote::default(),
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

    /// The keeper's description of its dataflow when this connection was opened.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// The keeper's address.
    pub fn address(&self) -> &KeeperAddress {
        &self.address
    }

    /// The machine of the keeper, if it is another one.
    pub fn machine(&self) -> Option<&str> {
        self.machine.as_deref()
    }

    /// What the daemons have added to the messages of a keeper of another machine.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`ConnectionError::Gone`] if the keeper has ended, [`ConnectionError::NoAnswer`] if it does
    /// not read its socket.
    pub fn send(&self, message: &cli_to_keeper::Message) -> Result<(), ConnectionError> {
        self.packets
            .send(message, None)
            .map_err(|error| self.failure(error))
    }

    /// Sends a message, and waits for the answer.
    ///
    /// # Errors
    /// [`ConnectionError::Refused`], [`ConnectionError::NoAnswer`] if there is no answer within
    /// [`PATIENCE`], and as [`Connection::send`].
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
            None => Err(self.failure(PacketError::Full)),
        }
    }

    /// Returns the next message with its descriptor, if there is a message, without waiting.
    ///
    /// # Errors
    /// [`ConnectionError::Gone`] after the last message.
    pub fn try_receive(
        &mut self,
    ) -> Result<Option<(keeper_to_cli::Message, Option<OwnedFd>)>, ConnectionError> {
        self.receive_until(Instant::now())
    }

    /// Waits for the next message. Returns `None` if none arrived before `deadline`.
    ///
    /// # Errors
    /// As [`Connection::try_receive`].
    pub fn receive_until(
        &mut self,
        deadline: Instant,
    ) -> Result<Option<(keeper_to_cli::Message, Option<OwnedFd>)>, ConnectionError> {
        if self.machine.is_none() {
            let received = self.packets.receive_until(deadline);
            return received.map_err(|error| self.failure(error));
        }
        loop {
            let received = self.packets.receive_until(deadline);
            match received.map_err(|error| self.failure(error))? {
                Some((daemon_to_cli::Message::Keeper { keeper }, page)) => {
                    return Ok(Some((keeper, page)));
                }
                Some((daemon_to_cli::Message::Answer { answer }, _)) => {
                    if let Some(refused) = self.take_from_daemon(answer) {
                        return Err(ConnectionError::Refused(refused));
                    }
                }
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    fn take_from_daemon(&mut self, answer: Answer) -> Option<Refused> {
        match answer {
            Answer::Refused(refused) => return Some(refused),
            Answer::Cost(cost) => self.remote.cost = cost,
            Answer::Usages { at_nanos, usages } => {
                self.remote
                    .first_usages
                    .get_or_insert_with(|| (at_nanos, usages.clone()));
                (self.remote.usages_at_nanos, self.remote.usages) = (at_nanos, usages);
            }
            _ => {}
        }
        None
    }

    fn failure(&self, error: PacketError) -> ConnectionError {
        match error {
            PacketError::Closed => ConnectionError::Gone(self.address.dataflow.clone()),
            PacketError::Full if self.machine.is_some() => ConnectionError::DaemonSilent(PATIENCE),
            PacketError::Full => no_answer(&self.address),
            PacketError::Protocol(error) => error.into(),
            PacketError::System(error) => error.into(),
        }
    }

    /// Another handle of the socket that sends, for another thread.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub fn sender(&self) -> io::Result<Packets> {
        self.packets.try_clone()
    }

    pub(crate) fn into_socket(self) -> Seqpacket {
        self.packets.into_socket()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.packets.as_fd()
    }
}

/// How long the daemon of this machine may take to answer: it waits for other machines itself, for a
/// shorter time.
const DAEMON_PATIENCE: Duration = Duration::from_secs(5);

/// A connection to the daemon of this machine, for one request.
#[derive(Debug)]
pub struct DaemonConnection {
    packets: Packets,
    machine: String,
}

/// Connects to the socket of a daemon of this user.
fn connect_daemon(name: &str) -> Result<Seqpacket, ConnectionError> {
    let socket = Seqpacket::connect(name).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => ConnectionError::NoDaemon,
        _ => error.into(),
    })?;
    let (ours, theirs) = (rustix::process::geteuid().as_raw(), socket.peer()?.uid);
    if theirs != ours && ours != 0 {
        let text = format!("the socket of the daemon belongs to user {theirs}");
        return Err(io::Error::other(text).into());
    }
    Ok(socket)
}

/// The process of the daemon that listens under this name in the abstract namespace, also if it does
/// not answer.
///
/// # Errors
/// [`ConnectionError::NoDaemon`], or [`ConnectionError::System`] if it is another user's.
pub fn daemon_process(name: &str) -> Result<u32, ConnectionError> {
    Ok(connect_daemon(name)?.peer()?.pid)
}

impl DaemonConnection {
    /// Connects to the daemon that listens under this name in the abstract namespace. `program` names
    /// this program in messages to users.
    ///
    /// # Errors
    /// [`ConnectionError::NoDaemon`], and as [`Connection::open`].
    pub fn open(name: &str, program: &str) -> Result<Self, ConnectionError> {
        let mut connection = Self {
            packets: Packets::new(connect_daemon(name)?),
            machine: String::new(),
        };
        connection.send(&cli_to_daemon::Message::Hello(Hello {
            versions: VERSIONS,
            program: program.to_owned(),
        }))?;
        match connection.receive_in_time()? {
            (daemon_to_cli::Message::Welcome { machine, .. }, _) => connection.machine = machine,
            (other, _) => return Err(ConnectionError::Unexpected(format!("{other:?}"))),
        }
        Ok(connection)
    }

    /// The name of this machine.
    pub fn machine(&self) -> &str {
        &self.machine
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`ConnectionError::NoDaemon`] if the daemon has ended.
    pub fn send(&self, message: &cli_to_daemon::Message) -> Result<(), ConnectionError> {
        self.packets.send(message, None).map_err(daemon_failure)
    }

    /// Waits for the next message. Returns `None` if none arrived before `deadline`.
    ///
    /// # Errors
    /// [`ConnectionError::Refused`]; [`ConnectionError::NoDaemon`] if the daemon has ended.
    pub fn receive_until(
        &mut self,
        deadline: Instant,
    ) -> Result<Option<(daemon_to_cli::Message, Option<OwnedFd>)>, ConnectionError> {
        match self
            .packets
            .receive_until(deadline)
            .map_err(daemon_failure)?
        {
            Some((
                daemon_to_cli::Message::Answer {
                    answer: Answer::Refused(refused),
                },
                _,
            )) => Err(ConnectionError::Refused(refused)),
            other => Ok(other),
        }
    }

    /// As [`DaemonConnection::receive_until`], for a message that comes soon.
    ///
    /// # Errors
    /// [`ConnectionError::DaemonSilent`] if it does not, and as [`DaemonConnection::receive_until`].
    pub fn receive_in_time(
        &mut self,
    ) -> Result<(daemon_to_cli::Message, Option<OwnedFd>), ConnectionError> {
        self.receive_until(Instant::now() + DAEMON_PATIENCE)?
            .ok_or(ConnectionError::DaemonSilent(DAEMON_PATIENCE))
    }

    /// Connects to a keeper of another machine; with the use of its processes if `usages`.
    ///
    /// # Errors
    /// [`ConnectionError::Refused`] if the machine cannot be reached, or refuses.
    pub fn reach(
        mut self,
        machine: &str,
        keeper: u32,
        program: &str,
        usages: bool,
    ) -> Result<Connection, ConnectionError> {
        self.send(&cli_to_daemon::Message::Ask {
            machine: machine.to_owned(),
            request: Request::Reach {
                keeper,
                program: program.to_owned(),
                usages,
            },
        })?;
        let welcome = match self.receive_in_time()? {
            (
                daemon_to_cli::Message::Answer {
                    answer: Answer::Reached(welcome),
                },
                _,
            ) => welcome,
            (other, _) => return Err(ConnectionError::Unexpected(format!("{other:?}"))),
        };
        Ok(Connection {
            address: KeeperAddress {
                domain: Domain::of_environment()?,
                dataflow: welcome.dataflow.clone(),
                keeper,
                uid: rustix::process::geteuid().as_raw(),
            },
            machine: Some(machine.to_owned()),
            packets: self.packets,
            welcome,
            remote: Remote::default(),
        })
    }
}

fn daemon_failure(error: PacketError) -> ConnectionError {
    match error {
        PacketError::Closed => ConnectionError::NoDaemon,
        PacketError::Full => ConnectionError::DaemonSilent(DAEMON_PATIENCE),
        PacketError::Protocol(error) => error.into(),
        PacketError::System(error) => error.into(),
    }
}

fn no_answer(address: &KeeperAddress) -> ConnectionError {
    ConnectionError::NoAnswer {
        dataflow: address.dataflow.clone(),
        keeper: address.keeper,
    }
}

/// The keepers that listen, from the text of /proc/net/unix.
///
/// A line is `<address>: <references> <protocol> <flags> <type> <state> <inode> [@name]`. A socket
/// that listens has bit 16 of the flags (`__SO_ACCEPTCON`), and `@` stands for the zero byte of the
/// abstract namespace.
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

fn choose(
    found: &[KeeperAddress],
    name: Option<&str>,
    domain: &Domain,
) -> Result<KeeperAddress, ConnectionError> {
    let is_meant = |one: &&KeeperAddress| {
        name.is_none_or(|name| one.dataflow == name || one.keeper.to_string() == name)
    };
    let mut chosen = found.iter().filter(is_meant);
    match (chosen.next(), chosen.next()) {
        (Some(only), None) => Ok(only.clone()),
        (Some(_), Some(_)) => Err(ConnectionError::Several {
            running: names(found),
        }),
        (None, _) if found.is_empty() => Err(ConnectionError::NoneRuns(domain.clone())),
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

/// The dataflows' names in one line: `drive`, or `drive (process 4711)` if several share the name.
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
            domain: Domain::default(),
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
    fn only_one_of_several_dataflows_needs_a_name() {
        let found = listed(SOCKETS);
        let text = |name| {
            choose(&found, name, &Domain::default())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            choose(&found, Some("arm"), &Domain::default())
                .unwrap()
                .keeper,
            99
        );
        assert_eq!(
            choose(&found, Some("4712"), &Domain::default())
                .unwrap()
                .keeper,
            4712
        );
        let several = "several dataflows run: drive (process 4711), drive (process 4712), arm";
        assert_eq!(
            (text(None), text(Some("drive"))),
            (several.to_owned(), several.to_owned())
        );
        assert!(
            text(Some("leg")).starts_with("no dataflow `leg` runs; these do: drive (process 4711)")
        );
        let hint = choose(&found, Some("drvie"), &Domain::default())
            .unwrap_err()
            .hint();
        assert_eq!(hint.as_deref(), Some("did you mean `drive`?"));
        assert!(matches!(
            choose(&[], Some("leg"), &Domain::default()),
            Err(ConnectionError::NoneRuns(_))
        ));
        assert_eq!(
            choose(&found[..1], None, &Domain::default())
                .unwrap()
                .keeper,
            4711
        );
    }
}
