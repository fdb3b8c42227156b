//! The keys of a node and of the maps in it.

use super::{Shape::*, *};

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
                "The program: a Python script (`.py`, run with the Python of the active environment), a function `module:function` for that Python, which takes the node, a component (`.so`, see `process`) or an executable, all relative to this file, or a command on the PATH. `dynamic`: the node is started by hand, and can join and rejoin while the dataflow runs.",
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
            "actions",
            Actions,
            "Goals that the node works on, with feedback and a result: a list of names, or a map from names to `{}` or a map (see action). Names of services and actions of a node differ.",
        ),
        optional(
            "clients",
            Clients,
            "Requests and goals that the node sends: a map from its own name for the service or action to `node/service` or `node/action`.",
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
            "memory_lock",
            Boolean,
            "`true`: the memory of the node's process is faulted in when it connects, and never paged out. Default `false`.",
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
        optional(
            "sync",
            Map(&SYNC),
            "Inputs whose samples the node gets together, matched by their stamps, as one event `SYNC` (see sync).",
        ),
        optional(
            "transforms",
            Boolean,
            "`true`: the node can look up transforms between frames, of `static_transforms` and of every output in this dataflow with `type: std/Transform@1`. They reach the node without being inputs of it. Default `false`.",
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
            "Process that the node shares with the other nodes of that name, each on a thread of its own. The nodes are either components, whose `path` is a shared library, or Python: scripts and functions.",
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

pub(crate) static SYNC: Level = Level {
    name: "sync",
    noun: "`sync`",
    keys: &[
        required(
            "inputs",
            Names,
            "The inputs of which an event has one sample each.",
        ),
        optional(
            "collect",
            Names,
            "Inputs of which an event has all samples since the event before, up to the stamp of the first of `inputs`: `{inputs: [image], collect: [imu]}`. The event waits until a newer sample of each has come. At most `queue_size` of the input wait.",
        ),
        optional(
            "policy",
            OneOf(SYNC_POLICIES),
            "`approximate` (default): the samples whose stamps differ least, by the rule of `ApproximateTime` in ROS 2's message_filters; each is used once at most. `exact`: the first whose stamps are equal, or differ by `tolerance` at most.",
        ),
        optional(
            "tolerance",
            Duration,
            "Largest difference between the stamps of an event. Default: 0 with `exact`, no limit with `approximate`.",
        ),
        optional(
            "queue_size",
            Integer(&SYNC_QUEUE_SIZE),
            "Most samples of each input that wait for their partners; beyond it the oldest is dropped, and counted as unmatched. Default 10.",
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
            "`other` (the normal policy), or real-time: `fifo`, `rr` (round-robin), or `deadline` (earliest deadline first).",
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
        optional(
            "runtime",
            Interval,
            "Processor time in each period with `deadline`, for the node's first thread. Needed with it. A thread that uses more waits for the next period.",
        ),
        optional(
            "deadline",
            Interval,
            "Time from the start of a period within which the thread gets its `runtime`. Needed with `deadline`.",
        ),
        optional(
            "period",
            Interval,
            "Period with `deadline`. Default: its `deadline`.",
        ),
    ],
};
