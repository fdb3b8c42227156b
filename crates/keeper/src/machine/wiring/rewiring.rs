//! Changes to the wiring when a process connects, leaves or ends.

use nervure_protocol::{
    keeper_to_node,
    report::{EdgeWired, Report},
    wiring::{EdgeState, Return},
};

use super::{
    pairs::{PairEnd, Role},
    state::{EndState, Instance, Wiring},
};
use crate::machine::{
    action::{Action, Descriptor},
    graph::{Graph, index},
    node::{Node, State},
    turn::Turn,
};

/// The wiring, and the state that its changes depend on.
pub(crate) struct Rewiring<'a> {
    pub wiring: &'a mut Wiring,
    pub graph: &'a Graph,
    pub nodes: &'a [Node],
    pub turn: &'a mut Turn,
}

impl Rewiring<'_> {
    /// Attaches every edge of a node that has just connected. Its inputs come first, so that a service
    /// can answer its first request: the edge for the answers is attached before the edge for the requests.
    pub fn wire(&mut self, node: usize) {
        let mut specs: Vec<_> = (0..self.graph.edges().len()).collect();
        specs.sort_by_key(|&spec| self.graph.edge(spec).consumer != node);
        for spec in specs {
            let edge = self.graph.edge(spec);
            let (producer, consumer) = (edge.producer, edge.consumer);
            if consumer == node {
                self.inherit(spec);
                self.catch_up_on_last_value(spec);
            }
            let consumer_is_expected = self.nodes[consumer].is_present() || self.is_awaited(spec);
            let has_both = self.nodes[producer].is_present() && consumer_is_expected;
            // A consumer that knows of the end of an output expects nothing from the next process.
            let is_over = producer == node && self.wiring.is_closed_for_good(spec);
            if (producer == node || consumer == node) && has_both && !is_over {
                let at = self.wiring.live(spec).unwrap_or_else(|| self.create(spec));
                self.attach(at);
                self.close_if_output_closed(at);
            }
            if consumer == node && self.nodes[producer].has_ended() {
                self.close_for_good(spec);
            }
        }
        self.update_returns(node);
    }

    /// Notifies producers whether consumers without a process return, on each edge of a node that
    /// drops. A `block` edge stays instead.
    pub fn update_returns(&mut self, node: usize) {
        for spec in 0..self.graph.edges().len() {
            let edge = self.graph.edge(spec);
            if edge.producer == node || edge.consumer == node {
                let consumer = &self.nodes[edge.consumer];
                let returns = match consumer.state() {
                    State::Waiting { .. } | State::Held => Return::Certain,
                    State::Connected if !consumer.has_left() => Return::Never,
                    State::Ended => Return::Never,
                    // It is on its way, or its end decides.
                    State::Spawned | State::Connected => self.wiring.specs[spec].returns,
                };
                self.notify_of_return(spec, returns);
            }
        }
    }

    fn notify_of_return(&mut self, spec: usize, returns: Return) {
        let edge = self.graph.edge(spec);
        let (producer, consumer) = (edge.producer, edge.consumer);
        let is_counted = !edge.is_lossless()
            && producer != consumer
            && !self.graph.is_guest(consumer)
            && self.graph.consumer_returns(edge);
        if !is_counted || !self.nodes[producer].is_connected() {
            // Its next process has no such notice.
            self.wiring.specs[spec].returns = Return::Never;
            return;
        }
        let known = &mut self.wiring.specs[spec];
        if known.returns != returns {
            known.returns = returns;
            let message = keeper_to_node::Message::AwaitConsumer {
                output: index(edge.output),
                counters_row: known.row,
                returns,
            };
            self.turn.send(producer, message);
        }
    }

    /// True when a `block` edge is kept for the next process of its consumer. A producer that starts
    /// meanwhile gets the edge, too: otherwise its samples would be lost without being counted.
    fn is_awaited(&self, spec: usize) -> bool {
        let edge = self.graph.edge(spec);
        self.graph.awaits_consumer(edge) && self.nodes[edge.consumer].will_return()
    }

    /// Undoes the edges of a node whose process is gone.
    pub fn unwire(&mut self, node: usize, restarts: bool) {
        for peer in self.connected_neighbours(node) {
            self.turn.push(Action::Ring { node: peer });
        }
        self.forget_pairs(node);
        self.update_returns(node);
        for at in (0..self.wiring.instances.len()).rev() {
            let edge = self.graph.edge(self.wiring.instances[at].spec);
            let (producer, consumer) = (edge.producer, edge.consumer);
            if producer == node && consumer == node {
                self.remove(at);
            } else if producer == node {
                self.producer_gone(at, restarts);
            } else if consumer == node {
                self.consumer_gone(at, restarts && self.graph.awaits_consumer(edge));
            }
        }
        for spec in 0..self.graph.edges().len() {
            let edge = self.graph.edge(spec);
            let (producer, consumer) = (edge.producer, edge.consumer);
            if producer == node {
                self.wiring.specs[spec].output_closed = false;
                self.wiring.specs[spec].was_attached = false;
            }
            if consumer == node {
                self.wiring.specs[spec].closed_for_good = false;
            } else if producer == node && !restarts && self.nodes[consumer].is_connected() {
                self.close_for_good(spec);
            }
        }
    }

    /// A node has sent Goodbye, while its process goes on. `may_restart`: another process may
    /// follow.
    pub fn goodbye(&mut self, node: usize, may_restart: bool) {
        // Something may follow on its outputs: its next process, or a last value if it goes on to
        // fail.
        let may_follow = may_restart || !self.graph.node(node).settings.on_failure.is_empty();
        for at in (0..self.wiring.instances.len()).rev() {
            let edge = self.graph.edge(self.wiring.instances[at].spec);
            if edge.consumer == node {
                // A `block` edge is kept for its next process. Whether there is one is known when
                // this one has ended.
                if !(may_restart && edge.is_lossless()) {
                    if may_restart {
                        let spec = self.wiring.instances[at].spec;
                        self.notify_of_return(spec, Return::Undecided);
                    }
                    self.consumer_gone(at, false);
                }
            } else if edge.producer == node {
                self.producer_gone(at, may_follow);
            }
        }
    }

    /// Closes an output of a node, and the inputs that it feeds, behind their queued samples. The
    /// edges stay, so that the producer learns when a consumer dies. Returns false if the node has
    /// no such output.
    pub fn close_output(&mut self, node: usize, output: u32) -> bool {
        let output = output as usize;
        if output >= self.graph.node(node).outputs.len() {
            return false;
        }
        for spec in 0..self.graph.edges().len() {
            let edge = self.graph.edge(spec);
            if edge.producer == node && edge.output == output {
                self.wiring.specs[spec].output_closed = true;
            }
        }
        for at in 0..self.wiring.instances.len() {
            self.close_if_output_closed(at);
        }
        true
    }

    fn close_if_output_closed(&mut self, at: usize) {
        let Instance {
            id,
            spec,
            producer,
            consumer,
            ..
        } = self.wiring.instances[at];
        let known = &self.wiring.specs[spec];
        // The input of a producer that is gone is closed already.
        let is_open = producer != EndState::Gone && consumer == EndState::Attached;
        if is_open && known.output_closed && !known.closed_for_good {
            self.close_input(id, spec, true);
        }
    }

    /// Neighbours that can be sent messages.
    pub fn connected_neighbours(&self, node: usize) -> Vec<usize> {
        let mut neighbours = self.graph.neighbours(node);
        neighbours.retain(|&neighbour| self.nodes[neighbour].is_connected());
        neighbours
    }

    fn create(&mut self, spec: usize) -> usize {
        let id = self.wiring.next_edge;
        self.wiring.next_edge += 1;
        let edge = self.graph.edge(spec);
        let blocks = self.graph.node(edge.producer).outputs[edge.output].blocks;
        self.turn.push(Action::CreateRegion {
            edge: id,
            depth: edge.queue.depth,
            blocks,
        });
        self.wiring.instances.push(Instance {
            id,
            spec,
            producer: EndState::Away,
            consumer: EndState::Away,
            was_offered: false,
            is_inherited: false,
            between: self.incarnations(spec),
        });
        let at = self.wiring.instances.len() - 1;
        self.report_wired(at);
        at
    }

    fn incarnations(&self, spec: usize) -> (u32, u32) {
        let edge = self.graph.edge(spec);
        (
            self.nodes[edge.producer].incarnation(),
            self.nodes[edge.consumer].incarnation(),
        )
    }

    fn report_wired(&mut self, at: usize) {
        let Instance {
            id, spec, between, ..
        } = self.wiring.instances[at];
        let edge = self.graph.edge(spec);
        let is_guests = self.graph.is_guest(edge.consumer);
        let wired = EdgeWired {
            edge: id,
            producer: (index(edge.producer), between.0),
            producer_row: self.wiring.specs[spec].row,
            topic: self.graph.plan().topic(edge),
            consumer: (index(edge.consumer), between.1),
            consumer_row: index(edge.input),
            input: self.graph.plan().input(edge),
            queue: edge.queue,
            observer: is_guests,
        };
        // The next process may have the resources that the last one lacked.
        let spec = &mut self.wiring.specs[spec];
        spec.status = spec
            .status
            .take()
            .filter(|status| status.state == EdgeState::Failed);
        spec.wired = Some(wired.clone());
        let message = Report::EdgeWired(wired);
        self.turn
            .report_to(self.graph.audience(edge.consumer), message, None);
    }

    fn remove(&mut self, at: usize) {
        let instance = self.wiring.instances.swap_remove(at);
        self.turn.push(Action::ReleaseRegion { edge: instance.id });
    }

    /// Attaches both ends, as far as they are connected.
    fn attach(&mut self, at: usize) {
        let Instance {
            id,
            spec,
            between,
            was_offered,
            ..
        } = self.wiring.instances[at];
        let edge = self.graph.edge(spec);
        let (producer, consumer, is_lossless) = (edge.producer, edge.consumer, edge.is_lossless());
        if between != self.incarnations(spec) {
            self.wiring.instances[at].between = self.incarnations(spec);
            self.report_wired(at);
        }
        // A suspended edge is resumed only once its consumer is connected.
        let consumer_in_sight = self.nodes[consumer].is_connected() || !was_offered;
        if self.wiring.instances[at].producer == EndState::Away
            && self.nodes[producer].is_connected()
            && consumer_in_sight
        {
            self.wiring.instances[at].producer = EndState::Attached;
            self.wiring.instances[at].was_offered = true;
            self.send_attach_output(id, spec);
            if self.is_awaited(spec) {
                // Wake page, eventfd and socket of the consumer's next process follow with that
                // process.
                self.wiring.instances[at].producer = EndState::Away;
                let message = keeper_to_node::Message::DetachOutput {
                    edge: id,
                    suspended: true,
                };
                self.turn.send(producer, message);
                self.forget_pairs(consumer);
            }
        }
        if self.wiring.instances[at].consumer == EndState::Away
            && self.nodes[consumer].is_connected()
        {
            self.wiring.instances[at].consumer = EndState::Attached;
            let end = self.wiring.pairs.end(producer, consumer, Role::Consumer);
            self.send_attach_input(at, end);
        }
        let Instance {
            producer, consumer, ..
        } = self.wiring.instances[at];
        if (producer, consumer) == (EndState::Attached, EndState::Attached) && !is_lossless {
            // No later process inherits it, and descriptors are scarce in a large dataflow.
            self.turn.push(Action::ReleaseRegion { edge: id });
        }
    }

    /// Attaches a consumer to the regions that producers which are gone have left for it, the
    /// oldest first.
    fn inherit(&mut self, spec: usize) {
        let producer_has_ended = self.nodes[self.graph.edge(spec).producer].has_ended();
        let ids = self.wiring.left_behind(spec);
        for (number, id) in ids.iter().enumerate() {
            let at = self.wiring.position(*id);
            let at = at.expect("only those before it were removed");
            // A last value comes behind it.
            let is_last = number + 1 == ids.len() && !self.graph.has_last_value(spec);
            self.attach_closed(at, producer_has_ended && is_last);
        }
    }

    /// Notifies a connected consumer that no producer will follow.
    fn close_for_good(&mut self, spec: usize) {
        if !self.wiring.specs[spec].closed_for_good {
            let at = self.create(spec);
            self.attach_closed(at, true);
        }
    }

    /// Attaches an input whose producer is gone, and closes it at once: queued samples are still
    /// delivered.
    fn attach_closed(&mut self, at: usize, last: bool) {
        let Instance { id, spec, .. } = self.wiring.instances[at];
        let (end, pair) = self.wiring.pairs.single_consumer_end();
        self.send_attach_input(at, end);
        self.turn.push(Action::ReleasePair { pair });
        self.close_input(id, spec, last);
        self.remove(at);
    }

    fn producer_gone(&mut self, at: usize, restarts: bool) {
        let instance = self.wiring.instances[at];
        let edge = self.graph.edge(instance.spec);
        let (consumer, is_lossless) = (edge.consumer, edge.is_lossless());
        match instance.consumer {
            EndState::Attached if instance.producer == EndState::Gone => {}
            EndState::Attached => {
                if !self.wiring.is_closed_for_good(instance.spec) {
                    self.close_input(instance.id, instance.spec, !restarts);
                }
                if is_lossless && !restarts {
                    self.wiring.instances[at].producer = EndState::Gone;
                } else {
                    self.remove(at);
                }
            }
            EndState::Away
                if instance.was_offered && is_lossless && !self.nodes[consumer].has_ended() =>
            {
                self.wiring.instances[at].producer = EndState::Gone;
            }
            _ => self.remove(at),
        }
    }

    /// `suspended`: the edge waits for the consumer's next process.
    fn consumer_gone(&mut self, at: usize, suspended: bool) {
        let instance = self.wiring.instances[at];
        let producer = self.graph.edge(instance.spec).producer;
        let was_suspended = instance.was_offered && instance.producer == EndState::Away;
        let is_known = instance.was_offered
            && instance.producer != EndState::Gone
            && self.nodes[producer].is_connected();
        if is_known && !(suspended && was_suspended) {
            let message = keeper_to_node::Message::DetachOutput {
                edge: instance.id,
                suspended,
            };
            self.turn.send(producer, message);
        }
        if suspended {
            let instance = &mut self.wiring.instances[at];
            instance.is_inherited |= instance.consumer == EndState::Attached;
            instance.consumer = EndState::Away;
            if instance.producer == EndState::Attached {
                instance.producer = EndState::Away;
            }
        } else {
            self.remove(at);
        }
    }

    /// A consumer has cut an edge: detaches its producer, which would otherwise wait. Both get a
    /// new edge when either is started again.
    pub fn detach_cut(&mut self, edge: u32, node: usize) {
        let Some(at) = self.wiring.position(edge) else {
            return;
        };
        let Instance {
            spec,
            producer,
            consumer,
            ..
        } = self.wiring.instances[at];
        if self.graph.edge(spec).consumer != node || consumer != EndState::Attached {
            return;
        }
        // One whose producer or output is gone is closed already, and kept for its queued samples.
        if producer != EndState::Gone && !self.wiring.is_closed_for_good(spec) {
            self.close_input(edge, spec, false);
        }
        self.consumer_gone(at, false);
    }

    fn close_input(&mut self, id: u32, spec: usize, last: bool) {
        self.wiring.specs[spec].closed_for_good |= last;
        let consumer = self.graph.edge(spec).consumer;
        self.turn.send(
            consumer,
            keeper_to_node::Message::CloseInput { edge: id, last },
        );
    }

    fn send_attach_output(&mut self, id: u32, spec: usize) {
        let edge = self.graph.edge(spec);
        let (producer, consumer) = (edge.producer, edge.consumer);
        // The producer forgets the last notice of a return.
        self.wiring.specs[spec].returns = Return::Never;
        self.wiring.specs[spec].was_attached = true;
        let end = self.wiring.pairs.end(producer, consumer, Role::Producer);
        let message = keeper_to_node::Message::AttachOutput(keeper_to_node::AttachOutput {
            edge: id,
            output: index(edge.output),
            consumer: self.graph.plan().input(edge),
            input: index(edge.input),
            queue: edge.queue,
            counters_row: self.wiring.specs[spec].row,
            gives_way: self.graph.is_guest(consumer),
            clear_counters: std::mem::take(&mut self.wiring.specs[spec].row_needs_clearing),
            peer: end.number,
        });
        let mut descriptors = vec![
            Descriptor::Region(id),
            Descriptor::WakePage(consumer),
            Descriptor::Eventfd(consumer),
        ];
        descriptors.extend(end.descriptor);
        self.turn.send_with(producer, message, descriptors);
    }

    fn send_attach_input(&mut self, at: usize, end: PairEnd) {
        let Instance {
            id, spec, between, ..
        } = self.wiring.instances[at];
        let edge = self.graph.edge(spec);
        let (producer, consumer) = (edge.producer, edge.consumer);
        let message = keeper_to_node::Message::AttachInput(keeper_to_node::AttachInput {
            edge: id,
            input: index(edge.input),
            producer: self.graph.plan().topic(edge),
            incarnation: between.0,
            queue: edge.queue,
            blocks: self.graph.node(producer).outputs[edge.output].blocks,
            peer: end.number,
        });
        let mut descriptors = vec![Descriptor::Region(id), Descriptor::WakePage(producer)];
        descriptors.extend(end.descriptor);
        self.turn.send_with(consumer, message, descriptors);
    }

    fn forget_pairs(&mut self, node: usize) {
        for pair in self.wiring.pairs.forget(node) {
            self.turn.push(Action::ReleasePair { pair });
        }
    }
}
