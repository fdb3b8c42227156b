//! Consequences of the end of a process.

use std::time::Duration;

use nervure_protocol::report::{EndCause, Level, NodeEnded};

use super::Supervisor;
use crate::machine::{
    exit::{End, Exit, ExitContext},
    graph::index,
    node::{AfterStop, EndOrder, State},
    restart::Verdict,
    turn::Turn,
};

impl Supervisor {
    /// A process that the keeper started has ended.
    pub fn take_exit(&mut self, node: usize, end: End, reason: Option<String>) -> Exit {
        let is_stopping = self.phase.is_stopping();
        let grace = self.grace();
        let state = self.network.node_mut(node);
        let after_stop = state.take_after_stop().filter(|_| !is_stopping);
        let kill_reason = state.take_kill_reason();
        let is_overdue = state.is_overdue();
        let is_drained = match state.end_order {
            None => false,
            Some(EndOrder::Stop) => true,
            Some(EndOrder::WhenDrained) => end == End::Code(0),
        };
        let was_asked = is_stopping || after_stop.is_some() || is_drained;
        // A program that handles SIGTERM may exit with any code.
        let exited_with_error = matches!(end, End::Code(code) if code != 0);
        let stopped_with_error = was_asked
            && exited_with_error
            && !state.signals.was_sent()
            && !state.was_cut_short()
            && after_stop != Some(AfterStop::Start);
        // SIGTERM is the ordinary end of a program that does not handle Stop.
        let needed_kill = is_overdue && end == End::Signal(libc::SIGKILL);
        Exit {
            end,
            was_asked,
            after_stop,
            stopped_with_error,
            was_killed: kill_reason.is_some() || needed_kill,
            never_connected: state.state() == State::Spawned,
            reason: match kill_reason {
                Some(why) => why,
                None if is_overdue => overdue_reason(end, grace),
                None => {
                    let reason = reason.unwrap_or_else(|| end.to_string());
                    match stopped_with_error {
                        true => format!("{reason} after Stop"),
                        false => reason,
                    }
                }
            },
        }
    }

    /// Decides whether a node whose process has ended is started again.
    pub fn ended(
        &mut self,
        node: usize,
        exit: Exit,
        context: ExitContext,
        stderr_tail: Vec<String>,
        turn: &mut Turn,
    ) {
        let ExitContext {
            rolled_back,
            kept_for,
        } = context;
        let restart_plan = self.network.graph().node(node).settings.restart;
        let success = exit.end == End::Code(0);
        let is_failure = exit.was_killed || rolled_back.is_some() || (!success && !exit.was_asked);
        let failed = is_failure || exit.stopped_with_error;
        let verdict = match exit.was_asked || rolled_back.is_some() {
            true => Verdict::NotWanted,
            false => self.restart_verdict(node, exit.end, turn.now),
        };
        let plan = self.network.graph().node(node);
        if success && !exit.was_asked && exit.never_connected && plan.connects() {
            let text = "it ended without having connected: its program has made no `Node`";
            turn.log_node(self.network.graph(), node, Level::Warn, text.to_owned());
        }
        let mut reason = exit.reason + &verdict.text(&restart_plan);
        reason.push_str(rolled_back.as_deref().unwrap_or_default());
        if exit.after_stop == Some(AfterStop::Hold) {
            reason.push_str(&match kept_for {
                Some(client) => format!("; stopped by hand, its place is kept for `{client}`"),
                None => "; stopped by hand, `nervure node start` starts it again".to_owned(),
            });
        }
        if exit.after_stop == Some(AfterStop::End) {
            reason.push_str("; unloaded by hand, `nervure node load` loads it again");
        }
        let next = match (verdict, exit.after_stop) {
            (Verdict::Restart { after, .. }, _) => State::Waiting {
                until: turn.now + after,
            },
            _ if rolled_back.is_some() => State::Waiting { until: turn.now },
            (_, Some(AfterStop::Start)) => State::Waiting { until: turn.now },
            (_, Some(AfterStop::Hold)) => State::Held,
            _ => State::Ended,
        };
        let (code, signal) = match exit.end {
            End::Code(code) => (Some(code), None),
            End::Signal(signal) => (None, Some(signal)),
        };
        let restarts = matches!(next, State::Waiting { .. });
        let ended = NodeEnded {
            node: index(node),
            id: plan.id.clone(),
            incarnation: self.network.node(node).incarnation(),
            code,
            signal,
            failed,
            restarts,
            cause: match exit.after_stop {
                Some(AfterStop::Hold) => EndCause::Stopped,
                Some(AfterStop::End) => EndCause::Unloaded,
                Some(AfterStop::Start) | None => EndCause::Ended,
            },
            reason,
            overdue: self.network.node(node).is_overdue(),
            stderr_tail,
        };
        if restarts {
            self.network.node_mut(node).count_restart();
        }
        // The end of the dataflow, and a stop by hand, are no surprise to the neighbours.
        let notify = is_failure && !ended.overdue;
        self.network.process_gone(node, ended, next, notify, turn);
    }

    fn restart_verdict(&mut self, node: usize, end: End, now: Duration) -> Verdict {
        let success = end == End::Code(0);
        let inputs_are_over = self.network.inputs_are_over(node);
        if success && inputs_are_over {
            return Verdict::NotWanted;
        }
        let plan = self.network.graph().node(node).settings.restart;
        let verdict = self
            .network
            .node_mut(node)
            .restarts
            .ended(&plan, success, now);
        let is_done = matches!(end, End::Code(_))
            && inputs_are_over
            && !self.network.graph().has_timer(node)
            && !self.network.may_have_backlog(node);
        match verdict {
            Verdict::Restart { .. } if is_done => Verdict::NothingLeft,
            verdict => verdict,
        }
    }

    /// A process could not be started. `rolled_back`: as in [`ExitContext`].
    pub fn not_started(
        &mut self,
        node: usize,
        reason: &str,
        rolled_back: Option<String>,
        turn: &mut Turn,
    ) {
        let next = match rolled_back.is_some() {
            true => State::Waiting { until: turn.now },
            false => State::Ended,
        };
        let ended = NodeEnded {
            node: index(node),
            id: self.network.graph().node(node).id.clone(),
            incarnation: self.network.node(node).incarnation(),
            code: None,
            signal: None,
            failed: true,
            restarts: rolled_back.is_some(),
            cause: EndCause::NotStarted,
            reason: format!(
                "could not be started: {reason}{}",
                rolled_back.unwrap_or_default()
            ),
            overdue: false,
            stderr_tail: Vec::new(),
        };
        let notify = !self.network.node(node).is_overdue();
        self.network.process_gone(node, ended, next, notify, turn);
    }
}

/// Describes the end of a process that had overrun the grace period of the dataflow's stop.
fn overdue_reason(end: End, grace: Duration) -> String {
    match end {
        End::Signal(libc::SIGTERM) => {
            format!("it did not end within {grace:?} of Stop, and was ended by SIGTERM")
        }
        End::Signal(libc::SIGKILL) => {
            format!("it did not end within {grace:?} of Stop, and was killed")
        }
        end => format!("it did not end within {grace:?} of Stop, and {end} after SIGTERM"),
    }
}
