//! State that every part of a node shares: sending, receiving and the control thread.

use crate::error::ConnectError;
use crate::sample::Sample;
use crate::trace::Traces;
use nervure_message::{Header, JsonSample, Metadata, TypeName};
use nervure_protocol::keeper_to_node::{Call, NeighbourEvent, Welcome};
use nervure_protocol::node_to_keeper::Message;
use nervure_protocol::params::Param;
use nervure_protocol::wiring::{OutputSpec, Source};
use nervure_shm::{ControlPage, Output, Producer, ReceivedSample, Seqpacket, monotonic_nanos};
use nervure_types::{Definition, SampleCheck};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::AsFd;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

/// The kind of the event of [`crate::binding::report_ended_consumers`].
pub const CONSUMER_ENDED: &str = "CONSUMER_ENDED";

pub(crate) struct Core {
    pub(crate) welcome: Welcome,
    /// The connection to the keeper.
    pub(crate) socket: Arc<Seqpacket>,
    /// The dataflow's clock.
    pub(crate) clock: ControlPage,
    pub(crate) producer: Producer,
    pub(crate) outputs: Vec<Output>,
    /// The checks of outputs with a known type, in the same order.
    checks: Vec<Option<Arc<SampleCheck>>>,
    pub(crate) fork_generation: u32,
    /// Whether the outputs are held while the dataflow is paused.
    stops_in_pause: AtomicBool,
    /// Whether the end of a consumer's process is an event.
    reports_ended_consumers: AtomicBool,
    pauses: Mutex<Pauses>,
    notices: Mutex<Notices>,
    params: RwLock<Vec<Param>>,
    pub(crate) traces: Arc<Traces>,
}

/// For how long the dataflow was paused since the node has connected.
#[derive(Debug, Default)]
struct Pauses {
    /// When the present pause began, in nanoseconds of CLOCK_MONOTONIC.
    since: Option<u64>,
    /// The time of all earlier pauses.
    nanos: u64,
}

/// News from the keeper that the control thread has received and the program has not seen yet.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    pub(crate) events: VecDeque<Notice>,
    /// The reason to stop at once.
    pub(crate) stop: Option<String>,
    /// The reason to stop once all queued samples were received.
    pub(crate) stop_when_drained: Option<String>,
    /// The keeper has attached all edges of the node.
    pub(crate) wired: bool,
    /// The dataflow has started.
    pub(crate) started: bool,
    pub(crate) keeper_gone: bool,
}

/// A message of the keeper that becomes an event of the node.
#[derive(Debug)]
pub(crate) enum Notice {
    ParamChanged(Param),
    Event(NeighbourEvent),
    Call(Call),
    /// A sample of a tool for the input of this index. It is on no edge.
    Sample(u32, Box<ReceivedSample>),
}

/// The check of an output, if its type is in the standard set, or the keeper has sent its definition.
fn check_of(
    output: &OutputSpec,
    types: &BTreeMap<String, serde_json::Value>,
) -> Result<Option<Arc<SampleCheck>>, ConnectError> {
    let Some(name) = &output.type_name else {
        return Ok(None);
    };
    let definition = match types.get(name) {
        Some(sent) => {
            let definition = Definition::from_portable(sent);
            Some(definition.map_err(|cause| ConnectError::Type {
                name: name.clone(),
                cause,
            })?)
        }
        None => {
            let standard: Option<TypeName> = name.parse().ok();
            standard.and_then(|name| nervure_types::standard_type(&name))
        }
    };
    Ok(definition.map(|definition| Arc::new(SampleCheck::new(name, definition))))
}

/// Whether a socket has a packet, or is closed.
fn has_packet(socket: &Seqpacket) -> bool {
    let interest = PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN);
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut [interest], Some(&now)).is_ok_and(|ready| ready > 0)
}

impl Core {
    /// Begins the trace of a sample that the program is about to handle: samples sent meanwhile belong to
    /// it. Returns whether the sample has a trace.
    #[inline]
    pub(crate) fn begins_trace(&self, input: usize, sample: &Sample) -> bool {
        let is_traced = sample.header().trace_id != 0;
        if is_traced {
            self.traces.begin(input, sample);
        }
        is_traced
    }

    pub(crate) fn new(
        welcome: Welcome,
        socket: Arc<Seqpacket>,
        clock: ControlPage,
        producer: Producer,
        outputs: Vec<Output>,
    ) -> Result<Self, ConnectError> {
        let params = RwLock::new(welcome.params.clone());
        let checks = welcome.outputs.iter();
        let checks = checks.map(|output| check_of(output, &welcome.types));
        let checks = checks.collect::<Result<_, _>>()?;
        let transforms = welcome.transforms.as_ref();
        let transforms = transforms.map_or(0, |spec| spec.inputs.len());
        let mut core = Self {
            stops_in_pause: AtomicBool::new(welcome.inputs.len() == transforms),
            reports_ended_consumers: AtomicBool::new(false),
            welcome,
            socket,
            clock,
            producer,
            outputs,
            checks,
            fork_generation: nervure_shm::fork_generation(),
            pauses: Mutex::default(),
            notices: Mutex::default(),
            params,
            traces: Arc::default(),
        };
        core.traces = Arc::new(Traces::of_environment(&core.welcome, core.is_source()));
        Ok(core)
    }

    /// The check of the output at an index, if its type is known.
    pub(crate) fn check(&self, output: usize) -> Option<Arc<SampleCheck>> {
        self.checks.get(output).cloned().flatten()
    }

    pub(crate) fn notices(&self) -> MutexGuard<'_, Notices> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn params(&self) -> RwLockReadGuard<'_, Vec<Param>> {
        self.params.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the control thread has handled all messages of the keeper, and returns whether the
    /// dataflow has started. A packet leaves the socket when it is handled. Sources send after the start,
    /// and the keeper sends each node its edges before the start. But a sample can arrive before these
    /// edges are attached, and a sample sent in answer would have no consumer.
    #[cold]
    pub(crate) fn await_edges(&self) -> bool {
        const PAUSE: Duration = Duration::from_micros(50);
        while has_packet(&self.socket) && !self.notices().keeper_gone {
            std::thread::sleep(PAUSE);
        }
        self.notices().started
    }

    /// A value of the keeper as a sample that was received now.
    ///
    /// # Errors
    /// The reason, if the value cannot be a sample.
    pub(crate) fn sample_of(
        &self,
        value: &serde_json::Value,
        metadata: &Metadata,
        header: Header,
    ) -> Result<ReceivedSample, String> {
        let header = Header {
            sequence: Header::NO_SEQUENCE,
            stamp: self.clock.now(),
            publish_mono: monotonic_nanos(),
            publish_utc: nervure_shm::utc_nanos(),
            boot_id: nervure_shm::boot_id(),
            ..header
        };
        let value = JsonSample::new(value).map_err(|error| error.to_string())?;
        ReceivedSample::local(&value, metadata, header).map_err(|error| error.to_string())
    }

    /// Stores a parameter's new value. Returns false if the node has no such parameter.
    pub(crate) fn set_param(&self, param: &Param) -> bool {
        let mut params = self.params.write().unwrap_or_else(PoisonError::into_inner);
        let known = params.iter_mut().find(|known| known.name == param.name);
        known
            .map(|known| known.value = param.value.clone())
            .is_some()
    }

    /// Sends a message to the keeper. A message that meets a full or closed socket is dropped: the
    /// keeper is then overloaded or gone, and reads the node's state elsewhere.
    pub(crate) fn send_to_keeper(&self, message: &Message) {
        self.try_send_to_keeper(message);
    }

    /// As [`Core::send_to_keeper`]. Returns false if the socket is full, so that the caller can try
    /// again.
    pub(crate) fn try_send_to_keeper(&self, message: &Message) -> bool {
        let Ok(bytes) = nervure_protocol::encode(message) else {
            return true;
        };
        let sent = self.socket.send(&bytes, &[]);
        !matches!(sent, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Pauses or resumes. In a pause, a node without inputs sends nothing; others send when their timers
    /// and producers do.
    pub(crate) fn set_paused(&self, is_paused: bool) {
        {
            let mut pauses = self.pauses();
            let now = monotonic_nanos();
            if let Some(since) = pauses.since.take() {
                pauses.nanos += now.saturating_sub(since);
            }
            pauses.since = is_paused.then_some(now);
        }
        if is_paused {
            self.producer.hold();
        }
        // Read last: `send_in_pause` may be called at the same time.
        if !is_paused || !self.stops_in_pause.load(Ordering::SeqCst) {
            self.producer.release();
        }
    }

    /// Whether the dataflow is paused. The clock may also be stopped by the node that drives it.
    pub(crate) fn is_paused(&self) -> bool {
        self.pauses().since.is_some()
    }

    /// CLOCK_MONOTONIC less the time for which the dataflow was paused, in nanoseconds.
    pub(crate) fn active_nanos(&self) -> u64 {
        let pauses = self.pauses();
        let now = pauses.since.unwrap_or_else(monotonic_nanos);
        now.saturating_sub(pauses.nanos)
    }

    fn pauses(&self) -> MutexGuard<'_, Pauses> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets this node send while the dataflow is paused, too.
    pub(crate) fn send_in_pause(&self) {
        self.stops_in_pause.store(false, Ordering::SeqCst);
        self.producer.release();
    }

    /// Makes the end of a consumer's process an event.
    pub(crate) fn report_ended_consumers(&self) {
        self.reports_ended_consumers.store(true, Ordering::SeqCst);
    }

    pub(crate) fn reports_ended_consumers(&self) -> bool {
        self.reports_ended_consumers.load(Ordering::SeqCst)
    }

    /// Whether the node is a source: none of its inputs brings samples of other nodes, apart from
    /// answers to its own requests, and transforms.
    pub(crate) fn is_source(&self) -> bool {
        let receives_answers = |at: usize| {
            self.welcome.clients.iter().any(|client| {
                let feedback = client.feedback.map(|input| input as usize);
                client.input as usize == at || feedback == Some(at)
            })
        };
        let transforms = self.welcome.transforms.as_ref();
        let receives_transforms = |at| transforms.is_some_and(|spec| spec.inputs.contains(&at));
        let mut inputs = self.welcome.inputs.iter().enumerate();
        inputs.all(|(at, input)| {
            matches!(input.source, Source::Timer { .. })
                || receives_answers(at)
                || receives_transforms(at)
        })
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("node", &self.welcome.node)
            .finish_non_exhaustive()
    }
}
