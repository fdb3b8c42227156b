//! Events and sends for async programs, whatever their executor.

use crate::event::Event;
use crate::events::{Events, Next};
use crate::publisher::Publisher;
use async_io::{Async, Timer};
use futures_core::Stream;
use nervure_message::Encode;
use nervure_shm::{Receipt, SendError, monotonic_nanos};
use rustix::fd::OwnedFd;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The events of a node as a stream, which ends after [`Event::Stop`].
#[derive(Debug)]
pub struct EventStream {
    events: Events,
    eventfd: Async<OwnedFd>,
    timer: Timer,
    armed: bool,
}

impl Events {
    /// Turns the events into a stream.
    ///
    /// # Errors
    /// When the reactor cannot be started.
    pub fn stream(self) -> io::Result<EventStream> {
        let eventfd = Async::new(self.eventfd().try_clone_to_owned()?)?;
        Ok(EventStream { events: self, eventfd, timer: Timer::never(), armed: false })
    }
}

impl Stream for EventStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let this = &mut *self;
        loop {
            if std::mem::take(&mut this.armed) {
                this.events.disarm();
            }
            match this.events.poll() {
                Ok(Next::Event(event)) => return Poll::Ready(Some(event)),
                Ok(Next::Nothing) => {}
                Ok(Next::End) | Err(_) => return Poll::Ready(None),
            }
            this.armed = this.events.arm();
            if !this.armed {
                continue;
            }
            let wait = |deadline: u64| Duration::from_nanos(deadline.saturating_sub(monotonic_nanos()));
            match this.events.next_deadline().map(wait) {
                Some(wait) => this.timer.set_at(Instant::now() + wait),
                None => this.timer = Timer::never(),
            }
            let readable = this.eventfd.poll_readable(context).is_ready();
            let due = Pin::new(&mut this.timer).poll(context).is_ready();
            if !readable && !due {
                return Poll::Pending;
            }
        }
    }
}

impl Publisher {
    /// Sends a value without blocking the executor: at once where there is room, and else on a thread of its own pool.
    ///
    /// # Errors
    /// As [`Publisher::send`].
    pub async fn send_async<V: Encode + Send + 'static>(&self, value: V) -> Result<Receipt, SendError> {
        match self.try_send(&value) {
            Err(SendError::WouldBlock { .. }) => {
                let publisher = self.clone();
                blocking::unblock(move || publisher.send(&value)).await
            }
            result => result,
        }
    }
}
