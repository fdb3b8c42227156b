//! Edges that do not work as the file says: a process cannot attach one for lack of descriptors or memory, or one end
//! has cut it off.

use nervure_protocol::{
    keeper_to_run::{self, Level},
    node_to_keeper,
    wiring::EdgeState,
};

use super::Machine;

impl Machine {
    /// A node says how an edge does of which it has one end.
    pub(super) fn edge_status(&mut self, node: usize, status: node_to_keeper::EdgeStatus) {
        // The edge was removed meanwhile; nothing depends on it.
        let Some(spec) = self.wiring.plan_of(status.edge) else {
            return;
        };
        let edge = &self.plan.edges[spec];
        let (producer, consumer) = (edge.producer, edge.consumer);
        if node != producer && node != consumer {
            return self.convict(node, "it spoke of an edge that is not its own");
        }
        let name = self.edge_name(spec);
        match status.state {
            EdgeState::Waiting => {
                let text = format!("the edge {name} waits: {}", status.cause);
                self.log(Some(node), Level::Warn, text);
                let cause = format!("node `{}`: {}", self.plan.nodes[node].id, status.cause);
                self.report_edge(spec, EdgeState::Waiting, cause);
            }
            EdgeState::Working => {
                self.log(
                    Some(node),
                    Level::Info,
                    format!("the edge {name} works again"),
                );
                self.report_edge(spec, EdgeState::Working, String::new());
            }
            EdgeState::Failed => {
                // An observer must not cost the dataflow a node.
                let observer = [producer, consumer]
                    .into_iter()
                    .find(|&end| self.is_guest(end));
                let short = &self.plan.nodes[node].id;
                let why = match observer.filter(|&observer| observer != node) {
                    Some(_) => format!(
                        "node `{short}` cannot attach the edge {name}: {}",
                        status.cause
                    ),
                    None => format!("it cannot attach the edge {name}: {}", status.cause),
                };
                self.condemn(observer.unwrap_or(node), why);
            }
            EdgeState::Unknown => {}
        }
    }

    /// A node has cut an edge off, because the peer broke its rules.
    pub(super) fn misbehaviour(&mut self, node: usize, edge_id: u32, what: &str) {
        let of_node = |spec: &usize| {
            let edge = &self.plan.edges[*spec];
            edge.producer == node || edge.consumer == node
        };
        let Some(spec) = self.wiring.plan_of(edge_id).filter(of_node) else {
            return self.log(
                Some(node),
                Level::Error,
                format!("an edge that is gone was cut: {what}"),
            );
        };
        let edge = &self.plan.edges[spec];
        let peer = if edge.producer == node {
            edge.consumer
        } else {
            edge.producer
        };
        let input = self.plan.input(edge);
        let text = format!(
            "node `{}` broke the rules of the edge to `{input}`, which is cut: {what}",
            self.plan.nodes[peer].id
        );
        self.log(Some(node), Level::Error, text.clone());
        self.report_edge(spec, EdgeState::Failed, text);
        self.detach_cut(edge_id, node);
    }

    fn edge_name(&self, spec: usize) -> String {
        let edge = &self.plan.edges[spec];
        format!("`{}` -> `{}`", self.plan.topic(edge), self.plan.input(edge))
    }

    fn report_edge(&mut self, spec: usize, state: EdgeState, cause: String) {
        let edge = &self.plan.edges[spec];
        let (topic, input) = (self.plan.topic(edge), self.plan.input(edge));
        let is_guests = self.is_guest(edge.consumer);
        let status = keeper_to_run::EdgeStatus {
            topic,
            input,
            state,
            cause,
        };
        self.wiring.note_status(spec, &status);
        let message = keeper_to_run::Message::EdgeStatus(status);
        match is_guests {
            true => self.report_to_watchers(message, None),
            false => self.report(message, None),
        }
    }
}
