//! A simulated shell and simulated nodes, which check every action of the machine.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use nervure_protocol::{
    VERSIONS, cli_to_keeper, keeper_to_cli,
    keeper_to_node::{self, AttachInput, AttachOutput},
    node_to_keeper::{self, Clock},
    params::Param,
    report::{EdgeStatus, NodeEnded, Report},
    wiring::{InputSpec, OutputSpec, Policy, Queue, Return, Source},
};

use crate::{
    machine::{Action, Audience, Descriptor, End, Event, Machine, Pulse, STARTER, Signal},
    plan::{ClockPlan, EdgePlan, NodePlan, NodeSettings, Plan, Program, Restart, RestartPolicy},
};

/// A node of a test: its id, and its restart policy.
pub fn node(id: &str, policy: RestartPolicy) -> NodePlan {
    NodePlan {
        id: id.to_owned(),
        program: Program::Command("true".to_owned()),
        settings: NodeSettings {
            restart: Restart {
                policy,
                delay: Duration::from_millis(100),
                max_delay: Duration::from_secs(1),
                max_restarts: Some(3),
                window: None,
            },
            ..NodeSettings::default()
        },
        outputs: Vec::new(),
        types: Default::default(),
        inputs: Vec::new(),
        shared_memory_bytes: 1 << 20,
        services: Vec::new(),
        clients: Vec::new(),
    }
}

/// The token for nodes with `path: dynamic`.
pub const TOKEN: &str = "open sesame";

/// A node of a test with `path: dynamic`.
pub fn dynamic(id: &str) -> NodePlan {
    NodePlan {
        program: Program::Dynamic,
        ..node(id, RestartPolicy::Never)
    }
}

/// The stand-in of a node, or of consumers, on another machine.
pub fn remote(id: &str) -> NodePlan {
    let machine = "edge".to_owned();
    NodePlan {
        program: Program::Remote { machine },
        ..node(id, RestartPolicy::Never)
    }
}

pub fn block(from: usize, to: usize) -> (usize, usize, Policy) {
    (from, to, Policy::Block)
}

pub fn drop_oldest(from: usize, to: usize) -> (usize, usize, Policy) {
    (from, to, Policy::DropOldest)
}

/// A dataflow, the processes of its nodes, and the messages that they got.
#[derive(Debug)]
pub struct World {
    pub machine: Machine,
    pub now: Duration,
    pub processes: Vec<Process>,
    pub ended: Vec<NodeEnded>,
    /// Reports to `run` about edges.
    pub edge_reports: Vec<EdgeStatus>,
    /// Level, node and text of every log line.
    pub log: Vec<String>,
    pub signals: Vec<(usize, Signal)>,
    pub rung: Vec<usize>,
    pub clocks: Vec<Clock>,
    /// Changes of the clock: whether it was paused.
    pub pauses: Vec<bool>,
    pub is_ready: bool,
    pub is_finished: bool,
    /// The messages to each client.
    pub replies: BTreeMap<usize, Vec<keeper_to_cli::Message>>,
    /// Clients that follow.
    pub followers: BTreeSet<usize>,
    /// Reports about guests.
    pub guest_reports: Vec<Report>,
    own_nodes: usize,
    regions: BTreeSet<u32>,
    pair_ends_given: BTreeSet<(u32, u32)>,
}

/// A process, and the messages that it got.
#[derive(Debug, Default)]
pub struct Process {
    pub runs: bool,
    /// The client whose connection it has.
    pub guest: Option<usize>,
    pub said_hello: bool,
    pub pulse: Pulse,
    pub is_wired: bool,
    pub has_started: bool,
    pub refused: Option<String>,
    pub stop: Option<String>,
    pub stop_when_drained: Option<String>,
    /// Counters row -> whether the consumer that had this edge returns.
    pub awaited: BTreeMap<u32, Return>,
    /// Edge id -> the attachment, and whether it is suspended.
    pub outputs: BTreeMap<u32, (AttachOutput, bool)>,
    pub inputs: BTreeMap<u32, AttachInput>,
    /// A producer that had ended was started again by hand.
    pub may_reopen: bool,
    /// Inputs that no producer will feed again.
    pub over: BTreeSet<u32>,
    /// Kind, node, inputs.
    pub events: Vec<(String, String, Vec<String>)>,
    /// The parameters of its Welcome, followed by each change.
    pub params: Vec<Param>,
    pub calls: Vec<keeper_to_node::Call>,
    pub publications: Vec<keeper_to_node::Publish>,
    /// Input, incarnation of the producer, and value.
    pub last_values: Vec<(u32, u32, serde_json::Value)>,
    peers: BTreeSet<u32>,
    pub edges_seen: BTreeSet<u32>,
}

impl World {
    /// Nodes, and edges between them as (producer, consumer, policy): each is an output and an
    /// input of its own.
    pub fn new(nodes: Vec<NodePlan>, edges: &[(usize, usize, Policy)]) -> Self {
        Self::of(nodes, edges, |_| {})
    }

    /// As [`Self::running`], and it outlives `run`.
    pub fn detached(nodes: Vec<NodePlan>, edges: &[(usize, usize, Policy)]) -> Self {
        Self::of(nodes, edges, |plan| plan.detached = true).launched()
    }

    fn of(
        nodes: Vec<NodePlan>,
        edges: &[(usize, usize, Policy)],
        change: impl FnOnce(&mut Plan),
    ) -> Self {
        let mut plan = Plan {
            dataflow: "test".to_owned(),
            folder: "/".into(),
            file: None,
            log_folder: None,
            log_limit: None,
            started_utc_nanos: 0,
            detached: false,
            end_note: None,
            clock: None,
            grace: Duration::from_secs(5),
            join_token: Some(TOKEN.to_owned()),
            static_transforms: Vec::new(),
            nodes,
            edges: Vec::new(),
        };
        for &(producer, consumer, policy) in edges {
            let queue = Queue {
                policy,
                depth: 4,
                max_held: 12,
            };
            let output = plan.nodes[producer].outputs.len();
            let input = plan.nodes[consumer].inputs.len();
            let topic = format!("{}/out{output}", plan.nodes[producer].id);
            let name = format!("out{output}");
            plan.nodes[producer].outputs.push(OutputSpec {
                name,
                history: 0,
                blocks: 256,
                type_name: None,
            });
            let (name, source) = (format!("in{input}"), Source::Output { topic });
            plan.nodes[consumer].inputs.push(InputSpec {
                name,
                source,
                queue: Some(queue),
                type_name: None,
                expect_every_nanos: None,
                history: 0,
            });
            plan.edges.push(EdgePlan {
                producer,
                output,
                consumer,
                input,
                queue,
            });
        }
        change(&mut plan);
        let processes: Vec<_> = plan.nodes.iter().map(|_| Process::default()).collect();
        Self {
            own_nodes: processes.len(),
            replies: BTreeMap::new(),
            followers: BTreeSet::new(),
            guest_reports: Vec::new(),
            machine: Machine::new(plan),
            now: Duration::ZERO,
            processes,
            ended: Vec::new(),
            edge_reports: Vec::new(),
            log: Vec::new(),
            signals: Vec::new(),
            rung: Vec::new(),
            clocks: Vec::new(),
            pauses: Vec::new(),
            is_ready: false,
            is_finished: false,
            regions: BTreeSet::new(),
            pair_ends_given: BTreeSet::new(),
        }
    }

    /// Launches, and lets every node connect.
    pub fn running(nodes: Vec<NodePlan>, edges: &[(usize, usize, Policy)]) -> Self {
        Self::new(nodes, edges).launched()
    }

    /// As [`Self::running`], and a node drives the clock.
    pub fn with_clock(
        nodes: Vec<NodePlan>,
        edges: &[(usize, usize, Policy)],
        clock: ClockPlan,
    ) -> Self {
        Self::of(nodes, edges, |plan| plan.clock = Some(clock)).launched()
    }

    fn launched(mut self) -> Self {
        self.give(Event::Launch);
        for node in 0..self.processes.len() {
            if self.processes[node].runs {
                self.hello(node);
            }
        }
        assert!(self.is_ready);
        self
    }

    pub fn give(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in self.machine.handle(event, self.now) {
                match action {
                    Action::Spawn { node } => events.push_back(Event::Started {
                        node,
                        pid: 1,
                        thread: None,
                    }),
                    Action::ReadPulse { node } => {
                        events.push_back(Event::Pulse {
                            node,
                            pulse: self.processes[node].pulse,
                        });
                    }
                    _ => {}
                }
                self.apply(action);
            }
        }
    }

    pub fn hello(&mut self, node: usize) {
        self.processes[node].said_hello = true;
        let hello = node_to_keeper::Hello {
            versions: VERSIONS,
            language: "test".to_owned(),
            library: "0".to_owned(),
        };
        self.message(node, node_to_keeper::Message::Hello(hello));
    }

    pub fn message(&mut self, node: usize, message: node_to_keeper::Message) {
        self.give(Event::Message { node, message });
    }

    /// Sends a message of a client, and returns the answer.
    pub fn ask(
        &mut self,
        client: usize,
        message: cli_to_keeper::Message,
    ) -> keeper_to_cli::Message {
        let before = self.replies.get(&client).map_or(0, Vec::len);
        self.give(Event::ClientMessage {
            client,
            pid: 1000 + client as u32,
            message,
        });
        self.replies[&client]
            .get(before)
            .expect("an answer")
            .clone()
    }

    /// Asks for reports as `run` does.
    pub fn follow_as_run(&mut self) {
        self.greet_as_run();
        let watch = cli_to_keeper::Watch {
            logs: true,
            follow: true,
            without_observers: true,
        };
        self.ask(STARTER, cli_to_keeper::Message::Watch(watch));
    }

    /// Sends an order of `run`.
    pub fn order_by_run(&mut self, message: cli_to_keeper::Message) {
        self.greet_as_run();
        assert_eq!(self.ask(STARTER, message), keeper_to_cli::Message::Done);
    }

    fn greet_as_run(&mut self) {
        if !self.replies.contains_key(&STARTER) {
            let hello = cli_to_keeper::Hello {
                versions: VERSIONS,
                program: "run".to_owned(),
            };
            self.ask(STARTER, cli_to_keeper::Message::Hello(hello));
        }
    }

    /// Stops the dataflow as `run` does.
    pub fn stop(&mut self) {
        let reason = "test".to_owned();
        self.order_by_run(cli_to_keeper::Message::Stop { reason });
    }

    /// Lets the dataflow drain.
    pub fn drain(&mut self, limit_millis: Option<u64>) {
        self.order_by_run(cli_to_keeper::Message::Drain {
            reason: "test".to_owned(),
            limit_millis,
        });
    }

    /// Closes the connection of `run`.
    pub fn end_run(&mut self) {
        self.give(Event::ClientGone { client: STARTER });
    }

    /// Makes a client a guest that has said Hello, and returns its node.
    pub fn guest(&mut self, client: usize, topics: &[&str]) -> usize {
        let hello = cli_to_keeper::Hello {
            versions: VERSIONS,
            program: "test".to_owned(),
        };
        self.ask(client, cli_to_keeper::Message::Hello(hello));
        let topics = topics.iter().map(ToString::to_string).collect();
        let observe = cli_to_keeper::Observe { topics, depth: 3 };
        let answer = self.ask(client, cli_to_keeper::Message::Observe(observe));
        assert!(
            matches!(answer, keeper_to_cli::Message::Observing { .. }),
            "{answer:?}"
        );
        let node = self
            .processes
            .iter()
            .position(|process| process.guest == Some(client))
            .unwrap();
        self.hello(node);
        node
    }

    /// Lets a client join as a node; the error is the refusal.
    pub fn join(&mut self, client: usize, id: &str, token: &str) -> Result<usize, String> {
        let hello = cli_to_keeper::Hello {
            versions: VERSIONS,
            program: "test".to_owned(),
        };
        if !self.replies.contains_key(&client) {
            self.ask(client, cli_to_keeper::Message::Hello(hello));
        }
        let join = cli_to_keeper::Join {
            node: id.to_owned(),
            token: token.to_owned(),
        };
        match self.ask(client, cli_to_keeper::Message::Join(join)) {
            keeper_to_cli::Message::Joined => {}
            keeper_to_cli::Message::Refused(refused) => return Err(refused.reason),
            other => panic!("{other:?}"),
        }
        let node = self
            .processes
            .iter()
            .position(|process| process.guest == Some(client))
            .unwrap();
        self.hello(node);
        Ok(node)
    }

    pub fn exit(&mut self, node: usize, end: End) {
        assert!(self.processes[node].runs);
        self.processes[node] = Process::default();
        self.give(Event::Ended {
            node,
            end,
            reason: None,
            stderr_tail: Vec::new(),
        });
    }

    /// Lets time pass, deadline by deadline.
    pub fn advance(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(at) = self.machine.deadline().filter(|&at| at <= end) {
            assert!(at >= self.now, "a deadline of the past was not met");
            self.now = at;
            self.give(Event::Deadline);
            assert!(
                self.machine.deadline().is_none_or(|next| next > at),
                "a deadline that was met stays"
            );
        }
        self.now = end;
    }

    /// The one edge attached to an output of a node, if there is one.
    pub fn output(&self, node: usize) -> Option<(u32, bool)> {
        assert!(self.processes[node].outputs.len() <= 1);
        self.processes[node]
            .outputs
            .first_key_value()
            .map(|(&edge, &(_, suspended))| (edge, suspended))
    }

    /// The one edge attached to an input of a node, if there is one.
    pub fn input(&self, node: usize) -> Option<u32> {
        assert!(self.processes[node].inputs.len() <= 1);
        self.processes[node]
            .inputs
            .first_key_value()
            .map(|(&edge, _)| edge)
    }

    fn apply(&mut self, action: Action) {
        match action {
            Action::Spawn { node } => {
                assert!(!self.processes[node].runs, "node {node} runs already");
                self.processes[node] = Process {
                    runs: true,
                    ..Process::default()
                };
            }
            Action::Send {
                node,
                message,
                descriptors,
            } => self.receive(node, message, &descriptors),
            Action::Report {
                message,
                audience: Audience::Everyone,
                ..
            } => self.reported(message),
            Action::Report {
                message,
                audience: Audience::ObserversToo,
                ..
            } => self.guest_reports.push(message),
            Action::Reply {
                client, message, ..
            } => self.replies.entry(client).or_default().push(message),
            Action::Follow { client, .. } => drop(self.followers.insert(client)),
            Action::Admit { client, node } => {
                if node == self.processes.len() {
                    self.processes.push(Process::default());
                }
                assert!(
                    !self.processes[node].runs,
                    "the place of guest {node} is taken"
                );
                self.processes[node] = Process {
                    runs: true,
                    guest: Some(client),
                    ..Process::default()
                };
            }
            Action::CloseClient { client } => {
                assert!(self.replies.remove(&client).is_some());
                self.followers.remove(&client);
            }
            Action::CloseGuest { node } => {
                assert!(node >= self.own_nodes);
                self.processes[node] = Process::default();
            }
            Action::CloseJoined { node } => {
                assert!(node < self.own_nodes);
                self.processes[node] = Process::default();
            }
            Action::Log { node, level, text } => {
                self.log.push(format!("{level:?} {node:?} {text}"))
            }
            Action::Ring { node } => self.rung.push(node),
            Action::SetClock { clock } => self.clocks.push(clock),
            Action::SetPaused { is_paused } => self.pauses.push(is_paused),
            Action::ReadPulse { node } => assert!(self.processes[node].runs),
            Action::Examine { node, why } => {
                assert!(self.processes[node].runs);
                self.log.push(format!("Examine Some({node}) {why}"));
            }
            Action::Signal { node, signal } => {
                assert!(
                    self.processes[node].runs,
                    "a signal for node {node}, which does not run"
                );
                assert!(
                    self.processes[node].guest.is_none(),
                    "a process that joined cannot be signalled"
                );
                self.signals.push((node, signal));
            }
            Action::CreateRegion { edge, .. } => assert!(self.regions.insert(edge)),
            Action::ReleaseRegion { edge } => drop(self.regions.remove(&edge)),
            Action::ReleasePair { pair } => {
                self.pair_ends_given.extend([(pair, 0), (pair, 1)]);
            }
            Action::Finish => {
                let own = &self.processes[..self.own_nodes];
                assert!(!self.is_finished && own.iter().all(|process| !process.runs));
                self.is_finished = true;
            }
        }
    }

    fn reported(&mut self, message: Report) {
        match message {
            Report::Ready => self.is_ready = true,
            Report::NodeEnded(ended) => self.ended.push(ended),
            Report::EdgeStatus(status) => self.edge_reports.push(status),
            _ => {}
        }
    }

    fn receive(
        &mut self,
        node: usize,
        message: keeper_to_node::Message,
        descriptors: &[Descriptor],
    ) {
        use keeper_to_node::Message;
        for &descriptor in descriptors {
            match descriptor {
                Descriptor::Region(edge) => {
                    assert!(self.regions.contains(&edge), "region {edge} is gone")
                }
                Descriptor::PairEnd { pair, end } => {
                    assert!(
                        self.pair_ends_given.insert((pair, end)),
                        "end {end} of pair {pair} was given away"
                    );
                }
                _ => {}
            }
        }
        let process = &mut self.processes[node];
        assert!(
            process.runs && process.said_hello,
            "node {node} cannot receive {message:?}"
        );
        assert!(process.refused.is_none());
        match message {
            Message::Welcome(welcome) => {
                process.params = welcome.params;
                let pages = [
                    Descriptor::ControlPage,
                    Descriptor::WakePage(node),
                    Descriptor::Eventfd(node),
                    Descriptor::Counters(node),
                ];
                assert_eq!(descriptors, pages);
            }
            Message::Refused { reason } => process.refused = Some(reason),
            Message::AttachOutput(attach) => process.attach_output(attach, descriptors),
            Message::AttachInput(attach) => process.attach_input(attach, descriptors),
            Message::Wired => assert!(!std::mem::replace(&mut process.is_wired, true)),
            Message::Start => {
                assert!(process.is_wired && !std::mem::replace(&mut process.has_started, true));
            }
            Message::DetachOutput {
                edge,
                suspended: true,
            } => {
                let (_, was_suspended) = process.outputs.get_mut(&edge).expect("an attached edge");
                assert!(!std::mem::replace(was_suspended, true));
            }
            Message::DetachOutput {
                edge,
                suspended: false,
            } => {
                assert!(process.outputs.remove(&edge).is_some())
            }
            Message::CloseInput { edge, last } => {
                let attached = process.inputs.remove(&edge).expect("an attached edge");
                assert!(!last || process.over.insert(attached.input));
            }
            Message::LastValue(last) => {
                let is_over = process.over.contains(&last.input) && !process.may_reopen;
                assert!(!is_over, "input {} is over", last.input);
                process
                    .last_values
                    .push((last.input, last.incarnation, last.value));
            }
            Message::Param(param) => process.params.push(param),
            Message::Call(call) => process.calls.push(call),
            Message::Publish(publish) => process.publications.push(publish),
            Message::Event(event) => process.events.push((event.kind, event.node, event.inputs)),
            Message::Stop { reason, .. } => process.stop = Some(reason),
            Message::StopWhenDrained { reason } => process.stop_when_drained = Some(reason),
            Message::AwaitConsumer {
                counters_row,
                returns,
                ..
            } => {
                let before = process.awaited.insert(counters_row, returns);
                assert_ne!(before.unwrap_or(Return::Never), returns);
            }
            Message::Unknown => panic!("the keeper does not know its own message"),
        }
    }
}

impl Process {
    fn attach_output(&mut self, attach: AttachOutput, descriptors: &[Descriptor]) {
        self.check_peer(attach.peer, descriptors.len(), 3);
        match self.outputs.get(&attach.edge) {
            Some((_, suspended)) => assert!(suspended, "edge {} is attached already", attach.edge),
            None => {
                assert!(
                    self.edges_seen.insert(attach.edge),
                    "edge {} was detached for good",
                    attach.edge
                )
            }
        }
        self.awaited.remove(&attach.counters_row);
        self.outputs.insert(attach.edge, (attach, false));
    }

    fn attach_input(&mut self, attach: AttachInput, descriptors: &[Descriptor]) {
        self.check_peer(attach.peer, descriptors.len(), 2);
        assert!(
            !self.over.contains(&attach.input) || self.may_reopen,
            "input {} is over",
            attach.input
        );
        self.over.remove(&attach.input);
        let is_own = self.outputs.contains_key(&attach.edge);
        assert!(
            is_own || self.edges_seen.insert(attach.edge),
            "edge {} was closed",
            attach.edge
        );
        assert!(self.inputs.insert(attach.edge, attach).is_none());
    }

    /// The end of a pair's socket comes with the first edge of the pair.
    fn check_peer(&mut self, peer: u32, descriptors: usize, others: usize) {
        assert_eq!(descriptors - others, usize::from(self.peers.insert(peer)));
    }
}
