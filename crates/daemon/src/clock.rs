//! The offset between the clocks of two machines, from messages that they exchange anyway. No I/O.
//!
//! An exchange has four times: when the request was sent and its answer arrived, by the clock here; when
//! the request arrived and the answer was sent, by the clock there. With the method of NTP (RFC 5905,
//! section 8) its offset is wrong by at most half the time that both messages were in flight, however that
//! time is divided between them. The exchange with the smallest error counts among recent ones: it met no
//! queue.
//!
//! All times are those of monotonic clocks, which are never set. Clocks of the day are compared by their
//! distance from these, so that the next message shows a step.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use nervure_node::remote::FleetTime;
use serde::{Deserialize, Serialize};

/// Number of exchanges that are kept, those of about ten seconds.
const EXCHANGES: usize = 32;

/// The highest drift between two clocks: each is a quartz that is exact to 50 parts in a million.
const DRIFT_PER_MILLION: u64 = 100;

/// The times of a message and its answer, in nanoseconds of the monotonic clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// When the message was sent, by the clock here.
    pub sent: u64,
    /// When it arrived, by the clock there.
    pub received: u64,
    /// When the answer was sent, by the clock there.
    pub answered: u64,
    /// When it arrived, by the clock here.
    pub arrived: u64,
}

/// How far a clock is ahead of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// Negative if it is behind.
    pub offset_nanos: i64,
    /// How far the offset may be wrong.
    pub error_nanos: u64,
}

/// How far this machine's clock of the day is ahead of its monotonic one, in nanoseconds.
pub fn day_ahead() -> i64 {
    nervure_node::utc_nanos() - nervure_node::monotonic_nanos() as i64
}

/// Follows the offset of another machine's monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct ClockFilter {
    exchanges: VecDeque<(u64, ClockOffset)>,
}

impl ClockFilter {
    /// Adds an exchange. Impossible ones are ignored.
    pub fn add(&mut self, exchange: Exchange) {
        let Some(offset) = offset(exchange) else {
            return;
        };
        if self.exchanges.len() == EXCHANGES {
            self.exchanges.pop_front();
        }
        self.exchanges.push_back((exchange.arrived, offset));
    }

    /// How far the clock there is ahead of the one here; `None` before the first exchange.
    pub fn offset(&self, now: u64) -> Option<ClockOffset> {
        let aged = |(at, offset): &(u64, ClockOffset)| ClockOffset {
            error_nanos: offset.error_nanos
                + now.saturating_sub(*at) / 1_000_000 * DRIFT_PER_MILLION,
            ..*offset
        };
        let offsets = self.exchanges.iter().map(aged);
        offsets.min_by_key(|offset| offset.error_nanos)
    }
}

/// The monotonic clock of the machine with the oldest coordinator, to which the others refer times.
#[derive(Debug, Default)]
pub struct FleetClock(Mutex<Reference>);

#[derive(Debug)]
enum Reference {
    Own,
    Other(ClockFilter),
}

impl Default for Reference {
    fn default() -> Self {
        Self::Other(ClockFilter::default())
    }
}

impl FleetClock {
    /// Changes the reference: to the clock of this machine, or to another one of which nothing is known
    /// yet.
    pub fn refer(&self, to_own: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = match to_own {
            true => Reference::Own,
            false => Reference::default(),
        };
    }

    /// Whether it is the clock of this machine.
    pub fn is_own(&self) -> bool {
        let reference = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*reference, Reference::Own)
    }

    /// Adds an exchange with the machine of the reference.
    pub fn add(&self, exchange: Exchange) {
        let mut reference = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Reference::Other(filter) = &mut *reference {
            filter.add(exchange);
        }
    }

    /// How far it is ahead of the clock here; `None` before the first answer.
    pub fn offset(&self, now: u64) -> Option<ClockOffset> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Reference::Own => Some(ClockOffset::default()),
            Reference::Other(filter) => filter.offset(now),
        }
    }

    /// The fleet's time at a time of the clock here.
    pub fn time(&self, here: u64) -> Option<FleetTime> {
        let offset = self.offset(here)?;
        Some(FleetTime {
            nanos: here.checked_add_signed(offset.offset_nanos)?,
            error_nanos: offset.error_nanos,
        })
    }
}

/// The offset that an exchange shows; `None` if the times from the other machine are impossible.
fn offset(exchange: Exchange) -> Option<ClockOffset> {
    let elapsed = exchange.arrived.checked_sub(exchange.sent)?;
    let held = exchange.answered.checked_sub(exchange.received)?;
    let in_flight = elapsed.checked_sub(held)?;
    let there = i128::from(exchange.received) + i128::from(exchange.answered);
    let here = i128::from(exchange.sent) + i128::from(exchange.arrived);
    Some(ClockOffset {
        offset_nanos: i64::try_from((there - here) / 2).ok()?,
        error_nanos: in_flight.div_ceil(2),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An exchange with a clock that is ahead by `ahead`.
    fn exchange(at: u64, ahead: i64, there: u64, held: u64, back: u64) -> Exchange {
        let received = (at + there).saturating_add_signed(ahead);
        Exchange {
            sent: at,
            received,
            answered: received + held,
            arrived: at + there + held + back,
        }
    }

    proptest! {
        #[test]
        fn the_true_offset_is_within_the_error(
            ahead in -1_000_000_000_000_i64..1_000_000_000_000,
            delays in prop::collection::vec((0_u64..500_000_000, 0_u64..1_000_000, 0_u64..500_000_000), 1..100),
        ) {
            let mut filter = ClockFilter::default();
            let mut at = 2_000_000_000_000;
            for (there, held, back) in delays {
                let exchange = exchange(at, ahead, there, held, back);
                filter.add(exchange);
                let found = filter.offset(exchange.arrived).unwrap();
                prop_assert!(found.offset_nanos.abs_diff(ahead) <= found.error_nanos, "{found:?}");
                at += 300_000_000;
            }
        }

        #[test]
        fn a_drift_within_the_bound_stays_within_the_error(per_million in -100_i64..=100, delay in 0_u64..5_000_000) {
            let mut filter = ClockFilter::default();
            let begin = 1_000_000_000_000_u64;
            for round in 0..200 {
                let at = begin + round * 300_000_000;
                let ahead = (at - begin) as i64 / 1_000_000 * per_million;
                filter.add(exchange(at, ahead, delay, 0, delay));
                let found = filter.offset(at + 2 * delay).unwrap();
                // The clocks drift during the exchange, too.
                let slack = 2 * delay / 1_000_000 * DRIFT_PER_MILLION + 1;
                prop_assert!(found.offset_nanos.abs_diff(ahead) <= found.error_nanos + slack, "{found:?}");
            }
        }

        #[test]
        fn nothing_that_a_machine_says_overflows(sent: u64, received: u64, answered: u64, arrived: u64, now: u64) {
            let mut filter = ClockFilter::default();
            filter.add(Exchange { sent, received, answered, arrived });
            filter.offset(now);
        }
    }

    #[test]
    fn an_exchange_without_a_queue_counts_more_than_newer_ones_with_one() {
        let mut filter = ClockFilter::default();
        filter.add(exchange(1_000_000_000, 5_000_000, 400_000, 0, 400_000));
        filter.add(exchange(1_300_000_000, 5_000_000, 90_000_000, 0, 400_000));
        let found = filter.offset(1_400_000_000).unwrap();
        assert_eq!(found.offset_nanos, 5_000_000);
        // Half of 0.8 ms, and 100 parts in a million of 399.2 ms.
        assert_eq!(found.error_nanos, 400_000 + 39_900);
    }
}
