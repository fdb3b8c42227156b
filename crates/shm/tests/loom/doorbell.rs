//! No wake-up of a consumer is lost.

use crate::check;
use crate::lock_free::doorbell::{Doorbell, Parking, Sleeper, Wake};
use crate::lock_free::sync::{AtomicBool, AtomicU64, FutexWord, Ordering::*};
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

/// A consumer that sleeps whenever nothing is pending must see every count of both producers. A
/// lost wake-up would leave it asleep, which loom reports as a deadlock.
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

/// No producer pays for waking a consumer that polls and never sleeps. The polls still find every
/// push: a producer that sees its bit set has pushed before the consumer's next look.
#[test]
fn a_consumer_that_only_polls_is_never_woken_and_misses_nothing() {
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

/// A consumer that sleeps alternately on the futex and in an event loop, as a program that mixes
/// both may. A producer that saw it asleep in one way may wake it when it sleeps in the other.
fn alternate_ways_to_sleep(preemptions: usize, pushes: [u64; 2], keeper: bool) {
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
fn a_stale_wake_of_one_kind_does_not_suppress_a_wake_of_the_other() {
    alternate_ways_to_sleep(3, [1, 1], false);
    alternate_ways_to_sleep(2, [1, 2], false);
}

#[test]
fn a_stale_wake_of_the_keeper_suppresses_no_wake() {
    alternate_ways_to_sleep(3, [1, 1], true);
    alternate_ways_to_sleep(2, [1, 2], true);
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
                // Steps of the producer before it was killed: none, its bit, or its bit and the
                // sequence.
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

/// Writes of a hostile peer, possible at any time: the consumer seems awake, and seems to have rung
/// already.
fn overwrite(bell: &Bell) {
    bell.parked.store(0, Relaxed);
    bell.words[0].store(u64::MAX, Relaxed);
    bell.summary.store(0, Relaxed);
}

#[test]
fn a_process_wakes_its_own_consumer_whatever_a_peer_writes() {
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
fn the_keeper_wakes_a_consumer_that_a_peer_marked_as_awake() {
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

/// Producers do not ring for a bit that is set, so a set bit without its summary would silence them
/// forever.
#[test]
fn a_sweep_repairs_what_a_peer_has_overwritten() {
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
        // As at the end of a sleep that was bounded by MAX_SLEEP_NANOS.
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
