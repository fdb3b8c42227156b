//! Brings runs up on their machines: first all parts are prepared, then all are started.

use nervure_daemon::state::{ActualRun, DesiredRun, Phase, RunId, RunState, random_id};
use nervure_dataflow::{Dataflow, Node, Program};
use nervure_protocol::daemon_to_cli::NodeState;

use crate::{
    Error, Fleet,
    parts::{self, Part, Parts},
    placement::Instance,
    progress::{Listener, Progress},
};

/// What all instances of a dataflow have in common.
pub struct Launch<'f> {
    /// The fleet.
    pub fleet: &'f Fleet,
    /// The dataflow.
    pub dataflow: &'f Dataflow,
    /// The desired state of each part, without its name and its machines.
    pub template: DesiredRun,
    /// Shows what happens meanwhile.
    pub listener: Listener<'f>,
}

/// A new run of an instance.
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// The instance.
    pub instance: Instance,
    /// Its parts.
    pub parts: Parts,
}

/// The id of a new run.
pub fn new_id() -> Result<RunId, Error> {
    random_id().map_err(Error::Id)
}

impl<'f> Launch<'f> {
    /// A run of an instance, which is to be prepared.
    pub fn run_of(&self, instance: Instance) -> Result<NewRun, Error> {
        let id = new_id()?;
        let part = |(role, machine): (&String, &String)| {
            let part = Part {
                machine: machine.clone(),
                run: id.clone(),
            };
            let desired = DesiredRun {
                phase: Phase::Prepare,
                dataflow: instance.name.clone(),
                role: role.clone(),
                machines: instance.placed.clone(),
                ..self.template.clone()
            };
            (part, desired)
        };
        Ok(NewRun {
            parts: instance.placed.iter().map(part).collect(),
            id,
            instance,
        })
    }

    /// Prepares runs. Returns why that has failed, if it has.
    pub fn prepare(
        &self,
        parts: &Parts,
        progress: &mut Progress<'f>,
    ) -> Result<Vec<String>, Error> {
        parts::insert(self.fleet, parts)?;
        progress.wait("prepare", |_, run| run.state == RunState::Prepared)?;
        Ok(progress.failures())
    }

    /// Starts runs that are prepared. Returns why that has failed, if it has.
    pub fn start(&self, parts: &Parts, progress: &mut Progress<'f>) -> Result<Vec<String>, Error> {
        parts::change_existing(self.fleet, parts.keys(), |run| run.phase = Phase::Run)?;
        progress.wait("run", |part, run| {
            let placed = &parts[part].machines;
            let is_here = |node: &&Node| {
                let role = node.machine.as_ref();
                role.and_then(|role| placed.get(role)) == Some(&part.machine)
            };
            // A dynamic node starts when a user starts it.
            let nodes = self.dataflow.nodes.iter();
            let nodes = nodes.filter(|node| node.program != Program::Dynamic);
            has_started(run, nodes.filter(is_here).map(|node| node.id.as_str()))
        })?;
        Ok(progress.failures())
    }
}

/// The first failed or restarting node of a started part, or the part's own failure.
pub fn trouble(run: &ActualRun) -> Option<String> {
    let node = run.nodes.iter().find(|(_, state)| is_troubled(state));
    let node = node.map(|(node, state)| format!("{node} {state}"));
    node.or_else(|| match &run.state {
        RunState::Failed { reason } => Some(reason.clone()),
        RunState::Waiting => Some("its keeper was killed".to_owned()),
        _ => None,
    })
}

/// Whether a node has failed, for good or not.
pub fn is_troubled(state: &NodeState) -> bool {
    matches!(state, NodeState::Failed { .. } | NodeState::Restarts { .. })
}

/// Whether a run has started on a machine, as far as it has reported: states of nodes arrive one by one.
fn has_started<'d>(run: &ActualRun, nodes: impl IntoIterator<Item = &'d str>) -> bool {
    match run.state {
        RunState::Running { .. } => nodes
            .into_iter()
            .all(|node| !matches!(run.nodes.get(node), None | Some(NodeState::Waiting))),
        RunState::Ended => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn running() -> ActualRun {
        ActualRun {
            dataflow: "two".to_owned(),
            state: RunState::Running { keeper: 1 },
            is_paused: false,
            by_hand: None,
            is_orphan: false,
            is_ready: false,
            nodes: BTreeMap::new(),
            programs: BTreeMap::new(),
            streams: Vec::new(),
        }
    }

    #[test]
    fn a_run_has_started_when_each_of_its_nodes_is_reported_as_started() {
        let mut run = running();
        let mut report = |node: &str, state: NodeState| {
            run.nodes.insert(node.to_owned(), state);
            has_started(&run, ["camera", "motor"])
        };
        assert!(
            !report("camera", NodeState::Running),
            "motor is not declared yet"
        );
        assert!(!report("motor", NodeState::Waiting));
        assert!(report(
            "motor",
            NodeState::Failed {
                reason: String::new()
            }
        ));
        assert!(
            report("viewer", NodeState::Waiting),
            "another node does not matter"
        );
    }

    #[test]
    fn a_node_that_fails_or_starts_again_is_trouble() {
        let mut run = running();
        let mut report = |node: &str, state: NodeState| {
            run.nodes.insert(node.to_owned(), state);
            trouble(&run)
        };
        assert_eq!(report("camera", NodeState::Running), None);
        assert_eq!(
            report("motor", NodeState::Ended),
            None,
            "it may have had its work"
        );
        let restarts = report(
            "motor",
            NodeState::Restarts {
                reason: "exit code 1".to_owned(),
            },
        );
        assert_eq!(restarts.as_deref(), Some("motor restarts: exit code 1"));
        run.nodes.clear();
        run.state = RunState::Waiting;
        assert_eq!(trouble(&run).as_deref(), Some("its keeper was killed"));
    }
}
