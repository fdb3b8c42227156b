//! Waits of an observer: it polls at an interval, and no producer has to wake it.
//!
//! A producer that wakes a consumer pays for a system call, and the woken consumer may take the
//! core on which the robot's own consumer was about to run. A consumer that never sleeps in its
//! doorbell is never woken: all that a producer does for it is to set a bit. The price is the
//! observer's: a sample is older by up to one interval when it is received.
//!
//! The interval adapts to the load, so that a queue holds what arrives in it: it doubles while few
//! samples arrive, and halves when many do.

use std::time::Duration;

/// The first interval, and the shortest.
const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// Upper limit of samples per interval, however deep the queue is: so an observer holds at most
/// twice this number of blocks.
const MAX_SAMPLES_PER_INTERVAL: u32 = 8;

#[derive(Debug)]
pub(crate) struct AdaptivePoll {
    max_interval: Duration,
    interval: Duration,
    inputs: Vec<Input>,
}

#[derive(Debug)]
struct Input {
    /// The interval is halved at this number of samples per interval: half the queue's depth, so
    /// that as many again would still fit.
    sample_limit: u32,
    /// Samples since the last poll.
    samples: u32,
}

impl AdaptivePoll {
    /// `depths` are the depths of the observer's queues.
    pub(crate) fn new(max_interval: Duration, depths: impl Iterator<Item = u32>) -> Self {
        let input = |depth: u32| Input {
            sample_limit: (depth / 2).clamp(1, MAX_SAMPLES_PER_INTERVAL),
            samples: 0,
        };
        Self {
            max_interval,
            interval: MIN_INTERVAL.min(max_interval),
            inputs: depths.map(input).collect(),
        }
    }

    /// Counts a sample that was taken from an input's queue.
    pub(crate) fn count_sample(&mut self, input: usize) {
        let samples = &mut self.inputs[input].samples;
        *samples = samples.saturating_add(1);
    }

    /// Adapts the interval to the counts. Call it when all queues are empty.
    pub(crate) fn adjust(&mut self) {
        let mut inputs = self.inputs.iter();
        if inputs.any(|input| input.samples >= input.sample_limit) {
            self.interval = (self.interval / 2).max(MIN_INTERVAL.min(self.max_interval));
        } else if self
            .inputs
            .iter()
            .all(|input| input.samples <= input.sample_limit / 4)
        {
            // At twice the interval, twice the samples still leave room.
            self.interval = (self.interval * 2).min(self.max_interval);
        }
        self.inputs.iter_mut().for_each(|input| input.samples = 0);
    }

    /// The time of the next poll after one at `now`, in nanoseconds of CLOCK_MONOTONIC.
    pub(crate) fn next_poll(&self, now: u64) -> u64 {
        now.saturating_add(u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_as_long_as_the_busiest_input_allows() {
        let mut poll = AdaptivePoll::new(Duration::from_millis(10), [16, 4096].into_iter());
        assert_eq!(poll.interval, MIN_INTERVAL);
        assert_eq!(
            after_polls(&mut poll, 10, [0, 0]),
            Duration::from_millis(10),
            "no samples arrive"
        );
        assert_eq!(
            after_polls(&mut poll, 1, [8, 0]),
            Duration::from_millis(5),
            "too many samples on one input"
        );
        assert_eq!(
            after_polls(&mut poll, 1, [4, 1]),
            Duration::from_millis(5),
            "a fitting number of samples"
        );
        assert_eq!(
            after_polls(&mut poll, 1, [2, 2]),
            Duration::from_millis(10),
            "few samples on every input"
        );
        assert_eq!(after_polls(&mut poll, 10, [0, 1000]), MIN_INTERVAL);
    }

    #[test]
    fn a_short_queue_is_polled_before_it_is_full() {
        let mut poll = AdaptivePoll::new(Duration::from_millis(10), [1, 4].into_iter());
        assert_eq!(after_polls(&mut poll, 10, [0, 1]), MIN_INTERVAL);
        assert_eq!(after_polls(&mut poll, 2, [0, 0]), Duration::from_millis(4));
        assert_eq!(after_polls(&mut poll, 1, [0, 2]), Duration::from_millis(2));
        assert_eq!(after_polls(&mut poll, 1, [1, 0]), Duration::from_millis(1));
    }

    /// The interval after `polls` polls that each find `samples` on the two inputs.
    fn after_polls(poll: &mut AdaptivePoll, polls: u32, samples: [u32; 2]) -> Duration {
        for _ in 0..polls {
            for (input, count) in samples.into_iter().enumerate() {
                (0..count).for_each(|_| poll.count_sample(input));
            }
            poll.adjust();
        }
        poll.interval
    }
}
