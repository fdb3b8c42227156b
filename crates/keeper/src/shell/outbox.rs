//! Messages that wait to be sent.

use std::{collections::VecDeque, io, rc::Rc, time::Duration};

use nervure_shm::Seqpacket;
use rustix::fd::{AsFd, OwnedFd};

use super::retry::Retry;

/// What waits for room in a socket.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: VecDeque<(Vec<u8>, Vec<Rc<OwnedFd>>)>,
    retry: Retry,
}

impl Outbox {
    /// How many packets wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// When to flush again; `None` while nothing waits.
    pub fn deadline(&self) -> Option<Duration> {
        self.retry.deadline()
    }

    /// Queues a packet.
    pub fn push(&mut self, bytes: Vec<u8>, descriptors: Vec<Rc<OwnedFd>>) {
        self.waiting.push_back((bytes, descriptors));
    }

    /// Sends what can be sent without waiting.
    ///
    /// # Errors
    /// The other end is closed: what waited is forgotten.
    pub fn flush(&mut self, socket: &Seqpacket, now: Duration) -> io::Result<()> {
        if self.waiting.is_empty() || !self.retry.is_due(now) {
            return Ok(());
        }
        let before = self.waiting.len();
        while let Some((bytes, descriptors)) = self.waiting.front() {
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            match socket.send(bytes, &descriptors) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.waiting.clear();
                    self.retry = Retry::default();
                    return Err(error);
                }
            }
        }
        self.retry.tried(!self.waiting.is_empty(), self.waiting.len() < before, now);
        Ok(())
    }
}
