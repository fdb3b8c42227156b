//! Every key of a dataflow file, once.
//!
//! The reader, the messages about unknown keys, the JSON schema and the reference page all come from this table.

use std::ops::RangeInclusive;

use Shape::*;
use Status::*;

/// A map in a dataflow file and the keys that it can have.
#[derive(Debug)]
pub(crate) struct Level {
    /// Heading in the reference and name in the schema.
    pub name: &'static str,
    /// In messages: "`fps` is not a key of a node".
    pub noun: &'static str,
    pub keys: &'static [Key],
}

#[derive(Debug)]
pub(crate) struct Key {
    pub name: &'static str,
    /// Other spellings that mean the same.
    pub aliases: &'static [&'static str],
    pub status: Status,
    pub shape: Shape,
    pub doc: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Status {
    Required,
    Optional,
    /// Reserved for a later version: refused, with what to do until then.
    Later(&'static str),
    /// Known from dora and not supported: refused, with what to do instead.
    Unsupported(&'static str),
}

/// What a value looks like.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    /// Free text.
    Words,
    /// A name by the grammar of [`crate::name`].
    Name,
    Path,
    /// `node/output` or a timer.
    Source,
    Type,
    Integer(&'static RangeInclusive<i64>),
    /// Duration with a unit, or dora's bare seconds.
    Duration,
    /// Bytes with a unit.
    Size,
    OneOf(&'static [&'static str]),
    Arguments,
    Environment,
    Processors,
    Nodes,
    Inputs,
    Outputs,
    Types,
    Map(&'static Level),
    /// Of keys that are refused.
    Anything,
}

pub(crate) const FORMAT_VERSION: i64 = 1;
pub(crate) const FORMAT_VERSIONS: RangeInclusive<i64> = 1..=FORMAT_VERSION;
pub(crate) const QUEUE_SIZE: RangeInclusive<i64> = 1..=65_536;
pub(crate) const MAX_HELD: RangeInclusive<i64> = 1..=131_072;
pub(crate) const HISTORY: RangeInclusive<i64> = 0..=1_000;
pub(crate) const MAX_RESTARTS: RangeInclusive<i64> = 0..=u32::MAX as i64;
pub(crate) const PRIORITY: RangeInclusive<i64> = 1..=99;
pub(crate) const NICE: RangeInclusive<i64> = -20..=19;
pub(crate) const PROCESSOR: RangeInclusive<i64> = 0..=4_095;

pub(crate) const QUEUE_POLICIES: &[&str] = &["drop_oldest", "drop_newest", "block", "latest", "backpressure"];
pub(crate) const RESTART_POLICIES: &[&str] = &["never", "on-failure", "always"];
pub(crate) const SCHEDULING_POLICIES: &[&str] = &["other", "fifo", "rr"];
pub(crate) const READY: &[&str] = &["auto", "manual"];

/// Every level, outermost first.
pub(crate) static LEVELS: &[&Level] = &[&DATAFLOW, &NODE, &INPUT, &OUTPUT, &SCHEDULING];

const MACHINES: &str = "this version runs a dataflow on one host";
const LOGS: &str = "`nervure run` captures the output of every node and logs it with the node's name";

pub(crate) static DATAFLOW: Level = Level {
    name: "dataflow",
    noun: "a dataflow",
    keys: &[
        key("nervure", Optional, Integer(&FORMAT_VERSIONS), "Version of this file format."),
        key(
            "name",
            Optional,
            Name,
            "Name of the dataflow, as in the topic `name:node/output`. Default: the name of the file, or that of its folder when the file is called `dataflow`.",
        ),
        key("env", Optional, Environment, "Environment variables of every node; a node's own `env` wins."),
        key("nodes", Required, Nodes, "The nodes."),
        key("machines", Later(MACHINES), Anything, "Roles of the machines that nodes run on."),
        key(
            "processes",
            Later("this version runs every node in a process of its own"),
            Anything,
            "Processes that several nodes share.",
        ),
        key(
            "services",
            Later("until then, a request is an output of one node and the answer an output of the other"),
            Anything,
            "Requests and answers.",
        ),
        key(
            "exports",
            Later("until then, put the nodes into one dataflow"),
            Anything,
            "Outputs that other dataflows can read.",
        ),
        key("clock", Later("until then, time is that of the host"), Anything, "Simulated time."),
        key("deploy", Unsupported(MACHINES), Anything, "Placement on machines."),
        key("_unstable_deploy", Unsupported(MACHINES), Anything, "Placement on machines."),
        key(
            "communication",
            Unsupported("remove it: data always goes through shared memory"),
            Anything,
            "Transport.",
        ),
        key(
            "debug",
            Unsupported("remove it: every output can be inspected at any time"),
            Anything,
            "Inspection.",
        ),
        key(
            "_unstable_debug",
            Unsupported("remove it: every output can be inspected at any time"),
            Anything,
            "Inspection.",
        ),
        key(
            "health_check_interval",
            Unsupported("remove it: the death of a node is noticed at once"),
            Anything,
            "Health checks.",
        ),
        key(
            "strict_types",
            Unsupported("remove it: types that do not match are always an error"),
            Anything,
            "Strictness of type checks.",
        ),
        key(
            "type_rules",
            Unsupported("give output and input the same type"),
            Anything,
            "Conversions between types.",
        ),
        key(
            "exit_when_nodes_finish",
            Unsupported("end a run with `nervure run --stop-after`"),
            Anything,
            "End of the dataflow.",
        ),
    ],
};

pub(crate) static NODE: Level = Level {
    name: "node",
    noun: "a node",
    keys: &[
        key("id", Required, Name, "Name of the node, unique in the dataflow."),
        key("name", Optional, Words, "Name for people."),
        key("description", Optional, Words, "What the node does, for people."),
        key(
            "path",
            Required,
            Path,
            "The program: a Python script (`.py`, run with the active environment's Python), an executable, both relative to this file, or a command on the PATH.",
        ),
        key(
            "args",
            Optional,
            Arguments,
            "Arguments: text that is split as a shell does, or a list. Nothing is expanded.",
        ),
        key(
            "env",
            Optional,
            Environment,
            "Environment variables of the node and of its `build`. In text, `$NAME` and `${NAME}` stand for variables of the host, `${NAME:-text}` has a default, `$$` is a dollar.",
        ),
        key(
            "build",
            Optional,
            Words,
            "Commands that `nervure build` runs in the folder of this file, one a line.",
        ),
        key("inputs", Optional, Inputs, "Inputs by name: `node/output`, a timer, or a map (see input)."),
        key(
            "outputs",
            Optional,
            Outputs,
            "Outputs: a list of names, or a map from names to `{}` or a map (see output).",
        ),
        key("input_types", Optional, Types, "Types of inputs by name; the same as `type` in the input."),
        key("output_types", Optional, Types, "Types of outputs by name; the same as `type` in the output."),
        key(
            "restart_policy",
            Optional,
            OneOf(RESTART_POLICIES),
            "When the node is started again after it ended: `never` (default), `on-failure` or `always`.",
        ),
        key(
            "restart_delay",
            Optional,
            Duration,
            "Wait before the first restart; doubles with each. Default 100ms.",
        ),
        key("max_restart_delay", Optional, Duration, "Longest wait before a restart. Default 30s."),
        key(
            "max_restarts",
            Optional,
            Integer(&MAX_RESTARTS),
            "Restarts before giving up; 0 (default) means no limit.",
        ),
        key(
            "restart_window",
            Optional,
            Duration,
            "Restarts older than this no longer count. Default: they always count.",
        ),
        key("cpu_affinity", Optional, Processors, "Processors that the node may run on, counted from 0."),
        key("scheduling", Optional, Map(&SCHEDULING), "Scheduling class of the node's threads."),
        key(
            "ready",
            Optional,
            OneOf(READY),
            "`manual`: the dataflow starts when the node calls `ready()`; `auto` (default): when it is connected.",
        ),
        alias(
            "shared_memory",
            &["shared_memory_pool_size"],
            Optional,
            Size,
            "Most memory that the node's outputs may take together, such as `512MB`. Default: a share of the host's memory.",
        ),
        key(
            "params",
            Later("until then, use `env` or `args`"),
            Anything,
            "Parameters that can change while the node runs.",
        ),
        key("machine", Later(MACHINES), Anything, "Role of the machine that the node runs on."),
        key(
            "process",
            Later("this version runs every node in a process of its own"),
            Anything,
            "Process that the node shares with others.",
        ),
        key(
            "services",
            Later("until then, a request is an output of one node and the answer an output of the other"),
            Anything,
            "Requests that the node answers.",
        ),
        key(
            "clients",
            Later("until then, a request is an output of one node and the answer an output of the other"),
            Anything,
            "Requests that the node makes.",
        ),
        key(
            "actions",
            Later("until then, use outputs for goal, feedback and result"),
            Anything,
            "Goals that the node works on.",
        ),
        key("loop", Later("until then, measure in the node"), Anything, "Deadline of the node's loop."),
        key(
            "sync",
            Later("until then, match samples by their stamps in the node"),
            Anything,
            "Inputs that are delivered together.",
        ),
        key(
            "resources",
            Later("until then, `cpu_affinity` chooses processors"),
            Anything,
            "Limits on processors, memory and GPU.",
        ),
        key(
            "container",
            Later("until then, the node runs on the host"),
            Anything,
            "Container that the node runs in.",
        ),
        key(
            "memory_lock",
            Later("until then, call mlockall in the node"),
            Anything,
            "Memory that is never swapped out.",
        ),
        key(
            "priority",
            Unsupported("write `scheduling: {policy: fifo, priority: 80}`"),
            Anything,
            "Priority of the node's threads.",
        ),
        key(
            "cwd",
            Unsupported("nodes run in the folder of this file; `path` and `args` can name others"),
            Anything,
            "Working directory.",
        ),
        key(
            "working_dir",
            Unsupported("nodes run in the folder of this file; `path` and `args` can name others"),
            Anything,
            "Working directory.",
        ),
        key("deploy", Unsupported(MACHINES), Anything, "Placement on machines."),
        key("_unstable_deploy", Unsupported(MACHINES), Anything, "Placement on machines."),
        key(
            "custom",
            Unsupported("move its keys into the node; `source` is `path`"),
            Anything,
            "Nodes in the form of old versions.",
        ),
        key(
            "operator",
            Unsupported("make the operator a node of its own, with a `path`"),
            Anything,
            "Operator in a shared process.",
        ),
        key(
            "operators",
            Unsupported("make each operator a node of its own, with a `path`"),
            Anything,
            "Operators in a shared process.",
        ),
        key("ros2", Unsupported("use a bridge node"), Anything, "Bridge to ROS 2."),
        key(
            "module",
            Unsupported("write the module's nodes into this file"),
            Anything,
            "Dataflow inside of a dataflow.",
        ),
        key(
            "git",
            Unsupported("clone the repository in `build` and name the program in `path`"),
            Anything,
            "Repository of the node.",
        ),
        key("branch", Unsupported("clone the repository in `build`"), Anything, "Branch of the repository."),
        key("tag", Unsupported("clone the repository in `build`"), Anything, "Tag of the repository."),
        key("rev", Unsupported("clone the repository in `build`"), Anything, "Commit of the repository."),
        key(
            "hub",
            Unsupported("install the node in `build` and name its command in `path`"),
            Anything,
            "Node of the hub.",
        ),
        key(
            "path_sha256",
            Unsupported("download and check the program in `build`"),
            Anything,
            "Checksum of the program.",
        ),
        key("send_stdout_as", Unsupported(LOGS), Anything, "Output for what the node prints."),
        key("send_logs_as", Unsupported(LOGS), Anything, "Output for what the node logs."),
        key(
            "min_log_level",
            Unsupported("`nervure run --log-level` chooses what is shown"),
            Anything,
            "Least level that is logged.",
        ),
        key("max_log_size", Unsupported(LOGS), Anything, "Size of log files."),
        key("max_rotated_files", Unsupported(LOGS), Anything, "Number of log files."),
        key(
            "output_framing",
            Unsupported("remove it: outputs need no framing"),
            Anything,
            "Encoding of outputs.",
        ),
        key(
            "output_metadata",
            Unsupported("remove it: metadata needs no declaration"),
            Anything,
            "Metadata of outputs.",
        ),
        key("pattern", Unsupported("remove it"), Anything, "Communication pattern."),
        key(
            "health_check_timeout",
            Unsupported("remove it: the death of a node is noticed at once"),
            Anything,
            "Health checks.",
        ),
        key("startup_timeout", Unsupported("remove it"), Anything, "Limit on the time to connect."),
        key("finish_grace_secs", Unsupported("remove it"), Anything, "Time to finish."),
    ],
};

pub(crate) static INPUT: Level = Level {
    name: "input",
    noun: "an input",
    keys: &[
        key(
            "source",
            Required,
            Source,
            "`node/output`, or a timer: `nervure/timer/hz/30`, `nervure/timer/millis/20`, `nervure/timer/secs/1`.",
        ),
        key(
            "queue_size",
            Optional,
            Integer(&QUEUE_SIZE),
            "Samples that wait for the node at most. Default 10.",
        ),
        key(
            "queue_policy",
            Optional,
            OneOf(QUEUE_POLICIES),
            "What happens when the queue is full: `drop_oldest` (default), `drop_newest`, `block` (the producer waits; dora's word is `backpressure`). `latest` keeps only the newest and has no `queue_size`.",
        ),
        key(
            "max_held",
            Optional,
            Integer(&MAX_HELD),
            "Samples that wait or are in use by the node at most. Default `queue_size` + 8.",
        ),
        key("type", Optional, Type, "Type that the node expects; it must be the output's."),
        key(
            "expect_every",
            Later("until then, compare `event.age` in the node"),
            Anything,
            "Longest time between samples.",
        ),
        key(
            "input_timeout",
            Later("until then, compare `event.age` in the node"),
            Anything,
            "Time without a sample after which the input closes.",
        ),
        key(
            "qos",
            Later("it is for links between hosts, and this version runs on one"),
            Anything,
            "Quality of service on links between hosts.",
        ),
        key(
            "traffic_class",
            Later("it is for links between hosts, and this version runs on one"),
            Anything,
            "Precedence on links between hosts.",
        ),
        key(
            "lifespan",
            Later("until then, compare `event.age` in the node"),
            Anything,
            "Age at which a sample is dropped.",
        ),
    ],
};

pub(crate) static OUTPUT: Level = Level {
    name: "output",
    noun: "an output",
    keys: &[
        key(
            "type",
            Optional,
            Type,
            "Type of the samples, such as `std/Image@1`. Inputs that name another are refused.",
        ),
        key(
            "history",
            Optional,
            Integer(&HISTORY),
            "Last samples that are kept for inputs that connect late. Default 0.",
        ),
        key(
            "export",
            Later("until then, put the nodes into one dataflow"),
            Anything,
            "Name for other dataflows.",
        ),
        key("memory_kind", Later("until then, samples are in host memory"), Anything, "Kind of memory."),
    ],
};

pub(crate) static SCHEDULING: Level = Level {
    name: "scheduling",
    noun: "`scheduling`",
    keys: &[
        key(
            "policy",
            Required,
            OneOf(SCHEDULING_POLICIES),
            "`other` (the normal one), or real-time: `fifo` or `rr` (round-robin).",
        ),
        key(
            "priority",
            Optional,
            Integer(&PRIORITY),
            "Real-time priority, 99 being the most urgent. Needed with `fifo` and `rr`.",
        ),
        key("nice", Optional, Integer(&NICE), "Niceness with `other`, -20 being the most urgent."),
        key("deadline", Later("`fifo` and `rr` are there now"), Anything, "Deadline scheduling."),
    ],
};

const fn key(name: &'static str, status: Status, shape: Shape, doc: &'static str) -> Key {
    Key { name, aliases: &[], status, shape, doc }
}

const fn alias(
    name: &'static str,
    aliases: &'static [&'static str],
    status: Status,
    shape: Shape,
    doc: &'static str,
) -> Key {
    Key { name, aliases, status, shape, doc }
}

impl Level {
    /// The key that `text` spells.
    pub fn find(&self, text: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == text || key.aliases.contains(&text))
    }

    /// The keys that can be used.
    pub fn usable(&self) -> impl Iterator<Item = &'static Key> {
        self.keys.iter().filter(|key| key.is_usable())
    }
}

impl Key {
    pub fn is_usable(&self) -> bool {
        matches!(self.status, Required | Optional)
    }
}

impl Shape {
    /// Completes "expected ..".
    pub fn describe(self) -> String {
        match self {
            Words => "text".to_owned(),
            Name => "a name".to_owned(),
            Path => "the path of a program".to_owned(),
            Source => "`node/output` or a timer such as `nervure/timer/hz/30`".to_owned(),
            Type => "a type such as `std/Image@1`".to_owned(),
            Integer(range) if range.start() == range.end() => range.start().to_string(),
            Integer(range) => format!("a whole number from {} to {}", range.start(), range.end()),
            Duration => "a duration such as `500ms` or `2s`, or seconds".to_owned(),
            Size => "a size such as `512MB`".to_owned(),
            OneOf(words) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                format!("one of {}", quoted.join(", "))
            }
            Arguments => "text, or a list of arguments".to_owned(),
            Environment => "a map from variables to values".to_owned(),
            Processors => "a list of processors such as `[2, 3]`".to_owned(),
            Nodes => "a list of nodes".to_owned(),
            Inputs => "a map from inputs to their sources".to_owned(),
            Outputs => "a list of outputs, or a map".to_owned(),
            Types => "a map from names to types".to_owned(),
            Map(_) => "a map".to_owned(),
            Anything => "anything".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_unique_in_their_level_and_documented() {
        for level in LEVELS {
            let mut seen = HashSet::new();
            for key in level.keys {
                for name in std::iter::once(&key.name).chain(key.aliases) {
                    assert!(seen.insert(*name), "{}.{name} is twice in the table", level.name);
                }
                assert!(key.doc.ends_with('.'), "{}.{} needs a sentence", level.name, key.name);
            }
        }
    }
}
