//! A population of channels: each seed draws a channel, the flows that share it, and a load.
//!
//! A protocol that is tuned on a list of channels is good on that list. So it is developed on one
//! half of a population, the even seeds ([`development`]), and judged on the other half, the odd
//! seeds ([`report`]), which are for the report only.
//!
//! About a third of the channels are simple: rate, round-trip time, queue, independent loss and a
//! load. In the others each further property occurs with a plain probability. A property has its own
//! random numbers, so that a change to one leaves the others of all channels alone.

mod channel;
mod draws;

pub use channel::{Channel, Flow, FlowKind, History, Load, PACKET_BYTES, START};
use draws::Draws;

/// The first `count` seeds for development.
pub fn development(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|number| 2 * number)
}

/// The first `count` seeds for the report, which nothing is tuned on.
pub fn report(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|number| 2 * number + 1)
}

impl Channel {
    /// The channel of a seed.
    pub fn draw(seed: u64) -> Self {
        Draws::new(seed).channel()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Settings;
    use draws::{LONGEST, SHORTEST};

    fn all() -> impl Iterator<Item = Channel> {
        development(300).chain(report(300)).map(Channel::draw)
    }

    #[test]
    fn a_seed_gives_the_same_channel_again() {
        assert!(all().take(20).eq(all().take(20)));
        let mut seeds: Vec<u64> = development(10).chain(report(10)).collect();
        seeds.sort_unstable();
        assert!(seeds.into_iter().eq(0..20));
    }

    #[test]
    fn channels_stay_within_the_ranges() {
        for channel in all() {
            for schedule in [&channel.forward, &channel.reverse] {
                for step in 0..150 {
                    let settings: &Settings = schedule.at(Duration::from_millis(100) * step);
                    let rate = settings.rate_bits_per_second.unwrap();
                    assert!((300_000..=1_000_000_000).contains(&rate), "{channel}");
                    assert!((0.0..=0.6).contains(&settings.loss), "{channel}");
                    assert!(settings.delay <= Duration::from_millis(150), "{channel}");
                }
            }
            assert!(channel.flows.iter().filter(|flow| !flow.is_reverse).count() <= 4);
            let load = channel.load;
            assert!((1000..=4 << 20).contains(&load.sample_bytes), "{channel}");
            assert!(load.rate_hz < 2500.0, "{channel}");
            assert!((SHORTEST..=LONGEST).contains(&channel.length), "{channel}");
            assert!(!channel.to_string().contains('\n'));
            let changes_in_time = |at: &Duration| *at > START && *at < START + channel.length;
            assert!(channel.changes.iter().all(changes_in_time), "{channel}");
        }
    }

    #[test]
    fn loads_are_a_tenth_to_three_times_the_capacity() {
        for channel in all() {
            let bits: f64 = channel
                .deliverable_bits(START + channel.length)
                .iter()
                .sum();
            let capacity = bits / (START + channel.length).as_secs_f64();
            let asked = channel.load.bits_per_second() / capacity;
            assert!((0.05..3.5).contains(&asked), "{asked}: {channel}");
        }
    }

    /// Each kind of channel is there, and a third are simple.
    #[test]
    fn the_population_is_diverse() {
        let channels: Vec<_> = all().collect();
        let share = |text: &str| {
            let with = |channel: &&Channel| channel.to_string().contains(text);
            channels.iter().filter(with).count() as f64 / channels.len() as f64
        };
        for text in draws::WORDS {
            assert!(share(text) > 0.01, "{text}: {}", share(text));
        }
        assert!(
            (0.25..0.45).contains(&share("simple")),
            "{}",
            share("simple")
        );
    }
}
