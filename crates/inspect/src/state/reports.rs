//! Takes the reports of keepers into a state.

use std::collections::BTreeMap;

use nervure_node::running::ConnectionError;
use nervure_protocol::{
    keeper_to_cli::{DataflowState, Message, NodeDeclared},
    report::Report,
};
use rustix::fd::OwnedFd;

use super::{NodeState, PART_BITS, State, not_reached};
use crate::{Error, places::Unreachable};

impl State {
    pub(super) fn take(
        &mut self,
        at: usize,
        message: Message,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), Error> {
        match message {
            Message::NodeDeclared(mut declared) => {
                declared.node = index(at, declared.node)?;
                self.declare(declared);
            }
            Message::Report { report } => {
                let report = self.in_part(at, report)?;
                self.report(at, report, descriptor)?;
            }
            Message::Refused(refused) => return Err(ConnectionError::Refused(refused).into()),
            _ => {}
        }
        Ok(())
    }

    /// The report with the indices of all parts. Observers of another machine have its name, since
    /// they may have the same id as one here.
    fn in_part(&self, at: usize, mut report: Report) -> Result<Report, Error> {
        match &mut report {
            Report::NodeStarted(started) => started.node = index(at, started.node)?,
            Report::NodeEnded(ended) => ended.node = index(at, ended.node)?,
            Report::EdgeWired(wired) => {
                wired.producer.0 = index(at, wired.producer.0)?;
                wired.consumer.0 = index(at, wired.consumer.0)?;
                if let (true, Some(machine)) = (wired.observer, self.parts[at].place.machine()) {
                    wired.input = format!("{machine}:{}", wired.input);
                }
            }
            _ => {}
        }
        Ok(report)
    }

    fn declare(&mut self, declared: NodeDeclared) {
        self.nodes.insert(
            declared.node,
            NodeState {
                declared,
                started: None,
                ended: None,
            },
        );
    }

    fn report(
        &mut self,
        at: usize,
        report: Report,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), Error> {
        match report {
            Report::NodeStarted(started) => {
                if let Some(page) = descriptor {
                    self.edges.add_node(&started, &page);
                }
                if !self.nodes.contains_key(&started.node) {
                    // An observer that attached later.
                    self.declare(NodeDeclared {
                        node: started.node,
                        id: started.id.clone(),
                        program: started.id.clone(),
                        observer: started.observer,
                        attached: None,
                        dynamic: false,
                        remote: None,
                        not_done: None,
                        file_says: None,
                        outputs: Vec::new(),
                        inputs: Vec::new(),
                        services: Vec::new(),
                        clients: Vec::new(),
                    });
                }
                if let Some(node) = self.nodes.get_mut(&started.node) {
                    node.started = Some(started);
                    node.ended = None;
                }
            }
            Report::EdgeWired(wired) => self.edges.add(&wired),
            Report::EdgeStatus(status) => self.edges.set_status(&status),
            Report::NodeEnded(ended) => {
                if self
                    .nodes
                    .get(&ended.node)
                    .is_some_and(|node| node.declared.observer)
                {
                    self.nodes.remove(&ended.node);
                    self.edges.remove_node(ended.node);
                } else if let Some(node) = self.nodes.get_mut(&ended.node) {
                    node.ended = Some(ended);
                }
            }
            Report::Finished => {
                self.parts[at].is_finished = true;
                self.is_finished = self.parts.iter().all(|part| part.is_finished);
            }
            Report::Paused => self.parts[at].state = DataflowState::Paused,
            Report::Resumed => self.parts[at].state = DataflowState::Running,
            Report::Ready => {
                if self.parts[at].state == DataflowState::Starting {
                    self.parts[at].state = DataflowState::Running;
                }
                let nodes = self.nodes.iter_mut();
                for (_, node) in nodes.filter(|(node, _)| Self::part_of(**node) == at) {
                    node.declared.not_done = None;
                }
            }
            Report::Log(_) | Report::Unknown => {}
        }
        Ok(())
    }

    /// The machine of a part cannot be reached any more.
    pub(super) fn lose(&mut self, at: usize, error: &ConnectionError) -> Result<(), Error> {
        let part = &mut self.parts[at];
        part.is_gone = true;
        let machine = part.machine.clone().unwrap_or_default();
        let of_part = |node: &u32| Self::part_of(*node) == at;
        let lost: Vec<u32> = self.nodes.keys().copied().filter(of_part).collect();
        let mut nodes = BTreeMap::new();
        for index in lost {
            if let Some(node) = self.nodes.remove(&index)
                && node.declared.remote.is_none()
                && !node.declared.observer
            {
                nodes.insert(node.declared.id.clone(), node.reported());
            }
            self.edges.remove_all_of(index);
        }
        self.unreachable.push(Unreachable {
            machine,
            reason: error.to_string(),
            silence: None,
            nodes,
        });
        if self.parts.iter().all(|part| part.is_gone) {
            let dataflow = self.welcome().dataflow.clone();
            return Err(not_reached(&dataflow, &self.unreachable));
        }
        Ok(())
    }
}

/// The index among all parts of a node of this part.
fn index(part: usize, node: u32) -> Result<u32, Error> {
    match u32::try_from(part) {
        Ok(part) if node >> PART_BITS == 0 && part < 1 << (32 - PART_BITS) => {
            Ok(part << PART_BITS | node)
        }
        _ => Err(Error::NodeIndex {
            node,
            limit: 1 << PART_BITS,
        }),
    }
}
