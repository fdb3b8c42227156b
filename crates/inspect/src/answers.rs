//! JSON that commands write with `--json` and that the API answers.

use std::collections::BTreeMap;

use nervure_dataflow::Diagnostic;
use nervure_protocol::{
    daemon_to_daemon::StreamReport, keeper_to_cli::DataflowState, report::NodeEnded, wiring::Queue,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{Fault, places::Unreachable};

/// The JSON of an error.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorAnswer {
    /// `error`.
    message: &'static str,
    error: ErrorDetails,
}

/// What failed. `file`, `line` and `column` are those of the first error in a dataflow file.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorDetails {
    /// The failed operation, and the name of the thing that it failed for.
    pub message: String,
    /// The dataflow file.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The column, from 1.
    pub column: Option<usize>,
    /// The likely fix.
    pub hint: Option<String>,
    /// The nearest first.
    pub caused_by: Vec<String>,
    /// Exit code of the command.
    pub exit_code: u8,
    /// All findings in the file.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub findings: Vec<Diagnostic>,
}

impl From<ErrorDetails> for ErrorAnswer {
    fn from(error: ErrorDetails) -> Self {
        Self {
            message: "error",
            error,
        }
    }
}

impl ErrorAnswer {
    /// The JSON of the error of a library.
    pub fn of(fault: &impl Fault) -> Self {
        Self::from(ErrorDetails {
            message: fault.to_string(),
            hint: fault.hint(),
            caused_by: fault.causes(),
            exit_code: fault.exit_code(),
            ..ErrorDetails::default()
        })
    }
}

/// An answer as a line of JSON, with its keys in alphabetical order.
pub fn line(answer: &impl Serialize) -> String {
    format!("{}\n", json!(answer))
}

/// The running dataflows: `nervure list --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Listing {
    /// Each dataflow, or in a fleet each part of one.
    pub dataflows: Vec<ListedDataflow>,
    /// Dataflows of other users of this host, by the names of their sockets.
    pub of_other_users: Vec<OfOtherUser>,
    /// Machines that cannot be reached.
    pub unreachable: Vec<UnreachableMachine>,
}

/// A dataflow, or the part of one on a machine.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListedDataflow {
    /// The name of the dataflow.
    pub dataflow: String,
    /// Process id of the keeper.
    pub keeper: Option<u32>,
    /// The user of the keeper, if it is on this host.
    pub uid: Option<u32>,
    /// Absent without a fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The answer of the keeper.
    #[serde(flatten)]
    pub described: Option<Described>,
    /// Reason for a keeper without an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Answer of a keeper about its dataflow.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Described {
    /// `starting`, `running`, `paused` or `stopping`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub state: DataflowState,
    /// In nanoseconds since the Unix epoch.
    pub started_utc_nanos: i64,
    /// Number of nodes.
    pub nodes: u32,
    /// Number of running nodes.
    pub running: u32,
    /// Number of observers.
    pub observers: u32,
    /// Whether it continues when the command that started it ends.
    pub detached: bool,
    /// The folder of the dataflow file.
    pub folder: String,
    /// Empty without log files.
    pub log_folder: String,
}

/// A dataflow of another user.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OfOtherUser {
    /// The name of the dataflow.
    pub dataflow: String,
    /// Process id of the keeper.
    pub keeper: u32,
    /// The user of the keeper.
    pub uid: u32,
}

/// A machine that cannot be reached.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnreachableMachine {
    /// The name of the machine.
    pub machine: String,
    /// Why it cannot be reached.
    pub reason: String,
    /// Time since anything arrived from it, if anything has.
    pub silent_seconds: Option<f64>,
    /// The last known state of each of its nodes; absent in a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<BTreeMap<String, String>>,
}

impl From<&Unreachable> for UnreachableMachine {
    fn from(one: &Unreachable) -> Self {
        Self {
            machine: one.machine.clone(),
            reason: one.reason.clone(),
            silent_seconds: one.silence.map(|it| it.as_secs_f64()),
            nodes: None,
        }
    }
}

impl UnreachableMachine {
    /// With the last known states of its nodes.
    pub fn with_nodes(one: &Unreachable) -> Self {
        let nodes = one.nodes.iter();
        let texts = nodes.map(|(node, state)| (node.clone(), state.to_string()));
        Self {
            nodes: Some(texts.collect()),
            ..Self::from(one)
        }
    }
}

/// The state of a dataflow: `nervure status --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Status {
    /// The name of the dataflow.
    pub dataflow: String,
    /// `starting`, `running`, `paused` or `stopping`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub state: DataflowState,
    /// The parts on the machines.
    pub parts: Vec<StatusOfPart>,
    /// Machines that cannot be reached.
    pub unreachable: Vec<UnreachableMachine>,
    /// In nanoseconds since the Unix epoch.
    pub started_utc_nanos: i64,
    /// Process id of the keeper, of the first part.
    pub keeper: u32,
    /// Whether it continues when the command that started it ends.
    pub detached: bool,
    /// The folder of the dataflow file.
    pub folder: String,
    /// Empty without log files.
    pub log_folder: String,
    /// The nodes of the file.
    pub nodes: Vec<StatusOfNode>,
    /// Outcome of the samples that cross machines, by topic and machine.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub streams: Vec<StreamReport>,
    /// Streams that are left out.
    pub streams_omitted: usize,
    /// Edges that lost samples, or have unreadable counters.
    pub lossy_edges: Vec<LossyEdge>,
    /// The names of the observers.
    pub observers: Vec<String>,
}

/// The part of a dataflow on a machine.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StatusOfPart {
    /// `null` without a fleet.
    pub machine: Option<String>,
    /// Process id of the keeper.
    pub keeper: u32,
    /// `starting`, `running`, `paused` or `stopping`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub state: DataflowState,
    /// The folder of the dataflow file.
    pub folder: String,
    /// Empty without log files.
    pub log_folder: String,
}

/// A node.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StatusOfNode {
    /// The id of the node.
    pub id: String,
    /// `null` without a fleet.
    pub machine: Option<String>,
    /// Such as `runs`, `starts`, `restarts`, `failed`, `stopped`, `ended`.
    pub state: &'static str,
    /// Process id, while a process runs.
    pub pid: Option<u32>,
    /// Restarts so far.
    pub restarts: u32,
    /// The program that runs.
    pub program: String,
    /// The program of the file, if it was replaced.
    pub file_says: Option<String>,
    /// The process in its place.
    pub attached: Option<String>,
    /// The end of its last process, until the next one starts.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub last_end: Option<NodeEnded>,
    /// Why the start of the dataflow waits for it, such as `is not ready`.
    pub not_done: Option<String>,
    /// Why its counters are not readable.
    pub unreadable_counters: Option<String>,
}

/// An edge that lost samples.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LossyEdge {
    /// `node/output`.
    pub topic: String,
    /// `node/input`.
    pub input: String,
    /// `null` if it is not known.
    pub lost: Option<u64>,
    /// Why the counters are not readable.
    pub unreadable: Option<String>,
}

/// What nodes use and edges carry: `nervure top --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Load {
    /// The name of the dataflow.
    pub dataflow: String,
    /// Process id of the keeper, of the first part.
    pub keeper: u32,
    /// `starting`, `running`, `paused` or `stopping`.
    pub state: &'static str,
    /// Since its start.
    pub elapsed_seconds: f64,
    /// The nodes and observers.
    pub nodes: Vec<LoadOfNode>,
    /// Bytes over links for this answer; `null` without parts on other machines.
    pub link_bytes: Option<u64>,
    /// Machines that cannot be reached.
    pub unreachable: Vec<String>,
    /// The edges.
    pub edges: Vec<LoadOfEdge>,
}

/// Load of a node.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoadOfNode {
    /// The id of the node, or the name of the observer.
    pub id: String,
    /// `null` without a fleet.
    pub machine: Option<String>,
    /// Whether it is an observer, not a node of the file.
    pub observer: bool,
    /// Such as `runs`, `starts`, `restarts`, `failed`, `stopped`, `ended`.
    pub state: &'static str,
    /// Process id, while a process runs.
    pub pid: Option<u32>,
    /// The kernel's id of its thread, if it shares its process with other nodes.
    pub thread: Option<u32>,
    /// Restarts so far.
    pub restarts: u32,
    /// 100 is one CPU.
    pub cpu_percent: Option<f64>,
    /// Memory of its processes, shared memory included.
    pub resident_bytes: Option<u64>,
    /// Threads of its processes.
    pub threads: Option<u64>,
}

/// The queue, counters and figures of an edge. A value is `null` if the counters are not readable.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoadOfEdge {
    /// `node/output`.
    pub topic: String,
    /// `node/input`.
    pub input: String,
    /// `policy`, `depth` and `max_held`.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub queue: Queue,
    /// `received` + `lost` + `not_taken`.
    pub sent: Option<u64>,
    /// Without `lost_in_crash`.
    pub received: Option<u64>,
    /// Payload bytes of the received samples.
    pub received_bytes: Option<u64>,
    /// The sum of the causes below.
    pub lost: Option<u64>,
    /// In the queue, or in it when the consumer ended or the dataflow stopped.
    pub not_taken: Option<u64>,
    /// Lost because the queue was full: the oldest samples.
    pub dropped_oldest: Option<u64>,
    /// Lost because the queue was full: the newest samples.
    pub dropped_newest: Option<u64>,
    /// Lost because the consumer held the maximum of samples.
    pub missed_held: Option<u64>,
    /// Lost because the shared memory of the producer was used up.
    pub missed_memory: Option<u64>,
    /// Lost because the consumer did not map new memory in time.
    pub missed_control: Option<u64>,
    /// Lost because the consumer had no process.
    pub missed_away: Option<u64>,
    /// Dropped from the queue while the consumer had no process.
    pub dropped_away: Option<u64>,
    /// Lost with the consumer that held them when it died.
    pub lost_in_crash: Option<u64>,
    /// Lost with their producer, before the consumer started again.
    pub lost_with_producer: Option<u64>,
    /// In the queue when the dataflow stopped.
    pub undelivered: Option<u64>,
    /// Samples in the queue.
    pub queued: Option<u64>,
    /// Samples that the consumer views now.
    pub held: Option<u64>,
    /// Times that the input was stale.
    pub stale: Option<u64>,
    /// Time that the producer has waited for room.
    pub blocked_nanos: Option<u64>,
    /// Samples received per second, over the last readings.
    pub rate_hz: Option<f64>,
    /// Payload bytes received per second, over the last readings.
    pub bytes_per_second: Option<f64>,
    /// Median over all samples.
    pub latency_p50_nanos: Option<u64>,
    /// 99th percentile over all samples.
    pub latency_p99_nanos: Option<u64>,
    /// Over all samples.
    pub latency_max_nanos: Option<u64>,
    /// Why the counters are not readable.
    pub unreadable: Option<String>,
}

/// The topics of a dataflow: `nervure topic list --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Topics {
    /// The name of the dataflow.
    pub dataflow: String,
    /// The topics.
    pub topics: Vec<ListedTopic>,
}

/// A topic.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListedTopic {
    /// `node/output`.
    pub topic: String,
    /// As declared.
    pub r#type: Option<String>,
    /// Samples that inputs get that connect late.
    pub history: u32,
    /// Number of inputs that receive it.
    pub consumers: usize,
    /// Number of observers that receive it.
    pub observers: usize,
}

/// The frames of a dataflow: `nervure tf tree --json`.
#[derive(Debug, Serialize)]
pub struct Frames {
    /// The name of the dataflow.
    pub dataflow: String,
    /// The frames with a parent, by name.
    pub frames: Vec<Frame>,
    /// Transforms that are not valid.
    pub refused: Vec<RefusedTransforms>,
}

/// A frame with a parent.
#[derive(Debug, Serialize)]
pub struct Frame {
    /// Its name.
    pub frame: String,
    /// Its parent.
    pub parent: String,
    /// The topic that sends its transform; `None` for a static one.
    pub topic: Option<String>,
    /// Samples in a second.
    pub rate_hz: Option<f64>,
    /// Time since the stamp of the newest sample.
    pub age_nanos: Option<u64>,
}

/// Transforms of a topic that are not valid, for the same reason.
#[derive(Debug, Serialize)]
pub struct RefusedTransforms {
    /// The topic.
    pub topic: String,
    /// Their number.
    pub count: u64,
    /// The reason, for people, of the first.
    pub reason: String,
}

/// The services of a dataflow: the answer of `nervure service list --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Services {
    /// The name of the dataflow.
    pub dataflow: String,
    /// The services.
    pub services: Vec<ListedService>,
}

/// A service or an action.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListedService {
    /// `node/service`, or `node/action`.
    pub service: String,
    /// The node that answers.
    pub node: String,
    /// Its state.
    pub state: String,
    /// Its machine; `null` on a host that belongs to no fleet.
    pub machine: Option<String>,
    /// Its clients in the dataflow: `node/client` of each.
    pub clients: Vec<String>,
    /// Of an action, its handling of a goal during another one: `parallel`, `preempt` or `reject`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_goal: Option<&'static str>,
}

/// The actions of a dataflow: the answer of `nervure action list --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Actions {
    /// The name of the dataflow.
    pub dataflow: String,
    /// The actions.
    pub actions: Vec<ListedService>,
}

/// Topics with their edges.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TopicInfos {
    /// The name of the dataflow.
    pub dataflow: String,
    /// Each as a line of `nervure topic info --json`.
    pub topics: Vec<TopicInfo>,
    /// Machines that cannot be reached.
    pub unreachable: Vec<String>,
}

/// A topic with its edges: a line of `nervure topic info --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TopicInfo {
    /// `node/output`.
    pub topic: String,
    /// As declared.
    pub r#type: Option<String>,
    /// Samples that inputs get that connect late.
    pub history: u32,
    /// The node that sends it.
    pub producer: Producer,
    /// The edges.
    pub edges: Vec<LoadOfEdge>,
}

/// The node that sends a topic.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Producer {
    /// The id of the node.
    pub id: String,
    /// Such as `runs`, `restarts`, `failed`, `stopped`, `ended`.
    pub state: &'static str,
    /// Process id, while a process runs.
    pub pid: Option<u32>,
}

/// The consumers of topics, with the samples they hold: `nervure holders --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Holders {
    /// The name of the dataflow.
    pub dataflow: String,
    /// The consumers.
    pub holders: Vec<Holder>,
    /// Machines that cannot be reached.
    pub unreachable: Vec<String>,
}

/// A consumer of a topic. A value is `null` if its counters are not readable.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Holder {
    /// `node/output`.
    pub topic: String,
    /// `node/input`, or the name of an observer.
    pub consumer: String,
    /// Process id, while a process runs.
    pub pid: Option<u32>,
    /// Samples that it views now.
    pub held: Option<u64>,
    /// Samples in the queue.
    pub queued: Option<u64>,
    /// The most samples that it may view.
    pub max_held: u32,
    /// Samples that it missed because it held the maximum.
    pub missed_held: Option<u64>,
    /// Why the counters are not readable.
    pub unreadable: Option<String>,
}

/// Where and why samples were lost: `nervure explain --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explanations {
    /// The name of the dataflow.
    pub dataflow: String,
    /// The edges.
    pub edges: Vec<ExplainedEdge>,
    /// Topics that cross machines.
    pub streams: Vec<ExplainedStream>,
    /// Machines that cannot be reached.
    pub unreachable: Vec<String>,
}

/// The losses of an edge. A value is `null` if its counters are not readable.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExplainedEdge {
    /// `node/output`.
    pub topic: String,
    /// `node/input`, or the name of an observer.
    pub consumer: String,
    /// Samples sent.
    pub sent: Option<u64>,
    /// Samples lost.
    pub lost: Option<u64>,
    /// Time for which the consumer has taken nothing, while samples wait.
    pub took_nothing_seconds: Option<f64>,
    /// Time that the producer has waited for room.
    pub blocked_nanos: Option<u64>,
    /// Why the counters are not readable.
    pub unreadable: Option<String>,
    /// The causes of the losses.
    pub causes: Vec<Cause>,
}

/// A cause of losses, with the setting or action that prevents it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Cause {
    /// Its name on a link; absent on one machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Samples.
    pub count: u64,
    /// The cause, as a clause.
    pub what: String,
    /// What prevents it.
    pub remedy: String,
}

/// Losses of a topic between its machine and another one.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExplainedStream {
    /// `node/output`.
    pub topic: String,
    /// The machine of the consumers.
    pub machine: String,
    /// Samples sent.
    pub sent: u64,
    /// Samples that the other machine has published.
    pub delivered: u64,
    /// The causes of the losses.
    pub causes: Vec<Cause>,
}

/// Better settings: `nervure lint --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Hints {
    /// The dataflow file, if that was examined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The dataflow, if a running one was examined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataflow: Option<String>,
    /// Time for which the running dataflow was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_nanos: Option<u64>,
    /// The hints.
    pub hints: Vec<ListedHint>,
    /// Machines that cannot be reached: without them the hints are not complete.
    pub unreachable: Vec<String>,
}

/// A suggestion for a better setting.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListedHint {
    /// The kind of hint: stable across versions.
    pub code: &'static str,
    /// The edge, topic, input or node that it concerns.
    pub about: String,
    /// The observation.
    pub what: String,
    /// The setting that changes it.
    pub setting: String,
    /// The dataflow file, if the setting has a line in it.
    pub file: Option<String>,
    /// The line of the setting.
    pub line: Option<usize>,
}

/// The parameters of nodes: `nervure param list --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Params {
    /// The name of the dataflow.
    pub dataflow: String,
    /// The parameters.
    pub params: Vec<Param>,
}

/// A parameter: its declaration, with `node`, the present `value`, and the file's value as `initial`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Param {
    /// The id of the node.
    pub node: String,
    /// `null`, a number, a text, a boolean or a list.
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub value: Value,
    /// The value of the file.
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub initial: Value,
    /// `name`, `type` and what else is declared.
    #[serde(flatten)]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub declared: Map<String, Value>,
}

/// Log records of a dataflow.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Logs {
    /// The name of the dataflow.
    pub dataflow: String,
    /// In the order of their time; each as a line of `nervure logs --json`.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub records: Vec<nervure_protocol::report::LogRecord>,
    /// Older records that are left out.
    pub omitted: usize,
    /// Machines that cannot be reached.
    pub unreachable: Vec<String>,
}
