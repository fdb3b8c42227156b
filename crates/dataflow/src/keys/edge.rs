//! The keys of inputs and outputs.

use super::{Shape::*, *};

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
            "Type that the node expects; it must be the output's. Default: that of the output.",
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

pub(crate) static ACTION: Level = Level {
    name: "action",
    noun: "an action",
    keys: &[optional(
        "new_goal",
        OneOf(NEW_GOAL),
        "A goal that arrives while the node works on others of the action: `parallel` (default) works on all, `preempt` cancels the others, `reject` refuses the new one.",
    )],
};

pub(crate) static OUTPUT: Level = Level {
    name: "output",
    noun: "an output",
    keys: &[
        optional(
            "type",
            Type,
            "Type of the samples, such as `std/Image@1`. Inputs of another type are refused, and samples that do not fit a standard type (docs/reference/types.md).",
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
