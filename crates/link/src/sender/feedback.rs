//! Feedback from the receiver.

use std::time::Instant;

use thiserror::Error;

use super::{
    Sender,
    given_up::Cause,
    stream::{CONTROL_STREAM, SendStream},
    transmission::BlockId,
};
use crate::wire::feedback::{ClosedRange, Feedback, Outcome};

/// Feedback that no honest receiver sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FeedbackError {
    /// It names a packet that was not sent: a later one, or one whose number was skipped.
    #[error("feedback names packet {named}, which was not sent")]
    PacketNotSent {
        /// The highest packet that it names.
        named: u64,
    },
    /// It closes transmissions that do not exist.
    #[error("feedback closes transmissions up to {named}, but {begun} were begun")]
    NotBegun {
        /// The last transmission that it names.
        named: u64,
        /// Number of transmissions begun.
        begun: u64,
    },
}

impl Sender {
    /// Checks that a feedback of this session can be true.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check_feedback(&self, feedback: &Feedback) -> Result<(), FeedbackError> {
        if self.in_flight.was_not_sent(feedback.highest_packet) {
            return Err(FeedbackError::PacketNotSent {
                named: feedback.highest_packet,
            });
        }
        let next_id = self.transmissions.next_id();
        let last = feedback
            .closed
            .last()
            .map(|range| range.end)
            .unwrap_or(feedback.floor);
        if last > next_id || feedback.floor > next_id {
            return Err(FeedbackError::NotBegun {
                named: last.max(feedback.floor),
                begun: next_id - 1,
            });
        }
        Ok(())
    }

    /// Processes a feedback of this session that [can be true](Self::check_feedback).
    pub fn on_feedback(&mut self, now: Instant, feedback: &Feedback) {
        self.feedback_seen = self.feedback_seen.max(feedback.number);
        if !feedback.closed.is_empty() {
            self.given_up.note_news();
        }
        let reported = self.in_flight.take_reported(feedback.highest_packet);
        for progress in &feedback.progress {
            if let Some(transmission) = self.transmissions.get_mut(progress.transmit_id)
                && let Some(block) = transmission.blocks.get_mut(usize::from(progress.block))
            {
                block.got = block
                    .got
                    .max(u32::from(progress.symbols))
                    .min(block.source_shards);
                let id = (progress.transmit_id, progress.block);
                self.schedule.evaluate(id, transmission, &self.path);
            }
        }
        for range in &feedback.closed {
            self.on_closed(now, range);
        }
        self.resolve(now, reported);
    }

    /// Takes symbols out of flight: they have arrived, as progress reports show, or are lost.
    pub(super) fn resolve(&mut self, now: Instant, symbols: Vec<BlockId>) {
        for (id, number) in symbols {
            let Some(transmission) = self.transmissions.get_mut(id) else {
                continue;
            };
            transmission.in_flight -= 1;
            transmission.blocks[usize::from(number)].in_flight -= 1;
            let over =
                !transmission.repairs && transmission.sent_once() && transmission.in_flight == 0;
            if over {
                // It is never repaired. The receiver reports whether it was complete after all.
                self.give_up(now, id, Cause::Incomplete);
            } else {
                self.schedule
                    .evaluate((id, number), transmission, &self.path);
            }
        }
    }

    fn on_closed(&mut self, now: Instant, range: &ClosedRange) {
        for id in self.transmissions.ids(range.start..range.end) {
            let transmission = self.remove_transmission(id).expect("it was just seen");
            if transmission.stream == CONTROL_STREAM {
                self.finish_change(now, transmission.sequence);
            }
            if let Some(state) = self.streams.get_mut(transmission.stream) {
                let bytes = transmission.payload.len() as u64;
                if range.outcome == Outcome::Delivered {
                    state.arrived_after(now.saturating_duration_since(transmission.admitted));
                }
                let counters = state.close(transmission.charge());
                match range.outcome {
                    Outcome::Delivered => {
                        counters.delivered += 1;
                        counters.delivered_bytes += bytes;
                    }
                    Outcome::Superseded => counters.superseded += 1,
                    Outcome::Expired => counters.expired += 1,
                    Outcome::Abandoned | Outcome::Refused => counters.refused += 1,
                }
            }
            self.after_closing(now, transmission.stream);
        }
        for given_up in self.given_up.take(range.start..range.end) {
            let charge = SendStream::charge(given_up.bytes);
            if let Some(state) = self.streams.get_mut(given_up.stream) {
                if matches!(given_up.cause, Cause::Recut | Cause::Unconfirmed) {
                    // The sample itself is pending again, or was counted before.
                    state.unclosed_bytes -= charge;
                } else {
                    let counters = state.close(charge);
                    match (range.outcome, given_up.cause) {
                        (Outcome::Delivered, _) => {
                            counters.delivered += 1;
                            counters.delivered_bytes += given_up.bytes as u64;
                        }
                        (Outcome::Superseded, _) | (_, Cause::Superseded) => {
                            counters.superseded += 1
                        }
                        (Outcome::Expired, _) | (_, Cause::Expired) => counters.expired += 1,
                        (_, Cause::Refused) => counters.refused += 1,
                        (_, Cause::Incomplete | Cause::Recut | Cause::Unconfirmed) => {
                            counters.incomplete += 1
                        }
                    }
                }
            }
            self.after_closing(now, given_up.stream);
        }
    }

    fn after_closing(&mut self, now: Instant, stream: u32) {
        self.refresh(now, stream);
        if stream != CONTROL_STREAM {
            self.streams.notify_room(stream);
            self.finish_if_done(now, stream);
        }
    }
}
