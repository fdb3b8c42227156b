//! A hostile peer on a link: packets of any kind, taken whole or refused, and memory within its bounds.
//!
//! The first byte of each packet is its length; an empty one lets time pass.
#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use nervure_link::{
    qos::{Delivery, Qos},
    receiver::ReceiverConfig,
    session::{Session, SessionConfig, SessionEvent},
    wire::{control::Control, data, feedback::Feedback},
};

const BUDGET_BYTES: u64 = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let mut now = Instant::now();
    let receiver = ReceiverConfig { budget_bytes: BUDGET_BYTES, max_streams: 4, initial_credit: 16 << 10 };
    let mut session = Session::new(SessionConfig { receiver, ..SessionConfig::default() }, 1, now);
    let stream = session.open(now, "stream", Qos::new(Delivery::keep_last(2)));

    let mut rest = bytes;
    while let Some((length, tail)) = rest.split_first() {
        let (packet, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        if packet.is_empty() {
            now += Duration::from_millis(3);
            session.handle_timeout(now);
            session.send(now, stream, vec![1; 3000].into()).expect("a stream that keeps the last takes any");
            let mut out = Vec::new();
            while out.len() < 100_000 && session.next_datagram(now, 1200, &mut Vec::new()) {
                out.push(0);
            }
        }
        if let Ok((_, frames)) = data::read(packet) {
            assert!(frames.len() <= packet.len());
        }
        if let Ok(mut feedback) = Feedback::read(packet) {
            let mut again = Vec::new();
            feedback.clone().write(usize::MAX / 2, &mut again);
            assert_eq!(Feedback::read(&again).as_ref(), Ok(&feedback), "what was read can be written");
            feedback.session = session.sender().session();
            let mut aimed = Vec::new();
            feedback.write(1200, &mut aimed);
            session.on_datagram(now, &aimed);
        }
        if let Ok(message) = Control::decode(packet) {
            assert_eq!(Control::decode(&message.encode()), Ok(message));
        }
        session.on_datagram(now, packet);
        while let Some(event) = session.poll_event() {
            let SessionEvent::Receiver(nervure_link::receiver::ReceiverEvent::Readable(stream)) = event
            else {
                continue;
            };
            session.take(now, stream);
        }
        assert!(session.receiver().memory_bytes() <= BUDGET_BYTES + (64 << 10));
        assert!(session.status().sent.is_balanced());
    }
});
