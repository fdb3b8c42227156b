//! An authenticated peer that sends anything: well-formed packets with false contents, and
//! malformed ones.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arbitrary::{Arbitrary, Unstructured};
use nervure_link::{
    coding::geometry::{Geometry, SAMPLE_BYTES_MAX},
    memory::{Memory, NoMemory, SampleBuffer},
    policy::Refusal,
    qos::{Delivery, Qos, TrafficClass},
    receiver::{ReceiverConfig, check_charges},
    session::{Session, SessionConfig},
    wire::{
        VARINT_MAX,
        control::{Control, StreamEnds},
        data::{self, Abandoned, Header, ReportInterval, SenderStatus, Symbol},
        feedback::{ClosedRange, Feedback, Outcome, Progress},
    },
};

/// Memory budget of the victim for its peers, in bytes.
pub const BUDGET_BYTES: u64 = 8 << 20;
/// Number of streams that the peer may open.
pub const STREAMS_MAX: usize = 500;
/// Largest packet, in bytes.
const DATAGRAM_BYTES: usize = 1100;
/// Limit on the datagrams of one run, so that it ends.
const DATAGRAMS_MAX: usize = 4000;

/// Something that the peer sends.
#[derive(Arbitrary, Debug)]
pub enum Saying {
    /// Arbitrary bytes.
    Raw(Bytes),
    /// A data packet.
    Data {
        session: u8,
        number: Number,
        interval: u8,
        frames: Vec<Frame>,
        change: Option<Change>,
    },
    /// Feedback on packets of the victim.
    Feedback(Box<Report>),
    /// The same message for each of several streams.
    Streams {
        first: Number,
        count: u16,
        message: Message,
    },
}

/// At most 255 bytes.
#[derive(Debug)]
pub struct Bytes(pub Vec<u8>);

impl<'a> Arbitrary<'a> for Bytes {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let length = usize::from(u8::arbitrary(u)?).min(u.len());
        u.bytes(length).map(|bytes| Self(bytes.to_vec()))
    }
}

/// A number: the one that an honest peer would use, one close to it, or any.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Number {
    Next,
    Near(i8),
    Small(u8),
    Any(u64),
}

impl Number {
    fn of(self, next: u64) -> u64 {
        let number = match self {
            Self::Next => next,
            Self::Near(by) => next.wrapping_add_signed(by.into()),
            Self::Small(number) => number.into(),
            Self::Any(number) => number,
        };
        number & VARINT_MAX
    }

    /// Like [`of`](Self::of), and consumes an honest number.
    fn take(self, next: &mut u64) -> u64 {
        let number = self.of(*next);
        *next += u64::from(matches!(self, Self::Next));
        number
    }
}

/// A frame of a data packet.
#[derive(Arbitrary, Debug)]
pub enum Frame {
    Symbol {
        id: Number,
        stream: u8,
        sequence: Number,
        sample_bytes: Number,
        shard_limit: u8,
        block: u16,
        index: u16,
        age_millis: u16,
        fill: u8,
    },
    Control {
        sequence: Number,
        stream: Number,
        message: Message,
    },
    Status {
        floor: Number,
        feedback_seen: Number,
        abandoned: Vec<(Number, Number, u8, Number)>,
    },
}

/// A control message. The stream that it concerns is given separately.
#[derive(Arbitrary, Debug)]
pub enum Message {
    Open {
        delivery: u8,
        depth: u8,
        class: u8,
        lifespan_micros: u16,
        first_sequence: Number,
        name_bytes: u16,
    },
    Change {
        delivery: u8,
        depth: u8,
        class: u8,
        first_sequence: Number,
    },
    Close,
    Want {
        bytes: Number,
    },
    Return {
        bytes: Number,
    },
    Grant {
        ends: Ends,
        bytes: Number,
    },
    Refuse {
        ends: Ends,
        why: u8,
        reason: Bytes,
    },
    Raw(Bytes),
}

/// The sessions that the peer names for itself and the victim.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Ends {
    is_another_session: bool,
    incarnation: u8,
}

impl Ends {
    /// Mostly one incarnation, because each new one makes the victim begin a session.
    fn ends(self, session: u32) -> StreamEnds {
        let session = session.wrapping_add(self.is_another_session.into());
        StreamEnds {
            session,
            incarnation: if self.incarnation < 240 {
                1
            } else {
                self.incarnation.into()
            },
        }
    }
}

/// Feedback, true or false.
#[derive(Arbitrary, Debug)]
pub struct Report {
    ends: Ends,
    number: Number,
    highest_packet: Number,
    packets: Number,
    bytes: Number,
    congestion_marks: Number,
    arrived_micros: u32,
    held_micros: u32,
    floor: Number,
    closed: Vec<(Number, Number, u8)>,
    progress: Vec<(Number, u16, u16)>,
    change: Option<Change>,
}

/// Modification of a packet before encryption.
#[derive(Arbitrary, Debug)]
pub struct Change {
    at: u16,
    flip: u8,
    cut: Option<u16>,
}

impl Change {
    pub fn apply(&self, packet: &mut Vec<u8>) {
        if let Some(cut) = self.cut {
            packet.truncate(usize::from(cut) % (packet.len() + 1));
        }
        if !packet.is_empty() {
            let at = usize::from(self.at) % packet.len();
            packet[at] ^= self.flip;
        }
    }
}

fn qos(delivery: u8, depth: u8, class: u8) -> Qos {
    let depth = u32::from(depth);
    let deliveries = [
        Delivery::keep_all(depth),
        Delivery::keep_last(depth),
        Delivery::best_effort(depth),
        Delivery::Latest,
    ];
    Qos {
        traffic_class: TrafficClass::ALL[usize::from(class) % 3],
        ..Qos::new(deliveries[usize::from(delivery) % 4])
    }
}

/// The numbers that an honest peer would use next.
#[derive(Debug)]
pub struct Peer {
    packet: u64,
    id: u64,
    message: u64,
    stream: u64,
    feedback: u64,
    said: usize,
    /// Session of the victim.
    session: u32,
}

impl Peer {
    pub fn new() -> Self {
        Self {
            packet: 1,
            id: 1,
            message: 0,
            stream: 1,
            feedback: 1,
            said: 0,
            session: 0,
        }
    }

    /// The datagrams of a saying, for the given session.
    pub fn say(&mut self, saying: &Saying, victim: &Session) -> Vec<Vec<u8>> {
        self.session = victim.sender().session();
        let datagrams = match saying {
            Saying::Raw(bytes) => vec![bytes.0.clone()],
            Saying::Data {
                session,
                number,
                interval,
                frames,
                change,
            } => {
                let mut packet = self.packet(*session, *number, *interval);
                frames
                    .iter()
                    .for_each(|frame| self.write(frame, &mut packet));
                change.iter().for_each(|change| change.apply(&mut packet));
                vec![packet]
            }
            Saying::Feedback(report) => vec![self.feedback(report, victim)],
            Saying::Streams {
                first,
                count,
                message,
            } => self.about_streams(*first, *count, message),
        };
        let room = DATAGRAMS_MAX - self.said;
        self.said += datagrams.len().min(room);
        datagrams
            .into_iter()
            .take(room)
            .filter(|datagram| datagram.len() <= DATAGRAM_BYTES)
            .collect()
    }

    fn packet(&mut self, session: u8, number: Number, interval: u8) -> Vec<u8> {
        let packet_number = number.take(&mut self.packet) as u32;
        let mut packet = Vec::new();
        // Mostly one session, because each new one makes the victim start again.
        let session = if session < 240 { 9 } else { session.into() };
        Header {
            session,
            packet_number,
            report_interval: ReportInterval(interval),
        }
        .write(&mut packet);
        packet
    }

    fn write(&mut self, frame: &Frame, packet: &mut Vec<u8>) {
        match *frame {
            Frame::Symbol {
                id,
                stream,
                sequence,
                sample_bytes,
                shard_limit,
                block,
                index,
                age_millis,
                fill,
            } => {
                let sample_bytes = sample_bytes.of(3000) as usize % (SAMPLE_BYTES_MAX + 1);
                let limit = [64, 66, 256, 1000, 1 << 16][usize::from(shard_limit) % 5];
                let Some(geometry) = Geometry::new(sample_bytes, limit) else {
                    return;
                };
                let block = usize::from(block) % geometry.blocks();
                let cut = geometry.block(block);
                let symbol = Symbol {
                    transmit_id: id.take(&mut self.id),
                    stream: stream.into(),
                    sequence: sequence.of(self.id),
                    geometry,
                    block: block as u16,
                    index: (usize::from(index) % cut.symbols()) as u16,
                    age_millis,
                };
                symbol.write(packet);
                packet.resize(packet.len() + cut.shard_bytes().min(DATAGRAM_BYTES), fill);
            }
            Frame::Control {
                sequence,
                stream,
                ref message,
            } => {
                let stream = stream.take(&mut self.stream);
                self.control(sequence, stream as u32, message, packet);
            }
            Frame::Status {
                floor,
                feedback_seen,
                ref abandoned,
            } => {
                let abandoned = abandoned
                    .iter()
                    .map(|(id, count, stream, sequence)| Abandoned {
                        transmit_id: id.of(self.id),
                        count: count.of(1),
                        stream: (*stream).into(),
                        sequence: sequence.of(self.id),
                    });
                let feedback_seen = feedback_seen.of(1);
                SenderStatus {
                    floor: floor.of(self.id),
                    feedback_seen,
                    abandoned: abandoned.collect(),
                }
                .write(packet);
            }
        }
    }

    fn control(&mut self, sequence: Number, stream: u32, message: &Message, packet: &mut Vec<u8>) {
        let message = match message {
            Message::Open {
                delivery,
                depth,
                class,
                lifespan_micros,
                first_sequence,
                name_bytes,
            } => {
                let qos = Qos {
                    lifespan: (*lifespan_micros > 0)
                        .then(|| Duration::from_micros((*lifespan_micros).into())),
                    ..qos(*delivery, *depth, *class)
                };
                let name = "n".repeat(usize::from(*name_bytes) % 513);
                Control::Open {
                    stream,
                    qos,
                    first_sequence: first_sequence.of(self.id),
                    name,
                }
                .encode()
            }
            Message::Change {
                delivery,
                depth,
                class,
                first_sequence,
            } => Control::Change {
                stream,
                qos: qos(*delivery, *depth, *class),
                first_sequence: first_sequence.of(self.id),
            }
            .encode(),
            Message::Close => Control::Close { stream }.encode(),
            Message::Want { bytes } => Control::Want {
                stream,
                bytes: bytes.of(BUDGET_BYTES),
            }
            .encode(),
            Message::Return { bytes } => Control::Return {
                stream,
                bytes: bytes.of(BUDGET_BYTES),
            }
            .encode(),
            Message::Grant { ends, bytes } => {
                let ends = ends.ends(self.session);
                Control::Grant {
                    stream,
                    ends,
                    bytes: bytes.of(BUDGET_BYTES),
                    most: bytes.of(BUDGET_BYTES) / 2,
                }
                .encode()
            }
            Message::Refuse { ends, why, reason } => Control::Refuse {
                stream,
                ends: ends.ends(self.session),
                why: match why % 5 {
                    0 => Refusal::NoMemory,
                    1 => Refusal::TooManyStreams,
                    2 => Refusal::Invalid,
                    3 => Refusal::NotAllowed,
                    _ => Refusal::because(&String::from_utf8_lossy(&reason.0)),
                },
            }
            .encode(),
            Message::Raw(bytes) => bytes.0.clone(),
        };
        let geometry = Geometry::new(message.len(), 1000).expect("it is short");
        let transmit_id = Number::Next.take(&mut self.id);
        let sequence = sequence.take(&mut self.message);
        Symbol {
            transmit_id,
            stream: 0,
            sequence,
            geometry,
            block: 0,
            index: 0,
            age_millis: 0,
        }
        .write(packet);
        let end = packet.len() + geometry.block(0).shard_bytes();
        packet.extend_from_slice(&message);
        packet.resize(end, 0);
    }

    fn about_streams(&mut self, first: Number, count: u16, message: &Message) -> Vec<Vec<u8>> {
        let (first, count) = (first.of(self.stream), u64::from(count) % 2000);
        self.stream += count;
        let mut packets = vec![self.packet(0, Number::Next, 0)];
        for stream in first..first + count {
            let mut frame = Vec::new();
            self.control(Number::Next, stream as u32, message, &mut frame);
            if packets
                .last()
                .is_some_and(|packet| packet.len() + frame.len() > DATAGRAM_BYTES)
            {
                packets.push(self.packet(0, Number::Next, 0));
            }
            packets
                .last_mut()
                .expect("there is one")
                .extend_from_slice(&frame);
        }
        packets
    }

    fn feedback(&mut self, report: &Report, victim: &Session) -> Vec<u8> {
        let sent = victim.status().packets_sent;
        let StreamEnds {
            session,
            incarnation,
        } = report.ends.ends(self.session);
        let floor = report.floor.of(0);
        let mut end = floor;
        let closed = report.closed.iter().map_while(|(skip, length, outcome)| {
            let start = end
                .checked_add(skip.of(0))
                .filter(|start| *start < VARINT_MAX)?;
            end = (start + length.of(1).max(1)).min(VARINT_MAX);
            let outcomes = [
                Outcome::Delivered,
                Outcome::Superseded,
                Outcome::Expired,
                Outcome::Abandoned,
                Outcome::Refused,
            ];
            Some(ClosedRange {
                start,
                end,
                outcome: outcomes[usize::from(*outcome) % 5],
            })
        });
        let closed = closed.collect();
        let mut last = 0;
        let progress = report
            .progress
            .iter()
            .map_while(|(further, block, symbols)| {
                last = (last + further.of(1)).min(VARINT_MAX);
                Some(Progress {
                    transmit_id: last,
                    block: *block,
                    symbols: *symbols,
                })
            });
        let mut feedback = Feedback {
            session,
            incarnation,
            number: report.number.take(&mut self.feedback),
            highest_packet: report.highest_packet.of(sent),
            packets: report.packets.of(sent),
            bytes: report.bytes.of(sent * 1000),
            congestion_marks: report.congestion_marks.of(sent),
            arrived_micros: report.arrived_micros,
            held_micros: report.held_micros,
            floor,
            closed,
            progress: progress.collect(),
        };
        let mut packet = Vec::new();
        feedback.write(DATAGRAM_BYTES, &mut packet);
        report
            .change
            .iter()
            .for_each(|change| change.apply(&mut packet));
        packet
    }
}

/// Configuration of the victim.
pub fn victim_config() -> SessionConfig {
    let receiver = ReceiverConfig {
        budget_bytes: BUDGET_BYTES,
        shares: 1,
        max_streams: STREAMS_MAX,
        initial_credit: 16 << 10,
    };
    SessionConfig {
        receiver,
        ..SessionConfig::default()
    }
}

/// Invariants of the victim, whatever the peer has sent.
pub fn check(victim: &Session) {
    let status = victim.status();
    if let Err(difference) = check_charges(victim.receiver()) {
        panic!("{difference}");
    }
    assert!(
        status.link.budget_held_bytes <= status.link.budget_used_bytes,
        "{:?}",
        status.link
    );
    assert!(
        status.link.budget_used_bytes <= BUDGET_BYTES,
        "{:?}",
        status.link
    );
    assert!(victim.receiver().streams().count() <= STREAMS_MAX);
    assert!(status.received.is_balanced(), "{:?}", status.received);
    assert!(status.sent.is_balanced(), "{:?}", status.sent);
    assert!(
        status.path.loss.is_finite() && (0.0..=1.0).contains(&status.path.loss),
        "{:?}",
        status.path
    );
}

/// A datagram that can be read can be written again.
pub fn check_reading(datagram: &[u8]) {
    if let Ok((_, frames)) = data::read(datagram) {
        assert!(frames.len() <= datagram.len());
    }
    if let Ok(feedback) = Feedback::read(datagram) {
        let mut again = Vec::new();
        feedback.clone().write(usize::MAX / 2, &mut again);
        assert_eq!(Feedback::read(&again), Ok(feedback));
    }
    if let Ok(message) = Control::decode(datagram) {
        assert_eq!(Control::decode(&message.encode()), Ok(message));
    }
}

/// Memory of the application. Some allocations fail, and the allocated bytes are counted.
pub struct Pool {
    asked: u64,
    given: Arc<AtomicU64>,
}

struct PoolBlock {
    bytes: Vec<u8>,
    given: Arc<AtomicU64>,
}

impl Pool {
    pub fn new(given: &Arc<AtomicU64>) -> Self {
        Self {
            asked: 0,
            given: Arc::clone(given),
        }
    }
}

impl Memory for Pool {
    fn allocate(&mut self, stream: u32, bytes: usize) -> Result<Box<dyn SampleBuffer>, NoMemory> {
        assert_ne!(
            stream, 0,
            "control messages must not use memory of the application"
        );
        self.asked += 1;
        if self.asked.is_multiple_of(5) {
            return Err(NoMemory);
        }
        let given = self.given.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        assert!(given <= BUDGET_BYTES);
        Ok(Box::new(PoolBlock {
            bytes: vec![0; bytes],
            given: Arc::clone(&self.given),
        }))
    }
}

impl AsRef<[u8]> for PoolBlock {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for PoolBlock {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for PoolBlock {
    fn drop(&mut self) {
        self.given
            .fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}
