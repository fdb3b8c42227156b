//! Nodes that hang: that do not start in time, or give no sign of life for too long.
//!
//! A node's signs of life are a count in its counters page. Whether it sleeps is there, too, and not in its wake page, to
//! which its peers can write. Neither costs the node a system call. The keeper looks there several times within the node's timeout. What hangs is
//! looked at once more, for the log, and killed: what follows is what follows from any failure.

use std::time::Duration;

use super::{Action, Machine, Signal, State};

/// Looks within a timeout: a node that hangs is noticed within its timeout and two looks more.
const LOOKS: u32 = 4;

/// How long a process that is asked for its stacks may take to write them.
const STACKS_GRACE: Duration = Duration::from_millis(300);

/// What is seen of a living process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// Signs of life so far.
    pub beats: u64,
    /// It waits for something that has not come: news, room, or the time of its next timer.
    pub is_waiting: bool,
}

/// The keeper's watch over a process.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// When it has to be connected and ready.
    start_by: Option<Duration>,
    look_at: Option<Duration>,
    /// Beats when it was last seen neither to wait nor to have given a sign of life, and since when that is so.
    still: Option<(u64, Duration)>,
}

impl Health {
    /// Its process was started.
    pub fn started(timeout: Option<Duration>, now: Duration) -> Self {
        Self {
            start_by: timeout.map(|timeout| now + timeout),
            ..Self::default()
        }
    }

    /// It is connected and ready.
    pub fn ready(&mut self, timeout: Option<Duration>, now: Duration) {
        self.start_by = None;
        self.look_at = timeout.map(|timeout| now + timeout / LOOKS);
    }

    /// When something is to be done.
    pub fn deadline(&self) -> Option<Duration> {
        self.start_by.into_iter().chain(self.look_at).min()
    }

    /// Takes a look at it. Returns for how long there was no sign of life.
    fn see(&mut self, pulse: Pulse, now: Duration) -> Duration {
        let is_still =
            !pulse.is_waiting && self.still.is_some_and(|(beats, _)| beats == pulse.beats);
        if !is_still {
            self.still = (!pulse.is_waiting).then_some((pulse.beats, now));
        }
        self.still
            .map_or(Duration::ZERO, |(_, since)| now.saturating_sub(since))
    }
}

impl Machine {
    /// A node is connected; it is watched from here on if it is ready.
    pub(super) fn watch_if_ready(&mut self, node: usize, now: Duration) {
        let state = &mut self.nodes[node];
        if state.ready && state.is_connected() && !state.joined {
            state
                .health
                .ready(self.plan.nodes[node].health_check_timeout, now);
            self.replacement_is_ready(node);
        }
    }

    pub(super) fn meet_health_deadline(&mut self, node: usize, now: Duration) {
        let due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
        let (plan, state) = (&self.plan.nodes[node], &mut self.nodes[node]);
        let shall_end =
            self.phase.is_stopping() || state.ordered.is_some() || state.condemned.is_some();
        if shall_end || !state.is_present() {
            // Its end is near, or it has left: whatever it does now is its own affair.
            state.health = Health::default();
            return;
        }
        if due(state.health.start_by) {
            let what = match state.state {
                State::Spawned => "has not connected",
                _ => "has not called `ready()`",
            };
            let timeout = self.startup_timeout(node).unwrap_or_default();
            return self.hangs(
                node,
                format!("it {what} within {timeout:?} (`startup_timeout`)"),
                now,
            );
        }
        if due(state.health.look_at) {
            state.health.look_at = plan
                .health_check_timeout
                .map(|timeout| now + timeout / LOOKS);
            self.actions.push(Action::Look { node });
        }
    }

    /// What [`Action::Look`] has seen.
    pub(super) fn pulse(&mut self, node: usize, pulse: Pulse, now: Duration) {
        let state = &mut self.nodes[node];
        let Some(timeout) = self.plan.nodes[node].health_check_timeout else {
            return;
        };
        if state.health.look_at.is_none() || !state.is_connected() || state.condemned.is_some() {
            return;
        }
        let still = state.health.see(pulse, now);
        if still >= timeout {
            let text = format!(
                "it hangs: no sign of life for {still:.1?} (`health_check_timeout` is {timeout:?})"
            );
            self.hangs(node, text, now);
        }
    }

    /// Lets the log say what the node does, and then kills it.
    fn hangs(&mut self, node: usize, why: String, now: Duration) {
        let state = &mut self.nodes[node];
        state.health = Health::default();
        state.condemned = Some(format!("killed by the keeper, because {why}"));
        state.kill_at = Some(now + STACKS_GRACE);
        self.actions.push(Action::Examine { node, why });
        self.actions.push(Action::Signal {
            node,
            signal: Signal::Stacks,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn only_stillness_counts_and_from_when_it_was_first_seen() {
        let mut health = Health::default();
        let works = |beats| Pulse {
            beats,
            is_waiting: false,
        };
        let waits = |beats| Pulse {
            beats,
            is_waiting: true,
        };
        assert_eq!(health.see(works(1), at(0)), at(0));
        assert_eq!(health.see(works(1), at(100)), at(100));
        assert_eq!(health.see(works(2), at(200)), at(0), "a sign of life");
        assert_eq!(health.see(works(2), at(300)), at(100));
        assert_eq!(
            health.see(waits(2), at(400)),
            at(0),
            "whoever waits is well"
        );
        assert_eq!(health.see(waits(2), at(9000)), at(0));
        assert_eq!(
            health.see(works(2), at(9100)),
            at(0),
            "it may have woken just now"
        );
        assert_eq!(health.see(works(2), at(9200)), at(100));
    }
}
