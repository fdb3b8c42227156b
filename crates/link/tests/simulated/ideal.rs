//! The ideal link: it knows its share of the channel, wastes nothing, and has no queue in the
//! network.

use std::collections::VecDeque;
use std::time::Duration;

use nervure_linkemu::capacity::STEP;
use nervure_linkemu::population::{History, Load};

/// A sample with its times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// When the link accepted it. A producer that waits is not counted as latency.
    pub accepted: Duration,
    pub arrived: Duration,
}

/// A server that carries one sample after the other, oldest first.
pub struct Server<'a> {
    /// Payload bits that it carries in each [`STEP`] since the start of the network.
    pub bits: &'a [f64],
    pub load: Load,
    /// When the first sample is due.
    pub begin: Duration,
    /// From the end of its transmission to the arrival of a sample.
    pub delay: Duration,
}

impl Server<'_> {
    /// The samples that arrive by `end`, in order, and the payload bytes, with those of the sample
    /// that is being carried then.
    pub fn serve(&self, end: Duration) -> (Vec<Served>, f64) {
        let (mut served, mut bytes) = (Vec::new(), 0.0);
        let (mut number, mut free) = (0, self.begin);
        let mut waiting = VecDeque::new();
        // When samples of a stream that keeps all make room.
        let mut rooms = VecDeque::new();
        let last = end.saturating_sub(self.delay);
        loop {
            self.admit(&mut waiting, &mut number, &mut rooms, free);
            let accepted = match waiting.pop_front() {
                Some(accepted) => accepted,
                None => {
                    free = self.next_accepted(number, &rooms, free);
                    if free >= last {
                        return (served, bytes);
                    }
                    continue;
                }
            };
            let begin = free.max(accepted);
            free = self.carry(begin, 8.0 * self.load.sample_bytes as f64, last);
            if free > last {
                let carried = self.bits_between(begin, last) / 8.0;
                bytes += carried.min(self.load.sample_bytes as f64);
                return (served, bytes);
            }
            rooms.push_back(free + 2 * self.delay);
            bytes += self.load.sample_bytes as f64;
            let arrived = free + self.delay;
            served.push(Served { accepted, arrived });
        }
    }

    fn due(&self, number: u64) -> Duration {
        self.begin + Duration::from_secs_f64(number as f64 / self.load.rate_hz)
    }

    /// When the next sample is accepted if none waits.
    fn next_accepted(&self, number: u64, rooms: &VecDeque<Duration>, free: Duration) -> Duration {
        let room = match self.load.history {
            History::KeepAll(depth) if rooms.len() >= depth as usize => rooms[0],
            _ => Duration::ZERO,
        };
        self.due(number)
            .max(room)
            .max(free + Duration::from_nanos(1))
    }

    /// Accepts samples that are due by `now`.
    fn admit(
        &self,
        waiting: &mut VecDeque<Duration>,
        number: &mut u64,
        rooms: &mut VecDeque<Duration>,
        now: Duration,
    ) {
        while self.due(*number) <= now {
            let mut accepted = self.due(*number);
            match self.load.history {
                History::KeepLast(depth) => {
                    if waiting.len() >= depth as usize {
                        waiting.pop_front();
                    }
                }
                History::KeepAll(depth) => {
                    if rooms.len() + waiting.len() >= depth as usize {
                        match rooms.front() {
                            Some(room) if *room <= now => accepted = accepted.max(*room),
                            _ => return,
                        }
                        rooms.pop_front();
                    }
                }
            }
            waiting.push_back(accepted);
            *number += 1;
        }
    }

    /// When these bits are carried; after `last` if not by then.
    fn carry(&self, begin: Duration, mut bits: f64, last: Duration) -> Duration {
        let mut now = begin;
        while now <= last {
            let step = (now.as_nanos() / STEP.as_nanos()) as usize;
            let next = STEP * (step as u32 + 1);
            let rate = self.bits.get(step).copied().unwrap_or(0.0) / STEP.as_secs_f64();
            let room = rate * (next - now).as_secs_f64();
            if room >= bits && rate > 0.0 {
                return now + Duration::from_secs_f64(bits / rate);
            }
            bits -= room;
            now = next;
        }
        now.max(last + STEP)
    }

    fn bits_between(&self, from: Duration, to: Duration) -> f64 {
        let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
        let step = STEP.as_secs_f64();
        let overlap = |number: usize| {
            let begin = number as f64 * step;
            ((begin + step).min(to) - begin.max(from)).max(0.0) / step
        };
        let steps = (from / step) as usize..self.bits.len().min((to / step) as usize + 1);
        steps
            .map(|number| self.bits[number] * overlap(number))
            .sum()
    }
}

/// Max-min fair shares of a capacity of 1 for these demands.
pub fn max_min(demands: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by(|a, b| demands[*a].total_cmp(&demands[*b]));
    let (mut left, mut shares) = (1.0, vec![0.0; demands.len()]);
    for (served, flow) in order.iter().enumerate() {
        shares[*flow] = demands[*flow].min(left / (demands.len() - served) as f64);
        left -= shares[*flow];
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(bits: &[f64], history: History, rate_hz: f64) -> Server<'_> {
        Server {
            bits,
            load: Load {
                history,
                sample_bytes: 1250,
                rate_hz,
            },
            begin: Duration::from_secs(1),
            delay: Duration::from_millis(5),
        }
    }

    #[test]
    fn without_overload_a_sample_takes_its_serialisation_and_the_delay() {
        // 10 Mbit/s: a sample takes 1 ms.
        let bits = vec![10_000.0; 3000];
        let (served, bytes) = server(&bits, History::KeepLast(1), 100.0).serve(3 * STEP * 1000);
        assert_eq!(served.len(), 200);
        let latency = |one: &Served| (one.arrived - one.accepted).as_secs_f64();
        assert!(served.iter().all(|one| (latency(one) - 0.006).abs() < 1e-6));
        assert!((bytes - 250_000.0).abs() < 1.0);
    }

    #[test]
    fn under_overload_the_capacity_is_used_and_samples_wait_their_depth() {
        let bits = vec![10_000.0; 3000];
        for (history, least, most) in [
            (History::KeepLast(1), 0.006, 0.008),
            (History::KeepLast(10), 0.0085, 0.0105),
            (History::KeepAll(20), 0.014, 0.022),
        ] {
            let (served, bytes) = server(&bits, history, 3000.0).serve(Duration::from_secs(3));
            assert!(
                (bytes / (1.995 * 1_250_000.0) - 1.0).abs() < 0.01,
                "{bytes}"
            );
            for one in &served[50..] {
                let latency = (one.arrived - one.accepted).as_secs_f64();
                assert!((least..=most).contains(&latency), "{history:?}: {latency}");
            }
        }
    }

    #[test]
    fn a_stream_that_keeps_all_is_bounded_by_its_depth() {
        let bits = vec![10_000.0; 3000];
        // Five samples each 11 ms.
        let (served, _) = server(&bits, History::KeepAll(5), 1000.0).serve(Duration::from_secs(3));
        assert!((850..950).contains(&served.len()), "{}", served.len());
    }

    #[test]
    fn little_demands_are_met_and_the_rest_is_shared() {
        assert_eq!(
            max_min(&[f64::INFINITY, 0.1, f64::INFINITY]),
            [0.45, 0.1, 0.45]
        );
        assert_eq!(max_min(&[0.2, 0.3]), [0.2, 0.3]);
    }
}
