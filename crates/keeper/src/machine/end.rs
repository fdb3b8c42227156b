//! What follows from the end of a process.

use std::{fmt, time::Duration};

use nervure_protocol::{keeper_to_node, keeper_to_run, keeper_to_run::Level};

use super::{
    Machine, State,
    health::Health,
    index,
    orders::{HELD, Then},
    restart::Verdict,
};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Code(i32),
    /// A signal killed it.
    Signal(i32),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signal = match *self {
            Self::Code(code) => return write!(f, "exited with code {code}"),
            Self::Signal(signal) => signal,
        };
        write!(f, "killed by ")?;
        match signal {
            libc::SIGABRT => {
                write!(
                    f,
                    "SIGABRT (it aborted itself: a failed assertion, or memory corruption found)"
                )
            }
            libc::SIGBUS => write!(f, "SIGBUS (access to memory that is not backed)"),
            libc::SIGFPE => write!(f, "SIGFPE (arithmetic error)"),
            libc::SIGHUP => write!(f, "SIGHUP"),
            libc::SIGILL => write!(f, "SIGILL (illegal instruction: built for another CPU?)"),
            libc::SIGINT => write!(f, "SIGINT"),
            libc::SIGKILL => {
                write!(
                    f,
                    "SIGKILL (by hand, or by the kernel because memory ran out: see `dmesg`)"
                )
            }
            libc::SIGPIPE => write!(f, "SIGPIPE"),
            libc::SIGSEGV => write!(f, "SIGSEGV (invalid memory access)"),
            libc::SIGTERM => write!(f, "SIGTERM"),
            other => write!(f, "signal {other}"),
        }
    }
}

impl Machine {
    pub(super) fn ended(&mut self, node: usize, end: End, stderr_tail: Vec<String>, now: Duration) {
        let state = &mut self.nodes[node];
        let state_was = state.state;
        let ordered = state.ordered.take().filter(|_| !self.phase.is_stopping());
        let asked = self.phase.is_stopping() || ordered.is_some();
        let success = end == End::Code(0);
        let condemned = state.condemned.take();
        let was_condemned = condemned.is_some();
        let overdue = state.overdue;
        let mut reason = match condemned {
            Some(why) => why,
            None if overdue => self.overdue_reason(end),
            None => end.to_string(),
        };
        let back = self.replacement_has_failed(node, &reason);
        // SIGTERM is the ordinary end of a program that does not listen to Stop.
        let was_killed = overdue && end == End::Signal(libc::SIGKILL);
        let failed = was_condemned || was_killed || back.is_some() || (!success && !asked);
        let verdict = if asked || back.is_some() || (success && self.inputs_are_over(node)) {
            Verdict::NotWanted
        } else {
            self.nodes[node]
                .restarts
                .ended(&self.plan.nodes[node].restart, success, now)
        };
        if success && !asked && state_was == State::Spawned && self.plan.nodes[node].connects() {
            let text =
                "it ended without having connected: its program has made no `Node`".to_owned();
            self.log(Some(node), Level::Warn, text);
        }
        reason.push_str(&self.consequence(node, verdict));
        reason.push_str(back.as_deref().unwrap_or_default());
        match (ordered, &self.nodes[node].claim) {
            (Some(Then::Hold), Some(claim)) => {
                reason.push_str(&format!(
                    "; stopped by hand, its place is kept for `{}`",
                    claim.name
                ));
            }
            (Some(Then::Hold), None) => {
                reason.push_str("; stopped by hand, `nervure node start` starts it again");
            }
            _ => {}
        }
        let restart_at = match (verdict, ordered) {
            (Verdict::Restart { after, .. }, _) => Some(now + after),
            _ if back.is_some() => Some(now),
            (_, Some(Then::Start)) => Some(now),
            (_, Some(Then::Hold)) => Some(HELD),
            _ => None,
        };
        let (code, signal) = match end {
            End::Code(code) => (Some(code), None),
            End::Signal(signal) => (None, Some(signal)),
        };
        let ended = keeper_to_run::NodeEnded {
            node: index(node),
            id: self.plan.nodes[node].id.clone(),
            incarnation: self.nodes[node].incarnation,
            code,
            signal,
            failed,
            restarts: restart_at.is_some_and(|at| at != HELD),
            reason,
            overdue,
            stderr_tail,
        };
        self.nodes[node].restart_count += u32::from(ended.restarts);
        self.gone(node, ended, restart_at);
    }

    pub(super) fn not_started(&mut self, node: usize, reason: String, now: Duration) {
        let back = self.replacement_has_failed(node, &format!("it could not be started: {reason}"));
        let restart_at = back.is_some().then_some(now);
        let ended = keeper_to_run::NodeEnded {
            node: index(node),
            id: self.plan.nodes[node].id.clone(),
            incarnation: self.nodes[node].incarnation,
            code: None,
            signal: None,
            failed: true,
            restarts: restart_at.is_some(),
            reason: format!("could not be started: {reason}{}", back.unwrap_or_default()),
            overdue: false,
            stderr_tail: Vec::new(),
        };
        self.gone(node, ended, restart_at);
    }

    /// The end of a dataflow overtakes the pause before a restart.
    pub(super) fn give_up_restart(&mut self, node: usize) {
        self.nodes[node].state = State::Ended;
        let Some(mut ended) = self.nodes[node].last_end.take() else {
            // Nobody has joined as it.
            return self.unwire(node, false);
        };
        ended.restarts = false;
        ended.reason = match ended.reason.split_once("; starts again") {
            Some((reason, _)) => format!("{reason}; not started again, because the dataflow stops"),
            None => ended.reason,
        };
        self.unwire(node, false);
        self.report(keeper_to_run::Message::NodeEnded(ended), None);
    }

    pub(super) fn gone(
        &mut self,
        node: usize,
        ended: keeper_to_run::NodeEnded,
        restart_at: Option<Duration>,
    ) {
        self.nodes[node].kill_at = None;
        self.nodes[node].health = Health::default();
        self.nodes[node].terminate_at = None;
        self.nodes[node].state = match restart_at {
            Some(until) => State::Waiting { until },
            None => State::Ended,
        };
        let level = match (ended.failed, ended.code) {
            (true, _) => Level::Error,
            (false, None) if ended.signal.is_none() => Level::Info,
            (false, Some(0)) if !ended.restarts && restart_at.is_none() => Level::Debug,
            (false, Some(0)) => Level::Info,
            (false, _) => Level::Warn,
        };
        self.log(Some(node), level, ended.reason.clone());
        // First the event: a node whose last input closes ends, and hears nothing any more.
        if ended.failed && !self.nodes[node].overdue {
            self.tell_neighbours(node, "NODE_FAILED", &ended.reason);
            self.send_last_values(node, &ended.reason);
        }
        self.unwire(node, restart_at.is_some());
        self.nodes[node].last_end = Some(ended.clone());
        self.report(keeper_to_run::Message::NodeEnded(ended), None);
        if restart_at.is_some() {
            self.nodes[node].incarnation += 1;
        }
    }

    fn consequence(&self, node: usize, verdict: Verdict) -> String {
        let plan = &self.plan.nodes[node].restart;
        let window = plan
            .window
            .map(|window| format!(" within {window:?}"))
            .unwrap_or_default();
        match verdict {
            Verdict::Restart { after, number } => {
                let count = plan
                    .max_restarts
                    .map(|max| format!(" (restart {number} of {max}{window})"));
                format!("; starts again in {after:?}{}", count.unwrap_or_default())
            }
            Verdict::Exhausted { number } => {
                format!("; not started again: {number} restarts{window} are spent (`max_restarts`)")
            }
            Verdict::NotWanted => String::new(),
        }
    }

    /// True when the node has inputs from other nodes, and none of them will ever write again.
    pub(super) fn inputs_are_over(&self, node: usize) -> bool {
        let mut producers = self
            .plan
            .edges
            .iter()
            .filter(|edge| edge.consumer == node && edge.producer != node)
            .peekable();
        producers.peek().is_some() && producers.all(|edge| self.nodes[edge.producer].has_ended())
    }

    /// Tells an event about `node` to every connected neighbour, with the inputs that it feeds there.
    pub(super) fn tell_neighbours(&mut self, node: usize, kind: &str, reason: &str) {
        for neighbour in self.connected_neighbours(node) {
            let fed = self
                .plan
                .edges
                .iter()
                .filter(|edge| edge.producer == node && edge.consumer == neighbour);
            let inputs = fed
                .map(|edge| self.plan.nodes[neighbour].inputs[edge.input].name.clone())
                .collect();
            let event = keeper_to_node::Event {
                kind: kind.to_owned(),
                node: self.plan.nodes[node].id.clone(),
                inputs,
                reason: reason.to_owned(),
            };
            self.send(neighbour, keeper_to_node::Message::Event(event), Vec::new());
        }
    }
}
