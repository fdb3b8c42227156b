//! Receiving: one stream of events over all inputs, timers and the keeper's messages.
//!
//! Order: Stop first, then what the keeper has to say, then timers, then inputs round-robin. A timer that is due again
//! right after its tick lets one sample pass first, so that a slow handler of ticks cannot starve the inputs. Between
//! inputs there is no order of arrival: each is in its own order.

use crate::error::UnknownName;
use crate::event::Event;
use crate::node::Core;
use crate::sample::Sample;
use crate::timer::{Due, Timer};
use nervure_protocol::node_to_keeper::Message;
use nervure_protocol::wiring::Source;
use nervure_shm::{Arrival, Inbox, InboxHandle, NodeForked, Waited, monotonic_nanos};
use rustix::fd::BorrowedFd;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The receiving half of a node.
#[derive(Debug)]
pub struct Events {
    core: Arc<Core>,
    pub(crate) inbox: Inbox,
    names: Vec<Arc<str>>,
    timers: Vec<Timer>,
    /// Told by the keeper, not yet delivered.
    told: VecDeque<Event>,
    stop: Option<String>,
    /// Data inputs that are not closed.
    open_inputs: usize,
    newest: Vec<Newest>,
    ticked: bool,
    ended: bool,
}

/// What [`Events::latest`] remembers of an input.
#[derive(Clone, Debug, Default)]
struct Newest {
    /// Whether anybody asked; only then is a sample kept.
    wanted: bool,
    sample: Option<Sample>,
}

/// Waits in the place of [`Events`], which others may use meanwhile.
#[derive(Clone, Debug)]
pub struct Waiter(InboxHandle);

/// What [`Events::poll`] found.
#[derive(Clone, Debug)]
pub enum Next {
    /// An event.
    Event(Event),
    /// Nothing yet.
    Nothing,
    /// There will be no more.
    End,
}

impl Events {
    pub(crate) fn new(core: Arc<Core>, inbox: Inbox) -> Self {
        let inputs = &core.welcome.inputs;
        let timers = inputs.iter().enumerate().filter_map(|(index, input)| match input.source {
            Source::Timer { period_nanos } => Some(Timer::new(index, period_nanos)),
            Source::Output { .. } => None,
        });
        let timers = timers.collect::<Vec<_>>();
        Self {
            names: inputs.iter().map(|input| Arc::from(input.name.as_str())).collect(),
            newest: vec![Newest::default(); inputs.len()],
            open_inputs: inputs.len() - timers.len(),
            timers,
            told: VecDeque::new(),
            stop: None,
            ticked: false,
            ended: false,
            inbox,
            core,
        }
    }

    /// Waits for the next event. `None` after [`Event::Stop`].
    #[expect(
        clippy::should_implement_trait,
        reason = "the same name as on `Node`, which cannot be an iterator"
    )]
    pub fn next(&mut self) -> Option<Event> {
        self.next_until(None)
    }

    /// Waits at most `timeout` for the next event.
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<Event> {
        let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.next_until(Some(monotonic_nanos().saturating_add(nanos)))
    }

    /// The next event, if there is one.
    pub fn try_next(&mut self) -> Option<Event> {
        match self.poll() {
            Ok(Next::Event(event)) => Some(event),
            _ => None,
        }
    }

    fn next_until(&mut self, deadline: Option<u64>) -> Option<Event> {
        loop {
            match self.poll() {
                Ok(Next::Event(event)) => return Some(event),
                Ok(Next::Nothing) => {}
                Ok(Next::End) => return None,
                Err(forked) => panic!("{forked}"),
            }
            if deadline.is_some_and(|deadline| monotonic_nanos() >= deadline) {
                return None;
            }
            self.wait(deadline);
        }
    }

    /// The next event, without waiting, with the reason why there is none.
    ///
    /// # Errors
    /// [`NodeForked`] in a forked child.
    pub fn poll(&mut self) -> Result<Next, NodeForked> {
        if self.ended {
            return Ok(Next::End);
        }
        loop {
            if let Some(event) = self.told_or_timer() {
                return Ok(Next::Event(event));
            }
            let arrival = self.inbox.try_next()?;
            let was_ticked = std::mem::take(&mut self.ticked);
            match arrival {
                Some(arrival) => {
                    if let Some(event) = self.arrived(arrival) {
                        return Ok(Next::Event(event));
                    }
                }
                // Nothing passed after the tick: look at the timers again.
                None if was_ticked => {}
                None => return Ok(Next::Nothing),
            }
        }
    }

    /// Waits for news until `deadline` (nanoseconds of CLOCK_MONOTONIC), or until a timer is due. Call it when
    /// [`Events::poll`] found nothing.
    pub fn wait(&self, deadline: Option<u64>) -> Waited {
        let timer = self.next_deadline();
        self.inbox.wait(timer.into_iter().chain(deadline).min())
    }

    /// For those who keep the events behind a lock, and do not hold it while they wait.
    pub fn waiter(&self) -> Waiter {
        Waiter(self.inbox.handle())
    }

    /// When a timer is due next, in nanoseconds of CLOCK_MONOTONIC.
    pub fn next_deadline(&self) -> Option<u64> {
        self.timers.iter().filter_map(|timer| timer.deadline(&self.core.clock)).min()
    }

    /// For event loops: asks for [`Events::eventfd`] to become readable at the next news (timers apart: see
    /// [`Events::next_deadline`]). False when there is news already.
    pub fn arm(&self) -> bool {
        self.inbox.arm()
    }

    /// Ends what [`Events::arm`] began.
    pub fn disarm(&self) {
        self.inbox.disarm();
    }

    /// See [`Events::arm`].
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        self.inbox.eventfd()
    }

    /// See [`crate::Node::latest`].
    ///
    /// # Errors
    /// [`UnknownName`] with the names of the inputs.
    pub fn latest(&mut self, input: &str) -> Result<Option<Sample>, UnknownName> {
        let Some(index) = self.names.iter().position(|name| &**name == input) else {
            return Err(UnknownName {
                node: self.core.welcome.node.clone(),
                kind: "input",
                name: input.to_owned(),
                known: self.names.iter().map(ToString::to_string).collect(),
            });
        };
        // Edges that were attached meanwhile are taken in first.
        self.inbox.refresh();
        let newest = &mut self.newest[index];
        newest.wanted = true;
        if let Ok(Some(raw)) = self.inbox.take_newest(index as u32) {
            newest.sample = Some(Sample::new(raw));
        }
        Ok(newest.sample.clone())
    }

    /// Takes over what the control thread has heard.
    pub(crate) fn absorb(&mut self) {
        let mut news = self.core.news();
        self.told.append(&mut news.events);
        if let Some(reason) = news.stop.take() {
            self.stop.get_or_insert(reason);
            // Whoever waits in `connect` looks at it.
            news.stop = self.stop.clone();
        }
        if news.started {
            let now = self.core.clock.read(monotonic_nanos()).1;
            for timer in &mut self.timers {
                timer.start(now);
            }
        }
    }

    fn told_or_timer(&mut self) -> Option<Event> {
        if let Some(reason) = self.stop.take() {
            self.ended = true;
            return Some(Event::Stop { reason });
        }
        if let Some(event) = self.told.pop_front() {
            return Some(event);
        }
        if self.ticked || self.timers.is_empty() {
            return None;
        }
        let now = self.core.clock.read(monotonic_nanos()).1;
        let Due { input, due, missed } = self.timers.iter_mut().find_map(|timer| timer.take(now))?;
        self.ticked = true;
        Some(Event::Tick { id: self.names[input].clone(), due, missed })
    }

    fn arrived(&mut self, arrival: Arrival) -> Option<Event> {
        match arrival {
            Arrival::Sample { input, sample } => {
                let sample = Sample::new(sample);
                let newest = &mut self.newest[input as usize];
                if newest.wanted {
                    newest.sample = Some(sample.clone());
                }
                Some(Event::Input { id: self.names[input as usize].clone(), sample })
            }
            Arrival::Closed { input } => {
                self.open_inputs -= 1;
                if self.open_inputs == 0 && self.timers.is_empty() {
                    self.stop.get_or_insert_with(|| "all inputs are closed".to_owned());
                }
                // The input's own event comes before the stop that follows from it.
                Some(Event::InputClosed { id: self.names[input as usize].clone() })
            }
            Arrival::Misbehaved { input, edge, misbehaviour } => {
                let name = &self.names[input as usize];
                eprintln!("nervure: input {name} is cut off from its producer: {misbehaviour}");
                self.core.tell(&Message::Misbehaviour { edge, what: misbehaviour.to_string() });
                None
            }
            Arrival::Notified => {
                self.absorb();
                None
            }
        }
    }
}

impl Waiter {
    /// Waits for news until `deadline` (nanoseconds of CLOCK_MONOTONIC), which has to be no later than
    /// [`Events::next_deadline`]. One thread at a time may wait, and none while the events are armed.
    pub fn wait(&self, deadline: Option<u64>) -> Waited {
        self.0.wait(deadline)
    }

    /// Ends the wait of another thread, present or next: news that it waits for may have been taken in by
    /// [`Events::poll`] or [`Events::latest`] of this one.
    pub fn wake(&self) {
        self.0.notify();
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // In a forked child the node is the parent's.
        if self.inbox.is_own() {
            self.core.tell(&Message::Goodbye);
        }
    }
}
