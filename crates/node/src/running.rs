//! The dataflows that run on this host, and connections to their keepers.
//!
//! For tools, such as the `nervure` command. A connection can ask for the state of the dataflow,
//! follow it, and send commands: see [`nervure_protocol::cli_to_keeper`]. [`crate::Observer`]
//! receives samples.

mod environment;
mod error;
mod listing;

pub use environment::named;
pub use error::{ConnectionError, KEEPER_ANSWER_TIMEOUT};
pub use listing::{dataflows, dataflows_of_others, find};

use crate::packets::{PacketError, Packets};
use nervure_protocol::address::KeeperAddress;
use nervure_protocol::cli_to_keeper::{self, Hello};
use nervure_protocol::daemon_to_daemon::{Answer, Cost, Request, Usage};
use nervure_protocol::domain::Domain;
use nervure_protocol::keeper_to_cli::{self, Refused, Welcome};
use nervure_protocol::{VERSIONS, cli_to_daemon, daemon_to_cli};
use nervure_shm::Seqpacket;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::time::{Duration, Instant};

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

/// Figures that the daemons add for a keeper of another machine.
#[derive(Clone, Debug, Default)]
pub struct Remote {
    /// Bytes of the connection on the link.
    pub cost: Cost,
    /// When `usages` were read, in nanoseconds of the machine's monotonic clock.
    pub usages_at_nanos: u64,
    /// CPU time and memory of its nodes.
    pub usages: Vec<Usage>,
    /// The first `usages`, and when they were read.
    pub first_usages: Option<(u64, Vec<Usage>)>,
}

impl Connection {
    /// Connects to a keeper. `program` names this program in messages to users.
    ///
    /// # Errors
    /// [`ConnectionError`], also if the keeper speaks no common version of the protocol.
    pub fn open(address: &KeeperAddress, program: &str) -> Result<Self, ConnectionError> {
        let deadline = Instant::now() + KEEPER_ANSWER_TIMEOUT;
        Self::greet(address, program)?.welcomed(deadline)
    }

    /// Connects to several keepers. All requests are sent before the first answer is awaited, so that
    /// silent keepers take [`KEEPER_ANSWER_TIMEOUT`] together.
    pub fn open_all(
        addresses: Vec<KeeperAddress>,
        program: &str,
    ) -> Vec<(KeeperAddress, Result<Self, ConnectionError>)> {
        let deadline = Instant::now() + KEEPER_ANSWER_TIMEOUT;
        let greeted: Vec<_> = addresses
            .into_iter()
            .map(|address| (Self::greet(&address, program), address))
            .collect();
        let welcomed = greeted.into_iter().map(|(greeted, address)| {
            let opened = greeted.and_then(|connection| connection.welcomed(deadline));
            (address, opened)
        });
        welcomed.collect()
    }

    /// Connects to a keeper of this user, and says Hello.
    fn greet(address: &KeeperAddress, program: &str) -> Result<Self, ConnectionError> {
        let socket =
            Seqpacket::connect(&address.to_string()).map_err(|error| match error.kind() {
                io::ErrorKind::ConnectionRefused => ConnectionError::Gone(address.dataflow.clone()),
                io::ErrorKind::WouldBlock => no_answer(address),
                _ => error.into(),
            })?;
        // Any user can take the name; the kernel knows the owner.
        let (ours, theirs) = (rustix::process::geteuid().as_raw(), socket.peer()?.uid);
        if theirs != address.uid || ours != 0 && theirs != ours {
            return Err(ConnectionError::OtherUser {
                dataflow: address.dataflow.clone(),
                theirs,
                ours,
            });
        }
        let connection = Self {
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
                static_transforms: Vec::new(),
            },
            remote: Remote::default(),
        };
        let hello = Hello {
            versions: VERSIONS,
            program: program.to_owned(),
        };
        connection.send(&cli_to_keeper::Message::Hello(hello))?;
        Ok(connection)
    }

    /// Waits for the answer to Hello.
    fn welcomed(mut self, deadline: Instant) -> Result<Self, ConnectionError> {
        match self.answer_until(deadline)? {
            keeper_to_cli::Message::Welcome(welcome) => self.welcome = welcome,
            other => return Err(ConnectionError::Unexpected(format!("{other:?}"))),
        }
        Ok(self)
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

    /// Figures that the daemons have added for a keeper of another machine.
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
    /// [`KEEPER_ANSWER_TIMEOUT`], and as [`Connection::send`].
    pub fn ask(
        &mut self,
        message: &cli_to_keeper::Message,
    ) -> Result<keeper_to_cli::Message, ConnectionError> {
        self.send(message)?;
        self.answer_until(Instant::now() + KEEPER_ANSWER_TIMEOUT)
    }

    fn answer_until(
        &mut self,
        deadline: Instant,
    ) -> Result<keeper_to_cli::Message, ConnectionError> {
        match self.receive_until(deadline)? {
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
            PacketError::Full if self.machine.is_some() => {
                ConnectionError::DaemonSilent(KEEPER_ANSWER_TIMEOUT)
            }
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

/// Time limit for an answer of the daemon of this machine, which gives up on other machines earlier:
/// after 3 s without a sign of life.
pub const DAEMON_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

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
        self.receive_until(Instant::now() + DAEMON_ANSWER_TIMEOUT)?
            .ok_or(ConnectionError::DaemonSilent(DAEMON_ANSWER_TIMEOUT))
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
        PacketError::Full => ConnectionError::DaemonSilent(DAEMON_ANSWER_TIMEOUT),
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
