//! For bindings to other languages and the tools of this project; not for node authors. No
//! stability is promised: this module may change with every version.
//!
//! A binding has two needs that a node in Rust has not. Its interpreter has to run signal handlers
//! while a call waits; so the functions that wait here return when a handler ran, and take `go_on`,
//! which is called at least every 50 ms and ends the call when it returns false. And other threads
//! have to run meanwhile; so a wait needs no access to [`Events`].

pub use crate::core::CONSUMER_ENDED;
pub use crate::gaps::SequenceGaps;
pub use crate::receiving::{ALL_INPUTS_CLOSED, PRODUCER_ENDED, WITHIN_KEY, WaitPlan, Waiter};
pub use crate::sending::{Unsent, Written};
pub use crate::silence::{Heard, SilentInputs};
pub use crate::trace::way::Crossed;
pub use nervure_protocol::HOST_FD_VARIABLE;
pub use nervure_protocol::nearest;
pub use nervure_protocol::node_to_keeper::RemoteProcess;
pub use nervure_shm::{Histogram, Mapped};

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::error::ConnectError;
use crate::handle::Handle;
use crate::node::Node;
use crate::observer::{ObserveError, Observer};
use crate::receiving::{self, Actions, CallError, Events, GoalState, ReplyError, Request, Ticket};
use crate::running::{self, Connection};
use crate::sample::Sample;
use crate::sending::{Envelope, Loan, Publisher};
use nervure_message::{Encode, Layout, Origin, TypeName, Value};
use nervure_shm::{Arrival, Receipt, SendError, Wait};
use nervure_types::Definition;

/// The reason by which [`fail_request`] reports that the service's node has ended.
pub const SERVICE_ENDED: &str = receiving::ENDED;

/// As [`Node::connect`]. `language` is reported to the keeper.
///
/// # Errors
/// As [`Node::connect`], and [`ConnectError::Interrupted`] when `go_on` returns false.
pub fn connect(language: &str, go_on: impl FnMut() -> bool) -> Result<Node, ConnectError> {
    Node::connect_as(language, go_on)
}

/// Connects a component over the control socket that its host was given.
///
/// # Errors
/// As [`Node::connect`].
pub fn connect_over(control: OwnedFd, language: &str) -> Result<Node, ConnectError> {
    Node::connect_over(control, language)
}

/// Runs this thread, and those that it starts, on these processors (all if there are none), with this
/// scheduling as JSON.
///
/// # Errors
/// The reason why the system refused, as text for users.
pub fn prepare_thread(cpu_affinity: &[u32], scheduling: &str) -> Result<(), String> {
    let scheduling = serde_json::from_str(scheduling).map_err(|error| error.to_string())?;
    nervure_shm::component::prepare_thread(cpu_affinity, scheduling)
}

/// As [`Node::join`]. `language` is reported to the keeper.
///
/// # Errors
/// As [`Node::join`], and [`ConnectError::Interrupted`] when `go_on` returns false.
pub fn join(
    dataflow: Option<&str>,
    node: &str,
    language: &str,
    go_on: impl FnMut() -> bool,
) -> Result<Node, ConnectError> {
    Node::join_as(dataflow, node, language, go_on)
}

/// Lets a node without inputs send while the dataflow is paused, too: for a node that forwards other
/// nodes' samples.
pub fn send_in_pause(handle: &Handle) {
    handle.send_in_pause();
}

/// Lets a node without inputs begin no traces: for a node that forwards other nodes' samples.
pub fn begin_no_traces(handle: &Handle) {
    handle.begin_no_traces();
}

/// The envelope of a sample of a trace that came from another machine.
#[must_use]
pub fn with_way<'a>(envelope: Envelope<'a>, way: &'a Crossed) -> Envelope<'a> {
    envelope.crossed(way)
}

/// The envelope of a sample from another machine, where it was first published with this origin. A
/// consumer that has received it, or a later one of that machine, drops it.
#[must_use]
pub fn with_origin(envelope: Envelope<'_>, origin: Origin) -> Envelope<'_> {
    envelope.origin(origin)
}

/// Leaves the samples of an input in their queue until each is given to [`confirm`], in their order.
/// The next process of the node gets unconfirmed samples. For inputs whose queue has the policy
/// `block`; another process may have taken samples before.
pub fn keep_until_confirmed(events: &mut Events, input: &str) {
    if let Some(index) = events.names.iter().position(|name| &**name == input) {
        events.inbox.keep(index as u32);
    }
}

/// Leaves the samples of an input in their queue, by its policy, while those of other inputs are
/// delivered; or delivers them again. The end of the input, and a stop once all queued samples were
/// received, come behind them.
pub fn set_held(events: &mut Events, input: &str, is_held: bool) {
    if let Some(index) = events.names.iter().position(|name| &**name == input) {
        events.inbox.set_held(index as u32, is_held);
    }
}

/// Takes a sample that is left in a queue after the last event, and the name of its input.
pub fn take_left(events: &mut Events) -> Option<(Arc<str>, Sample)> {
    while let Ok(Some(arrival)) = events.inbox.try_next() {
        if let Arrival::Sample { input, sample } = arrival {
            return Some((events.names[input as usize].clone(), Sample::new(sample)));
        }
    }
    None
}

/// Takes a sample out of the queue of an input that keeps its samples: see [`keep_until_confirmed`].
pub fn confirm(sample: Sample) {
    sample.raw().confirm();
}

/// Sets the name of this machine in the spans of this process, which no daemon has started.
pub fn set_machine(name: &str) {
    crate::trace::set_machine(name);
}

/// Whether a type is a standard one whose samples are records.
pub fn is_standard_record(type_name: &str) -> bool {
    let name: Option<TypeName> = type_name.parse().ok();
    let definition = name.and_then(|name| nervure_types::standard_type(&name));
    definition.is_some_and(|definition| definition.payload().is_none())
}

/// The name and definition of the type of an output, if it is known.
pub fn type_of_output(publisher: &Publisher) -> Option<(&str, &Arc<Definition>)> {
    publisher.definition()
}

/// Whether the dataflow is paused; not if only the node that drives its clock lets it stand still.
pub fn is_paused(handle: &Handle) -> bool {
    handle.is_dataflow_paused()
}

/// CLOCK_MONOTONIC less the time for which the dataflow was paused, in nanoseconds.
pub fn active_nanos(handle: &Handle) -> u64 {
    handle.active_nanos()
}

/// As [`Observer::open`].
///
/// # Errors
/// As [`Observer::open`], and [`ConnectError::Interrupted`] when `go_on` returns false.
pub fn observe<T: AsRef<str>>(
    dataflow: Option<&str>,
    topics: &[T],
    depth: u32,
    program: &str,
    go_on: impl FnMut() -> bool,
) -> Result<Observer, ObserveError> {
    let connection = Connection::open(&running::find(dataflow)?, program)?;
    Observer::wire(connection, topics, depth, go_on)
}

/// As [`Publisher::send_with`], and fails with [`SendError::Interrupted`] when a signal handler
/// ran.
///
/// # Errors
/// As [`Publisher::send_with`]. A value that was already written to shared memory is in
/// [`Unsent::written`], so that it can be sent without another copy.
pub fn send_once<'a, V: Encode + ?Sized>(
    publisher: &'a Publisher,
    value: &V,
    envelope: &Envelope<'_>,
    wait: Wait,
) -> Result<Receipt, Unsent<'a>> {
    publisher.send_once(value, envelope, wait)
}

/// Borrows shared memory for a payload of `bytes` bytes in any layout.
///
/// # Errors
/// As [`Publisher::loan`], and [`SendError::Interrupted`] when a signal handler ran.
pub fn loan_layout(
    publisher: &Publisher,
    layout: &Layout,
    bytes: usize,
    wait: Wait,
) -> Result<Loan, SendError> {
    publisher.loan_layout(layout, bytes, wait)
}

/// Keeps the payload's memory mapped after the end of the loan, for bindings that hand out pointers
/// to it. `None` for a small payload, which moves with its loan.
pub fn mapped(loan: &Loan) -> Option<Mapped> {
    loan.mapped()
}

/// As [`Loan::send`], and fails with [`SendError::Interrupted`] when a signal handler ran.
///
/// # Errors
/// As [`Loan::send`], with the loan if it can be sent again.
pub fn send_loan_once(
    loan: Loan,
    envelope: &Envelope<'_>,
    wait: Wait,
) -> Result<Receipt, (Option<Box<Loan>>, SendError)> {
    loan.send_once(envelope, wait)
}

/// Registers a request that the caller sends itself, to the returned output and with
/// [`request_envelope`]. [`finish_call`] has to follow.
///
/// # Errors
/// [`CallError`].
pub fn prepare_call(events: &mut Events, client: &str) -> Result<(Ticket, Publisher), CallError> {
    events.prepare_call(client)
}

/// The envelope of a request: it carries the request's number.
pub fn request_envelope(ticket: Ticket) -> Envelope<'static> {
    ticket.envelope()
}

/// As [`prepare_call`], for a goal of an action.
///
/// # Errors
/// [`CallError`].
pub fn prepare_goal(events: &mut Events, client: &str) -> Result<(Ticket, Publisher), CallError> {
    Actions::new(events).prepare(client)
}

/// Sends feedback by a function that sends it to the given output, with the given envelope.
///
/// # Errors
/// Those of [`Request::update`], and the errors of `send`.
pub fn update_with<E: From<ReplyError>>(
    request: &Request,
    send: impl FnOnce(&Publisher, Envelope<'static>) -> Result<(), E>,
) -> Result<(), E> {
    request.update_with(send)
}

/// Takes the result of sending a request.
///
/// # Errors
/// [`CallError`] if the request will have no answer.
pub fn finish_call(
    events: &mut Events,
    ticket: Ticket,
    sent: Result<Receipt, SendError>,
) -> Result<Ticket, CallError> {
    events.finish_call(ticket, sent)
}

/// The service that a request was sent to, as `node/service`.
pub fn service_of(events: &Events, ticket: Ticket) -> &str {
    events.service_of(ticket)
}

/// Answers a request by a function that sends the answer to the given output, with the given
/// envelope. If `send` fails, the request can still be answered.
///
/// # Errors
/// [`ReplyError::Twice`], and the errors of `send`.
pub fn reply_with<E: From<ReplyError>>(
    request: &Request,
    send: impl FnOnce(&Publisher, Envelope<'static>) -> Result<(), E>,
) -> Result<(), E> {
    request.reply_with(send)
}

/// Plans a wait for news until `deadline` (nanoseconds of CLOCK_MONOTONIC), or until a timer or a
/// stale input is due: for [`Waiter::wait`], after [`Events::poll`] found nothing.
pub fn plan_wait(events: &Events, deadline: Option<u64>) -> WaitPlan {
    events.plan_wait(deadline)
}

/// Plans a wait for an answer until `deadline`, even if something else is due before: for
/// [`Waiter::wait`], after [`Events::take_answer`] found none.
pub fn plan_wait_for_answer(events: &Events, deadline: Option<u64>) -> WaitPlan {
    WaitPlan::new(deadline, events.is_woken())
}

/// Whether news ends a wait. False for an observer that polls: see [`Observer::set_patience`].
pub fn is_woken(events: &Events) -> bool {
    events.is_woken()
}

/// Delivers Stop before the samples that are queued when it arrives, as dora does.
pub fn deliver_samples_after_stop(events: &mut Events) {
    events.samples_follow_stop = true;
}

/// A sample of the output of a service, or of an action, for tools.
#[derive(Clone, Debug)]
pub enum AnswerToTool {
    /// Feedback on a goal.
    Feedback(Sample),
    /// A goal has another state. [`GoalState::Canceled`] is its end.
    State(GoalState),
    /// The answer to a request, or the result of a goal.
    Answer(Sample),
    /// It failed, for this reason.
    Failed(String),
}

/// The content of a sample for the tool with this request; `None` if it is for another.
#[must_use]
pub fn answer_to_tool(sample: Sample, request: u64) -> Option<AnswerToTool> {
    let number = sample.header().correlation_id;
    let is_feedback = number == receiving::feedback_to_tool(request);
    if !is_feedback && number != request {
        return None;
    }
    if let Some(reason) = receiving::failure_of(&sample) {
        return Some(AnswerToTool::Failed(reason));
    }
    Some(match (GoalState::reported(&sample), is_feedback) {
        (Some(state), _) => AnswerToTool::State(state),
        (None, true) => AnswerToTool::Feedback(sample),
        (None, false) => AnswerToTool::Answer(sample),
    })
}

/// Makes the end of a producer's process an event of the kind [`PRODUCER_ENDED`], with the input that
/// it concerns, behind the last sample of that process.
pub fn report_ended_producers(events: &mut Events) {
    events.reports_ended_producers = true;
}

/// Makes the end of a consumer's process an event of the kind [`CONSUMER_ENDED`], with the output
/// that it concerns as its input. The samples in the queue of that process are lost by then, and later
/// ones are not queued for it.
pub fn report_ended_consumers(handle: &Handle) {
    handle.report_ended_consumers();
}

/// Reports a change of a remote node's process, as the stand-in of that node.
pub fn report_remote_process(handle: &Handle, change: RemoteProcess) {
    handle.report_remote_process(change);
}

/// Fails a request in place of its service on another machine, by an answer on the output of that
/// service. `None` means that the service's node does not run, and has not executed the request; a
/// reason continues the sentence "service NAME ..".
///
/// # Errors
/// If the answer cannot be sent.
pub fn fail_request(
    answers: &Publisher,
    correlation_id: u64,
    reason: Option<&str>,
) -> Result<(), SendError> {
    receiving::send_unreached(answers, correlation_id, reason)
}

/// Closes an output: its consumers get [`crate::Event::InputClosed`] after the queued samples. Send
/// nothing more on it. An unknown output is ignored.
pub fn close_output(handle: &Handle, output: &str) {
    handle.close_output(output);
}

/// Lets only later news end a wait that follows: for a node that waits on after its last event.
pub fn collect_news(events: &mut Events) {
    events.inbox.collect();
}

/// A handle to wait for news without access to the events.
pub fn waiter(events: &Events) -> Waiter {
    events.waiter()
}

/// A time in metadata begins with this, followed by nanoseconds since the Unix epoch (`i64`, little
/// endian).
const DORA_TIME: &[u8] = b"dora:time:";

/// A time in the metadata of a dora program, in nanoseconds since the Unix epoch, as all bindings
/// for dora send it. Nervure's metadata has no times, dora's has no bytes.
pub fn dora_time_value(nanos: i64) -> Value {
    Value::Bytes([DORA_TIME, &nanos.to_le_bytes()].concat())
}

/// The time that [`dora_time_value`] made; `None` for another value.
pub fn dora_time(value: &Value) -> Option<i64> {
    let Value::Bytes(bytes) = value else {
        return None;
    };
    let nanos = bytes.strip_prefix(DORA_TIME)?.try_into().ok()?;
    Some(i64::from_le_bytes(nanos))
}
