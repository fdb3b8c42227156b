//! Control messages of the peer, and the credit of its streams.

use super::{Receiver, events::note_ended, notices::StreamNotices, stream::ReceiveStream};
use crate::{
    budget::{SMALL_BYTES, Size},
    sender::CONTROL_STREAM,
    wire::control::{Control, StreamEnds},
};

impl Receiver {
    /// The next message for the peer.
    pub(crate) fn poll_reply(&mut self) -> Option<Control> {
        if let Some(from) = self.regrant_from {
            let next = self.streams.next_from(from);
            self.regrant_from = next.and_then(|stream| stream.checked_add(1));
            if let Some(stream) = next {
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
                let room = self.streams.len() <= self.config.max_streams
                    && !self.streams.contains_key(&stream);
                let mut state = ReceiveStream::new(name, qos, first_sequence, 0);
                if !room || !self.admit(&mut state) {
                    return self.refuse(stream);
                }
                state.notices = StreamNotices::OPENED;
                self.streams.insert(stream, Box::new(state));
                self.notices.on_opened(stream);
                self.replies.push_back(self.grant(stream));
            }
            Ok(Control::Want { stream, bytes }) => {
                if let Some(state) = self.streams.get_mut(&stream) {
                    let room = self.ledger.arriving.room(Size::Large) / 9 * 4;
                    let grant = bytes.min(state.granted.saturating_add(room));
                    if grant > state.granted {
                        state.granted = self.ledger.change_grant(state.granted, grant);
                    }
                    self.replies.push_back(self.grant(stream));
                }
            }
            Ok(Control::Return { stream, bytes }) => {
                if let Some(state) = self.streams.get_mut(&stream) {
                    let kept = bytes.max(state.least_grant()).max(SMALL_BYTES);
                    if kept < state.granted {
                        state.granted = self.ledger.change_grant(state.granted, kept);
                    }
                }
            }
            Ok(Control::Close { stream }) => {
                if let Some(state) = self.streams.get_mut(&stream)
                    && !std::mem::replace(&mut state.ended, true)
                {
                    note_ended(&mut self.notices, &mut self.streams, stream);
                }
            }
            Ok(answer @ (Control::Grant { .. } | Control::Refuse { .. })) => {
                self.answers.push_back(answer)
            }
            Err(_) => {
                self.counters.invalid_messages += 1;
                // Otherwise the sender of a stream with a name that is too long waits for ever.
                if let Some(stream) = Control::opened_by(payload)
                    && !self.streams.contains_key(&stream)
                {
                    self.refuse(stream);
                }
            }
        }
    }

    /// Takes memory for a stream and its first grant. The first streams get more, so that even large
    /// first samples need not request credit, which takes a round trip; the last quarter of the
    /// room for large samples at most is used for that.
    fn admit(&mut self, state: &mut ReceiveStream) -> bool {
        let most = self.ledger.arriving.pool().most_large();
        let generous = self
            .ledger
            .arriving
            .room(Size::Large)
            .saturating_sub(most / 4 * 3)
            / 8;
        let initial = self.config.initial_credit;
        let grant = (generous / 9 * 4).clamp(SMALL_BYTES.min(initial), initial);
        let own = ReceiveStream::own_cost(&state.name);
        if !self.ledger.arriving.take(Size::Small, own) {
            return false;
        }
        state.granted = [grant, SMALL_BYTES.min(initial)]
            .into_iter()
            .find(|grant| self.ledger.take_grant(*grant))
            .unwrap_or(0);
        if state.granted == 0 {
            self.ledger.arriving.give(Size::Small, own);
        }
        state.granted > 0
    }

    fn grant(&self, stream: u32) -> Control {
        let most = self.ledger.arriving.pool().most_large() / 9 * 4;
        let bytes = self.streams.get(&stream).map_or(0, |state| state.granted);
        Control::Grant {
            stream,
            ends: ends(self.session, self.incarnation),
            bytes,
            most: most.max(bytes),
        }
    }

    fn refuse(&mut self, stream: u32) {
        let ends = ends(self.session, self.incarnation);
        self.replies.push_back(Control::Refuse { stream, ends });
    }

    /// Forgets an ended stream of which nothing is left.
    pub(super) fn forget_if_done(&mut self, stream: u32) {
        if !self
            .streams
            .get(&stream)
            .is_some_and(|state| state.is_done())
        {
            return;
        }
        let mut state = self.streams.remove(&stream).expect("it was just seen");
        self.totals = self.totals + state.counters();
        state.free_queue(&mut self.ledger.queued);
        self.ledger
            .arriving
            .give(Size::Small, ReceiveStream::own_cost(&state.name));
        self.ledger.give_grant(state.granted);
    }
}

fn ends(session: Option<u32>, incarnation: u32) -> StreamEnds {
    StreamEnds {
        session: session.unwrap_or_default(),
        incarnation,
    }
}
