//! The table of all keys of a dataflow file.
//!
//! The reader, the messages about unknown keys, the JSON schema and the reference page use this
//! table.

mod dataflow;
mod dora;
mod edge;
mod node;

use std::ops::RangeInclusive;

use nervure_protocol::wiring::{NewGoal, Policy};

use Shape::*;
pub(crate) use dataflow::{DATAFLOW, MACHINE, MODULE, MODULE_FILE, RESOURCES, STATIC_TRANSFORM};
pub(crate) use dora::{CUSTOM, DEPLOY, OPERATOR, PYTHON_SOURCE};
pub(crate) use edge::{ACTION, INPUT, OUTPUT, QOS};
pub(crate) use node::{LOOP, NODE, ON_FAILURE, PARAM, SCHEDULING, SYNC};

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
    /// Actions by name.
    Actions,
    /// Paths of folders.
    Folders,
    /// `node/service` by name.
    Clients,
    /// Operators of dora that share a process.
    Operators,
    /// The script of an operator, with or without a conda environment.
    PythonSource,
    /// Texts by name.
    Labels,
    /// Roles of machines by name.
    Machines,
    /// Poses of frames that never change.
    StaticTransforms,
    /// A list of numbers, of this length.
    Numbers(usize),
    Map(&'static Level),
    /// The form of refused keys.
    Anything,
}

pub(crate) const FORMAT_VERSION: i64 = 1;
pub(crate) const FORMAT_VERSIONS: RangeInclusive<i64> = 1..=FORMAT_VERSION;
/// Processors or graphics processors of a machine.
pub(crate) const COUNT: RangeInclusive<i64> = 1..=4096;
pub(crate) const QUEUE_SIZE: RangeInclusive<i64> = 1..=65_536;
pub(crate) const MAX_HELD: RangeInclusive<i64> = 1..=131_072;
pub(crate) const HISTORY: RangeInclusive<i64> = 0..=1_000;
pub(crate) const MAX_RESTARTS: RangeInclusive<i64> = 0..=1_000_000;
/// A queue of 1 drops many samples: each waits for its partners while the next one comes.
pub(crate) const SYNC_QUEUE_SIZE: RangeInclusive<i64> = 2..=1_000;
pub(crate) const PRIORITY: RangeInclusive<i64> = 1..=99;
pub(crate) const NICE: RangeInclusive<i64> = -20..=19;
pub(crate) const PROCESSOR: RangeInclusive<i64> = 0..=4_095;

/// The policies of edges, `latest`, and dora's word for `block`.
pub(crate) const QUEUE_POLICIES: &[&str] = &{
    let mut words = ["latest"; Policy::ALL.len() + 2];
    let mut index = 0;
    while index < Policy::ALL.len() {
        words[index] = Policy::ALL[index].name();
        index += 1;
    }
    words[words.len() - 1] = "backpressure";
    words
};
pub(crate) const RESTART_POLICIES: &[&str] = &["never", "on-failure", "always"];
pub(crate) const SCHEDULING_POLICIES: &[&str] = &["other", "fifo", "rr", "deadline"];
pub(crate) const PARAM_TYPES: &[&str] = &["bool", "int", "float", "str", "list"];
pub(crate) const LOG_LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace", "stdout"];
pub(crate) const RELIABILITIES: &[&str] = &["reliable", "best_effort"];
pub(crate) const TRAFFIC_CLASSES: &[&str] = &["control", "default", "bulk"];
pub(crate) const READY: &[&str] = &["auto", "manual"];
pub(crate) const SYNC_POLICIES: &[&str] = &["approximate", "exact"];
/// The handling of a goal during another one.
pub(crate) const NEW_GOAL: &[&str] = &{
    let mut words = [""; NewGoal::ALL.len()];
    let mut index = 0;
    while index < words.len() {
        words[index] = NewGoal::ALL[index].name();
        index += 1;
    }
    words
};
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
    &ACTION,
    &OPERATOR,
    &PYTHON_SOURCE,
    &CUSTOM,
    &DEPLOY,
    &MODULE_FILE,
    &MODULE,
    &LOOP,
    &SYNC,
    &ON_FAILURE,
    &PARAM,
    &SCHEDULING,
    &MACHINE,
    &RESOURCES,
    &STATIC_TRANSFORM,
];

const ONE_HOST: &str = "all nodes run on this host";

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
            Actions => "a list of actions, or a map".to_owned(),
            Folders => "a list of folders".to_owned(),
            Clients => "a map from names to `node/service`".to_owned(),
            Operators => "a list of operators".to_owned(),
            PythonSource => "the path of a script, or a map".to_owned(),
            Boolean => "`true` or `false`".to_owned(),
            Labels => "a map from names to texts".to_owned(),
            Machines => "a map from roles to `{}`".to_owned(),
            StaticTransforms => "a list of static transforms".to_owned(),
            Numbers(count) => format!("a list of {count} numbers"),
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
