//! The table of all keys of a dataflow file.
//!
//! The reader, the messages about unknown keys, the JSON schema and the reference page use this
//! table.

use std::ops::RangeInclusive;

use Shape::*;

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
    /// Required, unless another key of this list is there.
    RequiredUnless(&'static [&'static str]),
    /// Reserved for a later version: refused, with what to do until then.
    Later(&'static str),
    /// Known from dora and without an effect here: read with a warning that names the reason.
    Ignored(&'static str),
    /// Known from dora and not supported: refused, with what to do instead.
    Unsupported(&'static str),
}

/// The form of a value.
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
    /// Duration with a unit, or in seconds without a unit as in dora.
    Duration,
    /// Duration with a unit, long enough for a node to act within it.
    Interval,
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
    /// Values sent in the place of a node that failed.
    LastValues,
    /// Any value that a node can send.
    Value,
    /// Parameters by name.
    Params,
    /// A value of a parameter.
    ParamValue,
    /// A list of values of a parameter.
    ParamValues,
    Number,
    Boolean,
    Names,
    /// `node/service` by name.
    Clients,
    /// Operators of dora that share a process.
    Operators,
    /// The script of an operator, with or without a conda environment.
    PythonSource,
    /// Roles of machines by name.
    Machines,
    Map(&'static Level),
    /// The form of refused keys.
    Anything,
}

pub(crate) const FORMAT_VERSION: i64 = 1;
pub(crate) const FORMAT_VERSIONS: RangeInclusive<i64> = 1..=FORMAT_VERSION;
pub(crate) const QUEUE_SIZE: RangeInclusive<i64> = 1..=65_536;
pub(crate) const MAX_HELD: RangeInclusive<i64> = 1..=131_072;
pub(crate) const HISTORY: RangeInclusive<i64> = 0..=1_000;
pub(crate) const MAX_RESTARTS: RangeInclusive<i64> = 0..=1_000_000;
pub(crate) const PRIORITY: RangeInclusive<i64> = 1..=99;
pub(crate) const NICE: RangeInclusive<i64> = -20..=19;
pub(crate) const PROCESSOR: RangeInclusive<i64> = 0..=4_095;

pub(crate) const QUEUE_POLICIES: &[&str] = &[
    "drop_oldest",
    "drop_newest",
    "block",
    "latest",
    "backpressure",
];
pub(crate) const RESTART_POLICIES: &[&str] = &["never", "on-failure", "always"];
pub(crate) const SCHEDULING_POLICIES: &[&str] = &["other", "fifo", "rr"];
pub(crate) const PARAM_TYPES: &[&str] = &["bool", "int", "float", "str", "list"];
pub(crate) const LOG_LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace", "stdout"];
pub(crate) const RELIABILITIES: &[&str] = &["reliable", "best_effort"];
pub(crate) const TRAFFIC_CLASSES: &[&str] = &["control", "default", "bulk"];
pub(crate) const READY: &[&str] = &["auto", "manual"];
pub(crate) const ON_PARTITION: &[&str] = &["continue", "stop"];

/// Keys that define the program and the outputs of a node in the place of `path`.
const OTHER_PROGRAMS: &[&str] = &["operator", "operators", "custom", "module"];

/// Refused keys that define the program and the outputs of a node in another way. A node with one
/// of them gets no further findings about a missing path or output.
pub(crate) const OTHER_KINDS_OF_NODES: &[&str] = &["hub", "operator", "operators", "ros2"];

/// Every level, outermost first.
pub(crate) static LEVELS: &[&Level] = &[
    &DATAFLOW,
    &NODE,
    &INPUT,
    &QOS,
    &OUTPUT,
    &OPERATOR,
    &PYTHON_SOURCE,
    &CUSTOM,
    &DEPLOY,
    &MODULE_FILE,
    &MODULE,
    &LOOP,
    &ON_FAILURE,
    &PARAM,
    &SCHEDULING,
    &MACHINE,
];

const ONE_HOST: &str = "all nodes run on this host";

pub(crate) static DATAFLOW: Level = Level {
    name: "dataflow",
    noun: "a dataflow",
    keys: &[
        optional(
            "nervure",
            Integer(&FORMAT_VERSIONS),
            "Version of this file format.",
        ),
        optional(
            "name",
            Name,
            "Name of the dataflow, as in the topic `name:node/output`. Default: the name of the file, or of its folder if the file is called `dataflow.yml`.",
        ),
        optional(
            "env",
            Environment,
            "Environment variables of every node; a node's own `env` takes precedence.",
        ),
        required("nodes", Nodes, "The nodes."),
        optional(
            "machines",
            Machines,
            "Roles of the machines that nodes run on, by name, such as `{robot: {}, edge: {}}`. `nervure start` binds each role to a machine. `nervure run` runs all nodes on this host.",
        ),
        later(
            "processes",
            "name the process in its nodes: `process: perception`",
            "Processes that several nodes share.",
        ),
        unsupported(
            "services",
            "write `services` into the node that answers, and `clients` into the nodes that make requests",
            "Requests and answers.",
        ),
        later(
            "exports",
            "until then, put the nodes into one dataflow",
            "Outputs that other dataflows can read.",
        ),
        later(
            "clock",
            "until then, time is that of the host",
            "Simulated time.",
        ),
        ignored("deploy", ONE_HOST, "Placement on machines."),
        ignored("_unstable_deploy", ONE_HOST, "Placement on machines."),
        ignored(
            "communication",
            "data always goes through shared memory",
            "Transport.",
        ),
        ignored(
            "debug",
            "nothing has to be switched on to inspect outputs",
            "Inspection.",
        ),
        ignored(
            "_unstable_debug",
            "nothing has to be switched on to inspect outputs",
            "Inspection.",
        ),
        ignored(
            "health_check_interval",
            "a node with a `health_check_timeout` is checked four times within it",
            "Interval of health checks.",
        ),
        optional(
            "strict_types",
            Boolean,
            "`true`: different types in `input_types` and `output_types` are an error. Default `false`: they are a warning, as in dora.",
        ),
        ignored(
            "type_rules",
            "samples are never converted; different types in `input_types` and `output_types` are a warning",
            "Types that a sender and a receiver may combine.",
        ),
        ignored(
            "exit_when_nodes_finish",
            "nodes with timers run until the dataflow is stopped; `nervure run --stop-after` ends it",
            "End of the dataflow.",
        ),
    ],
};

pub(crate) static NODE: Level = Level {
    name: "node",
    noun: "a node",
    keys: &[
        required("id", Name, "Name of the node, unique in the dataflow."),
        optional(
            "custom",
            Map(&CUSTOM),
            "Keys of the node in the form of old versions of dora (see custom).",
        ),
        optional("name", Words, "Name to display."),
        optional("description", Words, "Description of the node."),
        Key {
            status: Status::RequiredUnless(OTHER_PROGRAMS),
            ..required(
                "path",
                Path,
                "The program: a Python script (`.py`, run with the Python of the active environment), a component (`.so`, see `process`) or an executable, all relative to this file, or a command on the PATH. `dynamic`: the node is started by hand, and can join and rejoin while the dataflow runs.",
            )
        },
        optional(
            "module",
            Path,
            "A file with nodes that take the place of this one (see module_file), relative to this file. Their ids begin with the id of this node and a dot; `inputs` and `params` are those of the module, and sources `node/output` name its outputs.",
        ),
        optional(
            "operators",
            Operators,
            "Operators of dora, which one process hosts (see operator). The node has their inputs and outputs, named `operator/input` and `operator/output`; a source is `node/operator/output`.",
        ),
        optional(
            "operator",
            Map(&OPERATOR),
            "A single operator (see operator). Sources may leave out its id: `node/output`.",
        ),
        optional(
            "args",
            Arguments,
            "Arguments: text, split as a shell splits it, or a list. Variables are filled in afterwards as in `env`, also within single quotes; `$$` is a dollar.",
        ),
        optional(
            "env",
            Environment,
            "Environment variables of the node and of its `build`. In text, `$NAME` and `${NAME}` stand for variables of the host, `${NAME:-text}` has a default, `$$` is a dollar.",
        ),
        optional(
            "build",
            Words,
            "Commands that `nervure build` runs in the folder of this file, one a line.",
        ),
        optional(
            "git",
            Words,
            "URL of a repository, which `nervure build` clones into a folder below `git` beside this file. The node is built and runs in that folder, and `path` is relative to it.",
        ),
        optional(
            "branch",
            Words,
            "Branch of the repository. Default: its default branch.",
        ),
        optional(
            "tag",
            Words,
            "Tag of the repository, in the place of `branch`.",
        ),
        optional(
            "rev",
            Words,
            "Commit of the repository, in the place of `branch`.",
        ),
        optional(
            "inputs",
            Inputs,
            "Inputs by name: `node/output`, a timer, or a map (see input).",
        ),
        optional(
            "outputs",
            Outputs,
            "Outputs: a list of names, or a map from names to `{}` or a map (see output).",
        ),
        optional(
            "input_types",
            Types,
            "Types of inputs by name; the same as `type` in the input.",
        ),
        optional(
            "output_types",
            Types,
            "Types of outputs by name; the same as `type` in the output.",
        ),
        optional(
            "restart_policy",
            OneOf(RESTART_POLICIES),
            "When the node is restarted after it ended: `never` (default), `on-failure` or `always`.",
        ),
        optional(
            "restart_delay",
            Duration,
            "Delay before the first restart; doubles with each restart. Default 100ms.",
        ),
        optional(
            "max_restart_delay",
            Duration,
            "Longest delay before a restart. Default 30s.",
        ),
        optional(
            "max_restarts",
            Integer(&MAX_RESTARTS),
            "Maximum number of restarts; 0 (default) means no limit.",
        ),
        optional(
            "restart_window",
            Duration,
            "Window for `max_restarts`: a restart counts for this long. A run of this length resets the delay. Default: restarts count forever, a run of 60s resets the delay.",
        ),
        optional(
            "services",
            Names,
            "Requests that the node answers: a list of names.",
        ),
        optional(
            "clients",
            Clients,
            "Requests that the node makes: a map from its own name for the service to `node/service`.",
        ),
        optional(
            "startup_timeout",
            Duration,
            "Longest time from the start of the process until it is connected and, with `ready: manual`, ready. After it the node is killed, which counts as a failure. Default: no limit.",
        ),
        optional(
            "health_check_timeout",
            Duration,
            "Longest time without a sign of life. After it the node counts as hung: the place where it hangs is logged, and it is killed, which counts as a failure. Signs of life are asking for events, waiting for them, sending, waiting for room, and asking whether to stop. Default: no limit.",
        ),
        Key {
            aliases: &["on-failure"],
            ..optional(
                "on_failure",
                LastValues,
                "Value that the consumers of an output receive when the node fails, after everything that it sent (see on_failure).",
            )
        },
        optional(
            "cpu_affinity",
            Processors,
            "Processors that the node may run on, counted from 0.",
        ),
        optional(
            "scheduling",
            Map(&SCHEDULING),
            "Scheduling class of the node's threads.",
        ),
        optional(
            "ready",
            OneOf(READY),
            "`manual`: the dataflow starts when the node calls `ready()`; `auto` (default): when it is connected.",
        ),
        optional(
            "loop",
            Map(&LOOP),
            "Deadline for events of one of the inputs (see loop).",
        ),
        Key {
            aliases: &["shared_memory_pool_size"],
            ..optional(
                "shared_memory",
                Size,
                "Limit on the memory of all outputs of the node together, such as `512MB`. Default: half of the memory of the host or container.",
            )
        },
        Key {
            aliases: &["_unstable_deploy"],
            ..optional(
                "deploy",
                Map(&DEPLOY),
                "Placement of the node (see deploy).",
            )
        },
        optional(
            "params",
            Params,
            "Parameters by name, which can be changed while the node runs: a value, or a map (see param). Variables in texts are filled in as in `env`; text without quotes then becomes what it looks like: `fps: ${FPS}` and `fps: {value: \"${FPS}\", type: int}` are numbers, `fps: \"${FPS}\"` is text. `nervure run FILE NODE.PARAMETER=VALUE` sets another value.",
        ),
        optional(
            "machine",
            Name,
            "Role of the machine that the node runs on, from `machines`. Default: the first role.",
        ),
        optional(
            "on_partition",
            OneOf(ON_PARTITION),
            "`stop`: the node runs only while its machine can reach that of the coordinator, and starts again afterwards; `continue` (default): whatever the network does.",
        ),
        optional(
            "process",
            Name,
            "Process that the node shares with the other nodes of that name, each on a thread of its own. For components: nodes whose `path` is a shared library.",
        ),
        later(
            "actions",
            "until then, use outputs for goal, feedback and result",
            "Goals that the node works on.",
        ),
        later(
            "sync",
            "until then, match samples by their stamps in the node",
            "Inputs that are delivered together.",
        ),
        later(
            "resources",
            "until then, `cpu_affinity` chooses processors",
            "Limits on processors, memory and GPU.",
        ),
        later(
            "container",
            "until then, the node runs on the host",
            "Container that the node runs in.",
        ),
        later(
            "memory_lock",
            "until then, call mlockall in the node",
            "Memory that is never swapped out.",
        ),
        unsupported(
            "priority",
            "write `scheduling: {policy: fifo, priority: 80}`",
            "Priority of the node's threads.",
        ),
        unsupported(
            "cwd",
            "nodes run in the folder of this file; `path` and `args` can name others",
            "Working directory.",
        ),
        unsupported(
            "working_dir",
            "nodes run in the folder of this file; `path` and `args` can name others",
            "Working directory.",
        ),
        unsupported(
            "ros2",
            "write a node that talks to ROS 2",
            "Bridge to ROS 2.",
        ),
        unsupported(
            "hub",
            "install the node in `build` and name its command in `path`",
            "Node of the hub.",
        ),
        unsupported(
            "path_sha256",
            "download and check the program in `build`",
            "Checksum of the program.",
        ),
        optional(
            "send_stdout_as",
            Name,
            "Output that carries the lines that the node writes to stdout and stderr, each as text.",
        ),
        optional(
            "send_logs_as",
            Name,
            "Output that carries the same lines as records of dora, each as JSON text. A line that is such a record keeps its level and message, and a line that begins with a level in capitals has that level. Any other line has the level `stdout`.",
        ),
        optional(
            "min_log_level",
            OneOf(LOG_LEVELS),
            "Lowest level of the lines of stdout that `nervure run` shows and that outputs for logs carry; a line without a level is below `trace`. Log files hold all lines. `nervure run --log-level` hides more.",
        ),
        ignored(
            "max_log_size",
            "the logs of all runs have one limit, `NERVURE_LOG_LIMIT`",
            "Size of log files.",
        ),
        ignored(
            "max_rotated_files",
            "the logs of all runs have one limit, `NERVURE_LOG_LIMIT`",
            "Number of log files.",
        ),
        ignored(
            "output_framing",
            "outputs need no framing",
            "Encoding of outputs.",
        ),
        ignored(
            "output_metadata",
            "metadata needs no declaration",
            "Metadata of outputs.",
        ),
        ignored(
            "pattern",
            "metadata needs no declaration",
            "Communication pattern, which stands for metadata.",
        ),
        ignored(
            "finish_grace_secs",
            "a node has all the time that it needs after its last input",
            "Time to finish.",
        ),
    ],
};

pub(crate) static INPUT: Level = Level {
    name: "input",
    noun: "an input",
    keys: &[
        required(
            "source",
            Source,
            "`node/output`, or a timer: `nervure/timer/hz/30`, `nervure/timer/millis/20`, `nervure/timer/secs/1`. `nervure/logs`, `nervure/logs/LEVEL` and `nervure/logs/LEVEL/NODE` are the lines of all other nodes, or of one, as records of dora in JSON.",
        ),
        Key {
            aliases: &["queue-size"],
            ..optional(
                "queue_size",
                Integer(&QUEUE_SIZE),
                "Maximum number of samples in the queue. Default 10.",
            )
        },
        optional(
            "queue_policy",
            OneOf(QUEUE_POLICIES),
            "What happens when the queue is full: `drop_oldest` (default), `drop_newest`, `block` (the producer waits; `backpressure` in dora). `latest` keeps only the newest sample and has no `queue_size`.",
        ),
        optional(
            "max_held",
            Integer(&MAX_HELD),
            "Maximum number of samples in the queue and in use by the node together. Default `queue_size` + 8.",
        ),
        optional(
            "type",
            Type,
            "Type that the node expects; it must be the output's.",
        ),
        optional(
            "expect_every",
            Interval,
            "Longest time between samples. When no sample was published for this long, the node receives a `STALE` event, and another each time the same period passes. Counts from the start of the dataflow, or of the node if that is later.",
        ),
        optional(
            "input_timeout",
            Duration,
            "Acts as `expect_every`. A program of dora receives `INPUT_CLOSED` after this time and `INPUT_RECOVERED` with the next sample, as under dora.",
        ),
        optional(
            "qos",
            Map(&QOS),
            "Quality of service on the link, if the output is of another machine (see qos).",
        ),
        unsupported(
            "traffic_class",
            "write `qos: {traffic_class: bulk}`",
            "Priority on links between machines.",
        ),
        unsupported(
            "lifespan",
            "write `qos: {lifespan: 300ms}`",
            "Age at which a sample is dropped.",
        ),
    ],
};

pub(crate) static QOS: Level = Level {
    name: "qos",
    noun: "`qos`",
    keys: &[
        optional(
            "reliability",
            OneOf(RELIABILITIES),
            "`reliable` (default): what the link loses of a sample is repaired. `best_effort`: it is not. With `queue_policy: block` every sample is delivered in order, and the producer waits if the link is slower.",
        ),
        optional(
            "lifespan",
            Interval,
            "Age at which a sample that was not delivered is dropped. Counts from its acceptance by the link.",
        ),
        optional(
            "traffic_class",
            OneOf(TRAFFIC_CLASSES),
            "Priority on the link: `control`, `default` or `bulk`. A higher class takes all that it needs.",
        ),
        later(
            "deadline",
            "until then, `expect_every` reports samples that do not arrive",
            "Time within which a sample should be delivered.",
        ),
        unsupported(
            "history",
            "`queue_size` and `queue_policy` hold on the link too; `history` of an output is for inputs that connect late",
            "Depth of the queue.",
        ),
    ],
};

pub(crate) static MACHINE: Level = Level {
    name: "machine",
    noun: "a machine",
    keys: &[later(
        "labels",
        "until then, bind the role with `nervure start --bind ROLE=MACHINE`",
        "Labels that the machine must have.",
    )],
};

pub(crate) static OUTPUT: Level = Level {
    name: "output",
    noun: "an output",
    keys: &[
        optional(
            "type",
            Type,
            "Type of the samples, such as `std/Image@1`. Inputs of another type are refused.",
        ),
        optional(
            "history",
            Integer(&HISTORY),
            "Number of last samples kept for inputs that connect late. Default 0.",
        ),
        later(
            "export",
            "until then, put the nodes into one dataflow",
            "Name for other dataflows.",
        ),
        later(
            "memory_kind",
            "until then, samples are in host memory",
            "Kind of memory.",
        ),
    ],
};

pub(crate) static OPERATOR: Level = Level {
    name: "operator",
    noun: "an operator",
    keys: &[
        optional(
            "id",
            Name,
            "Name of the operator, unique in the node. Required in `operators`; in `operator`, the default is `op`.",
        ),
        optional("name", Words, "Name to display."),
        optional("description", Words, "Description of the operator."),
        Key {
            status: Status::RequiredUnless(&["shared-library", "wasm"]),
            ..required(
                "python",
                PythonSource,
                "A Python script with a class `Operator`, relative to this file, or a map (see python).",
            )
        },
        Key {
            aliases: &["shared_library"],
            ..optional(
                "shared-library",
                Path,
                "A shared library with dora's C interface for operators, relative to this file. `build/detect` is the file `build/libdetect.so`.",
            )
        },
        optional(
            "build",
            Words,
            "Commands that `nervure build` runs in the folder of this file, one a line.",
        ),
        optional(
            "inputs",
            Inputs,
            "Inputs by the operator's own names, as those of a node.",
        ),
        optional(
            "outputs",
            Outputs,
            "Outputs by the operator's own names, as those of a node.",
        ),
        optional("input_types", Types, "Types of inputs by name."),
        optional("output_types", Types, "Types of outputs by name."),
        unsupported(
            "wasm",
            "build the operator as a shared library, and name it in `shared-library`",
            "Operator in WebAssembly.",
        ),
        ignored(
            "max_log_size",
            "the logs of all runs have one limit, `NERVURE_LOG_LIMIT`",
            "Size of log files.",
        ),
        ignored(
            "max_rotated_files",
            "the logs of all runs have one limit, `NERVURE_LOG_LIMIT`",
            "Number of log files.",
        ),
        ignored(
            "output_framing",
            "outputs need no framing",
            "Encoding of outputs.",
        ),
        ignored(
            "output_metadata",
            "metadata needs no declaration",
            "Metadata of outputs.",
        ),
        ignored(
            "pattern",
            "metadata needs no declaration",
            "Communication pattern, which stands for metadata.",
        ),
        optional(
            "send_stdout_as",
            Name,
            "Output that carries the lines that the node writes to stdout and stderr, each as text.",
        ),
        optional(
            "send_logs_as",
            Name,
            "Output that carries the same lines as records of dora, each as JSON text. A line that is such a record keeps its level and message, and a line that begins with a level in capitals has that level. Any other line has the level `stdout`.",
        ),
        optional(
            "min_log_level",
            OneOf(LOG_LEVELS),
            "Lowest level of lines in outputs for logs. Log files hold all lines, and `nervure run --log-level` chooses what is shown.",
        ),
    ],
};

pub(crate) static PYTHON_SOURCE: Level = Level {
    name: "python",
    noun: "`python`",
    keys: &[
        required(
            "source",
            Path,
            "A Python script with a class `Operator`, relative to this file.",
        ),
        optional(
            "conda_env",
            Words,
            "The conda environment whose Python runs the operator.",
        ),
    ],
};

pub(crate) static CUSTOM: Level = Level {
    name: "custom",
    noun: "`custom`",
    keys: &[
        required("source", Path, "The same as `path` of the node."),
        optional("args", Arguments, "The same as `args` of the node."),
        optional("envs", Environment, "The same as `env` of the node."),
        optional("build", Words, "The same as `build` of the node."),
        optional("inputs", Inputs, "The same as `inputs` of the node."),
        optional("outputs", Outputs, "The same as `outputs` of the node."),
    ],
};

pub(crate) static DEPLOY: Level = Level {
    name: "deploy",
    noun: "`deploy`",
    keys: &[
        optional(
            "working_dir",
            Path,
            "The folder in which the node runs and is built, relative to this file. If it does not exist there, the folder of this file.",
        ),
        ignored("machine", ONE_HOST, "Name of a machine."),
        ignored("labels", ONE_HOST, "Labels of machines."),
        ignored("distribute", ONE_HOST, "Way of a program to its machine."),
    ],
};

pub(crate) static MODULE_FILE: Level = Level {
    name: "module_file",
    noun: "a module file",
    keys: &[
        required(
            "module",
            Map(&MODULE),
            "The inputs and outputs (see module).",
        ),
        required(
            "nodes",
            Nodes,
            "The nodes. Their paths are relative to this file. The source `_mod/input` is that of an input of the module.",
        ),
        optional(
            "build",
            Words,
            "Commands that run before those of each node.",
        ),
    ],
};

pub(crate) static MODULE: Level = Level {
    name: "module",
    noun: "`module`",
    keys: &[
        required("name", Words, "Name of the module, for messages."),
        optional(
            "inputs",
            Names,
            "Inputs that a node with this module must have.",
        ),
        optional(
            "inputs_optional",
            Names,
            "Inputs that it may have. Inputs of nodes that read from one that is not there are left out.",
        ),
        optional(
            "outputs",
            Names,
            "Outputs: each is the output of that name of one of the nodes.",
        ),
    ],
};

pub(crate) static LOOP: Level = Level {
    name: "loop",
    noun: "`loop`",
    keys: &[
        required(
            "input",
            Name,
            "The input whose events start an iteration of the loop, usually a timer.",
        ),
        required(
            "finish_within",
            Interval,
            "Longest time from the moment when a tick was due, or a sample was taken from its queue, until the node asks for its next event. When the node takes longer, its next event is `DEADLINE_MISSED`.",
        ),
    ],
};

pub(crate) static ON_FAILURE: Level = Level {
    name: "on_failure",
    noun: "`on_failure`",
    keys: &[
        required("output", Name, "The output."),
        required(
            "value",
            Value,
            "The value, as Python's `send` takes it: `null`, a boolean, a number, text, a list of one type, or a map. At most 16 KiB as JSON.",
        ),
    ],
};

pub(crate) static PARAM: Level = Level {
    name: "param",
    noun: "a parameter",
    keys: &[
        required(
            "value",
            ParamValue,
            "The value at the start of the dataflow.",
        ),
        optional(
            "type",
            OneOf(PARAM_TYPES),
            "Type of the values; by default that of `value`. A `float` accepts integers too. All elements of a `list` have the same one of the other types.",
        ),
        optional(
            "min",
            Number,
            "Smallest value; for a list, of each element.",
        ),
        optional("max", Number, "Largest value; for a list, of each element."),
        optional("one_of", ParamValues, "The possible values."),
        optional(
            "read_only",
            Boolean,
            "`true`: the value cannot change while the dataflow runs. Default `false`.",
        ),
        optional("description", Words, "Description of the parameter."),
    ],
};

pub(crate) static SCHEDULING: Level = Level {
    name: "scheduling",
    noun: "`scheduling`",
    keys: &[
        required(
            "policy",
            OneOf(SCHEDULING_POLICIES),
            "`other` (the normal policy), or real-time: `fifo` or `rr` (round-robin).",
        ),
        optional(
            "priority",
            Integer(&PRIORITY),
            "Real-time priority, 99 being the most urgent. Needed with `fifo` and `rr`.",
        ),
        optional(
            "nice",
            Integer(&NICE),
            "Niceness with `other`, -20 being the most urgent.",
        ),
        later("deadline", "use `fifo` or `rr`", "Deadline scheduling."),
    ],
};

const fn required(name: &'static str, shape: Shape, doc: &'static str) -> Key {
    Key {
        name,
        aliases: &[],
        status: Status::Required,
        shape,
        doc,
    }
}

const fn optional(name: &'static str, shape: Shape, doc: &'static str) -> Key {
    Key {
        name,
        aliases: &[],
        status: Status::Optional,
        shape,
        doc,
    }
}

const fn later(name: &'static str, hint: &'static str, doc: &'static str) -> Key {
    Key {
        name,
        aliases: &[],
        status: Status::Later(hint),
        shape: Anything,
        doc,
    }
}

const fn ignored(name: &'static str, reason: &'static str, doc: &'static str) -> Key {
    Key {
        name,
        aliases: &[],
        status: Status::Ignored(reason),
        shape: Anything,
        doc,
    }
}

const fn unsupported(name: &'static str, hint: &'static str, doc: &'static str) -> Key {
    Key {
        name,
        aliases: &[],
        status: Status::Unsupported(hint),
        shape: Anything,
        doc,
    }
}

impl Level {
    /// The key that `text` spells.
    pub fn find(&self, text: &str) -> Option<&'static Key> {
        self.keys
            .iter()
            .find(|key| key.name == text || key.aliases.contains(&text))
    }

    /// The keys that can be used.
    pub fn usable(&self) -> impl Iterator<Item = &'static Key> {
        self.keys.iter().filter(|key| key.is_usable())
    }
}

impl Key {
    pub fn is_usable(&self) -> bool {
        matches!(
            self.status,
            Status::Required | Status::Optional | Status::RequiredUnless(_)
        )
    }
}

impl Shape {
    /// The form as a noun, after "expected".
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
            Interval => "a duration with a unit, such as `200ms`".to_owned(),
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
            LastValues => "a map `{output: .., value: ..}`, or a list of such maps".to_owned(),
            Value => "a value that can be sent".to_owned(),
            Params => "a map from parameters to their values".to_owned(),
            ParamValue => "true or false, a number, text, or a list of those".to_owned(),
            ParamValues => "a list of values".to_owned(),
            Number => "a number".to_owned(),
            Names => "a list of names".to_owned(),
            Clients => "a map from names to `node/service`".to_owned(),
            Operators => "a list of operators".to_owned(),
            PythonSource => "the path of a script, or a map".to_owned(),
            Boolean => "`true` or `false`".to_owned(),
            Machines => "a map from roles to `{}`".to_owned(),
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
                    assert!(
                        seen.insert(*name),
                        "{}.{name} is twice in the table",
                        level.name
                    );
                }
                assert!(
                    key.doc.ends_with('.'),
                    "{}.{} needs a sentence",
                    level.name,
                    key.name
                );
            }
        }
    }
}
