//! The states of the nodes of a run, from the keeper's reports, their processes and their counters.

use std::{fs, time::Duration};

use nervure_inspect::{
    edges::Edges,
    format::{self, count},
};
use nervure_keeper::plan::Plan;
use nervure_protocol::report::{NodeEnded, Report};
use serde_json::{Value, json};

/// The nodes of a dataflow, in the order of its file.
#[derive(Debug)]
pub struct Nodes(Vec<Node>);

#[derive(Debug)]
struct Node {
    id: String,
    /// A node with `path: dynamic`, whose process joins.
    dynamic: bool,
    /// Whether it had a process.
    has_started: bool,
    pid: Option<u32>,
    restarts: u32,
    /// The end of the last process, until the next one starts.
    ended: Option<NodeEnded>,
    /// SIGSTOP or a debugger has stopped the process.
    is_stopped: bool,
    took_nothing_for: Option<Duration>,
}

impl Nodes {
    /// The nodes of a plan, before their start.
    pub fn new(plan: &Plan) -> Self {
        let node = |plan: &nervure_keeper::plan::NodePlan| Node {
            id: plan.id.clone(),
            dynamic: plan.is_dynamic(),
            has_started: false,
            pid: None,
            restarts: 0,
            ended: None,
            is_stopped: false,
            took_nothing_for: None,
        };
        Self(plan.nodes.iter().map(node).collect())
    }

    /// Updates a node from a report of the keeper.
    pub fn handle_report(&mut self, message: &Report) {
        let index = match message {
            Report::NodeStarted(started) => started.node,
            Report::NodeEnded(ended) => ended.node,
            _ => return,
        };
        let Some(node) = self.0.get_mut(index as usize) else {
            return;
        };
        match message {
            Report::NodeStarted(started) => {
                (node.pid, node.ended) = (Some(started.pid), None);
                node.has_started = true;
            }
            Report::NodeEnded(ended) => {
                node.restarts += u32::from(ended.restarts);
                (node.pid, node.ended) = (None, Some(ended.clone()));
            }
            _ => {}
        }
    }

    /// Updates all nodes from their processes and from the last reading of the edges.
    pub fn update(&mut self, edges: &Edges) {
        for (index, node) in (0..).zip(&mut self.0) {
            node.is_stopped = node.pid.is_some_and(is_stopped);
            let inputs = edges
                .iter()
                .filter(|edge| edge.consumer_node() == index && !edge.observer);
            node.took_nothing_for = inputs
                .filter_map(|edge| edge.activity().took_nothing_for())
                .max();
        }
    }

    /// The problems of nodes as text; `None` if all run or have ended well.
    pub fn problems(&self) -> Option<String> {
        let problems: Vec<_> = self.0.iter().filter_map(Node::problems).collect();
        (!problems.is_empty()).then(|| problems.join(", "))
    }

    /// Restarts of all nodes.
    pub fn restarts(&self) -> usize {
        self.0.iter().map(|node| node.restarts as usize).sum()
    }

    /// A line for each node that was restarted.
    pub fn restarted(&self) -> impl Iterator<Item = String> {
        let restarted = self.0.iter().filter(|node| node.restarts > 0);
        restarted.map(|node| {
            format!(
                "node `{}` was restarted {}",
                node.id,
                count(node.restarts as usize, "time")
            )
        })
    }

    /// Nodes that never had a process, without those that could not be started.
    pub fn never_started(&self) -> Vec<&str> {
        let nodes = self.0.iter();
        let never = nodes.filter(|node| !node.has_started && node.ended.is_none());
        never.map(|node| node.id.as_str()).collect()
    }

    /// True if the node of that index has had a process.
    pub fn has_started(&self, index: u32) -> bool {
        let node = self.0.get(index as usize);
        node.is_some_and(|node| node.has_started)
    }

    /// True if no node ever had a process.
    pub fn none_started(&self) -> bool {
        !self.0.iter().any(|node| node.has_started)
    }

    /// The nodes as JSON.
    pub fn json(&self) -> Value {
        self.0.iter().map(Node::json).collect()
    }
}

impl Node {
    fn state(&self) -> &'static str {
        match &self.ended {
            Some(ended) if ended.restarts => "restarts",
            Some(ended) if ended.failed => "failed",
            Some(_) | None if self.dynamic && self.pid.is_none() => "absent",
            Some(_) => "ended",
            None if self.is_stopped => "halted",
            None if self.took_nothing_for.is_some() => "takes-nothing",
            None if self.pid.is_some() => "runs",
            None => "starts",
        }
    }

    fn problems(&self) -> Option<String> {
        let id = &self.id;
        Some(match (self.state(), self.took_nothing_for) {
            ("restarts", _) => format!("`{id}` restarts"),
            ("failed", _) => format!("`{id}` failed"),
            ("halted", _) => format!("`{id}` is halted by a signal"),
            ("takes-nothing", Some(idle)) => {
                format!("`{id}` took nothing for {}", format::elapsed(idle))
            }
            _ => return None,
        })
    }

    fn json(&self) -> Value {
        json!({
            "id": self.id,
            "state": self.state(),
            "pid": self.pid,
            "restarts": self.restarts,
            "took_nothing_seconds": self.took_nothing_for.map(|idle| idle.as_secs_f64()),
        })
    }
}

/// Whether a process is in state `T` or `t` of proc(5).
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('T' | 't'))
}
