//! Samples keep their order and none is torn. Every sample is received or reported as dropped. No
//! memory is written while it is read.

use crate::check;
use crate::lock_free::ring::{Popped, Ring, RingError, is_leased};
use crate::lock_free::sync::{AtomicU32, AtomicU64, Ordering::*};
use loom::sync::Arc;
use loom::thread;

const SLOT_WORDS: usize = 2;

struct Memory {
    head: AtomicU64,
    tail: AtomicU64,
    slots: Vec<AtomicU64>,
}

impl Memory {
    fn new(capacity: usize) -> Self {
        Self {
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            slots: (0..capacity * SLOT_WORDS)
                .map(|_| AtomicU64::new(0))
                .collect(),
        }
    }

    fn ring(&self) -> Ring<'_, SLOT_WORDS> {
        Ring {
            head: &self.head,
            tail: &self.tail,
            slots: &self.slots,
        }
    }

    fn push(&self, head: u64, value: u64) {
        self.ring().push(head, |slot| {
            slot[0].store(value, Relaxed);
            slot[1].store(value, Relaxed);
        });
    }

    fn pop(&self) -> Option<u64> {
        let read = |slot: &[AtomicU64]| (slot[0].load(Relaxed), slot[1].load(Relaxed));
        match self.ring().pop(read, |_| true).expect("valid counters") {
            Popped::Taken((a, b)) => {
                assert_eq!(a, b, "torn slot");
                Some(a)
            }
            Popped::Empty => None,
            Popped::Refused => unreachable!("every descriptor is admitted"),
        }
    }
}

#[test]
fn a_ring_that_drops_its_oldest_keeps_order_and_accounts_for_every_sample() {
    check(3, || {
        let memory = Arc::new(Memory::new(2));
        let producer = memory.clone();
        let thread = thread::spawn(move || {
            let mut dropped = Vec::new();
            for head in 0..4 {
                if producer.ring().queued(head).unwrap() == 2 {
                    // The value at an index is the index plus one.
                    dropped.extend(
                        producer
                            .ring()
                            .take_back(head)
                            .unwrap()
                            .map(|index| index + 1),
                    );
                }
                producer.push(head, head + 1);
            }
            dropped
        });
        let mut received: Vec<u64> = (0..2).filter_map(|_| memory.pop()).collect();
        let dropped = thread.join().unwrap();
        received.extend(std::iter::from_fn(|| memory.pop()));
        assert!(memory.ring().is_empty());
        assert!(received.is_sorted_by(|a, b| a < b), "{received:?}");
        let mut all = [received, dropped].concat();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3, 4]);
    });
}

/// Memory that must not be written while it is accessed otherwise; loom checks it.
struct Exclusive(loom::cell::UnsafeCell<u64>);

impl Exclusive {
    fn new() -> Self {
        Self(loom::cell::UnsafeCell::new(0))
    }

    #[expect(unsafe_code, reason = "loom panics where two would be inside")]
    fn write(&self, value: u64) {
        // SAFETY: loom panics if this access is not exclusive.
        self.0.with_mut(|memory| unsafe { *memory = value });
    }

    #[expect(unsafe_code, reason = "loom panics where a writer would be inside")]
    fn read(&self) -> u64 {
        // SAFETY: loom panics if a write is concurrent.
        self.0.with(|memory| unsafe { *memory })
    }
}

#[expect(unsafe_code, reason = "loom checks what it shares")]
// SAFETY: loom's cell panics at any access that is not exclusive.
unsafe impl Sync for Exclusive {}

#[test]
fn a_slot_is_written_again_only_after_it_was_read() {
    for capacity in [1, 2] {
        check(4, move || {
            let memory = Arc::new(Memory::new(capacity));
            // The contents of the slots, beside them: without drops, no slot is read while it is
            // written.
            let cells: Arc<Vec<_>> = Arc::new((0..capacity).map(|_| Exclusive::new()).collect());
            let (producer, cells2) = (memory.clone(), cells.clone());
            let thread = thread::spawn(move || {
                for head in 0..4 {
                    while producer.ring().queued(head).unwrap() == capacity as u64 {
                        thread::yield_now();
                    }
                    producer
                        .ring()
                        .push(head, |_| cells2[head as usize % capacity].write(head + 10));
                }
            });
            for index in 0..4 {
                let read = |_: &[AtomicU64]| cells[index % capacity].read();
                loop {
                    match memory.ring().pop(read, |_| true).unwrap() {
                        Popped::Taken(value) => break assert_eq!(value, index as u64 + 10),
                        _ => thread::yield_now(),
                    }
                }
            }
            thread.join().unwrap();
        });
    }
}

#[test]
fn a_slot_that_is_kept_is_written_again_only_after_it_was_confirmed() {
    check(3, || {
        let memory = Arc::new(Memory::new(2));
        let cells = Arc::new([Exclusive::new(), Exclusive::new()]);
        let (producer, cells2) = (memory.clone(), cells.clone());
        let thread = thread::spawn(move || {
            for head in 0..3 {
                while producer.ring().queued(head).unwrap() == 2 {
                    thread::yield_now();
                }
                let write = |_: &[AtomicU64]| cells2[head as usize % 2].write(head + 10);
                producer.ring().push(head, write);
            }
        });
        let mut cursor = None;
        for index in 0..3 {
            let read = |_: &[AtomicU64]| cells[index % 2].read();
            loop {
                match memory.ring().peek(&mut cursor, read, |_| true).unwrap() {
                    Popped::Taken(value) => break assert_eq!(value, index as u64 + 10),
                    _ => thread::yield_now(),
                }
            }
            // The second one is confirmed with the first.
            if index == 1 {
                assert_eq!(cells[0].read(), 10, "it is still there");
                memory.ring().take_through(1);
            }
        }
        thread.join().unwrap();
    });
}

#[test]
fn a_block_is_reused_only_after_its_consumer_released_it() {
    check(3, || {
        let memory = Arc::new(Memory::new(2));
        let leases = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let blocks = Arc::new([Exclusive::new(), Exclusive::new()]);
        let (memory2, leases2, blocks2) = (memory.clone(), leases.clone(), blocks.clone());
        let thread = thread::spawn(move || {
            let mut head = 0;
            for value in 1..=3 {
                let Some(block) = (0..2).find(|&b| !is_leased(&leases2[b])) else {
                    continue;
                };
                blocks2[block].write(value);
                leases2[block].store(1, Relaxed);
                memory2.push(head, (block as u64) << 32 | value);
                head += 1;
            }
            head
        });
        let mut received = 0;
        for _ in 0..2 {
            if let Some(descriptor) = memory.pop() {
                let block = (descriptor >> 32) as usize;
                assert_eq!(
                    blocks[block].read(),
                    descriptor & 0xffff,
                    "the block was written while leased"
                );
                leases[block].store(0, Release);
                received += 1;
            }
        }
        let sent = thread.join().unwrap();
        let left = std::iter::from_fn(|| memory.pop()).count();
        assert_eq!(sent, received + left as u64);
    });
}

#[test]
fn counters_beyond_the_capacity_are_an_error() {
    check(1, || {
        let memory = Memory::new(2);
        memory.head.store(3, Relaxed);
        let error = memory.ring().pop(|_| (), |()| true).unwrap_err();
        assert_eq!(
            error,
            RingError::Counters {
                distance: 3,
                capacity: 2
            }
        );
        memory.tail.store(9, Relaxed);
        assert!(memory.ring().queued(3).is_err());
    });
}
