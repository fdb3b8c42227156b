//! The sending half of a node.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::PoisonError;

use arrow::array::Array;
use nervure_node::message::{ArraySample, Schema};
use nervure_node::{
    CONTROL_FD_VARIABLE, Encode, Envelope, Handle, Node, Publisher, SendError, Wait, binding,
};

use crate::bridge::to_nervure;
use crate::error::{NodeError, NodeResult};
use crate::event_stream::{EventStream, Kept};
use crate::id::{DataId, NodeId, new_request_id};
use crate::metadata::{self, MetadataParameters, Parameter, REQUEST_ID};
use crate::{DataflowId, StreamSegment, uhlc};
use dora_arrow_convert::IntoArrow;

/// A node: sends outputs, and knows its place in the dataflow.
#[derive(Debug)]
pub struct DoraNode {
    handle: Handle,
    id: NodeId,
    dataflow: DataflowId,
    outputs: HashMap<DataId, Output>,
    config: NodeRunConfig,
    /// Undeclared outputs that were reported.
    reported: HashSet<DataId>,
    kept: Kept,
}

/// The inputs and outputs of a node, as the file declares them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRunConfig {
    /// The inputs, each with the topic (`node/output`) that it receives; `None` for a timer.
    pub inputs: BTreeMap<DataId, Option<String>>,
    /// The outputs.
    pub outputs: BTreeSet<DataId>,
}

#[derive(Debug)]
struct Output {
    publisher: Publisher,
    /// The schema of the last array: most outputs have one type.
    schema: Option<Schema>,
}

impl DoraNode {
    /// Connects to the keeper that started this program. A program that was started by hand joins the
    /// dataflow of `nervure attach`, and fails without one.
    ///
    /// # Errors
    /// [`NodeError::Init`].
    pub fn init_from_env() -> NodeResult<(Self, EventStream)> {
        Self::of(Node::connect())
    }

    /// As [`DoraNode::init_from_env`].
    ///
    /// # Errors
    /// [`NodeError::Init`].
    pub fn init_from_env_force() -> NodeResult<(Self, EventStream)> {
        Self::init_from_env()
    }

    /// Joins a running dataflow as its node with that id, which has `path: dynamic` in the file.
    ///
    /// # Errors
    /// [`NodeError::Init`] if no dataflow runs, or it has no such node.
    pub fn init_from_node_id(node_id: NodeId) -> NodeResult<(Self, EventStream)> {
        Self::of(Node::join(None, node_id.as_str()))
    }

    /// Connects to the keeper that started this program; a program that was started by hand joins a
    /// dataflow as the node with that id.
    ///
    /// # Errors
    /// [`NodeError::Init`].
    pub fn init_flexible(node_id: NodeId) -> NodeResult<(Self, EventStream)> {
        match std::env::var_os(CONTROL_FD_VARIABLE) {
            Some(_) => Self::init_from_env(),
            None => Self::init_from_node_id(node_id),
        }
    }

    /// Prepares a node.
    pub fn builder() -> DoraNodeBuilder {
        DoraNodeBuilder::default()
    }

    fn of(connected: Result<Node, nervure_node::ConnectError>) -> NodeResult<(Self, EventStream)> {
        let node = connected.map_err(|error| NodeError::Init(error.to_string()))?;
        let (handle, events) = node.split();
        let mut outputs = HashMap::new();
        for name in handle.outputs() {
            let publisher = handle.output(name).map_err(failed)?;
            let output = Output {
                publisher,
                schema: None,
            };
            outputs.insert(DataId::from(name), output);
        }
        let topic = |input: &str| handle.topic_of(input).map(str::to_owned);
        let inputs = handle.inputs();
        let config = NodeRunConfig {
            inputs: inputs.map(|id| (id.into(), topic(id))).collect(),
            outputs: handle.outputs().map(DataId::from).collect(),
        };
        let kept = Kept::default();
        let node = Self {
            config,
            id: NodeId::from(handle.id()),
            dataflow: dataflow_id(handle.dataflow()),
            outputs,
            reported: HashSet::new(),
            kept: kept.clone(),
            handle,
        };
        let events = EventStream::new(&node.handle, events, kept);
        Ok((node, events))
    }

    /// The node's id in the dataflow file.
    pub fn id(&self) -> &NodeId {
        &self.id
    }

    /// The identifier of this run of the dataflow, the same in all its nodes, also in Python.
    pub fn dataflow_id(&self) -> &DataflowId {
        &self.dataflow
    }

    /// The inputs and outputs of the node.
    pub fn node_config(&self) -> &NodeRunConfig {
        &self.config
    }

    /// Number of restarts of the node: 0 at the first start.
    pub fn restart_count(&self) -> u32 {
        self.handle.incarnation()
    }

    /// Whether the node was restarted.
    pub fn is_restart(&self) -> bool {
        self.restart_count() > 0
    }

    /// The time on the dataflow's clock.
    pub fn timestamp(&self) -> uhlc::Timestamp {
        metadata::timestamp(self.handle.now())
    }

    /// Sends a value. Waits while the queue of a consumer with `queue_policy: block` is full.
    ///
    /// An output that the file does not declare is reported once on standard error, and the value is
    /// dropped. Values that are sent while the dataflow stops may be dropped.
    ///
    /// # Errors
    /// [`NodeError::Output`] if the value or its parameters cannot be sent.
    pub fn send_output(
        &mut self,
        output_id: DataId,
        parameters: MetadataParameters,
        data: impl IntoArrow,
    ) -> NodeResult<()> {
        let Some(output) = self.output(&output_id) else {
            return Ok(());
        };
        let array = to_nervure::array(&data.into_arrow().0.to_data()).map_err(failed)?;
        let schema = Schema::last_or_of_type(&mut output.schema, array.data_type());
        let schema = schema.map_err(failed)?;
        let sample = ArraySample::new(&array, schema).map_err(failed)?;
        send(&output.publisher, parameters, &sample)
    }

    /// Sends bytes, as an array of `UInt8`. Otherwise as [`DoraNode::send_output`].
    ///
    /// # Errors
    /// As [`DoraNode::send_output`], and if `data_len` is not the length of `data`.
    pub fn send_output_bytes(
        &mut self,
        output_id: DataId,
        parameters: MetadataParameters,
        data_len: usize,
        data: &[u8],
    ) -> NodeResult<()> {
        let Some(output) = self.output(&output_id) else {
            return Ok(());
        };
        if data.len() != data_len {
            return Err(NodeError::Output(format!(
                "`data_len` is {data_len}, and the data has {} bytes",
                data.len()
            )));
        }
        send(&output.publisher, parameters, data)
    }

    /// Sends bytes that `data` writes, in place in shared memory. Otherwise as
    /// [`DoraNode::send_output_bytes`].
    ///
    /// # Errors
    /// As [`DoraNode::send_output`], and if the node's shared memory is used up.
    pub fn send_output_raw<F>(
        &mut self,
        output_id: DataId,
        parameters: MetadataParameters,
        data_len: usize,
        data: F,
    ) -> NodeResult<()>
    where
        F: FnOnce(&mut [u8]),
    {
        let Some(output) = self.output(&output_id) else {
            return Ok(());
        };
        let loan = output.publisher.loan::<u8>(&[data_len]);
        let mut loan = loan.map_err(|error| NodeError::Data(error.to_string()))?;
        data(&mut loan);
        let metadata = metadata::to_nervure(parameters);
        sent(
            loan.send_with(&Envelope::new().metadata(&metadata))
                .map(drop),
        )
    }

    /// Whether the file declares the output. Reports an undeclared one once on standard error.
    pub fn validate_output(&mut self, output_id: &DataId) -> bool {
        self.output(output_id).is_some()
    }

    /// Ends outputs: their consumers get [`InputClosed`](crate::Event::InputClosed) after the queued
    /// samples. Later samples of these outputs are dropped.
    ///
    /// # Errors
    /// [`NodeError::Output`] if the file does not declare one of them; then none is given up.
    pub fn close_outputs(&mut self, outputs_ids: Vec<DataId>) -> NodeResult<()> {
        if let Some(unknown) = outputs_ids
            .iter()
            .find(|id| !self.outputs.contains_key(*id))
        {
            return Err(NodeError::Output(format!("unknown output {unknown}")));
        }
        for id in &outputs_ids {
            self.outputs.remove(id);
            binding::close_output(&self.handle, id);
        }
        Ok(())
    }

    /// Writes a line with a level (`error`, `warn`, `info`, `debug`, `trace`) to standard output,
    /// where Nervure takes it into the log.
    pub fn log(&self, level: &str, message: &str, target: Option<&str>) {
        self.log_with_fields(level, message, target, None);
    }

    /// As [`DoraNode::log`], with named values after the message.
    pub fn log_with_fields(
        &self,
        level: &str,
        message: &str,
        target: Option<&str>,
        fields: Option<&BTreeMap<String, String>>,
    ) {
        println!("{}", log_line(level, message, target, fields));
    }

    /// Logs an error.
    pub fn log_error(&self, message: &str) {
        self.log("error", message, None);
    }

    /// Logs a warning.
    pub fn log_warn(&self, message: &str) {
        self.log("warn", message, None);
    }

    /// Logs a message.
    pub fn log_info(&self, message: &str) {
        self.log("info", message, None);
    }

    /// Logs a message for debugging.
    pub fn log_debug(&self, message: &str) {
        self.log("debug", message, None);
    }

    /// Logs a message for tracing.
    pub fn log_trace(&self, message: &str) {
        self.log("trace", message, None);
    }

    /// A new identifier for a request. Later ones are greater.
    pub fn new_request_id() -> String {
        new_request_id()
    }

    /// A new identifier for the goal of an action.
    pub fn new_goal_id() -> String {
        Self::new_request_id()
    }

    /// Sends a request, and returns the request id that it carries.
    ///
    /// # Errors
    /// As [`DoraNode::send_output`].
    pub fn send_service_request(
        &mut self,
        output_id: DataId,
        mut parameters: MetadataParameters,
        data: impl IntoArrow,
    ) -> NodeResult<String> {
        let request_id = Self::new_request_id();
        let parameter = Parameter::String(request_id.clone());
        parameters.insert(REQUEST_ID.to_owned(), parameter);
        self.send_output(output_id, parameters, data)?;
        Ok(request_id)
    }

    /// Sends a response. `parameters` are the request's, with its request id.
    ///
    /// # Errors
    /// As [`DoraNode::send_output`].
    pub fn send_service_response(
        &mut self,
        output_id: DataId,
        parameters: MetadataParameters,
        data: impl IntoArrow,
    ) -> NodeResult<()> {
        self.send_output(output_id, parameters, data)
    }

    /// Sends a chunk of a stream.
    ///
    /// # Errors
    /// As [`DoraNode::send_output`].
    pub fn send_stream_chunk(
        &mut self,
        output_id: DataId,
        segment: &mut StreamSegment,
        fin: bool,
        data: impl IntoArrow,
    ) -> NodeResult<()> {
        self.send_output(output_id, segment.chunk(fin), data)
    }

    fn output(&mut self, id: &DataId) -> Option<&mut Output> {
        if !self.outputs.contains_key(id) && self.reported.insert(id.clone()) {
            let mut known: Vec<_> = self.outputs.keys().map(DataId::as_str).collect();
            known.sort_unstable();
            eprintln!(
                "WARN node {} sends to `{id}`, which is not among its outputs in the dataflow file ({}): ignored",
                self.id,
                known.join(", ")
            );
        }
        self.outputs.get_mut(id)
    }
}

impl Drop for DoraNode {
    fn drop(&mut self) {
        let kept = self.kept.lock();
        let events = kept.unwrap_or_else(PoisonError::into_inner).take();
        if events.is_none() {
            // The program still receives, and can no longer send.
            for output in self.outputs.keys() {
                binding::close_output(&self.handle, output);
            }
        }
    }
}

/// A node that is not connected yet.
#[derive(Debug, Default)]
pub struct DoraNodeBuilder {
    node_id: Option<NodeId>,
    is_dynamic: bool,
}

impl DoraNodeBuilder {
    /// Sets the id, for a node with `path: dynamic`.
    #[must_use]
    pub fn node_id(mut self, node_id: NodeId) -> Self {
        self.node_id = Some(node_id);
        self
    }

    /// Joins a running dataflow, also in a program that a keeper started.
    #[must_use]
    pub fn dynamic(mut self) -> Self {
        self.is_dynamic = true;
        self
    }

    /// Has no effect: a dataflow is found by its name.
    #[must_use]
    pub fn daemon_port(self, _port: u16) -> Self {
        self
    }

    /// Connects the node.
    ///
    /// # Errors
    /// [`NodeError::Init`].
    pub fn build(self) -> NodeResult<(DoraNode, EventStream)> {
        match self.node_id {
            Some(id) if self.is_dynamic => DoraNode::init_from_node_id(id),
            Some(id) => DoraNode::init_flexible(id),
            None if self.is_dynamic => {
                let error = "a dynamic node needs an id: call `node_id`";
                Err(NodeError::Init(error.to_owned()))
            }
            None => DoraNode::init_from_env(),
        }
    }
}

fn send<V: Encode + ?Sized>(
    publisher: &Publisher,
    parameters: MetadataParameters,
    value: &V,
) -> NodeResult<()> {
    let metadata = metadata::to_nervure(parameters);
    let envelope = Envelope::new().metadata(&metadata);
    sent(
        publisher
            .send_with(value, &envelope, Wait::Forever)
            .map(drop),
    )
}

/// An identifier of the dataflow's name and its keeper.
fn dataflow_id(name: &str) -> DataflowId {
    // `pid-ticks/node`: the first part is unique on this machine until it boots.
    let keeper = std::env::var("NERVURE_KEEPER").unwrap_or_default();
    let keeper = keeper.split('/').next().unwrap_or_default();
    DataflowId::new_v5(
        &DataflowId::NAMESPACE_OID,
        format!("{name}/{keeper}").as_bytes(),
    )
}

/// In dora it is no error to send while the dataflow stops.
fn sent(result: Result<(), SendError>) -> NodeResult<()> {
    match result {
        Err(SendError::Stopped) => Ok(()),
        result => result.map_err(failed),
    }
}

fn failed(error: impl std::fmt::Display) -> NodeError {
    NodeError::Output(error.to_string())
}

fn log_line(
    level: &str,
    message: &str,
    target: Option<&str>,
    fields: Option<&BTreeMap<String, String>>,
) -> String {
    let level = match level.to_uppercase().as_str() {
        "WARNING" => "WARN".to_owned(),
        level if ["ERROR", "WARN", "DEBUG", "TRACE"].contains(&level) => level.to_owned(),
        _ => "INFO".to_owned(),
    };
    let target = target
        .map(|target| format!("{target}: "))
        .unwrap_or_default();
    let fields = fields.into_iter().flatten();
    let fields: String = fields
        .map(|(key, value)| format!(" {key}={value}"))
        .collect();
    format!("{level} {target}{message}{fields}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_begins_with_its_level() {
        assert_eq!(log_line("warning", "dark", None, None), "WARN dark");
        assert_eq!(
            log_line("Error", "lost", Some("camera"), None),
            "ERROR camera: lost"
        );
        let fields = BTreeMap::from([("port".to_owned(), "80".to_owned())]);
        assert_eq!(
            log_line("x", "open", None, Some(&fields)),
            "INFO open port=80"
        );
    }

    #[test]
    fn identifiers_of_requests_grow() {
        let ids: Vec<_> = (0..100).map(|_| DoraNode::new_request_id()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn a_program_without_a_keeper_learns_how_to_start() {
        let error = DoraNode::init_from_env().unwrap_err().to_string();
        assert!(error.starts_with("initialization failed: "), "{error}");
        assert!(error.contains("nervure run"), "{error}");
        assert!(DoraNode::builder().dynamic().build().is_err());
    }
}
