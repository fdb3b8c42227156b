//! Leases over a lossy network on a virtual clock, with seeds.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use nervure_daemon::clock::ClockOffset;
use nervure_daemon::lease::{Confirmation, Grants, Holder, INTERVAL, LIFETIME, Number, Renewal};

const TICK: Duration = Duration::from_millis(5);

/// Losses of one direction, by a chain with two states: 20 % on average in all cases.
struct Channel {
    /// Chance that a time without loss ends in a tick; with loss all packets are lost.
    burst_begins: f64,
    burst_ends: f64,
    loss: f64,
    is_burst: bool,
}

impl Channel {
    fn independent(loss: f64) -> Self {
        Self {
            burst_begins: 0.0,
            burst_ends: 1.0,
            loss,
            is_burst: false,
        }
    }

    /// Bursts of this mean length that make up a fifth of the time.
    fn bursts(mean: Duration) -> Self {
        let burst_ends = TICK.as_secs_f64() / mean.as_secs_f64();
        Self {
            burst_begins: burst_ends / 4.0,
            burst_ends,
            loss: 0.0,
            is_burst: false,
        }
    }

    fn tick(&mut self, random: &mut Rng) {
        let chance = if self.is_burst {
            self.burst_ends
        } else {
            self.burst_begins
        };
        self.is_burst ^= random.f64() < chance;
    }

    fn passes(&self, random: &mut Rng) -> bool {
        !self.is_burst && random.f64() >= self.loss
    }
}

#[derive(Debug, Default)]
struct Outcome {
    /// Times at which the machine's lease ended, and at which the other end counted it unreachable.
    lease_ends: Vec<Duration>,
    unreachable: Vec<Duration>,
    sent: u64,
}

/// Runs both ends for a time. From `cut` on, nothing passes.
fn simulate(
    seed: u64,
    channels: [Channel; 2],
    delay: Duration,
    time: Duration,
    cut: Duration,
) -> Outcome {
    let mut random = Rng::with_seed(seed);
    let [mut there, mut back] = channels;
    let mut holder = Holder::new(seed);
    let mut grants = Grants::default();
    let mut renewals: BTreeMap<(Duration, u64), Number> = BTreeMap::new();
    let mut confirmations: BTreeMap<(Duration, u64), Number> = BTreeMap::new();
    let mut outcome = Outcome::default();
    let (mut now, mut was_held) = (Duration::ZERO, false);
    while now < time {
        there.tick(&mut random);
        back.tick(&mut random);
        let jitter = delay.mul_f64(random.f64());
        if let Some(number) = holder.renewal(now) {
            outcome.sent += 1;
            if there.passes(&mut random) && now < cut {
                renewals.insert((now + delay + jitter, outcome.sent), number);
            }
        }
        while let Some(entry) = renewals.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, place), number) = entry.remove_entry();
            grants.renewed("robot", now);
            if back.passes(&mut random) && now < cut {
                confirmations.insert((now + delay + jitter, place), number);
            }
        }
        if !grants.take_ended(now).is_empty() {
            outcome.unreachable.push(now);
        }
        while let Some(entry) = confirmations
            .first_entry()
            .filter(|entry| entry.key().0 <= now)
        {
            holder.confirm(entry.remove(), now);
        }
        let is_held = holder.is_held(now);
        if was_held && !is_held {
            outcome.lease_ends.push(now);
        }
        // The lease ends at the machine first, or with it: nothing of it starts elsewhere before.
        assert!(
            !is_held || grants.is_reachable("robot"),
            "seed {seed} at {now:?}"
        );
        was_held = is_held;
        now += TICK;
    }
    outcome
}

const NEVER: Duration = Duration::from_secs(1 << 30);
const TEN_MINUTES: Duration = Duration::from_secs(600);

#[test]
fn at_a_fifth_of_loss_no_machine_is_called_unreachable_that_is_not() {
    let mut false_alarms = (0, 0);
    for seed in 1..=20 {
        for delay in [2, 20, 60] {
            let channels = || [Channel::independent(0.2), Channel::independent(0.2)];
            let delay = Duration::from_millis(delay);
            let outcome = simulate(seed, channels(), delay, TEN_MINUTES, NEVER);
            false_alarms.0 += outcome.lease_ends.len();
            false_alarms.1 += outcome.unreachable.len();
        }
    }
    assert_eq!(false_alarms, (0, 0), "in 10 hours");
    // In bursts of 40 ms, 20 % as well.
    for seed in 1..=20 {
        let mean = Duration::from_millis(40);
        let channels = [Channel::bursts(mean), Channel::bursts(mean)];
        let outcome = simulate(
            seed,
            channels,
            Duration::from_millis(10),
            TEN_MINUTES,
            NEVER,
        );
        assert!(outcome.unreachable.is_empty(), "seed {seed}: {outcome:?}");
    }
}

#[test]
fn a_machine_that_is_cut_off_is_known_within_one_and_a_half_seconds() {
    for seed in 1..=500 {
        let loss = [0.0, 0.01, 0.2][seed as usize % 3];
        let channels = [Channel::independent(loss), Channel::independent(loss)];
        let cut = Duration::from_secs(5) + Duration::from_millis(seed % 997);
        let delay = Duration::from_millis(seed % 50);
        let outcome = simulate(seed, channels, delay, cut + Duration::from_secs(5), cut);
        let [end] = outcome.lease_ends.as_slice() else {
            panic!("seed {seed}: {outcome:?}")
        };
        let [unreachable] = outcome.unreachable.as_slice() else {
            panic!("seed {seed}: {outcome:?}")
        };
        assert!(end <= unreachable, "seed {seed}");
        // Packets in flight at the cut still arrive.
        let known = *unreachable - cut;
        assert!(
            known < Duration::from_millis(1400),
            "seed {seed}: {known:?}"
        );
    }
}

#[test]
fn an_idle_machine_renews_three_times_a_second() {
    let channels = [Channel::independent(0.0), Channel::independent(0.0)];
    let outcome = simulate(1, channels, Duration::from_millis(5), TEN_MINUTES, NEVER);
    let expected = TEN_MINUTES.as_millis() / INTERVAL.as_millis();
    assert!(u128::from(outcome.sent) <= expected + 1, "{}", outcome.sent);
}

#[test]
fn a_confirmation_counts_from_when_its_renewal_was_sent_and_for_its_daemon_alone() {
    let mut holder = Holder::new(7);
    let number = holder.renewal(Duration::ZERO).unwrap();
    let at = Duration::from_millis;
    holder.confirm(
        Number {
            holder: 8,
            ..number
        },
        at(10),
    );
    assert!(!holder.is_held(at(10)));
    holder.confirm(number, at(1000));
    assert!(holder.is_held(LIFETIME - at(1)) && !holder.is_held(LIFETIME));
    // Too late, or made up.
    let mut late = Holder::new(7);
    let number = late.renewal(Duration::ZERO).unwrap();
    late.confirm(number, LIFETIME);
    late.confirm(
        Number {
            renewal: 99,
            ..number
        },
        at(10),
    );
    assert!(!late.is_held(at(10)) && !late.is_held(LIFETIME));
}

#[test]
fn a_message_means_the_same_when_it_is_read() {
    let number = Number {
        holder: 7,
        renewal: 9,
    };
    let clock = ClockOffset {
        offset_nanos: -5,
        error_nanos: 3,
    };
    for clock in [None, Some(clock)] {
        let renewal = Renewal { number, clock };
        assert_eq!(Renewal::decode(&renewal.encode()), Some(renewal));
    }
    let confirmation = Confirmation {
        number,
        received: 1,
        answered: 2,
        day_ahead: -3,
    };
    let bytes = confirmation.encode();
    assert_eq!(Confirmation::decode(&bytes), Some(confirmation));
    for length in [0, 31, 33, 39, 41] {
        assert_eq!(Renewal::decode(&vec![1; length]), None);
        assert_eq!(Confirmation::decode(&vec![1; length]), None);
    }
}
