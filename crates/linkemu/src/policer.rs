//! A token bucket that drops packets above a rate, as at the edge of many providers' networks.

use crate::Policer;

const NANOS: u128 = 1_000_000_000;

/// The bucket of one direction. It begins full.
#[derive(Debug, Default)]
pub(crate) struct TokenBucket {
    /// The policer for which it was filled.
    of: Option<Policer>,
    /// In bits times 1e9, so that everything is a whole number.
    tokens: u128,
    filled_at: u64,
}

impl TokenBucket {
    /// Takes the tokens for a packet; returns whether there were enough. Times do not run backwards.
    pub(crate) fn take(&mut self, policer: &Policer, now: u64, bytes: u32) -> bool {
        let full = u128::from(policer.burst_bytes) * 8 * NANOS;
        if self.of.as_ref() == Some(policer) {
            let passed = u128::from(now.saturating_sub(self.filled_at));
            let filled = passed * u128::from(policer.rate_bits_per_second);
            self.tokens = self.tokens.saturating_add(filled).min(full);
        } else {
            (self.of, self.tokens) = (Some(*policer), full);
        }
        self.filled_at = now;
        let needed = u128::from(bytes) * 8 * NANOS;
        match self.tokens.checked_sub(needed) {
            Some(rest) => {
                self.tokens = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_the_rate() {
        let policer = Policer {
            rate_bits_per_second: 8_000_000,
            burst_bytes: 10_000,
        };
        let mut bucket = TokenBucket::default();
        // 1000 bytes every 0.1 ms are ten times the rate of 1000 bytes a millisecond.
        let passed: Vec<u64> = (0..200)
            .filter(|step| bucket.take(&policer, step * 100_000, 1000))
            .collect();
        assert_eq!(passed[..11], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert!(passed[11..].windows(2).all(|pair| pair[1] - pair[0] == 10));
        assert_eq!(passed.len(), 10 + 1 + 18);
    }

    #[test]
    fn a_packet_larger_than_the_bucket_never_passes() {
        let policer = Policer {
            rate_bits_per_second: 8_000_000,
            burst_bytes: 1000,
        };
        let mut bucket = TokenBucket::default();
        assert!((0..100).all(|second| !bucket.take(&policer, second * 1_000_000_000, 1001)));
    }
}
