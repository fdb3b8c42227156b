//! Restarts of a node: the decision, and the pause before each.

use std::{collections::VecDeque, time::Duration};

use crate::plan::{Restart, RestartPolicy};

/// A run of at least this length, or of the restart window, resets the back-off.
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(60);

/// The decision at the end of a node's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is started again after a pause; `number` counts the restarts within the window.
    Restart { after: Duration, number: u32 },
    /// All restarts that `max_restarts` allows have been used.
    Exhausted { number: u32 },
    /// Its policy would start it again, but it exited with an error after all its inputs had ended.
    NothingLeft,
    /// Its policy does not start it again after such an end.
    NotWanted,
}

impl Verdict {
    /// For people, behind what happened; empty when the node is not meant to start again.
    pub fn text(self, plan: &Restart) -> String {
        let window = plan
            .window
            .map(|window| format!(" within {window:?}"))
            .unwrap_or_default();
        match self {
            Self::Restart { after, number } => {
                let count = plan
                    .max_restarts
                    .map(|max| format!(" (restart {number} of {max}{window})"));
                format!("; starts again in {after:?}{}", count.unwrap_or_default())
            }
            Self::Exhausted { number } => {
                format!("; not started again: {number} restarts{window} are spent (`max_restarts`)")
            }
            Self::NothingLeft => "; not started again: all its inputs have ended".to_owned(),
            Self::NotWanted => String::new(),
        }
    }
}

/// The restarts of a node.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    /// The times of restarts within the window.
    recent: VecDeque<Duration>,
    /// Number of ends in a row since the back-off was reset.
    doublings: u32,
    started_at: Duration,
}

impl Restarts {
    /// Its process was started.
    pub fn started(&mut self, now: Duration) {
        self.started_at = now;
    }

    /// Its process ended.
    pub fn ended(&mut self, plan: &Restart, success: bool, now: Duration) -> Verdict {
        let wanted = match plan.policy {
            RestartPolicy::Never => false,
            RestartPolicy::OnFailure => !success,
            RestartPolicy::Always => true,
        };
        if !wanted {
            return Verdict::NotWanted;
        }
        if let Some(window) = plan.window {
            self.recent.retain(|&at| at + window > now);
        }
        let number = u32::try_from(self.recent.len()).unwrap_or(u32::MAX);
        if plan.max_restarts.is_some_and(|max| number >= max) {
            return Verdict::Exhausted { number };
        }
        if now.saturating_sub(self.started_at) >= plan.window.unwrap_or(BACKOFF_RESET_AFTER) {
            self.doublings = 0;
        }
        let factor = 1u32.checked_shl(self.doublings).unwrap_or(u32::MAX);
        let after = plan
            .delay
            .saturating_mul(factor)
            .min(plan.max_delay.max(plan.delay));
        self.doublings = self.doublings.saturating_add(1);
        if plan.max_restarts.is_some() {
            self.recent.push_back(now);
        }
        Verdict::Restart {
            after,
            number: number.saturating_add(1),
        }
    }
}

/// Whether a node with this policy is restarted after some of its ends.
pub(super) fn may_restart(policy: RestartPolicy) -> bool {
    match policy {
        RestartPolicy::Never => false,
        RestartPolicy::OnFailure | RestartPolicy::Always => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Restart = Restart {
        policy: RestartPolicy::OnFailure,
        delay: Duration::from_millis(100),
        max_delay: Duration::from_secs(1),
        max_restarts: None,
        window: None,
    };

    fn pauses(
        restarts: &mut Restarts,
        plan: &Restart,
        ends: impl IntoIterator<Item = u64>,
    ) -> Vec<Option<u64>> {
        ends.into_iter()
            .map(
                |end| match restarts.ended(plan, false, Duration::from_millis(end)) {
                    Verdict::Restart { after, .. } => Some(after.as_millis() as u64),
                    _ => None,
                },
            )
            .collect()
    }

    #[test]
    fn the_pause_doubles_up_to_its_maximum() {
        let pauses = pauses(&mut Restarts::default(), &PLAN, [0, 1, 2, 3, 4, 5]);
        assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000].map(Some));
    }

    #[test]
    fn a_long_run_resets_the_back_off() {
        let mut restarts = Restarts::default();
        assert_eq!(
            pauses(&mut restarts, &PLAN, [0, 1, 2]),
            [100, 200, 400].map(Some)
        );
        restarts.started(Duration::from_secs(1));
        assert_eq!(pauses(&mut restarts, &PLAN, [61_000]), [Some(100)]);
        restarts.started(Duration::from_secs(62));
        assert_eq!(pauses(&mut restarts, &PLAN, [63_000]), [Some(200)]);
    }

    #[test]
    fn restarts_leave_the_window() {
        let plan = Restart {
            max_restarts: Some(2),
            window: Some(Duration::from_secs(10)),
            ..PLAN
        };
        let mut restarts = Restarts::default();
        let pauses = pauses(
            &mut restarts,
            &plan,
            [0, 5_000, 9_999, 10_000, 10_001, 15_000],
        );
        assert_eq!(
            pauses.iter().map(Option::is_some).collect::<Vec<_>>(),
            [true, true, false, true, false, true]
        );
    }

    #[test]
    fn policies_distinguish_success_and_failure() {
        let verdict = |policy, success| {
            Restarts::default().ended(&Restart { policy, ..PLAN }, success, Duration::ZERO)
                != Verdict::NotWanted
        };
        assert!(!verdict(RestartPolicy::Never, false));
        assert!(
            verdict(RestartPolicy::OnFailure, false) && !verdict(RestartPolicy::OnFailure, true)
        );
        assert!(verdict(RestartPolicy::Always, false) && verdict(RestartPolicy::Always, true));
    }

    #[test]
    fn a_plan_without_pause_and_thousands_of_restarts_do_not_overflow() {
        let plan = Restart {
            delay: Duration::ZERO,
            max_delay: Duration::MAX,
            ..PLAN
        };
        assert_eq!(
            pauses(&mut Restarts::default(), &plan, 0..2000),
            vec![Some(0); 2000]
        );
        let plan = Restart {
            max_delay: Duration::MAX,
            ..PLAN
        };
        assert!(
            pauses(&mut Restarts::default(), &plan, 0..2000)
                .iter()
                .all(Option::is_some)
        );
    }
}
