//! Either end is lost and comes back without its state: the other reports the exact loss, and
//! continues.

use std::time::Duration;

use nervure_linkemu::{
    Air, Duplex, Settings,
    network::{Draw, Network, Packet, for_each_seed},
};

use super::{
    app::{Host, HostPair, Load},
    networks::millis,
};
use crate::qos::{Delivery, Qos};

fn network(seed: u64, draw: &mut Draw) -> (Network<HostPair>, Vec<Load>) {
    let settings = Settings {
        rate_bits_per_second: Some(20_000_000),
        loss: draw.share() * 0.4,
        delay: millis(1 + draw.below(20)),
        ..Settings::default()
    };
    let deliveries = [
        Delivery::keep_all(6),
        Delivery::keep_last(2),
        Delivery::Latest,
    ];
    let loads: Vec<Load> = deliveries
        .map(|delivery| Load {
            qos: Qos::new(delivery),
            sample_bytes: 1 + draw.below(12_000) as usize,
            period: millis(5 + draw.below(10)),
            count: 60,
            start: Duration::ZERO,
        })
        .into();
    let air: Air<Packet> = Air::new(Duplex::Full, seed, [settings, settings]);
    let hosts = [
        HostPair(1, Host::new(seed, 0, &loads)),
        HostPair(0, Host::new(seed, 1, &[])),
    ];
    (Network::new(air, hosts), loads)
}

#[test]
fn a_receiver_that_comes_back_costs_what_was_under_way() {
    for_each_seed(0..60, |seed| {
        let mut draw = Draw::new(seed);
        let (mut network, _) = network(seed, &mut draw);
        network.run_to(millis(20 + draw.below(400)));
        let before = network.endpoint(1).1.session.status().received.delivered;
        network.endpoint_mut(1).1 = Host::new(seed + 1_000_000, 1, &[]);
        let done = |network: &Network<HostPair>| {
            network.endpoint(0).1.has_sent_all()
                && network.endpoint(0).1.session.sender().streams().is_idle()
        };
        assert!(
            network.run_until(Duration::from_secs(100), done),
            "{:#?}",
            network.endpoint(0).1.session
        );

        let host = &network.endpoint(0).1;
        let sent = host.session.status().sent;
        assert!(sent.is_balanced() && sent.held == 0, "{sent:?}");
        assert_eq!(host.peer_lost.iter().sum::<u64>(), sent.unconfirmed);
        assert!(host.peer_lost.len() <= 1);
        let after = network.endpoint(1).1.session.status().received.delivered;
        // Confirmed samples were delivered; those delivered without confirmation are counted.
        assert!(
            sent.delivered <= before + after,
            "{sent:?} {before} {after}"
        );
        if host.peer_lost.is_empty() {
            // No feedback came from the first receiver: all that it had was sent again.
            assert_eq!(after, sent.delivered);
        } else {
            assert!(
                before + after <= sent.delivered + sent.unconfirmed,
                "{sent:?} {before} {after}"
            );
        }
    });
}

#[test]
fn a_restarted_sender_begins_again() {
    for_each_seed(0..60, |seed| {
        let mut draw = Draw::new(seed);
        let (mut network, loads) = network(seed, &mut draw);
        network.run_to(millis(20 + draw.below(400)));
        let began = network.endpoint(1).1.session.receiver().streams().count();
        let mut host = Host::new(seed + 1_000_000, 0, &loads);
        std::mem::swap(&mut network.endpoint_mut(0).1, &mut host);
        let done = |network: &Network<HostPair>| {
            network.endpoint(0).1.has_sent_all()
                && network.endpoint(0).1.session.sender().streams().is_idle()
        };
        assert!(
            network.run_until(Duration::from_secs(100), done),
            "{:#?}",
            network.endpoint(0).1.session
        );
        let receiver = &network.endpoint(1).1;
        if began > 0 {
            assert_eq!(receiver.peer_restarted.len(), 1);
        }
        let sent = network.endpoint(0).1.session.status().sent;
        assert!(sent.is_balanced() && sent.unconfirmed == 0, "{sent:?}");
        let keep_all = receiver
            .session
            .receiver()
            .streams()
            .next()
            .expect("it is open")
            .0;
        let delivered = receiver
            .session
            .receiver()
            .counters(keep_all)
            .expect("it is open")
            .delivered;
        assert_eq!(
            delivered, loads[0].count,
            "a stream that keeps all delivers all of the new session"
        );
    });
}
