//! The declarations of a dataflow file that hold unchanged from the file to the node: the one
//! definition that `dataflow` reads, the keeper executes and nodes receive.
//!
//! Their JSON is part of `nervure validate --json` and of control messages.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{nanos, params::ParamSpec};

/// The environment variable with the operators of a node, as JSON.
pub const OPERATORS_VARIABLE: &str = "NERVURE_OPERATORS";

/// The environment variable with the outputs that carry logs, as JSON.
pub const LOG_OUTPUTS_VARIABLE: &str = "NERVURE_LOG_OUTPUTS";

/// The settings of a node that its keeper takes from the file unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSettings {
    /// The program's arguments.
    pub args: Vec<String>,
    /// Environment variables in addition to the inherited ones.
    pub env: BTreeMap<String, String>,
    /// When it is restarted.
    pub restart: Restart,
    /// Longest time from its start until it is connected and ready.
    #[serde(
        rename = "startup_timeout_nanos",
        with = "nanos::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub startup_timeout: Option<Duration>,
    /// Longest time without a sign of life.
    #[serde(
        rename = "health_check_timeout_nanos",
        with = "nanos::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub health_check_timeout: Option<Duration>,
    /// The working directory; the dataflow's if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// The version of its program; empty for the program of the file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Whether it does not start with the dataflow, but when a client starts it.
    #[serde(skip_serializing_if = "is_false")]
    pub held: bool,
    /// Its parameters, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<ParamSpec>,
    /// Values that the consumers of its outputs receive when it fails.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on_failure: Vec<LastValueSpec>,
    /// The process that it shares with the other nodes of that name; one of its own if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// Processors that it may run on; all if empty.
    pub cpu_affinity: Vec<u32>,
    /// How its threads are scheduled.
    pub scheduling: Scheduling,
    /// Whether the memory of its process is never paged out.
    #[serde(skip_serializing_if = "is_false")]
    pub memory_lock: bool,
    /// When it counts as ready.
    pub ready: Ready,
    /// The lowest level of lines on its stdout that are shown, in dora's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_log_level: Option<String>,
    /// The deadline for events of one of its inputs.
    #[serde(rename = "loop", skip_serializing_if = "Option::is_none")]
    pub loop_deadline: Option<DeadlineSpec>,
    /// Inputs whose samples it gets together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncSpec>,
    /// The transforms that it can look up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transforms: Option<TransformsSpec>,
}

/// The program of a node. Paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// A script for the Python of the active environment.
    Python(PathBuf),
    /// A function of a module, `module:function`, for the same Python. It takes the node.
    Function(String),
    /// An executable file.
    Executable(PathBuf),
    /// A command to look up on the PATH, without a slash.
    Command(String),
    /// A shared library with a node, which a host runs.
    Component(PathBuf),
    /// Nothing that the keeper starts: a process that is started by hand joins as the node.
    Dynamic,
    /// Nothing on this machine: the daemon joins as the node, and carries its samples over the link.
    Remote {
        /// The machine on the other end of the link.
        machine: String,
    },
    /// Operators of dora, all of the same kind, which one process hosts.
    Operators(Vec<OperatorSpec>),
    /// The node that sends the lines of other nodes' stdout and stderr.
    LogOutputs(Vec<LogOutputSpec>),
}

/// An output that carries the lines that nodes write to stdout and stderr.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogOutputSpec {
    /// Its name.
    pub output: String,
    /// The value that it sends for each line.
    pub form: LogForm,
    /// The only node whose lines it carries; `None` for all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The node whose lines it does not carry: its reader, whose lines would come back to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub except: Option<String>,
    /// The lowest level; `None` for all lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_level: Option<String>,
}

/// The value made of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogForm {
    /// The line itself, with its line break.
    Line,
    /// A record of dora as JSON.
    Record,
}

/// An operator: a part of a node that gets its inputs by calls. The inputs and outputs of the node
/// are named `operator/input` and `operator/output`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorSpec {
    /// Its id, unique in the node.
    pub id: String,
    /// Its code.
    #[serde(flatten)]
    pub source: OperatorSource,
    /// The conda environment of its Python.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conda_env: Option<String>,
    /// Its inputs, by its own names.
    pub inputs: Vec<String>,
    /// Its outputs, by its own names.
    pub outputs: Vec<String>,
}

/// The code of an operator. Paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorSource {
    /// A script with a class `Operator`.
    Python(PathBuf),
    /// A shared library with the functions of dora's C interface.
    SharedLibrary(PathBuf),
}

impl Program {
    /// Whether Python runs it, so that it can share a process with others in Python.
    #[must_use]
    pub fn is_python(&self) -> bool {
        matches!(self, Self::Python(_) | Self::Function(_))
    }

    /// Whether the keeper does not start it: a process joins as the node.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        matches!(self, Self::Dynamic | Self::Remote { .. })
    }

    /// The environment variable from which a program that belongs to Nervure reads its task as JSON,
    /// with its value. `None` for other programs.
    ///
    /// # Panics
    /// If a path is not UTF-8; paths of a dataflow file are.
    #[must_use]
    pub fn environment(&self) -> Option<(&'static str, String)> {
        match self {
            Self::Operators(operators) => Some((
                OPERATORS_VARIABLE,
                serde_json::to_string(operators).expect("operators can be written as JSON"),
            )),
            Self::LogOutputs(outputs) => Some((
                LOG_OUTPUTS_VARIABLE,
                serde_json::to_string(outputs).expect("names can be written as JSON"),
            )),
            _ => None,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Python(path) | Self::Executable(path) | Self::Component(path) => {
                path.display().fmt(f)
            }
            Self::Command(name) | Self::Function(name) => name.fmt(f),
            Self::Dynamic => "dynamic".fmt(f),
            Self::Remote { machine } => write!(f, "on {machine}"),
            Self::LogOutputs(_) => "log outputs".fmt(f),
            Self::Operators(operators) => {
                let ids: Vec<&str> = operators.iter().map(|one| one.id.as_str()).collect();
                write!(f, "operators {}", ids.join(", "))
            }
        }
    }
}

/// When a node is restarted after it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// The ends after which it is restarted.
    pub policy: RestartPolicy,
    /// Delay before the first restart; doubles with each restart.
    #[serde(rename = "delay_nanos", with = "nanos")]
    pub delay: Duration,
    /// Longest delay.
    #[serde(rename = "max_delay_nanos", with = "nanos")]
    pub max_delay: Duration,
    /// Maximum number of restarts within the window; `None` for no limit.
    pub max_restarts: Option<u32>,
    /// How long a restart counts; `None` for as long as the dataflow runs.
    #[serde(rename = "window_nanos", with = "nanos::optional")]
    pub window: Option<Duration>,
}

impl Default for Restart {
    fn default() -> Self {
        Self {
            policy: RestartPolicy::Never,
            delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(30),
            max_restarts: None,
            window: None,
        }
    }
}

/// The ends after which a node is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// None.
    Never,
    /// A failure: an exit code other than 0, or a signal.
    OnFailure,
    /// Any, unless the node was stopped, or exited in order after all its inputs had ended.
    Always,
}

/// How the kernel schedules a node's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "policy", rename_all = "snake_case")]
pub enum Scheduling {
    /// As the keeper is scheduled.
    #[default]
    Inherited,
    /// Time sharing, the normal policy.
    Other {
        /// Niceness, -20 to 19, -20 being the most urgent.
        nice: i8,
    },
    /// Real-time, first in, first out.
    Fifo {
        /// 1 to 99, 99 being the most urgent.
        priority: u8,
    },
    /// Real-time, round-robin.
    RoundRobin {
        /// 1 to 99, 99 being the most urgent.
        priority: u8,
    },
    /// Real-time, earliest deadline first (`SCHED_DEADLINE`). It holds for the node's first thread: those that it
    /// starts are scheduled by `other`.
    Deadline {
        /// Processor time in each period.
        #[serde(rename = "runtime_nanos", with = "nanos")]
        runtime: Duration,
        /// By when, from the begin of a period, the thread has had its time.
        #[serde(rename = "deadline_nanos", with = "nanos")]
        deadline: Duration,
        /// The period.
        #[serde(rename = "period_nanos", with = "nanos")]
        period: Duration,
    },
}

impl fmt::Display for Scheduling {
    /// As in the dataflow file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inherited => write!(f, "{{}}"),
            Self::Other { nice } => write!(f, "{{policy: other, nice: {nice}}}"),
            Self::Fifo { priority } => write!(f, "{{policy: fifo, priority: {priority}}}"),
            Self::RoundRobin { priority } => write!(f, "{{policy: rr, priority: {priority}}}"),
            Self::Deadline {
                runtime,
                deadline,
                period,
            } => {
                let [runtime, deadline, period] =
                    [runtime, deadline, period].map(|time| format!("{time:?}").replace('µ', "u"));
                write!(
                    f,
                    "{{policy: deadline, runtime: {runtime}, deadline: {deadline}, period: {period}}}"
                )
            }
        }
    }
}

/// When a node counts as ready. Sources start when every node is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ready {
    /// When it is connected.
    #[default]
    Auto,
    /// When it calls `ready()`.
    Manual,
}

/// The value that the consumers of an output receive when its node fails: `on_failure`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastValueSpec {
    /// Index of the output.
    pub output: usize,
    /// The value, which a node can send.
    pub value: serde_json::Value,
}

/// Inputs whose samples a node gets together: `sync`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncSpec {
    /// Indices of the inputs of which a set has one sample each.
    pub inputs: Vec<usize>,
    /// Indices of the inputs of which a set has all samples since the set before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collect: Vec<usize>,
    /// Which samples belong together.
    pub policy: SyncPolicy,
    /// Largest difference between the stamps of a set; `None` for 0 with [`SyncPolicy::Exact`], and no
    /// limit with [`SyncPolicy::Approximate`].
    #[serde(
        default,
        rename = "tolerance_nanos",
        with = "nanos::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub tolerance: Option<Duration>,
    /// Most samples of each input that wait for the others.
    pub queue_size: u32,
}

/// Which samples of several inputs belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncPolicy {
    /// The first whose stamps are equal, or differ by the tolerance at most.
    Exact,
    /// Those whose stamps differ least.
    Approximate,
}

/// The type of the samples that carry transforms between frames.
pub const TRANSFORM_TYPE: &str = "std/Transform@1";

/// Maximum length of the name of a frame, in bytes.
pub const MAX_FRAME_BYTES: usize = 255;

/// The transforms that a node can look up: `transforms: true`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransformsSpec {
    /// Indices of the inputs that receive them. Their samples are no events.
    pub inputs: Vec<usize>,
    /// Those of the dataflow file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<StaticTransform>,
}

/// The pose of a frame in its parent that never changes: `static_transforms`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StaticTransform {
    /// The frame in which the pose is given.
    pub parent: String,
    /// The frame whose pose this is.
    pub child: String,
    /// In metres.
    pub translation: [f64; 3],
    /// A unit quaternion: x, y, z, w.
    pub rotation: [f64; 4],
}

/// The numbers are finite: JSON has no others.
impl Eq for StaticTransform {}

/// The deadline for events of one of a node's inputs: `loop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadlineSpec {
    /// Index of the input.
    pub input: usize,
    /// Longest time until the node asks for its next event.
    #[serde(rename = "finish_within_nanos", with = "nanos")]
    pub finish_within: Duration,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn declarations_survive_json_in_their_documented_form() {
        let restart = Restart {
            policy: RestartPolicy::OnFailure,
            window: Some(Duration::from_secs(60)),
            ..Restart::default()
        };
        let json = json!({
            "policy": "on-failure",
            "delay_nanos": 100_000_000,
            "max_delay_nanos": 30_000_000_000u64,
            "max_restarts": null,
            "window_nanos": 60_000_000_000u64,
        });
        assert_eq!(serde_json::to_value(restart).unwrap(), json);
        assert_eq!(serde_json::from_value::<Restart>(json).unwrap(), restart);
        let scheduling = Scheduling::Fifo { priority: 80 };
        let json = json!({"policy": "fifo", "priority": 80});
        assert_eq!(serde_json::to_value(scheduling).unwrap(), json);
        assert_eq!(
            serde_json::from_value::<Scheduling>(json).unwrap(),
            scheduling
        );
        let deadline = DeadlineSpec {
            input: 2,
            finish_within: Duration::from_millis(5),
        };
        let json = json!({"input": 2, "finish_within_nanos": 5_000_000});
        assert_eq!(serde_json::to_value(deadline).unwrap(), json);
        assert_eq!(
            serde_json::from_value::<DeadlineSpec>(json).unwrap(),
            deadline
        );
    }
}
