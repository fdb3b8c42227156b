//! Events of a node.

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use nervure_node::message::Scalar;
use nervure_node::{
    Event as Received, Events, Handle, Next, ParamValue, Request as ReceivedRequest,
    Sample as ReceivedSample, SyncedSamples,
};

use crate::pointers::{self, owned};
use crate::sample::Sample;
use crate::status::{Failure, Status, c_text, guarded};
use crate::value::{Kind, Value};

/// Kind of an event. Later versions may add kinds: ignore unknown ones.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A sample arrived: `id` is the input, `sample` the sample.
    Input = 0,
    /// A timer is due: `id` is the input, `due` the time, `count` the ticks that were merged into this one.
    Tick = 1,
    /// The producer of the input `id` has ended, and its last sample was delivered.
    InputClosed = 2,
    /// The input `id` has had no sample for as long as its `expect_every`: `elapsed` is the time since the newest, `count`
    /// the number of such events since then.
    Stale = 3,
    /// The node received this event later than its `loop` allows: `id` is the input whose event took too long, `elapsed`
    /// the time beyond the deadline, `count` the number of missed deadlines.
    DeadlineMissed = 4,
    /// A request to the service `id`, with the value `sample`: answer it with `nervure_reply`. `text` is the calling node.
    Request = 5,
    /// The parameter `id` was changed to `value`.
    Param = 6,
    /// The node `id`, which feeds inputs of this one, failed: `text` is the reason. `restarts` is set if it starts again.
    NodeFailed = 7,
    /// The node `id`, which had failed, runs again.
    NodeRestarted = 8,
    /// The node has to end: `text` is the reason. It is the last event.
    Stop = 9,
    /// An event without a kind in this version: `text` is its kind, `id` the node that it concerns.
    Other = 10,
    /// The dataflow is paused: its clock stands still, no timer ticks until `NERVURE_EVENT_KIND_RESUME`, and sending waits
    /// until then in nodes without inputs.
    Pause = 11,
    /// The dataflow is resumed.
    Resume = 12,
    /// Samples of the inputs of `sync` that belong together: `set` has them.
    Sync = 13,
}

/// An event. Its pointers are valid until the next call of `nervure_next` with the node.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Name of the input, service, parameter or node; never NULL.
    pub id: *const c_char,
    /// The reason, or another text; never NULL.
    pub text: *const c_char,
    /// The sample of `NERVURE_EVENT_KIND_INPUT` and `NERVURE_EVENT_KIND_REQUEST`, else NULL.
    pub sample: *const Sample,
    /// The request of `NERVURE_EVENT_KIND_REQUEST`, else NULL.
    pub request: *const Request,
    /// The new value of `NERVURE_EVENT_KIND_PARAM`, as of `nervure_param`.
    pub value: Value,
    /// When a tick was due, in nanoseconds since the Unix epoch on the dataflow's clock.
    pub due: i64,
    /// A duration in nanoseconds.
    pub elapsed: u64,
    /// A number of events.
    pub count: u64,
    /// Whether a failed node is started again.
    pub restarts: bool,
    /// The samples of `NERVURE_EVENT_KIND_SYNC`, else NULL.
    pub set: *const SampleSet,
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// A request of another node. If it is freed without an answer, the caller is notified.
#[derive(Debug)]
pub struct Request {
    pub(crate) request: ReceivedRequest,
}

/// Samples of several inputs that belong together: of `NERVURE_EVENT_KIND_SYNC`.
#[derive(Debug)]
pub struct SampleSet {
    samples: Vec<(Arc<str>, Sample)>,
}

impl SampleSet {
    fn new(set: &SyncedSamples) -> Self {
        let sample =
            |(input, sample): (&Arc<str>, &ReceivedSample)| (input.clone(), Sample(sample.clone()));
        Self {
            samples: set.iter().map(sample).collect(),
        }
    }

    fn of<'s>(&'s self, input: &'s str) -> impl Iterator<Item = &'s Sample> {
        let samples = self.samples.iter();
        samples.filter_map(move |(name, sample)| (&**name == input).then_some(sample))
    }
}

/// State for one thread at a time.
#[derive(Debug)]
pub struct Receiving {
    pub(crate) events: Events,
    /// Names of the inputs, as texts of C.
    inputs: Vec<CString>,
    /// Texts of the current event that are no names of inputs.
    id: CString,
    pub(crate) text: CString,
    pub(crate) sample: Option<Sample>,
    pub(crate) request: Option<Request>,
    pub(crate) set: Option<SampleSet>,
}

impl Receiving {
    pub(crate) fn new(events: Events, handle: &Handle) -> Self {
        Self {
            events,
            inputs: handle.inputs().map(c_text).collect(),
            id: CString::default(),
            text: CString::default(),
            sample: None,
            request: None,
            set: None,
        }
    }

    /// Makes the event that C sees. One with a sample or a tick allocates nothing.
    pub(crate) fn hold(&mut self, event: Received) -> Event {
        let mut seen = Event {
            kind: EventKind::Other,
            id: c"".as_ptr(),
            text: c"".as_ptr(),
            sample: ptr::null(),
            request: ptr::null(),
            value: Value::bytes(Kind::Bytes, &[]),
            due: 0,
            elapsed: 0,
            count: 0,
            restarts: false,
            set: ptr::null(),
        };
        match event {
            Received::Input { id, sample } => {
                seen.kind = EventKind::Input;
                seen.id = self.name(&id);
                seen.sample = self.sample.insert(Sample(sample));
            }
            Received::Synced(set) => {
                seen.kind = EventKind::Sync;
                seen.set = self.set.insert(SampleSet::new(&set));
            }
            Received::Tick { id, due, missed } => {
                seen.kind = EventKind::Tick;
                seen.id = self.name(&id);
                seen.due = due;
                seen.count = missed;
            }
            Received::InputClosed { id } => {
                seen.kind = EventKind::InputClosed;
                seen.id = self.name(&id);
            }
            Received::Stale { id, age, count } => {
                seen.kind = EventKind::Stale;
                seen.id = self.name(&id);
                seen.elapsed = nanos(age);
                seen.count = count;
            }
            Received::DeadlineMissed { id, overrun, count } => {
                seen.kind = EventKind::DeadlineMissed;
                seen.id = self.name(&id);
                seen.elapsed = nanos(overrun);
                seen.count = count;
            }
            Received::Request(request) => {
                seen.kind = EventKind::Request;
                seen.id = self.name(request.service());
                seen.text = self.text(request.client());
                seen.sample = self.sample.insert(Sample(request.sample().clone()));
                seen.request = self.request.insert(Request { request });
            }
            Received::Param { name, value } => {
                seen.kind = EventKind::Param;
                seen.id = self.name(&name);
                seen.value = param_value(&value, &mut self.text);
            }
            Received::NodeFailed {
                node,
                reason,
                restarts,
                ..
            } => {
                seen.kind = EventKind::NodeFailed;
                seen.id = self.name(&node);
                seen.text = self.text(&reason);
                seen.restarts = restarts;
            }
            Received::NodeRestarted { node, .. } => {
                seen.kind = EventKind::NodeRestarted;
                seen.id = self.name(&node);
            }
            Received::Pause => seen.kind = EventKind::Pause,
            Received::Resume => seen.kind = EventKind::Resume,
            Received::Stop { reason } => {
                seen.kind = EventKind::Stop;
                seen.text = self.text(&reason);
            }
            other => {
                seen.text = self.text(other.kind());
                if let Received::Other { node, .. } = &other {
                    seen.id = self.name(node);
                }
            }
        }
        seen
    }

    fn name(&mut self, name: &str) -> *const c_char {
        let known = self
            .inputs
            .iter()
            .find(|known| known.as_bytes() == name.as_bytes());
        if let Some(known) = known {
            return known.as_ptr();
        }
        self.id = c_text(name);
        self.id.as_ptr()
    }

    fn text(&mut self, text: &str) -> *const c_char {
        self.text = c_text(text);
        self.text.as_ptr()
    }

    pub(crate) fn next(&mut self, timeout: i64) -> Result<Option<Received>, Failure> {
        let deadline = match timeout {
            0.. => Some(nervure_node::monotonic_nanos().saturating_add(timeout.unsigned_abs())),
            _ => None,
        };
        loop {
            match self.events.poll()? {
                Next::Event(event) => return Ok(Some(event)),
                Next::Nothing => {}
                Next::End => return Ok(None),
            }
            if deadline.is_some_and(|deadline| nervure_node::monotonic_nanos() >= deadline) {
                return Err(Failure::new(
                    Status::Timeout,
                    "there was no event within the time",
                ));
            }
            self.events.wait(deadline);
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the number of samples of an input in a set: 1 of a matched input, any number of a collected one, 0 for another
/// name, and if a pointer is NULL.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_set_count(set: *const SampleSet, input: *const c_char) -> usize {
    // SAFETY: the caller's promise.
    let (set, input) = unsafe { (set.as_ref(), pointers::text(input, "input's name")) };
    match (set, input) {
        (Some(set), Ok(input)) => set.of(input).count(),
        _ => 0,
    }
}

/// Returns the sample of an input in a set, of a collected input that with this index, counted from 0; NULL if there is none.
/// It is valid until the next call of `nervure_next` with the node; `nervure_sample_keep` keeps it.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_set_sample(
    set: *const SampleSet,
    input: *const c_char,
    index: usize,
) -> *const Sample {
    // SAFETY: the caller's promise.
    let (set, input) = unsafe { (set.as_ref(), pointers::text(input, "input's name")) };
    match (set, input) {
        (Some(set), Ok(input)) => set.of(input).nth(index).map_or(ptr::null(), ptr::from_ref),
        _ => ptr::null(),
    }
}

/// Answers a request, once. It is no error if the caller has ended.
///
/// # Safety
/// The pointers are null or valid, and the value is as `nervure_value` describes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_reply(request: *const Request, value: *const Value) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_reply", || unsafe {
        let request = &pointers::shared(request, "request")?.request;
        let value = Value::checked(value)?;
        value.decode(|value| Ok(request.reply(value)?))?;
        Ok(Status::Ok)
    })
}

/// Reports to the caller that the request failed, and why.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_fail(request: *const Request, reason: *const c_char) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_fail", || unsafe {
        let request = &pointers::shared(request, "request")?.request;
        request.fail(pointers::text(reason, "reason")?)?;
        Ok(Status::Ok)
    })
}

/// Returns a request that outlives its event, to be answered later; it holds no memory of its caller. Free it with
/// `nervure_request_free`. NULL if `request` is.
///
/// # Safety
/// `request` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_request_keep(request: *const Request) -> *mut Request {
    // SAFETY: the caller's promise.
    let request = unsafe { request.as_ref() };
    request.map_or(ptr::null_mut(), |request| {
        let request = request.request.copied();
        owned(Request { request })
    })
}

/// Frees a request that `nervure_request_keep` returned. Without an answer, the caller is notified.
///
/// # Safety
/// `request` is null, or a request as above and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_request_free(request: *mut Request) {
    // SAFETY: the caller's promise.
    unsafe { pointers::free(request) }
}

/// The value of a parameter. What needs memory is in `text`.
pub(crate) fn param_value(param: &ParamValue, text: &mut CString) -> Value {
    match param {
        ParamValue::Bool(value) => Value::scalar(Scalar::Bool(*value)),
        ParamValue::Number(number) => Value::scalar(match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => Scalar::Integer(integer),
            (None, Some(unsigned)) => Scalar::Unsigned(unsigned),
            (None, None) => Scalar::Float(number.as_f64().unwrap_or(f64::NAN)),
        }),
        ParamValue::String(value) => {
            *text = c_text(value);
            Value::bytes(Kind::Text, text.as_bytes())
        }
        other => {
            *text = c_text(&other.to_string());
            Value::bytes(Kind::Text, text.as_bytes())
        }
    }
}
