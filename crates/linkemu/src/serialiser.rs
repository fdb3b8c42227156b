//! Sends one packet after the other, at the current rate.

use std::time::Duration;

use crate::schedule::Schedule;
use crate::{Outage, Settings, nanos};

/// A bit takes `1e9 / rate` nanoseconds; in units of bits * 1e9 everything is a whole number.
const WORK_PER_BYTE: u64 = 8 * 1_000_000_000;

/// The transmitter that one or several hosts share.
#[derive(Default)]
pub(crate) struct Serialiser {
    /// When the running transmission ends; `u64::MAX` if the rate stays zero.
    pub(crate) free_at: u64,
    /// The work that the last, partial nanosecond of that transmission does for the next one, so
    /// that nothing is lost to rounding.
    credit: u64,
    /// The work of that transmission.
    running_work: u64,
    /// The hosts that share it, in order of their turns.
    pub(crate) hosts: Vec<usize>,
    pub(crate) turn: usize,
}

impl Serialiser {
    /// Sends a packet at `start`, which is not before `free_at`, and returns the end of its
    /// transmission.
    pub(crate) fn send(&mut self, schedule: &Schedule, start: u64, bytes: u64) -> u64 {
        let credit = if start == self.free_at {
            self.credit
        } else {
            0
        };
        self.running_work = bytes.saturating_mul(WORK_PER_BYTE);
        let mut work = self.running_work.saturating_sub(credit);
        let mut time = start;
        (self.free_at, self.credit) = loop {
            let piece = schedule.piece(time);
            match rate(piece.settings) {
                None => break (time, 0),
                Some(0) if piece.until == u64::MAX => break (u64::MAX, 0),
                Some(0) => {}
                Some(rate) => {
                    let needed = work.div_ceil(rate);
                    if needed <= piece.until - time {
                        break (
                            time.saturating_add(needed),
                            needed.saturating_mul(rate).saturating_sub(work),
                        );
                    }
                    work -= (piece.until - time) * rate;
                }
            }
            time = piece.until;
            match skip_cycles(schedule, time, work) {
                Some((cycles, done)) => (time, work) = (time.saturating_add(cycles), work - done),
                None => break (u64::MAX, 0),
            }
        };
        self.free_at
    }

    /// Whether the rest of the running transmission plus these bytes take more than `limit` at the
    /// current rate. An interruption that holds packets does not shorten the queue.
    pub(crate) fn exceeds(
        &self,
        settings: &Settings,
        now: u64,
        waiting_bytes: u64,
        limit: Duration,
    ) -> bool {
        let Some(rate) = settings.rate_bits_per_second else {
            return false;
        };
        let rate = rate.max(1);
        let whole = self.running_work.div_ceil(rate);
        let left = self.free_at.saturating_sub(now).min(whole);
        nanos(limit).checked_sub(left).is_none_or(|rest| {
            u128::from(waiting_bytes) * u128::from(WORK_PER_BYTE)
                > u128::from(rest) * u128::from(rate)
        })
    }
}

/// The whole cycles of a repeated schedule that pass from `time` on before the end of `work`, and
/// the work done in them; `None` if it never ends.
fn skip_cycles(schedule: &Schedule, time: u64, work: u64) -> Option<(u64, u64)> {
    let Some((period, capacity)) = schedule
        .cycle(rate)
        .filter(|(period, _)| time.is_multiple_of(*period))
    else {
        return Some((0, 0));
    };
    // The last cycle is walked, so that the end within it is found.
    let cycles = u64::try_from(u128::from(work.saturating_sub(1)).checked_div(capacity)?).ok()?;
    let done = u64::try_from(u128::from(cycles) * capacity).ok()?;
    Some((cycles.saturating_mul(period), done))
}

fn rate(settings: &Settings) -> Option<u64> {
    if settings.outage == Some(Outage::Hold) {
        Some(0)
    } else {
        settings.rate_bits_per_second
    }
}
