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
/// A queue of an observer holds at least twice as many samples that lie in blocks.
const MANY: u32 = 8;
/// So many still leave room when looks become twice as rare.
const FEW: u32 = 2;

#[derive(Debug)]
pub(crate) struct Doze {
    longest: Duration,
    current: Duration,
    /// Samples since the last look, by input.
    arrived: Vec<u32>,
}

impl Doze {
    pub(crate) fn new(longest: Duration, inputs: usize) -> Self {
        Self { longest, current: SHORTEST.min(longest), arrived: vec![0; inputs] }
    }

    /// A sample of that input was taken.
    pub(crate) fn arrived(&mut self, input: usize) {
        self.arrived[input] = self.arrived[input].saturating_add(1);
    }

    /// Everything was taken that there was: the time until the next look follows from it.
    pub(crate) fn settle(&mut self) {
        let most = self.arrived.iter().copied().max().unwrap_or(0);
        self.arrived.fill(0);
        if most >= MANY {
            self.current = (self.current / 2).max(SHORTEST.min(self.longest));
        } else if most <= FEW {
            self.current = (self.current * 2).min(self.longest);
        }
    }

    /// Sleeps until the next look, or until `nanos` have passed.
    pub(crate) fn sleep(&self, nanos: Option<u64>) {
        std::thread::sleep(nanos.map_or(self.current, |nanos| self.current.min(Duration::from_nanos(nanos))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_as_rare_as_the_busiest_input_allows() {
        let mut doze = Doze::new(Duration::from_millis(10), 2);
        assert_eq!(doze.current, SHORTEST);
        for _ in 0..10 {
            doze.settle();
        }
        assert_eq!(doze.current, Duration::from_millis(10), "nothing comes");
        let look = |doze: &mut Doze, counts: [u32; 2]| {
            for (input, count) in counts.into_iter().enumerate() {
                (0..count).for_each(|_| doze.arrived(input));
            }
            doze.settle();
            doze.current
        };
        assert_eq!(look(&mut doze, [MANY, 0]), Duration::from_millis(5));
        assert_eq!(look(&mut doze, [MANY / 2, 1]), Duration::from_millis(5), "as it should be");
        assert_eq!(look(&mut doze, [FEW, FEW]), Duration::from_millis(10), "no more than so many of any");
        for _ in 0..10 {
            look(&mut doze, [1000, 0]);
        }
        assert_eq!(doze.current, SHORTEST);
    }
}
