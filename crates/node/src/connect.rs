//! Connecting a node to its keeper.

use crate::control::{self, Departure};
use crate::core::Core;
use crate::diagnostics::emit;
use crate::error::ConnectError;
use crate::receiving::Events;
use crate::running::{self, Connection, ConnectionError};
use nervure_protocol::keeper_to_node::{Message, Welcome};
use nervure_protocol::node_to_keeper::{Hello, Message as Answer};
use nervure_protocol::{
    CONTROL_FD_VARIABLE, MAX_MESSAGE_BYTES, NODE_VARIABLE, TOKEN_FILE, TOKEN_VARIABLE, VERSIONS,
    cli_to_keeper, cli_to_keeper::Join, keeper_to_cli,
};
use nervure_shm::{
    Budget, ControlPage, CountersPage, Inbox, Output, OwnWakePage, Producer, Received, Seqpacket,
    monotonic_nanos,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Descriptors of a welcome: control page, wake page, eventfd and counters page.
const WELCOME_FDS: usize = 4;

/// The longest wait without a call of `go_on`: a signal that arrives just before a wait does not
/// interrupt it.
const SIGNAL_CHECK_NANOS: u64 = 50_000_000;
const SIGNAL_CHECK_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: SIGNAL_CHECK_NANOS as _,
};

/// Connects as the keeper's child, which inherited the control socket; otherwise as the node that
/// the environment names (`nervure attach`).
pub(crate) fn connect(
    language: &str,
    go_on: impl FnMut() -> bool,
) -> Result<(Arc<Core>, Events), ConnectError> {
    match (
        std::env::var_os(CONTROL_FD_VARIABLE),
        std::env::var(NODE_VARIABLE),
    ) {
        (None, Ok(node)) => join_running(None, &node, language, go_on),
        _ => connect_through(control_socket()?, Departure::AtOnce, language, go_on),
    }
}

/// Connects a component over the control socket that its host was given.
pub(crate) fn connect_over(
    control: OwnedFd,
    language: &str,
) -> Result<(Arc<Core>, Events), ConnectError> {
    connect_through(control.into(), Departure::AtOnce, language, || true)
}

/// Connects as the given node: as the keeper's child if the process is one, otherwise by joining a
/// running dataflow.
pub(crate) fn join(
    dataflow: Option<&str>,
    node: &str,
    language: &str,
    go_on: impl FnMut() -> bool,
) -> Result<(Arc<Core>, Events), ConnectError> {
    if std::env::var_os(CONTROL_FD_VARIABLE).is_none() {
        return join_running(dataflow, node, language, go_on);
    }
    let (core, events) = connect(language, go_on)?;
    let is = core.welcome.node.clone();
    if is != node {
        return Err(ConnectError::OtherNode {
            asked: node.to_owned(),
            is,
        });
    }
    Ok((core, events))
}

fn join_running(
    dataflow: Option<&str>,
    node: &str,
    language: &str,
    go_on: impl FnMut() -> bool,
) -> Result<(Arc<Core>, Events), ConnectError> {
    let mut connection = Connection::open(&running::find(dataflow)?, language)?;
    let token = token(node, &connection.welcome().log_folder)?;
    match connection.ask(&cli_to_keeper::Message::Join(Join {
        node: node.to_owned(),
        token,
    }))? {
        keeper_to_cli::Message::Joined => {}
        other => return Err(ConnectionError::Unexpected(format!("{other:?}")).into()),
    }
    connect_through(connection.into_socket(), Departure::AtOnce, language, go_on)
}

/// The token that allows this process to join: of `nervure attach` for its node, otherwise of the
/// run. Empty if the run has none; then the keeper reports the reason.
fn token(node: &str, log_folder: &str) -> Result<String, ConnectError> {
    if let (Ok(token), Ok(attached)) = (std::env::var(TOKEN_VARIABLE), std::env::var(NODE_VARIABLE))
        && attached == node
    {
        return Ok(token);
    }
    let path = Path::new(log_folder).join(TOKEN_FILE);
    match std::fs::read_to_string(&path) {
        Ok(token) => Ok(token),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(cause) => Err(ConnectError::Token { path, cause }),
    }
}

/// Connects over a socket on which the keeper expects the Hello of a node.
pub(crate) fn connect_through(
    socket: Seqpacket,
    departure: Departure,
    language: &str,
    mut go_on: impl FnMut() -> bool,
) -> Result<(Arc<Core>, Events), ConnectError> {
    let socket = Arc::new(socket);
    let hello = Hello {
        versions: VERSIONS,
        language: language.to_owned(),
        library: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let hello = nervure_protocol::encode(&Answer::Hello(hello))?;
    socket
        .send(&hello, &[])
        .map_err(|_| ConnectError::KeeperGone)?;
    let (welcome, fds) = receive_welcome(&socket, &mut go_on)?;
    emit!(
        debug,
        node = welcome.node,
        dataflow = welcome.dataflow,
        incarnation = welcome.incarnation,
        "connected to the keeper"
    );
    if welcome.memory_lock {
        // Before the node has mapped its pages, so that these are faulted in, too.
        nervure_shm::lock_memory()?;
    }
    let (core, mut events) = assemble(welcome, fds, socket)?;
    control::start(core.clone(), events.inbox.handle(), departure)?;
    let waits_for_start = core.is_source() && !core.welcome.manual_ready;
    loop {
        // First, so that a ring of the doorbell from here on ends the wait below.
        events.inbox.collect();
        let notices = core.notices();
        if notices.keeper_gone && !notices.wired {
            return Err(ConnectError::KeeperGone);
        }
        if notices.stop.is_some() || notices.wired && (notices.started || !waits_for_start) {
            break;
        }
        drop(notices);
        events.absorb_notices();
        events
            .inbox
            .wait(Some(monotonic_nanos() + SIGNAL_CHECK_NANOS));
        if !go_on() {
            return Err(ConnectError::Interrupted);
        }
    }
    Ok((core, events))
}

fn control_socket() -> Result<Seqpacket, ConnectError> {
    let Some(number) = std::env::var_os(CONTROL_FD_VARIABLE) else {
        return Err(ConnectError::NotStartedAsNode {
            variable: CONTROL_FD_VARIABLE,
        });
    };
    let number = number.to_string_lossy().into_owned();
    let adopted = match number.parse() {
        Ok(parsed) => nervure_shm::adopt_inherited_fd(parsed),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a number",
        )),
    };
    adopted
        .map(Seqpacket::from)
        .map_err(|error| ConnectError::NoControlSocket {
            variable: CONTROL_FD_VARIABLE,
            number,
            reason: error.to_string(),
        })
}

fn receive_welcome(
    socket: &Seqpacket,
    go_on: &mut impl FnMut() -> bool,
) -> Result<(Welcome, [OwnedFd; WELCOME_FDS]), ConnectError> {
    let mut buffer = Vec::with_capacity(MAX_MESSAGE_BYTES);
    let fds = loop {
        match socket.receive(&mut buffer) {
            Ok(Received::Packet(fds)) => break fds,
            Ok(Received::Closed) => return Err(ConnectError::KeeperGone),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let interest = PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN);
                // `receive` finds out why it returned.
                let _ = rustix::event::poll(&mut [interest], Some(&SIGNAL_CHECK_INTERVAL));
                if !go_on() {
                    return Err(ConnectError::Interrupted);
                }
            }
            Err(error) => return Err(error.into()),
        }
    };
    let unexpected = |got| {
        Err(ConnectError::Unexpected {
            expected: WELCOME_FDS,
            got,
        })
    };
    match nervure_protocol::decode(&buffer)? {
        Message::Welcome(welcome) => match <[OwnedFd; WELCOME_FDS]>::try_from(fds) {
            Ok(fds) => Ok((*welcome, fds)),
            Err(fds) => unexpected(format!("{} descriptors", fds.len())),
        },
        Message::Refused { reason } => Err(ConnectError::Refused(reason)),
        other => unexpected(format!("{other:?}")),
    }
}

fn assemble(
    welcome: Welcome,
    fds: [OwnedFd; WELCOME_FDS],
    socket: Arc<Seqpacket>,
) -> Result<(Arc<Core>, Events), ConnectError> {
    let [clock, wake, eventfd, counters] = fds;
    let clock = ControlPage::map(&clock)?;
    let counters = Arc::new(CountersPage::map(&counters, true)?);
    let overwritten = socket.clone();
    let inputs = u32::try_from(welcome.inputs.len()).unwrap_or(u32::MAX);
    let wake = OwnWakePage::map(&wake, inputs, counters.clone())?.on_overwritten(move |how| {
        let message = Answer::WakePageOverwritten {
            what: how.to_string(),
        };
        if let Ok(bytes) = nervure_protocol::encode(&message) {
            let _ = overwritten.send(&bytes, &[]);
        }
    });
    let wake = Arc::new(wake);
    let misbehaving = socket.clone();
    let producer = Producer {
        budget: Budget::new(welcome.shared_memory_bytes),
        wake: wake.clone(),
        counters,
        incarnation: welcome.incarnation,
        stopping: Arc::new(AtomicBool::new(false)),
        held: Arc::new(AtomicBool::new(false)),
        cut_short: Arc::new(AtomicBool::new(false)),
        on_misbehaviour: Arc::new(move |edge, misbehaviour| {
            let message = Answer::Misbehaviour {
                edge,
                what: misbehaviour.to_string(),
            };
            if let Ok(bytes) = nervure_protocol::encode(&message) {
                let _ = misbehaving.send(&bytes, &[]);
            }
        }),
    };
    let outputs = welcome.outputs.iter().map(|output| {
        Output::new(
            output.name.clone(),
            output.blocks,
            output.history,
            producer.clone(),
        )
    });
    let outputs = outputs.collect();
    let inbox = Inbox::new(wake, Arc::new(eventfd));
    let core = Arc::new(Core::new(welcome, socket, clock, producer, outputs)?);
    Ok((core.clone(), Events::new(core, inbox)))
}
