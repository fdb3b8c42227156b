//! The parts of a node that its threads share.

use crate::ParamValue;
use crate::core::Core;
use crate::error::UnknownName;
use crate::sending::{Envelope, Publisher};
use nervure_message::Encode;
use nervure_protocol::node_to_keeper::{Clock, Message, RemoteProcess};
use nervure_protocol::wiring::{InputSpec, Source};
use nervure_shm::{NodeForked, Receipt, RunState, SendError, Wait};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The parts of a node that any thread may use. Clones are the same node.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Core>);

impl Handle {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self(core)
    }

    /// The node's id in the dataflow file.
    pub fn id(&self) -> &str {
        &self.0.welcome.node
    }

    /// The dataflow's name.
    pub fn dataflow(&self) -> &str {
        &self.0.welcome.dataflow
    }

    /// The number of restarts of the node: 0 at the first start.
    pub fn incarnation(&self) -> u32 {
        self.0.welcome.incarnation
    }

    /// Names of the inputs, timers included, in the order of the dataflow file.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &str> {
        let inputs = &self.0.welcome.inputs;
        inputs[..declared(inputs.iter().map(|input| &*input.name))]
            .iter()
            .map(|input| input.name.as_str())
    }

    /// The topic (`node/output`) that an input receives; `None` for a timer or an unknown input.
    pub fn topic_of(&self, input: &str) -> Option<&str> {
        match &self.input(input)?.source {
            Source::Output { topic } => Some(topic),
            Source::Timer { .. } => None,
        }
    }

    /// The type that an input is declared to receive (`std/Image@1`), or its output to send, if either is
    /// declared.
    pub fn type_of(&self, input: &str) -> Option<&str> {
        self.input(input)?.type_name.as_deref()
    }

    /// The history depth of the output behind an input: the number of samples that it keeps for
    /// late joiners. 0 for a timer or an unknown input.
    pub fn history_of(&self, input: &str) -> u32 {
        self.input(input).map_or(0, |known| known.history)
    }

    fn input(&self, name: &str) -> Option<&InputSpec> {
        let mut inputs = self.0.welcome.inputs.iter();
        inputs.find(|known| known.name == name)
    }

    /// Names of the outputs, in the order of the dataflow file.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = &str> {
        let outputs = &self.0.welcome.outputs;
        outputs[..declared(outputs.iter().map(|output| &*output.name))]
            .iter()
            .map(|output| output.name.as_str())
    }

    /// The current value of a parameter: its last set value, also from before a restart of the
    /// node, or else the dataflow file's. A change is visible here at once, and reported by
    /// [`Event::Param`](crate::Event::Param).
    ///
    /// ```no_run
    /// # let node = nervure_node::Node::connect()?;
    /// let rate_hz = node.param("fps")?.as_f64().ok_or("`fps` is a number")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`UnknownName`], which lists the parameters, if the node has no such parameter.
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

    /// The names and current values of all parameters, in the order of the dataflow file.
    pub fn params(&self) -> Vec<(String, ParamValue)> {
        self.0
            .params()
            .iter()
            .map(|param| (param.name.clone(), param.value.clone()))
            .collect()
    }

    /// The publisher of an output. Keep it if you send often: this saves the search by name.
    ///
    /// # Errors
    /// [`UnknownName`], which lists the outputs, if the node has no such output.
    pub fn output(&self, name: &str) -> Result<Publisher, UnknownName> {
        let mut outputs = self.0.outputs.iter().enumerate();
        match outputs.find(|(_, output)| output.name() == name) {
            Some((index, output)) => {
                let check = self.0.check(index);
                Ok(Publisher::new(output.clone(), self.0.clone(), check))
            }
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
    /// As [`Publisher::send`], and [`SendError::UnknownOutput`], which lists the outputs.
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

    pub(crate) fn expected_inputs(&self) -> impl Iterator<Item = &str> {
        let inputs = self.0.welcome.inputs.iter();
        let expected = inputs.filter(|input| input.expect_every_nanos.is_some());
        expected.map(|input| input.name.as_str())
    }

    pub(crate) fn close_output(&self, output: &str) {
        let mut outputs = self.0.welcome.outputs.iter();
        if let Some(output) = outputs.position(|known| known.name == output) {
            let output = u32::try_from(output).expect("a graph has fewer outputs");
            self.0.send_to_keeper(&Message::CloseOutput { output });
        }
    }

    pub(crate) fn is_dataflow_paused(&self) -> bool {
        self.0.is_paused()
    }

    pub(crate) fn active_nanos(&self) -> u64 {
        self.0.active_nanos()
    }

    pub(crate) fn send_in_pause(&self) {
        self.0.send_in_pause();
    }

    pub(crate) fn begin_no_traces(&self) {
        self.0.traces.begin_none();
    }

    pub(crate) fn report_ended_consumers(&self) {
        self.0.report_ended_consumers();
    }

    pub(crate) fn report_remote_process(&self, change: RemoteProcess) {
        self.0.send_to_keeper(&Message::RemoteProcess(change));
    }

    /// The dataflow's clock, in nanoseconds since the Unix epoch. It stops while the dataflow is
    /// paused.
    pub fn now(&self) -> i64 {
        self.0.clock.now()
    }

    /// Whether the dataflow is paused.
    pub fn is_paused(&self) -> bool {
        self.0.clock.read(nervure_shm::monotonic_nanos()).0 == RunState::Paused
    }

    /// Whether the node has to stop. For programs that never receive events.
    pub fn is_stopping(&self) -> bool {
        self.0.producer.counters.beat();
        self.0.producer.stopping.load(Ordering::SeqCst)
    }

    /// Checks that the node belongs to this process, and not to a parent that has forked.
    /// Call it before you take a lock of your own around parts of a node: another thread may have
    /// held the lock at the fork.
    ///
    /// # Errors
    /// [`NodeForked`] in a forked child.
    pub fn check_fork(&self) -> Result<(), NodeForked> {
        nervure_shm::check_fork(self.0.fork_generation)
    }

    /// Sets the dataflow's clock, for a node that drives it in place of real time (the player of a
    /// recording). The clock reads `origin` (nanoseconds since the Unix epoch) at `base`
    /// (nanoseconds of CLOCK_MONOTONIC), and advances by `rate` seconds per second; at a rate of 0
    /// it stands still. Other nodes see the change some microseconds later.
    pub fn drive_clock(&self, origin: i64, base: u64, rate: f64) {
        let clock = Clock {
            runs: rate > 0.0,
            origin_utc_nanos: origin,
            base_mono: base,
            rate_millionths: (rate * 1e6).round() as u64,
        };
        self.0.send_to_keeper(&Message::Clock(clock));
    }

    /// Reports that this node, declared with `ready: manual`, is ready. The dataflow's sources
    /// start when all nodes are ready.
    pub fn ready(&self) {
        self.0.send_to_keeper(&Message::Ready);
    }
}

/// The number of inputs or outputs that the file declares. Those for requests and answers come
/// after them, with a `~` in the name.
fn declared<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.take_while(|name| !name.contains('~')).count()
}
