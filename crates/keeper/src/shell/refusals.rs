//! Refused connections. Every process of the machine can make some, and the log gets one line a
//! second.

use std::time::Duration;

/// Shortest time between two lines.
const PERIOD: Duration = Duration::from_secs(1);

/// The connections that were refused since the last line.
#[derive(Debug, Default)]
pub struct Refusals {
    waiting: u64,
    /// Why the last one was refused.
    reason: String,
    last_line: Option<Duration>,
}

impl Refusals {
    /// Counts a connection that was refused.
    pub fn add(&mut self, reason: String) {
        self.waiting += 1;
        self.reason = reason;
    }

    /// The line that is due.
    pub fn take_line(&mut self, now: Duration) -> Option<String> {
        self.deadline().filter(|at| *at <= now)?;
        self.last_line = Some(now);
        self.take_rest()
    }

    /// The line with the refusals since the last one.
    pub fn take_rest(&mut self) -> Option<String> {
        let reason = std::mem::take(&mut self.reason);
        match std::mem::take(&mut self.waiting) {
            0 => None,
            1 => Some(reason),
            count => Some(format!(
                "{count} connections were refused; the last one: {reason}"
            )),
        }
    }

    /// When the next line is due.
    pub fn deadline(&self) -> Option<Duration> {
        let due = self.last_line.map_or(Duration::ZERO, |last| last + PERIOD);
        (self.waiting > 0).then_some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_a_second_and_all_are_counted() {
        let mut refusals = Refusals::default();
        let mut lines = Vec::new();
        for number in 0..2500_u64 {
            let now = Duration::from_millis(number);
            refusals.add(format!("number {number}"));
            lines.extend(refusals.take_line(now));
        }
        assert_eq!(refusals.deadline(), Some(Duration::from_secs(3)));
        lines.extend(refusals.take_rest());
        let expected = [
            "number 0",
            "1000 connections were refused; the last one: number 1000",
            "1000 connections were refused; the last one: number 2000",
            "499 connections were refused; the last one: number 2499",
        ];
        assert_eq!(lines, expected);
        assert_eq!(refusals.deadline(), None);
    }
}
