//! Lost samples, detected by gaps in sequence numbers.

/// Follows the sequence numbers of an output. A producer numbers its samples from 0 in each
/// incarnation, without gaps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gaps {
    /// The incarnation and number expected next.
    next: Option<(u32, u64)>,
}

impl Gaps {
    /// Takes the number of the next sample and returns the number of missing samples before it.
    /// Samples from before the first received one do not count: the recorder was not connected yet.
    pub(crate) fn before(&mut self, incarnation: u32, sequence: u64) -> u64 {
        let expected = match self.next {
            None => sequence,
            Some((current, expected)) if current == incarnation => expected,
            // The end of the previous incarnation is unknown; the beginning of this one is not.
            Some(_) => 0,
        };
        self.next = Some((incarnation, sequence.saturating_add(1)));
        sequence.saturating_sub(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_samples_are_counted_from_the_first_received_one() {
        let mut gaps = Gaps::default();
        let received = [(0, 7), (0, 8), (0, 11), (1, 0), (1, 1), (3, 2), (3, 3)];
        let lost = received.map(|(incarnation, sequence)| gaps.before(incarnation, sequence));
        assert_eq!(lost, [0, 0, 2, 0, 0, 2, 0]);
    }

    #[test]
    fn numbers_that_go_back_are_not_a_loss() {
        let mut gaps = Gaps::default();
        let received = [(0, 5), (0, 5), (0, 2), (0, u64::MAX), (0, 0)];
        let lost: Vec<u64> = received.iter().map(|&(i, s)| gaps.before(i, s)).collect();
        assert_eq!(lost[..3], [0, 0, 0]);
        assert_eq!(lost[4], 0);
    }
}
