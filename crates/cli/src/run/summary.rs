//! The result of a run.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use nervure_keeper::plan::Plan;
use nervure_protocol::report::NodeEnded;
use serde::Serialize;

use super::{
    edge_table,
    edges::{Edge, Edges},
    nodes::Nodes,
    watched::Watched,
};
use crate::{
    format::{self, count},
    output::{plain_text, safe},
};

/// Lines of a failed node's stderr that the summary shows.
const SHOWN_STDERR: usize = 8;

const COLUMNS: [edge_table::Column; 9] = [
    edge_table::EDGE,
    edge_table::SENT,
    edge_table::RECEIVED,
    edge_table::LOST,
    edge_table::TOTAL_P50,
    edge_table::TOTAL_P99,
    edge_table::MAX,
    edge_table::WAITED,
    edge_table::WHY_LOST,
];

/// The result of a run.
#[derive(Debug)]
pub struct Summary {
    dataflow: String,
    nodes: usize,
    log_folder: Option<PathBuf>,
    /// The last end of each node.
    ends: BTreeMap<u32, NodeEnded>,
    states: Nodes,
    has_finished: bool,
    lossless_lost: bool,
    /// Edges that did not work to the end.
    failed_edges: Vec<FailedEdge>,
    /// The counters of a lossless edge are not readable.
    lossless_unknown: bool,
    watched: Watched,
}

/// An edge that did not work to the end.
#[derive(Debug, Serialize)]
pub struct FailedEdge {
    topic: String,
    input: String,
    cause: String,
}

impl Summary {
    pub fn new(plan: &Plan) -> Self {
        Self {
            dataflow: plan.dataflow.clone(),
            nodes: plan.nodes.len(),
            log_folder: plan.log_folder.clone().filter(|_| plan.log_limit.is_some()),
            ends: BTreeMap::new(),
            states: Nodes::new(plan),
            has_finished: false,
            lossless_lost: false,
            failed_edges: Vec::new(),
            lossless_unknown: false,
            watched: Watched::new(plan),
        }
    }

    /// Notes the end of a process.
    pub fn node_ended(&mut self, ended: &NodeEnded) {
        self.ends.insert(ended.node, ended.clone());
    }

    /// Notes that every node has ended.
    pub fn finished(&mut self) {
        self.has_finished = true;
    }

    /// Takes the last reading of the counters.
    pub fn edges(&mut self, edges: &Edges) {
        self.watched.read(edges);
        let mut lossless = edges.iter().filter(|edge| edge.is_lossless());
        self.lossless_unknown = lossless.clone().any(|edge| edge.unreadable().is_some());
        self.lossless_lost = lossless.any(|edge| edge.lost() > 0);
        let failed = |edge: &Edge| {
            let shortage = edge.shortage().filter(|shortage| !shortage.is_over);
            let cause = edge
                .failure()
                .or(shortage.map(|shortage| shortage.cause.as_str()))?
                .to_owned();
            Some(FailedEdge {
                topic: edge.topic.clone(),
                input: edge.input.clone(),
                cause,
            })
        };
        self.failed_edges = edges.iter().filter_map(failed).collect();
    }

    /// True if every node ended well, every edge worked to the end, and no lossless edge lost
    /// samples. Unreadable counters of a lossless edge count as a loss.
    pub fn is_perfect(&self) -> bool {
        self.has_finished
            && !self.lossless_lost
            && !self.lossless_unknown
            && self.failed_edges.is_empty()
            && self.failures().next().is_none()
    }

    /// Edges that did not work to the end.
    pub fn failed_edges(&self) -> &[FailedEdge] {
        &self.failed_edges
    }

    /// Nodes that failed in the end.
    pub fn failures(&self) -> impl Iterator<Item = &NodeEnded> {
        self.ends.values().filter(|ended| is_final_failure(ended))
    }

    /// Expectations of the file that were not met.
    pub fn watched(&self) -> &Watched {
        &self.watched
    }

    /// The folder of the log files, if there are any.
    pub fn log_folder(&self) -> Option<&std::path::Path> {
        self.log_folder.as_deref()
    }

    /// The states of the nodes.
    pub fn nodes(&self) -> &Nodes {
        &self.states
    }

    /// The states of the nodes, for updates.
    pub fn nodes_mut(&mut self) -> &mut Nodes {
        &mut self.states
    }

    /// The failed nodes with the last lines of their stderr, as text.
    pub fn failures_text(&self) -> String {
        let mut text = String::new();
        for ended in self.failures() {
            text.push_str(&format!(
                "\nnode `{}` failed: {}\n",
                ended.id,
                plain_text(&ended.reason)
            ));
            let skipped = ended.stderr_tail.len().saturating_sub(SHOWN_STDERR);
            for line in &ended.stderr_tail[skipped..] {
                text.push_str(&format!("    {}\n", plain_text(line)));
            }
        }
        text
    }

    /// The summary as text.
    pub fn text(&self, edges: &Edges, unwritten: Option<String>, elapsed: Duration) -> String {
        let mut text = String::from("\n");
        let failed = self.failures().count();
        let mut facts = vec![count(self.nodes, "node")];
        if failed > 0 {
            facts.push(format!("{failed} failed"));
        }
        match self.states.restarts() {
            0 => {}
            restarts => facts.push(count(restarts, "restart")),
        }
        text.push_str(&format!(
            "{} ran for {}: {}\n",
            self.dataflow,
            format::elapsed(elapsed),
            facts.join(", ")
        ));
        if edges.iter().len() > 0 {
            text.push('\n');
            text.push_str(&edge_table::table(edges.iter(), &COLUMNS).render(None));
        }
        if self.lossless_lost {
            text.push_str("\nan edge with `queue_policy: block` lost samples\n");
        }
        if self.lossless_unknown {
            text.push_str(
                "\nit is not known whether an edge with `queue_policy: block` lost samples\n",
            );
        }
        for FailedEdge {
            topic,
            input,
            cause,
        } in &self.failed_edges
        {
            text.push_str(&format!("\nedge {topic} -> {input} failed: {cause}\n"));
        }
        for line in self.states.restarted() {
            text.push_str(&format!("\n{line}\n"));
        }
        for line in self.watched.lines() {
            text.push_str(&format!("\n{line}\n"));
        }
        for ended in self
            .ends
            .values()
            .filter(|ended| ended.overdue && !is_final_failure(ended))
        {
            text.push_str(&format!("\nnode `{}`: {}\n", ended.id, ended.reason));
        }
        text.push_str(&self.failures_text());
        if let Some(unwritten) = unwritten {
            text.push_str(&format!("\n{unwritten}\n"));
        }
        if let Some(folder) = &self.log_folder {
            text.push_str(&format!("\nlogs: {}\n", folder.display()));
        }
        safe(&text).into_owned()
    }
}

/// Whether the last end of a node counts as a failure.
fn is_final_failure(ended: &NodeEnded) -> bool {
    ended.failed && !ended.restarts
}
