//! Feedback packets: reports of arrivals. Each repeats all that matters, so a lost one costs
//! nothing.
//!
//! ```text
//! kind u8 | session u32 | incarnation u32 | number varint | highest packet number varint | packets varint
//!         | bytes varint | marks varint | arrived u32 | held u32 | floor varint
//!         | count varint, closed .. | count varint, progress ..
//! closed:   skip varint (from the end of the last range, or from the floor) | length varint | outcome u8
//! progress: transmit id varint (difference to the last) | block varint | symbols varint
//! ```

use super::{KIND_FEEDBACK, Reader, WireError, put_varint, varint_len};
use crate::coding::geometry::SHARDS_MAX;

/// The most ranges of closed transmissions in a packet.
pub const CLOSED_MAX: usize = 128;
/// The most blocks whose progress a packet reports.
pub const PROGRESS_MAX: usize = 128;

/// The outcome of a transmission at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// It was put in the receiver's queue for the application.
    Delivered = 0,
    /// A newer sample of its stream had been delivered.
    Superseded = 1,
    /// It was older than its lifespan when it was complete.
    Expired = 2,
    /// The sender gave it up before it was complete.
    Abandoned = 3,
    /// The receiver closed its stream, or its symbols contradicted each other.
    Refused = 4,
}

impl Outcome {
    fn from_byte(byte: u8) -> Result<Self, WireError> {
        [
            Self::Delivered,
            Self::Superseded,
            Self::Expired,
            Self::Abandoned,
            Self::Refused,
        ]
        .get(usize::from(byte))
        .copied()
        .ok_or(WireError::Range("an outcome"))
    }
}

/// A range of transmissions that were closed with one outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedRange {
    /// The first transmission.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// The outcome of all of them.
    pub outcome: Outcome,
}

/// The progress of a coding block at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The transmission.
    pub transmit_id: u64,
    /// The coding block.
    pub block: u16,
    /// Different symbols received, at most the block's source shards.
    pub symbols: u16,
}

/// A feedback packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// The sender's session that the feedback is about.
    pub session: u32,
    /// The receiver's incarnation: a random number that changes when its state is lost.
    pub incarnation: u32,
    /// The number of this feedback, from 1.
    pub number: u64,
    /// The highest packet number received.
    pub highest_packet: u64,
    /// Number of packets received.
    pub packets: u64,
    /// Bytes of datagrams received.
    pub bytes: u64,
    /// Of these packets, those that the path had marked for congestion (RFC 3168).
    pub congestion_marks: u64,
    /// When the highest packet arrived, by the receiver's clock (microseconds, wrapping).
    pub arrived_micros: u32,
    /// The time from that arrival until this feedback was sent, in microseconds.
    pub held_micros: u32,
    /// Every transmission below this is closed.
    pub floor: u64,
    /// Closed transmissions that the sender may not know of yet, ascending.
    pub closed: Vec<ClosedRange>,
    /// Blocks with new symbols, ascending by transmission.
    pub progress: Vec<Progress>,
}

impl Feedback {
    /// Appends the packet, of at most `limit` bytes. Ranges and progress that do not fit are left
    /// out and removed from `self`.
    pub fn write(&mut self, limit: usize, out: &mut Vec<u8>) {
        self.closed.truncate(CLOSED_MAX);
        self.progress.truncate(PROGRESS_MAX);
        let start = out.len();
        out.push(KIND_FEEDBACK);
        out.extend_from_slice(&self.session.to_le_bytes());
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        for number in [
            self.number,
            self.highest_packet,
            self.packets,
            self.bytes,
            self.congestion_marks,
        ] {
            put_varint(out, number);
        }
        for micros in [self.arrived_micros, self.held_micros] {
            out.extend_from_slice(&micros.to_le_bytes());
        }
        put_varint(out, self.floor);

        // Both counts take at most two bytes.
        let mut room = (start + limit).saturating_sub(out.len() + 4);
        let mut last = self.floor;
        let fitting = self.closed.iter().take_while(|range| {
            let len = varint_len(range.start - last) + varint_len(range.end - range.start) + 1;
            last = range.end;
            room.checked_sub(len).map(|left| room = left).is_some()
        });
        let fitting = fitting.count();
        self.closed.truncate(fitting);
        put_varint(out, self.closed.len() as u64);
        let mut last = self.floor;
        for range in &self.closed {
            put_varint(out, range.start - last);
            put_varint(out, range.end - range.start);
            out.push(range.outcome as u8);
            last = range.end;
        }

        let mut last = 0;
        let fitting = self.progress.iter().take_while(|progress| {
            let len = varint_len(progress.transmit_id - last)
                + varint_len(u64::from(progress.block))
                + varint_len(u64::from(progress.symbols));
            last = progress.transmit_id;
            room.checked_sub(len).map(|left| room = left).is_some()
        });
        let fitting = fitting.count();
        self.progress.truncate(fitting);
        put_varint(out, self.progress.len() as u64);
        let mut last = 0;
        for progress in &self.progress {
            put_varint(out, progress.transmit_id - last);
            put_varint(out, u64::from(progress.block));
            put_varint(out, u64::from(progress.symbols));
            last = progress.transmit_id;
        }
    }

    /// Reads a whole packet.
    ///
    /// # Errors
    /// When it does not parse to its last byte.
    pub fn read(datagram: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(datagram);
        let kind = reader.u8("the first byte")?;
        if kind != KIND_FEEDBACK {
            return Err(WireError::Kind(kind));
        }
        let mut feedback = Self {
            session: reader.u32("the session")?,
            incarnation: reader.u32("the incarnation")?,
            number: reader.varint("the number of a feedback")?,
            highest_packet: reader.varint("the highest packet number")?,
            packets: reader.varint("the count of packets")?,
            bytes: reader.varint("the count of bytes")?,
            congestion_marks: reader.varint("the count of marks")?,
            arrived_micros: reader.u32("the time of arrival")?,
            held_micros: reader.u32("the time held")?,
            floor: reader.varint("the floor")?,
            closed: Vec::new(),
            progress: Vec::new(),
        };
        if feedback.congestion_marks > feedback.packets {
            return Err(WireError::Range("the count of marks"));
        }
        let mut last = feedback.floor;
        for _ in 0..reader.varint_up_to(CLOSED_MAX as u64, "the count of closed ranges")? {
            let start = last + reader.varint("a closed range")?;
            let length = reader.varint("the length of a closed range")?;
            if length == 0 {
                return Err(WireError::Range("the length of a closed range"));
            }
            // Neither sum overflows: each adds a number below 2^63 and one below 2^62.
            let end = start + length;
            if end > super::VARINT_MAX {
                return Err(WireError::Range("a closed range"));
            }
            let outcome = Outcome::from_byte(reader.u8("an outcome")?)?;
            feedback.closed.push(ClosedRange {
                start,
                end,
                outcome,
            });
            last = end;
        }
        let mut last = 0;
        for _ in 0..reader.varint_up_to(PROGRESS_MAX as u64, "the count of blocks")? {
            let transmit_id = last + reader.varint("a transmit id")?;
            if transmit_id > super::VARINT_MAX {
                return Err(WireError::Range("a transmit id"));
            }
            let block = reader.varint_up_to(u64::from(u16::MAX), "a block")? as u16;
            let symbols = reader.varint_up_to(SHARDS_MAX as u64, "a count of symbols")? as u16;
            feedback.progress.push(Progress {
                transmit_id,
                block,
                symbols,
            });
            last = transmit_id;
        }
        if !reader.is_empty() {
            return Err(WireError::Range("the length of a feedback"));
        }
        Ok(feedback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn feedbacks() -> impl Strategy<Value = Feedback> {
        (
            any::<[u32; 4]>(),
            [
                0u64..1 << 60,
                0..1 << 60,
                0..1 << 60,
                0..1 << 60,
                0..1 << 40,
            ],
            prop::collection::vec((0u64..1 << 20, 1u64..1000, 0u8..5), 0..200),
            prop::collection::vec((0u64..1 << 20, any::<u16>(), 0u16..1024), 0..200),
        )
            .prop_map(|(words, numbers, closed, progress)| {
                let [number, highest_packet, packets, bytes, floor] = numbers;
                let [session, incarnation, arrived_micros, held_micros] = words;
                let mut end = floor;
                let closed = closed
                    .into_iter()
                    .map(|(skip, length, outcome)| {
                        let start = end + skip;
                        end = start + length;
                        ClosedRange {
                            start,
                            end,
                            outcome: Outcome::from_byte(outcome).expect("an outcome"),
                        }
                    })
                    .collect();
                let mut transmit_id = 0;
                let progress = progress
                    .into_iter()
                    .map(|(skip, block, symbols)| {
                        transmit_id += skip;
                        Progress {
                            transmit_id,
                            block,
                            symbols,
                        }
                    })
                    .collect();
                Feedback {
                    session,
                    incarnation,
                    number,
                    highest_packet,
                    packets,
                    bytes,
                    congestion_marks: packets / 3,
                    arrived_micros,
                    held_micros,
                    floor,
                    closed,
                    progress,
                }
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn feedback_returns_and_keeps_within_the_limit(mut feedback in feedbacks(), limit in 200usize..1500) {
            let mut out = vec![0xff; 3];
            feedback.write(limit, &mut out);
            prop_assert!(out.len() - 3 <= limit);
            prop_assert_eq!(Feedback::read(&out[3..]), Ok(feedback));
            for cut in 3..out.len() {
                prop_assert!(Feedback::read(&out[3..cut]).is_err());
            }
        }

        #[test]
        fn garbage_is_refused_without_harm(mut bytes in prop::collection::vec(any::<u8>(), 1..200)) {
            bytes[0] = KIND_FEEDBACK;
            let _ = Feedback::read(&bytes);
        }
    }
}
