//! dora's C++ API for nodes, over Nervure. cxx generates the header from [`ffi`].
#![expect(unsafe_code, reason = "C++ passes pointers to arrays")]
#![expect(
    clippy::borrowed_box,
    clippy::boxed_local,
    reason = "the types of dora's C++ API"
)]

mod arrow;
mod event;
mod metadata;
mod output;

use std::time::Duration;

use dora_node_api::dora_core::config::{DataId, NodeId};
use dora_node_api::{
    DoraNode, Event, GOAL_STATUS_ABORTED, GOAL_STATUS_CANCELED, GOAL_STATUS_SUCCEEDED,
    MetadataParameters, Parameter, PatternError,
};
use event::{DoraEvent, DrainedEvents, Events, MergedDoraEvent, MergedEvents, bytes};
use eyre::{Result, bail};
use ffi::{
    ArrowInputInfo, CombinedEvent, CombinedEvents, DoraEventType, DoraInput, DoraInputWithMetadata,
    DoraNodeFailed, DoraPatternResult, DoraPatternStatus, DoraRequestId, DoraResult,
    MetadataValueType,
};
use metadata::Metadata;
use output::{OutputSender, add_request_id};
use serde_json::json;

#[cxx::bridge]
mod ffi {
    struct DoraNode {
        events: Box<Events>,
        send_output: Box<OutputSender>,
    }

    /// The kind of an event.
    #[derive(Debug)]
    enum DoraEventType {
        /// The node has to end.
        Stop,
        /// Data arrived, or a timer is due.
        Input,
        /// The producer of an input has ended.
        InputClosed,
        /// Data could not be read.
        Error,
        /// Another event.
        Unknown,
        /// There are no more events.
        AllInputsClosed,
        /// There is no event yet.
        Empty,
        /// No event came before the timeout.
        Timeout,
        /// A node that feeds this one has failed.
        NodeFailed,
        /// Never sent.
        Reload,
    }

    struct DoraInput {
        id: String,
        data: Vec<u8>,
    }

    struct DoraInputWithMetadata {
        id: String,
        data: Vec<u8>,
        metadata: Box<Metadata>,
    }

    /// Success if the error is empty.
    struct DoraResult {
        error: String,
    }

    /// End of the wait for a response or result.
    #[derive(Debug)]
    enum DoraPatternStatus {
        /// It arrived.
        Matched,
        /// The time is over.
        Timeout,
        /// The server was restarted, and has forgotten the request.
        ServerRestarted,
        /// The node was stopped.
        StreamEnded,
        /// An event could not be read.
        StreamError,
        /// The server's name is not valid.
        InvalidArgument,
    }

    struct DoraPatternResult {
        status: DoraPatternStatus,
        error: String,
        event: Box<DoraEvent>,
    }

    struct DoraRequestId {
        request_id: String,
        error: String,
    }

    struct DoraNodeFailed {
        affected_input_ids: Vec<String>,
        error: String,
        source_node_id: String,
    }

    struct ArrowInputInfo {
        id: String,
        metadata: Box<Metadata>,
        error: String,
    }

    #[derive(Debug)]
    enum MetadataValueType {
        Bool,
        Integer,
        Float,
        String,
        ListInt,
        ListFloat,
        ListString,
        Timestamp,
    }

    struct CombinedEvents {
        events: Box<MergedEvents>,
    }

    struct CombinedEvent {
        event: Box<MergedDoraEvent>,
    }

    extern "Rust" {
        type Events;
        type OutputSender;
        type DoraEvent;
        type DrainedEvents;
        type MergedEvents;
        type MergedDoraEvent;
        type Metadata;

        /// Connects to the keeper that started the program.
        fn init_dora_node() -> Result<DoraNode>;

        /// Waits for the next event.
        fn next(self: &mut Events) -> Box<DoraEvent>;
        fn next_event(events: &mut Box<Events>) -> Box<DoraEvent>;
        fn next_event_timeout(events: &mut Box<Events>, timeout_ms: u64) -> Box<DoraEvent>;
        fn try_next_event(events: &mut Box<Events>) -> Box<DoraEvent>;
        fn events_is_empty(events: &Box<Events>) -> bool;
        /// Takes the events that are there.
        fn drain_events(events: &mut Box<Events>) -> Box<DrainedEvents>;
        fn drained_events_len(drained: &Box<DrainedEvents>) -> usize;
        fn drained_events_next(drained: &mut Box<DrainedEvents>) -> Box<DoraEvent>;

        fn event_type(event: &Box<DoraEvent>) -> DoraEventType;
        /// The data has to be of type `UInt8`.
        fn event_as_input(event: Box<DoraEvent>) -> Result<DoraInput>;
        fn event_as_input_with_metadata(event: Box<DoraEvent>) -> Result<DoraInputWithMetadata>;
        fn event_as_node_failed(event: Box<DoraEvent>) -> Result<DoraNodeFailed>;
        /// Exports the data of an input to an `ArrowArray` and an `ArrowSchema`.
        ///
        /// # Safety
        /// The pointers are null, or to an `ArrowArray` and an `ArrowSchema` that may be overwritten.
        unsafe fn event_as_arrow_input(
            event: Box<DoraEvent>,
            out_array: *mut u8,
            out_schema: *mut u8,
        ) -> DoraResult;
        /// As [`event_as_arrow_input`], with name and metadata.
        ///
        /// # Safety
        /// As there.
        unsafe fn event_as_arrow_input_with_info(
            event: Box<DoraEvent>,
            out_array: *mut u8,
            out_schema: *mut u8,
        ) -> ArrowInputInfo;

        fn send_output(sender: &mut Box<OutputSender>, id: String, data: &[u8]) -> DoraResult;
        fn send_output_with_metadata(
            sender: &mut Box<OutputSender>,
            id: String,
            data: &[u8],
            metadata: Box<Metadata>,
        ) -> DoraResult;
        /// Sends an array, and leaves released structures.
        ///
        /// # Safety
        /// The pointers are null, or to a valid `ArrowArray` and its `ArrowSchema`.
        unsafe fn send_arrow_output(
            sender: &mut Box<OutputSender>,
            id: String,
            array: *mut u8,
            schema: *mut u8,
        ) -> DoraResult;
        /// As [`send_arrow_output`], with metadata.
        ///
        /// # Safety
        /// As there.
        #[cxx_name = "send_arrow_output"]
        unsafe fn send_arrow_output_with_metadata(
            sender: &mut Box<OutputSender>,
            id: String,
            array: *mut u8,
            schema: *mut u8,
            metadata: Box<Metadata>,
        ) -> DoraResult;
        fn close_outputs(sender: &mut Box<OutputSender>, output_ids: Vec<String>) -> DoraResult;
        fn log_message(sender: &Box<OutputSender>, level: String, message: String) -> DoraResult;
        /// Inputs and outputs of the node.
        fn node_config_json(sender: &Box<OutputSender>) -> Result<String>;
        /// Fails: a node knows its own edges, not the dataflow.
        fn dataflow_descriptor_json(sender: &Box<OutputSender>) -> Result<String>;

        fn new_request_id() -> String;
        fn new_goal_id() -> String;
        fn goal_status_succeeded() -> String;
        fn goal_status_aborted() -> String;
        fn goal_status_canceled() -> String;
        fn send_service_request(
            sender: &mut Box<OutputSender>,
            output_id: String,
            data: &[u8],
            metadata: Box<Metadata>,
        ) -> DoraRequestId;
        /// A request with an array.
        ///
        /// # Safety
        /// As [`send_arrow_output`].
        unsafe fn send_arrow_service_request(
            sender: &mut Box<OutputSender>,
            output_id: String,
            array: *mut u8,
            schema: *mut u8,
            metadata: Box<Metadata>,
        ) -> DoraRequestId;
        fn send_service_response(
            sender: &mut Box<OutputSender>,
            output_id: String,
            data: &[u8],
            metadata: Box<Metadata>,
        ) -> DoraResult;
        fn recv_service_response(
            events: &mut Box<Events>,
            request_id: &str,
            server_node_id: &str,
            timeout_ms: u64,
        ) -> DoraPatternResult;
        fn recv_action_result(
            events: &mut Box<Events>,
            goal_id: &str,
            server_node_id: &str,
            timeout_ms: u64,
        ) -> DoraPatternResult;

        fn dora_events_into_combined(events: Box<Events>) -> CombinedEvents;
        fn empty_combined_events() -> CombinedEvents;
        fn next(self: &mut CombinedEvents) -> CombinedEvent;
        fn is_dora(self: &CombinedEvent) -> bool;
        fn downcast_dora(event: CombinedEvent) -> Result<Box<DoraEvent>>;

        fn new_metadata() -> Box<Metadata>;
        /// Seconds since the Unix epoch in the upper 32 bits, and their fraction in the lower ones.
        fn timestamp(self: &Metadata) -> u64;
        fn get_bool(self: &Metadata, key: &str) -> Result<bool>;
        fn get_float(self: &Metadata, key: &str) -> Result<f64>;
        fn get_int(self: &Metadata, key: &str) -> Result<i64>;
        fn get_str(self: &Metadata, key: &str) -> Result<String>;
        fn get_list_int(self: &Metadata, key: &str) -> Result<Vec<i64>>;
        fn get_list_float(self: &Metadata, key: &str) -> Result<Vec<f64>>;
        fn get_list_string(self: &Metadata, key: &str) -> Result<Vec<String>>;
        /// Nanoseconds since the Unix epoch.
        fn get_timestamp(self: &Metadata, key: &str) -> Result<i64>;
        fn get_json(self: &Metadata, key: &str) -> Result<String>;
        fn to_json(self: &Metadata) -> String;
        fn list_keys(self: &Metadata) -> Vec<String>;
        #[cxx_name = "type"]
        fn value_type(self: &Metadata, key: &str) -> Result<MetadataValueType>;
        fn set_bool(self: &mut Metadata, key: &str, value: bool) -> Result<()>;
        fn set_int(self: &mut Metadata, key: &str, value: i64) -> Result<()>;
        fn set_float(self: &mut Metadata, key: &str, value: f64) -> Result<()>;
        fn set_string(self: &mut Metadata, key: &str, value: String) -> Result<()>;
        fn set_list_int(self: &mut Metadata, key: &str, value: Vec<i64>) -> Result<()>;
        fn set_list_float(self: &mut Metadata, key: &str, value: Vec<f64>) -> Result<()>;
        fn set_list_string(self: &mut Metadata, key: &str, value: Vec<String>) -> Result<()>;
        fn set_timestamp(self: &mut Metadata, key: &str, value: i64) -> Result<()>;
        fn set_request_id(self: &mut Metadata, value: String) -> Result<()>;
        fn request_id(self: &Metadata) -> Result<String>;
        fn set_goal_id(self: &mut Metadata, value: String) -> Result<()>;
        fn goal_id(self: &Metadata) -> Result<String>;
        fn set_goal_status(self: &mut Metadata, value: String) -> Result<()>;
        fn goal_status(self: &Metadata) -> Result<String>;
    }
}

fn init_dora_node() -> Result<ffi::DoraNode> {
    let (node, events) = DoraNode::init_from_env()?;
    Ok(ffi::DoraNode {
        events: Box::new(Events::new(events)),
        send_output: Box::new(OutputSender(node)),
    })
}

fn next_event(events: &mut Box<Events>) -> Box<DoraEvent> {
    events.next()
}

fn next_event_timeout(events: &mut Box<Events>, timeout_ms: u64) -> Box<DoraEvent> {
    Box::new(events.within(Duration::from_millis(timeout_ms)))
}

fn try_next_event(events: &mut Box<Events>) -> Box<DoraEvent> {
    Box::new(events.poll())
}

fn events_is_empty(events: &Box<Events>) -> bool {
    events.is_empty()
}

fn drain_events(events: &mut Box<Events>) -> Box<DrainedEvents> {
    Box::new(events.drain())
}

fn drained_events_len(drained: &Box<DrainedEvents>) -> usize {
    drained.0.len()
}

fn drained_events_next(drained: &mut Box<DrainedEvents>) -> Box<DoraEvent> {
    let event = drained.0.pop_front();
    Box::new(event.map_or(DoraEvent::Empty, DoraEvent::Event))
}

fn event_type(event: &Box<DoraEvent>) -> DoraEventType {
    match &**event {
        DoraEvent::Event(Event::Stop(_)) => DoraEventType::Stop,
        DoraEvent::Event(Event::Input { .. }) => DoraEventType::Input,
        DoraEvent::Event(Event::InputClosed { .. }) => DoraEventType::InputClosed,
        DoraEvent::Event(Event::Error(_)) => DoraEventType::Error,
        DoraEvent::Event(Event::NodeFailed { .. }) => DoraEventType::NodeFailed,
        DoraEvent::Event(Event::Reload { .. }) => DoraEventType::Reload,
        DoraEvent::Event(_) => DoraEventType::Unknown,
        DoraEvent::Closed => DoraEventType::AllInputsClosed,
        DoraEvent::Empty => DoraEventType::Empty,
        DoraEvent::TimedOut => DoraEventType::Timeout,
    }
}

fn event_as_input(event: Box<DoraEvent>) -> Result<DoraInput> {
    let (id, _, data) = event.input()?;
    let data = bytes(&id, &data)?;
    Ok(DoraInput { id, data })
}

fn event_as_input_with_metadata(event: Box<DoraEvent>) -> Result<DoraInputWithMetadata> {
    let (id, metadata, data) = event.input()?;
    Ok(DoraInputWithMetadata {
        data: bytes(&id, &data)?,
        id,
        metadata: Box::new(metadata.into()),
    })
}

fn event_as_node_failed(event: Box<DoraEvent>) -> Result<DoraNodeFailed> {
    match *event {
        DoraEvent::Event(Event::NodeFailed {
            affected_input_ids,
            error,
            source_node_id,
        }) => Ok(DoraNodeFailed {
            affected_input_ids: affected_input_ids.into_iter().map(Into::into).collect(),
            error,
            source_node_id: source_node_id.to_string(),
        }),
        _ => bail!("the event is not the failure of a node"),
    }
}

/// # Safety
/// The pointers are null, or to structures that may be overwritten.
unsafe fn event_as_arrow_input(
    event: Box<DoraEvent>,
    array: *mut u8,
    schema: *mut u8,
) -> DoraResult {
    // SAFETY: the caller passes such pointers.
    let exported = |(_, _, data)| unsafe { arrow::export(&data, array, schema) };
    outcome(event.input().and_then(exported))
}

/// # Safety
/// As [`event_as_arrow_input`].
unsafe fn event_as_arrow_input_with_info(
    event: Box<DoraEvent>,
    array: *mut u8,
    schema: *mut u8,
) -> ArrowInputInfo {
    let (id, metadata, exported) = match event.input() {
        Ok((id, metadata, data)) => {
            // SAFETY: the caller passes such pointers.
            let exported = unsafe { arrow::export(&data, array, schema) };
            (id, Box::new(metadata.into()), exported)
        }
        Err(error) => (String::new(), new_metadata(), Err(error)),
    };
    ArrowInputInfo {
        id,
        metadata,
        error: outcome(exported).error,
    }
}

/// The outcome for C++. An error has its causes.
fn outcome(result: Result<()>) -> DoraResult {
    let error = result.err().map(|error| format!("{error:#}"));
    DoraResult {
        error: error.unwrap_or_default(),
    }
}

fn send_output(sender: &mut Box<OutputSender>, id: String, data: &[u8]) -> DoraResult {
    outcome(sender.send_bytes(&id, data, MetadataParameters::new()))
}

fn send_output_with_metadata(
    sender: &mut Box<OutputSender>,
    id: String,
    data: &[u8],
    metadata: Box<Metadata>,
) -> DoraResult {
    outcome(sender.send_bytes(&id, data, metadata.into_parameters()))
}

/// # Safety
/// The pointers are null, or to a valid array and its schema.
unsafe fn send_arrow_output(
    sender: &mut Box<OutputSender>,
    id: String,
    array: *mut u8,
    schema: *mut u8,
) -> DoraResult {
    // SAFETY: the caller passes such pointers.
    unsafe { send_arrow_output_with_metadata(sender, id, array, schema, new_metadata()) }
}

/// # Safety
/// As [`send_arrow_output`].
unsafe fn send_arrow_output_with_metadata(
    sender: &mut Box<OutputSender>,
    id: String,
    array: *mut u8,
    schema: *mut u8,
    metadata: Box<Metadata>,
) -> DoraResult {
    // SAFETY: the caller passes such pointers.
    let array = unsafe { arrow::import(array, schema) };
    outcome(array.and_then(|array| sender.send_array(&id, array, metadata.into_parameters())))
}

fn close_outputs(sender: &mut Box<OutputSender>, output_ids: Vec<String>) -> DoraResult {
    outcome(sender.close(output_ids))
}

fn log_message(sender: &Box<OutputSender>, level: String, message: String) -> DoraResult {
    sender.0.log(&level, &message, None);
    outcome(Ok(()))
}

/// The topic of each input, `null` for a timer, and the outputs.
fn node_config_json(sender: &Box<OutputSender>) -> Result<String> {
    let config = sender.0.node_config();
    let inputs = config.inputs.iter();
    let inputs: serde_json::Map<_, _> = inputs
        .map(|(id, topic)| (id.to_string(), json!(topic)))
        .collect();
    let outputs: Vec<_> = config.outputs.iter().map(DataId::as_str).collect();
    Ok(json!({"inputs": inputs, "outputs": outputs}).to_string())
}

fn dataflow_descriptor_json(_: &Box<OutputSender>) -> Result<String> {
    bail!(
        "a Nervure node knows its own inputs and outputs, not the dataflow: use `node_config_json`"
    )
}

fn new_request_id() -> String {
    DoraNode::new_request_id()
}

fn new_goal_id() -> String {
    DoraNode::new_goal_id()
}

fn goal_status_succeeded() -> String {
    GOAL_STATUS_SUCCEEDED.to_owned()
}

fn goal_status_aborted() -> String {
    GOAL_STATUS_ABORTED.to_owned()
}

fn goal_status_canceled() -> String {
    GOAL_STATUS_CANCELED.to_owned()
}

fn send_service_request(
    sender: &mut Box<OutputSender>,
    output_id: String,
    data: &[u8],
    metadata: Box<Metadata>,
) -> DoraRequestId {
    let mut parameters = metadata.into_parameters();
    let request_id = add_request_id(&mut parameters);
    requested(request_id, sender.send_bytes(&output_id, data, parameters))
}

/// # Safety
/// As [`send_arrow_output`].
unsafe fn send_arrow_service_request(
    sender: &mut Box<OutputSender>,
    output_id: String,
    array: *mut u8,
    schema: *mut u8,
    metadata: Box<Metadata>,
) -> DoraRequestId {
    let mut parameters = metadata.into_parameters();
    let request_id = add_request_id(&mut parameters);
    // SAFETY: the caller passes such pointers.
    let array = unsafe { arrow::import(array, schema) };
    let sent = array.and_then(|array| sender.send_array(&output_id, array, parameters));
    requested(request_id, sent)
}

/// A request id, which is empty after an error.
fn requested(request_id: String, sent: Result<()>) -> DoraRequestId {
    let request_id = sent.as_ref().map_or(String::new(), |()| request_id);
    DoraRequestId {
        request_id,
        error: outcome(sent).error,
    }
}

fn send_service_response(
    sender: &mut Box<OutputSender>,
    output_id: String,
    data: &[u8],
    metadata: Box<Metadata>,
) -> DoraResult {
    send_output_with_metadata(sender, output_id, data, metadata)
}

fn recv_service_response(
    events: &mut Box<Events>,
    request_id: &str,
    server_node_id: &str,
    timeout_ms: u64,
) -> DoraPatternResult {
    pattern(server_node_id, timeout_ms, |timeout| {
        events.response(request_id, server_node_id, timeout)
    })
}

fn recv_action_result(
    events: &mut Box<Events>,
    goal_id: &str,
    server_node_id: &str,
    timeout_ms: u64,
) -> DoraPatternResult {
    pattern(server_node_id, timeout_ms, |timeout| {
        events.result(goal_id, server_node_id, timeout)
    })
}

fn pattern(
    server: &str,
    timeout_ms: u64,
    wait: impl FnOnce(Duration) -> Result<Event, PatternError>,
) -> DoraPatternResult {
    // A year is as good as forever, and a deadline that the clock can express.
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
    let ended = |status, error: String, event| DoraPatternResult {
        status,
        error,
        event: Box::new(event),
    };
    if let Err(error) = server.parse::<NodeId>() {
        let status = DoraPatternStatus::InvalidArgument;
        return ended(status, error.to_string(), DoraEvent::Empty);
    }
    let error = match wait(Duration::from_millis(timeout_ms).min(LONGEST)) {
        Ok(event) => {
            let event = DoraEvent::Event(event);
            return ended(DoraPatternStatus::Matched, String::new(), event);
        }
        Err(error) => error,
    };
    let (status, event) = match &error {
        PatternError::Timeout => (DoraPatternStatus::Timeout, DoraEvent::TimedOut),
        PatternError::ServerRestarted(_) => (DoraPatternStatus::ServerRestarted, DoraEvent::Empty),
        PatternError::StreamEnded => (DoraPatternStatus::StreamEnded, DoraEvent::Closed),
        PatternError::StreamError(_) => (DoraPatternStatus::StreamError, DoraEvent::Empty),
    };
    ended(status, error.to_string(), event)
}

fn dora_events_into_combined(events: Box<Events>) -> CombinedEvents {
    CombinedEvents {
        events: Box::new(MergedEvents(Some(events))),
    }
}

fn empty_combined_events() -> CombinedEvents {
    CombinedEvents {
        events: Box::new(MergedEvents(None)),
    }
}

impl CombinedEvents {
    fn next(&mut self) -> CombinedEvent {
        let event = match &mut self.events.0 {
            Some(events) => events.next(),
            None => Box::new(DoraEvent::Closed),
        };
        CombinedEvent {
            event: Box::new(MergedDoraEvent(event)),
        }
    }
}

impl CombinedEvent {
    fn is_dora(&self) -> bool {
        matches!(*self.event.0, DoraEvent::Event(_))
    }
}

/// The event; that there are no more is an event too.
fn downcast_dora(event: CombinedEvent) -> Result<Box<DoraEvent>> {
    Ok(event.event.0)
}

fn new_metadata() -> Box<Metadata> {
    Box::default()
}

impl Metadata {
    fn value_type(&self, key: &str) -> Result<MetadataValueType> {
        Ok(match self.parameter(key)? {
            Parameter::Bool(_) => MetadataValueType::Bool,
            Parameter::Integer(_) => MetadataValueType::Integer,
            Parameter::Float(_) => MetadataValueType::Float,
            Parameter::String(_) => MetadataValueType::String,
            Parameter::ListInt(_) => MetadataValueType::ListInt,
            Parameter::ListFloat(_) => MetadataValueType::ListFloat,
            Parameter::ListString(_) => MetadataValueType::ListString,
            Parameter::Timestamp(_) => MetadataValueType::Timestamp,
        })
    }
}
