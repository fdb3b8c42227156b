//! An authenticated peer that sends arbitrary packets: nothing panics, and memory stays within
//! bounds.

use std::time::{Duration, Instant};

use bytes::Bytes;
use nervure_linkemu::network::Draw;

use crate::{
    coding::geometry::Geometry,
    policy::Refusal,
    qos::{Delivery, Qos, TrafficClass},
    receiver::{ReceiverConfig, ReceiverEvent, check_charges},
    sender::NameTooLong,
    session::{Session, SessionConfig, SessionEvent},
    wire::{
        control::{Control, StreamEnds},
        data::{self, Abandoned, Frame, Header, SenderStatus, Symbol},
        feedback::{ClosedRange, Feedback, Outcome, Progress},
    },
};
use nervure_linkemu::network::for_each_seed;

const BUDGET_BYTES: u64 = 4 << 20;

fn victim(seed: u64, now: Instant) -> Session {
    let receiver = ReceiverConfig {
        budget_bytes: BUDGET_BYTES,
        shares: 1,
        max_streams: 8,
        initial_credit: 16 << 10,
    };
    Session::new(
        SessionConfig {
            receiver,
            ..SessionConfig::default()
        },
        seed,
        now,
    )
}

fn open(session: &mut Session, now: Instant, delivery: Delivery) -> u32 {
    session
        .open(now, "stream", Qos::new(delivery))
        .expect("the name is short")
}

/// Lets the session send all its packets, and returns the last ones.
fn drain(session: &mut Session, now: Instant) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for _ in 0..10_000 {
        let mut out = Vec::new();
        if !session.next_datagram(now, 1400, &mut out) {
            break;
        }
        packets.push(out);
    }
    packets
}

#[test]
fn garbage_and_altered_packets() {
    for_each_seed(0..200, |seed| {
        let mut draw = Draw::new(seed);
        let mut now = Instant::now();
        let (mut a, mut b) = (victim(seed, now), victim(seed + 1000, now));
        let stream = open(&mut a, now, Delivery::keep_last(4));
        let mut kept: Vec<Vec<u8>> = Vec::new();
        for _ in 0..300 {
            now += Duration::from_micros(200 + draw.below(3000));
            let _ = a.send(
                now,
                stream,
                Bytes::from(vec![7; draw.below(20_000) as usize]),
            );
            for session in [&mut a, &mut b] {
                session.handle_timeout(now);
                while session.poll_event().is_some() {}
            }
            let packets = [drain(&mut a, now), drain(&mut b, now)];
            for (packets, to) in packets.into_iter().zip([&mut b, &mut a]) {
                for mut packet in packets {
                    match draw.below(6) {
                        0 => packet.truncate(draw.below(packet.len() as u64 + 1) as usize),
                        1 => {
                            for _ in 0..=draw.below(4) {
                                let place = draw.below(packet.len() as u64) as usize;
                                packet[place] = draw.below(256) as u8;
                            }
                        }
                        2 => kept.push(packet.clone()),
                        3 if !kept.is_empty() => {
                            packet = kept[draw.below(kept.len() as u64) as usize].clone()
                        }
                        4 => {
                            packet = (0..draw.below(100))
                                .map(|_| draw.below(256) as u8)
                                .collect()
                        }
                        _ => {}
                    }
                    to.on_datagram(now, None, &packet);
                }
            }
            kept.truncate(100);
        }
        for session in [&a, &b] {
            assert!(session.status().link.budget_used_bytes <= BUDGET_BYTES);
            check_charges(session.receiver()).unwrap();
        }
    });
}

#[test]
fn a_sender_that_takes_all_it_can() {
    for_each_seed(0..60, |seed| {
        let mut draw = Draw::new(seed);
        let now = Instant::now();
        let mut session = victim(seed, now);
        let mut sender = Flood {
            packet: 0,
            id: 0,
            control: 0,
        };
        for step in 0..4000u64 {
            let mut out = sender.packet();
            match draw.below(10) {
                0..3 => sender.control(
                    &mut out,
                    &some_control(&mut draw, session.sender().session()),
                ),
                3 => {
                    let abandoned = (0..draw.below(48))
                        .map(|_| Abandoned {
                            transmit_id: draw.below(1 << 20),
                            count: [0, 1, 7, 1 << 61][draw.below(4) as usize],
                            stream: draw.below(10) as u32,
                            sequence: draw.below(100),
                        })
                        .filter(|abandoned| abandoned.count < 100 || step > 3500)
                        .collect();
                    SenderStatus {
                        floor: draw.below(50),
                        feedback_seen: draw.below(100),
                        abandoned,
                    }
                    .write(&mut out);
                }
                _ => sender.symbol(&mut draw, &mut out),
            }
            session.on_datagram(now, None, &out);
            while let Some(event) = session.poll_event() {
                if let SessionEvent::Receiver(ReceiverEvent::Readable(stream)) = event
                    && draw.below(4) == 0
                {
                    session.take(now, stream);
                }
            }
            assert!(session.status().link.budget_used_bytes <= BUDGET_BYTES);
            check_charges(session.receiver()).unwrap();
            if step % 50 == 0 {
                drain(&mut session, now);
            }
        }
        assert!(session.receiver().streams().count() <= 8);
        assert!(session.status().received.is_balanced());
    });
}

#[test]
fn feedback_that_lies() {
    for_each_seed(0..100, |seed| {
        let mut draw = Draw::new(seed);
        let mut now = Instant::now();
        let mut session = victim(seed, now);
        let streams = [
            Delivery::keep_all(8),
            Delivery::keep_last(3),
            Delivery::best_effort(2),
            Delivery::Latest,
        ]
        .map(|delivery| open(&mut session, now, delivery));
        // It grants credit, so that there are transmissions to send false feedback about.
        let mut peer = Flood {
            packet: 0,
            id: 0,
            control: 0,
        };
        for stream in streams {
            let mut out = peer.packet();
            let ends = StreamEnds {
                session: session.sender().session(),
                incarnation: 5,
            };
            peer.control(
                &mut out,
                &Control::Grant {
                    stream,
                    ends,
                    bytes: 1 << 20,
                    most: 1 << 20,
                },
            );
            session.on_datagram(now, None, &out);
        }
        let (mut number, incarnation) = (0, 5);
        for _ in 0..400 {
            now += Duration::from_micros(draw.below(8000));
            let stream = streams[draw.below(4) as usize];
            let _ = session.send(now, stream, Bytes::from(vec![1; draw.below(9000) as usize]));
            session.handle_timeout(now);
            drain(&mut session, now);
            while session.poll_event().is_some() {}
            number += draw.below(3);
            let sent = session.status().packets_sent;
            let mut start = draw.below(5);
            let closed = (0..draw.below(4))
                .map(|_| {
                    start += draw.below(20);
                    let range = ClosedRange {
                        start,
                        end: start + 1 + draw.below(5),
                        outcome: Outcome::Delivered,
                    };
                    start = range.end;
                    range
                })
                .collect();
            let mut feedback = Feedback {
                session: session.sender().session(),
                incarnation: if draw.below(50) == 0 {
                    draw.below(9) as u32
                } else {
                    incarnation
                },
                number,
                highest_packet: draw.below(sent + 2),
                packets: draw.below(sent + 10),
                bytes: draw.below(1 << 30),
                congestion_marks: draw.below(sent + 10),
                arrived_micros: draw.below(1 << 32) as u32,
                held_micros: draw.below(1 << 32) as u32,
                floor: 0,
                closed,
                progress: vec![Progress {
                    transmit_id: draw.below(60),
                    block: draw.below(3) as u16,
                    symbols: draw.below(1025) as u16,
                }],
            };
            let mut out = Vec::new();
            feedback.write(1400, &mut out);
            session.on_datagram(now, None, &out);
            assert!(
                session.status().sent.is_balanced(),
                "{:?}",
                session.status().sent
            );
        }
    });
}

/// The number of feedbacks until the sender finds that its peer lies. `alter` changes the peer's
/// honest feedback; every fifth data packet is lost.
fn feedbacks_until_found(
    seed: u64,
    mut alter: impl FnMut(&mut Draw, &mut Feedback),
) -> Option<u64> {
    let mut draw = Draw::new(seed);
    let mut now = Instant::now();
    let [mut sender, mut receiver] =
        [seed, seed + 1000].map(|seed| Session::new(SessionConfig::default(), seed, now));
    let stream = sender
        .open(now, "stream", Qos::new(Delivery::keep_last(1)))
        .expect("a short name");
    let mut feedbacks = 0;
    for _ in 0..2500 {
        now += Duration::from_millis(1);
        let _ = sender.send(now, stream, vec![7; 20_000].into());
        sender.handle_timeout(now);
        receiver.handle_timeout(now);
        for packet in drain(&mut sender, now) {
            if !draw.chance(20) {
                receiver.on_datagram(now, None, &packet);
            }
        }
        for mut packet in drain(&mut receiver, now) {
            if let Ok(mut feedback) = Feedback::read(&packet) {
                feedbacks += 1;
                alter(&mut draw, &mut feedback);
                packet.clear();
                feedback.write(1400, &mut packet);
            }
            sender.on_datagram(now, None, &packet);
            if sender.violation().is_some() {
                return Some(feedbacks);
            }
        }
        while sender.poll_event().is_some() || receiver.poll_event().is_some() {}
    }
    None
}

/// A report of packets that are in flight or were lost would let a peer draw more than its share of
/// a path. (RFC 9000, section 21.4.)
#[test]
fn a_peer_that_reports_what_it_does_not_have_is_found() {
    for_each_seed(0..5, |seed| {
        assert_eq!(
            feedbacks_until_found(seed, |_, _| {}),
            None,
            "an honest peer"
        );
        // Lost packets are reported as received.
        let lost = feedbacks_until_found(seed, |_, feedback| {
            feedback.packets = feedback.highest_packet;
        });
        assert!(lost.is_some_and(|count| count < 500), "{lost:?}");
        // The highest packet is one that may be in flight.
        let early = feedbacks_until_found(seed, |draw, feedback| {
            feedback.highest_packet += draw.below(3);
        });
        assert!(early.is_some_and(|count| count < 2000), "{early:?}");
    });
}

/// Writes packets by hand.
struct Flood {
    packet: u32,
    id: u64,
    control: u64,
}

impl Flood {
    fn packet(&mut self) -> Vec<u8> {
        self.packet += 1;
        let mut out = Vec::new();
        Header {
            session: 9,
            packet_number: self.packet,
            report_interval: Default::default(),
        }
        .write(&mut out);
        out
    }

    fn control(&mut self, out: &mut Vec<u8>, message: &Control) {
        let payload = message.encode();
        self.id += 1;
        let geometry = Geometry::new(payload.len(), 1200).expect("it is short");
        let sequence = self.control;
        self.control += 1;
        let symbol = Symbol {
            transmit_id: self.id,
            stream: 0,
            sequence,
            geometry,
            block: 0,
            index: 0,
            age_millis: 0,
        };
        symbol.write(out);
        let end = out.len() + geometry.block(0).shard_bytes();
        out.extend_from_slice(&payload);
        out.resize(end, 0);
    }

    fn symbol(&mut self, draw: &mut Draw, out: &mut Vec<u8>) {
        let sample_bytes = [0, 10, 1000, 5000, 100_000, 1 << 30][draw.below(6) as usize];
        let geometry = Geometry::new(sample_bytes, 1200).expect("within the limits");
        let block = draw.below(geometry.blocks() as u64) as u16;
        let index = draw.below(geometry.block(block.into()).symbols() as u64) as u16;
        let transmit_id = match draw.below(3) {
            0 => {
                self.id += 1;
                self.id
            }
            1 => draw.below(self.id + 1),
            _ => draw.below(1 << 61),
        };
        let symbol = Symbol {
            transmit_id,
            stream: draw.below(10) as u32,
            sequence: [draw.below(50), draw.below(1 << 61)][draw.below(2) as usize],
            geometry,
            block,
            index,
            age_millis: draw.below(1 << 16) as u16,
        };
        symbol.write(out);
        out.resize(out.len() + geometry.block(block.into()).shard_bytes(), 3);
    }
}

fn some_control(draw: &mut Draw, session: u32) -> Control {
    let stream = 1 + draw.below(20) as u32;
    // Sometimes of a session that never existed, or of a receiver that restarted.
    let ends = StreamEnds {
        session: session ^ u32::from(draw.chance(10)),
        incarnation: u32::from(draw.chance(2)),
    };
    match draw.below(6) {
        0 => Control::Close { stream },
        1 => Control::Want {
            stream,
            bytes: draw.below(1 << 60),
        },
        2 => Control::Grant {
            stream,
            ends,
            bytes: draw.below(1 << 60),
            most: draw.below(1 << 60),
        },
        3 => Control::Refuse {
            stream,
            ends,
            why: Refusal::NotAllowed,
        },
        kind => {
            let delivery = [
                Delivery::keep_all(3),
                Delivery::keep_last(9),
                Delivery::Latest,
            ][draw.below(3) as usize];
            let qos = Qos {
                delivery,
                traffic_class: TrafficClass::ALL[draw.below(3) as usize],
                deadline: None,
                lifespan: (draw.below(2) == 0).then_some(Duration::from_millis(5)),
            };
            let first_sequence = draw.below(10);
            match kind {
                4 => Control::Change {
                    stream,
                    qos,
                    first_sequence,
                },
                _ => Control::Open {
                    stream,
                    qos,
                    first_sequence,
                    name: "n".repeat(draw.below(500) as usize),
                },
            }
        }
    }
}

/// A peer that begins session after session, and opens and ends streams, while the application
/// takes no event: those that wait stay few, and none is lost that still counts.
#[test]
fn events_that_the_application_does_not_take_are_kept_and_stay_few() {
    let now = Instant::now();
    let mut session = victim(1, now);
    let mut peer = Flood {
        packet: 0,
        id: 0,
        control: 0,
    };
    let qos = Qos::new(Delivery::keep_last(1));
    for stream in 1..=10_000 {
        let mut out = peer.packet();
        let name = format!("stream {stream}");
        let open = Control::Open {
            stream,
            qos,
            first_sequence: 0,
            name,
        };
        peer.control(&mut out, &open);
        peer.control(&mut out, &Control::Close { stream });
        session.on_datagram(now, None, &out);
    }
    let opened: Vec<_> = std::iter::from_fn(|| session.poll_event()).collect();
    let expected = (1..=8).map(|stream| ReceiverEvent::Opened {
        stream,
        name: format!("stream {stream}"),
        qos,
    });
    let expected = expected.chain((1..=8).map(ReceiverEvent::Ended));
    assert!(
        opened.into_iter().eq(expected.map(SessionEvent::Receiver)),
        "every stream that was accepted is announced"
    );
    assert_eq!(session.receiver().streams().count(), 0);

    for number in 0..10_000 {
        let mut out = Vec::new();
        Header {
            session: number,
            packet_number: 1,
            report_interval: Default::default(),
        }
        .write(&mut out);
        session.on_datagram(now, None, &out);
    }
    let events: Vec<_> = std::iter::from_fn(|| session.poll_event()).collect();
    let restarted = SessionEvent::Receiver(ReceiverEvent::PeerRestarted { lost: 0 });
    assert_eq!(events, [restarted]);
}

/// A name that is too long for the protocol is refused at either end, never cut.
#[test]
fn a_name_that_is_too_long_is_refused() {
    let now = Instant::now();
    let mut session = victim(1, now);
    let name = "n".repeat(513);
    let error = session.open(now, name.clone(), Qos::new(Delivery::Latest));
    assert_eq!(error, Err(NameTooLong { bytes: 513 }.into()));

    let mut peer = Flood {
        packet: 0,
        id: 0,
        control: 0,
    };
    let mut out = peer.packet();
    let open = Control::Open {
        stream: 7,
        qos: Qos::new(Delivery::Latest),
        first_sequence: 0,
        name,
    };
    peer.control(&mut out, &open);
    session.on_datagram(now, None, &out);
    assert_eq!(session.status().link.invalid_messages, 1);
    assert_eq!(session.poll_event(), None);
    let refused = drain(&mut session, now).into_iter().any(|packet| {
        data::read(&packet).is_ok_and(|(_, frames)| {
            frames.into_iter().any(|frame| match frame {
                Frame::Symbol { symbol, shard } => {
                    let bytes = symbol.geometry.sample_bytes();
                    let message = Control::decode(&packet[shard][..bytes]);
                    matches!(message, Ok(Control::Refuse { stream: 7, .. }))
                }
                Frame::Status(_) => false,
            })
        })
    });
    assert!(refused);
}
