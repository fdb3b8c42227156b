//! The states of goals of actions, and their form in samples.
//!
//! An action is a service whose requests are goals. The node that works on one sends feedback and changes
//! of state on an edge of its own, so that a client that takes no feedback still gets every result. A
//! cancellation is a further request with the number of the goal.

use crate::sample::Sample;
use nervure_message::{Metadata, Value};
use nervure_shm::monotonic_nanos;

/// The metadata key of a change of state, or of the result of a goal that was cancelled.
pub(super) const STATE_KEY: &str = "nervure.state";

/// The metadata key of a request that cancels the goal with its number.
const CANCEL_KEY: &str = "nervure.cancel";

/// The metadata key of the time limit of a goal, in seconds.
pub const WITHIN_KEY: &str = "nervure.within";

/// The state of a goal, with the names and numbers of ROS 2 (`action_msgs/GoalStatus`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum GoalState {
    /// The node of the action has not reported on it.
    #[default]
    Unknown = 0,
    /// The node has it.
    Accepted = 1,
    /// The node has sent feedback.
    Executing = 2,
    /// The node was asked to cancel it.
    Canceling = 3,
    /// It has a result.
    Succeeded = 4,
    /// It was cancelled.
    Canceled = 5,
    /// The node has failed to reach it.
    Aborted = 6,
}

impl GoalState {
    const ALL: [Self; 7] = [
        Self::Unknown,
        Self::Accepted,
        Self::Executing,
        Self::Canceling,
        Self::Succeeded,
        Self::Canceled,
        Self::Aborted,
    ];

    /// Its name: `EXECUTING`, ..
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Accepted => "ACCEPTED",
            Self::Executing => "EXECUTING",
            Self::Canceling => "CANCELING",
            Self::Succeeded => "SUCCEEDED",
            Self::Canceled => "CANCELED",
            Self::Aborted => "ABORTED",
        }
    }

    pub(crate) fn of_number(number: i64) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|state| i64::from(*state as u8) == number)
    }

    /// The state that a sample reports, if it has no other content.
    pub(crate) fn reported(sample: &Sample) -> Option<Self> {
        match sample.metadata().unwrap_or_default().get(STATE_KEY) {
            Some(Value::Integer(number)) => Self::of_number(*number),
            _ => None,
        }
    }

    pub(super) fn metadata(self) -> Metadata {
        [(STATE_KEY, i64::from(self as u8))].into_iter().collect()
    }
}

impl std::fmt::Display for GoalState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a goal is to be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelCause {
    /// The client has cancelled it.
    Client,
    /// The client's process has ended.
    ClientEnded,
    /// Its time limit has passed.
    Deadline,
    /// Another goal has taken its place: `new_goal: preempt` in the dataflow file.
    Preempted,
}

impl std::fmt::Display for CancelCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Client => "its client has cancelled it",
            Self::ClientEnded => "its client has ended",
            Self::Deadline => "its time limit has passed",
            Self::Preempted => "another goal has taken its place",
        })
    }
}

/// The metadata of a cancellation.
pub(super) fn cancellation() -> Metadata {
    [(CANCEL_KEY, true)].into_iter().collect()
}

pub(super) fn is_cancellation(request: &Sample) -> bool {
    let metadata = request.metadata().unwrap_or_default();
    matches!(metadata.get(CANCEL_KEY), Some(Value::Bool(true)))
}

/// The time limit that a client has given a goal, as a time of CLOCK_MONOTONIC in nanoseconds.
pub(super) fn deadline_of(goal: &Sample) -> Option<u64> {
    let within = match goal.metadata().unwrap_or_default().get(WITHIN_KEY) {
        Some(Value::Float(seconds)) => *seconds,
        Some(Value::Integer(seconds)) => *seconds as f64,
        _ => return None,
    };
    // A number that is too large or not a number becomes the nearest possible one.
    Some(monotonic_nanos().saturating_add((within * 1e9) as u64))
}
