//! Measures the hand-over of a sample between two threads of one process: through shared memory, as
//! composed nodes do, and beside it, in the same run, through a bare futex and the channels of crossbeam and tokio.
//!
//!     cargo run --release -p nervure-testkit --example handover
//!
//! The time is from before the memory for the sample is taken until the consumer has it. The rivals
//! have no memory to take: they pass a pointer to a buffer that exists already. One sample is in
//! flight at a time, so that a pause of the machine delays one sample of each. Blocks of samples of
//! all rivals alternate.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use nervure_message::Header;
use nervure_protocol::wiring::{Policy, Queue};
use nervure_shm::monotonic_nanos;
use nervure_testkit::shared_memory::{SharedMemory, SharedSample};
use nervure_testkit::{
    Arrival, Limits, Plane, PlaneInbox, PlaneLoan, PlaneOutput, PlaneSample, Wait,
};
use rustix::thread::{CpuSet, futex, sched_setaffinity};

const SIZES: [usize; 4] = [64, 4 << 10, 1 << 20, 32 << 20];
const ROUNDS: usize = 7;
/// Samples at the begin of a block that are not counted: memory is mapped and caches fill.
const WARM_UP: usize = 50;

/// How the consumer waits.
#[derive(Clone, Copy, PartialEq)]
enum Consumer {
    Sleeps,
    Polls,
}

impl Consumer {
    fn samples(self) -> usize {
        match self {
            Self::Sleeps => 200,
            Self::Polls => 3000,
        }
    }

    /// Waits until the consumer surely waits again.
    fn pause(self) {
        match self {
            Self::Sleeps => thread::sleep(Duration::from_millis(1)),
            Self::Polls => {
                let until = monotonic_nanos() + 10_000;
                while monotonic_nanos() < until {
                    std::hint::spin_loop();
                }
            }
        }
    }
}

/// Measures one block of samples, in nanoseconds.
type Rival = fn(usize, Consumer) -> Vec<u64>;

const RIVALS: [(&str, Rival); 5] = [
    ("futex", futex_and_pointer),
    ("crossbeam", crossbeam),
    ("tokio", tokio),
    ("shared memory", whole),
    ("from publication on", published),
];

fn main() {
    run_on(0);
    for (title, consumer) in [
        ("sleeping consumer, 1 kHz", Consumer::Sleeps),
        ("polling consumer, 100 kHz", Consumer::Polls),
    ] {
        println!("{title}: median and 99th percentile in us");
        print!("{:>10}", "bytes");
        RIVALS.iter().for_each(|(name, _)| print!("{name:>24}"));
        println!();
        for size in SIZES {
            let mut latencies = RIVALS.map(|_| Vec::new());
            for _ in 0..ROUNDS {
                for (all, (_, rival)) in latencies.iter_mut().zip(RIVALS) {
                    all.extend(rival(size, consumer).into_iter().skip(WARM_UP));
                }
            }
            print!("{size:>10}");
            for all in &mut latencies {
                all.sort_unstable();
                let at = |part: usize| all[all.len() * part / 100] as f64 / 1000.0;
                print!("{:>14.2} {:>9.2}", at(50), at(99));
            }
            println!();
        }
    }
}

/// Binds this thread to a processor, so that the two ends of all rivals have the same places.
fn run_on(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).expect("two processors");
}

fn stamp(payload: &mut [u8], nanos: u64) {
    payload[..8].copy_from_slice(&nanos.to_ne_bytes());
}

fn age(payload: &[u8]) -> u64 {
    let now = monotonic_nanos();
    let stamped = u64::from_ne_bytes(payload[..8].try_into().expect("8 bytes"));
    now - stamped
}

/// Shared memory, with the time to take the memory.
fn whole(size: usize, consumer: Consumer) -> Vec<u64> {
    shared_memory(size, consumer, |sample| age(sample.payload()))
}

/// Shared memory, from the publication of a filled sample on.
fn published(size: usize, consumer: Consumer) -> Vec<u64> {
    shared_memory(size, consumer, |sample| {
        monotonic_nanos() - sample.header().publish_mono
    })
}

fn shared_memory(
    size: usize,
    consumer: Consumer,
    age: impl Fn(&SharedSample) -> u64 + Send,
) -> Vec<u64> {
    let plane = SharedMemory::default();
    let output = plane.producer(Limits::default());
    let (receiver, mut inbox) = plane.consumer(1);
    let queue = Queue {
        policy: Policy::Block,
        depth: 1,
        max_held: 9,
    };
    plane.connect(&output, &receiver, 0, queue);
    let samples = consumer.samples();
    thread::scope(|scope| {
        let received = scope.spawn(move || {
            run_on(1);
            let mut ages = Vec::with_capacity(samples);
            while ages.len() < samples {
                match inbox.try_next() {
                    Some(Arrival::Sample(_, sample)) => ages.push(age(&sample)),
                    Some(Arrival::Closed(_)) => break,
                    None if consumer == Consumer::Sleeps => inbox.wait(None),
                    None => std::hint::spin_loop(),
                }
            }
            ages
        });
        for number in 0..samples {
            let begin = monotonic_nanos();
            let mut loan = output
                .loan(size, 0, Wait::Forever)
                .unwrap_or_else(|refusal| panic!("{refusal:?}"));
            stamp(loan.payload_mut(), begin);
            let sent = output.publish(loan, Header::default(), &[], Wait::Forever);
            assert!(sent.is_ok());
            // The work of the control threads: it maps blocks that are new.
            plane.serve();
            if number < WARM_UP {
                plane.wake(&receiver);
            }
            consumer.pause();
        }
        received.join().expect("the consumer has finished")
    })
}

fn crossbeam(size: usize, consumer: Consumer) -> Vec<u64> {
    let (sender, receiver) = crossbeam_channel::bounded::<Box<[u8]>>(1);
    let (back, free) = crossbeam_channel::bounded::<Box<[u8]>>(1);
    back.send(vec![0; size].into()).expect("room");
    let samples = consumer.samples();
    thread::scope(|scope| {
        let received = scope.spawn(move || {
            run_on(1);
            let mut ages = Vec::with_capacity(samples);
            while ages.len() < samples {
                let buffer = match consumer {
                    Consumer::Sleeps => receiver.recv().ok(),
                    Consumer::Polls => receiver.try_recv().ok(),
                };
                if let Some(buffer) = buffer {
                    ages.push(age(&buffer));
                    back.send(buffer).expect("the producer lives");
                }
            }
            ages
        });
        for _ in 0..samples {
            let mut buffer = free.recv().expect("the consumer lives");
            stamp(&mut buffer, monotonic_nanos());
            sender.send(buffer).expect("the consumer lives");
            consumer.pause();
        }
        received.join().expect("the consumer has finished")
    })
}

/// A task awaits each buffer, on a runtime of the consumer's thread.
fn tokio(size: usize, consumer: Consumer) -> Vec<u64> {
    let (sender, mut receiver) = tokio::sync::mpsc::channel::<Box<[u8]>>(1);
    let (back, mut free) = tokio::sync::mpsc::channel::<Box<[u8]>>(1);
    back.try_send(vec![0; size].into()).expect("room");
    let samples = consumer.samples();
    let receive = async move {
        let mut ages = Vec::with_capacity(samples);
        while ages.len() < samples {
            let buffer = match consumer {
                Consumer::Sleeps => receiver.recv().await,
                Consumer::Polls => receiver.try_recv().ok(),
            };
            if let Some(buffer) = buffer {
                ages.push(age(&buffer));
                back.try_send(buffer).expect("room");
            }
        }
        ages
    };
    thread::scope(|scope| {
        let received = scope.spawn(|| {
            run_on(1);
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.expect("a runtime").block_on(receive)
        });
        for _ in 0..samples {
            let mut buffer = free.blocking_recv().expect("the consumer lives");
            stamp(&mut buffer, monotonic_nanos());
            sender.try_send(buffer).expect("room");
            consumer.pause();
        }
        received.join().expect("the consumer has finished")
    })
}

fn futex_and_pointer(size: usize, consumer: Consumer) -> Vec<u64> {
    let (full, word) = (Mutex::new(None::<Box<[u8]>>), AtomicU32::new(0));
    let (back, free) = std::sync::mpsc::sync_channel::<Box<[u8]>>(1);
    back.send(vec![0; size].into()).expect("room");
    let samples = consumer.samples();
    let (full, word) = (&full, &word);
    thread::scope(|scope| {
        let received = scope.spawn(move || {
            run_on(1);
            let mut ages = Vec::with_capacity(samples);
            while ages.len() < samples {
                if word.load(Ordering::Acquire) == 0 {
                    if consumer == Consumer::Sleeps {
                        // It returns at once if the word has changed.
                        let _ = futex::wait(word, futex::Flags::PRIVATE, 0, None);
                    }
                    continue;
                }
                let buffer = full.lock().expect("no panic").take().expect("a buffer");
                ages.push(age(&buffer));
                word.store(0, Ordering::Release);
                back.send(buffer).expect("the producer lives");
            }
            ages
        });
        for _ in 0..samples {
            let mut buffer = free.recv().expect("the consumer lives");
            stamp(&mut buffer, monotonic_nanos());
            // It is free: the word says whose turn it is.
            *full.lock().expect("no panic") = Some(buffer);
            word.store(1, Ordering::Release);
            if consumer == Consumer::Sleeps {
                futex::wake(word, futex::Flags::PRIVATE, 1).expect("a futex");
            }
            consumer.pause();
        }
        received.join().expect("the consumer has finished")
    })
}
