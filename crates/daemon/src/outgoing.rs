//! The stand-in of remote consumers: sends the outputs of a local node to one machine.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::task::Waker;
use std::time::Instant;

use nervure_dataflow::Outgoing;
use nervure_node::binding::{
    PRODUCER_ENDED, SequenceGaps, collect_news, keep_until_confirmed, report_ended_producers,
    set_held, take_left,
};
use nervure_node::{Event, Events, Next, monotonic_nanos};

use crate::bridge::{Bridge, Watching};
use crate::confirmed::ConfirmedSender;
use crate::crossing::Crossing;
use crate::node_changes::{ChangeSenders, NodeChange};
use crate::sender::{FLUSH, Sender, Way};
use crate::waiting::{EventsWaker, next_event, wait};

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
    let events_waker = crossing.waker(&events);
    let waker = Waker::from(Arc::clone(&events_waker));
    let _watching = Watching::begin(bridge, &waker);
    let way = Way {
        bridge,
        crossing,
        machine: crossing.machine(&outgoing.machine),
        handle: &handle,
        waker: &waker,
    };
    let (confirmed, others): (Vec<_>, Vec<_>) =
        outgoing.streams.iter().partition(|it| it.is_lossless());
    for spec in &confirmed {
        keep_until_confirmed(&mut events, &spec.output);
    }
    let mut stand_in = StandIn {
        producer: outgoing.producer(),
        way,
        changes,
        senders: others
            .into_iter()
            .map(|spec| (&*spec.output, Sender::new(way, spec)))
            .collect(),
        confirmed: confirmed
            .into_iter()
            .map(|spec| (&*spec.output, ConfirmedSender::new(way, spec)))
            .collect(),
        gaps: SequenceGaps::default(),
    };
    stand_in.send_all(&mut events, &events_waker);
    stand_in.await_last(&mut events);
    stand_in.count_left(&mut events);
    for sender in stand_in.senders.values_mut() {
        sender.flush();
    }
}

struct StandIn<'a> {
    producer: &'a str,
    way: Way<'a>,
    changes: &'a ChangeSenders,
    /// By the name of the output.
    senders: HashMap<&'a str, Sender<'a>>,
    /// Senders of lossless topics.
    confirmed: HashMap<&'a str, ConfirmedSender<'a>>,
    gaps: SequenceGaps,
}

impl StandIn<'_> {
    /// Sends samples until all topics have ended, or the stand-in is to leave.
    fn send_all(&mut self, events: &mut Events, waker: &EventsWaker) {
        let crossing = self.way.crossing;
        loop {
            let due = self.go_on(events);
            let is_over = || crossing.is_over() || self.has_lost_requests() || self.has_news();
            match next_event(events, waker, due, is_over) {
                Next::End if !crossing.is_over() && self.has_lost_requests() => {
                    if !self.fail_lost_requests(events) {
                        break;
                    }
                }
                Next::End if !crossing.is_over() && self.has_news() => {}
                Next::Event(Event::Stop { .. }) | Next::End => break,
                Next::Event(event) => self.take(event, events),
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

    /// Sends samples while the link has room, and ends the topics whose last samples have arrived. A topic
    /// without room holds up no other. Returns when to call again, if the waker may not be called before.
    fn go_on(&mut self, events: &mut Events) -> Option<Instant> {
        let Way {
            crossing, machine, ..
        } = self.way;
        let (changes, producer) = (self.changes, self.producer);
        let close = |id: &str, stream| {
            changes.close(machine, crossing.stream_name(producer), id, stream);
        };
        let mut due = None;
        for (id, sender) in &mut self.confirmed {
            due = sender.send().into_iter().chain(due).min();
            if !sender.is_closed && sender.has_ended() {
                sender.is_closed = true;
                close(id, None);
            }
        }
        for (id, sender) in &mut self.senders {
            due = sender.go_on().into_iter().chain(due).min();
            sender.hold_input(events);
            let closes = sender.close_if_ended(|stream| close(id, stream));
            due = closes.into_iter().chain(due).min();
        }
        due
    }

    /// Waits until the topics that have ended are closed, and all samples of lossless topics are confirmed,
    /// but not for long once the dataflow stops.
    fn await_last(&mut self, events: &mut Events) {
        let Way {
            crossing, handle, ..
        } = self.way;
        self.confirmed.values().for_each(ConfirmedSender::await_all);
        let mut leave_at = None;
        loop {
            collect_news(events);
            let due = self.go_on(events);
            let now = Instant::now();
            let is_stopping = handle.is_stopping() || crossing.is_stopping();
            if is_stopping {
                leave_at.get_or_insert(now + FLUSH);
            }
            let are_confirmed = self.confirmed.values().all(|it| it.is_done(is_stopping));
            let are_done = are_confirmed && !self.senders.values().any(Sender::is_ending);
            if are_done || crossing.is_over() || leave_at.is_some_and(|at| at <= now) {
                return;
            }
            wait(events, due.into_iter().chain(leave_at).min());
        }
    }

    /// Counts the samples that are left in the queues. A producer that waits for room gets none by that: it
    /// may not have stopped yet.
    fn count_left(&mut self, events: &mut Events) {
        let now = monotonic_nanos();
        for (output, sender) in &self.senders {
            if sender.keeps_all() {
                keep_until_confirmed(events, output);
            }
            set_held(events, output, false);
        }
        while let Some((id, sample)) = take_left(events)
            && sample.header().publish_mono <= now
        {
            if let Some(sender) = self.confirmed.get_mut(&*id) {
                sender.take(sample);
            } else if let Some(sender) = self.senders.get_mut(&*id) {
                sender.queue += self.gaps.record(&id, sample.header());
                sender.unsent += 1;
            }
        }
    }

    fn take(&mut self, event: Event, events: &mut Events) {
        match event {
            Event::Input { id, sample } => {
                if let Some(sender) = self.confirmed.get_mut(&*id) {
                    sender.take(sample);
                } else if let Some(sender) = self.senders.get_mut(&*id) {
                    sender.queue += self.gaps.record(&id, sample.header());
                    sender.take(&sample);
                    sender.hold_input(events);
                }
            }
            Event::InputClosed { id } => {
                if let Some(sender) = self.confirmed.get_mut(&*id) {
                    sender.end();
                } else if let Some(sender) = self.senders.get_mut(&*id) {
                    sender.end();
                }
            }
            Event::Other { kind, inputs, .. } if kind == PRODUCER_ENDED => {
                for output in inputs {
                    if let Some(sender) = self.senders.get_mut(&*output) {
                        sender.process_ended();
                    }
                }
            }
            Event::NodeFailed {
                node,
                reason,
                restarts,
                ..
            } if node == self.producer && !self.way.crossing.is_stopping() => {
                self.send(NodeChange::failed(&reason, restarts));
            }
            Event::NodeRestarted { node, .. } if node == self.producer => {
                self.send(NodeChange::Restarted);
            }
            _ => {}
        }
    }

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
                Ok(Next::Event(event)) => self.take(event, events),
            }
        }
        for sender in self.senders.values_mut() {
            if sender.has_lost_requests() {
                sender.process_ended();
            }
        }
        true
    }

    fn send(&self, change: NodeChange) {
        let name = self.way.crossing.stream_name(self.producer);
        self.changes.send(self.way.machine, name, change);
    }
}
