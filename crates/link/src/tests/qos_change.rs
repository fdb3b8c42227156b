//! The quality of service of a stream changes while it runs, at any time, and on lossy paths: each
//! sample that was accepted when the stream kept all is delivered, once and in order.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use nervure_linkemu::network::{Draw, for_each_seed};

use crate::{
    qos::{Delivery, Qos, TrafficClass},
    receiver::{ReceiverEvent, check_charges},
    sender::{SendError, SenderEvent},
    session::{Session, SessionConfig, SessionEvent},
};

/// Two sessions, and the datagrams in flight.
struct Pair {
    now: Instant,
    ends: [Session; 2],
    in_flight: VecDeque<(Instant, usize, Vec<u8>)>,
    loss: f64,
    delay: Duration,
}

impl Pair {
    fn new(seed: u64, draw: &mut Draw) -> Self {
        let now = Instant::now();
        Self {
            now,
            ends: [0, 1].map(|end| Session::new(SessionConfig::default(), seed * 2 + end, now)),
            in_flight: VecDeque::new(),
            loss: draw.share() * 0.4,
            delay: Duration::from_millis(draw.below(20)),
        }
    }

    /// The number of such events since the last call.
    fn count(&mut self, end: usize, event: &SessionEvent) -> u64 {
        let events = std::iter::from_fn(|| self.ends[end].poll_event());
        events.filter(|other| other == event).count() as u64
    }

    /// A millisecond passes.
    fn step(&mut self, draw: &mut Draw) {
        self.now += Duration::from_millis(1);
        while self
            .in_flight
            .front()
            .is_some_and(|(at, ..)| *at <= self.now)
            && let Some((_, to, datagram)) = self.in_flight.pop_front()
        {
            self.ends[to].on_datagram(self.now, None, &datagram);
        }
        for from in [0, 1] {
            self.ends[from].handle_timeout(self.now);
            let mut datagram = Vec::new();
            while self.ends[from].next_datagram(self.now, 1200, &mut datagram) {
                let datagram = std::mem::take(&mut datagram);
                if draw.share() >= self.loss {
                    let arrival = (self.now + self.delay, 1 - from, datagram);
                    self.in_flight.push_back(arrival);
                }
            }
        }
    }
}

fn some_qos(draw: &mut Draw) -> Qos {
    let depth = 1 + draw.below(5) as u32;
    let delivery = match draw.below(5) {
        0 => Delivery::keep_last(depth),
        1 => Delivery::best_effort(depth),
        2 => Delivery::Latest,
        _ => Delivery::keep_all(depth),
    };
    Qos {
        traffic_class: TrafficClass::ALL[draw.below(3) as usize],
        ..Qos::new(delivery)
    }
}

#[test]
fn no_sample_that_is_to_be_kept_is_lost_when_the_quality_of_service_changes() {
    let mut changes = 0;
    for_each_seed(0..60, |seed| {
        let mut draw = Draw::new(seed);
        let mut pair = Pair::new(seed, &mut draw);
        let mut qos = some_qos(&mut draw);
        let stream = pair.ends[0].open(pair.now, "stream", qos).unwrap();
        let (mut accepted, mut to_keep, mut taken) = (0_u64, Vec::new(), Vec::new());
        let (mut changed, mut learned) = (0, 0);
        let slow = draw.chance(50);
        for step in 0..60_000 {
            let is_over = step > 1500;
            if !is_over && draw.chance(3) {
                let next = some_qos(&mut draw);
                match pair.ends[0].set_qos(pair.now, stream, next) {
                    Ok(()) => qos = next,
                    Err(SendError::Changing(_)) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            if !is_over && draw.chance(30) {
                let bytes = 8 + draw.below(3000) as usize;
                let mut payload = accepted.to_le_bytes().to_vec();
                payload.resize(bytes, 7);
                match pair.ends[0].send(pair.now, stream, payload.into()) {
                    Ok(()) => {
                        if qos.delivery.keeps_all() {
                            to_keep.push(accepted);
                        }
                        accepted += 1;
                    }
                    Err(SendError::Full { .. }) => assert!(qos.delivery.keeps_all()),
                    Err(other) => panic!("{other}"),
                }
            }
            if is_over || !slow || draw.chance(10) {
                while let Some(sample) = pair.ends[1].take(pair.now, stream) {
                    let number = u64::from_le_bytes(*sample.payload.first_chunk().unwrap());
                    assert_eq!(sample.sequence, number, "seed {seed}");
                    taken.push(number);
                }
            }
            changed += pair.count(0, &SessionEvent::Sender(SenderEvent::Changed(stream)));
            learned += pair.count(1, &SessionEvent::Receiver(ReceiverEvent::Changed(stream)));
            pair.step(&mut draw);
            let streams = pair.ends[0].sender().streams();
            if is_over && streams.is_idle() && streams.qos(stream) == Some((qos, None)) {
                break;
            }
        }
        while let Some(sample) = pair.ends[1].take(pair.now, stream) {
            taken.push(sample.sequence);
        }
        changed += pair.count(0, &SessionEvent::Sender(SenderEvent::Changed(stream)));
        learned += pair.count(1, &SessionEvent::Receiver(ReceiverEvent::Changed(stream)));
        assert!(taken.is_sorted_by(|one, other| one < other), "seed {seed}");
        let kept: Vec<u64> = taken
            .iter()
            .copied()
            .filter(|n| to_keep.contains(n))
            .collect();
        assert_eq!(kept, to_keep, "seed {seed}");
        let [sender, receiver] = [0, 1].map(|end| pair.ends[end].status());
        assert!(sender.sent.is_balanced() && receiver.received.is_balanced());
        assert_eq!(sender.sent.accepted, accepted);
        assert_eq!(
            (sender.sent.held, sender.sent.refused),
            (0, 0),
            "seed {seed}"
        );
        assert_eq!(sender.sent.delivered, receiver.received.delivered);
        assert_eq!(receiver.received.taken, taken.len() as u64);
        assert_eq!(receiver.link.invalid_messages, 0, "seed {seed}");
        assert_eq!(
            pair.ends[1].receiver().incoming().get(stream),
            Some(("stream", qos))
        );
        assert!(learned <= changed, "seed {seed}: {learned} {changed}");
        check_charges(pair.ends[1].receiver()).unwrap();
        changes += changed;
    });
    assert!(changes > 150, "{changes}");
}
