//! How an observer waits: it looks every so often, and asks nobody to wake it.
//!
//! A producer that wakes a consumer pays for a system call, and the consumer that it wakes may take the core on which the
//! robot's own consumer was to run. Whoever never lies down in the doorbell is never woken: all that a producer does for
//! it is to set a bit. The price is the observer's: what it receives is as much as a look older.
//!
//! Looks are so far apart that a queue holds what comes between them: rarer when little came, denser when much did.

use std::time::Duration;

/// The first look, and the densest ones.
const SHORTEST: Duration = Duration::from_millis(1);
/// So many samples between two looks are many, however long the queue: no observer holds more than twice as many blocks.
const MANY: u32 = 8;

#[derive(Debug)]
pub(crate) struct Doze {
    longest: Duration,
    current: Duration,
    inputs: Vec<Input>,
}

#[derive(Debug)]
struct Input {
    /// So many between two looks are too many: as many again would fill the queue.
    many: u32,
    /// Samples since the last look.
    arrived: u32,
}

impl Doze {
    /// Of an observer whose queues are so deep.
    pub(crate) fn new(longest: Duration, depths: impl Iterator<Item = u32>) -> Self {
        let input = |depth: u32| Input {
            many: (depth / 2).clamp(1, MANY),
            arrived: 0,
        };
        Self {
            longest,
            current: SHORTEST.min(longest),
            inputs: depths.map(input).collect(),
        }
    }

    /// A sample of that input was taken.
    pub(crate) fn arrived(&mut self, input: usize) {
        let arrived = &mut self.inputs[input].arrived;
        *arrived = arrived.saturating_add(1);
    }

    /// Everything was taken that there was: the time until the next look follows from it.
    pub(crate) fn settle(&mut self) {
        if self.inputs.iter().any(|input| input.arrived >= input.many) {
            self.current = (self.current / 2).max(SHORTEST.min(self.longest));
        } else if self
            .inputs
            .iter()
            .all(|input| input.arrived <= input.many / 4)
        {
            // Twice as rare, they still leave room.
            self.current = (self.current * 2).min(self.longest);
        }
        self.inputs.iter_mut().for_each(|input| input.arrived = 0);
    }

    /// When to look again, of one who sleeps now, in nanoseconds of CLOCK_MONOTONIC.
    pub(crate) fn next_look(&self, now: u64) -> u64 {
        now.saturating_add(u64::try_from(self.current.as_nanos()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_as_rare_as_the_busiest_input_allows() {
        let mut doze = Doze::new(Duration::from_millis(10), [16, 4096].into_iter());
        assert_eq!(doze.current, SHORTEST);
        assert_eq!(
            looks(&mut doze, 10, [0, 0]),
            Duration::from_millis(10),
            "nothing comes"
        );
        assert_eq!(looks(&mut doze, 1, [8, 0]), Duration::from_millis(5));
        assert_eq!(
            looks(&mut doze, 1, [4, 1]),
            Duration::from_millis(5),
            "as it should be"
        );
        assert_eq!(
            looks(&mut doze, 1, [2, 2]),
            Duration::from_millis(10),
            "no more than so many of any"
        );
        assert_eq!(looks(&mut doze, 10, [0, 1000]), SHORTEST);
    }

    #[test]
    fn a_short_queue_is_looked_at_before_it_is_full() {
        let mut doze = Doze::new(Duration::from_millis(10), [1, 4].into_iter());
        assert_eq!(looks(&mut doze, 10, [0, 1]), SHORTEST, "as it should be");
        assert_eq!(looks(&mut doze, 2, [0, 0]), Duration::from_millis(4));
        assert_eq!(looks(&mut doze, 1, [0, 2]), Duration::from_millis(2));
        assert_eq!(looks(&mut doze, 1, [1, 0]), Duration::from_millis(1));
    }

    fn looks(doze: &mut Doze, times: u32, counts: [u32; 2]) -> Duration {
        for _ in 0..times {
            for (input, count) in counts.into_iter().enumerate() {
                (0..count).for_each(|_| doze.arrived(input));
            }
            doze.settle();
        }
        doze.current
    }
}
