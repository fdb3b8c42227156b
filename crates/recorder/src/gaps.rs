//! Losses, by the gaps that they leave in the numbers of samples.

/// Follows the numbers of one output's samples. A producer numbers them from 0 in each incarnation, without gaps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gaps {
    /// Incarnation and number that are expected next.
    next: Option<(u32, u64)>,
}

impl Gaps {
    /// Takes the next sample; says how many are missing before it. What was published before the first sample that was
    /// received is not missing: nobody listened.
    pub(crate) fn before(&mut self, incarnation: u32, sequence: u64) -> u64 {
        let expected = match self.next {
            None => sequence,
            Some((current, expected)) if current == incarnation => expected,
            // How far the one before came is not known; what is missing of this one is.
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
    fn what_is_missing_is_counted_and_what_came_before_is_not() {
        let mut gaps = Gaps::default();
        let received = [(0, 7), (0, 8), (0, 11), (1, 0), (1, 1), (3, 2), (3, 3)];
        let lost = received.map(|(incarnation, sequence)| gaps.before(incarnation, sequence));
        assert_eq!(lost, [0, 0, 2, 0, 0, 2, 0]);
    }

    #[test]
    fn numbers_that_go_back_are_no_loss() {
        let mut gaps = Gaps::default();
        let received = [(0, 5), (0, 5), (0, 2), (0, u64::MAX), (0, 0)];
        let lost: Vec<u64> = received.iter().map(|&(i, s)| gaps.before(i, s)).collect();
        assert_eq!(lost[..3], [0, 0, 0]);
        assert_eq!(lost[4], 0);
    }
}
