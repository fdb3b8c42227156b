//! The result of a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use nervure_inspect::{
    edges::{Edge, Edges},
    format::{self, count},
};
use nervure_keeper::plan::Plan;
use nervure_protocol::{report::NodeEnded, wiring};
use serde::Serialize;

use super::{edge_table, nodes::Nodes, watched::Watched};
use crate::output::{plain_text, safe};

/// Lines of a failed node's stderr that the summary shows.
const SHOWN_STDERR: usize = 8;

/// Outputs and nodes that a line of the summary names.
const SHOWN_NAMES: usize = 8;

const COLUMNS: [edge_table::Column; 10] = [
    edge_table::EDGE,
    edge_table::SENT,
    edge_table::RECEIVED,
    edge_table::LOST,
    edge_table::NOT_TAKEN,
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
    /// Samples that lossless edges sent and their consumers did not take.
    lossless_not_taken: u64,
    /// Topics that carry requests and answers of services.
    service_topics: BTreeSet<String>,
    /// Topics with consumers on which nothing was ever sent.
    never_sent: BTreeSet<String>,
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
            lossless_not_taken: 0,
            service_topics: service_topics(plan),
            never_sent: BTreeSet::new(),
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
        let lossless = edges.iter().filter(|edge| edge.is_lossless());
        self.lossless_unknown = lossless.clone().any(|edge| edge.unreadable().is_some());
        self.lossless_lost = lossless.clone().any(|edge| edge.lost() > 0);
        self.lossless_not_taken = lossless.map(Edge::not_taken).fold(0, u64::saturating_add);
        self.never_sent = self.silent_topics(edges);
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

    /// Topics whose producer has started, but has sent nothing to any consumer.
    fn silent_topics(&self, edges: &Edges) -> BTreeSet<String> {
        let has_started = |edge: &&Edge| self.states.has_started(edge.producer_node());
        let is_silent = |edge: &Edge| edge.has_output() && edge.totals().published() == 0;
        let own = || edges.iter().filter(|edge| !edge.observer);
        let mut silent: BTreeSet<String> = own()
            .filter(has_started)
            .map(|edge| edge.topic.clone())
            .filter(|topic| !self.service_topics.contains(topic))
            .collect();
        for edge in own().filter(|edge| !is_silent(edge)) {
            silent.remove(&edge.topic);
        }
        silent
    }

    /// True if a node was started, every node ended well, every edge worked to the end, and no
    /// lossless edge lost samples. Unreadable counters of a lossless edge count as a loss; samples
    /// that were not taken do not.
    pub fn is_perfect(&self) -> bool {
        self.has_finished
            && !self.states.none_started()
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

    /// Topics with consumers on which nothing was ever sent.
    pub fn never_sent(&self) -> &BTreeSet<String> {
        &self.never_sent
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

    /// `test ran for 1.2 s: 2 nodes, 1 restart`
    fn heading(&self, elapsed: Duration) -> String {
        let failed = self.failures().count();
        let mut facts = vec![count(self.nodes, "node")];
        if failed > 0 {
            facts.push(format!("{failed} failed"));
        }
        match self.states.restarts() {
            0 => {}
            restarts => facts.push(count(restarts, "restart")),
        }
        format!(
            "\n{} ran for {}: {}\n",
            self.dataflow,
            format::elapsed(elapsed),
            facts.join(", ")
        )
    }

    /// Samples that lossless edges still held, nodes that never started, and outputs never sent.
    fn left_undone(&self) -> String {
        let mut text = String::new();
        if self.lossless_not_taken > 0 {
            text.push_str(&format!(
                "\n{} of edges with `queue_policy: block` not taken: in their queues when the consumer ended; \
                 `nervure stop --drain` lets consumers finish\n",
                count(self.lossless_not_taken as usize, "sample")
            ));
        }
        let never_started = self.states.never_started();
        if !never_started.is_empty() {
            let nodes = never_started.len();
            text.push_str(&format!(
                "\n{} never started: {}\n",
                count(nodes, "node"),
                names(never_started)
            ));
        }
        if !self.never_sent.is_empty() {
            let topics = self.never_sent.iter().map(String::as_str);
            text.push_str(&format!(
                "\nnothing was ever sent on {}\n",
                names(topics.collect())
            ));
        }
        text
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
        let mut text = self.heading(elapsed);
        if edges.iter().len() > 0 {
            text.push('\n');
            let has_untaken = edges.iter().any(|edge| edge.not_taken() > 0);
            let columns = COLUMNS
                .iter()
                .filter(|column| has_untaken || !column.is(&edge_table::NOT_TAKEN));
            text.push_str(&edge_table::table(edges.iter(), columns).render(None));
        }
        text.push_str(&self.left_undone());
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

fn service_topics(plan: &Plan) -> BTreeSet<String> {
    let of_node = |node: &nervure_keeper::plan::NodePlan| {
        let answers = node.services.iter().flat_map(|service| &service.clients);
        let answers = answers.map(|client| client.output);
        let outputs = answers.chain(node.clients.iter().map(|client| client.output));
        let outputs = outputs.filter_map(|output| node.outputs.get(output as usize));
        outputs
            .map(|output| wiring::topic(&node.id, &output.name))
            .collect::<Vec<_>>()
    };
    plan.nodes.iter().flat_map(of_node).collect()
}

/// The first names, and the number of the others.
fn names(names: Vec<&str>) -> String {
    let shown: Vec<_> = names
        .iter()
        .take(SHOWN_NAMES)
        .map(|name| format!("`{name}`"))
        .collect();
    match names.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
