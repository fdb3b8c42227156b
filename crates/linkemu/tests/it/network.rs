//! The simulated network, with endpoints that check their packets.

use std::collections::BTreeSet;
use std::time::Duration;

use nervure_linkemu::network::{
    Endpoint, IPV4_AND_UDP_HEADER_BYTES, Network, Packet, for_each_seed,
};
use nervure_linkemu::{Air, Duplex, Ecn, Schedule, Settings};

const MILLI: Duration = Duration::from_millis(1);

/// Sends numbers at a steady pace, returns received ones, and sends those again that have not come
/// back in 50 ms.
#[derive(Default)]
struct Peer {
    to_send: u32,
    sent: u32,
    send_at: Duration,
    missing: Vec<(u32, Duration)>,
    received: BTreeSet<u32>,
    out: Vec<Packet>,
    log: Vec<(Duration, Vec<u8>)>,
}

impl Peer {
    fn say(&mut self, number: u32, to: usize, kind: u8) {
        let mut bytes = vec![kind; 1000];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        self.out.push(Packet {
            from: 0,
            to,
            ecn: Ecn::NotCapable,
            bytes,
        });
    }
}

impl Endpoint for Peer {
    fn handle_packet(&mut self, now: Duration, packet: Packet) {
        let number = u32::from_be_bytes(packet.bytes[..4].try_into().unwrap());
        self.log.push((now, packet.bytes[..5].to_vec()));
        if packet.bytes[4] == b'?' {
            self.received.insert(number);
            self.say(number, packet.from, b'!');
        } else {
            self.missing.retain(|missing| missing.0 != number);
        }
    }

    fn handle_timeout(&mut self, now: Duration) {
        if self.sent < self.to_send && self.send_at <= now {
            self.say(self.sent, 1, b'?');
            self.missing.push((self.sent, now + 50 * MILLI));
            self.sent += 1;
            self.send_at = now + 2 * MILLI;
        }
        for index in 0..self.missing.len() {
            if self.missing[index].1 <= now {
                self.missing[index].1 = now + 50 * MILLI;
                self.say(self.missing[index].0, 1, b'?');
            }
        }
    }

    fn next_timeout(&self) -> Option<Duration> {
        let next = (self.sent < self.to_send).then_some(self.send_at);
        self.missing
            .iter()
            .map(|missing| missing.1)
            .chain(next)
            .min()
    }

    fn poll_transmit(&mut self, _now: Duration) -> Option<Packet> {
        if self.out.is_empty() {
            None
        } else {
            Some(self.out.remove(0))
        }
    }
}

fn network(seed: u64, schedule: &Schedule) -> Network<Peer> {
    let air = Air::new(Duplex::Half, seed, [schedule.clone(), schedule.clone()]);
    Network::new(
        air,
        [
            Peer {
                to_send: 50,
                ..Peer::default()
            },
            Peer::default(),
        ],
    )
}

fn lossy() -> Schedule {
    let settings = Settings {
        rate_bits_per_second: Some(20_000_000),
        loss: 0.4,
        delay: MILLI,
        jitter: MILLI,
        ..Settings::default()
    };
    Schedule::from(settings).outage(40 * MILLI, 30 * MILLI)
}

#[test]
fn everything_arrives_in_the_end_with_every_seed() {
    for_each_seed(0..500, |seed| {
        let mut network = network(seed, &lossy());
        let done = network.run_until(Duration::from_secs(60), |network| {
            network.endpoint(0).sent == 50 && network.endpoint(0).missing.is_empty()
        });
        assert!(
            done,
            "{:?} missing at {:?}",
            network.endpoint(0).missing,
            network.now()
        );
        assert_eq!(network.endpoint(1).received.len(), 50);
        assert!(network.air().counters(0).lost_random.packets > 0);
    });
}

#[test]
fn a_seed_repeats_a_run_exactly() {
    let run = |seed| {
        let mut network = network(seed, &lossy());
        network.run_to(Duration::from_secs(5));
        let counters = [0, 1].map(|host| *network.air().counters(host));
        (std::mem::take(&mut network.endpoint_mut(0).log), counters)
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn headers_are_counted() {
    let mut network = network(1, &Schedule::from(Settings::default()));
    network.run_to(Duration::from_secs(1));
    let offered = network.air().counters(0).offered;
    assert_eq!(
        offered.bytes,
        offered.packets * u64::from(1000 + IPV4_AND_UDP_HEADER_BYTES)
    );
    assert_eq!(network.now(), Duration::from_secs(1));
}

#[test]
#[should_panic(expected = "never finished")]
fn an_endpoint_that_never_sleeps_is_found() {
    struct Restless;
    impl Endpoint for Restless {
        fn handle_packet(&mut self, _now: Duration, _packet: Packet) {}
        fn handle_timeout(&mut self, _now: Duration) {}
        fn next_timeout(&self) -> Option<Duration> {
            Some(Duration::ZERO)
        }
        fn poll_transmit(&mut self, _now: Duration) -> Option<Packet> {
            None
        }
    }
    Network::new(Air::new(Duplex::Full, 1, [Settings::default()]), [Restless]).run_to(MILLI);
}
