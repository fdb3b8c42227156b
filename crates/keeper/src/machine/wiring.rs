//! Which edges exist between which processes.
//!
//! An edge of the plan has at most one live instance at a time. It is made when one end says Hello while the other
//! end's process is alive, and each end is attached once it is connected. When an end dies:
//!
//! - the consumer, to be restarted, on a `block` edge: the instance is *suspended*: the producer waits, and the next
//!   process of the consumer inherits the region with what is queued in it;
//! - the consumer, otherwise: the producer is detached, and the next process gets a new instance;
//! - the producer: a connected consumer is told, drains the region and gets a new instance with the next process;
//!   one that is itself away finds what a `block` edge held for it, and so does the next process of one that fails
//!   before it has drained what the producer's last process left there.

use std::collections::BTreeSet;

use nervure_protocol::{keeper_to_node, keeper_to_run, wiring::EdgeState};

use super::{Action, Descriptor, Machine, State, index};
use crate::plan::{OBSERVERS_PER_OUTPUT, Plan, RestartPolicy};

/// Every instance of every edge.
#[derive(Debug)]
pub(super) struct Wiring {
    instances: Vec<Instance>,
    pairs: Vec<Pair>,
    next_edge: u32,
    next_pair: u32,
    /// Per edge of the plan.
    specs: Vec<Spec>,
    /// Per node of the plan's file: rows of its counters page that are for edges of the file.
    own_rows: Vec<u32>,
}

/// What there is to know of an edge of the plan besides its instances.
#[derive(Clone, Debug)]
struct Spec {
    /// Row in the producer's counters page, whichever process is at the other end.
    row: u32,
    /// The row has been another edge's, and the producer was not told yet.
    is_row_used: bool,
    /// Its consumer's process was told that no producer will come any more.
    told_over: bool,
    /// The last instance that was reported.
    wired: Option<keeper_to_run::EdgeWired>,
    /// What is wrong with it, as it was reported.
    status: Option<keeper_to_run::EdgeStatus>,
}

#[derive(Clone, Copy, Debug)]
struct Instance {
    /// The edge's id on the wire.
    id: u32,
    /// Index of the edge in the plan.
    spec: usize,
    producer: EndState,
    consumer: EndState,
    /// The producer was told of it, so there may be samples in it.
    used: bool,
    /// The incarnations of producer and consumer that `run` was told of.
    between: (u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndState {
    /// To be attached when both, or at first this end, are connected.
    Away,
    /// Attached.
    Attached,
    /// The process is gone, and no other will be attached here.
    Gone,
}

/// A producing and a consuming process, which share a socket for all edges between them. Two nodes that feed each
/// other are two pairs.
#[derive(Clone, Copy, Debug)]
struct Pair {
    id: u32,
    producer: usize,
    consumer: usize,
    /// By [`Role`].
    sent: [bool; 2],
}

/// A role of a process in a pair, and the end of the socket that it gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Producer,
    Consumer,
}

impl Wiring {
    pub fn new(plan: &Plan) -> Self {
        let mut own_rows = vec![0; plan.nodes.len()];
        let spec = |edge: &crate::plan::EdgePlan| {
            let next = &mut own_rows[edge.producer];
            let row = *next;
            *next += 1;
            Spec {
                row,
                is_row_used: false,
                told_over: false,
                wired: None,
                status: None,
            }
        };
        let specs = plan.edges.iter().map(spec).collect();
        Self {
            instances: Vec::new(),
            pairs: Vec::new(),
            next_edge: 0,
            next_pair: 0,
            specs,
            own_rows,
        }
    }

    /// Rows for edges of outputs in a node's counters page.
    pub fn counters_rows(&self, plan: &Plan, node: usize) -> u32 {
        let own = self.own_rows.get(node).copied().unwrap_or(0);
        own + OBSERVERS_PER_OUTPUT * index(plan.nodes[node].outputs.len())
    }

    /// The plan has one more edge, of a guest: gives it a row.
    pub fn add_spec(&mut self, plan: &Plan) {
        let producer = plan.edges[self.specs.len()].producer;
        let of_producer = plan
            .edges
            .iter()
            .zip(&self.specs)
            .filter(|(edge, _)| edge.producer == producer);
        let used: BTreeSet<u32> = of_producer.map(|(_, spec)| spec.row).collect();
        let row = (self.own_rows[producer]..)
            .find(|row| !used.contains(row))
            .expect("rows are numbers");
        self.specs.push(Spec {
            row,
            is_row_used: true,
            told_over: false,
            wired: None,
            status: None,
        });
    }

    /// Removes the edges of a guest from the plan. They have no instances any more.
    pub fn remove_specs(&mut self, plan: &mut Plan, guest: usize) {
        let mut kept = Vec::new();
        for (spec, edge) in plan.edges.iter().enumerate() {
            kept.push((edge.consumer != guest).then_some(spec));
        }
        let mut renumbered = 0;
        let new_numbers: Vec<Option<usize>> = kept
            .iter()
            .map(|kept| {
                kept.map(|_| {
                    renumbered += 1;
                    renumbered - 1
                })
            })
            .collect();
        for instance in &mut self.instances {
            instance.spec = new_numbers[instance.spec].expect("the guest's edges were unwired");
        }
        let mut keep = kept.iter().map(Option::is_some);
        self.specs.retain(|_| keep.next() == Some(true));
        plan.edges.retain(|edge| edge.consumer != guest);
    }

    /// A node that had ended is started again: its consumers will hear of its next end.
    pub fn expect_again(&mut self, plan: &Plan, producer: usize) {
        for (edge, spec) in plan.edges.iter().zip(&mut self.specs) {
            if edge.producer == producer {
                spec.told_over = false;
            }
        }
    }

    /// The edge of the plan that a live instance belongs to.
    pub fn plan_of(&self, edge: u32) -> Option<usize> {
        self.instances
            .iter()
            .find(|instance| instance.id == edge)
            .map(|instance| instance.spec)
    }

    /// True when the consumer's process was told that no producer will come any more.
    pub fn is_over(&self, spec: usize) -> bool {
        self.specs[spec].told_over
    }

    /// What was reported of an edge of the plan, if something is wrong with it.
    pub fn status(&self, spec: usize) -> Option<&keeper_to_run::EdgeStatus> {
        self.specs[spec].status.as_ref()
    }

    /// Remembers what is reported of an edge. That it was cut off stays true.
    pub fn note_status(&mut self, spec: usize, status: &keeper_to_run::EdgeStatus) {
        let known = &mut self.specs[spec].status;
        if known
            .as_ref()
            .is_none_or(|known| known.state != EdgeState::Failed)
        {
            *known = (status.state != EdgeState::Working).then(|| status.clone());
        }
    }

    fn live(&self, spec: usize) -> Option<usize> {
        let is_live =
            |instance: &Instance| instance.spec == spec && instance.producer != EndState::Gone;
        self.instances.iter().position(is_live)
    }
}

impl Machine {
    /// Attaches every edge of a node that has just connected.
    pub(super) fn wire(&mut self, node: usize) {
        for spec in 0..self.plan.edges.len() {
            let (producer, consumer) = (
                self.plan.edges[spec].producer,
                self.plan.edges[spec].consumer,
            );
            if consumer == node {
                self.inherit(spec);
                self.catch_up_on_last_value(spec);
            }
            let consumer_is_expected = self.nodes[consumer].is_present() || self.is_awaited(spec);
            let has_both = self.nodes[producer].is_present() && consumer_is_expected;
            if (producer == node || consumer == node) && has_both {
                let at = self.wiring.live(spec).unwrap_or_else(|| self.create(spec));
                self.attach(at);
            }
            if consumer == node && self.nodes[producer].has_ended() {
                self.tell_over(spec);
            }
        }
    }

    /// Whether samples wait in the edge for a consumer that will be started again. A producer that is started meanwhile
    /// gets the edge, too: it would send to nobody, and nobody would count that.
    fn is_awaited(&self, spec: usize) -> bool {
        let edge = &self.plan.edges[spec];
        let is_absent = matches!(self.nodes[edge.consumer].state, State::Waiting { .. });
        edge.is_lossless() && is_absent && !self.is_dynamic(edge.consumer)
    }

    /// Undoes the edges of a node whose process is gone.
    pub(super) fn unwire(&mut self, node: usize, restarts: bool) {
        // A dynamic node may never come back: nobody waits for it.
        let is_awaited = restarts && !self.is_dynamic(node);
        for peer in self.connected_neighbours(node) {
            self.actions.push(Action::Ring { node: peer });
        }
        self.forget_pairs(node);
        for at in (0..self.wiring.instances.len()).rev() {
            let edge = &self.plan.edges[self.wiring.instances[at].spec];
            let (producer, consumer) = (edge.producer, edge.consumer);
            if producer == node && consumer == node {
                self.remove(at);
            } else if producer == node {
                self.producer_gone(at, restarts);
            } else if consumer == node {
                self.consumer_gone(at, is_awaited);
            }
        }
        for spec in 0..self.plan.edges.len() {
            let (producer, consumer) = (
                self.plan.edges[spec].producer,
                self.plan.edges[spec].consumer,
            );
            if consumer == node {
                self.wiring.specs[spec].told_over = false;
            } else if producer == node && !restarts && self.nodes[consumer].is_connected() {
                self.tell_over(spec);
            }
        }
    }

    /// Its node says that it is done, while its process goes on.
    pub(super) fn goodbye(&mut self, node: usize) {
        self.nodes[node].left = true;
        let plan = &self.plan.nodes[node];
        // Also when it was stopped by hand: it is held, or starts again.
        let was_ordered = self.nodes[node].ordered.is_some() && !self.phase.is_stopping();
        let may_restart = plan.restart.policy != RestartPolicy::Never || was_ordered;
        // Something may follow on its outputs: its next process, or a last value if it goes on to fail.
        let may_follow = may_restart || !plan.on_failure.is_empty();
        for at in (0..self.wiring.instances.len()).rev() {
            let edge = &self.plan.edges[self.wiring.instances[at].spec];
            if edge.consumer == node {
                // What waits in a `block` edge is for its next process, if there is one: its end will tell.
                if !(may_restart && edge.is_lossless()) {
                    self.consumer_gone(at, false);
                }
            } else if edge.producer == node {
                self.producer_gone(at, may_follow);
            }
        }
    }

    pub(super) fn connected_neighbours(&self, node: usize) -> Vec<usize> {
        let edges = self.plan.edges.iter();
        let mut neighbours: Vec<_> = edges
            .filter_map(
                |edge| match (edge.producer == node, edge.consumer == node) {
                    (true, false) => Some(edge.consumer),
                    (false, true) => Some(edge.producer),
                    _ => None,
                },
            )
            .filter(|&neighbour| self.nodes[neighbour].is_connected())
            .collect();
        neighbours.sort_unstable();
        neighbours.dedup();
        neighbours
    }

    fn create(&mut self, spec: usize) -> usize {
        let id = self.wiring.next_edge;
        self.wiring.next_edge += 1;
        let edge = &self.plan.edges[spec];
        let blocks = self.plan.nodes[edge.producer].outputs[edge.output].blocks;
        self.actions.push(Action::CreateRegion {
            edge: id,
            depth: edge.queue.depth,
            blocks,
        });
        self.wiring.instances.push(Instance {
            id,
            spec,
            producer: EndState::Away,
            consumer: EndState::Away,
            used: false,
            between: self.incarnations(spec),
        });
        let at = self.wiring.instances.len() - 1;
        self.report_wired(at);
        at
    }

    fn incarnations(&self, spec: usize) -> (u32, u32) {
        let edge = &self.plan.edges[spec];
        (
            self.nodes[edge.producer].incarnation,
            self.nodes[edge.consumer].incarnation,
        )
    }

    fn report_wired(&mut self, at: usize) {
        let Instance {
            id, spec, between, ..
        } = self.wiring.instances[at];
        let edge = &self.plan.edges[spec];
        let is_guests = self.is_guest(edge.consumer);
        let wired = keeper_to_run::EdgeWired {
            edge: id,
            producer: (index(edge.producer), between.0),
            producer_row: self.wiring.specs[spec].row,
            topic: self.plan.topic(edge),
            consumer: (index(edge.consumer), between.1),
            consumer_row: index(edge.input),
            input: self.plan.input(edge),
            queue: edge.queue,
            observer: is_guests,
        };
        // What one of its processes lacked, the next one may have.
        let spec = &mut self.wiring.specs[spec];
        spec.status = spec
            .status
            .take()
            .filter(|status| status.state == EdgeState::Failed);
        spec.wired = Some(wired.clone());
        let message = keeper_to_run::Message::EdgeWired(wired);
        match is_guests {
            true => self.report_to_watchers(message, None),
            false => self.report(message, None),
        }
    }

    /// How an edge of the plan was wired last, if it was.
    pub(super) fn last_wired(&self, spec: usize) -> Option<keeper_to_run::EdgeWired> {
        self.wiring.specs[spec].wired.clone()
    }

    fn remove(&mut self, at: usize) {
        let instance = self.wiring.instances.swap_remove(at);
        self.actions
            .push(Action::ReleaseRegion { edge: instance.id });
    }

    /// Attaches both ends, as far as they are connected.
    fn attach(&mut self, at: usize) {
        let Instance {
            id,
            spec,
            between,
            used,
            ..
        } = self.wiring.instances[at];
        let edge = &self.plan.edges[spec];
        let (producer, consumer, is_lossless) = (edge.producer, edge.consumer, edge.is_lossless());
        if between != self.incarnations(spec) {
            self.wiring.instances[at].between = self.incarnations(spec);
            self.report_wired(at);
        }
        // A suspended edge is given back to its producer only with a consumer that is there.
        let consumer_in_sight = self.nodes[consumer].is_connected() || !used;
        if self.wiring.instances[at].producer == EndState::Away
            && self.nodes[producer].is_connected()
            && consumer_in_sight
        {
            self.wiring.instances[at].producer = EndState::Attached;
            self.wiring.instances[at].used = true;
            self.send_attach_output(id, spec);
            if self.is_awaited(spec) {
                // What rings for the consumer's next process, and its socket, come with that process.
                self.wiring.instances[at].producer = EndState::Away;
                let message = keeper_to_node::Message::DetachOutput {
                    edge: id,
                    suspended: true,
                };
                self.send(producer, message, Vec::new());
                self.forget_pairs(consumer);
            }
        }
        if self.wiring.instances[at].consumer == EndState::Away
            && self.nodes[consumer].is_connected()
        {
            self.wiring.instances[at].consumer = EndState::Attached;
            let peer = self.peer(spec, Role::Consumer);
            self.send_attach_input(at, peer);
        }
        let Instance {
            producer, consumer, ..
        } = self.wiring.instances[at];
        if (producer, consumer) == (EndState::Attached, EndState::Attached) && !is_lossless {
            // Nobody will inherit it: descriptors are scarce in a large dataflow.
            self.actions.push(Action::ReleaseRegion { edge: id });
        }
    }

    /// Gives a consumer what producers that are gone have left for it, the oldest first.
    fn inherit(&mut self, spec: usize) {
        let producer_has_ended = self.nodes[self.plan.edges[spec].producer].has_ended();
        let is_left =
            |instance: &Instance| instance.spec == spec && instance.producer == EndState::Gone;
        let left = self
            .wiring
            .instances
            .iter()
            .filter(|instance| is_left(instance));
        let mut ids: Vec<_> = left.map(|instance| instance.id).collect();
        ids.sort_unstable();
        for (number, id) in ids.iter().enumerate() {
            let at = self
                .wiring
                .instances
                .iter()
                .position(|instance| instance.id == *id);
            let at = at.expect("only those before it were removed");
            // A last value comes behind it.
            let is_last = number + 1 == ids.len() && !self.has_last_value(spec);
            self.attach_closed(at, producer_has_ended && is_last);
        }
    }

    /// Tells a connected consumer that no producer will come any more.
    fn tell_over(&mut self, spec: usize) {
        if !self.wiring.specs[spec].told_over {
            let at = self.create(spec);
            self.attach_closed(at, true);
        }
    }

    /// Attaches an input whose producer is gone, and closes it at once: what is queued is still delivered.
    fn attach_closed(&mut self, at: usize, last: bool) {
        let Instance { id, spec, .. } = self.wiring.instances[at];
        let pair = self.wiring.next_pair;
        self.wiring.next_pair += 1;
        let end = Role::Consumer as u32;
        self.send_attach_input(
            at,
            (pair * 2 + end, Some(Descriptor::PairEnd { pair, end })),
        );
        self.actions.push(Action::ReleasePair { pair });
        self.close_input(id, spec, last);
        self.remove(at);
    }

    fn producer_gone(&mut self, at: usize, restarts: bool) {
        let instance = self.wiring.instances[at];
        let edge = &self.plan.edges[instance.spec];
        let (consumer, is_lossless) = (edge.consumer, edge.is_lossless());
        match instance.consumer {
            EndState::Attached if instance.producer == EndState::Gone => {}
            EndState::Attached => {
                self.close_input(instance.id, instance.spec, !restarts);
                if is_lossless && !restarts {
                    self.wiring.instances[at].producer = EndState::Gone;
                } else {
                    self.remove(at);
                }
            }
            EndState::Away if instance.used && is_lossless && !self.nodes[consumer].has_ended() => {
                self.wiring.instances[at].producer = EndState::Gone;
            }
            _ => self.remove(at),
        }
    }

    fn consumer_gone(&mut self, at: usize, restarts: bool) {
        let instance = self.wiring.instances[at];
        let edge = &self.plan.edges[instance.spec];
        let (producer, suspended) = (edge.producer, restarts && edge.is_lossless());
        let was_suspended = instance.used && instance.producer == EndState::Away;
        let is_known = instance.used
            && instance.producer != EndState::Gone
            && self.nodes[producer].is_connected();
        if is_known && !(suspended && was_suspended) {
            let message = keeper_to_node::Message::DetachOutput {
                edge: instance.id,
                suspended,
            };
            self.send(producer, message, Vec::new());
        }
        if suspended {
            let instance = &mut self.wiring.instances[at];
            instance.consumer = EndState::Away;
            if instance.producer == EndState::Attached {
                instance.producer = EndState::Away;
            }
        } else {
            self.remove(at);
        }
    }

    /// A consumer has cut an edge off: its producer shall not wait for it. Both get a new one when either starts again.
    pub(super) fn detach_cut(&mut self, edge: u32, node: usize) {
        let Some(at) = self
            .wiring
            .instances
            .iter()
            .position(|instance| instance.id == edge)
        else {
            return;
        };
        let Instance {
            spec,
            producer,
            consumer,
            ..
        } = self.wiring.instances[at];
        if self.plan.edges[spec].consumer != node || consumer != EndState::Attached {
            return;
        }
        // One whose producer is gone was closed then, and is kept for what is queued in it.
        if producer != EndState::Gone {
            self.close_input(edge, spec, false);
        }
        self.consumer_gone(at, false);
    }

    fn close_input(&mut self, id: u32, spec: usize, last: bool) {
        self.wiring.specs[spec].told_over |= last;
        let consumer = self.plan.edges[spec].consumer;
        self.send(
            consumer,
            keeper_to_node::Message::CloseInput { edge: id, last },
            Vec::new(),
        );
    }

    fn send_attach_output(&mut self, id: u32, spec: usize) {
        let (peer, end) = self.peer(spec, Role::Producer);
        let edge = &self.plan.edges[spec];
        let (producer, consumer) = (edge.producer, edge.consumer);
        let message = keeper_to_node::Message::AttachOutput(keeper_to_node::AttachOutput {
            edge: id,
            output: index(edge.output),
            consumer: self.plan.input(edge),
            input: index(edge.input),
            queue: edge.queue,
            counters_row: self.wiring.specs[spec].row,
            gives_way: self.is_guest(consumer),
            clear_counters: std::mem::take(&mut self.wiring.specs[spec].is_row_used),
            peer,
        });
        let mut descriptors = vec![
            Descriptor::Region(id),
            Descriptor::WakePage(consumer),
            Descriptor::Eventfd(consumer),
        ];
        descriptors.extend(end);
        self.send(producer, message, descriptors);
    }

    fn send_attach_input(&mut self, at: usize, (peer, end): (u32, Option<Descriptor>)) {
        let Instance {
            id, spec, between, ..
        } = self.wiring.instances[at];
        let edge = &self.plan.edges[spec];
        let (producer, consumer) = (edge.producer, edge.consumer);
        let message = keeper_to_node::Message::AttachInput(keeper_to_node::AttachInput {
            edge: id,
            input: index(edge.input),
            producer: self.plan.topic(edge),
            incarnation: between.0,
            queue: edge.queue,
            blocks: self.plan.nodes[producer].outputs[edge.output].blocks,
            peer,
        });
        let mut descriptors = vec![Descriptor::Region(id), Descriptor::WakePage(producer)];
        descriptors.extend(end);
        self.send(consumer, message, descriptors);
    }

    /// The number of one end of the socket between an edge's processes, and the end itself if it was not sent yet.
    /// Numbers name ends, so that they differ also where a node reads its own output.
    fn peer(&mut self, spec: usize, role: Role) -> (u32, Option<Descriptor>) {
        let edge = &self.plan.edges[spec];
        let (producer, consumer) = (edge.producer, edge.consumer);
        let pairs = &mut self.wiring.pairs;
        let is_same = |pair: &Pair| (pair.producer, pair.consumer) == (producer, consumer);
        let at = pairs.iter().position(is_same).unwrap_or_else(|| {
            pairs.push(Pair {
                id: self.wiring.next_pair,
                producer,
                consumer,
                sent: [false; 2],
            });
            self.wiring.next_pair += 1;
            pairs.len() - 1
        });
        let pair = &mut pairs[at];
        let was_sent = std::mem::replace(&mut pair.sent[role as usize], true);
        let end = role as u32;
        (
            pair.id * 2 + end,
            (!was_sent).then_some(Descriptor::PairEnd { pair: pair.id, end }),
        )
    }

    fn forget_pairs(&mut self, node: usize) {
        let actions = &mut self.actions;
        self.wiring.pairs.retain(|pair| {
            let keep = pair.producer != node && pair.consumer != node;
            if !keep && pair.sent != [true; 2] {
                actions.push(Action::ReleasePair { pair: pair.id });
            }
            keep
        });
    }
}
