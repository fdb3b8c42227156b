//! Other programs for nodes (`nervure node replace`), while their edges stay.
//!
//! The old process is stopped in order and the new program started, as by a restart. The old
//! command line is kept until the new program is ready, and comes back if that fails.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use nervure_protocol::graph::Program;

use crate::plan::NodePlan;

/// The command line of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommandLine {
    pub program: Program,
    pub args: Vec<String>,
    pub folder: Option<PathBuf>,
    pub version: String,
}

/// The version of a program without one.
pub(super) const BY_HAND: &str = "by hand";

impl CommandLine {
    pub fn of(plan: &NodePlan) -> Self {
        Self {
            program: plan.program.clone(),
            args: plan.settings.args.clone(),
            folder: plan.settings.folder.clone(),
            version: plan.settings.version.clone(),
        }
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.program)?;
        self.args
            .iter()
            .try_for_each(|argument| write!(f, " {argument}"))
    }
}

/// A replacement whose new program is not ready yet.
#[derive(Debug)]
pub(super) struct Replacement {
    /// The client that gets the answer.
    pub client: usize,
    /// The command line before.
    pub before: CommandLine,
    /// The new program was started, or could not be.
    pub is_tried: bool,
}

/// The replacements, by node.
#[derive(Debug, Default)]
pub(super) struct Replacements {
    pending: BTreeMap<usize, Replacement>,
    /// Command lines of the file, for nodes that run another one by hand.
    file_says: BTreeMap<usize, CommandLine>,
}

impl Replacements {
    /// Begins the replacement of a node's program.
    pub fn begin(&mut self, node: usize, client: usize, before: CommandLine) {
        let replacement = Replacement {
            client,
            before,
            is_tried: false,
        };
        self.pending.insert(node, replacement);
    }

    /// Sets another client that waits for the answer.
    pub fn hand_over(&mut self, node: usize, client: usize) {
        if let Some(replacement) = self.pending.get_mut(&node) {
            replacement.client = client;
        }
    }

    pub fn is_pending(&self, node: usize) -> bool {
        self.pending.contains_key(&node)
    }

    /// Notes that the node's new program was started, or could not be.
    pub fn set_tried(&mut self, node: usize) {
        if let Some(replacement) = self.pending.get_mut(&node) {
            replacement.is_tried = true;
        }
    }

    /// Notes that the node is stopped by hand: the end of its process decides nothing.
    pub fn put_off(&mut self, node: usize) {
        if let Some(replacement) = self.pending.get_mut(&node) {
            replacement.is_tried = false;
        }
    }

    /// Takes a replacement that was tried, or any with `is_over`.
    pub fn take_decided(&mut self, node: usize, is_over: bool) -> Option<Replacement> {
        let is_decided = |replacement: &Replacement| replacement.is_tried || is_over;
        self.pending
            .get(&node)
            .is_some_and(is_decided)
            .then_some(())?;
        self.pending.remove(&node)
    }

    /// Notes that a node runs `after` from now on, and `before` until now.
    pub fn note_program(&mut self, node: usize, before: CommandLine, after: &CommandLine) {
        let file_says = self.file_says.remove(&node).unwrap_or(before);
        let is_other = (&file_says.program, &file_says.args) != (&after.program, &after.args);
        if after.version == BY_HAND && is_other {
            self.file_says.insert(node, file_says);
        }
    }

    /// The command line of the file, if the node runs another one by hand.
    pub fn file_says(&self, node: usize) -> Option<&CommandLine> {
        self.file_says.get(&node)
    }
}
