//! The phases of a dataflow: starting, running, and stopping in order: Stop, grace period, SIGTERM,
//! SIGKILL.

use std::time::Duration;

use super::action::Signal;
use crate::plan::TERMINATE_GRACE;

/// How often a dataflow that is not ready logs the nodes that it waits for.
const READY_WARNING_PERIOD: Duration = Duration::from_secs(5);

/// The phase of a dataflow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
    /// No node was started yet.
    Loaded,
    /// Not every node is ready.
    Starting { warn_at: Duration },
    /// Every node was ready once.
    Running,
    /// Sources are asked to stop, and other nodes to end after their queued samples; a stop
    /// follows.
    Draining { until: Duration },
    /// Asked to stop; SIGTERM follows.
    Stopping { terminate_at: Duration },
    /// SIGTERM is sent; SIGKILL follows.
    Terminating { kill_at: Duration },
    /// SIGKILL is sent.
    Killed,
    /// Every node has ended.
    Finished,
}

impl Phase {
    pub fn starting(now: Duration) -> Self {
        Self::Starting {
            warn_at: now + READY_WARNING_PERIOD,
        }
    }

    /// True until every node was ready.
    pub fn is_starting(self) -> bool {
        matches!(self, Self::Loaded | Self::Starting { .. })
    }

    /// True while nodes that end are restarted as their policies say.
    pub fn is_running(self) -> bool {
        matches!(self, Self::Running | Self::Draining { .. })
    }

    /// True from the order to stop on: no process is started any more.
    pub fn is_stopping(self) -> bool {
        self.is_ending() && !self.is_running()
    }

    /// True from the order to stop or drain on: no process joins any more.
    pub fn is_ending(self) -> bool {
        !self.is_starting() && self != Self::Running
    }

    pub fn deadline(self) -> Option<Duration> {
        match self {
            Self::Starting { warn_at: at }
            | Self::Draining { until: at }
            | Self::Stopping { terminate_at: at }
            | Self::Terminating { kill_at: at } => Some(at),
            Self::Loaded | Self::Running | Self::Killed | Self::Finished => None,
        }
    }

    /// True when a warning is due that the dataflow is not ready, once a period.
    pub fn take_due_warning(&mut self, now: Duration) -> bool {
        let is_due = matches!(self, Self::Starting { warn_at } if *warn_at <= now);
        if is_due {
            *self = Self::starting(now);
        }
        is_due
    }

    /// The next stronger signal for nodes that have not ended in time, when it is due.
    pub fn escalate(&mut self, now: Duration) -> Option<Signal> {
        match *self {
            Self::Stopping { terminate_at } if terminate_at <= now => {
                *self = Self::Terminating {
                    kill_at: now + TERMINATE_GRACE,
                };
                Some(Signal::Terminate)
            }
            Self::Terminating { kill_at } if kill_at <= now => {
                *self = Self::Killed;
                Some(Signal::Kill)
            }
            _ => None,
        }
    }
}
