//! The life of one node's processes: started, connected, stopped, waiting for the next start.

use std::time::Duration;

use nervure_protocol::report::{NodeEnded, NodeStarted};

use super::{health::Health, restart::Restarts};
use crate::plan::NodePlan;

/// A node of the file, or a guest.
#[derive(Debug)]
pub(super) struct Node {
    state: State,
    /// Of the process that runs, or ran last, or will run next.
    incarnation: u32,
    /// How often its own program was started again, or is about to be.
    restart_count: u32,
    ready: bool,
    /// It sent Goodbye.
    left: bool,
    /// A call of its program failed because the dataflow stops.
    cut_short: bool,
    /// The client whose connection is its control socket, while its process is not one that the
    /// keeper started.
    client: Option<usize>,
    /// Why the keeper kills its process.
    kill_reason: Option<String>,
    /// The dataflow stops, and it has not ended within the grace period.
    overdue: bool,
    /// The next step after the end of its process, once a client has stopped it.
    after_stop: Option<AfterStop>,
    /// The order to end that its process got when the dataflow began to drain.
    pub end_order: Option<EndOrder>,
    last_start: Option<NodeStarted>,
    last_end: Option<NodeEnded>,
    pub restarts: Restarts,
    pub health: Health,
    pub signals: Signals,
}

/// The state of a node's process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    /// It runs, and has not sent Hello.
    Spawned,
    /// It is wired.
    Connected,
    /// The next one is started at that time.
    Waiting { until: Duration },
    /// The next one is started by hand, or joins: neighbours keep their inputs open, and the
    /// dataflow goes on.
    Held,
    /// There will be no other.
    Ended,
}

/// How the process is to end in a dataflow that drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndOrder {
    /// At once.
    Stop,
    /// When it has received all queued samples.
    WhenDrained,
}

/// The step after the end of a process that a client has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterStop {
    Hold,
    Start,
    End,
}

impl Node {
    /// A node that has not been started.
    pub fn new(plan: &NodePlan) -> Self {
        match plan.begins_held() {
            true => Self::in_state(State::Held, 0),
            false => Self::in_state(
                State::Waiting {
                    until: Duration::ZERO,
                },
                0,
            ),
        }
    }

    /// A guest, which has connected as that client.
    pub fn guest(client: usize, incarnation: u32) -> Self {
        Self {
            client: Some(client),
            ..Self::in_state(State::Spawned, incarnation)
        }
    }

    fn in_state(state: State, incarnation: u32) -> Self {
        Self {
            state,
            incarnation,
            restart_count: 0,
            ready: false,
            left: false,
            cut_short: false,
            client: None,
            kill_reason: None,
            overdue: false,
            after_stop: None,
            end_order: None,
            last_start: None,
            last_end: None,
            restarts: Restarts::default(),
            health: Health::default(),
            signals: Signals::default(),
        }
    }

    pub fn state(&self) -> State {
        self.state
    }

    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    pub fn restart_count(&self) -> u32 {
        self.restart_count
    }

    /// The client whose connection is its control socket.
    pub fn client(&self) -> Option<usize> {
        self.client
    }

    pub fn has_left(&self) -> bool {
        self.left
    }

    /// True when a call of its program failed because the dataflow stops.
    pub fn was_cut_short(&self) -> bool {
        self.cut_short
    }

    pub fn is_overdue(&self) -> bool {
        self.overdue
    }

    pub fn is_being_killed(&self) -> bool {
        self.kill_reason.is_some()
    }

    pub fn after_stop(&self) -> Option<AfterStop> {
        self.after_stop
    }

    /// How its last process was started.
    pub fn last_start(&self) -> Option<&NodeStarted> {
        self.last_start.as_ref()
    }

    /// How its last process ended.
    pub fn last_end(&self) -> Option<&NodeEnded> {
        self.last_end.as_ref()
    }

    pub fn is_alive(&self) -> bool {
        matches!(self.state, State::Spawned | State::Connected)
    }

    /// True while its process may have edges.
    pub fn is_present(&self) -> bool {
        self.is_alive() && !self.left
    }

    /// True while it can be sent messages.
    pub fn is_connected(&self) -> bool {
        self.state == State::Connected && !self.left
    }

    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    pub fn is_held(&self) -> bool {
        self.state == State::Held
    }

    /// True when it may have another process, by itself or by hand.
    pub fn will_return(&self) -> bool {
        matches!(self.state, State::Waiting { .. } | State::Held)
    }

    /// True when the keeper has started its process, and that is connected and ready.
    pub fn is_up(&self) -> bool {
        self.ready && self.is_connected() && self.client.is_none()
    }

    /// The step of the node that the start of the dataflow waits for.
    pub fn missing_step(&self, plan: &NodePlan) -> Option<&'static str> {
        match self.state {
            // No sample is lost for a consumer on another machine.
            State::Held | State::Spawned if self.incarnation == 0 && plan.is_remote() => {
                Some("is on another machine, and the daemon has not joined for it")
            }
            _ if self.client.is_some() => None,
            State::Spawned if self.incarnation == 0 && plan.connects() => Some("has not connected"),
            State::Connected if !self.ready && !self.left => Some("has not called `ready()`"),
            _ => None,
        }
    }

    /// When something is due. Health is not checked while the dataflow is paused.
    pub fn deadline(&self, is_paused: bool) -> Option<Duration> {
        let restart = match self.state {
            State::Waiting { until } => Some(until),
            _ => None,
        };
        let others = self.signals.deadline().into_iter();
        let health = self.health.deadline().filter(|_| !is_paused);
        others.chain(health).chain(restart).min()
    }

    /// A process of the keeper's is being started, or one of a client's joins.
    pub fn begin(&mut self, client: Option<usize>) {
        self.state = State::Spawned;
        self.ready = false;
        self.left = false;
        self.cut_short = false;
        self.client = client;
        self.kill_reason = None;
        self.after_stop = None;
        self.end_order = None;
    }

    /// Its process was started.
    pub fn set_started(&mut self, started: NodeStarted) {
        self.last_start = Some(started);
    }

    /// Its process has sent a valid Hello.
    pub fn connect(&mut self, is_ready: bool) {
        self.state = State::Connected;
        self.ready = is_ready;
    }

    pub fn set_ready(&mut self) {
        self.ready = true;
    }

    pub fn set_left(&mut self, cut_short: bool) {
        self.left = true;
        self.cut_short = cut_short;
    }

    /// Returns its client, whose connection is closed.
    pub fn take_client(&mut self) -> Option<usize> {
        self.client.take()
    }

    pub fn set_kill_reason(&mut self, reason: String) {
        self.kill_reason = Some(reason);
    }

    pub fn take_kill_reason(&mut self) -> Option<String> {
        self.kill_reason.take()
    }

    pub fn set_overdue(&mut self) {
        self.overdue = true;
    }

    /// Sets the step after a stop by hand. Returns the earlier one, if the node was being stopped
    /// already.
    pub fn set_after_stop(&mut self, after: AfterStop) -> Option<AfterStop> {
        self.after_stop.replace(after)
    }

    pub fn take_after_stop(&mut self) -> Option<AfterStop> {
        self.after_stop.take()
    }

    /// Its process is gone, and nothing is due for it any more.
    pub fn process_gone(&mut self, next: State) {
        self.state = next;
        self.health = Health::default();
        self.signals = Signals::default();
    }

    pub fn count_restart(&mut self) {
        self.restart_count += 1;
    }

    pub fn next_incarnation(&mut self) {
        self.incarnation += 1;
    }

    /// Notes the end of its last process, and whether it restarts.
    pub fn set_last_end(&mut self, ended: NodeEnded) {
        self.last_end = Some(ended);
    }

    /// Sets the state of a node without a process: it waits for one, or will have none.
    pub fn set_idle(&mut self, state: State) {
        self.state = state;
    }
}

/// SIGTERM and SIGKILL of the keeper to a process: when each is due unless the process has ended
/// before, and whether one was sent.
#[derive(Debug, Default)]
pub(super) struct Signals {
    was_sent: bool,
    terminate_at: Option<Duration>,
    kill_at: Option<Duration>,
}

impl Signals {
    /// True once the process has got a signal.
    pub fn was_sent(&self) -> bool {
        self.was_sent
    }

    pub fn set_sent(&mut self) {
        self.was_sent = true;
    }

    pub fn terminate_at(&mut self, at: Duration) {
        self.terminate_at = Some(at);
    }

    pub fn kill_at(&mut self, at: Duration) {
        self.kill_at = Some(at);
    }

    /// True when SIGTERM is due. It is due once.
    pub fn take_due_terminate(&mut self, now: Duration) -> bool {
        self.terminate_at.take_if(|at| *at <= now).is_some()
    }

    /// True when SIGKILL is due. It is due once.
    pub fn take_due_kill(&mut self, now: Duration) -> bool {
        self.kill_at.take_if(|at| *at <= now).is_some()
    }

    fn deadline(&self) -> Option<Duration> {
        self.terminate_at.into_iter().chain(self.kill_at).min()
    }
}
