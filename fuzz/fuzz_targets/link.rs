//! A hostile peer on a link: packets of any kind, taken whole or refused, and memory within its bounds.
//!
//! The first byte of each packet is its length; an empty one lets time pass.
#![no_main]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use libfuzzer_sys::fuzz_target;
use nervure_link::{
    memory::{Block, Memory, NoMemory},
    qos::{Delivery, Qos},
    receiver::ReceiverConfig,
    session::{Session, SessionConfig, SessionEvent},
    wire::{control::Control, data, feedback::Feedback},
};

const BUDGET_BYTES: u64 = 1 << 20;

/// Memory of the application that is short now and then, and counts what it has given.
struct Pool {
    asked: u64,
    given: Arc<AtomicU64>,
}

struct PoolBlock {
    bytes: Vec<u8>,
    given: Arc<AtomicU64>,
}

impl Memory for Pool {
    fn allocate(&mut self, _stream: u32, bytes: usize) -> Result<Box<dyn Block>, NoMemory> {
        self.asked += 1;
        if self.asked % 5 == 0 {
            return Err(NoMemory);
        }
        let given = self.given.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        assert!(given <= BUDGET_BYTES);
        Ok(Box::new(PoolBlock { bytes: vec![0; bytes], given: Arc::clone(&self.given) }))
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
        self.given.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut now = Instant::now();
    let receiver = ReceiverConfig { budget_bytes: BUDGET_BYTES, max_streams: 4, initial_credit: 16 << 10 };
    let mut session = Session::new(SessionConfig { receiver, ..SessionConfig::default() }, 1, now);
    let given = Arc::new(AtomicU64::new(0));
    session.set_memory(Box::new(Pool { asked: 0, given: Arc::clone(&given) }));
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
    drop(session);
    assert_eq!(given.load(Ordering::Relaxed), 0);
});
