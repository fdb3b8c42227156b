//! The nodes and the edges between their processes: the graph, the life of each node, and the
//! wiring, kept in step.

mod pause;

use std::time::Duration;

use nervure_protocol::{
    keeper_to_node,
    params::Param,
    report::{EndCause, Level, NodeEnded, NodeStarted, Report},
    wiring::Queue,
};

use super::{
    action::{Action, Audience, Descriptor},
    graph::{Graph, index},
    health::Health,
    node::{Node, State},
    replacements::CommandLine,
    turn::Turn,
    wiring::{Rewiring, Wiring},
};
use crate::plan::{EdgePlan, NodePlan, Plan, Ready};

/// The nodes and edges of a dataflow.
#[derive(Debug)]
pub(super) struct Network {
    graph: Graph,
    nodes: Vec<Node>,
    wiring: Wiring,
    /// When the dataflow was paused.
    paused_at: Option<Duration>,
}

impl Network {
    /// A dataflow without processes.
    pub fn new(plan: Plan) -> Self {
        let graph = Graph::new(plan);
        Self {
            nodes: graph.plan().nodes.iter().map(Node::new).collect(),
            wiring: Wiring::new(&graph),
            graph,
            paused_at: None,
        }
    }

    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    pub fn wiring(&self) -> &Wiring {
        &self.wiring
    }

    /// The nodes of the file, and guests behind them.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn own_nodes(&self) -> &[Node] {
        &self.nodes[..self.graph.own_nodes()]
    }

    pub fn node(&self, node: usize) -> &Node {
        &self.nodes[node]
    }

    pub fn node_mut(&mut self, node: usize) -> &mut Node {
        &mut self.nodes[node]
    }

    /// A view in which edges can be changed.
    pub fn rewiring<'a>(&'a mut self, turn: &'a mut Turn) -> Rewiring<'a> {
        Rewiring {
            wiring: &mut self.wiring,
            graph: &self.graph,
            nodes: &self.nodes,
            turn,
        }
    }

    /// Sets the command line of a node's next process.
    pub fn set_program(&mut self, node: usize, command: CommandLine) {
        self.graph.set_program(node, command);
    }

    /// Sends a message to every node that is connected.
    pub fn broadcast(&self, message: &keeper_to_node::Message, turn: &mut Turn) {
        for node in self.connected() {
            turn.send(node, message.clone());
        }
    }

    /// The nodes that can be sent messages.
    pub fn connected(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|&node| self.nodes[node].is_connected())
    }

    /// Nodes that the start of the dataflow waits for, each with its missing step.
    pub fn not_ready(&self) -> impl Iterator<Item = (&NodePlan, &'static str)> {
        (0..self.graph.own_nodes())
            .filter_map(|node| Some((self.graph.node(node), self.missing_step(node)?)))
    }

    /// The step of a node that the start of the dataflow waits for.
    pub fn missing_step(&self, node: usize) -> Option<&'static str> {
        self.nodes[node].missing_step(self.graph.node(node))
    }

    /// True when a node has inputs from other nodes, and none of them will ever send again.
    pub fn inputs_are_over(&self, node: usize) -> bool {
        let mut producers = self.graph.producers(node).peekable();
        producers.peek().is_some() && producers.all(|producer| self.nodes[producer].has_ended())
    }

    /// Nodes of a dataflow that drains to which nothing more will be sent. `loops` is as in
    /// [`Graph::loops`]: the nodes of a loop do not wait for each other, apart from those with a
    /// timer, which end first.
    pub fn get_no_more(&self, loops: &[usize]) -> Vec<usize> {
        let (mut is_fed, mut waits) = (vec![false; loops.len()], vec![false; loops.len()]);
        let own = |edge: &&EdgePlan| edge.consumer < loops.len() && !self.graph.is_beside(edge);
        for edge in self.graph.edges().iter().filter(own) {
            let (sender, node) = (edge.producer, edge.consumer);
            let sends = !self.nodes[sender].has_ended();
            let is_first = self.graph.has_timer(sender) && !self.graph.has_timer(node);
            let is_in_loop = loops[sender] == loops[node];
            is_fed[loops[node]] |= sends && !is_in_loop;
            waits[node] |= sends && is_in_loop && is_first;
        }
        (0..loops.len())
            .filter(|&node| !is_fed[loops[node]] && !waits[node])
            .collect()
    }

    /// True when a `block` edge may hold samples for the next process of a node.
    pub fn may_have_backlog(&self, node: usize) -> bool {
        self.wiring.has_lossless_input(&self.graph, node)
    }

    /// True for a stand-in that sends samples of `block` edges to another machine, or will when the
    /// daemon is back, and leaves when they have arrived.
    pub fn is_sending(&self, node: usize) -> bool {
        let state = &self.nodes[node];
        let mut edges = self.graph.edges().iter();
        let is_awaited =
            |edge: &EdgePlan| edge.consumer == node && self.graph.awaits_consumer(edge);
        self.graph.node(node).is_remote()
            && (state.is_alive() && edges.any(is_awaited)
                || state.will_return() && self.may_have_backlog(node))
    }

    /// True for a stand-in that brings samples of another machine, or has some to send.
    pub fn is_bridge(&self, node: usize) -> bool {
        let is_remote = self.graph.node(node).is_remote();
        is_remote && self.graph.is_source(node) || self.is_sending(node)
    }

    /// True when a node ends by itself once it has received all queued samples. A Stop would
    /// overtake them.
    pub fn ends_with_its_inputs(&self, node: usize) -> bool {
        let has_joined = self.nodes[node].client().is_some();
        has_joined && !self.graph.has_timer(node) && self.inputs_are_over(node)
    }

    /// True when the node's process, or the guest, cannot be signalled by the keeper.
    pub fn is_foreign(&self, node: usize) -> bool {
        self.graph.is_guest(node) || self.nodes[node].client().is_some()
    }

    /// Begins the health checks of a node if it is connected and ready.
    pub fn check_if_up(&mut self, node: usize, now: Duration) {
        let timeout = self.graph.node(node).settings.health_check_timeout;
        let state = &mut self.nodes[node];
        if state.is_up() {
            state.health.ready(timeout, now);
        }
    }

    /// Starts the process of a node that has none.
    pub fn spawn(&mut self, node: usize, turn: &mut Turn) {
        self.nodes[node].begin(None);
        turn.push(Action::Spawn { node });
    }

    /// Starts a node by hand, also one that has ended for good.
    pub fn start_again(&mut self, node: usize, turn: &mut Turn) {
        if self.nodes[node].has_ended() {
            self.hold(node, turn);
        }
        self.spawn(node, turn);
    }

    /// A client's process becomes that of a node.
    pub fn join(&mut self, node: usize, client: usize, pid: u32, turn: &mut Turn) {
        self.nodes[node].begin(Some(client));
        turn.push(Action::Admit { client, node });
        let text = format!("process {pid} has joined");
        turn.log_node(&self.graph, node, Level::Info, text);
        self.started(node, (pid, None), None, turn);
    }

    /// A node's process was started, or has joined. `startup_timeout` is the longest time until it
    /// is ready.
    pub fn started(
        &mut self,
        node: usize,
        (pid, thread): (u32, Option<u32>),
        startup_timeout: Option<Duration>,
        turn: &mut Turn,
    ) {
        let plan = self.graph.node(node);
        let state = &mut self.nodes[node];
        state.restarts.started(turn.now);
        // A program without inputs and outputs never connects; one that joined may stand still in a
        // debugger.
        let timeout = startup_timeout.filter(|_| plan.connects() && state.client().is_none());
        state.health = Health::started(timeout, turn.now);
        let started = NodeStarted {
            node: index(node),
            id: plan.id.clone(),
            pid,
            thread,
            incarnation: state.incarnation(),
            restarts: state.restart_count(),
            observer: false,
        };
        state.set_started(started.clone());
        let message = Report::NodeStarted(started);
        turn.report(message, Some(Descriptor::CountersReadOnly(node)));
    }

    /// Welcomes and wires a process that has sent a valid Hello.
    pub fn connect(&mut self, node: usize, version: u32, params: Vec<Param>, turn: &mut Turn) {
        let plan = self.graph.node(node);
        let state = &mut self.nodes[node];
        state.connect(plan.settings.ready == Ready::Auto);
        let welcome = keeper_to_node::Welcome {
            version,
            dataflow: self.graph.plan().dataflow.clone(),
            node: plan.id.clone(),
            incarnation: state.incarnation(),
            manual_ready: plan.settings.ready == Ready::Manual,
            shared_memory_bytes: plan.shared_memory_bytes,
            outputs: plan.outputs.clone(),
            types: plan.types.clone(),
            inputs: plan.inputs.clone(),
            services: plan.services.clone(),
            clients: plan.clients.clone(),
            params,
            loop_deadline: plan.settings.loop_deadline,
            sync: plan.settings.sync.clone(),
            transforms: plan.settings.transforms.clone().map(Box::new),
            memory_lock: plan.settings.memory_lock,
        };
        let welcome = keeper_to_node::Message::Welcome(Box::new(welcome));
        let restarted = state.incarnation() > 0 && !self.graph.is_guest(node);
        let descriptors = vec![
            Descriptor::ControlPage,
            Descriptor::WakePage(node),
            Descriptor::Eventfd(node),
            Descriptor::Counters(node),
        ];
        turn.send_with(node, welcome, descriptors);
        let mut rewiring = self.rewiring(turn);
        if restarted {
            // Before the new edges, so that it arrives before the first sample of the new process.
            rewiring.notify_neighbours(node, "NODE_RESTARTED", "", false);
        }
        rewiring.wire(node);
        turn.send(node, keeper_to_node::Message::Wired);
    }

    /// A node's process is gone: undoes its edges. With `notify` its neighbours learn that it has
    /// failed.
    pub fn process_gone(
        &mut self,
        node: usize,
        ended: NodeEnded,
        next: State,
        notify: bool,
        turn: &mut Turn,
    ) {
        let returns = next != State::Ended;
        let state = &mut self.nodes[node];
        state.process_gone(next);
        let level = match (ended.failed, ended.code) {
            (true, _) => Level::Error,
            (false, None) if ended.signal.is_none() => Level::Info,
            (false, Some(0)) if !returns => Level::Debug,
            (false, Some(0)) => Level::Info,
            (false, _) => Level::Warn,
        };
        turn.log_node(&self.graph, node, level, ended.reason.clone());
        let mut rewiring = self.rewiring(turn);
        // First the event: a node whose last input closes ends, and receives nothing any more.
        if notify {
            rewiring.notify_neighbours(node, "NODE_FAILED", &ended.reason, returns);
            rewiring.send_last_values(node, &ended.reason);
        }
        rewiring.unwire(node, returns);
        turn.report(Report::NodeEnded(ended.clone()), None);
        let state = &mut self.nodes[node];
        state.set_last_end(ended);
        if returns {
            state.next_incarnation();
        }
    }

    /// Holds a node that has no process.
    pub fn hold(&mut self, node: usize, turn: &mut Turn) {
        if self.nodes[node].has_ended() {
            self.expect_again(node);
            self.nodes[node].set_idle(State::Held);
            return self.rewiring(turn).update_returns(node);
        }
        let state = &mut self.nodes[node];
        state.set_idle(State::Held);
        if let Some(mut ended) = state.last_end().cloned() {
            ended.restarts = false;
            ended.failed = false;
            ended.cause = EndCause::Stopped;
            ended.reason.push_str("; then stopped by hand");
            state.set_last_end(ended.clone());
            turn.report(Report::NodeEnded(ended), None);
        }
    }

    /// The dataflow stops while a node has no process and waits for one.
    pub fn give_up_restart(&mut self, node: usize, turn: &mut Turn) {
        self.nodes[node].set_idle(State::Ended);
        self.rewiring(turn).unwire(node, false);
        let state = &mut self.nodes[node];
        // Without a last end no process has joined as it.
        let Some(mut ended) = state.last_end().cloned() else {
            return;
        };
        ended.restarts = false;
        ended
            .reason
            .push_str("; it does not, because the dataflow stops");
        state.set_last_end(ended.clone());
        turn.report(Report::NodeEnded(ended), None);
    }

    /// A client becomes a guest with one input for each of `outputs` (node and output). Returns its
    /// node.
    pub fn add_guest(
        &mut self,
        client: usize,
        plan: NodePlan,
        outputs: &[(usize, usize)],
        queue: Queue,
    ) -> usize {
        let mut places = self.graph.own_nodes()..self.nodes.len();
        let node = match places.find(|&node| self.nodes[node].has_ended()) {
            Some(node) => {
                let incarnation = self.nodes[node].incarnation() + 1;
                self.nodes[node] = Node::guest(client, incarnation);
                node
            }
            None => {
                self.nodes.push(Node::guest(client, 0));
                self.nodes.len() - 1
            }
        };
        self.graph.put_guest(node, plan);
        for (input, &(producer, output)) in outputs.iter().enumerate() {
            self.graph.add_guest_edge(EdgePlan {
                producer,
                output,
                consumer: node,
                input,
                queue,
            });
            self.wiring.add_edge(&self.graph);
        }
        node
    }

    /// Creates the pages of a guest, and reports it.
    pub fn admit_guest(&mut self, node: usize, client: usize, pid: u32, turn: &mut Turn) {
        turn.push(Action::Admit { client, node });
        let started = NodeStarted {
            node: index(node),
            id: self.graph.node(node).id.clone(),
            pid,
            thread: None,
            incarnation: self.nodes[node].incarnation(),
            restarts: 0,
            observer: true,
        };
        self.nodes[node].set_started(started.clone());
        let message = Report::NodeStarted(started);
        let descriptor = Descriptor::CountersReadOnly(node);
        turn.report_to(Audience::ObserversToo, message, Some(descriptor));
    }

    /// A guest's connection is closed: removes it and its edges.
    pub fn remove_guest(&mut self, node: usize, turn: &mut Turn) {
        self.nodes[node].process_gone(State::Ended);
        self.rewiring(turn).unwire(node, false);
        self.wiring.remove_edges(&self.graph, node);
        let id = self.graph.remove_guest(node);
        turn.log(Level::Debug, format!("`{id}` is gone"));
        let ended = NodeEnded {
            node: index(node),
            id,
            incarnation: self.nodes[node].incarnation(),
            code: None,
            signal: None,
            failed: false,
            restarts: false,
            cause: EndCause::Ended,
            reason: "it observes no more".to_owned(),
            overdue: false,
            stderr_tail: Vec::new(),
        };
        let message = Report::NodeEnded(ended);
        turn.report_to(Audience::ObserversToo, message, None);
        turn.push(Action::CloseGuest { node });
    }

    /// A node that had ended will have a process again. Its consumers were notified that it will
    /// not, and are notified again when it ends.
    fn expect_again(&mut self, node: usize) {
        self.nodes[node].next_incarnation();
        self.wiring.expect_again(&self.graph, node);
    }
}
