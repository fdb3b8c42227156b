//! The keys of a file: of the dataflow, its machines and its modules.

use super::{Shape::*, *};

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
            "args",
            Params,
            "Arguments of the file, in the form of parameters (see param), without dots in their names. `${args.NAME}` stands for the value of one, anywhere in the file; `nervure run FILE NAME=VALUE` gives another value.",
        ),
        optional(
            "env",
            Environment,
            "Environment variables of every node; a node's own `env` takes precedence.",
        ),
        required("nodes", Nodes, "The nodes."),
        optional(
            "types",
            Folders,
            "Folders with definitions of types, such as `[msgs]`: `msgs/my/Pose.msg` or `msgs/my/msg/Pose.msg` defines `my/Pose@1` in the syntax of ROS. `Pose.toml` beside it has its version and what `.msg` cannot say (docs/reference/types.md). A fleet needs the folder inside that of this file.",
        ),
        optional(
            "machines",
            Machines,
            "Roles of the machines that nodes run on, by name, such as `{robot: {}, edge: {}}`. `nervure start` binds each role to a machine. `nervure run` runs all nodes on this host.",
        ),
        optional(
            "static_transforms",
            StaticTransforms,
            "Poses of frames that never change, such as that of a camera on a robot, for nodes with `transforms: true` (see static_transform).",
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

pub(crate) static MACHINE: Level = Level {
    name: "machine",
    noun: "a machine",
    keys: &[
        optional(
            "labels",
            Labels,
            "Labels that the machine must have, such as `{gpu: \"true\"}`: those of `--label` of `nervure up` or `join`. Without `--bind`, `nervure start` takes the machine with the name of the role, or else the first by name that has them.",
        ),
        optional(
            "resources",
            Map(&RESOURCES),
            "What the machine must have at least (see resources). Machines are found by it as by labels.",
        ),
    ],
};

pub(crate) static STATIC_TRANSFORM: Level = Level {
    name: "static_transform",
    noun: "a static transform",
    keys: &[
        required("parent", Words, "The frame in which the pose is given."),
        required("child", Words, "The frame whose pose this is."),
        optional(
            "translation",
            Numbers(3),
            "Position of the child's origin in the parent, in metres: `[x, y, z]`. Default: the parent's origin.",
        ),
        optional(
            "rotation",
            Numbers(4),
            "Orientation of the child in the parent as a unit quaternion: `[x, y, z, w]`. Default: that of the parent.",
        ),
        optional(
            "rpy",
            Numbers(3),
            "In the place of `rotation`: roll, pitch and yaw in radians, about the parent's x, y and z axes in this order, as in URDF.",
        ),
    ],
};

pub(crate) static RESOURCES: Level = Level {
    name: "resources",
    noun: "`resources`",
    keys: &[
        optional(
            "cpus",
            Integer(&COUNT),
            "Processors that the daemon of the machine may use.",
        ),
        optional(
            "memory",
            Size,
            "Memory of the machine, or of the control group of its daemon, such as `2GiB`; whether it is in use does not count.",
        ),
        optional(
            "gpus",
            Integer(&COUNT),
            "Graphics processors: render nodes of the kernel (`/dev/dri/renderD*`) or devices of NVIDIA (`/dev/nvidia0`).",
        ),
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
        optional(
            "args",
            Params,
            "Arguments of the module, as those of a dataflow. The `params` of the node with the module are their values. A module without `args` takes any `params` as text: `${_param.NAME}` in `env`, `args` and `params`.",
        ),
        required(
            "nodes",
            Nodes,
            "The nodes. Their paths are relative to this file. The source `_mod/input` is that of an input of the module.",
        ),
        optional(
            "types",
            Folders,
            "Folders with definitions of types, relative to this file. They take precedence over those of the including file.",
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
