//! Every interleaving of the lock-free structures, under the memory model of C11. Run by
//! `RUSTFLAGS="--cfg loom" cargo test -p nervure-shm --release --lib`.

use crate::doorbell::{Doorbell, Parking, Sleeper, Wake};
use crate::double_buffer::DoubleBuffer;
use crate::ring::{Misbehaviour, Popped, Ring, SLOT_WORDS};
use crate::room_futex::{RoomFutex, RoomWaiters};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, FutexWord, Ordering::*};
use loom::sync::Arc;
use loom::thread;

struct Bell {
    sequence: FutexWord,
    parked: AtomicU64,
    summary: AtomicU64,
    words: Vec<AtomicU64>,
    sleeper: Sleeper,
}

impl Bell {
    fn new(words: usize) -> Self {
        Self {
            sequence: FutexWord::new(),
            parked: AtomicU64::new(0),
            summary: AtomicU64::new(0),
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            sleeper: Sleeper::default(),
        }
    }

    fn sleep(&self) {
        self.view().sleep(&self.sleeper, 0);
    }

    fn view(&self) -> Doorbell<'_> {
        Doorbell {
            sequence: &self.sequence,
            parked: &self.parked,
            summary: &self.summary,
            words: &self.words,
        }
    }
}

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

    fn ring(&self) -> Ring<'_> {
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
        match self.ring().pop(read, |_| true).expect("no misbehaviour") {
            Popped::Taken((a, b)) => {
                assert_eq!(a, b, "torn slot");
                Some(a)
            }
            Popped::Empty => None,
            Popped::Refused => unreachable!("all are admitted"),
        }
    }
}

fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// A consumer that sleeps whenever nothing is pending sees every count of both producers; a lost wake-up would
/// leave it asleep, which loom reports as a deadlock.
fn producers_wake_a_sleeping_consumer(preemptions: usize, inputs: [u32; 2], pushes: [u64; 2]) {
    check(preemptions, move || {
        let bell = Arc::new(Bell::new(2));
        let heads = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let threads: Vec<_> = (0..2)
            .filter(|&i| pushes[i] > 0)
            .map(|i| {
                let (bell, heads) = (bell.clone(), heads.clone());
                thread::spawn(move || {
                    for _ in 0..pushes[i] {
                        heads[i].fetch_add(1, Release);
                        let _ = bell.view().ring(inputs[i]);
                    }
                })
            })
            .collect();
        let mut seen = [0, 0];
        let mut local = [0; 2];
        while seen != pushes {
            if !bell.view().take(&mut local) {
                bell.sleep();
                continue;
            }
            for i in 0..2 {
                let (word, bit) = (inputs[i] as usize / 64, 1u64 << (inputs[i] % 64));
                if local[word] & bit != 0 {
                    seen[i] = heads[i].load(Acquire);
                }
            }
            local = [0; 2];
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// A consumer that looks now and then and never lies down: nobody pays for waking it, and its looks find everything,
/// because a producer that sees its bit still set is one whose push the next look comes after.
#[test]
fn a_consumer_that_only_looks_is_never_woken_and_misses_nothing() {
    const PUSHES: u64 = 2;
    check(4, || {
        let bell = Arc::new(Bell::new(1));
        let head = Arc::new(AtomicU64::new(0));
        let producer = {
            let (bell, head) = (bell.clone(), head.clone());
            thread::spawn(move || {
                for _ in 0..PUSHES {
                    head.fetch_add(1, Release);
                    assert_eq!(bell.view().ring(0), Wake::Nothing);
                }
            })
        };
        let mut seen = 0;
        let mut look = || {
            let mut local = [0];
            if bell.view().take(&mut local) {
                seen = head.load(Acquire);
            }
        };
        look();
        look();
        producer.join().unwrap();
        look();
        assert_eq!(seen, PUSHES);
    });
}

#[test]
fn one_producer_never_loses_a_wake_up() {
    producers_wake_a_sleeping_consumer(4, [0, 1], [2, 0]);
}

#[test]
fn two_producers_of_one_word_never_lose_a_wake_up() {
    producers_wake_a_sleeping_consumer(2, [0, 1], [1, 1]);
}

#[test]
fn two_producers_of_two_words_never_lose_a_wake_up() {
    producers_wake_a_sleeping_consumer(2, [3, 70], [2, 1]);
}

/// An eventfd as an event loop watches it.
struct EventFd(loom::sync::Mutex<bool>, loom::sync::Condvar);

impl EventFd {
    fn write(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    fn wait_and_clear(&self) {
        let mut readable = self.0.lock().unwrap();
        while !*readable {
            readable = self.1.wait(readable).unwrap();
        }
        *readable = false;
    }
}

/// A consumer that sleeps on the futex and in an event loop by turns, as a program that mixes both may: a producer
/// that saw it asleep in one way may get to wake it when it sleeps in the other.
fn ways_to_sleep_may_alternate(preemptions: usize, pushes: [u64; 2], keeper: bool) {
    check(preemptions, move || {
        let bell = Arc::new(Bell::new(1));
        let eventfd = Arc::new(EventFd(
            loom::sync::Mutex::new(false),
            loom::sync::Condvar::new(),
        ));
        let heads = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let threads: Vec<_> = (0..2)
            .map(|i| {
                let (bell, heads, eventfd) = (bell.clone(), heads.clone(), eventfd.clone());
                thread::spawn(move || {
                    for _ in 0..pushes[i] {
                        heads[i].fetch_add(1, Release);
                        if keeper && i == 0 {
                            bell.view().ring_all();
                            eventfd.write();
                        } else if bell.view().ring(i as u32) == Wake::EventFd {
                            eventfd.write();
                        }
                    }
                })
            })
            .collect();
        let (mut seen, mut local, mut turn) = ([0, 0], [0], 0);
        while seen != pushes {
            if !bell.view().take(&mut local) {
                turn += 1;
                if turn % 2 == 1 {
                    bell.sleep();
                } else if bell.view().arm(&bell.sleeper) {
                    eventfd.wait_and_clear();
                    bell.view().unpark(&bell.sleeper);
                }
            }
            for i in 0..2 {
                if local[0] & 1 << i != 0 {
                    seen[i] = heads[i].load(Acquire);
                }
            }
            local = [0];
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_stale_wake_of_one_kind_does_not_cost_a_sleep_of_the_other_its_wake() {
    ways_to_sleep_may_alternate(3, [1, 1], false);
    ways_to_sleep_may_alternate(2, [1, 2], false);
}

#[test]
fn a_stale_wake_of_the_keeper_does_not_either() {
    ways_to_sleep_may_alternate(3, [1, 1], true);
    ways_to_sleep_may_alternate(2, [1, 2], true);
}

#[test]
fn the_keeper_wakes_a_consumer_whose_producer_died_before_it_rang() {
    for died_after in 0..3 {
        check(3, move || {
            let bell = Arc::new(Bell::new(1));
            let head = Arc::new(AtomicU64::new(0));
            let (bell2, head2) = (bell.clone(), head.clone());
            let thread = thread::spawn(move || {
                head2.fetch_add(1, Release);
                // What a producer has done when it is killed: nothing, its bit, or its bit and the sequence.
                if died_after >= 1 {
                    bell2.words[0].fetch_or(1, Release);
                }
                if died_after >= 2 {
                    bell2.summary.fetch_or(1, Release);
                    bell2.sequence.0.fetch_add(1, Release);
                }
                bell2.view().ring_all();
            });
            let mut local = [0];
            while head.load(Acquire) == 0 || local[0] & 1 == 0 {
                if !bell.view().take(&mut local) {
                    bell.sleep();
                }
            }
            thread.join().unwrap();
        });
    }
}

/// What a peer that breaks the rules may do at any time: seem to wake the consumer, and seem to have rung already.
fn overwrite(bell: &Bell) {
    bell.parked.store(0, Relaxed);
    bell.words[0].store(u64::MAX, Relaxed);
    bell.summary.store(0, Relaxed);
}

#[test]
fn its_own_process_wakes_a_consumer_whatever_a_peer_writes() {
    for in_event_loop in [false, true] {
        check(3, move || {
            let bell = Arc::new(Bell::new(1));
            let eventfd = Arc::new(EventFd(
                loom::sync::Mutex::new(false),
                loom::sync::Condvar::new(),
            ));
            let command = Arc::new(AtomicU64::new(0));
            let hostile = {
                let bell = bell.clone();
                thread::spawn(move || overwrite(&bell))
            };
            let control = {
                let (bell, eventfd, command) = (bell.clone(), eventfd.clone(), command.clone());
                thread::spawn(move || {
                    command.store(1, Relaxed);
                    if bell.view().interrupt(&bell.sleeper) == Some(Parking::EventFd) {
                        eventfd.write();
                    }
                })
            };
            while !bell.sleeper.take_interrupt() {
                if !in_event_loop {
                    bell.sleep();
                } else if bell.view().arm(&bell.sleeper) {
                    eventfd.wait_and_clear();
                    bell.view().unpark(&bell.sleeper);
                }
            }
            assert_eq!(command.load(Relaxed), 1);
            hostile.join().unwrap();
            control.join().unwrap();
        });
    }
}

#[test]
fn the_keeper_wakes_a_consumer_that_a_peer_made_seem_awake() {
    check(3, || {
        let bell = Arc::new(Bell::new(1));
        let woken = Arc::new(AtomicBool::new(false));
        let hostile = {
            let bell = bell.clone();
            thread::spawn(move || bell.parked.store(0, Relaxed))
        };
        let keeper = {
            let (bell, woken) = (bell.clone(), woken.clone());
            thread::spawn(move || {
                woken.store(true, Release);
                bell.view().ring_all();
            })
        };
        let mut local = [0];
        while !woken.load(Acquire) {
            if !bell.view().take(&mut local) {
                bell.sleep();
            }
        }
        hostile.join().unwrap();
        keeper.join().unwrap();
    });
}

/// Producers do not ring for a bit that is set, so that a set bit without its summary would silence them for good.
#[test]
fn a_look_at_everything_repairs_what_a_peer_has_overwritten() {
    const PUSHES: u64 = 2;
    check(3, || {
        let bell = Arc::new(Bell::new(1));
        let head = Arc::new(AtomicU64::new(0));
        overwrite(&bell);
        let producer = {
            let (bell, head) = (bell.clone(), head.clone());
            thread::spawn(move || {
                for _ in 0..PUSHES {
                    head.fetch_add(1, Release);
                    let _ = bell.view().ring(0);
                }
            })
        };
        // As at the end of a bounded sleep.
        let mut local = [0];
        bell.view().take_all(&mut local);
        let mut seen = head.load(Acquire);
        while seen != PUSHES {
            if bell.view().take(&mut local) {
                seen = head.load(Acquire);
            } else {
                bell.sleep();
            }
        }
        producer.join().unwrap();
    });
}

#[test]
fn a_waiting_producer_is_always_told_of_room() {
    check(3, || {
        let space = Arc::new((FutexWord::new(), AtomicU32::new(0), RoomWaiters::default()));
        let room = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (space, room) = (space.clone(), room.clone());
                thread::spawn(move || {
                    room.fetch_add(1, Release);
                    RoomFutex {
                        sequence: &space.0,
                        waiters: &space.1,
                    }
                    .notify();
                })
            })
            .collect();
        let view = RoomFutex {
            sequence: &space.0,
            waiters: &space.1,
        };
        let all = || (room.load(Acquire) == 2).then_some(());
        while view.wait(&space.2, 0, all, |_| ()).0.is_err() {}
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(space.1.load(Relaxed), 0);
    });
}

#[test]
fn its_own_process_wakes_a_waiting_producer_whatever_a_peer_writes() {
    check(3, || {
        let space = Arc::new((FutexWord::new(), AtomicU32::new(0), RoomWaiters::default()));
        let stopping = Arc::new(AtomicBool::new(false));
        let hostile = {
            let space = space.clone();
            thread::spawn(move || space.1.store(0, Relaxed))
        };
        let control = {
            let (space, stopping) = (space.clone(), stopping.clone());
            thread::spawn(move || {
                stopping.store(true, Release);
                space.2.wake(&RoomFutex {
                    sequence: &space.0,
                    waiters: &space.1,
                });
            })
        };
        let view = RoomFutex {
            sequence: &space.0,
            waiters: &space.1,
        };
        let stopped = || stopping.load(Acquire).then_some(());
        while view.wait(&space.2, 0, stopped, |_| ()).0.is_err() {}
        hostile.join().unwrap();
        control.join().unwrap();
    });
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
                    // The value at an index is one more.
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
        assert!(received.is_sorted_by(|a, b| a < b), "{received:?}");
        let mut all = [received, dropped].concat();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3, 4]);
    });
}

/// Memory that its reader and its writer never touch at once, which loom checks.
struct Exclusive(loom::cell::UnsafeCell<u64>);

impl Exclusive {
    fn new() -> Self {
        Self(loom::cell::UnsafeCell::new(0))
    }

    #[expect(unsafe_code, reason = "loom panics where two would be inside")]
    fn write(&self, value: u64) {
        // SAFETY: nobody else is inside: loom checks it.
        self.0.with_mut(|memory| unsafe { *memory = value });
    }

    #[expect(unsafe_code, reason = "loom panics where a writer would be inside")]
    fn read(&self) -> u64 {
        // SAFETY: as above.
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
            // What the slots hold, beside them: where nothing is dropped, nobody reads what is being written.
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
fn a_block_is_reused_only_after_its_consumer_released_it() {
    check(3, || {
        let memory = Arc::new(Memory::new(2));
        let leases = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let blocks = Arc::new([Exclusive::new(), Exclusive::new()]);
        let (memory2, leases2, blocks2) = (memory.clone(), leases.clone(), blocks.clone());
        let thread = thread::spawn(move || {
            let mut head = 0;
            for value in 1..=3 {
                let Some(block) = (0..2).find(|&b| !crate::ring::is_leased(&leases2[b])) else {
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
fn counters_beyond_the_capacity_are_misbehaviour() {
    check(1, || {
        let memory = Memory::new(2);
        memory.head.store(3, Relaxed);
        let error = memory.ring().pop(|_| (), |()| true).unwrap_err();
        assert_eq!(
            error,
            Misbehaviour::Counters {
                distance: 3,
                capacity: 2
            }
        );
        memory.tail.store(9, Relaxed);
        assert!(memory.ring().queued(3).is_err());
    });
}

#[test]
fn whoever_reads_the_latest_words_gets_whole_ones_and_never_older_ones() {
    check(4, || {
        let memory = Arc::new((AtomicU64::new(0), [0, 1, 2, 3].map(|_| AtomicU64::new(0))));
        let view = |memory: &(AtomicU64, [AtomicU64; 4])| -> [u64; 2] {
            let (even, odd) = memory.1.split_at(2);
            DoubleBuffer {
                version: &memory.0,
                copies: [even, odd],
            }
            .read()
        };
        let writer = memory.clone();
        let thread = thread::spawn(move || {
            for value in 1..=3 {
                let (even, odd) = writer.1.split_at(2);
                DoubleBuffer {
                    version: &writer.0,
                    copies: [even, odd],
                }
                .write(&[value, value]);
            }
        });
        let (first, second) = (view(&memory), view(&memory));
        thread.join().unwrap();
        assert!(
            first[0] == first[1] && second[0] == second[1],
            "torn: {first:?} {second:?}"
        );
        assert!(first[0] <= second[0]);
        assert_eq!(view(&memory), [3, 3]);
    });
}
