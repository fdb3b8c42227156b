//! What a keeper does, as a state machine: [`Machine::handle`] takes an event and the time and says what to do.
//!
//! There is no clock, process or socket in here; `crate::shell` has those. Time is a [`Duration`] since the keeper
//! started. Descriptors are named, not held: see [`Descriptor`].

mod clients;
mod edge_status;
mod end;
mod guests;
mod health;
mod joined;
mod last_value;
mod orders;
mod params;
mod replace;
mod restart;
mod stop;
mod wiring;

#[cfg(test)]
mod tests;

use std::time::Duration;

use nervure_protocol::{
    VERSIONS, cli_to_keeper, keeper_to_cli, keeper_to_node, keeper_to_run, keeper_to_run::Level,
    node_to_keeper, run_to_keeper,
};

use crate::plan::{NodePlan, Plan};
use clients::Clients;
pub use end::End;
#[cfg(test)]
pub use guests::MAX_GUESTS;
use health::Health;
pub use health::Pulse;
use joined::Claim;
use orders::{HELD, Then};
use params::Params;
use replace::{Replacement, Run};
use restart::Restarts;
use stop::Phase;
use wiring::Wiring;

/// How often a dataflow that is not ready says whom it waits for.
const READY_WARNING_PERIOD: Duration = Duration::from_secs(5);

/// How long a node that was refused may take to say so and end.
const REFUSED_GRACE: Duration = Duration::from_secs(2);

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// The keeper is set up.
    Launch,
    /// A process was started, as [`Action::Spawn`] asked.
    Started { node: usize, pid: u32 },
    /// A process could not be started.
    NotStarted { node: usize, reason: String },
    /// A node wrote a message.
    Message {
        node: usize,
        message: node_to_keeper::Message,
    },
    /// A node wrote something that is no message.
    Misbehaved { node: usize, what: String },
    /// A message for a node cannot be sent, whatever the node does.
    Undeliverable { node: usize, why: String },
    /// A process ended.
    Ended {
        node: usize,
        end: End,
        stderr_tail: Vec<String>,
    },
    /// What [`Action::Look`] saw.
    Pulse { node: usize, pulse: Pulse },
    /// `run` wrote a message.
    Run(run_to_keeper::Message),
    /// `run` is gone.
    RunGone,
    /// A client of the public socket, which is that process, wrote a message.
    ClientMessage {
        client: usize,
        pid: u32,
        message: cli_to_keeper::Message,
    },
    /// A client closed its connection, or died.
    ClientGone { client: usize },
    /// [`Machine::deadline`] has come.
    Deadline,
}

/// Something to do, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make the node's pages anew and start its process.
    Spawn { node: usize },
    /// Send a message to a node.
    Send {
        node: usize,
        message: keeper_to_node::Message,
        descriptors: Vec<Descriptor>,
    },
    /// Send a message to `run` and to those who watch.
    Report {
        message: keeper_to_run::Message,
        descriptor: Option<Descriptor>,
        audience: Audience,
    },
    /// Send a message to a client.
    Reply {
        client: usize,
        message: keeper_to_cli::Message,
        descriptor: Option<Descriptor>,
    },
    /// Send every further report to a client, with log records or without.
    Follow { client: usize, logs: bool },
    /// Make the pages of a guest, or of a node that joins, whose control socket is the connection of that client.
    Admit { client: usize, node: usize },
    /// Close the connection of a client.
    Dismiss { client: usize },
    /// Forget the pages and the connection of a guest.
    Forget { node: usize },
    /// Forget the connection of a node that had joined.
    Part { node: usize },
    /// Write a line to the log of a node, or of the keeper itself.
    Log {
        node: Option<usize>,
        level: Level,
        text: String,
    },
    /// Wake everything that sleeps on the node's doorbell and space futex.
    Ring { node: usize },
    /// Set the clock that the control page shows.
    SetClock { clock: node_to_keeper::Clock },
    /// See how a node does, and tell: [`Event::Pulse`].
    Look { node: usize },
    /// Log what a node does that hangs.
    Examine { node: usize, why: String },
    /// Send a signal to the process group of a node.
    Signal { node: usize, signal: Signal },
    /// Make the region of an edge.
    CreateRegion { edge: u32, depth: u32, blocks: u32 },
    /// Forget the region of an edge.
    ReleaseRegion { edge: u32 },
    /// Forget both ends of a pair's socket that were not sent.
    ReleasePair { pair: u32 },
    /// Every node has ended.
    Finish,
}

/// Who is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// `run` and those who watch.
    Everyone,
    /// Those who watch: `run` sums up the dataflow, and guests are no part of it.
    Watchers,
}

/// A descriptor by what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// The dataflow's control page.
    ControlPage,
    /// A node's wake page.
    WakePage(usize),
    /// A node's eventfd.
    Eventfd(usize),
    /// A node's counters page.
    Counters(usize),
    /// A node's counters page, for reading.
    CountersReadOnly(usize),
    /// An edge's region.
    Region(u32),
    /// One end, 0 or 1, of a pair's socket; it is made when first named, and given away.
    PairEnd { pair: u32, end: u32 },
}

/// A signal that the keeper sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM
    Terminate,
    /// SIGKILL
    Kill,
    /// The process, and not its group, writes its stacks to its stderr, if it can.
    Stacks,
}

/// The state of a dataflow.
#[derive(Debug)]
pub struct Machine {
    /// The plan of the file, and guests with their edges behind what is in it.
    plan: Plan,
    nodes: Vec<Node>,
    /// How many of them are the plan's.
    own_nodes: usize,
    max_guest_edges: usize,
    clients: Clients,
    params: Params,
    wiring: Wiring,
    phase: Phase,
    ready_warning_at: Option<Duration>,
    actions: Vec<Action>,
}

#[derive(Debug)]
struct Node {
    state: State,
    /// Of the process that runs, or ran last, or will run next.
    incarnation: u32,
    /// How often its own program was started again, or is about to be.
    restart_count: u32,
    ready: bool,
    /// Said Goodbye.
    left: bool,
    /// Its process joined by itself.
    joined: bool,
    /// Who is attached to it.
    claim: Option<Claim>,
    /// It gets another program.
    replacement: Option<Replacement>,
    /// What the file says that it runs, where it runs something else.
    file_says: Option<Run>,
    /// Why the keeper killed it, when it did.
    condemned: Option<String>,
    /// The dataflow stops, and it has not ended within the grace.
    overdue: bool,
    /// When it gets SIGTERM, after it was stopped by hand.
    terminate_at: Option<Duration>,
    kill_at: Option<Duration>,
    /// What was ordered by hand, until its process has ended.
    ordered: Option<Then>,
    restarts: Restarts,
    health: Health,
    /// How its last process was started, when it was.
    started: Option<keeper_to_run::NodeStarted>,
    /// How its last process ended, when it did.
    last_end: Option<keeper_to_run::NodeEnded>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Its process runs, and has not said Hello.
    Spawned,
    /// Its process is wired.
    Connected,
    /// It will be started again.
    Waiting { until: Duration },
    /// It will not be started again.
    Ended,
}

impl Node {
    fn new() -> Self {
        Self {
            state: State::Waiting {
                until: Duration::ZERO,
            },
            incarnation: 0,
            restart_count: 0,
            ready: false,
            left: false,
            joined: false,
            claim: None,
            replacement: None,
            file_says: None,
            condemned: None,
            overdue: false,
            terminate_at: None,
            kill_at: None,
            ordered: None,
            restarts: Restarts::default(),
            health: Health::default(),
            started: None,
            last_end: None,
        }
    }

    fn is_alive(&self) -> bool {
        matches!(self.state, State::Spawned | State::Connected)
    }

    /// True while its process may have edges.
    fn is_present(&self) -> bool {
        self.is_alive() && !self.left
    }

    /// True while it can be sent messages.
    fn is_connected(&self) -> bool {
        self.state == State::Connected && !self.left
    }

    fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Stopped by hand, or not joined.
    fn is_held(&self) -> bool {
        self.state == State::Waiting { until: HELD }
    }
}

impl Machine {
    /// A dataflow that has not been launched.
    pub fn new(plan: Plan) -> Self {
        let node = |plan: &NodePlan| match plan.is_dynamic() {
            true => Node {
                state: State::Waiting { until: HELD },
                ..Node::new()
            },
            false => Node::new(),
        };
        let nodes = plan.nodes.iter().map(node).collect();
        let wiring = Wiring::new(&plan);
        Self {
            own_nodes: plan.nodes.len(),
            max_guest_edges: usize::MAX,
            clients: Clients::default(),
            params: Params::new(&plan),
            plan,
            nodes,
            wiring,
            phase: Phase::Starting,
            ready_warning_at: None,
            actions: Vec::new(),
        }
    }

    /// Sets how many edges of observers there may be at a time; else any number.
    pub fn limit_guest_edges(&mut self, max: usize) {
        self.max_guest_edges = max;
    }

    /// Rows for edges of outputs in a node's counters page: those of the plan, and of observers.
    pub fn counters_rows(&self, node: usize) -> u32 {
        self.wiring.counters_rows(&self.plan, node)
    }

    /// The plan that it follows.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Takes an event and says what to do.
    pub fn handle(&mut self, event: Event, now: Duration) -> Vec<Action> {
        match event {
            Event::Launch => self.launch(now),
            Event::Started { node, pid } => self.started(node, pid, now),
            Event::NotStarted { node, reason } => self.not_started(node, reason, now),
            Event::Message { node, message } => self.message(node, message, now),
            Event::Misbehaved { node, what } => self.convict(node, &what),
            Event::Undeliverable { node, why } => {
                self.condemn(node, format!("it cannot be told its edges: {why}"))
            }
            Event::Pulse { node, pulse } => self.pulse(node, pulse, now),
            Event::Ended {
                node,
                end,
                stderr_tail,
            } => self.ended(node, end, stderr_tail, now),
            Event::Run(run_to_keeper::Message::Stop { reason }) => self.stop(reason, now),
            Event::Run(run_to_keeper::Message::Kill) => self.kill(now),
            Event::Run(run_to_keeper::Message::Launch | run_to_keeper::Message::Unknown) => {}
            Event::RunGone if self.plan.detached => {}
            Event::RunGone => self.stop("`nervure run` is gone".to_owned(), now),
            Event::ClientMessage {
                client,
                pid,
                message,
            } => self.client_message(client, pid, message, now),
            Event::ClientGone { client } => {
                self.client_gone(client);
                self.give_back(client, now);
            }
            Event::Deadline => {}
        }
        self.meet_deadlines(now);
        self.check_ready();
        self.check_only_dynamic_left(now);
        self.check_finished();
        std::mem::take(&mut self.actions)
    }

    /// When [`Event::Deadline`] is due.
    pub fn deadline(&self) -> Option<Duration> {
        let restarts = self.nodes.iter().filter_map(|node| match node.state {
            State::Waiting { until } if until != HELD => Some(until),
            _ => None,
        });
        let kills = self
            .nodes
            .iter()
            .flat_map(|node| [node.kill_at, node.terminate_at])
            .flatten();
        let health = self.nodes.iter().filter_map(|node| node.health.deadline());
        restarts
            .chain(kills)
            .chain(health)
            .chain(self.ready_warning_at)
            .chain(self.phase.deadline())
            .min()
    }

    fn launch(&mut self, now: Duration) {
        self.ready_warning_at = Some(now + READY_WARNING_PERIOD);
        for node in 0..self.nodes.len() {
            if !self.is_dynamic(node) {
                self.spawn(node);
            }
        }
    }

    fn spawn(&mut self, node: usize) {
        let state = &mut self.nodes[node];
        state.state = State::Spawned;
        state.ready = false;
        state.left = false;
        state.condemned = None;
        state.ordered = None;
        if let Some(replacement) = &mut state.replacement {
            replacement.is_tried = true;
        }
        self.actions.push(Action::Spawn { node });
    }

    fn started(&mut self, node: usize, pid: u32, now: Duration) {
        let timeout = self.startup_timeout(node);
        let connects = self.plan.nodes[node].connects();
        let state = &mut self.nodes[node];
        state.restarts.started(now);
        // What has nothing to connect for never does; and who joined may stand still in a debugger.
        let timeout = timeout.filter(|_| connects && !state.joined);
        state.health = Health::started(timeout, now);
        let started = keeper_to_run::NodeStarted {
            node: index(node),
            id: self.plan.nodes[node].id.clone(),
            pid,
            incarnation: state.incarnation,
            restarts: state.restart_count,
            observer: false,
        };
        state.started = Some(started.clone());
        let message = keeper_to_run::Message::NodeStarted(started);
        self.report(message, Some(Descriptor::CountersReadOnly(node)));
        if !connects {
            self.replacement_is_ready(node);
        }
    }

    fn message(&mut self, node: usize, message: node_to_keeper::Message, now: Duration) {
        use node_to_keeper::Message;
        if self.nodes[node].condemned.is_some() {
            return;
        }
        match (message, self.nodes[node].state) {
            (Message::Hello(hello), State::Spawned) => self.hello(node, &hello, now),
            (Message::Hello(_), _) => self.convict(node, "it said Hello twice"),
            (Message::Unknown, _) => {}
            (_, State::Spawned) => self.convict(node, "its first message was not Hello"),
            (Message::Ready, _) => {
                self.nodes[node].ready = true;
                self.watch_if_ready(node, now);
            }
            (Message::Goodbye, _) if self.is_foreign(node) => {
                self.nodes[node].left = true;
                self.dismiss(node);
            }
            (Message::Goodbye, _) => self.goodbye(node),
            (Message::Misbehaviour { edge, what }, _) => self.misbehaviour(node, edge, &what),
            (Message::EdgeStatus(status), _) => self.edge_status(node, status),
            (Message::WakePageOverwritten { what }, _) => self.wake_page_overwritten(node, &what),
            (Message::Clock(clock), _) => self.set_clock(node, clock),
        }
    }

    fn set_clock(&mut self, node: usize, clock: node_to_keeper::Clock) {
        if self.plan.clock.is_none_or(|plan| plan.node != node) {
            return self.convict(node, "it set the clock, and does not drive it");
        }
        self.actions.push(Action::SetClock { clock });
        // Whoever sleeps until a timer is due has to look again when that is.
        for node in 0..self.nodes.len() {
            if self.nodes[node].is_connected() {
                self.actions.push(Action::Ring { node });
            }
        }
    }

    fn hello(&mut self, node: usize, hello: &node_to_keeper::Hello, now: Duration) {
        let version = match VERSIONS.negotiate(hello.versions) {
            Ok(version) if !self.phase.is_stopping() => version,
            Ok(_) => return self.refuse(node, "the dataflow is stopping".to_owned(), now),
            Err(error) => {
                let reason = format!(
                    "{error} (its library is {} {})",
                    hello.language, hello.library
                );
                return self.refuse(node, reason, now);
            }
        };
        let params = self.params_of(node);
        let plan = &self.plan.nodes[node];
        let state = &mut self.nodes[node];
        state.state = State::Connected;
        state.ready = !plan.manual_ready;
        let welcome = keeper_to_node::Message::Welcome(keeper_to_node::Welcome {
            version,
            dataflow: self.plan.dataflow.clone(),
            node: plan.id.clone(),
            incarnation: state.incarnation,
            manual_ready: plan.manual_ready,
            shared_memory_bytes: plan.shared_memory_bytes,
            outputs: plan.outputs.clone(),
            inputs: plan.inputs.clone(),
            services: plan.services.clone(),
            clients: plan.clients.clone(),
            params,
            loop_deadline: plan.loop_deadline,
        });
        let restarted = state.incarnation > 0 && node < self.own_nodes;
        let descriptors = vec![
            Descriptor::ControlPage,
            Descriptor::WakePage(node),
            Descriptor::Eventfd(node),
            Descriptor::Counters(node),
        ];
        self.send(node, welcome, descriptors);
        if restarted {
            // Before the new edges, so that nobody hears of it after the first sample of the new process.
            self.tell_neighbours(node, "NODE_RESTARTED", "");
        }
        self.wire(node);
        self.send(node, keeper_to_node::Message::Wired, Vec::new());
        if self.phase == Phase::Running {
            self.send(node, keeper_to_node::Message::Start, Vec::new());
        }
        self.watch_if_ready(node, now);
    }

    fn refuse(&mut self, node: usize, reason: String, now: Duration) {
        self.log(Some(node), Level::Error, format!("refused: {reason}"));
        self.nodes[node].kill_at = Some(now + REFUSED_GRACE);
        self.send(
            node,
            keeper_to_node::Message::Refused { reason },
            Vec::new(),
        );
    }

    /// Kills a node that broke the control protocol: nothing that it says can be relied on.
    fn convict(&mut self, node: usize, what: &str) {
        self.condemn(node, format!("it broke the control protocol: {what}"));
    }

    fn condemn(&mut self, node: usize, why: String) {
        if self.is_foreign(node) {
            self.log(Some(node), Level::Warn, format!("cut off, because {why}"));
            self.nodes[node].condemned = Some(format!("cut off by the keeper, because {why}"));
            return self.dismiss(node);
        }
        let state = &mut self.nodes[node];
        if state.is_alive() && state.condemned.is_none() {
            state.condemned = Some(format!("killed by the keeper, because {why}"));
            self.actions.push(Action::Signal {
                node,
                signal: Signal::Kill,
            });
        }
    }

    /// A node's wake page was overwritten: names the processes that can write to it.
    fn wake_page_overwritten(&mut self, node: usize, what: &str) {
        let neighbours = self.connected_neighbours(node).into_iter();
        let peers: Vec<_> = neighbours
            .map(|peer| format!("`{}`", self.plan.nodes[peer].id))
            .collect();
        let by = match peers.as_slice() {
            [] => "no peer of it is connected any more, so one that has ended, or the node itself, did it"
                .to_owned(),
            [peer] => format!("only {peer} and the node itself can write to it"),
            peers => format!("these, and the node itself, can write to it: {}", peers.join(", ")),
        };
        let text = format!(
            "its wake page was overwritten ({what}): {by}; it goes on, but samples may reach it late as long as that lasts"
        );
        self.log(Some(node), Level::Error, text);
    }

    /// The nodes that hold the start up.
    fn awaited(&self) -> impl Iterator<Item = (&NodePlan, &'static str)> {
        (0..self.own_nodes).filter_map(|node| Some((&self.plan.nodes[node], self.not_done(node)?)))
    }

    /// What a node has not done that the start waits for.
    fn not_done(&self, node: usize) -> Option<&'static str> {
        let (plan, node) = (&self.plan.nodes[node], &self.nodes[node]);
        match node.state {
            _ if node.joined => None,
            State::Spawned if node.incarnation == 0 && plan.connects() => Some("has not connected"),
            State::Connected if !node.ready && !node.left => Some("has not called `ready()`"),
            _ => None,
        }
    }

    fn check_ready(&mut self) {
        if self.phase != Phase::Starting
            || self.ready_warning_at.is_none()
            || self.awaited().next().is_some()
        {
            return;
        }
        self.phase = Phase::Running;
        self.ready_warning_at = None;
        for node in 0..self.nodes.len() {
            if self.nodes[node].is_connected() {
                self.send(node, keeper_to_node::Message::Start, Vec::new());
            }
        }
        self.report(keeper_to_run::Message::Ready, None);
    }

    fn meet_deadlines(&mut self, now: Duration) {
        let due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
        for node in 0..self.nodes.len() {
            if due(self.nodes[node].kill_at) {
                self.nodes[node].kill_at = None;
                if self.is_foreign(node) {
                    self.dismiss(node);
                } else {
                    self.actions.push(Action::Signal {
                        node,
                        signal: Signal::Kill,
                    });
                }
            }
            if due(self.nodes[node].health.deadline()) {
                self.meet_health_deadline(node, now);
            }
            self.escalate_by_hand(node, now);
            if matches!(self.nodes[node].state, State::Waiting { until } if until <= now) {
                self.spawn(node);
            }
        }
        if due(self.ready_warning_at) && self.phase == Phase::Starting {
            self.ready_warning_at = Some(now + READY_WARNING_PERIOD);
            self.warn_not_ready();
        }
        self.escalate(now);
    }

    fn warn_not_ready(&mut self) {
        const NAMED: usize = 5;
        let awaited: Vec<_> = self.awaited().collect();
        if awaited.is_empty() {
            return;
        }
        let mut names: Vec<_> = awaited
            .iter()
            .take(NAMED)
            .map(|(plan, why)| format!("`{}` {why}", plan.id))
            .collect();
        if awaited.len() > NAMED {
            names.push(format!("{} more", awaited.len() - NAMED));
        }
        let text = format!("the dataflow has not started: node {}", names.join(", "));
        self.log(None, Level::Warn, text);
    }

    fn check_finished(&mut self) {
        if self.phase != Phase::Finished && self.nodes[..self.own_nodes].iter().all(Node::has_ended)
        {
            self.phase = Phase::Finished;
            self.report(keeper_to_run::Message::Finished, None);
            self.actions.push(Action::Finish);
        }
    }

    fn send(
        &mut self,
        node: usize,
        message: keeper_to_node::Message,
        descriptors: Vec<Descriptor>,
    ) {
        self.actions.push(Action::Send {
            node,
            message,
            descriptors,
        });
    }

    fn report(&mut self, message: keeper_to_run::Message, descriptor: Option<Descriptor>) {
        self.actions.push(Action::Report {
            message,
            descriptor,
            audience: Audience::Everyone,
        });
    }

    fn report_to_watchers(
        &mut self,
        message: keeper_to_run::Message,
        descriptor: Option<Descriptor>,
    ) {
        self.actions.push(Action::Report {
            message,
            descriptor,
            audience: Audience::Watchers,
        });
    }

    fn log(&mut self, node: Option<usize>, level: Level, text: String) {
        // A guest has no log of its own.
        let action = match node.filter(|&node| self.is_guest(node)) {
            Some(guest) => Action::Log {
                node: None,
                level,
                text: format!("`{}`: {text}", self.plan.nodes[guest].id),
            },
            None => Action::Log { node, level, text },
        };
        self.actions.push(action);
    }
}

/// An index on the wire. A plan's indices fit: its JSON would not fit into memory otherwise.
fn index(index: usize) -> u32 {
    u32::try_from(index).expect("a plan has fewer than 2^32 nodes")
}
