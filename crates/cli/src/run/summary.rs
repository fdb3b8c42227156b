//! How a run went.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use nervure_keeper::plan::Plan;
use nervure_protocol::keeper_to_run::NodeEnded;

use super::{display::plain_text, edge_table, edges::Edges, format, is_final_failure, watched::Watched};
use crate::validate::count;

/// Lines of a failed node's stderr that are repeated.
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

/// How a run went.
#[derive(Debug)]
pub struct Summary {
    dataflow: String,
    nodes: usize,
    log_folder: PathBuf,
    /// The last end of each node that ended.
    ends: BTreeMap<u32, NodeEnded>,
    restarts: usize,
    has_finished: bool,
    lossless_lost: bool,
    watched: Watched,
}

impl Summary {
    pub fn new(plan: &Plan) -> Self {
        Self {
            dataflow: plan.dataflow.clone(),
            nodes: plan.nodes.len(),
            log_folder: plan.log_folder.clone(),
            ends: BTreeMap::new(),
            restarts: 0,
            has_finished: false,
            lossless_lost: false,
            watched: Watched::new(plan),
        }
    }

    /// A process ended.
    pub fn node_ended(&mut self, ended: &NodeEnded) {
        self.restarts += usize::from(ended.restarts);
        self.ends.insert(ended.node, ended.clone());
    }

    /// Every node ended.
    pub fn finished(&mut self) {
        self.has_finished = true;
    }

    /// The counters were read for the last time.
    pub fn edges(&mut self, edges: &Edges) {
        self.watched.read(edges);
        self.lossless_lost = edges.iter().any(|edge| edge.is_lossless() && edge.lost() > 0);
    }

    /// True when every node ended well, and no lossless edge lost anything.
    pub fn is_perfect(&self) -> bool {
        self.has_finished && !self.lossless_lost && self.failures().next().is_none()
    }

    /// Nodes that failed in the end.
    pub fn failures(&self) -> impl Iterator<Item = &NodeEnded> {
        self.ends.values().filter(|ended| is_final_failure(ended))
    }

    /// Expectations of the file that were not met.
    pub fn watched(&self) -> &Watched {
        &self.watched
    }

    /// Where the log files are.
    pub fn log_folder(&self) -> &std::path::Path {
        &self.log_folder
    }

    /// For people.
    pub fn text(&self, edges: &Edges, elapsed: Duration) -> String {
        let mut text = String::from("\n");
        let failed = self.failures().count();
        let mut facts = vec![count(self.nodes, "node")];
        if failed > 0 {
            facts.push(format!("{failed} failed"));
        }
        if self.restarts > 0 {
            facts.push(count(self.restarts, "restart"));
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
        for line in self.watched.lines() {
            text.push_str(&format!("\n{line}\n"));
        }
        for ended in self.failures() {
            text.push_str(&format!("\nnode `{}` failed: {}\n", ended.id, ended.reason));
            let skipped = ended.stderr_tail.len().saturating_sub(SHOWN_STDERR);
            for line in &ended.stderr_tail[skipped..] {
                text.push_str(&format!("    {}\n", plain_text(line)));
            }
        }
        text.push_str(&format!("\nlogs: {}\n", self.log_folder.display()));
        text
    }
}
