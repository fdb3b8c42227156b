//! State shared by the thread of a socket and the handles of the application.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
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
    /// Notified when anything changes that a handle may wait for, but for samples.
    changed: Condvar,
    /// Notified when a sample of any stream has arrived.
    arrived: Condvar,
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
    /// Tasks that wait for a sample or the end of a stream, each with its own number.
    receivers: BTreeMap<Receiver, Waker>,
    last_receiver: u64,
    /// Tasks that wait until a stream to a peer has room.
    senders: BTreeMap<(PublicKey, u32), Vec<Waker>>,
    /// Tasks to wake once the state is unlocked.
    woken: Vec<Waker>,
    /// Samples have arrived since handles were last notified.
    has_arrivals: bool,
    /// A task waits for a condition that no event announces: tasks are woken whenever the thread has
    /// worked.
    pub(super) watched: bool,
    /// The trace, if there is one and it can be written.
    pub(super) trace: Option<TraceLines>,
    pub(super) stopping: bool,
    /// Why the thread has ended, if it has.
    pub(super) failed: Option<String>,
}

/// The peer, the stream, and the number of the wait.
type Receiver = (PublicKey, u32, u64);

/// A wait for a sample of a stream. Dropping it ends the wait.
pub(super) struct SampleWait<'s> {
    shared: &'s Shared,
    receiver: Option<Receiver>,
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
            receivers: BTreeMap::new(),
            last_receiver: 0,
            senders: BTreeMap::new(),
            woken: Vec::new(),
            has_arrivals: false,
            watched: false,
            trace,
            stopping: false,
            failed: None,
        }
    }

    /// Returns the oldest event. Events of a peer come before those of its streams.
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

    /// Forgets the streams of a peer whose state is gone: they have ended.
    pub(super) fn forget_streams(&mut self, peer: PublicKey) {
        for streams in [&mut self.readable, &mut self.changed] {
            streams.retain(|(other, _)| *other != peer);
        }
        self.wake_receivers((peer, 0, 0)..=(peer, u32::MAX, u64::MAX));
    }

    /// Notes that a stream may have a sample.
    pub(super) fn on_readable(&mut self, peer: PublicKey, stream: u32) {
        self.readable.insert((peer, stream));
        self.has_arrivals = true;
        self.on_ended(peer, stream);
    }

    /// Notes that a stream may have ended.
    pub(super) fn on_ended(&mut self, peer: PublicKey, stream: u32) {
        self.wake_receivers((peer, stream, 0)..=(peer, stream, u64::MAX));
    }

    /// Wakes the tasks that wait for room in a stream: it has room, or accepts no samples any more.
    pub(super) fn wake_senders(&mut self, peer: PublicKey, stream: u32) {
        let senders = self.senders.remove(&(peer, stream));
        self.woken.extend(senders.into_iter().flatten());
    }

    /// Wakes the tasks that wait for room in the streams to a peer whose state is gone.
    pub(super) fn wake_senders_to(&mut self, peer: PublicKey) {
        self.senders.retain(|(to, _), senders| {
            let is_kept = *to != peer;
            if !is_kept {
                self.woken.append(senders);
            }
            is_kept
        });
    }

    /// Forgets the tasks that wait for room in a stream whose handle is dropped.
    pub(super) fn forget_senders(&mut self, peer: PublicKey, stream: u32) {
        self.senders.remove(&(peer, stream));
    }

    /// Makes all tasks that wait for a sample look again.
    pub(super) fn wake_all_receivers(&mut self) {
        self.woken
            .extend(std::mem::take(&mut self.receivers).into_values());
    }

    /// Whether no task waits for a sample.
    #[cfg(test)]
    pub(super) fn has_no_receivers(&self) -> bool {
        self.receivers.is_empty()
    }

    fn wake_receivers(&mut self, which: RangeInclusive<Receiver>) {
        while let Some((receiver, _)) = self.receivers.range(which.clone()).next() {
            let receiver = *receiver;
            self.woken.extend(self.receivers.remove(&receiver));
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

    pub(super) fn has_ended(&self) -> bool {
        self.stopping || self.failed.is_some()
    }
}

impl Shared {
    pub(super) fn new(state: State, wake: OwnedFd, ready: OwnedFd) -> Self {
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            arrived: Condvar::new(),
            wake,
            ready,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Wakes the thread, so that it processes changes.
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

    /// Wakes handles and async tasks that wait for a change, and unlocks the state.
    pub(super) fn notify(&self, mut state: MutexGuard<'_, State>) {
        let wakers = std::mem::take(&mut state.wakers);
        state.woken.extend(wakers);
        if state.has_ended() {
            state.wake_all_receivers();
            let senders = std::mem::take(&mut state.senders);
            state.woken.extend(senders.into_values().flatten());
            state.has_arrivals = true;
        }
        self.wake_tasks(state);
        self.changed.notify_all();
    }

    /// Wakes those that wait for something that may have changed in a turn of the thread, and unlocks the
    /// state. `changed` is the result of [`take_events`](super::thread::take_events).
    pub(super) fn notify_after_turn(&self, mut state: MutexGuard<'_, State>, changed: bool) {
        if changed || std::mem::take(&mut state.watched) {
            self.notify(state);
        } else {
            self.wake_tasks(state);
        }
    }

    /// Wakes the tasks whose streams have samples or room, or have ended, and unlocks the state.
    pub(super) fn wake_tasks(&self, mut state: MutexGuard<'_, State>) {
        self.settle_ready(&mut state);
        let woken = std::mem::take(&mut state.woken);
        let has_arrivals = std::mem::take(&mut state.has_arrivals);
        drop(state);
        if has_arrivals {
            self.arrived.notify_all();
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// Looks with `find`, and has the task woken at the next change if that returns nothing. The
    /// result is `None` when the link has ended.
    pub(super) fn poll_for<T>(
        &self,
        context: &Context<'_>,
        find: impl FnOnce(&mut State) -> Option<T>,
    ) -> Poll<Option<T>> {
        self.poll_among(context, |state| &mut state.wakers, find)
    }

    /// Looks with `find`, and has the task woken, once, when a stream to a peer has room or accepts no
    /// samples any more, if that returns nothing. The result is `None` when the link has ended.
    pub(super) fn poll_for_room<T>(
        &self,
        context: &Context<'_>,
        stream: (PublicKey, u32),
        find: impl FnOnce(&mut State) -> Option<T>,
    ) -> Poll<Option<T>> {
        self.poll_among(
            context,
            |state| state.senders.entry(stream).or_default(),
            find,
        )
    }

    fn poll_among<T>(
        &self,
        context: &Context<'_>,
        wakers: impl FnOnce(&mut State) -> &mut Vec<Waker>,
        find: impl FnOnce(&mut State) -> Option<T>,
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
        let wakers = wakers(&mut state);
        if !wakers.iter().any(known) {
            wakers.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Returns true once `is_done` does, and has the task woken when the thread has worked before. The
    /// result is false when the link has ended or `is_done` returns `None`.
    pub(super) fn poll_until(
        &self,
        context: &Context<'_>,
        is_done: impl Fn(&State) -> Option<bool>,
    ) -> Poll<bool> {
        let looked = self.poll_for(context, |state| match is_done(state) {
            Some(false) => {
                state.watched = true;
                None
            }
            done => Some(done.is_some()),
        });
        looked.map(|done| done.unwrap_or(false))
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

    /// Waits until `find` returns a value, the link ends, or the timeout is over. Samples that arrive
    /// are no reason to look again.
    pub(super) fn wait_for<T>(
        &self,
        timeout: Option<Duration>,
        find: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        self.wait_on(&self.changed, timeout, find)
    }

    /// Waits as [`wait_for`](Self::wait_for), for a sample of any stream.
    pub(super) fn wait_for_any_sample<T>(
        &self,
        timeout: Duration,
        find: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        self.wait_on(&self.arrived, Some(timeout), find)
    }

    fn wait_on<T>(
        &self,
        change: &Condvar,
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
                Some(deadline) => drop(change.wait_until(&mut state, deadline)),
                None => change.wait(&mut state),
            }
        }
    }
}

impl<'s> SampleWait<'s> {
    pub(super) fn new(shared: &'s Shared) -> Self {
        Self {
            shared,
            receiver: None,
        }
    }

    /// Looks with `find`, and has the task woken when the stream has a sample or ends, if that returns
    /// nothing. The result is `None` when the link has ended.
    pub(super) fn poll<T>(
        &mut self,
        context: &Context<'_>,
        (peer, stream): (PublicKey, u32),
        find: impl FnOnce(&mut State) -> Option<T>,
    ) -> Poll<Option<T>> {
        let mut state = self.shared.lock();
        if let Some(receiver) = self.receiver.take() {
            state.receivers.remove(&receiver);
        }
        if let Some(found) = find(&mut state) {
            self.shared.settle_ready(&mut state);
            return Poll::Ready(Some(found));
        }
        if state.has_ended() {
            return Poll::Ready(None);
        }
        state.last_receiver += 1;
        let receiver = (peer, stream, state.last_receiver);
        state.receivers.insert(receiver, context.waker().clone());
        self.receiver = Some(receiver);
        Poll::Pending
    }
}

impl Drop for SampleWait<'_> {
    fn drop(&mut self) {
        if let Some(receiver) = self.receiver.take() {
            self.shared.lock().receivers.remove(&receiver);
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}
