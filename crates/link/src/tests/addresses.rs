//! Addresses change while samples are in flight: streams continue, and a stream that keeps all loses
//! and repeats nothing.

use std::time::Duration;

use nervure_linkemu::network::{Draw, for_each_seed};

use super::pair::{Pair, address};
use crate::carrier::Carrier;

#[test]
fn no_sample_is_lost_or_doubled_when_addresses_change() {
    let mut moves = 0;
    for_each_seed(0..15, |seed| {
        let mut draw = Draw::new(seed);
        let mut pair = Pair::connecting(seed, &mut draw);
        let connected = |pair: &Pair| pair.ends.iter().all(|end| end.connections > 0);
        assert!(
            pair.run_until(&mut draw, Duration::from_secs(30), connected),
            "seed {seed}"
        );
        let now = pair.now;
        pair.ends.iter_mut().for_each(|end| end.open(now));
        let mut next_host = 2;
        for _ in 0..1500 {
            let now = pair.now;
            for end in &mut pair.ends {
                if draw.chance(20) {
                    end.send(now, draw.below(20_000) as usize);
                }
            }
            if draw.chance(1) && next_host < 6 {
                next_host += 1;
                moves += 1;
                if draw.chance(60) {
                    // The initiator has another address, and may not know it: a translator of
                    // addresses has rebooted.
                    pair.ends[0].address = address(next_host);
                    if draw.chance(50) {
                        pair.ends[0]
                            .endpoint
                            .carrier_mut()
                            .local_address_changed(now);
                    }
                } else {
                    // The acceptor has moved, and the initiator learns where to.
                    pair.ends[1].address = address(next_host);
                    pair.ends[0].connect(now, address(next_host));
                }
            }
            pair.step(&mut draw);
        }
        let all_taken = |pair: &Pair| {
            pair.ends[0].sent == pair.ends[1].taken && pair.ends[1].sent == pair.ends[0].taken
        };
        assert!(
            pair.run_until(&mut draw, Duration::from_secs(60), all_taken),
            "seed {seed}: {:?}",
            pair.ends
                .iter()
                .map(|end| (end.sent, end.taken))
                .collect::<Vec<_>>()
        );
        for end in &pair.ends {
            assert!(end.sent > 20, "seed {seed}: {}", end.sent);
            assert_eq!((end.connections, end.unconfirmed), (1, 0), "seed {seed}");
        }
    });
    assert!(moves > 25, "{moves}");
}
