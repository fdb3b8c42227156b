//! Pauses before something that has failed is tried again.

use std::time::Duration;

/// The pause after the first failure; doubles with each, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The pause after a failure, with this number of failures before it.
pub(crate) fn pause(failures: u32) -> Duration {
    FIRST_PAUSE
        .saturating_mul(1 << failures.min(6))
        .min(LONGEST_PAUSE)
}
