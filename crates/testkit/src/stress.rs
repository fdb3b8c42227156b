//! All features at once, with pauses at unfavourable moments.

use crate::content::Content;
use crate::plane::{Arrival, Edge, Limits, Plane, PlaneInbox, SampleOf, Wait};
use fastrand::Rng;
use nervure_protocol::wiring::{Policy, Queue};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any regular wait for room.
const MAX_WAIT: Wait = Wait::AtMost(Duration::from_secs(60));

/// Runs two producing and five consuming processes, with every policy, for `duration`. One of the
/// consumers dies and is restarted repeatedly. Pauses and sizes are drawn from `seed`. Checks
/// order, content and the counters of every sample.
///
/// # Panics
/// If a sample is lost, changed, out of order or miscounted.
pub fn stress<P: Plane>(plane: &P, seed: u64, duration: Duration) {
    let limits = Limits {
        memory_bytes: 24 << 20,
        ..Limits::default()
    };
    let outputs = [plane.producer(limits), plane.producer(limits)];
    let published = [AtomicU64::new(0), AtomicU64::new(0)];
    // Held by a restart from its begin to its end: a producer that goes on would wait for ever for a
    // consumer that died and finds the other producer gone.
    let is_over = Mutex::new(false);
    let consumers: Vec<_> = [
        (Policy::Block, 1, false),
        (Policy::Block, 6, true),
        (Policy::DropOldest, 1, false),
        (Policy::DropOldest, 4, false),
        (Policy::DropNewest, 3, false),
    ]
    .into_iter()
    .map(|(policy, depth, dies)| {
        let queue = Queue {
            policy,
            depth,
            max_held: depth + 3,
        };
        let (handle, inbox) = plane.consumer(2);
        let edges =
            [0, 1].map(|input| plane.connect(&outputs[input as usize], &handle, input, queue));
        Consumer::<P> {
            plane,
            handle,
            inbox,
            edges,
            queue,
            dies,
            tallies: Default::default(),
        }
    })
    .collect();
    thread::scope(|scope| {
        for (index, output) in outputs.iter().enumerate() {
            let (published, is_over) = (&published[index], &is_over);
            let mut random = Rng::with_seed(seed.wrapping_add(index as u64));
            scope.spawn(move || {
                let end = Instant::now() + duration;
                while Instant::now() < end {
                    let number = published.load(SeqCst);
                    random_content(&mut random, number)
                        .send(output, MAX_WAIT)
                        .expect("room");
                    published.store(number + 1, SeqCst);
                    pause(&mut random);
                }
                let mut is_over = is_over.lock().expect("no panic");
                plane.producer_gone(output, true);
                *is_over = true;
            });
        }
        let threads: Vec<_> = consumers
            .into_iter()
            .enumerate()
            .map(|(index, consumer)| {
                let random = Rng::with_seed(seed.wrapping_mul(31).wrapping_add(index as u64));
                let is_over = &is_over;
                scope.spawn(move || consumer.run(random, is_over))
            })
            .collect();
        for thread in threads {
            let consumer = thread.join().expect("no panic");
            for (index, tally) in consumer.tallies.iter().enumerate() {
                consumer.account(index, tally, published[index].load(SeqCst));
            }
        }
    });
}

fn random_content(random: &mut Rng, number: u64) -> Content {
    let payload_bytes = match random.u64(..10) {
        0..5 => random.u64(..260),
        5..8 => random.u64(..20_000),
        _ => 60_000 + random.u64(..200_000),
    };
    Content::new(number, payload_bytes as usize).with_head(random.usize(..400))
}

struct Consumer<'a, P: Plane> {
    plane: &'a P,
    handle: P::Consumer,
    inbox: P::Inbox,
    edges: [Edge; 2],
    queue: Queue,
    dies: bool,
    tallies: [Tally; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    received: u64,
    next: u64,
    closed: bool,
}

impl<P: Plane> Consumer<'_, P> {
    fn run(mut self, mut random: Rng, is_over: &Mutex<bool>) -> Self {
        let mut held: Vec<SampleOf<P>> = Vec::new();
        while self.tallies.iter().any(|tally| !tally.closed) {
            match self.inbox.next() {
                Arrival::Closed(input) => self.tallies[input as usize].closed = true,
                Arrival::Sample(input, sample) => {
                    let number = Content::check(&sample).number;
                    let tally = &mut self.tallies[input as usize];
                    assert!(number >= tally.next, "{number} after {}", tally.next);
                    tally.next = number + 1;
                    tally.received += 1;
                    held.push(sample);
                }
            }
            while held.len() as u64 > random.u64(..3) {
                let sample = held.swap_remove(random.usize(..held.len()));
                Content::check(&sample);
            }
            if random.u64(..8) == 0 {
                self.plane.serve();
            }
            if self.dies && random.u64(..200) == 0 {
                let is_over = is_over.lock().expect("no panic");
                if !*is_over {
                    self.restart(std::mem::take(&mut held));
                }
            }
            pause(&mut random);
        }
        self
    }

    /// Kills and restarts the process.
    fn restart(&mut self, held: Vec<SampleOf<P>>) {
        let (handle, inbox) = self.plane.consumer(2);
        let old_handle = std::mem::replace(&mut self.handle, handle);
        let old_inbox = std::mem::replace(&mut self.inbox, inbox);
        self.plane.consumer_died(&old_handle, old_inbox, held, true);
        for edge in self.edges {
            assert_eq!(
                self.plane.reconnect(edge, &self.handle),
                edge,
                "a block edge must be inherited"
            );
        }
    }

    fn account(&self, index: usize, tally: &Tally, published: u64) {
        let sent = self.plane.sent(self.edges[index]);
        let missed =
            sent.dropped_newest + sent.missed_held + sent.missed_memory + sent.missed_control;
        assert_eq!(sent.sent + missed, published, "{:?}: {sent:?}", self.queue);
        if tally.closed {
            assert_eq!(
                tally.received + sent.dropped_oldest,
                sent.sent,
                "{:?}: {sent:?}",
                self.queue
            );
        }
        if self.queue.policy.is_lossless() {
            assert_eq!((missed, sent.dropped_oldest), (0, 0), "{sent:?}");
            // In order and complete, so none is missing in between.
            assert_eq!(tally.received, tally.next);
        }
    }
}

/// Usually no pause; sometimes one that is long enough for the other side to fall asleep.
fn pause(random: &mut Rng) {
    match random.u64(..64) {
        0 => thread::sleep(Duration::from_micros(random.u64(..400))),
        1..8 => thread::yield_now(),
        _ => {}
    }
}
