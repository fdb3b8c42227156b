//! Control messages of the peer, and the credit of its streams.

use super::{
    ReceiveCounters, Receiver, assembly::Assembly, notices::StreamNotices, stream::ReceiveStream,
};
use crate::{
    budget::{SMALL_BYTES, Size},
    policy::{Decision, Direction, Refusal},
    qos::Qos,
    sender::CONTROL_STREAM,
    wire::{
        control::{Control, StreamEnds},
        feedback::Outcome,
    },
};

impl Receiver {
    /// The next message for the peer.
    pub(crate) fn poll_reply(&mut self) -> Option<Control> {
        while let Some(from) = self.regrant_from {
            let next = self.streams.by_id.next_from(from);
            self.regrant_from = next.and_then(|stream| stream.checked_add(1));
            if let Some(stream) = next.filter(|stream| !self.streams.by_id[stream].requested) {
                return Some(self.grant(stream));
            }
        }
        let reply = self.replies.pop_front()?;
        self.deliver_in_order(CONTROL_STREAM);
        Some(reply)
    }

    /// Returns the next message of the peer about the streams that this end sends.
    pub(crate) fn poll_answer(&mut self) -> Option<Control> {
        self.answers.pop_front()
    }

    /// Repeats the grants of all streams, in a new session of this end.
    pub(crate) fn repeat_grants(&mut self) {
        self.regrant_from = Some(CONTROL_STREAM + 1);
    }

    pub(super) fn on_control(&mut self, payload: &[u8]) {
        match Control::decode(payload) {
            Ok(Control::Open {
                stream,
                qos,
                first_sequence,
                name,
            }) => {
                if let Err(why) = self.on_open(stream, qos, first_sequence, name) {
                    self.refuse(stream, why);
                }
            }
            Ok(Control::Want { stream, bytes }) => {
                let state = self.streams.by_id.get_mut(&stream);
                if let Some(state) = state.filter(|state| !state.requested) {
                    let room = self.ledger.arriving.room(Size::Large) / 9 * 4;
                    let grant = bytes.min(state.granted.saturating_add(room));
                    if grant > state.granted {
                        state.granted = self.ledger.change_grant(state.granted, grant);
                    }
                    self.replies.push_back(self.grant(stream));
                }
            }
            Ok(Control::Return { stream, bytes }) => {
                if let Some(state) = self.streams.by_id.get_mut(&stream) {
                    let kept = bytes.max(state.least_grant()).max(SMALL_BYTES);
                    if kept < state.granted {
                        state.granted = self.ledger.change_grant(state.granted, kept);
                    }
                }
            }
            Ok(Control::Change {
                stream,
                qos,
                first_sequence,
            }) => self.on_change(stream, qos, first_sequence),
            Ok(Control::Close { stream }) => {
                if let Some(state) = self.streams.by_id.get_mut(&stream)
                    && !std::mem::replace(&mut state.ended, true)
                {
                    self.streams.note_if_complete(stream);
                }
            }
            Ok(answer @ (Control::Grant { .. } | Control::Refuse { .. })) => {
                self.answers.push_back(answer)
            }
            Err(_) => {
                self.counters.invalid_messages += 1;
                // Otherwise the sender of a stream with a name that is too long waits for ever.
                if let Some(stream) = Control::opened_by(payload)
                    && !self.streams.by_id.contains_key(&stream)
                {
                    self.refuse(stream, Refusal::Invalid);
                }
            }
        }
    }

    /// Opens a stream, or leaves it to the application.
    fn on_open(
        &mut self,
        stream: u32,
        qos: Qos,
        first_sequence: u64,
        name: String,
    ) -> Result<(), Refusal> {
        if self.streams.by_id.contains_key(&stream) {
            return Err(Refusal::Invalid);
        }
        let requested = match self.policy.decide(Direction::Incoming, &name, qos) {
            Decision::Accept => false,
            Decision::Ask => true,
            Decision::Refuse(why) => return Err(why),
        };
        if self.streams.by_id.len() > self.config.max_streams {
            return Err(Refusal::TooManyStreams);
        }
        let mut state = ReceiveStream::new(name, qos, first_sequence, 0);
        let own = ReceiveStream::own_cost(&state.name);
        if !self.ledger.arriving.take(Size::Small, own) {
            return Err(Refusal::NoMemory);
        }
        state.requested = requested;
        if !requested {
            state.granted = self.ledger.first_grant(self.config.initial_credit);
            if state.granted == 0 {
                self.ledger.arriving.give(Size::Small, own);
                return Err(Refusal::NoMemory);
            }
        }
        state.notices = StreamNotices::OPENED;
        self.streams.by_id.insert(stream, Box::new(state));
        self.streams.notices.on_opened(stream);
        if !requested {
            self.replies.push_back(self.grant(stream));
        }
        Ok(())
    }

    /// Changes the quality of service of a stream, if the policy allows that.
    fn on_change(&mut self, stream: u32, qos: Qos, first_sequence: u64) {
        let Some(state) = self
            .streams
            .by_id
            .get_mut(&stream)
            .filter(|state| !state.ended)
        else {
            return;
        };
        if state.has_open_samples() {
            // An honest sender waits until they are closed.
            self.counters.invalid_messages += 1;
            return;
        }
        match self.policy.decide(Direction::Incoming, &state.name, qos) {
            Decision::Refuse(why) => {
                self.streams.end(&mut self.ledger, stream);
                self.refuse(stream, why);
            }
            Decision::Accept | Decision::Ask => {
                state.change(qos, first_sequence);
                self.streams.note_changed(stream);
            }
        }
    }

    /// Accepts a requested stream. Returns false if there is none; if there is no memory for it, it
    /// is refused.
    pub(crate) fn accept_stream(&mut self, stream: u32) -> bool {
        let requested = |state: &ReceiveStream| state.requested;
        if !self
            .streams
            .by_id
            .get(&stream)
            .is_some_and(|state| requested(state))
        {
            return false;
        }
        let granted = self.ledger.first_grant(self.config.initial_credit);
        if granted == 0 {
            self.refuse_stream(stream, Refusal::NoMemory);
            return false;
        }
        let state = self
            .streams
            .by_id
            .get_mut(&stream)
            .expect("it was just seen");
        (state.requested, state.granted) = (false, granted);
        self.replies.push_back(self.grant(stream));
        true
    }

    /// Refuses a requested stream, or closes an open one: drops its samples, and those that arrive
    /// later. Returns false if there is no such stream.
    pub(crate) fn refuse_stream(&mut self, stream: u32, why: Refusal) -> bool {
        let state = self.streams.by_id.get(&stream);
        let Some(state) = state.filter(|_| stream != CONTROL_STREAM) else {
            return false;
        };
        self.reporter.begin_taking();
        // A request of the peer must not make this end search all arriving samples.
        let has_open = state.has_open_samples();
        let arriving: Vec<u64> = match has_open {
            true => {
                let of_stream = |assembly: &Assembly| assembly.stream == stream;
                let arriving = self.assemblies.iter();
                let arriving = arriving.filter(|(_, assembly)| of_stream(assembly));
                arriving.map(|(id, _)| *id).collect()
            }
            false => Vec::new(),
        };
        let mut counters = ReceiveCounters::default();
        for id in arriving {
            let assembly = self.assemblies.remove(&id).expect("it was just seen");
            counters.incomplete += 1;
            drop(assembly);
            self.close(id, Outcome::Refused);
        }
        let waiting = std::mem::take(
            &mut self
                .streams
                .by_id
                .get_mut(&stream)
                .expect("it was just seen")
                .waiting,
        );
        for complete in waiting.into_values() {
            let outcome = match complete.sample {
                Some(_) => {
                    counters.refused += 1;
                    Outcome::Refused
                }
                None => {
                    counters.expired += 1;
                    Outcome::Expired
                }
            };
            self.close(complete.id, outcome);
        }
        let state = self
            .streams
            .by_id
            .get_mut(&stream)
            .expect("it was just seen");
        while state.pop(&mut self.ledger.queued).is_some() {
            state.counters.discarded += 1;
        }
        state.counters = state.counters + counters;
        self.streams.remove(&mut self.ledger, stream);
        self.refuse(stream, why);
        true
    }

    fn grant(&self, stream: u32) -> Control {
        let most = self.ledger.arriving.pool().most_large() / 9 * 4;
        let bytes = self
            .streams
            .by_id
            .get(&stream)
            .map_or(0, |state| state.granted);
        Control::Grant {
            stream,
            ends: ends(self.session, self.incarnation),
            bytes,
            most: most.max(bytes),
        }
    }

    fn refuse(&mut self, stream: u32, why: Refusal) {
        let ends = ends(self.session, self.incarnation);
        self.replies
            .push_back(Control::Refuse { stream, ends, why });
    }
}

fn ends(session: Option<u32>, incarnation: u32) -> StreamEnds {
    StreamEnds {
        session: session.unwrap_or_default(),
        incarnation,
    }
}
