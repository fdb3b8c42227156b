//! The model: hosts, when each may send, and the fate of each packet.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::bursts::BurstWalk;
use crate::counters::{Cause, Counters};
use crate::header::{Ecn, Header};
use crate::policer::TokenBucket;
use crate::queue::{SendQueue, Waiting};
use crate::random::{self, Purpose};
use crate::schedule::{Piece, Schedule};
use crate::serialiser::Serialiser;
use crate::{LossPlace, Outage, Queue, Settings, nanos};

/// Hosts that send to each other, each with settings for its own direction.
///
/// The path of a packet: dropped if too big; with [`LossPlace::BeforeSerialiser`] perhaps lost;
/// dropped by the policer; the sender's queue, or dropped there; the transmission at the sender's
/// rate, alone or in an aggregate; with [`LossPlace::AfterSerialiser`] perhaps lost; delay and
/// jitter; delivered. The settings at the time of the offer apply to the queue, those at the end of
/// the transmission to loss and delay. A transmission during which the rate changes continues at
/// the new rate.
///
/// The caller decides on the receiver of a packet: with two hosts it is the other one.
///
/// Time never runs backwards: a `now` before an earlier one counts as that one.
pub struct Air<P> {
    senders: Vec<Sender<P>>,
    serialisers: Vec<Serialiser>,
    in_flight: InFlight<P>,
    now: u64,
}

/// Whether hosts share the air.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplex {
    /// Every host sends at any time. Bursts hit each direction independently.
    Full,
    /// One air: a host sends while no other does, and waiting hosts take turns, packet by packet.
    /// Bursts with the same settings hit all hosts at the same time.
    Half,
}

/// The immediate fate of an offered packet. A queued one may still be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It waits, or is being sent.
    Queued,
    /// It is lost.
    Lost(Cause),
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// The host that sent it.
    pub from: usize,
    /// When it arrived.
    pub at: Duration,
    /// When it was offered.
    pub offered_at: Duration,
    /// Its ECN field, which may have been marked on the way.
    pub ecn: Ecn,
    /// The packet.
    pub packet: P,
}

struct Sender<P> {
    schedule: Schedule,
    serialiser: usize,
    key: u64,
    bursts_key: u64,
    bursts: BurstWalk,
    queue: SendQueue<P>,
    /// The packets of the transmission that begins; empty between calls.
    frame: Vec<Waiting<P>>,
    bucket: TokenBucket,
    /// Lower bound for the arrival of packets that are not reordered.
    latest_arrival: u64,
    counters: Counters,
}

impl<P> Air<P> {
    /// Hosts 0, 1, .. with the schedule (or plain [`Settings`]) for the packets of each.
    pub fn new<S: Into<Schedule>>(
        duplex: Duplex,
        seed: u64,
        hosts: impl IntoIterator<Item = S>,
    ) -> Self {
        let mut serialisers = Vec::new();
        let mut senders = Vec::new();
        for (host, schedule) in hosts.into_iter().enumerate() {
            if host == 0 || duplex == Duplex::Full {
                serialisers.push(Serialiser::default());
            }
            let serialiser = serialisers.len() - 1;
            serialisers[serialiser].hosts.push(host);
            let key = random::key(seed, host as u64 + 1);
            senders.push(Sender {
                schedule: schedule.into(),
                serialiser,
                key,
                bursts_key: if duplex == Duplex::Full {
                    key
                } else {
                    random::key(seed, 0)
                },
                bursts: BurstWalk::default(),
                queue: SendQueue::default(),
                frame: Vec::new(),
                bucket: TokenBucket::default(),
                latest_arrival: 0,
                counters: Counters::default(),
            });
        }
        Self {
            senders,
            serialisers,
            in_flight: InFlight::default(),
            now: 0,
        }
    }

    /// Offers a packet of a host to the link. `header` may be its length in bytes on the air,
    /// headers included, where flow and ECN do not matter.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn offer(
        &mut self,
        now: Duration,
        host: usize,
        header: impl Into<Header>,
        packet: P,
    ) -> Verdict {
        let header = header.into();
        let bytes = header.bytes;
        self.advance(nanos(now));
        let now = self.now;
        let sender = &mut self.senders[host];
        let number = sender.counters.offered.packets;
        sender.counters.offered.add(bytes);
        let serialiser = &self.serialisers[sender.serialiser];
        if let Some(cause) = sender.refuses(serialiser, now, number, bytes) {
            sender.counters.lose(cause, bytes);
            return Verdict::Lost(cause);
        }
        let aqm = sender.schedule.piece(now).settings.aqm;
        let waiting = Waiting {
            number,
            offered_at: now,
            header,
            packet,
        };
        sender.queue.push(waiting, aqm.as_ref());
        self.advance(now);
        Verdict::Queued
    }

    /// Returns the next packet that has arrived by `now`, earliest first. Call it until it returns
    /// `None`.
    pub fn deliver(&mut self, now: Duration) -> Option<Delivery<P>> {
        self.advance(nanos(now));
        if self.in_flight.packets.peek()?.at > self.now {
            return None;
        }
        let arrived = self.in_flight.packets.pop()?;
        self.senders[arrived.from]
            .counters
            .delivered
            .add(arrived.header.bytes);
        Some(Delivery {
            from: arrived.from,
            at: Duration::from_nanos(arrived.at),
            offered_at: Duration::from_nanos(arrived.offered_at),
            ecn: arrived.header.ecn,
            packet: arrived.packet,
        })
    }

    /// When to call [`Air::deliver`] next, although there may be nothing to deliver yet. `None`:
    /// not before the next offer.
    pub fn next_event(&self) -> Option<Duration> {
        let sends = self.serialisers.iter().filter(|serialiser| {
            serialiser.free_at < u64::MAX
                && serialiser
                    .hosts
                    .iter()
                    .any(|&host| !self.senders[host].queue.is_empty())
        });
        let arrival = self
            .in_flight
            .packets
            .peek()
            .map(|packet| packet.at)
            .filter(|&at| at < u64::MAX);
        sends
            .map(|serialiser| serialiser.free_at)
            .chain(arrival)
            .min()
            .map(Duration::from_nanos)
    }

    /// Number of hosts.
    pub fn hosts(&self) -> usize {
        self.senders.len()
    }

    /// The fates of the packets that a host sent.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn counters(&self, host: usize) -> &Counters {
        &self.senders[host].counters
    }

    /// The settings, over time, for the packets of a host.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn schedule(&self, host: usize) -> &Schedule {
        &self.senders[host].schedule
    }

    /// Packets in a host's queue.
    ///
    /// # Panics
    ///
    /// When there is no such host.
    pub fn queued(&self, host: usize) -> usize {
        self.senders[host].queue.len()
    }

    /// Packets that were sent and have neither arrived nor been lost.
    pub fn travelling(&self) -> usize {
        self.in_flight.packets.len()
    }

    /// Begins every transmission that is due by `now`.
    fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
        for serialiser in &mut self.serialisers {
            while serialiser.free_at <= self.now {
                let Some(host) = next_in_turn(serialiser, &self.senders) else {
                    break;
                };
                self.senders[host].send(serialiser, host, &mut self.in_flight);
            }
        }
    }
}

/// Returns the host whose turn it is among those with packets; the turn then passes on.
fn next_in_turn<P>(serialiser: &mut Serialiser, senders: &[Sender<P>]) -> Option<usize> {
    let count = serialiser.hosts.len();
    let slot = (0..count)
        .map(|step| (serialiser.turn + step) % count)
        .find(|&slot| !senders[serialiser.hosts[slot]].queue.is_empty())?;
    serialiser.turn = (slot + 1) % count;
    Some(serialiser.hosts[slot])
}

impl<P> Sender<P> {
    /// Why an offered packet does not enter the queue, if it does not.
    fn refuses(
        &mut self,
        serialiser: &Serialiser,
        now: u64,
        number: u64,
        bytes: u32,
    ) -> Option<Cause> {
        let piece = self.schedule.piece(now);
        let settings = piece.settings;
        if settings.mtu_bytes.is_some_and(|mtu| bytes > mtu) {
            return Some(Cause::TooBig);
        }
        if settings.loss_place == LossPlace::BeforeSerialiser
            && let Some(cause) = loses(
                &piece,
                &mut self.bursts,
                self.key,
                self.bursts_key,
                now,
                number,
            )
        {
            return Some(cause);
        }
        if let Some(policer) = settings.policer
            && !self.bucket.take(&policer, now, bytes)
        {
            return Some(Cause::Policer);
        }
        let is_full = |queue: &SendQueue<P>| match settings.queue {
            Queue::Time(limit) => serialiser.exceeds(settings, now, queue.bytes(), limit),
            // Nothing waits while the air is free.
            Queue::Bytes(limit) => {
                serialiser.free_at > now && queue.bytes().saturating_add(u64::from(bytes)) > limit
            }
        };
        if settings.aqm.is_some_and(|aqm| aqm.fair) {
            while is_full(&self.queue) && self.queue.drop_from_longest(&mut self.counters) {}
        }
        is_full(&self.queue).then_some(Cause::Queue)
    }

    /// Sends the packet at the head of the queue, or several of them in one transmission.
    fn send(&mut self, serialiser: &mut Serialiser, host: usize, in_flight: &mut InFlight<P>) {
        let Some(first) = self.queue.first() else {
            return;
        };
        // While the air was busy, packets were offered before it became free.
        let start = serialiser.free_at.max(first.offered_at);
        let settings = *self.schedule.piece(start).settings;
        let mut frame = std::mem::take(&mut self.frame);
        self.fill(&mut frame, &settings, start);
        if frame.is_empty() {
            // The AQM dropped all.
            return;
        }
        let bytes_on_air = |waiting: &Waiting<P>| {
            u64::from(waiting.header.bytes) + u64::from(settings.overhead_bytes)
        };
        let access = settings.aggregation.map_or(0, |frame| nanos(frame.access));
        let end = serialiser.send(
            &self.schedule,
            start.saturating_add(access),
            frame.iter().map(bytes_on_air).sum(),
        );
        if end < u64::MAX {
            self.counters.airtime += Duration::from_nanos(end - start);
        }
        for waiting in frame.drain(..) {
            let wait = Duration::from_nanos(start.saturating_sub(waiting.offered_at));
            self.counters.longest_wait = self.counters.longest_wait.max(wait);
            if let Some(at) = self.fate(&waiting, start, end) {
                in_flight.push(at, host, waiting);
            }
        }
        self.frame = frame;
    }

    /// Takes the packets of one transmission from the queue.
    fn fill(&mut self, frame: &mut Vec<Waiting<P>>, settings: &Settings, start: u64) {
        let aqm = settings.aqm.as_ref();
        frame.extend(self.queue.pop(start, aqm, &mut self.counters));
        let Some(aggregation) = settings.aggregation else {
            return;
        };
        let bits =
            |header: &Header| 8 * (u128::from(header.bytes) + u128::from(settings.overhead_bytes));
        let mut room = settings.rate_bits_per_second.map_or(u128::MAX, |rate| {
            u128::from(rate) * aggregation.longest.as_nanos() / 1_000_000_000
        });
        while let Some(last) = frame.last() {
            room = room.saturating_sub(bits(&last.header));
            let fits = |next: &Waiting<P>| bits(&next.header) <= room;
            if frame.len() >= aggregation.packets as usize || !self.queue.first().is_some_and(fits)
            {
                return;
            }
            match self.queue.pop(start, aqm, &mut self.counters) {
                Some(next) => frame.push(next),
                None => return,
            }
        }
    }

    /// When a packet that was sent from `start` to `end` arrives; `None` if it is lost.
    fn fate(&mut self, waiting: &Waiting<P>, start: u64, end: u64) -> Option<u64> {
        if end == u64::MAX {
            return Some(end);
        }
        // Settings that begin as the transmission ends do not apply to it.
        let last = start.max(end.saturating_sub(1));
        let piece = self.schedule.piece(last);
        let interrupted = |settings: &Settings| settings.outage == Some(Outage::Lose);
        let cause =
            if interrupted(self.schedule.piece(start).settings) || interrupted(piece.settings) {
                Some(Cause::Outage)
            } else if piece.settings.loss_place == LossPlace::AfterSerialiser {
                loses(
                    &piece,
                    &mut self.bursts,
                    self.key,
                    self.bursts_key,
                    last,
                    waiting.number,
                )
            } else {
                None
            };
        if let Some(cause) = cause {
            self.counters.lose(cause, waiting.header.bytes);
            return None;
        }
        let settings = *piece.settings;
        Some(self.arrival(&settings, end, waiting.number))
    }

    /// When a packet whose transmission ends at `end` arrives.
    fn arrival(&mut self, settings: &Settings, end: u64, number: u64) -> u64 {
        let draw = |purpose| random::unit(self.key, number, purpose);
        let jitter = (draw(Purpose::Jitter) * nanos(settings.jitter) as f64) as u64;
        let at = end
            .saturating_add(nanos(settings.delay))
            .saturating_add(jitter);
        if draw(Purpose::Reorder) < settings.reorder {
            return at.saturating_add(nanos(settings.reorder_delay));
        }
        self.latest_arrival = self.latest_arrival.max(at);
        self.latest_arrival
    }
}

/// Whether the loss and the bursts of `piece` take the packet.
fn loses(
    piece: &Piece,
    bursts: &mut BurstWalk,
    key: u64,
    bursts_key: u64,
    time: u64,
    number: u64,
) -> Option<Cause> {
    let hit = piece.settings.bursts.is_some_and(|settings| {
        bursts.is_bad(&settings, piece.since, time, bursts_key)
            && random::unit(key, number, Purpose::Burst) < settings.loss
    });
    if hit {
        Some(Cause::Burst)
    } else if random::unit(key, number, Purpose::Loss) < piece.settings.loss {
        Some(Cause::Random)
    } else {
        None
    }
}

/// Packets in flight.
struct InFlight<P> {
    packets: BinaryHeap<Travelling<P>>,
    /// The number of the next one.
    sequence: u64,
}

impl<P> Default for InFlight<P> {
    fn default() -> Self {
        Self {
            packets: BinaryHeap::new(),
            sequence: 0,
        }
    }
}

impl<P> InFlight<P> {
    fn push(&mut self, at: u64, from: usize, waiting: Waiting<P>) {
        self.packets.push(Travelling {
            at,
            sequence: self.sequence,
            from,
            offered_at: waiting.offered_at,
            header: waiting.header,
            packet: waiting.packet,
        });
        self.sequence += 1;
    }
}

/// The greatest of a heap is the first to arrive; equal times keep the order of sending.
struct Travelling<P> {
    at: u64,
    sequence: u64,
    from: usize,
    offered_at: u64,
    header: Header,
    packet: P,
}

impl<P> Ord for Travelling<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl<P> PartialOrd for Travelling<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for Travelling<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<P> Eq for Travelling<P> {}
