//! The requests of clients.
//!
//! To add one: a variant of `cli_to_keeper::Message`, and an arm of [`Requests::message`] or
//! [`Requests::execute`].

mod attach;
mod call;
mod observe;
mod publish;
mod replace;
mod snapshot;

use std::time::Duration;

use nervure_protocol::{
    VERSIONS,
    cli_to_keeper::{Hello, Message, NodeOrder, SetParam},
    keeper_to_cli::{self, DataflowState, Refused, Welcome},
    keeper_to_node,
    params::Param,
    report::Level,
};

#[cfg(test)]
pub use observe::MAX_GUESTS;

use super::{
    claims::Claims,
    clients::{Clients, STARTER},
    graph::index,
    node::{AfterStop, Node},
    params::Params,
    phase::Phase,
    publications::Publications,
    replacements::Replacements,
    supervisor::{Supervisor, drain},
    turn::Turn,
};
use crate::plan::NodePlan;

const OTHER_VERSION: &str =
    "the dataflow was started by another version of Nervure: use that version";

/// The state of the requests of clients.
#[derive(Debug)]
pub(super) struct Requests {
    clients: Clients,
    params: Params,
    claims: Claims,
    replacements: Replacements,
    max_guest_edges: usize,
    publications: Publications,
}

impl Requests {
    pub fn new(supervisor: &Supervisor) -> Self {
        Self {
            clients: Clients::default(),
            params: Params::new(supervisor.network().graph().plan()),
            claims: Claims::default(),
            replacements: Replacements::default(),
            max_guest_edges: usize::MAX,
            publications: Publications::default(),
        }
    }

    /// Limits the edges of all observers together.
    pub fn limit_guest_edges(&mut self, max: usize) {
        self.max_guest_edges = max;
    }

    /// True when a client keeps a node's place for a program.
    pub fn keeps_place(&self, client: usize) -> bool {
        self.claims.has_client(client)
    }

    /// The client that keeps a node's place, for people.
    pub fn place_kept_for(&self, node: usize) -> Option<String> {
        self.claims.of_node(node).map(|claim| claim.name.clone())
    }

    /// The parameters of a node, for its Welcome.
    pub fn params_of(&self, node: usize, supervisor: &Supervisor) -> Vec<Param> {
        self.params
            .of_node(node, supervisor.network().graph().node(node))
    }

    /// A client sent a message.
    pub fn message(
        &mut self,
        (client, pid): (usize, u32),
        message: Message,
        supervisor: &mut Supervisor,
        turn: &mut Turn,
    ) {
        let is_known = self.clients.is_known(client);
        let result = match message {
            Message::Hello(hello) if !is_known => self.greet(client, pid, &hello, supervisor, turn),
            _ if !is_known => Err(Refused::new("the first message was not Hello", None)),
            Message::Watch(watch) => {
                self.send_snapshot(client, watch, supervisor, turn);
                Ok(())
            }
            Message::Observe(observe) => self.observe((client, pid), &observe, supervisor, turn),
            Message::Join(join) => self.join((client, pid), &join, supervisor, turn),
            Message::Replace(replace) => self.replace(client, replace, supervisor, turn),
            Message::Attach(attach) => self.attach(client, &attach, supervisor, turn),
            Message::Publish(publish) => self.publish(client, publish, supervisor, turn),
            message => self
                .execute(client, message, supervisor, turn)
                .map(|()| turn.reply(client, keeper_to_cli::Message::Done)),
        };
        if let Err(refused) = result {
            turn.reply(client, keeper_to_cli::Message::Refused(refused));
        }
    }

    /// A client's connection is closed. Nodes that it was attached to are given back.
    pub fn client_gone(&mut self, client: usize, supervisor: &mut Supervisor, turn: &mut Turn) {
        self.clients.remove(client);
        self.publications.forget_client(client);
        supervisor.client_gone(client, turn);
        self.release_claims(client, supervisor, turn);
        if client == STARTER && !supervisor.network().graph().plan().detached {
            supervisor.stop("`nervure run` is gone", turn);
        }
    }

    /// The keeper closes the connection of a client.
    pub fn forget_client(&mut self, client: usize) {
        self.clients.remove(client);
    }

    /// Carries out a command that is answered by `Done`.
    fn execute(
        &mut self,
        client: usize,
        message: Message,
        supervisor: &mut Supervisor,
        turn: &mut Turn,
    ) -> Result<(), Refused> {
        match message {
            Message::Stop { reason } => {
                if !supervisor.phase().is_stopping() {
                    self.log_end(client, "stopped", turn);
                }
                supervisor.stop(&reason, turn);
                Ok(())
            }
            Message::Drain {
                reason,
                limit_millis,
            } => {
                if supervisor.phase() == Phase::Running {
                    self.log_end(client, "drained", turn);
                }
                let limit = limit_millis.map(Duration::from_millis);
                drain::begin(supervisor, &reason, limit, turn);
                Ok(())
            }
            Message::Kill => {
                if !matches!(supervisor.phase(), Phase::Killed | Phase::Finished) {
                    self.log_end(client, "killed", turn);
                }
                supervisor.kill(turn);
                Ok(())
            }
            Message::Pause | Message::Resume => {
                check_not_stopping(supervisor)?;
                let by = self.clients.name(client);
                let network = supervisor.network_mut();
                network.set_paused(message == Message::Pause, &by, turn);
                Ok(())
            }
            Message::Node { node, order } => self.order(client, &node, order, supervisor, turn),
            Message::Params { node } => self.list_params(client, node.as_deref(), supervisor, turn),
            Message::SetParam(set) => self.set_param(client, set, supervisor, turn),
            Message::Call(call) => self.call(client, call, supervisor, turn),
            Message::Hello(_)
            | Message::Watch(_)
            | Message::Observe(_)
            | Message::Join(_)
            | Message::Attach(_)
            | Message::Replace(_)
            | Message::Publish(_)
            | Message::Unknown => {
                let reason = "this keeper does not know that command";
                Err(Refused::new(reason, Some(OTHER_VERSION)))
            }
        }
    }

    /// The terminal of `nervure run` has to show why the dataflow ends when its user did not ask
    /// for it.
    fn log_end(&self, client: usize, verb: &str, turn: &mut Turn) {
        if client == STARTER {
            return;
        }
        let name = self.clients.name(client);
        turn.log(Level::Info, format!("the dataflow is {verb} by `{name}`"));
    }

    fn greet(
        &mut self,
        client: usize,
        pid: u32,
        hello: &Hello,
        supervisor: &Supervisor,
        turn: &mut Turn,
    ) -> Result<(), Refused> {
        let version = VERSIONS
            .negotiate(hello.versions)
            .map_err(|error| Refused::new(error.to_string(), Some(OTHER_VERSION)))?;
        self.clients.add(client, &hello.program, pid);
        let plan = supervisor.network().graph().plan();
        let (own, guests) = supervisor
            .network()
            .nodes()
            .split_at(supervisor.network().graph().own_nodes());
        let alive = |nodes: &[&Node]| index(nodes.iter().filter(|node| node.is_alive()).count());
        // Stand-ins of nodes on other machines are counted there.
        let graph = supervisor.network().graph();
        let own = own.iter().enumerate();
        let own = own.filter(|(node, _)| !graph.node(*node).is_remote());
        let own: Vec<&Node> = own.map(|(_, node)| node).collect();
        let guests: Vec<&Node> = guests.iter().collect();
        let display = |path: &std::path::PathBuf| path.display().to_string();
        let welcome = Welcome {
            version,
            dataflow: plan.dataflow.clone(),
            library: env!("CARGO_PKG_VERSION").to_owned(),
            folder: display(&plan.folder),
            file: plan.file.as_ref().map(display),
            log_folder: plan.log_folder.as_ref().map(display).unwrap_or_default(),
            started_utc_nanos: plan.started_utc_nanos,
            state: match supervisor.phase() {
                Phase::Loaded | Phase::Starting { .. } | Phase::Running
                    if supervisor.network().is_paused() =>
                {
                    DataflowState::Paused
                }
                Phase::Loaded | Phase::Starting { .. } => DataflowState::Starting,
                Phase::Running => DataflowState::Running,
                _ => DataflowState::Stopping,
            },
            nodes: index(own.len()),
            running: alive(&own),
            observers: alive(&guests),
            detached: plan.detached,
            static_transforms: plan.static_transforms.clone(),
        };
        turn.reply(client, keeper_to_cli::Message::Welcome(welcome));
        Ok(())
    }

    /// Stops, starts or restarts one node.
    fn order(
        &mut self,
        client: usize,
        id: &str,
        order: NodeOrder,
        supervisor: &mut Supervisor,
        turn: &mut Turn,
    ) -> Result<(), Refused> {
        let node = supervisor.network().graph().find_node(id)?;
        check_not_stopping(supervisor)?;
        // A new program that is not ready yet can be stopped, and is decided once it was started again.
        let is_pending = self.replacements.is_pending(node);
        match order {
            NodeOrder::Stop if is_pending => self.replacements.put_off(node),
            NodeOrder::Start if is_pending => {}
            _ => self.check_free(node, id)?,
        }
        if supervisor.network().graph().is_dynamic(node) && order != NodeOrder::Stop {
            let reason = format!("node `{id}` has `path: dynamic`: its keeper does not start it");
            let hint = format!("a program joins as it: `Node(\"{id}\")` in Python");
            return Err(Refused::new(reason, Some(&hint)));
        }
        if matches!(order, NodeOrder::Load | NodeOrder::Unload) {
            check_composed(supervisor.network().graph().node(node))?;
        }
        let client = self.clients.name(client);
        let state = supervisor.network().node(node);
        let is_alive = state.is_alive();
        match order {
            NodeOrder::Unload if !is_alive => {
                return Err(Refused::new(format!("node `{id}` does not run"), None));
            }
            NodeOrder::Unload => {
                let reason = format!("unloaded by `{client}`");
                supervisor.stop_node(node, AfterStop::End, &reason, turn);
            }
            NodeOrder::Load if is_alive => {
                let hint = "`nervure node unload` ends it first";
                let reason = format!("node `{id}` runs already");
                return Err(Refused::new(reason, Some(hint)));
            }
            NodeOrder::Stop if state.has_ended() || state.is_held() => {
                return Err(Refused::new(format!("node `{id}` does not run"), None));
            }
            NodeOrder::Start if is_alive => {
                let hint = "`nervure node restart` ends it first";
                let reason = format!("node `{id}` runs already");
                return Err(Refused::new(reason, Some(hint)));
            }
            NodeOrder::Stop if is_alive => {
                let reason = format!("stopped by `{client}`");
                supervisor.stop_node(node, AfterStop::Hold, &reason, turn);
            }
            NodeOrder::Stop => supervisor.network_mut().hold(node, turn),
            NodeOrder::Restart if is_alive => {
                let reason = format!("restarted by `{client}`");
                supervisor.stop_node(node, AfterStop::Start, &reason, turn);
            }
            NodeOrder::Start | NodeOrder::Restart | NodeOrder::Load => {
                supervisor.network_mut().start_again(node, turn)
            }
        }
        Ok(())
    }

    /// Refuses orders to a node that a client is attached to, or that gets another program.
    fn check_free(&self, node: usize, id: &str) -> Result<(), Refused> {
        if let Some(claim) = self.claims.of_node(node) {
            let reason = format!("`{}` is attached to node `{id}`", claim.name);
            let hint = "the node is given back when that ends";
            return Err(Refused::new(reason, Some(hint)));
        }
        if self.replacements.is_pending(node) {
            let reason = format!("node `{id}` gets another program, which is not ready yet");
            let hint = "try again when that is decided";
            return Err(Refused::new(reason, Some(hint)));
        }
        Ok(())
    }

    /// Sends the parameters of one node, or of all.
    fn list_params(
        &self,
        client: usize,
        id: Option<&str>,
        supervisor: &Supervisor,
        turn: &mut Turn,
    ) -> Result<(), Refused> {
        let graph = supervisor.network().graph();
        let nodes = match id {
            Some(id) => {
                let node = graph.find_node(id)?;
                node..node + 1
            }
            None => 0..graph.own_nodes(),
        };
        for node in nodes {
            let plan = graph.node(node);
            if id.is_none() && plan.settings.params.is_empty() {
                continue;
            }
            let params = keeper_to_cli::Message::Params {
                node: plan.id.clone(),
                params: self.params.describe(node, plan),
            };
            turn.reply(client, params);
        }
        Ok(())
    }

    /// Changes a parameter. The node does not see a value that the parameter does not take.
    fn set_param(
        &mut self,
        client: usize,
        set: SetParam,
        supervisor: &Supervisor,
        turn: &mut Turn,
    ) -> Result<(), Refused> {
        let graph = supervisor.network().graph();
        let node = graph.find_node(&set.node)?;
        let (before, value) = self.params.set(node, graph.node(node), &set)?;
        if before == value {
            return Ok(());
        }
        let client = self.clients.name(client);
        let text = format!(
            "parameter `{}` is {value}, it was {before}: set by `{client}`",
            set.name
        );
        turn.log_node(graph, node, Level::Info, text);
        let name = set.name;
        // A node that has not connected gets it with its Welcome.
        if supervisor.network().node(node).is_connected() {
            let param = Param { name, value };
            turn.send(node, keeper_to_node::Message::Param(param));
        }
        Ok(())
    }
}

/// Refuses to load or unload a node with a process of its own.
fn check_composed(node: &NodePlan) -> Result<(), Refused> {
    match node.host() {
        Some(_) => Ok(()),
        None => {
            let reason = format!("node `{}` is a program of its own", node.id);
            let hint = "`nervure node stop` and `start` are for programs";
            Err(Refused::new(reason, Some(hint)))
        }
    }
}

fn check_not_stopping(supervisor: &Supervisor) -> Result<(), Refused> {
    match supervisor.phase().is_ending() {
        true => Err(Refused::new("the dataflow is stopping", None)),
        false => Ok(()),
    }
}

/// Refuses messages of tools to a node without a process, which would be lost.
fn check_runs(node: usize, supervisor: &Supervisor) -> Result<(), Refused> {
    if supervisor.network().node(node).is_connected() {
        return Ok(());
    }
    let id = &supervisor.network().graph().node(node).id;
    let hint = format!("`nervure status` shows its state, `nervure node start {id}` starts it");
    Err(Refused::new(
        format!("node `{id}` does not run"),
        Some(&hint),
    ))
}
