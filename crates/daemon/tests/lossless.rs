//! A lossless stream between two machines whose daemons are killed in any order, with seeds: the two
//! ends as they are, between a producer's queue that outlives the one, a link with sessions, and a
//! consumer that outlives the other.

use std::collections::VecDeque;

use fastrand::Rng;
use nervure_daemon::lossless::{Confirmation, Place, Receiver, Unconfirmed, Verdict};
use nervure_message::Origin;

/// Samples of a run, of two processes of the producer and two boots of its machine.
const SAMPLES: u64 = 40;
/// The most samples in the producer's queue.
const DEPTH: usize = 4;

/// The daemon of the producer.
struct SenderDaemon {
    unconfirmed: Unconfirmed<u64>,
    /// Samples of the queue that it has taken.
    taken: usize,
}

/// The daemon of the consumer.
struct ReceiverDaemon {
    receiver: Receiver,
    /// A sample was published, and the daemon does not know it yet.
    published: Option<Origin>,
    /// The newest answer has to be sent.
    answers: bool,
}

struct World {
    random: Rng,
    queue: VecDeque<u64>,
    next: u64,
    sender: SenderDaemon,
    /// Messages on the way, and streams whose rest the link carries in a later session.
    samples: VecDeque<(Place, u64)>,
    answer: Option<Confirmation>,
    receiver: ReceiverDaemon,
    lives: u64,
    /// Samples received by the consumer, and the last origin that it knows.
    received: Vec<u64>,
    last: Option<Origin>,
}

fn origin(sample: u64) -> Origin {
    Origin {
        boot: 1 + u32::from(sample >= SAMPLES / 2),
        // The clock begins again with the boot.
        published: 100 + sample % (SAMPLES / 2),
    }
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            random: Rng::with_seed(seed),
            queue: VecDeque::new(),
            next: 0,
            sender: Self::new_sender(1, 0),
            samples: VecDeque::new(),
            answer: None,
            receiver: Self::new_receiver(1),
            lives: 1,
            received: Vec::new(),
            last: None,
        }
    }

    /// The numbers of attempts are of a clock that begins again when the machine boots.
    fn new_sender(life: u64, next: u64) -> SenderDaemon {
        let uptime = if next < SAMPLES / 2 { 1_000_000 } else { 0 };
        SenderDaemon {
            unconfirmed: Unconfirmed::new(uptime + 1000 * life),
            taken: 0,
        }
    }

    fn new_receiver(life: u64) -> ReceiverDaemon {
        ReceiverDaemon {
            receiver: Receiver::new(life),
            published: None,
            answers: true,
        }
    }

    fn step(&mut self, with_kills: bool) {
        match self.random.u64(..if with_kills { 40 } else { 36 }) {
            0..6 => self.produce(),
            6..12 => self.take(),
            12..18 => self.send(),
            18..24 => self.arrive(),
            24..30 => self.note_published(),
            30..33 => self.answer(),
            33..36 => self.confirm(),
            36 => self.kill_sender(),
            37 => self.kill_receiver(),
            38 => {
                self.lose_messages();
                // The stream has ended.
                self.sender.unconfirmed.begin_again();
            }
            _ => self.sender.unconfirmed.begin_again(),
        }
    }

    fn produce(&mut self) {
        // A machine that boots again has no samples of the boot before: its queue is empty.
        let is_new_boot = self.next == SAMPLES / 2;
        let has_room = self.queue.len() < DEPTH && (!is_new_boot || self.queue.is_empty());
        if self.next < SAMPLES && has_room {
            self.queue.push_back(self.next);
            self.next += 1;
        }
    }

    fn take(&mut self) {
        if let Some(&sample) = self.queue.get(self.sender.taken) {
            self.sender.unconfirmed.push(origin(sample), sample);
            self.sender.taken += 1;
        }
    }

    fn send(&mut self) {
        if let Some((place, &sample)) = self.sender.unconfirmed.to_send() {
            assert_eq!(Place::split(&place.encode()), Some((place, &[][..])));
            self.samples.push_back((place, sample));
            self.sender.unconfirmed.note_sent();
        }
    }

    fn arrive(&mut self) {
        if self.receiver.published.is_some() {
            return;
        }
        let Some((place, sample)) = self.samples.pop_front() else {
            return;
        };
        self.receiver.answers = true;
        if self.receiver.receiver.arrived(place) == Verdict::Publish {
            // As the library of the consumer does.
            if !self
                .last
                .is_some_and(|last| place.origin.is_covered_by(last))
            {
                self.received.push(sample);
                self.last = Some(place.origin);
            }
            self.receiver.published = Some(place.origin);
        }
    }

    fn note_published(&mut self) {
        if let Some(origin) = self.receiver.published.take() {
            self.receiver.receiver.published(origin);
        }
    }

    fn answer(&mut self) {
        if self.receiver.published.is_none() && std::mem::take(&mut self.receiver.answers) {
            self.answer = Some(self.receiver.receiver.confirmation());
        }
    }

    fn confirm(&mut self) {
        let Some(answer) = self.answer.take() else {
            return;
        };
        assert_eq!(Confirmation::decode(&answer.encode()), Some(answer));
        for sample in self.sender.unconfirmed.confirm(answer).0 {
            assert_eq!(self.queue.pop_front(), Some(sample));
            assert!(self.received.contains(&sample), "{sample} is confirmed");
            self.sender.taken -= 1;
        }
    }

    /// Loses a part of the sent messages, from one of them on. The queue keeps the unsent samples.
    fn kill_sender(&mut self) {
        self.lives += 1;
        self.sender = Self::new_sender(self.lives, self.next);
        let arrive = self.random.u64(..self.samples.len() as u64 + 1);
        self.samples.truncate(arrive as usize);
        self.answer = None;
        self.receiver.answers = true;
    }

    /// The link carries the rest of its streams to the next one.
    fn kill_receiver(&mut self) {
        self.lives += 1;
        self.receiver = Self::new_receiver(self.lives);
        self.lose_messages();
    }

    fn lose_messages(&mut self) {
        let lost = self.random.u64(..self.samples.len() as u64 + 1);
        self.samples.drain(..lost as usize);
        self.answer = None;
        self.receiver.answers = true;
    }

    fn is_done(&self) -> bool {
        self.next == SAMPLES && self.queue.is_empty()
    }
}

#[test]
fn no_sample_is_lost_or_delivered_twice_whichever_daemon_is_killed() {
    let seeds = std::env::var("SEEDS").map_or(5000, |it| it.parse().expect("a number"));
    for seed in 0..seeds {
        let mut world = World::new(seed);
        let mut steps = 0;
        while !world.is_done() {
            steps += 1;
            // Without kills it comes to an end.
            world.step(steps < 2000);
            assert!(
                steps < 20_000,
                "seed {seed}: it hangs, {:?}",
                world.received
            );
        }
        let expected: Vec<u64> = (0..SAMPLES).collect();
        assert_eq!(world.received, expected, "seed {seed}");
    }
}
