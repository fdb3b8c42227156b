//! Events, and the ways to receive them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use dora_node_api::futures::executor::block_on;
use dora_node_api::{DoraArray, Event, EventStream, Metadata, PatternError, TryRecvError};
use eyre::{Result, bail};

/// The events of a node. In a cell, since C++ checks for emptiness through a constant reference.
#[derive(Debug)]
pub struct Events(RefCell<EventStream>);

/// Result of a call that receives.
#[derive(Debug)]
pub enum DoraEvent {
    Event(Event),
    /// There are no more events.
    Closed,
    /// There is no event yet.
    Empty,
    TimedOut,
}

/// The name, the metadata and the data of an input.
pub type Parts = (String, Metadata, DoraArray);

impl DoraEvent {
    pub fn input(self) -> Result<Parts> {
        match self {
            Self::Event(Event::Input { id, metadata, data }) => Ok((id.into(), metadata, data)),
            _ => bail!("the event is not an input"),
        }
    }
}

/// The bytes of an array of `UInt8`; none of a timer.
pub fn bytes(id: &str, data: &DoraArray) -> Result<Vec<u8>> {
    match data.type_name().as_str() {
        "Null" => Ok(Vec::new()),
        "UInt8" => Vec::try_from(data),
        other => bail!("input {id} is of type {other}, expected UInt8: use `event_as_arrow_input`"),
    }
}

impl Events {
    pub fn new(events: EventStream) -> Self {
        Self(RefCell::new(events))
    }

    pub fn next(&mut self) -> Box<DoraEvent> {
        Box::new(match self.0.get_mut().recv() {
            Some(event) => DoraEvent::Event(event),
            None => DoraEvent::Closed,
        })
    }

    pub fn within(&mut self, timeout: Duration) -> DoraEvent {
        received(self.0.get_mut().recv_within(timeout), DoraEvent::TimedOut)
    }

    pub fn poll(&mut self) -> DoraEvent {
        received(self.0.get_mut().try_recv(), DoraEvent::Empty)
    }

    pub fn is_empty(&self) -> bool {
        self.0.borrow_mut().is_empty()
    }

    pub fn drain(&mut self) -> DrainedEvents {
        let drained = self.0.get_mut().drain().unwrap_or_default();
        DrainedEvents(drained.into())
    }

    /// Waits for the response to a request.
    pub fn response(
        &mut self,
        request_id: &str,
        server: &str,
        timeout: Duration,
    ) -> Result<Event, PatternError> {
        let (events, server) = (self.0.get_mut(), server.into());
        block_on(events.recv_service_response(request_id, &server, timeout))
    }

    /// Waits for the end of an action.
    pub fn result(
        &mut self,
        goal_id: &str,
        server: &str,
        timeout: Duration,
    ) -> Result<Event, PatternError> {
        let (events, server) = (self.0.get_mut(), server.into());
        block_on(events.recv_action_result(goal_id, &server, timeout))
    }
}

fn received(event: Result<Event, TryRecvError>, otherwise: DoraEvent) -> DoraEvent {
    match event {
        Ok(event) => DoraEvent::Event(event),
        Err(TryRecvError::Closed) => DoraEvent::Closed,
        Err(TryRecvError::Empty) => otherwise,
    }
}

/// Events that were taken out of a stream.
#[derive(Debug)]
pub struct DrainedEvents(pub VecDeque<Event>);

/// The events of a node, or none. Streams of ROS 2, which dora merges into them, do not exist here.
#[derive(Debug)]
pub struct MergedEvents(pub Option<Box<Events>>);

/// An event of [`MergedEvents`].
#[derive(Debug)]
pub struct MergedDoraEvent(pub Box<DoraEvent>);
