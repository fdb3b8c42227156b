//! Packets that wait to be sent.

use std::{collections::VecDeque, io, rc::Rc, time::Duration};

use nervure_shm::{Seqpacket, Shortage};
use rustix::fd::{AsFd, OwnedFd};

use super::retry::{Retry, SHORTAGE_TIMEOUT};

/// Packets that wait for room in a socket.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: VecDeque<(Vec<u8>, Vec<Rc<OwnedFd>>)>,
    retry: Retry,
    short: Option<Short>,
}

/// A shortage: the first packet cannot be sent, however fast the other end receives.
#[derive(Clone, Copy, Debug)]
struct Short {
    shortage: Shortage,
    since: Duration,
    stage: Stage,
}

/// The last notice of a shortage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Nothing,
    Waits,
    GivenUp,
}

/// A notice of a shortage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Packets wait for a resource.
    Waits(Shortage),
    /// They have waited for it for [`SHORTAGE_TIMEOUT`].
    GivenUp(Shortage),
}

impl Outbox {
    /// The number of packets that wait.
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

    /// The next notice of a shortage. Each is returned once.
    pub fn notice(&mut self, now: Duration) -> Option<Delivery> {
        let short = self.short.as_mut()?;
        let is_old = now.saturating_sub(short.since) >= SHORTAGE_TIMEOUT;
        let (stage, notice) = match short.stage {
            Stage::Nothing => (Stage::Waits, Delivery::Waits(short.shortage)),
            Stage::Waits if is_old => (Stage::GivenUp, Delivery::GivenUp(short.shortage)),
            Stage::Waits | Stage::GivenUp => return None,
        };
        short.stage = stage;
        Some(notice)
    }

    /// Sends packets while the socket has room.
    ///
    /// # Errors
    /// The other end is closed: packets that wait are dropped.
    pub fn flush(&mut self, socket: &Seqpacket, now: Duration) -> io::Result<()> {
        if self.waiting.is_empty() || !self.retry.is_due(now) {
            return Ok(());
        }
        let before = self.waiting.len();
        while let Some((bytes, descriptors)) = self.waiting.front() {
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            match socket.send(bytes, &descriptors) {
                Ok(()) => {
                    self.waiting.pop_front();
                    self.short = None;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.note(Shortage::of(&error), now);
                    break;
                }
                Err(error) => {
                    self.waiting.clear();
                    self.retry = Retry::default();
                    self.short = None;
                    return Err(error);
                }
            }
        }
        self.retry
            .tried(!self.waiting.is_empty(), self.waiting.len() < before, now);
        Ok(())
    }

    fn note(&mut self, shortage: Option<Shortage>, now: Duration) {
        let before = self.short.take();
        self.short = shortage.map(|shortage| Short {
            shortage,
            ..before.unwrap_or(Short {
                shortage,
                since: now,
                stage: Stage::Nothing,
            })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_reported_once_and_given_up_in_time() {
        let mut outbox = Outbox::default();
        let shortage = Shortage::InFlight { limit: 7 };
        let seconds = Duration::from_secs;
        assert_eq!(outbox.notice(seconds(0)), None);
        outbox.note(Some(shortage), seconds(1));
        assert_eq!(outbox.notice(seconds(1)), Some(Delivery::Waits(shortage)));
        outbox.note(Some(shortage), seconds(3));
        assert_eq!(outbox.notice(seconds(3)), None);
        outbox.note(Some(shortage), seconds(6));
        assert_eq!(outbox.notice(seconds(6)), Some(Delivery::GivenUp(shortage)));
        assert_eq!(outbox.notice(seconds(9)), None);
    }

    #[test]
    fn a_full_socket_is_no_shortage() {
        let (a, _b) = Seqpacket::pair().unwrap();
        let mut outbox = Outbox::default();
        for _ in 0..10_000 {
            outbox.push(vec![1; 64], Vec::new());
        }
        outbox.flush(&a, Duration::ZERO).unwrap();
        assert!(outbox.len() > 0);
        assert_eq!(outbox.notice(Duration::from_secs(100)), None);
    }
}
