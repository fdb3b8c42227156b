//! What the receiver reports.

use std::time::Instant;

use thiserror::Error;

use super::{CONTROL_STREAM, Cause, Sender, stream::SendStream};
use crate::wire::feedback::{Closed, Feedback, Outcome};

/// Feedback that no honest receiver sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FeedbackError {
    /// It is about packets that were not sent.
    #[error("feedback names packet {named}, but {sent} were sent")]
    PacketNotSent {
        /// The highest packet.
        named: u64,
        /// Packets sent.
        sent: u64,
    },
    /// It closes transmissions that do not exist.
    #[error("feedback closes transmissions up to {named}, but {begun} were begun")]
    NotBegun {
        /// The last transmission.
        named: u64,
        /// Transmissions begun.
        begun: u64,
    },
}

impl Sender {
    /// Takes a feedback of this session.
    ///
    /// # Errors
    /// Nothing of a feedback is used that cannot be true.
    pub fn on_feedback(&mut self, now: Instant, feedback: &Feedback) -> Result<(), FeedbackError> {
        if feedback.highest_packet >= self.next_packet {
            return Err(FeedbackError::PacketNotSent {
                named: feedback.highest_packet,
                sent: self.packets_sent(),
            });
        }
        let begun = self.next_transmit;
        let last = feedback
            .closed
            .last()
            .map(|range| range.end)
            .unwrap_or(feedback.floor);
        if last > begun || feedback.floor > begun {
            return Err(FeedbackError::NotBegun {
                named: last.max(feedback.floor),
                begun: begun - 1,
            });
        }
        self.feedback_seen = self.feedback_seen.max(feedback.number);
        self.status.news |= !feedback.closed.is_empty();

        let mut touched = Vec::new();
        while self
            .in_flight
            .front()
            .is_some_and(|packet| packet.packet <= feedback.highest_packet)
        {
            let packet = self.in_flight.pop_front().expect("there is a first one");
            touched.extend(packet.symbols);
        }
        for progress in &feedback.progress {
            if let Some(transmission) = self.transmissions.get_mut(&progress.transmit_id)
                && let Some(block) = transmission.blocks.get_mut(usize::from(progress.block))
            {
                block.got = block
                    .got
                    .max(u32::from(progress.symbols))
                    .min(block.source_shards);
                self.evaluate(progress.transmit_id, progress.block);
            }
        }
        for range in &feedback.closed {
            self.on_closed(now, range);
        }
        self.resolve(now, touched);
        Ok(())
    }

    /// Symbols are no longer in flight: they arrived, which the progress says, or are lost.
    pub(super) fn resolve(&mut self, now: Instant, symbols: Vec<(u64, u16)>) {
        for (id, number) in symbols {
            let Some(transmission) = self.transmissions.get_mut(&id) else {
                continue;
            };
            transmission.in_flight -= 1;
            transmission.blocks[usize::from(number)].in_flight -= 1;
            let over =
                !transmission.repairs && transmission.sent_once() && transmission.in_flight == 0;
            if over {
                // Nothing repairs it. The receiver says whether it was complete after all.
                self.give_up(now, id, Cause::Incomplete);
            } else {
                self.evaluate(id, number);
            }
        }
    }

    fn on_closed(&mut self, now: Instant, range: &Closed) {
        let under_way: Vec<u64> = self
            .transmissions
            .range(range.start..range.end)
            .map(|(id, _)| *id)
            .collect();
        for id in under_way {
            let transmission = self.remove_transmission(id).expect("it was just seen");
            let bytes = transmission.payload.len() as u64;
            if let Some(state) = self.streams.get_mut(&transmission.stream)
                && range.outcome == Outcome::Delivered
            {
                state.arrived_after(now.saturating_duration_since(transmission.admitted));
            }
            let counters = self.stream_closed(transmission.stream, transmission.charge());
            match (range.outcome, counters) {
                (_, None) => {}
                (Outcome::Delivered, Some(counters)) => {
                    counters.delivered += 1;
                    counters.delivered_bytes += bytes;
                }
                (Outcome::Superseded, Some(counters)) => counters.superseded += 1,
                (Outcome::Expired, Some(counters)) => counters.expired += 1,
                (Outcome::Abandoned | Outcome::Refused, Some(counters)) => counters.refused += 1,
            }
            self.after_closing(now, transmission.stream);
        }
        let given_up: Vec<u64> = self
            .given_up
            .range(range.start..range.end)
            .map(|(id, _)| *id)
            .collect();
        for id in given_up {
            let given_up = self.given_up.remove(&id).expect("it was just seen");
            if matches!(given_up.cause, Cause::Recut | Cause::Unconfirmed) {
                if let Some(state) = self.streams.get_mut(&given_up.stream) {
                    state.unclosed_bytes -= SendStream::charge(given_up.bytes);
                }
            } else if let Some(counters) =
                self.stream_closed(given_up.stream, SendStream::charge(given_up.bytes))
            {
                match (range.outcome, given_up.cause) {
                    (Outcome::Delivered, _) => {
                        counters.delivered += 1;
                        counters.delivered_bytes += given_up.bytes as u64;
                    }
                    (Outcome::Superseded, _) | (_, Cause::Superseded) => counters.superseded += 1,
                    (Outcome::Expired, _) | (_, Cause::Expired) => counters.expired += 1,
                    (_, Cause::Refused) => counters.refused += 1,
                    (_, Cause::Incomplete | Cause::Recut | Cause::Unconfirmed) => {
                        counters.incomplete += 1
                    }
                }
            }
            self.after_closing(now, given_up.stream);
        }
    }

    fn stream_closed(&mut self, stream: u32, charge: u64) -> Option<&mut super::SendCounters> {
        let state = self.streams.get_mut(&stream)?;
        state.unclosed -= 1;
        state.unclosed_bytes -= charge;
        Some(&mut state.counters)
    }

    fn after_closing(&mut self, now: Instant, stream: u32) {
        self.refresh(now, stream);
        if stream != CONTROL_STREAM {
            self.tell_room(stream);
            self.finish_if_done(now, stream);
        }
    }
}
