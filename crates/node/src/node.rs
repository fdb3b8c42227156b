//! A node, and the parts of it that can be shared.

use crate::ParamValue;
use crate::calls::{CallError, Ticket};
use crate::connect;
use crate::error::{ConnectError, UnknownName};
use crate::event::Event;
use crate::events::Events;
use crate::publisher::{Envelope, Publisher};
use crate::sample::Sample;
use nervure_message::Encode;
use nervure_protocol::keeper_to_node::Welcome;
use nervure_protocol::node_to_keeper::Message;
use nervure_protocol::params::Param;
use nervure_shm::{
    ControlPage, NodeForked, Output, Producer, Receipt, RunState, SendError, Seqpacket, Wait,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

/// What all handles of a node share, the control thread included.
pub(crate) struct Core {
    pub(crate) welcome: Welcome,
    pub(crate) socket: Arc<Seqpacket>,
    pub(crate) clock: ControlPage,
    pub(crate) producer: Producer,
    pub(crate) outputs: Vec<Output>,
    pub(crate) stop: Arc<AtomicBool>,
    fork_generation: u32,
    news: Mutex<News>,
    params: RwLock<Vec<Param>>,
}

/// What the control thread has heard and the node's program not yet taken.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) events: VecDeque<Event>,
    /// Why the node shall stop.
    pub(crate) stop: Option<String>,
    /// Why it shall stop once everything that is queued was received.
    pub(crate) stop_when_drained: Option<String>,
    pub(crate) wired: bool,
    pub(crate) started: bool,
    pub(crate) keeper_gone: bool,
}

impl Core {
    pub(crate) fn new(
        welcome: Welcome,
        socket: Arc<Seqpacket>,
        clock: ControlPage,
        producer: Producer,
        outputs: Vec<Output>,
    ) -> Self {
        let stop = producer.stopping.clone();
        let fork_generation = nervure_shm::fork_generation();
        let params = RwLock::new(welcome.params.clone());
        let news = Mutex::default();
        Self {
            welcome,
            socket,
            clock,
            producer,
            outputs,
            stop,
            fork_generation,
            news,
            params,
        }
    }

    pub(crate) fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fork_generation(&self) -> u32 {
        self.fork_generation
    }

    pub(crate) fn params(&self) -> RwLockReadGuard<'_, Vec<Param>> {
        self.params.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keeper has changed a parameter. False where there is no such parameter.
    pub(crate) fn set_param(&self, param: &Param) -> bool {
        let mut params = self.params.write().unwrap_or_else(PoisonError::into_inner);
        let known = params.iter_mut().find(|known| known.name == param.name);
        known
            .map(|known| known.value = param.value.clone())
            .is_some()
    }

    /// Tells the keeper. When its socket is full or closed the keeper has other worries.
    pub(crate) fn tell(&self, message: &Message) {
        self.try_tell(message);
    }

    /// As [`Core::tell`]. False when the socket is full, so that it has to be tried again.
    pub(crate) fn try_tell(&self, message: &Message) -> bool {
        let Ok(bytes) = nervure_protocol::encode(message) else {
            return true;
        };
        let sent = self.socket.send(&bytes, &[]);
        !matches!(sent, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Whether the node begins by itself: it waits for nobody's samples.
    pub(crate) fn is_source(&self) -> bool {
        use nervure_protocol::wiring::Source;
        let is_answers = |at: usize| {
            self.welcome
                .clients
                .iter()
                .any(|client| client.input as usize == at)
        };
        let mut inputs = self.welcome.inputs.iter().enumerate();
        inputs.all(|(at, input)| matches!(input.source, Source::Timer { .. }) || is_answers(at))
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("node", &self.welcome.node)
            .finish_non_exhaustive()
    }
}

/// A node of a running dataflow.
#[derive(Debug)]
pub struct Node {
    pub(crate) handle: Handle,
    events: Events,
}

/// The parts of a node that any thread may use. Clones are the same node.
#[derive(Clone, Debug)]
pub struct Handle(pub(crate) Arc<Core>);

impl Node {
    /// Connects to the keeper that started this program, or in whose node's place `nervure attach` runs it. A node that waits for nobody's samples returns when the
    /// dataflow is ready, so that nobody misses its first ones.
    ///
    /// # Errors
    /// [`ConnectError`] when the program was not started by a keeper, or a second time in one process.
    pub fn connect() -> Result<Self, ConnectError> {
        Self::connect_as("rust", || true)
    }

    /// As [`Node::connect`], for bindings: `language` is told to the keeper, and `go_on` is asked while it waits, soon
    /// after each signal.
    ///
    /// # Errors
    /// As [`Node::connect`], and [`ConnectError::Interrupted`] when `go_on` returns false.
    pub fn connect_as(language: &str, go_on: impl FnMut() -> bool) -> Result<Self, ConnectError> {
        let (core, events) = connect::connect(language, go_on)?;
        Ok(Self {
            handle: Handle(core),
            events,
        })
    }

    /// Joins a dataflow that runs as its node of that id, which has `path: dynamic` in the file: the dataflow of that
    /// name, that which `NERVURE_DATAFLOW` names, or the only one. Dropping the node gives its place back; it can be
    /// joined again. In a program that a keeper started it is [`Node::connect`], and the id has to be its own, so that
    /// one program can be both.
    ///
    /// ```no_run
    /// let mut node = nervure_node::Node::join(None, "plot")?;
    /// # Ok::<(), nervure_node::ConnectError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConnectError::Join`] says which dataflows run, that there is no such node, or who has it.
    pub fn join(dataflow: Option<&str>, node: &str) -> Result<Self, ConnectError> {
        Self::join_as(dataflow, node, "rust", || true)
    }

    /// As [`Node::join`], for bindings: see [`Node::connect_as`].
    ///
    /// # Errors
    /// As [`Node::join`], and [`ConnectError::Interrupted`] when `go_on` returns false.
    pub fn join_as(
        dataflow: Option<&str>,
        node: &str,
        language: &str,
        go_on: impl FnMut() -> bool,
    ) -> Result<Self, ConnectError> {
        let (core, events) = connect::join(dataflow, node, language, go_on)?;
        Ok(Self {
            handle: Handle(core),
            events,
        })
    }

    /// Waits for the next event. `None` after [`Event::Stop`].
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator would borrow the node that must send meanwhile"
    )]
    pub fn next(&mut self) -> Option<Event> {
        self.events.next()
    }

    /// Waits at most `timeout` for the next event; `None` when none came, or after [`Event::Stop`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<Event> {
        self.events.next_timeout(timeout)
    }

    /// The next event, if there is one.
    pub fn try_next(&mut self) -> Option<Event> {
        self.events.try_next()
    }

    /// Asks a service, and waits for its answer, at most for `timeout`. Samples of other inputs wait meanwhile.
    ///
    /// # Errors
    /// [`CallError`]: also when the service's node ends before it answers.
    pub fn call<V: Encode + ?Sized>(
        &mut self,
        client: &str,
        value: &V,
        timeout: Option<Duration>,
    ) -> Result<Sample, CallError> {
        self.events.call(client, value, timeout)
    }

    /// Asks a service, and does not wait: for several requests at a time. [`Node::take_answer`] has the answer.
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

    /// The answer to a request, once it has come; it is given once.
    pub fn take_answer(&mut self, ticket: Ticket) -> Option<Result<Sample, CallError>> {
        self.events.take_answer(ticket)
    }

    /// Gives a request up: its answer is dropped when it comes.
    pub fn forget_call(&mut self, ticket: Ticket) {
        self.events.forget_call(ticket);
    }

    /// The newest sample of an input, without waiting: taken from its queue, or the one that was newest before.
    /// Samples that it passes over are not delivered as events.
    ///
    /// # Errors
    /// [`UnknownName`] with the names of the inputs.
    pub fn latest(&mut self, input: &str) -> Result<Option<Sample>, UnknownName> {
        self.events.latest(input)
    }

    /// The parts that any thread may use.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Takes the node apart, to receive and send in different places.
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

impl Handle {
    /// The node's id in the dataflow file.
    pub fn id(&self) -> &str {
        &self.0.welcome.node
    }

    /// The dataflow's name.
    pub fn dataflow(&self) -> &str {
        &self.0.welcome.dataflow
    }

    /// 0 at the first start, one more after each restart.
    pub fn incarnation(&self) -> u32 {
        self.0.welcome.incarnation
    }

    /// Names of the inputs.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &str> {
        let inputs = &self.0.welcome.inputs;
        inputs[..declared(inputs.iter().map(|input| &*input.name))]
            .iter()
            .map(|input| input.name.as_str())
    }

    /// The topic (`node/output`) that an input receives; `None` for a timer, and where there is no such input.
    pub fn topic_of(&self, input: &str) -> Option<&str> {
        use nervure_protocol::wiring::Source;
        match &self
            .0
            .welcome
            .inputs
            .iter()
            .find(|known| known.name == input)?
            .source
        {
            Source::Output { topic } => Some(topic),
            Source::Timer { .. } => None,
        }
    }

    /// The type that an input is declared to receive (`std/Image@1`), where one is.
    pub fn type_of(&self, input: &str) -> Option<&str> {
        let inputs = &self.0.welcome.inputs;
        inputs
            .iter()
            .find(|known| known.name == input)?
            .type_name
            .as_deref()
    }

    /// How many of its last samples the output behind an input keeps for late joiners; 0 for a timer, and where there is no
    /// such input.
    pub fn history_of(&self, input: &str) -> u32 {
        let inputs = &self.0.welcome.inputs;
        inputs
            .iter()
            .find(|known| known.name == input)
            .map_or(0, |known| known.history)
    }

    /// Names of the outputs.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = &str> {
        let outputs = &self.0.welcome.outputs;
        outputs[..declared(outputs.iter().map(|output| &*output.name))]
            .iter()
            .map(|output| output.name.as_str())
    }

    /// The present value of a parameter: that of the dataflow file, or what it was set to since, also before the last
    /// restart of the node. A change is told by [`Event::Param`], and seen here at once.
    ///
    /// ```no_run
    /// # let node = nervure_node::Node::connect()?;
    /// let rate_hz = node.param("fps")?.as_f64().ok_or("`fps` is a number")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`UnknownName`] with the names of the parameters.
    pub fn param(&self, name: &str) -> Result<ParamValue, UnknownName> {
        let params = self.0.params();
        match params.iter().find(|param| param.name == name) {
            Some(param) => Ok(param.value.clone()),
            None => Err(UnknownName {
                node: self.id().to_owned(),
                kind: "parameter",
                name: name.to_owned(),
                known: params.iter().map(|param| param.name.clone()).collect(),
            }),
        }
    }

    /// The names and present values of all parameters, in the order of the dataflow file.
    pub fn params(&self) -> Vec<(String, ParamValue)> {
        self.0
            .params()
            .iter()
            .map(|param| (param.name.clone(), param.value.clone()))
            .collect()
    }

    /// An output, to be kept by those who send often.
    ///
    /// # Errors
    /// [`UnknownName`] with the names of the outputs.
    pub fn output(&self, name: &str) -> Result<Publisher, UnknownName> {
        match self.0.outputs.iter().find(|output| output.name() == name) {
            Some(output) => Ok(Publisher {
                output: output.clone(),
                core: self.0.clone(),
            }),
            None => Err(UnknownName {
                node: self.id().to_owned(),
                kind: "output",
                name: name.to_owned(),
                known: self.outputs().map(str::to_owned).collect(),
            }),
        }
    }

    /// Sends a value to an output: see [`Publisher::send`].
    ///
    /// # Errors
    /// As [`Publisher::send`]; an unknown output is an error that names those that there are.
    pub fn send<V: Encode + ?Sized>(&self, output: &str, value: &V) -> Result<Receipt, SendError> {
        self.send_with(output, value, &Envelope::new())
    }

    /// Sends a value with an envelope: see [`Publisher::send_with`].
    ///
    /// # Errors
    /// As [`Handle::send`].
    pub fn send_with<V: Encode + ?Sized>(
        &self,
        output: &str,
        value: &V,
        envelope: &Envelope<'_>,
    ) -> Result<Receipt, SendError> {
        let publisher = self
            .output(output)
            .map_err(|unknown| SendError::UnknownOutput(unknown.to_string()))?;
        publisher.send_with(value, envelope, Wait::Forever)
    }

    /// The dataflow's clock, in nanoseconds since the Unix epoch. It stands still while the dataflow is paused.
    pub fn now(&self) -> i64 {
        self.0.clock.now()
    }

    /// Whether the dataflow is paused.
    pub fn is_paused(&self) -> bool {
        self.0.clock.read(nervure_shm::monotonic_nanos()).0 == RunState::Paused
    }

    /// Whether the node was told to stop. For programs that never look at their events.
    pub fn is_stopping(&self) -> bool {
        self.0.producer.counters.beat();
        self.0.stop.load(Ordering::SeqCst)
    }

    /// Checks that the node belongs to this process, and not to the one that this was forked from. For those who
    /// keep parts of a node behind a lock, which another thread may have held at the fork.
    ///
    /// # Errors
    /// [`NodeForked`] in a forked child.
    pub fn check_fork(&self) -> Result<(), NodeForked> {
        nervure_shm::check_fork(self.0.fork_generation)
    }

    /// Sets the dataflow's clock, for the node that drives it in the place of real time (the player of a recording):
    /// it reads `origin` (nanoseconds since the Unix epoch) at `base` (nanoseconds of CLOCK_MONOTONIC), and gains
    /// `rate` seconds a second, or stands still with a rate of 0. Other nodes see it some microseconds later.
    pub fn drive_clock(&self, origin: i64, base: u64, rate: f64) {
        let clock = nervure_protocol::node_to_keeper::Clock {
            runs: rate > 0.0,
            origin_utc_nanos: origin,
            base_mono: base,
            rate_millionths: (rate * 1e6).round() as u64,
        };
        self.0.tell(&Message::Clock(clock));
    }

    /// Says that a node declared `ready: manual` is ready. The dataflow's sources start when all nodes are.
    pub fn ready(&self) {
        self.0.tell(&Message::Ready);
    }
}

/// How many inputs or outputs the file declares: those for requests and answers are behind them, and have a `~`.
fn declared<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.take_while(|name| !name.contains('~')).count()
}
