//! Control messages: samples of stream 0, which keeps all, in order, in the highest class.
//!
//! ```text
//! open:    0x01 | stream varint | delivery u8 | depth varint | class u8 | deadline varint | lifespan varint
//!               | first sequence varint | name: length varint, UTF-8
//! close:   0x02 | stream varint
//! want:    0x03 | stream varint | bytes varint
//! grant:   0x04 | stream varint | session u32 | incarnation u32 | bytes varint | most varint
//! refuse:  0x05 | stream varint | session u32 | incarnation u32 | why u8 | reason: length varint, UTF-8
//! return:  0x06 | stream varint | bytes varint
//! change:  0x07 | stream varint | delivery u8 | depth varint | class u8 | deadline varint | lifespan varint
//!               | first sequence varint
//! ```
//!
//! The sender of a stream opens and closes it, and requests and returns credit. Its receiver grants credit or
//! refuses the stream, when it is opened or later, and names the session of the sender and the
//! incarnation of the receiver in which the answer holds. Durations are in microseconds, 0: none.

use std::{num::NonZeroU32, time::Duration};

use super::{Reader, WireError, put_varint};
use crate::{
    policy::{REASON_BYTES_MAX, Refusal},
    qos::{Delivery, Qos, TrafficClass},
};

/// The longest name of a stream, in bytes.
pub const NAME_BYTES_MAX: usize = 512;
/// Credit that each sample uses beside its bytes: about the overhead of keeping it.
pub const SAMPLE_CREDIT: u64 = 256;
/// The credit of the control messages, in bytes.
pub const CONTROL_CREDIT: u64 = 128 << 10;
/// The longest control message.
pub const CONTROL_BYTES_MAX: usize = NAME_BYTES_MAX + 64;

const KIND_OPEN: u8 = 1;

/// A control message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// A stream begins.
    Open {
        /// Its number, from 1.
        stream: u32,
        /// How it is delivered.
        qos: Qos,
        /// The sequence of its first sample in this session.
        first_sequence: u64,
        /// Its content, such as `dataflow:node/output`.
        name: String,
    },
    /// A stream has ended: all of its samples are closed.
    Close {
        /// Its number.
        stream: u32,
    },
    /// A stream requests this much credit.
    Want {
        /// Its number.
        stream: u32,
        /// Bytes of samples in flight at once.
        bytes: u64,
    },
    /// A stream returns the credit that it has beyond this.
    Return {
        /// Its number.
        stream: u32,
        /// Bytes of samples that may still be in flight at once.
        bytes: u64,
    },
    /// A stream has another quality of service. All earlier samples are closed.
    Change {
        /// Its number.
        stream: u32,
        /// How it is delivered from now on.
        qos: Qos,
        /// The sequence of the first sample that is delivered so.
        first_sequence: u64,
    },
    /// A stream has this much credit from now on.
    Grant {
        /// Its number.
        stream: u32,
        /// The session and incarnation in which the grant holds.
        ends: StreamEnds,
        /// Bytes of samples that may be in flight at once.
        bytes: u64,
        /// The most that the stream can ever have.
        most: u64,
    },
    /// A stream is not accepted, or not any more.
    Refuse {
        /// Its number.
        stream: u32,
        /// The session and incarnation in which the refusal holds.
        ends: StreamEnds,
        /// The reason.
        why: Refusal,
    },
}

/// The two ends of a stream, identified until either loses its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEnds {
    /// The session of the stream's sender.
    pub session: u32,
    /// The incarnation of the stream's receiver.
    pub incarnation: u32,
}

impl Control {
    /// Returns the message as the payload of a sample.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        let (kind, stream) = match self {
            Self::Open { stream, .. } => (KIND_OPEN, stream),
            Self::Close { stream } => (2, stream),
            Self::Want { stream, .. } => (3, stream),
            Self::Grant { stream, .. } => (4, stream),
            Self::Refuse { stream, .. } => (5, stream),
            Self::Return { stream, .. } => (6, stream),
            Self::Change { stream, .. } => (7, stream),
        };
        out.push(kind);
        put_varint(&mut out, u64::from(*stream));
        match self {
            Self::Open {
                qos,
                first_sequence,
                name,
                ..
            } => {
                write_qos(qos, &mut out);
                put_varint(&mut out, *first_sequence);
                put_varint(&mut out, name.len() as u64);
                out.extend_from_slice(name.as_bytes());
            }
            Self::Change {
                qos,
                first_sequence,
                ..
            } => {
                write_qos(qos, &mut out);
                put_varint(&mut out, *first_sequence);
            }
            Self::Want { bytes, .. } | Self::Return { bytes, .. } => put_varint(&mut out, *bytes),
            Self::Grant {
                ends, bytes, most, ..
            } => {
                ends.write(&mut out);
                put_varint(&mut out, *bytes);
                put_varint(&mut out, *most);
            }
            Self::Refuse { ends, why, .. } => {
                ends.write(&mut out);
                write_refusal(why, &mut out);
            }
            Self::Close { .. } => {}
        }
        out
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// When it is no control message, to the last byte.
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(payload);
        let kind = reader.u8("the kind of a control message")?;
        let stream = reader.varint_up_to(super::data::STREAM_MAX, "the stream")? as u32;
        if stream == 0 {
            return Err(WireError::Range("the stream"));
        }
        let message = match kind {
            KIND_OPEN => Self::Open {
                stream,
                qos: read_qos(&mut reader)?,
                first_sequence: reader.varint("the first sequence")?,
                name: read_name(&mut reader)?,
            },
            2 => Self::Close { stream },
            3 => Self::Want {
                stream,
                bytes: reader.varint("wanted bytes")?,
            },
            4 => Self::Grant {
                stream,
                ends: StreamEnds::read(&mut reader)?,
                bytes: reader.varint("granted bytes")?,
                most: reader.varint("the most that can be granted")?,
            },
            5 => Self::Refuse {
                stream,
                ends: StreamEnds::read(&mut reader)?,
                why: read_refusal(&mut reader)?,
            },
            6 => Self::Return {
                stream,
                bytes: reader.varint("kept bytes")?,
            },
            7 => Self::Change {
                stream,
                qos: read_qos(&mut reader)?,
                first_sequence: reader.varint("the first sequence")?,
            },
            other => return Err(WireError::Kind(other)),
        };
        if reader.is_empty() {
            Ok(message)
        } else {
            Err(WireError::Range("the length of a control message"))
        }
    }

    /// The stream that a payload opens, which may not be a valid message otherwise.
    pub(crate) fn opened_by(payload: &[u8]) -> Option<u32> {
        let mut reader = Reader::new(payload);
        let opens = reader.u8("the kind of a control message").ok()? == KIND_OPEN;
        let stream = reader.varint_up_to(super::data::STREAM_MAX, "the stream");
        stream
            .ok()
            .filter(|stream| opens && *stream > 0)
            .map(|stream| stream as u32)
    }
}

impl StreamEnds {
    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.session.to_le_bytes());
        out.extend_from_slice(&self.incarnation.to_le_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            session: reader.u32("the session")?,
            incarnation: reader.u32("the incarnation")?,
        })
    }
}

fn write_qos(qos: &Qos, out: &mut Vec<u8>) {
    let (delivery, depth) = match qos.delivery {
        Delivery::KeepAll { depth } => (0, depth),
        Delivery::KeepLast { depth } => (1, depth),
        Delivery::BestEffort { depth } => (2, depth),
        Delivery::Latest => (3, NonZeroU32::MIN),
    };
    out.push(delivery);
    put_varint(out, u64::from(depth.get()));
    out.push(qos.traffic_class as u8);
    for duration in [qos.deadline, qos.lifespan] {
        let micros = duration.map_or(0, |duration| duration.as_micros().max(1));
        let micros = u64::try_from(micros).unwrap_or(u64::MAX);
        put_varint(out, micros.min(super::VARINT_MAX));
    }
}

fn read_qos(reader: &mut Reader<'_>) -> Result<Qos, WireError> {
    let delivery = reader.u8("the delivery")?;
    let depth = reader.varint_up_to(u64::from(u32::MAX), "the depth")? as u32;
    let depth = NonZeroU32::new(depth).ok_or(WireError::Range("the depth"))?;
    let delivery = match delivery {
        0 => Delivery::KeepAll { depth },
        1 => Delivery::KeepLast { depth },
        2 => Delivery::BestEffort { depth },
        3 => Delivery::Latest,
        _ => return Err(WireError::Range("the delivery")),
    };
    let traffic_class = TrafficClass::ALL
        .get(usize::from(reader.u8("the traffic class")?))
        .copied()
        .ok_or(WireError::Range("the traffic class"))?;
    let mut duration = |field| -> Result<Option<Duration>, WireError> {
        let micros = reader.varint(field)?;
        Ok((micros > 0).then(|| Duration::from_micros(micros)))
    };
    let (deadline, lifespan) = (duration("the deadline")?, duration("the lifespan")?);
    Ok(Qos {
        delivery,
        traffic_class,
        deadline,
        lifespan,
    })
}

fn read_name(reader: &mut Reader<'_>) -> Result<String, WireError> {
    let length = reader.varint_up_to(NAME_BYTES_MAX as u64, "the length of a name")? as usize;
    let name = reader.bytes(length, "a name")?;
    let name = std::str::from_utf8(name).map_err(|_| WireError::Range("a name"))?;
    Ok(name.to_owned())
}

fn write_refusal(why: &Refusal, out: &mut Vec<u8>) {
    let (code, reason) = match why {
        Refusal::NoMemory => (0, ""),
        Refusal::TooManyStreams => (1, ""),
        Refusal::Invalid => (2, ""),
        Refusal::NotAllowed => (3, ""),
        Refusal::Application(reason) => (4, &**reason),
    };
    out.push(code);
    put_varint(out, reason.len() as u64);
    out.extend_from_slice(reason.as_bytes());
}

fn read_refusal(reader: &mut Reader<'_>) -> Result<Refusal, WireError> {
    let code = reader.u8("the reason of a refusal")?;
    let length = reader.varint_up_to(REASON_BYTES_MAX as u64, "the length of a reason")? as usize;
    let reason = std::str::from_utf8(reader.bytes(length, "a reason")?)
        .map_err(|_| WireError::Range("a reason"))?;
    match (code, reason) {
        (0, "") => Ok(Refusal::NoMemory),
        (1, "") => Ok(Refusal::TooManyStreams),
        (2, "") => Ok(Refusal::Invalid),
        (3, "") => Ok(Refusal::NotAllowed),
        (4, reason) => Ok(Refusal::Application(reason.into())),
        _ => Err(WireError::Range("the reason of a refusal")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn messages() -> impl Strategy<Value = Control> {
        let depth = (1..u32::MAX).prop_map(|depth| NonZeroU32::new(depth).expect("not zero"));
        let delivery = (0..4, depth).prop_map(|(kind, depth)| match kind {
            0 => Delivery::KeepAll { depth },
            1 => Delivery::KeepLast { depth },
            2 => Delivery::BestEffort { depth },
            _ => Delivery::Latest,
        });
        let duration = || prop::option::of((1u64..1 << 50).prop_map(Duration::from_micros));
        let qos = (delivery, 0..3usize, duration(), duration()).prop_map(
            |(delivery, class, deadline, lifespan)| Qos {
                delivery,
                traffic_class: TrafficClass::ALL[class],
                deadline,
                lifespan,
            },
        );
        (0..7, 1..u32::MAX, qos, ".{0,40}", 0u64..1 << 60).prop_map(
            |(kind, stream, qos, name, bytes)| {
                let ends = StreamEnds {
                    session: bytes as u32,
                    incarnation: !stream,
                };
                match kind {
                    0 => Control::Open {
                        stream,
                        qos,
                        first_sequence: bytes,
                        name,
                    },
                    1 => Control::Close { stream },
                    2 => Control::Want { stream, bytes },
                    6 => Control::Change {
                        stream,
                        qos,
                        first_sequence: bytes,
                    },
                    4 => Control::Return { stream, bytes },
                    3 => Control::Grant {
                        stream,
                        ends,
                        bytes,
                        most: bytes / 2,
                    },
                    _ => Control::Refuse {
                        stream,
                        ends,
                        why: match bytes % 5 {
                            0 => Refusal::NoMemory,
                            1 => Refusal::TooManyStreams,
                            2 => Refusal::Invalid,
                            3 => Refusal::NotAllowed,
                            _ => Refusal::because(&name),
                        },
                    },
                }
            },
        )
    }

    proptest! {
        #[test]
        fn messages_return(message in messages()) {
            let bytes = message.encode();
            prop_assert!(bytes.len() <= CONTROL_BYTES_MAX);
            for cut in 0..bytes.len() {
                prop_assert!(Control::decode(&bytes[..cut]).is_err());
            }
            prop_assert_eq!(Control::decode(&bytes), Ok(message));
        }

        #[test]
        fn garbage_is_refused_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Control::decode(&bytes);
        }
    }
}
