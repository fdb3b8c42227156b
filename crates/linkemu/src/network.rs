//! A simulated network: endpoints that exchange packets over an [`Air`] on a virtual clock.
//!
//! In the spirit of the simulator of neqo (`test-fixture/src/sim`): a test reads like a drawing,
//! takes no time but the computation, and repeats exactly.
//!
//! ```
//! use std::time::Duration;
//! use nervure_linkemu::network::{Endpoint, Network, Packet, for_each_seed};
//! use nervure_linkemu::{Air, Duplex, Ecn, Settings};
//!
//! /// Host 0 repeats a question every 20 ms until host 1 has answered.
//! #[derive(Default)]
//! struct Asker { answered: bool, ask_at: Duration, out: Option<Packet> }
//!
//! impl Endpoint for Asker {
//!     fn handle_packet(&mut self, _now: Duration, packet: Packet) {
//!         if packet.bytes == b"question" {
//!             self.out = Some(Packet { from: 1, to: 0, ecn: Ecn::NotCapable, bytes: b"answer".to_vec() });
//!         } else {
//!             self.answered = true;
//!         }
//!     }
//!     fn handle_timeout(&mut self, now: Duration) {
//!         self.out = Some(Packet { from: 0, to: 1, ecn: Ecn::NotCapable, bytes: b"question".to_vec() });
//!         self.ask_at = now + Duration::from_millis(20);
//!     }
//!     fn next_timeout(&self) -> Option<Duration> {
//!         (!self.answered && self.ask_at < Duration::MAX).then_some(self.ask_at)
//!     }
//!     fn poll_transmit(&mut self, _now: Duration) -> Option<Packet> {
//!         self.out.take()
//!     }
//! }
//!
//! for_each_seed(0..100, |seed| {
//!     let lossy = Settings { loss: 0.4, delay: Duration::from_millis(1), ..Settings::default() };
//!     let answerer = Asker { ask_at: Duration::MAX, ..Asker::default() };
//!     let mut network = Network::new(Air::new(Duplex::Full, seed, [lossy, lossy]), [Asker::default(), answerer]);
//!     assert!(network.run_until(Duration::from_secs(10), |network| network.endpoint(0).answered));
//! });
//! ```

use std::ops::Range;
use std::time::Duration;

use crate::{Air, Ecn, Header};

/// Bytes that IPv4 and UDP add to a payload. The air counts whole IP packets.
pub const IPV4_AND_UDP_HEADER_BYTES: u32 = 20 + 8;

/// More steps than this without any progress of time are a fault of an endpoint.
const STEPS_AT_ONE_INSTANT: u32 = 1_000_000;

/// The payload of a datagram, with the hosts that send and receive it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The host that sends it. The network overwrites it with the true one.
    pub from: usize,
    /// The host that receives it.
    pub to: usize,
    /// The ECN field: as the sender sets it, and as it arrives.
    pub ecn: Ecn,
    /// The payload, without IP and UDP headers.
    pub bytes: Vec<u8>,
}

/// A host: a sans-IO state machine. All times count from the start of the network.
pub trait Endpoint {
    /// Processes a packet that has arrived.
    fn handle_packet(&mut self, now: Duration, packet: Packet);

    /// Processes timeouts that are due, at the time of [`Endpoint::next_timeout`].
    fn handle_timeout(&mut self, now: Duration);

    /// When to call [`Endpoint::handle_timeout`], if ever.
    fn next_timeout(&self) -> Option<Duration>;

    /// Returns the next packet to send. Called after every other call, until it returns `None`.
    fn poll_transmit(&mut self, now: Duration) -> Option<Packet>;
}

impl<E: Endpoint + ?Sized> Endpoint for Box<E> {
    fn handle_packet(&mut self, now: Duration, packet: Packet) {
        (**self).handle_packet(now, packet);
    }

    fn handle_timeout(&mut self, now: Duration) {
        (**self).handle_timeout(now);
    }

    fn next_timeout(&self) -> Option<Duration> {
        (**self).next_timeout()
    }

    fn poll_transmit(&mut self, now: Duration) -> Option<Packet> {
        (**self).poll_transmit(now)
    }
}

/// Endpoints and the air between them. `Network<Box<dyn Endpoint>>` holds different kinds.
pub struct Network<E> {
    now: Duration,
    air: Air<Packet>,
    endpoints: Vec<E>,
    header_bytes: u32,
    flow: fn(&Packet) -> u64,
}

impl<E: Endpoint> Network<E> {
    /// Endpoint n is host n of the air.
    ///
    /// # Panics
    ///
    /// When there are not as many endpoints as hosts.
    pub fn new(air: Air<Packet>, endpoints: impl IntoIterator<Item = E>) -> Self {
        let endpoints: Vec<E> = endpoints.into_iter().collect();
        assert_eq!(
            endpoints.len(),
            air.hosts(),
            "an endpoint for every host of the air"
        );
        Self {
            now: Duration::ZERO,
            air,
            endpoints,
            header_bytes: IPV4_AND_UDP_HEADER_BYTES,
            flow: |packet| (packet.from as u64) << 32 | packet.to as u64,
        }
    }

    /// Sets the flow of a packet, for fair queues; from host to host by default.
    #[must_use]
    pub fn with_flows(mut self, flow: fn(&Packet) -> u64) -> Self {
        self.flow = flow;
        self
    }

    /// Sets the header bytes counted for each packet, in place of [`IPV4_AND_UDP_HEADER_BYTES`].
    #[must_use]
    pub fn with_header_bytes(mut self, header_bytes: u32) -> Self {
        self.header_bytes = header_bytes;
        self
    }

    /// The virtual time.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The air, for its counters.
    pub fn air(&self) -> &Air<Packet> {
        &self.air
    }

    /// An endpoint.
    ///
    /// # Panics
    ///
    /// When there is none of that number.
    pub fn endpoint(&self, host: usize) -> &E {
        &self.endpoints[host]
    }

    /// An endpoint, for changes at the virtual time. Packets that it then wants to send leave in
    /// the next step.
    ///
    /// # Panics
    /// When there is none of that number.
    pub fn endpoint_mut(&mut self, host: usize) -> &mut E {
        &mut self.endpoints[host]
    }

    /// Runs up to the time `end`.
    pub fn run_to(&mut self, end: Duration) {
        self.run_until(end, |_| false);
    }

    /// Runs until `done`, or up to the time `end`; returns whether it was done.
    ///
    /// # Panics
    /// When an endpoint keeps the network busy without progress of time.
    pub fn run_until(&mut self, end: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let mut steps_at_this_instant = 0;
        loop {
            self.transmit();
            if done(self) {
                return true;
            }
            let Some(next) = self.next_event().filter(|&next| next <= end) else {
                self.now = self.now.max(end);
                return false;
            };
            steps_at_this_instant = if next > self.now {
                0
            } else {
                steps_at_this_instant + 1
            };
            assert!(
                steps_at_this_instant < STEPS_AT_ONE_INSTANT,
                "an endpoint is never finished at {:?}: its next_timeout does not move on",
                self.now
            );
            self.now = self.now.max(next);
            self.arrive();
        }
    }

    /// Offers all packets that the endpoints want to send now to the air.
    fn transmit(&mut self) {
        for (host, endpoint) in self.endpoints.iter_mut().enumerate() {
            let mut sent = 0;
            while let Some(mut packet) = endpoint.poll_transmit(self.now) {
                sent += 1;
                assert!(
                    sent < STEPS_AT_ONE_INSTANT,
                    "endpoint {host} never stops sending at {:?}",
                    self.now
                );
                packet.from = host;
                let bytes = u32::try_from(packet.bytes.len())
                    .unwrap_or(u32::MAX)
                    .saturating_add(self.header_bytes);
                let header = Header {
                    bytes,
                    flow: (self.flow)(&packet),
                    ecn: packet.ecn,
                };
                self.air.offer(self.now, host, header, packet);
            }
        }
    }

    fn next_event(&self) -> Option<Duration> {
        let timeouts = self.endpoints.iter().filter_map(Endpoint::next_timeout);
        timeouts.chain(self.air.next_event()).min()
    }

    /// Delivers packets that have arrived, then calls the endpoints with a due timeout.
    fn arrive(&mut self) {
        while let Some(delivery) = self.air.deliver(self.now) {
            // A packet to an unknown host is lost there, as on a real network.
            if let Some(endpoint) = self.endpoints.get_mut(delivery.packet.to) {
                let ecn = delivery.ecn;
                let packet = Packet {
                    ecn,
                    ..delivery.packet
                };
                endpoint.handle_packet(self.now, packet);
            }
        }
        for endpoint in &mut self.endpoints {
            if endpoint
                .next_timeout()
                .is_some_and(|timeout| timeout <= self.now)
            {
                endpoint.handle_timeout(self.now);
            }
        }
    }
}

/// Runs a test with each seed. A failure names its seed; `NERVURE_SEED=<seed>` runs that one alone.
///
/// # Panics
///
/// When the test does, or when `NERVURE_SEED` is no number.
pub fn for_each_seed(seeds: Range<u64>, mut test: impl FnMut(u64)) {
    let only = std::env::var("NERVURE_SEED").ok().map(|text| {
        text.parse::<u64>()
            .unwrap_or_else(|_| panic!("NERVURE_SEED: expected a number, got {text:?}"))
    });
    for seed in only.map_or(seeds, |seed| seed..seed + 1) {
        let named = NamedSeed(seed);
        test(seed);
        std::mem::forget(named);
    }
}

/// Random numbers from a seed, for tests that draw their networks and loads. Not `fastrand`:
/// results that tests and docs quote depend on this sequence.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// A number from 0 on, below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    /// Uniform in [0, 1).
    pub fn share(&mut self) -> f64 {
        self.below(1 << 20) as f64 / (1 << 20) as f64
    }

    /// True with this probability, in percent.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Prints the seed while a failed test unwinds.
struct NamedSeed(u64);

impl Drop for NamedSeed {
    fn drop(&mut self) {
        eprintln!(
            "failed with seed {seed}; to replay it alone: NERVURE_SEED={seed}",
            seed = self.0
        );
    }
}
