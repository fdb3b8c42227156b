//! The state of the dataflow, as a sequence of reports.

use nervure_protocol::{
    cli_to_keeper::Watch,
    graph::Program,
    keeper_to_cli::{self, NodeDeclared},
    report::Report,
};

use super::Requests;
use crate::machine::{
    action::{Action, Descriptor},
    graph::index,
    replacements::CommandLine,
    supervisor::Supervisor,
    turn::Turn,
};

impl Requests {
    /// Sends the whole state to a client, and later reports if it asks for them.
    pub(super) fn send_snapshot(
        &self,
        client: usize,
        watch: Watch,
        supervisor: &Supervisor,
        turn: &mut Turn,
    ) {
        let (graph, nodes) = (supervisor.network().graph(), supervisor.network().nodes());
        for (node, state) in nodes.iter().enumerate() {
            if graph.is_guest(node) && (state.has_ended() || watch.without_observers) {
                continue;
            }
            let declared = self.declare(node, supervisor);
            turn.reply(client, keeper_to_cli::Message::NodeDeclared(declared));
            if let Some(started) = state.last_start() {
                let report = Report::NodeStarted(started.clone());
                let descriptor = Descriptor::CountersReadOnly(node);
                reply_report(client, report, Some(descriptor), turn);
            }
        }
        for spec in 0..graph.edges().len() {
            if watch.without_observers && graph.is_guest(graph.edge(spec).consumer) {
                continue;
            }
            if let Some(wired) = supervisor.network().wiring().last_wired(spec) {
                reply_report(client, Report::EdgeWired(wired.clone()), None, turn);
            }
            if let Some(status) = supervisor.network().wiring().status(spec) {
                reply_report(client, Report::EdgeStatus(status.clone()), None, turn);
            }
        }
        for state in &nodes[..graph.own_nodes()] {
            if let (false, Some(ended)) = (state.is_alive(), state.last_end()) {
                reply_report(client, Report::NodeEnded(ended.clone()), None, turn);
            }
        }
        if supervisor.phase().is_running() {
            reply_report(client, Report::Ready, None, turn);
        }
        if supervisor.network().is_paused() {
            reply_report(client, Report::Paused, None, turn);
        }
        turn.reply(client, keeper_to_cli::Message::SnapshotComplete);
        if watch.follow {
            turn.push(Action::Follow { client, watch });
        }
    }

    fn declare(&self, node: usize, supervisor: &Supervisor) -> NodeDeclared {
        let graph = supervisor.network().graph();
        let plan = graph.node(node);
        let delays_start = supervisor.phase().is_starting() && !graph.is_guest(node);
        let file_says = self.replacements.file_says(node);
        NodeDeclared {
            node: index(node),
            id: plan.id.clone(),
            program: match file_says {
                Some(_) => CommandLine::of(plan).to_string(),
                None => plan.program.to_string(),
            },
            file_says: file_says.map(ToString::to_string),
            observer: graph.is_guest(node),
            attached: self.place_kept_for(node),
            dynamic: plan.is_dynamic(),
            remote: match &plan.program {
                Program::Remote { machine } => Some(machine.clone()),
                _ => None,
            },
            not_done: supervisor
                .network()
                .missing_step(node)
                .filter(|_| delays_start)
                .map(str::to_owned),
            outputs: plan.outputs.clone(),
            inputs: plan.inputs.clone(),
            services: plan.services.clone(),
            clients: plan.clients.clone(),
        }
    }
}

fn reply_report(client: usize, report: Report, descriptor: Option<Descriptor>, turn: &mut Turn) {
    let message = keeper_to_cli::Message::Report { report };
    turn.reply_with(client, message, descriptor);
}
