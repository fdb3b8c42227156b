//! What the thread of a socket and the handles of the application share.

use std::{
    collections::BTreeSet,
    future::poll_fn,
    task::{Context, Poll, Waker},
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

use super::{events::Events, trace::TraceLines};

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
    /// Readable while an event or a sample waits, once the application has asked for it.
    pub(super) ready: OwnedFd,
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
    ready: Ready,
    /// Async tasks that wait for a change.
    wakers: Vec<Waker>,
    /// A task waits for a condition that no event announces: tasks are woken whenever the thread has
    /// worked.
    pub(super) watched: bool,
    /// The trace, if there is one and it can be written.
    pub(super) trace: Option<TraceLines>,
    pub(super) stopping: bool,
    /// Why the thread has ended, if it has.
    pub(super) failed: Option<String>,
}

/// The state of the descriptor for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    /// The application does not use it: no system call is spent on it.
    Unused,
    Clear,
    Set,
}

impl State {
    pub(super) fn new(endpoint: Endpoint<QuicCarrier>, trace: Option<TraceLines>) -> Self {
        Self {
            endpoint,
            events: Events::default(),
            readable: BTreeSet::new(),
            changed: BTreeSet::new(),
            socket: SocketCounters::default(),
            ready: Ready::Unused,
            wakers: Vec::new(),
            watched: false,
            trace,
            stopping: false,
            failed: None,
        }
    }

    /// Returns the oldest event. Those of streams come after those of their peer.
    pub(super) fn poll_event(&mut self) -> Option<EndpointEvent> {
        self.events.pop().or_else(|| self.endpoint.poll_opened())
    }

    /// Passes the records of the trace on.
    pub(super) fn write_trace(&mut self) {
        while let Some((peer, record)) = self.endpoint.poll_trace() {
            if let Some(trace) = &mut self.trace
                && !trace.push(&peer, &record)
            {
                // Its writer reports why.
                self.trace = None;
            }
        }
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

    /// Whether an event or a sample waits for the application, or the link has ended; `None` if the
    /// application does not use the descriptor.
    fn has_something_if_polled(&self) -> Option<bool> {
        let has_something = || {
            self.has_ended()
                || !self.events.is_empty()
                || !self.changed.is_empty()
                || !self.readable.is_empty()
                || self.endpoint.has_opened()
        };
        (self.ready != Ready::Unused).then(has_something)
    }

    fn has_ended(&self) -> bool {
        self.stopping || self.failed.is_some()
    }
}

impl Shared {
    pub(super) fn new(state: State, wake: OwnedFd, ready: OwnedFd) -> Self {
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            wake,
            ready,
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

    /// Makes the descriptor readable if something waits for the application, and otherwise not.
    pub(super) fn settle_ready(&self, state: &mut State) {
        let to = match state.has_something_if_polled() {
            Some(true) => Ready::Set,
            Some(false) => Ready::Clear,
            None => return,
        };
        if std::mem::replace(&mut state.ready, to) == to {
            return;
        }
        // Neither can fail: the counter is 0 or 1.
        let _ = match to {
            Ready::Set => rustix::io::write(&self.ready, &1u64.to_ne_bytes()),
            _ => rustix::io::read(&self.ready, &mut [0; 8]),
        };
    }

    /// Keeps the descriptor up to date from now on.
    pub(super) fn use_ready(&self) {
        let mut state = self.lock();
        if state.ready == Ready::Unused {
            state.ready = Ready::Clear;
        }
        self.settle_ready(&mut state);
    }

    /// Wakes handles that wait for a change, and async tasks.
    pub(super) fn notify(&self, mut state: MutexGuard<'_, State>) {
        self.settle_ready(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.changed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Looks with `find`, and has the task woken at the next change if that returns nothing. The
    /// result is `None` when the link has ended.
    pub(super) fn poll_for<T>(
        &self,
        context: &Context<'_>,
        mut find: impl FnMut(&mut State) -> Option<T>,
    ) -> Poll<Option<T>> {
        let mut state = self.lock();
        if let Some(found) = find(&mut state) {
            self.settle_ready(&mut state);
            return Poll::Ready(Some(found));
        }
        if state.has_ended() {
            return Poll::Ready(None);
        }
        let known = |waker: &Waker| waker.will_wake(context.waker());
        if !state.wakers.iter().any(known) {
            state.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Waits until `is_done` returns true. Returns false when the link has ended or `is_done` returns
    /// `None`.
    pub(super) async fn until(&self, is_done: impl Fn(&State) -> Option<bool>) -> bool {
        let done = poll_fn(|context| {
            self.poll_for(context, |state| match is_done(state) {
                Some(false) => {
                    state.watched = true;
                    None
                }
                done => Some(done.is_some()),
            })
        });
        done.await.unwrap_or(false)
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
                self.settle_ready(&mut state);
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
