//! A node: its handle and its events together.

use crate::connect;
use crate::error::{ConnectError, UnknownName};
use crate::handle::Handle;
use crate::receiving::{Actions, CallError, Event, Events, Ticket, Transforms};
use crate::sample::Sample;
use nervure_message::Encode;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A node of a running dataflow.
#[derive(Debug)]
pub struct Node {
    handle: Handle,
    events: Events,
}

impl Node {
    /// Connects to the keeper that started this program, or for which `nervure attach` runs it in
    /// place of a node. For a node without inputs from other nodes this returns when the whole
    /// dataflow is ready, so that no consumer misses its first samples.
    ///
    /// # Errors
    /// [`ConnectError`] if no keeper started the program, or the process has connected before.
    pub fn connect() -> Result<Self, ConnectError> {
        Self::connect_as("rust", || true)
    }

    pub(crate) fn connect_as(
        language: &str,
        go_on: impl FnMut() -> bool,
    ) -> Result<Self, ConnectError> {
        let (core, events) = connect::connect(language, go_on)?;
        let handle = Handle::new(core);
        Ok(Self { handle, events })
    }

    /// Connects over a control socket that the host of this component has got from the keeper.
    pub(crate) fn connect_over(control: OwnedFd, language: &str) -> Result<Self, ConnectError> {
        let (core, events) = connect::connect_over(control, language)?;
        let handle = Handle::new(core);
        Ok(Self { handle, events })
    }

    /// Joins a running dataflow as its node with that id, which has `path: dynamic` in the file.
    /// Without a name, the dataflow is the one that `NERVURE_DATAFLOW` names, or the only one that
    /// runs. When the node is dropped, its place is free, and it can be joined again. In a program
    /// that a keeper started this is [`Node::connect`], and the id has to be the program's own; so
    /// one program can be run both ways.
    ///
    /// ```no_run
    /// let mut node = nervure_node::Node::join(None, "plot")?;
    /// # Ok::<(), nervure_node::ConnectError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConnectError::Join`] if the dataflow or the node does not exist, or another process has
    /// joined as that node. Its message lists the dataflows that run.
    pub fn join(dataflow: Option<&str>, node: &str) -> Result<Self, ConnectError> {
        Self::join_as(dataflow, node, "rust", || true)
    }

    pub(crate) fn join_as(
        dataflow: Option<&str>,
        node: &str,
        language: &str,
        go_on: impl FnMut() -> bool,
    ) -> Result<Self, ConnectError> {
        let (core, events) = connect::join(dataflow, node, language, go_on)?;
        let handle = Handle::new(core);
        Ok(Self { handle, events })
    }

    /// Waits for the next event. Returns `None` after [`Event::Stop`].
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator would borrow the node, which has to send inside the loop"
    )]
    pub fn next(&mut self) -> Option<Event> {
        self.events.next()
    }

    /// Waits at most `timeout` for the next event. Returns `None` after the timeout or
    /// [`Event::Stop`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<Event> {
        self.events.next_timeout(timeout)
    }

    /// Returns the next event if there is one, without waiting.
    pub fn try_next(&mut self) -> Option<Event> {
        self.events.try_next()
    }

    /// Sends a request to a service, and waits for its answer, at most for `timeout`. Samples of
    /// other inputs stay in their queues meanwhile.
    ///
    /// # Errors
    /// [`CallError`], also if the service's node ends before it answers.
    pub fn call<V: Encode + ?Sized>(
        &mut self,
        client: &str,
        value: &V,
        timeout: Option<Duration>,
    ) -> Result<Sample, CallError> {
        self.events.call(client, value, timeout)
    }

    /// Sends a request to a service without waiting, for several requests at a time.
    /// [`Node::take_answer`] returns the answer.
    ///
    /// # Errors
    /// As [`Node::call`].
    pub fn begin_call<V: Encode + ?Sized>(
        &mut self,
        client: &str,
        value: &V,
    ) -> Result<Ticket, CallError> {
        self.events.begin_call(client, value)
    }

    /// The goals that the node sends to actions.
    ///
    /// ```no_run
    /// # use std::{ops::ControlFlow, time::Duration};
    /// # let mut node = nervure_node::Node::connect()?;
    /// let limit = Some(Duration::from_secs(60));
    /// let reached = node.actions().run("go", &[2.0, 3.5][..], limit, |feedback| {
    ///     println!("{} bytes of feedback", feedback.bytes().len());
    ///     ControlFlow::Continue(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn actions(&mut self) -> Actions<'_> {
        Actions::new(&mut self.events)
    }

    /// Takes the answer to a request, if it has arrived. Each answer is returned once.
    pub fn take_answer(&mut self, ticket: Ticket) -> Option<Result<Sample, CallError>> {
        self.events.take_answer(ticket)
    }

    /// Abandons a request: its answer is dropped when it arrives.
    pub fn forget_call(&mut self, ticket: Ticket) {
        self.events.forget_call(ticket);
    }

    /// Returns the newest sample of an input without waiting: from its queue, or else the newest
    /// that was received before. The older samples of the queue are skipped, and not delivered as
    /// events.
    ///
    /// # Errors
    /// [`UnknownName`], which lists the inputs, if the node has no such input.
    pub fn latest(&mut self, input: &str) -> Result<Option<Sample>, UnknownName> {
        self.events.latest(input)
    }

    /// The transforms between frames, for lookups. The node has `transforms: true` in the dataflow file,
    /// and gets those of `static_transforms` and of every output of the type `std/Transform@1`.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let mut node = nervure_node::Node::connect()?;
    /// # let stamp = node.now();
    /// let wait = Duration::from_millis(50);
    /// let map_from_camera = node.transforms().lookup("map", "camera", stamp, wait)?;
    /// let point = map_from_camera.apply([0.0, 0.0, 1.5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn transforms(&mut self) -> Transforms<'_> {
        self.events.transforms()
    }

    /// The parts of the node that any thread may use.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Splits the node, to send and receive in different places.
    pub fn split(self) -> (Handle, Events) {
        (self.handle, self.events)
    }
}

impl std::ops::Deref for Node {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}
