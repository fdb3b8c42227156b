//! What the thread of a socket and the handles of the application share.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::fd::OwnedFd;

use crate::{
    carrier::{PublicKey, quic::QuicCarrier},
    endpoint::{Endpoint, EndpointEvent},
    policy::Refusal,
    receiver::LinkSample,
};

use super::events::Events;

/// Poll interval for conditions that no event announces.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Counters of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounters {
    /// Packets sent.
    pub packets_sent: u64,
    /// Their bytes of UDP payload.
    pub bytes_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Their bytes of UDP payload.
    pub bytes_received: u64,
}

pub(super) struct Shared {
    state: Mutex<State>,
    /// Notified when anything changes that a handle may wait for.
    pub(super) changed: Condvar,
    /// Wakes the thread.
    pub(super) wake: OwnedFd,
}

pub(super) struct State {
    pub(super) endpoint: Endpoint<QuicCarrier>,
    /// Events for the application, oldest first.
    pub(super) events: Events,
    /// Streams that may have a sample.
    pub(super) readable: BTreeSet<(PublicKey, u32)>,
    /// Streams of peers with another quality of service that the application has not learned.
    pub(super) changed: BTreeSet<(PublicKey, u32)>,
    pub(super) socket: SocketCounters,
    pub(super) stopping: bool,
    /// Why the thread has ended, if it has.
    pub(super) failed: Option<String>,
}

impl State {
    pub(super) fn new(endpoint: Endpoint<QuicCarrier>) -> Self {
        Self {
            endpoint,
            events: Events::default(),
            readable: BTreeSet::new(),
            changed: BTreeSet::new(),
            socket: SocketCounters::default(),
            stopping: false,
            failed: None,
        }
    }

    /// Returns the oldest event. Those of streams come after those of their peer.
    pub(super) fn poll_event(&mut self) -> Option<EndpointEvent> {
        self.events.pop().or_else(|| self.endpoint.poll_opened())
    }

    /// Takes the oldest sample of a stream.
    pub(super) fn take(&mut self, peer: PublicKey, stream: u32) -> Option<LinkSample> {
        let session = self.endpoint.session_mut(&peer);
        let (sample, is_readable) = session.map_or((None, false), |session| {
            let sample = session.take(Instant::now(), stream);
            (sample, session.receiver().has_sample(stream))
        });
        if !is_readable {
            self.readable.remove(&(peer, stream));
        }
        sample
    }

    /// Refuses or closes a stream of a peer.
    pub(super) fn refuse(&mut self, peer: PublicKey, stream: u32, why: Refusal) {
        if let Some(session) = self.endpoint.session_mut(&peer) {
            session.refuse_stream(Instant::now(), stream, why);
        }
        self.readable.remove(&(peer, stream));
        self.changed.remove(&(peer, stream));
    }

    /// Forgets the streams of a peer that has lost its state.
    pub(super) fn forget_readable(&mut self, peer: PublicKey) {
        for streams in [&mut self.readable, &mut self.changed] {
            streams.retain(|(other, _)| *other != peer);
        }
    }

    fn has_ended(&self) -> bool {
        self.stopping || self.failed.is_some()
    }
}

impl Shared {
    pub(super) fn new(state: State, wake: OwnedFd) -> Self {
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            wake,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Wakes the thread, so that it processes what has changed.
    pub(super) fn wake(&self) {
        // This fails only when the counter is full, and then the thread wakes anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Polls `is_done` until it returns true. Returns false after the timeout, and when the link
    /// has ended or `is_done` returns `None`.
    pub(super) fn wait_until(
        &self,
        timeout: Duration,
        is_done: impl Fn(&State) -> Option<bool>,
    ) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let looked = self.wait_for(Some(left.min(POLL_INTERVAL)), |state| {
                match is_done(state) {
                    Some(false) => None,
                    done => Some(done.is_some()),
                }
            });
            match looked {
                Some(done) => return done,
                None if left.is_zero() || self.lock().has_ended() => return false,
                None => {}
            }
        }
    }

    /// Waits until `find` returns a value, the link ends, or the timeout is over.
    pub(super) fn wait_for<T>(
        &self,
        timeout: Option<Duration>,
        mut find: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut state = self.lock();
        loop {
            if let Some(found) = find(&mut state) {
                return Some(found);
            }
            if state.has_ended() {
                return None;
            }
            match deadline {
                Some(deadline) if deadline <= Instant::now() => return None,
                Some(deadline) => drop(self.changed.wait_until(&mut state, deadline)),
                None => self.changed.wait(&mut state),
            }
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}
