//! When to retry a send that did not go through.

use std::time::Duration;

/// Time for which an operation is retried while a resource is short. A burst of starts
/// passes; a limit of the system that is too low does not, and is reported.
pub const SHORTAGE_TIMEOUT: Duration = Duration::from_secs(5);

const MIN_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// A pause that doubles while a peer receives nothing.
///
/// Room in a socket does not mean that a packet can be sent: too many descriptors may be in flight,
/// which epoll does not report.
#[derive(Debug, Default)]
pub struct Retry {
    pause: Duration,
    at: Option<Duration>,
}

impl Retry {
    /// When to retry; `None` when nothing waits.
    pub fn deadline(&self) -> Option<Duration> {
        self.at
    }

    /// True when an attempt is due, or none has failed.
    pub fn is_due(&self, now: Duration) -> bool {
        self.at.is_none_or(|at| at <= now)
    }

    /// Notes the result of an attempt: whether anything still waits, and whether anything was sent.
    pub fn tried(&mut self, is_waiting: bool, has_progressed: bool, now: Duration) {
        self.pause = if has_progressed {
            MIN_PAUSE
        } else {
            (self.pause * 2).clamp(MIN_PAUSE, MAX_PAUSE)
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
