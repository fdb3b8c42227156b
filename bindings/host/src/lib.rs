//! A host: the process in which composed nodes run.
//!
//! The keeper starts it with a connection, and sends a message for each start of a node. The host
//! loads the node's component and calls its entry on a thread of its own. The node connects to the
//! keeper itself, over the control socket that came with the message. So the host handles no
//! samples; it reports the end of each node, and ends with the connection.
//!
//! It is a command of `nervure` and not a program of its own: the installation stays one file, and the
//! keeper finds it without a search.

mod exit;
mod node;
mod report;
mod stdio;

use std::io;
use std::sync::Arc;

use nervure_protocol::keeper_to_host::Message;
use nervure_protocol::{HOST_FD_VARIABLE, MAX_MESSAGE_BYTES};
use nervure_shm::{Received, Seqpacket};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::AsFd;

use report::Keeper;

/// Why a host has ended.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// No keeper started this program.
    #[error("{HOST_FD_VARIABLE} does not name a connection: {0}. A keeper starts this program")]
    NoConnection(String),
    /// The connection has failed.
    #[error("cannot receive from the keeper: {0}")]
    Receive(#[from] io::Error),
    /// The keeper sent something that is not a message.
    #[error("the keeper sent an invalid message: {0}")]
    Message(String),
}

/// Runs nodes until the keeper closes the connection.
///
/// # Errors
/// [`HostError`].
pub fn host() -> Result<(), HostError> {
    stdio::buffer_lines();
    // From here on forks are counted: see `exit`.
    nervure_shm::fork_generation();
    let keeper = Arc::new(Keeper::new(connection()?));
    let mut buffer = Vec::with_capacity(MAX_MESSAGE_BYTES);
    loop {
        let mut descriptors = match keeper.socket().receive(&mut buffer) {
            Ok(Received::Packet(descriptors)) => descriptors,
            Ok(Received::Closed) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(keeper.socket());
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let message = nervure_protocol::decode(&buffer)
            .map_err(|error| HostError::Message(error.to_string()))?;
        match (message, descriptors.pop()) {
            (Message::Start(start), Some(control)) => node::start(start, control, &keeper),
            (Message::Start(start), None) => {
                let text = format!("the start of {} has no control socket", start.node);
                return Err(HostError::Message(text));
            }
            (Message::Unknown, _) => {}
        }
    }
}

fn connection() -> Result<Seqpacket, HostError> {
    let variable = std::env::var(HOST_FD_VARIABLE)
        .map_err(|error| HostError::NoConnection(error.to_string()))?;
    let adopted = match variable.parse() {
        Ok(number) => nervure_shm::adopt_inherited_fd(number).map_err(|error| error.to_string()),
        Err(_) => Err("it is not a number".to_owned()),
    };
    adopted
        .map(Seqpacket::from)
        .map_err(HostError::NoConnection)
}

/// Sleeps until something can be received. `receive` finds out why it returned.
fn wait(socket: &Seqpacket) {
    let interest = PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN);
    let _ = rustix::event::poll(&mut [interest], None);
}
