//! The application's handles of peers and streams.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use thiserror::Error;

use super::{
    block_on::block_on,
    shared::{SampleWait, Shared, State},
};
use crate::{
    carrier::PublicKey,
    policy::Refusal,
    qos::Qos,
    receiver::{LinkSample, ReceiveCounters},
    sender::{NameTooLong, SendCounters, SendError},
    session::{self, Session, SessionStatus},
};

/// The peer's state is gone, or the link has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the link to {0} is closed")]
pub struct ClosedError(pub PublicKey);

/// Why a stream was not opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// The peer's state is gone, or the link has ended.
    #[error(transparent)]
    Closed(#[from] ClosedError),
    /// The name is too long.
    #[error(transparent)]
    Name(#[from] NameTooLong),
    /// The policy of this end refuses it.
    #[error("the policy of this end does not allow stream {name:?}: {why}")]
    Policy {
        /// Its name.
        name: String,
        /// The reason.
        why: Refusal,
    },
}

impl From<session::OpenError> for OpenError {
    fn from(error: session::OpenError) -> Self {
        match error {
            session::OpenError::Name(error) => Self::Name(error),
            session::OpenError::Policy { name, why } => Self::Policy { name, why },
        }
    }
}

/// Why a sample was not sent.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The peer's state is gone, or the link has ended.
    #[error(transparent)]
    Closed(#[from] ClosedError),
    /// The stream did not accept it.
    #[error(transparent)]
    Send(#[from] SendError),
}

/// A handle of a peer.
#[derive(Clone, Debug)]
pub struct Peer {
    shared: Arc<Shared>,
    key: PublicKey,
}

/// A stream to a peer. Dropping it closes it; accepted samples are still carried.
#[derive(Debug)]
pub struct OutgoingStream {
    peer: Peer,
    stream: u32,
    /// The number of the session in which the number of the stream holds.
    session: u64,
}

/// A stream from a peer. Dropping it has no effect: samples still arrive.
#[derive(Debug)]
pub struct IncomingStream {
    incoming: Incoming,
    qos: Qos,
}

/// A stream that a peer requests. Dropping it refuses the stream.
#[derive(Debug)]
pub struct IncomingRequest {
    incoming: Option<Incoming>,
    qos: Qos,
}

/// A stream of a peer, in the session in which its number holds.
#[derive(Debug)]
pub(super) struct Incoming {
    peer: Peer,
    stream: u32,
    session: Option<(u64, u32)>,
}

impl Peer {
    pub(super) fn new(shared: Arc<Shared>, key: PublicKey) -> Self {
        Self { shared, key }
    }

    /// The key of the peer.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// Opens a stream. Samples may be sent at once, connected or not.
    ///
    /// # Errors
    /// When the peer's state is gone, the name is too long, or the policy of this end refuses it.
    pub fn open(&self, name: &str, qos: Qos) -> Result<OutgoingStream, OpenError> {
        let mut state = self.shared.lock();
        let number = state.endpoint.session_number(&self.key);
        let session = state.endpoint.session_mut(&self.key);
        let (number, session) = number.zip(session).ok_or(ClosedError(self.key))?;
        let stream = session.open(Instant::now(), name, qos)?;
        drop(state);
        self.shared.wake();
        Ok(OutgoingStream {
            peer: self.clone(),
            stream,
            session: number,
        })
    }

    /// The state and counters of the session with the peer; `None` when its state is gone.
    pub fn status(&self) -> Option<SessionStatus> {
        self.shared
            .lock()
            .endpoint
            .session(&self.key)
            .map(Session::status)
    }

    /// Waits until nothing is pending or in flight to the peer, the closing of streams included.
    /// Returns false after the timeout, or when the link has ended.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.shared.wait_until(timeout, |state| self.is_idle(state))
    }

    /// Waits as [`flush`](Self::flush), on any executor and without a timeout. Returns false when the
    /// peer's state is gone, or the link has ended.
    pub async fn flush_async(&self) -> bool {
        let shared = &self.shared;
        poll_fn(|context| shared.poll_until(context, |state| self.is_idle(state))).await
    }

    fn is_idle(&self, state: &State) -> Option<bool> {
        let session = state.endpoint.session(&self.key)?;
        Some(session.sender().streams().is_idle())
    }

    /// Limits the rate of sending to the peer from now on, in bytes per second of datagrams.
    ///
    /// # Errors
    /// When the peer's state is gone.
    pub fn set_max_rate(&self, bytes_per_second: u64) -> Result<(), ClosedError> {
        let known = self
            .shared
            .lock()
            .endpoint
            .set_max_rate(&self.key, bytes_per_second);
        self.shared.wake();
        known.then_some(()).ok_or(ClosedError(self.key))
    }

    /// Ends the connection and drops the state.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        state.endpoint.close(Instant::now(), self.key);
        state.forget_streams(self.key);
        self.shared.notify(state);
        self.shared.wake();
    }
}

impl OutgoingStream {
    /// The number of the stream, unique among the streams to its peer.
    pub fn id(&self) -> u32 {
        self.stream
    }

    /// The session of the stream; `None` when it is gone: the numbers of streams begin again in the next.
    fn session<'s>(&self, state: &'s State) -> Option<&'s Session> {
        self.is_valid(state)
            .then(|| state.endpoint.session(&self.peer.key))?
    }

    fn session_mut<'s>(&self, state: &'s mut State) -> Option<&'s mut Session> {
        self.is_valid(state)
            .then(|| state.endpoint.session_mut(&self.peer.key))?
    }

    fn is_valid(&self, state: &State) -> bool {
        state.endpoint.session_number(&self.peer.key) == Some(self.session)
    }

    /// Sends a sample; it is accepted when this returns. A stream that keeps all waits until there
    /// is room.
    ///
    /// # Errors
    /// When the peer refuses the stream, its state is gone, or the link has ended.
    pub fn send(&self, payload: impl Into<Bytes>) -> Result<(), StreamError> {
        let sent = block_on(self.send_async(payload), None, || true);
        sent.unwrap_or(Err(ClosedError(self.peer.key).into()))
    }

    /// Sends a sample, as [`send`](Self::send), on any executor: waits there while a stream that keeps
    /// all has no room. A sample whose future is dropped before it is ready was not sent.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    pub async fn send_async(&self, payload: impl Into<Bytes>) -> Result<(), StreamError> {
        let mut payload = Some(payload.into());
        poll_fn(|context| self.poll_offer(context, &mut payload)).await
    }

    /// Sends a sample. If a stream that keeps all has no room, the sample is not sent, and the task is
    /// woken, once, when the stream has room or accepts no samples any more. So a thread that serves
    /// many streams waits for all of them at once.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    pub fn poll_send(
        &self,
        context: &Context<'_>,
        payload: impl Into<Bytes>,
    ) -> Poll<Result<(), StreamError>> {
        self.poll_offer(context, &mut Some(payload.into()))
    }

    fn poll_offer(
        &self,
        context: &Context<'_>,
        payload: &mut Option<Bytes>,
    ) -> Poll<Result<(), StreamError>> {
        let shared = &self.peer.shared;
        let stream = (self.peer.key, self.stream);
        let sent =
            ready!(shared.poll_for_room(context, stream, |state| self.offer(state, payload)));
        shared.wake();
        Poll::Ready(sent.unwrap_or(Err(ClosedError(self.peer.key).into())))
    }

    /// Sends the sample, or leaves it, if there is no room.
    fn offer(
        &self,
        state: &mut State,
        payload: &mut Option<Bytes>,
    ) -> Option<Result<(), StreamError>> {
        let Some(session) = self.session_mut(state) else {
            return Some(Err(ClosedError(self.peer.key).into()));
        };
        match session.send(Instant::now(), self.stream, payload.take()?) {
            Err(SendError::Full { payload: back, .. }) => {
                *payload = Some(back);
                None
            }
            other => Some(other.map_err(StreamError::from)),
        }
    }

    /// Sends a sample, or returns it if a stream that keeps all has no room.
    ///
    /// # Errors
    /// As of [`send`](Self::send), and [`SendError::Full`].
    pub fn try_send(&self, payload: impl Into<Bytes>) -> Result<(), StreamError> {
        let mut state = self.peer.shared.lock();
        let session = self.session_mut(&mut state);
        let session = session.ok_or(ClosedError(self.peer.key))?;
        session.send(Instant::now(), self.stream, payload.into())?;
        drop(state);
        self.peer.shared.wake();
        Ok(())
    }

    /// Changes the quality of service of the samples that are sent from now on. They go when all
    /// earlier ones have come to an end as they were sent, and the peer has learned of the change.
    /// Waits while samples wait for an earlier change.
    ///
    /// # Errors
    /// When the peer refuses the stream, its state is gone, or the link has ended.
    pub fn set_qos(&self, qos: Qos) -> Result<(), StreamError> {
        let shared = &self.peer.shared;
        let set = shared.wait_for(None, |state| {
            let Some(session) = self.session_mut(state) else {
                return Some(Err(ClosedError(self.peer.key).into()));
            };
            match session.set_qos(Instant::now(), self.stream, qos) {
                Err(SendError::Changing(_)) => None,
                other => Some(other.map_err(StreamError::from)),
            }
        });
        shared.wake();
        set.unwrap_or(Err(ClosedError(self.peer.key).into()))
    }

    /// The quality of service of the samples in flight, and the one that it is being changed to;
    /// `None` when the stream has ended.
    pub fn qos(&self) -> Option<(Qos, Option<Qos>)> {
        let state = self.peer.shared.lock();
        let session = self.session(&state)?;
        session.sender().streams().qos(self.stream)
    }

    /// Waits until the peer has opened the stream: from then on samples go at once. Returns false
    /// after the timeout, or when the link has ended.
    ///
    /// # Errors
    /// When the peer refuses the stream, or its state is gone.
    pub fn wait_opened(&self, timeout: Duration) -> Result<bool, StreamError> {
        let opened = self
            .peer
            .shared
            .wait_for(Some(timeout), |state| self.find_opened(state));
        opened.unwrap_or(Ok(false))
    }

    /// Waits as [`wait_opened`](Self::wait_opened), on any executor and without a timeout. Returns false
    /// when the link has ended.
    ///
    /// # Errors
    /// As of [`wait_opened`](Self::wait_opened).
    pub async fn wait_opened_async(&self) -> Result<bool, StreamError> {
        let shared = &self.peer.shared;
        let opened =
            poll_fn(|context| shared.poll_for(context, |state| self.find_opened(state))).await;
        opened.unwrap_or(Ok(false))
    }

    /// Whether the stream is opened or refused; `None` before.
    fn find_opened(&self, state: &State) -> Option<Result<bool, StreamError>> {
        let Some(session) = self.session(state) else {
            return Some(Err(ClosedError(self.peer.key).into()));
        };
        match session.sender().streams().is_opened(self.stream) {
            Ok(false) => None,
            other => Some(other.map_err(StreamError::from)),
        }
    }

    /// The counters of the stream; `None` when all samples have come to an end after closing.
    pub fn counters(&self) -> Option<SendCounters> {
        let state = self.peer.shared.lock();
        let session = self.session(&state)?;
        session.sender().streams().counters(self.stream)
    }

    /// Waits until nothing is pending or in flight. Returns false after the timeout, or when the
    /// link has ended.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.peer
            .shared
            .wait_until(timeout, |state| self.is_empty(state))
    }

    /// Waits as [`flush`](Self::flush), on any executor and without a timeout. Returns false when the
    /// peer's state is gone, or the link has ended.
    pub async fn flush_async(&self) -> bool {
        poll_fn(|context| self.poll_flush(context)).await
    }

    /// Whether nothing is pending or in flight, as [`flush_async`](Self::flush_async). Otherwise the
    /// task is woken whenever that may have changed.
    pub fn poll_flush(&self, context: &Context<'_>) -> Poll<bool> {
        let shared = &self.peer.shared;
        shared.poll_until(context, |state| self.is_empty(state))
    }

    fn is_empty(&self, state: &State) -> Option<bool> {
        let session = self.session(state)?;
        let counters = session.sender().streams().counters(self.stream);
        Some(counters.is_none_or(|counters| counters.held == 0))
    }
}

impl Drop for OutgoingStream {
    fn drop(&mut self) {
        let mut state = self.peer.shared.lock();
        if let Some(session) = self.session_mut(&mut state) {
            session.close(Instant::now(), self.stream);
            state.forget_senders(self.peer.key, self.stream);
        }
        drop(state);
        self.peer.shared.wake();
    }
}

impl Incoming {
    pub(super) fn new(shared: &Arc<Shared>, state: &State, key: PublicKey, stream: u32) -> Self {
        Self {
            peer: Peer::new(Arc::clone(shared), key),
            stream,
            session: Self::session(state, key),
        }
    }

    /// The number of the session here, and that of the peer.
    fn session(state: &State, key: PublicKey) -> Option<(u64, u32)> {
        let of_peer = state.endpoint.session(&key)?.receiver().session?;
        Some((state.endpoint.session_number(&key)?, of_peer))
    }

    /// Whether the peer's session is still the same: a peer that restarted uses the number for
    /// another stream.
    fn is_valid(&self, state: &State) -> bool {
        Self::session(state, self.peer.key) == self.session
    }

    fn take(&self, state: &mut State) -> Option<LinkSample> {
        self.is_valid(state)
            .then(|| state.take(self.peer.key, self.stream))?
    }

    /// Whether no sample can come any more.
    fn has_ended(&self, state: &State) -> bool {
        let session = state.endpoint.session(&self.peer.key);
        let has_ended =
            session.is_none_or(|session| session.receiver().incoming().has_ended(self.stream));
        !self.is_valid(state) || has_ended
    }

    fn refuse(&self, why: Refusal) {
        let mut state = self.peer.shared.lock();
        if self.is_valid(&state) {
            state.refuse(self.peer.key, self.stream, why);
            self.peer.shared.settle_ready(&mut state);
        }
        drop(state);
        self.peer.shared.wake();
    }
}

impl IncomingStream {
    pub(super) fn new(incoming: Incoming, qos: Qos) -> Self {
        Self { incoming, qos }
    }

    /// The number of the stream, unique among the streams of its peer.
    pub fn id(&self) -> u32 {
        self.incoming.stream
    }

    /// The quality of service that the peer has opened it with, or changed it to.
    pub fn qos(&self) -> Qos {
        let incoming = &self.incoming;
        let state = incoming.peer.shared.lock();
        let session = state.endpoint.session(&incoming.peer.key);
        let known = session.and_then(|session| session.receiver().incoming().get(incoming.stream));
        known
            .filter(|_| incoming.is_valid(&state))
            .map_or(self.qos, |(_, qos)| qos)
    }

    /// Takes the oldest sample; waits for one up to the timeout. `None` after the timeout; and at once
    /// when the stream or the link has ended and all samples were taken, see
    /// [`has_ended`](Self::has_ended).
    pub fn receive(&self, timeout: Duration) -> Option<LinkSample> {
        let deadline = Instant::now() + timeout;
        block_on(self.receive_async(), Some(deadline), || true).flatten()
    }

    /// Takes the oldest sample; waits for one as long as `goes_on` returns true. It is asked first,
    /// and whenever this thread is unparked ([`std::thread::Thread::unpark`]), so another thread can
    /// end the wait. `None` also when the stream or the link has ended.
    pub fn receive_while(&self, goes_on: impl Fn() -> bool) -> Option<LinkSample> {
        block_on(self.receive_async(), None, goes_on).flatten()
    }

    /// Waits for the oldest sample, on any executor. `None` when the stream or the link has ended and
    /// all samples were taken.
    pub async fn receive_async(&self) -> Option<LinkSample> {
        let incoming = &self.incoming;
        let shared = &incoming.peer.shared;
        let stream = (incoming.peer.key, incoming.stream);
        let mut wait = SampleWait::new(shared);
        let taken = poll_fn(|context| {
            wait.poll(context, stream, |state| match incoming.take(state) {
                None => incoming.has_ended(state).then_some(None),
                taken => Some(taken),
            })
        })
        .await
        .flatten();
        if taken.is_some() {
            shared.wake();
        }
        taken
    }

    /// Whether no sample can come any more, and all were taken.
    pub fn has_ended(&self) -> bool {
        let state = self.incoming.peer.shared.lock();
        state.has_ended() || self.incoming.has_ended(&state)
    }

    /// Takes the oldest sample, if there is one.
    pub fn try_receive(&self) -> Option<LinkSample> {
        let shared = &self.incoming.peer.shared;
        let mut state = shared.lock();
        let taken = self.incoming.take(&mut state);
        shared.settle_ready(&mut state);
        drop(state);
        if taken.is_some() {
            shared.wake();
        }
        taken
    }

    /// Closes the stream: drops the samples that were not taken, which are counted, and those that
    /// arrive later. The peer learns the reason.
    pub fn close(self, why: Refusal) {
        self.incoming.refuse(why);
    }

    /// The counters of the stream; `None` when it has ended and all samples were taken.
    pub fn counters(&self) -> Option<ReceiveCounters> {
        let incoming = &self.incoming;
        let state = incoming.peer.shared.lock();
        let session = state.endpoint.session(&incoming.peer.key)?;
        let receiver = session.receiver();
        receiver
            .counters(incoming.stream)
            .filter(|_| !incoming.has_ended(&state))
    }
}

impl IncomingRequest {
    pub(super) fn new(incoming: Incoming, qos: Qos) -> Self {
        Self {
            incoming: Some(incoming),
            qos,
        }
    }

    /// The quality of service that the peer requests.
    pub fn qos(&self) -> Qos {
        self.qos
    }

    /// Accepts the stream. `None` when the peer has closed it meanwhile or lost its state, or there
    /// is no memory for it.
    pub fn accept(mut self) -> Option<IncomingStream> {
        let incoming = self.incoming.take()?;
        let peer = &incoming.peer;
        let mut state = peer.shared.lock();
        let accepted = incoming.is_valid(&state)
            && state
                .endpoint
                .session_mut(&peer.key)
                .is_some_and(|session| session.accept_stream(Instant::now(), incoming.stream));
        drop(state);
        peer.shared.wake();
        accepted.then(|| IncomingStream::new(incoming, self.qos))
    }

    /// Refuses the stream. The peer learns the reason.
    pub fn refuse(mut self, why: Refusal) {
        self.refuse_once(why);
    }

    fn refuse_once(&mut self, why: Refusal) {
        if let Some(incoming) = self.incoming.take() {
            incoming.refuse(why);
        }
    }
}

impl Drop for IncomingRequest {
    fn drop(&mut self) {
        self.refuse_once(Refusal::because("the application did not decide on it"));
    }
}
