//! The stand-in of remote consumers: sends the outputs of a local node to one machine.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use nervure_dataflow::Outgoing;
use nervure_node::binding::{
    PRODUCER_ENDED, SequenceGaps, keep_until_confirmed, report_ended_producers,
};
use nervure_node::{Event, Events, Handle, Next};

use crate::bridge::Bridge;
use crate::confirmed::ConfirmedSender;
use crate::crossing::Crossing;
use crate::node_changes::{ChangeSenders, NodeChange};
use crate::sender::{CHECK, FLUSH, RETRY, Sender};

/// Takes the samples of a local node, and sends them to one machine. Drops `joins` when it has joined.
pub(crate) fn send_all(
    bridge: &Arc<Bridge>,
    changes: &ChangeSenders,
    crossing: &Arc<Crossing>,
    outgoing: &Outgoing,
    joins: mpsc::Sender<()>,
) {
    let joined = crossing.join(&outgoing.node);
    drop(joins);
    let Some(node) = joined else {
        return;
    };
    let (handle, mut events) = node.split();
    report_ended_producers(&mut events);
    let waiter = crossing.add_waiter(&events);
    let machine = crossing.machine(&outgoing.machine);
    let (confirmed, others): (Vec<_>, Vec<_>) =
        outgoing.streams.iter().partition(|it| it.is_lossless());
    for spec in &confirmed {
        keep_until_confirmed(&mut events, &spec.output);
    }
    let mut stand_in = StandIn {
        producer: outgoing.producer(),
        bridge,
        machine,
        changes,
        crossing,
        handle: &handle,
        senders: others
            .into_iter()
            .map(|spec| (&*spec.output, Sender::new(bridge, crossing, machine, spec)))
            .collect(),
        confirmed: confirmed
            .into_iter()
            .map(|spec| {
                let of_run = (bridge, crossing);
                let sender = ConfirmedSender::new(of_run, machine, spec, waiter.clone());
                (&*spec.output, sender)
            })
            .collect(),
        gaps: SequenceGaps::default(),
    };
    stand_in.send_all(&mut events);
    stand_in.await_confirmations();
    for sender in stand_in.senders.values_mut() {
        sender.flush();
    }
}

struct StandIn<'a> {
    producer: &'a str,
    bridge: &'a Bridge,
    machine: &'a str,
    changes: &'a ChangeSenders,
    crossing: &'a Crossing,
    handle: &'a Handle,
    /// By the name of the output.
    senders: HashMap<&'a str, Sender<'a>>,
    /// Senders of lossless topics.
    confirmed: HashMap<&'a str, ConfirmedSender<'a>>,
    gaps: SequenceGaps,
}

impl StandIn<'_> {
    /// Sends samples until all topics have ended, or the stand-in is to leave.
    fn send_all(&mut self, events: &mut Events) {
        loop {
            let due = self.send_confirmed();
            let senders = self.senders.values_mut();
            let due = senders.filter_map(Sender::follow_requests).chain(due).min();
            let has_news = || self.has_lost_requests() || self.has_news();
            match self.crossing.next_event(events, due, has_news) {
                Next::End if !self.crossing.is_over() && self.has_lost_requests() => {
                    if !self.fail_lost_requests(events) {
                        break;
                    }
                }
                Next::End if !self.crossing.is_over() && self.has_news() => {}
                Next::Event(Event::Stop { .. }) | Next::End => break,
                Next::Event(event) => self.take(event),
                Next::Nothing => {}
            }
            let are_closed = self.senders.values().all(|sender| sender.is_closed);
            if are_closed && self.confirmed.values().all(|sender| sender.is_closed) {
                break;
            }
        }
    }

    fn has_news(&self) -> bool {
        self.confirmed.values().any(ConfirmedSender::has_news)
    }

    /// Sends samples of lossless topics while the link has room, and ends the topics whose samples are all
    /// confirmed. Returns when to call again, if samples are left.
    fn send_confirmed(&mut self) -> Option<Instant> {
        let mut due = None;
        for (id, sender) in &mut self.confirmed {
            due = sender.send().into_iter().chain(due).min();
            if !sender.is_closed && sender.has_ended() {
                sender.is_closed = true;
                let name = self.crossing.stream_name(self.producer);
                self.changes.close(self.machine, name, id, None);
            }
        }
        due
    }

    /// Waits for the confirmations of all samples that were taken, but not for long once the dataflow
    /// stops.
    fn await_confirmations(&mut self) {
        let mut leave_at = None;
        loop {
            let seen = self.bridge.changes();
            let due = self.send_confirmed();
            let now = Instant::now();
            let is_stopping = self.handle.is_stopping() || self.crossing.is_stopping();
            if is_stopping {
                leave_at.get_or_insert(now + FLUSH);
            }
            let are_done = self.confirmed.values().all(|it| it.is_done(is_stopping));
            if are_done || self.crossing.is_over() || leave_at.is_some_and(|at| at <= now) {
                return;
            }
            let rest = if is_stopping { RETRY } else { CHECK };
            let until = due.map_or(rest, |due| due.saturating_duration_since(now));
            self.bridge.wait_for_change(seen, Some(until.min(rest)));
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Input { id, sample } => {
                if let Some(sender) = self.confirmed.get_mut(&*id) {
                    sender.take(sample);
                } else if let Some(sender) = self.senders.get_mut(&*id) {
                    sender.queue += self.gaps.record(&id, sample.header());
                    sender.take(&sample, self.handle);
                }
            }
            Event::InputClosed { id } => {
                if let Some(sender) = self.confirmed.get_mut(&*id) {
                    sender.end();
                } else if let Some(sender) = self.senders.get_mut(&*id) {
                    sender.flush();
                    sender.is_closed = true;
                    if !sender.hides_its_end() {
                        let name = self.crossing.stream_name(self.producer);
                        let stream = sender.stream.take();
                        self.changes.close(self.machine, name, &id, stream);
                    }
                }
            }
            Event::Other { kind, inputs, .. } if kind == PRODUCER_ENDED => {
                for output in inputs {
                    if let Some(sender) = self.senders.get_mut(&*output) {
                        sender.process_ended(self.handle);
                    }
                }
            }
            Event::NodeFailed {
                node,
                reason,
                restarts,
                ..
            } if node == self.producer && !self.crossing.is_stopping() => {
                self.send(NodeChange::failed(&reason, restarts));
            }
            Event::NodeRestarted { node, .. } if node == self.producer => {
                self.send(NodeChange::Restarted);
            }
            _ => {}
        }
    }

    /// Whether requests were queued for a process of the service that has ended, after its clients were
    /// notified of its end.
    fn has_lost_requests(&self) -> bool {
        self.senders.values().any(Sender::has_lost_requests)
    }

    /// Notifies the clients of lost requests, behind the answers that were sent. Returns false if the
    /// stand-in is to leave.
    fn fail_lost_requests(&mut self, events: &mut Events) -> bool {
        loop {
            match events.poll() {
                Ok(Next::Nothing) => break,
                Ok(Next::Event(Event::Stop { .. }) | Next::End) | Err(_) => return false,
                Ok(Next::Event(event)) => self.take(event),
            }
        }
        for sender in self.senders.values_mut() {
            if sender.has_lost_requests() {
                sender.process_ended(self.handle);
            }
        }
        true
    }

    fn send(&self, change: NodeChange) {
        let name = self.crossing.stream_name(self.producer);
        self.changes.send(self.machine, name, change);
    }
}
