//! The packets of a host that wait for the transmitter: one queue, or one for each flow.
//!
//! Flow queues take turns by deficit round robin, new flows first. (T. Hoeiland-Joergensen,
//! P. McKenney, D. Taht, J. Gettys, E. Dumazet, "The Flow Queue CoDel Packet Scheduler", RFC 8290.)

use std::collections::{BTreeMap, VecDeque};

use crate::Aqm;
use crate::codel::{CoDel, Decision};
use crate::counters::{Cause, Counters};
use crate::header::{Ecn, Header};

/// Bytes that a flow may send in its turn. (RFC 8290, section 5.2.3: one packet of an Ethernet.)
const QUANTUM_BYTES: i64 = 1514;

/// A packet that waits.
pub(crate) struct Waiting<P> {
    pub(crate) number: u64,
    pub(crate) offered_at: u64,
    pub(crate) header: Header,
    pub(crate) packet: P,
}

/// The queue of a host. Without fair queueing all packets are of one flow.
pub(crate) struct SendQueue<P> {
    flows: BTreeMap<u64, Flow<P>>,
    /// Flows that became active in this turn, then those that were active before.
    new: VecDeque<u64>,
    old: VecDeque<u64>,
    packets: usize,
    bytes: u64,
}

struct Flow<P> {
    packets: VecDeque<Waiting<P>>,
    bytes: u64,
    deficit: i64,
    codel: CoDel,
}

impl<P> Default for SendQueue<P> {
    fn default() -> Self {
        Self {
            flows: BTreeMap::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            packets: 0,
            bytes: 0,
        }
    }
}

impl<P> SendQueue<P> {
    pub(crate) fn is_empty(&self) -> bool {
        self.packets == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.packets
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A packet that is sent soon: the first of the flow whose turn it is.
    pub(crate) fn first(&self) -> Option<&Waiting<P>> {
        let turns = self.new.iter().chain(&self.old);
        turns.filter_map(|id| self.flows[id].packets.front()).next()
    }

    pub(crate) fn push(&mut self, waiting: Waiting<P>, aqm: Option<&Aqm>) {
        let id = if aqm.is_some_and(|aqm| aqm.fair) {
            waiting.header.flow
        } else {
            0
        };
        let bytes = u64::from(waiting.header.bytes);
        let new = &mut self.new;
        let flow = self.flows.entry(id).or_insert_with(|| {
            new.push_back(id);
            Flow {
                packets: VecDeque::new(),
                bytes: 0,
                deficit: QUANTUM_BYTES,
                codel: CoDel::default(),
            }
        });
        flow.packets.push_back(waiting);
        flow.bytes += bytes;
        self.packets += 1;
        self.bytes += bytes;
    }

    /// Drops the packet at the head of the longest flow, to make room. (RFC 8290, section 4.1.)
    pub(crate) fn drop_from_longest(&mut self, counters: &mut Counters) -> bool {
        // The id decides between equals, so that a run repeats.
        let longest = self
            .flows
            .iter_mut()
            .max_by_key(|(id, flow)| (flow.bytes, **id));
        let Some(dropped) = longest.and_then(|(_, flow)| flow.pop()) else {
            return false;
        };
        self.packets -= 1;
        self.bytes -= u64::from(dropped.header.bytes);
        counters.lose(Cause::Queue, dropped.header.bytes);
        true
    }

    /// Takes the next packet to send at `now`; those that the AQM drops are counted.
    pub(crate) fn pop(
        &mut self,
        now: u64,
        aqm: Option<&Aqm>,
        counters: &mut Counters,
    ) -> Option<Waiting<P>> {
        loop {
            let from_new = !self.new.is_empty();
            let turn = if from_new {
                &mut self.new
            } else {
                &mut self.old
            };
            let id = turn.pop_front()?;
            let flow = self
                .flows
                .get_mut(&id)
                .expect("a flow has its turns while it has a queue");
            if flow.deficit <= 0 {
                flow.deficit += QUANTUM_BYTES;
                self.old.push_back(id);
                continue;
            }
            let (packets, bytes) = (flow.packets.len(), flow.bytes);
            let next = flow.take(now, aqm, counters);
            self.packets -= packets - flow.packets.len();
            self.bytes -= bytes - flow.bytes;
            if let Some(next) = next {
                flow.deficit -= i64::from(next.header.bytes);
                let turn = if from_new {
                    &mut self.new
                } else {
                    &mut self.old
                };
                turn.push_front(id);
                return Some(next);
            }
            // A flow that was new goes behind the old ones once, so that it cannot starve them by
            // being new again and again.
            if from_new && !self.old.is_empty() {
                self.old.push_back(id);
            } else {
                self.flows.remove(&id);
            }
        }
    }
}

impl<P> Flow<P> {
    fn pop(&mut self) -> Option<Waiting<P>> {
        let waiting = self.packets.pop_front()?;
        self.bytes -= u64::from(waiting.header.bytes);
        Some(waiting)
    }

    /// The next packet of the flow that the AQM lets pass.
    fn take(&mut self, now: u64, aqm: Option<&Aqm>, counters: &mut Counters) -> Option<Waiting<P>> {
        while let Some(mut waiting) = self.pop() {
            let Some(aqm) = aqm else {
                return Some(waiting);
            };
            let sojourn = now.saturating_sub(waiting.offered_at);
            match self.codel.decide(aqm, now, sojourn, self.bytes) {
                Decision::Send => return Some(waiting),
                Decision::Signal if aqm.ecn && waiting.header.ecn != Ecn::NotCapable => {
                    waiting.header.ecn = Ecn::CongestionExperienced;
                    counters.marked.add(waiting.header.bytes);
                    return Some(waiting);
                }
                Decision::Signal => counters.lose(Cause::Aqm, waiting.header.bytes),
            }
        }
        self.codel.on_empty();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(flow: u64, bytes: u32, number: u64) -> Waiting<u64> {
        Waiting {
            number,
            offered_at: 0,
            header: Header {
                bytes,
                flow,
                ecn: Ecn::NotCapable,
            },
            packet: number,
        }
    }

    fn fair() -> Aqm {
        Aqm {
            fair: true,
            ..Aqm::default()
        }
    }

    #[test]
    fn flows_take_turns_by_bytes() {
        let (aqm, mut counters) = (fair(), Counters::default());
        let mut queue = SendQueue::default();
        (0..30).for_each(|number| queue.push(waiting(1, 1500, number), Some(&aqm)));
        (0..300).for_each(|number| queue.push(waiting(2, 150, number), Some(&aqm)));
        let sent: Vec<u64> = (0..110)
            .map(|_| queue.pop(0, Some(&aqm), &mut counters).unwrap().header.flow)
            .collect();
        let of_first = sent.iter().filter(|flow| **flow == 1).count();
        assert!((9..=11).contains(&of_first), "{of_first} of 110");
    }

    #[test]
    fn a_new_flow_goes_first_and_once() {
        let (aqm, mut counters) = (fair(), Counters::default());
        let mut queue = SendQueue::default();
        (0..10).for_each(|number| queue.push(waiting(1, 1500, number), Some(&aqm)));
        queue.pop(0, Some(&aqm), &mut counters);
        queue.pop(0, Some(&aqm), &mut counters);
        queue.push(waiting(2, 100, 0), Some(&aqm));
        let next = queue.pop(0, Some(&aqm), &mut counters).unwrap();
        assert_eq!(next.header.flow, 2);
    }

    #[test]
    fn the_longest_flow_makes_room() {
        let (aqm, mut counters) = (fair(), Counters::default());
        let mut queue = SendQueue::default();
        (0..5).for_each(|number| queue.push(waiting(1, 1000, number), Some(&aqm)));
        queue.push(waiting(2, 1000, 0), Some(&aqm));
        assert!(queue.drop_from_longest(&mut counters));
        assert_eq!((queue.len(), queue.bytes()), (5, 5000));
        assert_eq!(counters.dropped_queue.packets, 1);
        let first = queue.pop(0, Some(&aqm), &mut counters).unwrap();
        assert_eq!((first.header.flow, first.number), (1, 1), "the oldest went");
    }

    #[test]
    fn all_that_is_pushed_is_popped_or_counted() {
        let aqm = Aqm {
            target: std::time::Duration::from_nanos(1),
            interval: std::time::Duration::from_nanos(10),
            ..fair()
        };
        let mut counters = Counters::default();
        let mut queue = SendQueue::default();
        for number in 0..1000_u64 {
            queue.push(waiting(number % 7, 1000, number), Some(&aqm));
        }
        let mut popped = 0;
        let mut now = 0;
        while let Some(_next) = queue.pop(now, Some(&aqm), &mut counters) {
            popped += 1;
            now += 5;
        }
        assert!(counters.dropped_aqm.packets > 0);
        assert_eq!(popped + counters.dropped_aqm.packets, 1000);
        assert_eq!((queue.len(), queue.bytes()), (0, 0));
        assert!(queue.flows.is_empty());
    }
}
