//! The events of a node.

mod convert;
mod event;
pub mod merged;
mod patterns;
mod tracker;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::executor::block_on;
use futures::future::{Either, poll_fn, select};
use futures::stream::{Stream, StreamExt};
use futures_timer::Delay;
use nervure_node::{Events, Handle, Next, binding, monotonic_nanos};

pub use event::{Event, StopCause};
pub use tracker::{InputState, InputTracker};

use convert::Converter;

/// Why [`EventStream::try_recv`] has no event.
#[derive(Debug)]
pub enum TryRecvError {
    /// There is no event yet.
    Empty,
    /// There are no more events.
    Closed,
}

/// Keeps the receiving half of a node when its stream is dropped: the node can still send.
pub(crate) type Kept = Arc<Mutex<Option<Events>>>;

/// The events of a node, for blocking and async programs.
#[derive(Debug)]
pub struct EventStream {
    source: Source,
    converter: Converter,
    /// Events that are converted and not delivered.
    pending: VecDeque<Event>,
    /// Events that arrived while the program waited for an answer.
    set_aside: VecDeque<Event>,
    kept: Kept,
}

#[derive(Debug)]
enum Source {
    Blocking(Events),
    /// Since the first async call. In a mutex, which is never locked, so that streams are `Sync`.
    Async(Mutex<nervure_node::EventStream>),
    /// Between the two, and after an error.
    None,
}

impl EventStream {
    pub(crate) fn new(handle: &Handle, mut events: Events, kept: Kept) -> Self {
        binding::deliver_samples_after_stop(&mut events);
        Self {
            source: Source::Blocking(events),
            converter: Converter::new(handle),
            pending: VecDeque::new(),
            set_aside: VecDeque::new(),
            kept,
        }
    }

    /// Waits for the next event. Returns `None` after [`Event::Stop`] and the samples that follow it.
    pub fn recv(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.next_converted() {
                return Some(event);
            }
            match &mut self.source {
                Source::Blocking(events) => {
                    let event = events.next()?;
                    self.convert(event);
                }
                _ => return block_on(self.recv_async()),
            }
        }
    }

    /// Waits at most `dur` for the next event. Returns [`Event::Error`] after the timeout, and `None`
    /// as [`EventStream::recv`] does.
    pub fn recv_timeout(&mut self, dur: Duration) -> Option<Event> {
        match self.recv_within(dur) {
            Ok(event) => Some(event),
            Err(TryRecvError::Empty) => Some(timed_out()),
            Err(TryRecvError::Closed) => None,
        }
    }

    /// As [`EventStream::recv_timeout`], for dora's C++ API: a timeout is [`TryRecvError::Empty`].
    #[doc(hidden)]
    pub fn recv_within(&mut self, dur: Duration) -> Result<Event, TryRecvError> {
        let nanos = u64::try_from(dur.as_nanos()).unwrap_or(u64::MAX);
        let deadline = monotonic_nanos().saturating_add(nanos);
        loop {
            if let Some(event) = self.next_converted() {
                return Ok(event);
            }
            let rest = deadline.saturating_sub(monotonic_nanos());
            match &mut self.source {
                Source::Blocking(events) => match events.poll() {
                    Ok(Next::Event(event)) => self.convert(event),
                    Ok(Next::Nothing) if rest == 0 => return Err(TryRecvError::Empty),
                    Ok(Next::Nothing) => drop(events.wait(Some(deadline))),
                    Ok(Next::End) | Err(_) => return Err(TryRecvError::Closed),
                },
                _ => {
                    let rest = Duration::from_nanos(rest);
                    let received = poll_fn(|context| self.poll_event(context));
                    return match block_on(select(received, Delay::new(rest))) {
                        Either::Left((event, _)) => event.ok_or(TryRecvError::Closed),
                        Either::Right(_) => Err(TryRecvError::Empty),
                    };
                }
            }
        }
    }

    /// Whether no event can be received without waiting.
    pub fn is_empty(&mut self) -> bool {
        match self.try_recv() {
            Ok(event) => {
                self.set_aside.push_front(event);
                false
            }
            Err(_) => true,
        }
    }

    /// Returns the next event if there is one, without waiting.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`], or [`TryRecvError::Closed`] where [`EventStream::recv`] returns `None`.
    pub fn try_recv(&mut self) -> Result<Event, TryRecvError> {
        loop {
            if let Some(event) = self.next_converted() {
                return Ok(event);
            }
            let Source::Blocking(events) = &mut self.source else {
                let mut context = Context::from_waker(Waker::noop());
                return match self.poll_event(&mut context) {
                    Poll::Ready(Some(event)) => Ok(event),
                    Poll::Ready(None) => Err(TryRecvError::Closed),
                    Poll::Pending => Err(TryRecvError::Empty),
                };
            };
            match events.poll() {
                Ok(Next::Event(event)) => self.convert(event),
                Ok(Next::Nothing) => return Err(TryRecvError::Empty),
                Ok(Next::End) | Err(_) => return Err(TryRecvError::Closed),
            }
        }
    }

    /// Returns the events that are there, without waiting; `None` if there will be no more.
    pub fn drain(&mut self) -> Option<Vec<Event>> {
        let mut events = Vec::new();
        loop {
            match self.try_recv() {
                Ok(event) => events.push(event),
                Err(TryRecvError::Closed) if events.is_empty() => return None,
                Err(_) => return Some(events),
            }
        }
    }

    /// Waits for the next event. Returns `None` as [`EventStream::recv`] does.
    pub async fn recv_async(&mut self) -> Option<Event> {
        poll_fn(|context| self.poll_event(context)).await
    }

    /// Waits at most `dur` for the next event. Returns [`Event::Error`] after the timeout, and `None`
    /// as [`EventStream::recv`] does.
    pub async fn recv_async_timeout(&mut self, dur: Duration) -> Option<Event> {
        let received = poll_fn(|context| self.poll_event(context));
        match select(received, Delay::new(dur)).await {
            Either::Left((event, _)) => event,
            Either::Right(_) => Some(timed_out()),
        }
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            if let Some(event) = self.next_converted() {
                return Poll::Ready(Some(event));
            }
            match &mut self.source {
                Source::Async(stream) => {
                    let stream = stream.get_mut().unwrap_or_else(PoisonError::into_inner);
                    match stream.poll_next_unpin(context) {
                        Poll::Ready(Some(event)) => self.convert(event),
                        Poll::Ready(None) => return Poll::Ready(None),
                        Poll::Pending => return Poll::Pending,
                    }
                }
                Source::Blocking(_) => self.become_async(),
                Source::None => return Poll::Ready(None),
            }
        }
    }

    fn become_async(&mut self) {
        let Source::Blocking(events) = std::mem::replace(&mut self.source, Source::None) else {
            return;
        };
        match events.stream() {
            Ok(stream) => self.source = Source::Async(Mutex::new(stream)),
            Err(error) => {
                let error = format!("the events cannot be received asynchronously: {error}");
                self.pending.push_back(Event::Error(error));
            }
        }
    }

    fn convert(&mut self, event: nervure_node::Event) {
        self.converter.convert(event, &mut self.pending);
    }

    fn next_converted(&mut self) -> Option<Event> {
        let set_aside = self.set_aside.pop_front();
        set_aside.or_else(|| self.pending.pop_front())
    }
}

impl Stream for EventStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.poll_event(context)
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        if let Source::Blocking(events) = std::mem::replace(&mut self.source, Source::None) {
            // The node may be dropped already: then this is the last owner.
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            *kept = Some(events);
        }
    }
}

fn timed_out() -> Event {
    Event::Error("Timeout event stream error: Receiver timed out".to_owned())
}
