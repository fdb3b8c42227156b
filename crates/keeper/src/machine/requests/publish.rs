//! Samples of tools. The node of the output publishes them itself, so that no process gets an edge that
//! the file does not declare, and every count stays that of its one producer.

use nervure_protocol::{
    cli_to_keeper::Publish,
    did_you_mean,
    keeper_to_cli::{Message, Refused},
    keeper_to_node::{self, NodeEnd},
    node_to_keeper,
};

use super::{Requests, check_not_stopping, check_runs};
use crate::{
    machine::{graph::index, supervisor::Supervisor, turn::Turn},
    plan::NodePlan,
};

impl Requests {
    /// Passes a sample on to the node that is to publish or to receive it.
    pub(super) fn publish(
        &mut self,
        client: usize,
        publish: Publish,
        supervisor: &Supervisor,
        turn: &mut Turn,
    ) -> Result<(), Refused> {
        check_not_stopping(supervisor)?;
        let graph = supervisor.network().graph();
        let node = graph.find_node(&publish.node)?;
        let at = find_end(graph.node(node), &publish.name)?;
        check_runs(node, supervisor)?;
        let request = keeper_to_node::Publish {
            id: self.publications.add(client, node),
            at,
            value: publish.value,
        };
        turn.send(node, keeper_to_node::Message::Publish(request));
        Ok(())
    }

    /// A node has carried out a publication.
    pub fn published(
        &mut self,
        node: usize,
        published: node_to_keeper::Published,
        turn: &mut Turn,
    ) {
        let Some(client) = self.publications.take(node, published.id) else {
            return;
        };
        let answer = match published.result {
            Ok(published) => Message::Published(published),
            Err(reason) => Message::Refused(Refused::new(reason, None)),
        };
        turn.reply(client, answer);
    }

    /// The process of a node has ended: it publishes nothing more.
    pub fn fail_publications(&mut self, node: usize, supervisor: &Supervisor, turn: &mut Turn) {
        let id = &supervisor.network().graph().node(node).id;
        for client in self.publications.take_all(node) {
            let reason = format!("node `{id}` ended before it published the sample");
            let refused = Refused::new(reason, None);
            turn.reply(client, Message::Refused(refused));
        }
    }
}

/// The output of that name, or else the input.
fn find_end(node: &NodePlan, name: &str) -> Result<NodeEnd, Refused> {
    // Outputs and inputs with a `~` are for requests and answers.
    let outputs = || node.outputs.iter().map(|output| output.name.as_str());
    let inputs = || node.inputs.iter().map(|input| input.name.as_str());
    let is_named = |known: &str| known == name && !name.contains('~');
    if let Some(output) = outputs().position(is_named) {
        return Ok(NodeEnd::Output(index(output)));
    }
    if let Some(input) = inputs().position(is_named) {
        return Ok(NodeEnd::Input(index(input)));
    }
    let known = outputs().chain(inputs()).filter(|name| !name.contains('~'));
    let hint = did_you_mean(name, "it has", known);
    let reason = format!("node `{}` has no output or input `{name}`", node.id);
    Err(Refused::new(reason, Some(&hint)))
}
