//! Decisions of a daemon about programs that replace those of nodes while a run goes on.
//!
//! One action brings all desired programs of a run into their places. The next one waits for its answer.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::pauses::pause;
use crate::state::{ActualProgram, DesiredProgram, ProgramState};

/// Programs of nodes, by the ids of these.
pub type Desired = BTreeMap<String, DesiredProgram>;

/// The programs of the nodes of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    /// The programs last requested; `None` if those of the keeper are not known.
    asked: Option<Desired>,
    /// Whether the answer is awaited.
    is_awaited: bool,
    /// Their states, from the last answers.
    known: BTreeMap<String, ActualProgram>,
    /// Time of the next retry.
    retry_at: Option<Duration>,
    /// Number of failed attempts.
    failures: u32,
}

impl Programs {
    /// Whether to bring these into their places now.
    pub fn begin(&mut self, desired: &Desired, now: Duration) -> bool {
        let is_new = self.asked.as_ref() != Some(desired);
        let is_due = self.retry_at.is_some_and(|at| at <= now);
        if self.is_awaited || !(is_new || is_due) {
            return false;
        }
        if is_new {
            self.failures = 0;
        }
        self.retry_at = None;
        self.asked = Some(desired.clone());
        self.is_awaited = !desired.is_empty();
        self.is_awaited
    }

    /// Handles the answer.
    pub fn end(&mut self, programs: BTreeMap<String, ActualProgram>, now: Duration) {
        self.is_awaited = false;
        // Its keeper is gone.
        if self.asked.is_none() {
            return;
        }
        let is_tried_again = |program: &ActualProgram| {
            matches!(
                program.state,
                ProgramState::Failed {
                    is_tried_again: true,
                    ..
                }
            )
        };
        if programs.values().any(is_tried_again) {
            self.retry_at = Some(now + pause(self.failures));
            self.failures += 1;
        }
        self.known = programs;
    }

    /// Resets the state: the next keeper starts with the programs that are there.
    pub fn keeper_gone(&mut self) {
        let is_awaited = self.is_awaited;
        *self = Self {
            is_awaited,
            ..Self::default()
        };
    }

    /// Whether an answer is awaited.
    pub fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Time of the next retry.
    pub fn deadline(&self) -> Option<Duration> {
        self.retry_at
    }

    /// States of the desired programs.
    pub fn report(&self, desired: &Desired) -> BTreeMap<String, ActualProgram> {
        let of_node = |(node, program): (&String, &DesiredProgram)| {
            let known = self.known.get(node);
            let known = known.filter(|known| known.version == program.version);
            let preparing = || ActualProgram {
                version: program.version.clone(),
                state: ProgramState::Preparing,
            };
            (node.clone(), known.cloned().unwrap_or_else(preparing))
        };
        desired.iter().map(of_node).collect()
    }
}
