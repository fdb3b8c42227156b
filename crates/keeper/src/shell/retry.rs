//! When to try again to send.

use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(1);

/// A pause that doubles while a peer takes nothing.
///
/// Room in a socket alone does not tell that a packet can be sent: its descriptors can be too many in flight, which
/// epoll does not see.
#[derive(Debug, Default)]
pub struct Retry {
    pause: Duration,
    at: Option<Duration>,
}

impl Retry {
    /// When to try again; `None` when nothing waits.
    pub fn deadline(&self) -> Option<Duration> {
        self.at
    }

    /// True when a trial is due, or nothing says that it would be in vain.
    pub fn is_due(&self, now: Duration) -> bool {
        self.at.is_none_or(|at| at <= now)
    }

    /// A trial left something waiting, or not, after it had sent something, or not.
    pub fn tried(&mut self, is_waiting: bool, has_progressed: bool, now: Duration) {
        self.pause = if has_progressed {
            SHORTEST
        } else {
            (self.pause * 2).clamp(SHORTEST, LONGEST)
        };
        self.at = is_waiting.then(|| now + self.pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_until_there_is_progress() {
        let mut retry = Retry::default();
        assert!(retry.is_due(Duration::ZERO));
        let mut now = Duration::ZERO;
        let mut pauses = Vec::new();
        for has_progressed in [false, false, false, true, false] {
            retry.tried(true, has_progressed, now);
            let at = retry.deadline().unwrap();
            assert!(!retry.is_due(now) && retry.is_due(at));
            pauses.push((at - now).as_millis());
            now = at;
        }
        assert_eq!(pauses, [1, 2, 4, 1, 2]);
        retry.tried(false, true, now);
        assert_eq!(retry.deadline(), None);
    }
}
