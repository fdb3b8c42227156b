//! The keys of dora's own kinds of nodes.

use super::{Shape::*, *};

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
