//! The capacity of a direction: an upper bound of its deliveries.

use std::time::Duration;

use crate::bursts::BurstWalk;
use crate::random;
use crate::{Duplex, Outage, Schedule, Settings, nanos};

/// Length of the intervals in which [`deliverable_bits`] counts.
pub const STEP: Duration = Duration::from_millis(1);

/// A direction of an air: that of a host's packets.
#[derive(Clone, Copy, Debug)]
pub struct Direction {
    /// Whether both hosts share the air.
    pub duplex: Duplex,
    /// The seed of the air.
    pub seed: u64,
    /// The sending host.
    pub host: usize,
}

/// The bits of IP packets of `packet_bytes` that a host's direction delivers if there are always
/// packets, for each of the first `steps` intervals of [`STEP`]. Random loss counts by its
/// expectation; bursts and interruptions are those of the [`Air`](crate::Air) with this seed. On a
/// half-duplex air, the host has the air for itself.
///
/// # Panics
///
/// When the schedule has no rate.
pub fn deliverable_bits(
    schedule: &Schedule,
    direction: Direction,
    packet_bytes: u32,
    steps: usize,
) -> Vec<f64> {
    let number = match direction.duplex {
        Duplex::Full => direction.host as u64 + 1,
        Duplex::Half => 0,
    };
    let key = random::key(direction.seed, number);
    let (mut walk, mut bucket) = (BurstWalk::default(), None);
    let of_step = |step: usize| {
        let at = nanos(STEP) * step as u64;
        let piece = schedule.piece(at);
        let settings = piece.settings;
        let mut bits = sent_bits(settings, packet_bytes);
        if let Some(policer) = settings.policer {
            let full = 8.0 * policer.burst_bytes as f64;
            let added = policer.rate_bits_per_second as f64 * STEP.as_secs_f64();
            let tokens = bucket.map_or(full, |tokens: f64| (tokens + added).min(full));
            bits = bits.min(tokens);
            bucket = Some(tokens - bits);
        }
        let mut kept = 1.0 - settings.loss.clamp(0.0, 1.0);
        if let Some(bursts) = settings.bursts
            && walk.is_bad(&bursts, piece.since, at, key)
        {
            kept *= 1.0 - bursts.loss.clamp(0.0, 1.0);
        }
        if settings.outage.is_some() {
            kept = 0.0;
        }
        bits * kept
    };
    (0..steps).map(of_step).collect()
}

/// The bits of IP packets that are sent in a step.
fn sent_bits(settings: &Settings, packet_bytes: u32) -> f64 {
    if settings.outage == Some(Outage::Hold) {
        return 0.0;
    }
    let rate = settings.rate_bits_per_second.expect("a rate is set") as f64;
    let payload = 8.0 * f64::from(packet_bytes);
    let on_air = payload + 8.0 * f64::from(settings.overhead_bytes);
    let share = settings.aggregation.map_or(payload / on_air, |frame| {
        let fit = (rate * frame.longest.as_secs_f64() / on_air).floor();
        let packets = fit.clamp(1.0, f64::from(frame.packets.max(1)));
        packets * payload / (packets * on_air + rate * frame.access.as_secs_f64())
    });
    rate * STEP.as_secs_f64() * share
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Aggregation, Air, Bursts, Policer, Queue};

    /// Bits that arrive if there are always packets in the queue.
    fn saturated(schedule: &Schedule, seed: u64, end: Duration) -> f64 {
        let mut air = Air::new(Duplex::Full, seed, [schedule.clone()]);
        let (mut now, mut bits) = (Duration::ZERO, 0.0);
        while now < end {
            // More than any channel here sends in a step.
            let room = 200 - air.queued(0).min(200);
            for _ in 0..room {
                air.offer(now, 0, 1500, ());
            }
            now += Duration::from_micros(100);
            while air.deliver(now).is_some() {
                bits += 12_000.0;
            }
        }
        bits
    }

    fn first_host(seed: u64) -> Direction {
        Direction {
            duplex: Duplex::Full,
            seed,
            host: 0,
        }
    }

    fn is_close(schedule: Schedule) {
        let end = Duration::from_secs(10);
        for seed in 0..3 {
            let steps = deliverable_bits(&schedule, first_host(seed), 1500, 10_000);
            let (expected, seen) = (steps.iter().sum::<f64>(), saturated(&schedule, seed, end));
            assert!(
                (0.97..1.03).contains(&(seen / expected)),
                "{seen} of {expected}"
            );
        }
    }

    fn plain() -> Settings {
        Settings {
            rate_bits_per_second: Some(50_000_000),
            queue: Queue::Bytes(u64::MAX),
            ..Settings::default()
        }
    }

    #[test]
    fn a_saturated_direction_delivers_as_much() {
        let millis = Duration::from_millis;
        let bursts = Bursts {
            good_mean: millis(200),
            bad_mean: millis(100),
            loss: 0.8,
        };
        let aggregation = Aggregation {
            access: millis(1),
            longest: millis(3),
            packets: 16,
        };
        is_close(plain().into());
        is_close(
            Settings {
                loss: 0.3,
                bursts: Some(bursts),
                ..plain()
            }
            .into(),
        );
        is_close(
            Settings {
                overhead_bytes: 60,
                aggregation: Some(aggregation),
                ..plain()
            }
            .into(),
        );
        is_close(
            Schedule::from(plain())
                .during(millis(2000), millis(1000), |settings| {
                    settings.outage = Some(Outage::Hold)
                })
                .outage(millis(4000), millis(500))
                .change(millis(6000), |settings| {
                    settings.rate_bits_per_second = Some(5_000_000)
                }),
        );
    }

    #[test]
    fn a_policer_passes_its_burst_then_its_rate() {
        let policer = Policer {
            rate_bits_per_second: 8_000_000,
            burst_bytes: 500_000,
        };
        let schedule = Schedule::from(Settings {
            policer: Some(policer),
            ..plain()
        });
        let steps = deliverable_bits(&schedule, first_host(1), 1500, 10_000);
        let expected = 8.0 * 500_000.0 + 8_000_000.0 * 10.0;
        assert!((steps.iter().sum::<f64>() / expected - 1.0).abs() < 0.01);
        assert!((saturated(&schedule, 1, Duration::from_secs(10)) / expected - 1.0).abs() < 0.02);
    }
}
