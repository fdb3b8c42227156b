//! The state of a dataflow, its nodes and its problems.

use std::time::Duration;

use nervure_protocol::keeper_to_cli::{DataflowState, Welcome};

use crate::{
    Error, State,
    answers::{LossyEdge, Status, StatusOfNode, StatusOfPart, UnreachableMachine},
    edges::{Edge, Unreadable},
    places::Place,
    state::NodeState,
};

/// The state of a dataflow.
///
/// # Errors
/// If the dataflow cannot be found or reached.
pub fn status(dataflow: &str) -> Result<Status, Error> {
    let mut state = State::find(Some(dataflow), "status", false)?;
    state.sample();
    Ok(Status::of(&state))
}

impl Status {
    /// A state whose counters were read.
    pub fn of(state: &State) -> Self {
        let welcome = state.welcome();
        let machine = |node| state.machine_of(node).map(str::to_owned);
        let node = |node: &NodeState| {
            let is_its = |unreadable: &&Unreadable| unreadable.node == node.declared.id;
            let unreadable = state.edges.unreadable().find(is_its);
            StatusOfNode {
                id: node.declared.id.clone(),
                machine: machine(node.declared.node),
                state: node.state(),
                pid: node.pid(),
                restarts: node.restarts(),
                program: node.declared.program.clone(),
                file_says: node.declared.file_says.clone(),
                attached: node.declared.attached.clone(),
                last_end: node.ended.clone(),
                not_done: node.awaited().map(str::to_owned),
                unreadable_counters: unreadable.map(|unreadable| unreadable.why.clone()),
            }
        };
        let edge = |edge: &Edge| LossyEdge {
            topic: edge.topic.clone(),
            input: edge.input.clone(),
            lost: edge.has_output().then(|| edge.lost()),
            unreadable: edge.unreadable(),
        };
        let part = |(machine, place, welcome): (Option<&str>, &Place, &Welcome)| StatusOfPart {
            machine: machine.map(str::to_owned),
            keeper: place.keeper(),
            state: welcome.state,
            folder: welcome.folder.clone(),
            log_folder: welcome.log_folder.clone(),
        };
        let is_lossy = |edge: &&Edge| edge.lost() > 0 || !edge.has_output();
        Self {
            dataflow: welcome.dataflow.clone(),
            state: state.dataflow_state(),
            parts: state.parts().map(part).collect(),
            unreachable: state
                .unreachable
                .iter()
                .map(UnreachableMachine::with_nodes)
                .collect(),
            started_utc_nanos: welcome.started_utc_nanos,
            keeper: state.keeper(),
            detached: welcome.detached,
            folder: welcome.folder.clone(),
            log_folder: welcome.log_folder.clone(),
            nodes: state.own_nodes().map(node).collect(),
            streams: state.streams.clone(),
            streams_omitted: state.streams_omitted,
            lossy_edges: state.edges.iter().filter(is_lossy).map(edge).collect(),
            observers: state.observers().map(str::to_owned).collect(),
        }
    }
}

/// The state of a dataflow as text.
pub fn state_name(state: DataflowState) -> &'static str {
    match state {
        DataflowState::Starting => "starting",
        DataflowState::Running => "running",
        DataflowState::Paused => "paused",
        DataflowState::Stopping => "stopping",
        DataflowState::Unknown => "?",
    }
}

/// Time since a point in time, in nanoseconds since the Unix epoch.
pub fn age(utc_nanos: i64) -> Duration {
    let nanos = nervure_shm::utc_nanos().saturating_sub(utc_nanos);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}
