//! Events and sends for async programs, on any executor.

use crate::receiving::{CallError, Event, Events, Next, Ticket};
use crate::sample::Sample;
use crate::sending::Publisher;
use async_io::{Async, Timer};
use futures_core::Stream;
use nervure_message::Encode;
use nervure_shm::{Receipt, SendError, monotonic_nanos};
use rustix::fd::OwnedFd;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The events of a node as a stream that ends after [`Event::Stop`].
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
    /// If the reactor cannot be started, or the eventfd not be duplicated.
    pub fn stream(self) -> io::Result<EventStream> {
        let eventfd = Async::new(self.eventfd().try_clone_to_owned()?)?;
        Ok(EventStream {
            events: self,
            eventfd,
            timer: Timer::never(),
            armed: false,
        })
    }
}

impl EventStream {
    /// Sends a request to a service, and waits for its answer without blocking the executor, at
    /// most for `timeout`. Samples of other inputs stay in their queues meanwhile. If the future is
    /// dropped, the request is abandoned: its answer is dropped when it arrives.
    ///
    /// # Errors
    /// As [`crate::Node::call`].
    pub async fn call<V: Encode + ?Sized>(
        &mut self,
        client: &str,
        value: &V,
        timeout: Option<Duration>,
    ) -> Result<Sample, CallError> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let ticket = self.events.begin_call(client, value)?;
        let mut call = Call {
            stream: self,
            ticket,
        };
        match poll_fn(|context| call.poll(until, context)).await {
            Some(answer) => answer,
            None => {
                let service = call.stream.events.service_of(ticket).to_owned();
                Err(CallError::TimedOut {
                    service,
                    timeout: timeout.unwrap_or_default(),
                })
            }
        }
    }

    fn disarm(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.events.disarm();
        }
    }

    /// Whether there may be news, or `until` has passed. If not, the task is woken as soon as one
    /// of them is true. Call it with the eventfd armed.
    fn is_ready(&mut self, until: Instant, context: &mut Context<'_>) -> bool {
        self.timer.set_at(until);
        let readable = self.eventfd.poll_readable(context).is_ready();
        Pin::new(&mut self.timer).poll(context).is_ready() || readable
    }
}

/// A request in flight, which is abandoned when this is dropped.
struct Call<'a> {
    stream: &'a mut EventStream,
    ticket: Ticket,
}

impl Call<'_> {
    /// The answer; `None` if it did not arrive in time.
    fn poll(
        &mut self,
        until: Option<Instant>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Sample, CallError>>> {
        let stream = &mut *self.stream;
        loop {
            stream.disarm();
            if let Some(answer) = stream.events.take_answer(self.ticket) {
                return Poll::Ready(Some(answer));
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Poll::Ready(None);
            }
            stream.armed = stream.events.arm();
            if !stream.armed {
                continue;
            }
            let look = instant_of(stream.events.next_deadline_for_answer(None));
            if !stream.is_ready(until.map_or(look, |until| until.min(look)), context) {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.stream.disarm();
        self.stream.events.forget_call(self.ticket);
    }
}

impl Stream for EventStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let this = &mut *self;
        loop {
            this.disarm();
            match this.events.poll() {
                Ok(Next::Event(event)) => return Poll::Ready(Some(event)),
                Ok(Next::Nothing) => {}
                Ok(Next::End) | Err(_) => return Poll::Ready(None),
            }
            this.armed = this.events.arm();
            if !this.armed {
                continue;
            }
            let until = instant_of(this.events.next_deadline());
            if !this.is_ready(until, context) {
                return Poll::Pending;
            }
        }
    }
}

/// The instant at which CLOCK_MONOTONIC reads `deadline` nanoseconds, or now if that has passed.
fn instant_of(deadline: u64) -> Instant {
    Instant::now() + Duration::from_nanos(deadline.saturating_sub(monotonic_nanos()))
}

impl Publisher {
    /// Sends a value without blocking the executor: at once if every consumer has room, otherwise
    /// on a thread of the `blocking` pool.
    ///
    /// # Errors
    /// As [`Publisher::send`].
    pub async fn send_async<V: Encode + Send + 'static>(
        &self,
        value: V,
    ) -> Result<Receipt, SendError> {
        match self.try_send(&value) {
            Err(SendError::WouldBlock { .. } | SendError::Paused) => {
                let publisher = self.clone();
                blocking::unblock(move || publisher.send(&value)).await
            }
            result => result,
        }
    }
}
