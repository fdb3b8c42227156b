//! Data packets: symbols of samples, and the status of transmissions.
//!
//! ```text
//! kind u8 | session u32 | packet number u32 | report interval u8 (units of 4 ms; 0: 1 ms) | frames ..
//!
//! symbol:  0x01 | transmit id varint | stream varint | sequence varint | sample bytes varint | shard limit varint
//!               | block varint | index varint | age u16 (milliseconds, 65535: that or more) | the shard
//! status:  0x02 | floor varint | feedback seen varint | count varint | abandoned ..
//! abandoned:      transmit id varint | count varint | stream varint | sequence varint
//! ```
//!
//! Numbers of packets are 64-bit, truncated. A shard's length follows from the sample's
//! [`Geometry`].

use std::time::Duration;

use super::{KIND_DATA, Reader, WireError, put_varint, varint_len};
use crate::coding::geometry::{Geometry, SAMPLE_BYTES_MAX, SHARD_BYTES_MAX};

/// Bytes before the first frame.
pub const HEADER_BYTES: usize = 10;
/// The most ids that one status frame abandons.
pub const ABANDONED_MAX: usize = 48;
/// The highest stream id.
pub const STREAM_MAX: u64 = u32::MAX as u64;

const FRAME_SYMBOL: u8 = 0x01;
const FRAME_STATUS: u8 = 0x02;

/// The head of a data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender's session: a random number that changes when its state was lost.
    pub session: u32,
    /// The number of this packet, its low 32 bits.
    pub packet_number: u32,
    /// The time between feedbacks that the sender asks for.
    pub report_interval: ReportInterval,
}

/// The time between two feedbacks: a multiple of 4 ms, or 1 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportInterval(pub u8);

impl ReportInterval {
    const UNIT_MILLIS: u64 = 4;

    /// The longest interval that is not longer than this.
    pub fn at_most(interval: Duration) -> Self {
        let units = interval.as_millis() / u128::from(Self::UNIT_MILLIS);
        Self(u8::try_from(units).unwrap_or(u8::MAX))
    }

    /// The interval as a duration.
    pub fn duration(self) -> Duration {
        Duration::from_millis((u64::from(self.0) * Self::UNIT_MILLIS).max(1))
    }
}

/// Names a symbol and describes its sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// The transmission that it belongs to: unique within a session.
    pub transmit_id: u64,
    /// The stream of the sample.
    pub stream: u32,
    /// The sample's place in its stream.
    pub sequence: u64,
    /// The cut of the sample into blocks and shards.
    pub geometry: Geometry,
    /// The coding block.
    pub block: u16,
    /// The symbol of the block: source shards first, then repair shards.
    pub index: u16,
    /// The age of the sample on arrival, as the sender estimates it, in milliseconds; `u16::MAX`:
    /// that or more.
    pub age_millis: u16,
}

/// Transmissions that the sender has given up: a run of them in streams that skip missing samples,
/// or one sample of a stream that keeps all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandoned {
    /// The first transmission.
    pub transmit_id: u64,
    /// Number of consecutive transmissions.
    pub count: u64,
    /// The stream, if it keeps all; else 0.
    pub stream: u32,
    /// The sample's place in that stream.
    pub sequence: u64,
}

/// The sender's state, as far as the receiver needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SenderStatus {
    /// Every transmission below this is closed, and the sender knows it.
    pub floor: u64,
    /// The number of the newest feedback that the sender has seen; 0: none.
    pub feedback_seen: u64,
    /// Transmissions given up and not yet known to be closed, oldest first; not necessarily all of
    /// them.
    pub abandoned: Vec<Abandoned>,
}

/// A part of a data packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A symbol; its shard lies at `shard` of the datagram.
    Symbol {
        /// The symbol.
        symbol: Symbol,
        /// The range of its bytes in the datagram.
        shard: std::ops::Range<usize>,
    },
    /// The sender's state.
    Status(SenderStatus),
}

impl Header {
    /// Appends the head of a packet.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(KIND_DATA);
        out.extend_from_slice(&self.session.to_le_bytes());
        out.extend_from_slice(&self.packet_number.to_le_bytes());
        out.push(self.report_interval.0);
    }
}

impl Symbol {
    /// Bytes of the frame without the shard. Symbols of a sample differ only by the length of small
    /// indices.
    pub fn head_len(&self) -> usize {
        self.len_with(u64::from(self.block), u64::from(self.index))
    }

    /// The most bytes of any symbol frame of this sample, without the shard.
    pub fn head_len_max(&self) -> usize {
        self.len_with(self.geometry.blocks() as u64, 0x3fff)
    }

    fn len_with(&self, block: u64, index: u64) -> usize {
        1 + varint_len(self.transmit_id)
            + varint_len(u64::from(self.stream))
            + varint_len(self.sequence)
            + varint_len(self.geometry.sample_bytes() as u64)
            + varint_len(self.geometry.shard_limit() as u64)
            + varint_len(block)
            + varint_len(index)
            + 2
    }

    /// Appends the frame without the shard, which must follow.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(FRAME_SYMBOL);
        put_varint(out, self.transmit_id);
        put_varint(out, u64::from(self.stream));
        put_varint(out, self.sequence);
        put_varint(out, self.geometry.sample_bytes() as u64);
        put_varint(out, self.geometry.shard_limit() as u64);
        put_varint(out, u64::from(self.block));
        put_varint(out, u64::from(self.index));
        out.extend_from_slice(&self.age_millis.to_le_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let transmit_id = reader.varint("the transmit id")?;
        let stream = reader.varint_up_to(STREAM_MAX, "the stream")? as u32;
        let sequence = reader.varint("the sequence")?;
        let sample_bytes =
            reader.varint_up_to(SAMPLE_BYTES_MAX as u64, "the length of a sample")? as usize;
        let shard_limit = reader.varint_up_to(SHARD_BYTES_MAX as u64, "the shard limit")? as usize;
        let block = reader.varint_up_to(u64::from(u16::MAX), "the block")? as u16;
        let index = reader.varint_up_to(u64::from(u16::MAX), "the index of a symbol")? as u16;
        let age_millis = reader.u16("the age")?;
        let geometry =
            Geometry::new(sample_bytes, shard_limit).ok_or(WireError::Range("the shard limit"))?;
        if usize::from(block) >= geometry.blocks() {
            return Err(WireError::Range("the block"));
        }
        if usize::from(index) >= geometry.block(block.into()).symbols() {
            return Err(WireError::Range("the index of a symbol"));
        }
        Ok(Self {
            transmit_id,
            stream,
            sequence,
            geometry,
            block,
            index,
            age_millis,
        })
    }
}

impl SenderStatus {
    /// The most bytes of a status with this many runs of abandoned transmissions.
    pub const fn len_max(abandoned: usize) -> usize {
        1 + 8 + 8 + 1 + abandoned * (8 + 8 + 8 + 8)
    }

    /// Appends the frame, with at most [`ABANDONED_MAX`] runs.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(FRAME_STATUS);
        put_varint(out, self.floor);
        put_varint(out, self.feedback_seen);
        let count = self.abandoned.len().min(ABANDONED_MAX);
        put_varint(out, count as u64);
        for abandoned in &self.abandoned[..count] {
            put_varint(out, abandoned.transmit_id);
            put_varint(out, abandoned.count);
            put_varint(out, u64::from(abandoned.stream));
            put_varint(out, abandoned.sequence);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let floor = reader.varint("the floor")?;
        let feedback_seen = reader.varint("the feedback seen")?;
        let count =
            reader.varint_up_to(ABANDONED_MAX as u64, "the count of abandoned transmissions")?;
        let abandoned = (0..count)
            .map(|_| {
                Ok(Abandoned {
                    transmit_id: reader.varint("an abandoned transmission")?,
                    count: reader.varint("a count of abandoned transmissions")?,
                    stream: reader.varint_up_to(STREAM_MAX, "an abandoned stream")? as u32,
                    sequence: reader.varint("an abandoned sequence")?,
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            floor,
            feedback_seen,
            abandoned,
        })
    }
}

/// Reads a whole data packet.
///
/// # Errors
/// When any part of it does not parse: then nothing of the packet counts.
pub fn read(datagram: &[u8]) -> Result<(Header, Vec<Frame>), WireError> {
    let mut reader = Reader::new(datagram);
    let kind = reader.u8("the first byte")?;
    if kind != KIND_DATA {
        return Err(WireError::Kind(kind));
    }
    let header = Header {
        session: reader.u32("the session")?,
        packet_number: reader.u32("the packet number")?,
        report_interval: ReportInterval(reader.u8("the report interval")?),
    };
    let mut frames = Vec::with_capacity(2);
    while !reader.is_empty() {
        frames.push(match reader.u8("the kind of a frame")? {
            FRAME_SYMBOL => {
                let symbol = Symbol::read(&mut reader)?;
                let start = reader.position();
                let length = symbol.geometry.block(symbol.block.into()).shard_bytes();
                reader.bytes(length, "a shard")?;
                Frame::Symbol {
                    symbol,
                    shard: start..start + length,
                }
            }
            FRAME_STATUS => Frame::Status(SenderStatus::read(&mut reader)?),
            other => return Err(WireError::Kind(other)),
        });
    }
    Ok((header, frames))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn symbols() -> impl Strategy<Value = Symbol> {
        (
            0..1u64 << 61,
            any::<u32>(),
            0..1u64 << 40,
            0usize..3_000_000,
            64usize..1500,
            any::<[u16; 3]>(),
        )
            .prop_map(
                |(
                    transmit_id,
                    stream,
                    sequence,
                    sample_bytes,
                    limit,
                    [block, index, age_millis],
                )| {
                    let geometry =
                        Geometry::new(sample_bytes, limit & !1).expect("within the limits");
                    let block = block % geometry.blocks() as u16;
                    let index = index % geometry.block(block.into()).symbols() as u16;
                    Symbol {
                        transmit_id,
                        stream,
                        sequence,
                        geometry,
                        block,
                        index,
                        age_millis,
                    }
                },
            )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn packets_return(symbols in prop::collection::vec(symbols(), 0..4), floor in 0u64..1 << 30, cut in any::<prop::sample::Index>()) {
            let header = Header { session: 7, packet_number: u32::MAX, report_interval: ReportInterval(3) };
            let mut out = Vec::new();
            header.write(&mut out);
            prop_assert_eq!(out.len(), HEADER_BYTES);
            let mut expected = Vec::new();
            for symbol in symbols {
                let before = out.len();
                symbol.write(&mut out);
                prop_assert_eq!(out.len() - before, symbol.head_len());
                prop_assert!(symbol.head_len() <= symbol.head_len_max());
                let length = symbol.geometry.block(symbol.block.into()).shard_bytes();
                expected.push(Frame::Symbol { symbol, shard: out.len()..out.len() + length });
                out.resize(out.len() + length, 0xa5);
            }
            let abandoned = vec![Abandoned { transmit_id: floor, count: 2, stream: 3, sequence: 1 }];
            let status = SenderStatus { floor, feedback_seen: 5, abandoned };
            status.write(&mut out);
            expected.push(Frame::Status(status));
            prop_assert_eq!(read(&out), Ok((header, expected)));
            // A truncated packet parses only if it was cut at the end of a frame, and never panics.
            let _ = read(&out[..cut.index(out.len())]);
        }

        #[test]
        fn garbage_is_refused_without_harm(mut bytes in prop::collection::vec(any::<u8>(), 1..200)) {
            bytes[0] = KIND_DATA;
            let _ = read(&bytes);
        }
    }
}
