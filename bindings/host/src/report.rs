//! Reports of a host to its keeper.

use std::io;

use nervure_protocol::host_to_keeper::Message;
use nervure_shm::Seqpacket;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::AsFd;

/// The connection to the keeper, on which every thread may report.
#[derive(Debug)]
pub struct Keeper(Seqpacket);

impl Keeper {
    pub fn new(socket: Seqpacket) -> Self {
        Self(socket)
    }

    pub fn socket(&self) -> &Seqpacket {
        &self.0
    }

    /// Sends a message, and waits for room. Without a keeper there is no reader, and nothing to do.
    pub fn report(&self, message: &Message) {
        let Ok(bytes) = nervure_protocol::encode(message) else {
            return;
        };
        while let Err(error) = self.0.send(&bytes, &[]) {
            if error.kind() != io::ErrorKind::WouldBlock {
                return;
            }
            let interest = PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::OUT);
            let _ = rustix::event::poll(&mut [interest], None);
        }
    }
}
