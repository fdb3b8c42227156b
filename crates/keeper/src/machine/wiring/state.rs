//! The instances of every edge, and further state of each edge.

use std::collections::BTreeSet;

use nervure_protocol::{
    report::{EdgeStatus, EdgeWired},
    wiring::{EdgeState, Return},
};

use super::pairs::Pairs;
use crate::{
    machine::graph::{Graph, index},
    plan::{EdgePlan, OBSERVERS_PER_OUTPUT},
};

/// Every instance of every edge.
#[derive(Debug)]
pub(crate) struct Wiring {
    pub(super) instances: Vec<Instance>,
    pub(super) pairs: Pairs,
    pub(super) next_edge: u32,
    /// Per edge of the plan.
    pub(super) specs: Vec<Spec>,
    /// Per node of the plan's file: rows of its counters page that are for edges of the file.
    own_rows: Vec<u32>,
}

/// State of an edge of the plan besides its instances.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    /// Row in the producer's counters page, whichever process is at the other end.
    pub row: u32,
    /// The row has counted for another edge, and the producer has not cleared it yet.
    pub row_needs_clearing: bool,
    /// Its consumer's process knows that no producer will follow.
    pub closed_for_good: bool,
    /// The producer's process sends nothing more on it.
    pub output_closed: bool,
    /// The producer's process has had an edge.
    pub was_attached: bool,
    /// The last notice of the consumer's return to the producer's process, while there is no edge.
    pub returns: Return,
    /// The last instance that was reported.
    pub wired: Option<EdgeWired>,
    /// Its fault, as last reported.
    pub status: Option<EdgeStatus>,
}

/// A queue of a node that is gone with its producer's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoneQueue {
    /// Index of the input, which is its row in the consumer's counters page.
    pub input: u32,
    /// Index of the producing node.
    pub producer: usize,
    /// Row in the producer's counters page.
    pub row: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Instance {
    /// The edge's id on the wire.
    pub id: u32,
    /// Index of the edge in the plan.
    pub spec: usize,
    pub producer: EndState,
    pub consumer: EndState,
    /// It was offered to the producer, so there may be samples in it.
    pub was_offered: bool,
    /// An earlier process of the consumer had it, and may have written to it.
    pub is_inherited: bool,
    /// The incarnations of producer and consumer in the last report to `run`.
    pub between: (u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndState {
    /// To be attached when both ends, or at first this end, are connected.
    Away,
    /// Attached.
    Attached,
    /// The process is gone, and no other will be attached here.
    Gone,
}

impl Wiring {
    pub fn new(graph: &Graph) -> Self {
        let mut own_rows = vec![0; graph.own_nodes()];
        let spec = |edge: &EdgePlan| {
            let next = &mut own_rows[edge.producer];
            let row = *next;
            *next += 1;
            Spec {
                row,
                row_needs_clearing: false,
                closed_for_good: false,
                output_closed: false,
                was_attached: false,
                returns: Return::Never,
                wired: None,
                status: None,
            }
        };
        let specs = graph.edges().iter().map(spec).collect();
        Self {
            instances: Vec::new(),
            pairs: Pairs::default(),
            next_edge: 0,
            specs,
            own_rows,
        }
    }

    /// Rows for edges of outputs in a node's counters page.
    pub fn counters_rows(&self, graph: &Graph, node: usize) -> u32 {
        let own = self.own_rows.get(node).copied().unwrap_or(0);
        own + OBSERVERS_PER_OUTPUT * index(graph.node(node).outputs.len())
    }

    /// The plan has one more edge, of a guest: gives it a row.
    pub fn add_edge(&mut self, graph: &Graph) {
        let producer = graph.edge(self.specs.len()).producer;
        let of_producer = graph
            .edges()
            .iter()
            .zip(&self.specs)
            .filter(|(edge, _)| edge.producer == producer);
        let used: BTreeSet<u32> = of_producer.map(|(_, spec)| spec.row).collect();
        let row = (self.own_rows[producer]..)
            .find(|row| !used.contains(row))
            .expect("rows are numbers");
        self.specs.push(Spec {
            row,
            row_needs_clearing: true,
            closed_for_good: false,
            output_closed: false,
            was_attached: false,
            returns: Return::Never,
            wired: None,
            status: None,
        });
    }

    /// Removes the edges of a guest, which have no instances any more. The graph still has them.
    pub fn remove_edges(&mut self, graph: &Graph, guest: usize) {
        let stays: Vec<bool> = graph
            .edges()
            .iter()
            .map(|edge| edge.consumer != guest)
            .collect();
        let number_of = |spec: usize| stays[..spec].iter().filter(|stays| **stays).count();
        for instance in &mut self.instances {
            assert!(stays[instance.spec], "the guest's edges were unwired");
            instance.spec = number_of(instance.spec);
        }
        let mut stay = stays.iter();
        self.specs.retain(|_| stay.next() == Some(&true));
    }

    /// A node that had ended is started again: its consumers are notified of its next end.
    pub fn expect_again(&mut self, graph: &Graph, producer: usize) {
        for (edge, spec) in graph.edges().iter().zip(&mut self.specs) {
            if edge.producer == producer {
                spec.closed_for_good = false;
            }
        }
    }

    /// The edge of the plan that an instance belongs to.
    pub fn plan_of(&self, edge: u32) -> Option<usize> {
        self.position(edge).map(|at| self.instances[at].spec)
    }

    /// Whether the consumer's process has the edge from an earlier one.
    pub fn is_inherited(&self, edge: u32) -> bool {
        let at = self.position(edge);
        at.is_some_and(|at| self.instances[at].is_inherited)
    }

    pub(super) fn position(&self, edge: u32) -> Option<usize> {
        self.instances
            .iter()
            .position(|instance| instance.id == edge)
    }

    /// The instances of an edge that producers which are gone have left for its consumer, the
    /// oldest first.
    pub(super) fn left_behind(&self, spec: usize) -> Vec<u32> {
        let is_left =
            |instance: &&Instance| instance.spec == spec && instance.producer == EndState::Gone;
        let left = self.instances.iter().filter(is_left);
        let mut ids: Vec<_> = left.map(|instance| instance.id).collect();
        ids.sort_unstable();
        ids
    }

    /// True when a node has an instance of a `block` edge as its consumer.
    pub fn has_lossless_input(&self, graph: &Graph, node: usize) -> bool {
        self.instances.iter().any(|instance| {
            let edge = graph.edge(instance.spec);
            edge.consumer == node && edge.is_lossless()
        })
    }

    /// The queues of a node's edges that drop, of which no present process of a producer has counted
    /// the end.
    pub fn queues_gone(&self, graph: &Graph, node: usize) -> Vec<GoneQueue> {
        let edges = graph.edges().iter().zip(&self.specs);
        let gone = edges.filter(|(edge, spec)| {
            edge.consumer == node && !edge.is_lossless() && !spec.was_attached
        });
        let queue = |(edge, spec): (&EdgePlan, &Spec)| GoneQueue {
            input: index(edge.input),
            producer: edge.producer,
            row: spec.row,
        };
        gone.map(queue).collect()
    }

    /// How an edge of the plan was wired last.
    pub fn last_wired(&self, spec: usize) -> Option<&EdgeWired> {
        self.specs[spec].wired.as_ref()
    }

    /// True when the consumer's process knows that no producer will follow.
    pub fn is_closed_for_good(&self, spec: usize) -> bool {
        self.specs[spec].closed_for_good
    }

    /// The reported fault of an edge of the plan.
    pub fn status(&self, spec: usize) -> Option<&EdgeStatus> {
        self.specs[spec].status.as_ref()
    }

    /// Notes the reported status of an edge. A failure stays.
    pub fn note_status(&mut self, spec: usize, status: &EdgeStatus) {
        let known = &mut self.specs[spec].status;
        if known
            .as_ref()
            .is_none_or(|known| known.state != EdgeState::Failed)
        {
            *known = (status.state != EdgeState::Working).then(|| status.clone());
        }
    }

    /// The instance of an edge that has a producer, or will have one.
    pub(super) fn live(&self, spec: usize) -> Option<usize> {
        let is_live =
            |instance: &Instance| instance.spec == spec && instance.producer != EndState::Gone;
        self.instances.iter().position(is_live)
    }
}
