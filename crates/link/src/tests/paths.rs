//! The acceptor is on two networks: when the one in use dies, both ends go on over the other.

use std::{net::SocketAddr, time::Duration};

use nervure_linkemu::network::{Draw, for_each_seed};

use super::pair::{Pair, address};

const MILLI: Duration = Duration::from_millis(1);
/// The time between two samples.
const PERIOD: usize = 10;

/// An initiator that knows both addresses of the acceptor, and its network.
fn two_networks(seed: u64, draw: &mut Draw, delay: [u32; 2], loss: f64) -> Pair {
    let mut pair = Pair::connecting(seed, draw);
    pair.loss = loss;
    pair.delay = delay.map(|millis| MILLI * millis);
    let (preferred, other) = (pair.ends[1].address, address(100));
    pair.ends[1].other = Some(other);
    let (now, peer) = (pair.now, pair.ends[0].peer);
    pair.ends[0]
        .endpoint
        .connect_any(now, &[preferred, other], peer)
        .expect("the addresses are good");
    let connected = |pair: &Pair| pair.ends.iter().all(|end| end.connections > 0);
    assert!(pair.run_until(draw, Duration::from_secs(30), connected));
    let now = pair.now;
    pair.ends.iter_mut().for_each(|end| end.open(now));
    pair
}

/// The address of the acceptor that the initiator sends to.
fn in_use(pair: &Pair) -> SocketAddr {
    let peer = pair.ends[0].endpoint.peers().next();
    peer.and_then(|peer| peer.address).expect("it is connected")
}

/// Runs for this time, in which these ends send. Returns the longest time without a sample at the
/// end that receives them.
fn run(pair: &mut Pair, draw: &mut Draw, time: Duration, senders: [bool; 2]) -> Duration {
    let mut last = [pair.now; 2];
    let mut gap = Duration::ZERO;
    for step in 0..time.as_millis() as usize {
        let before = [0, 1].map(|end| pair.ends[end].taken);
        for end in [0, 1] {
            if senders[end] && step % PERIOD == 0 {
                let now = pair.now;
                pair.ends[end].send(now, 2000);
            }
        }
        pair.step(draw);
        for end in [0, 1] {
            if senders[1 - end] {
                gap = gap.max(pair.now - last[end]);
            }
            if pair.ends[end].taken > before[end] {
                last[end] = pair.now;
            }
        }
    }
    gap
}

/// Checks that each sample arrived once, over the same session.
fn check_complete(seed: u64, pair: &mut Pair, draw: &mut Draw) {
    let all_taken = |pair: &Pair| (0..2).all(|end| pair.ends[end].sent == pair.ends[1 - end].taken);
    assert!(
        pair.run_until(draw, Duration::from_secs(30), all_taken),
        "seed {seed}"
    );
    for end in &pair.ends {
        assert_eq!((end.connections, end.unconfirmed), (1, 0), "seed {seed}");
    }
}

/// One case of a network that dies: the longest time without a sample, over its bound without loss.
fn fail_over(seed: u64, delay: [u32; 2], loss: f64) -> (Duration, Duration) {
    let mut draw = Draw::new(seed);
    let mut pair = two_networks(seed, &mut draw, delay, loss);
    let senders = [[true, false], [false, true], [true, true]][draw.below(3) as usize];
    run(&mut pair, &mut draw, MILLI * 2000, senders);
    let dead = in_use(&pair);
    let was_preferred = dead == pair.ends[1].address;
    // All of its packets, or those of one direction.
    pair.dead = [[true, true], [true, false], [false, true]][draw.below(3) as usize]
        .map(|direction| direction.then_some(dead));
    let gap = run(&mut pair, &mut draw, MILLI * 1500, senders);
    assert_ne!(in_use(&pair), dead, "seed {seed}");
    check_complete(seed, &mut pair, &mut draw);
    let [old, new] = if was_preferred {
        delay
    } else {
        [delay[1], delay[0]]
    };
    let rtt = MILLI * old * 2;
    let silence = (MILLI * 40).max(rtt / 2);
    // A period until the next packet, the silence, an answer with the time between reports, and the
    // way of the first symbols over the other path; each end works once in a millisecond.
    let bound = MILLI * PERIOD as u32 + silence + rtt + MILLI * 12 + MILLI * new;
    (gap, bound)
}

#[test]
fn another_network_is_used_soon_after_one_dies() {
    for_each_seed(0..40, |seed| {
        let mut draw = Draw::new(1000 + seed);
        let delay = [1 + draw.below(20) as u32, 1 + draw.below(40) as u32];
        let (gap, bound) = fail_over(seed, delay, 0.0);
        println!("seed {seed}: one way {delay:?} ms, gap {gap:?}, bound {bound:?}");
        assert!(gap <= bound, "seed {seed}: {gap:?}, bound {bound:?}");
    });
}

#[test]
fn nothing_is_lost_when_a_network_with_loss_dies() {
    let mut over = Vec::new();
    for_each_seed(100..130, |seed| {
        let mut draw = Draw::new(1000 + seed);
        let delay = [1 + draw.below(20) as u32, 1 + draw.below(40) as u32];
        let loss = draw.share() * 0.3;
        let (gap, bound) = fail_over(seed, delay, loss);
        println!("seed {seed}: one way {delay:?} ms, loss {loss:.2}, gap {gap:?}, bound {bound:?}");
        over.push(gap.as_millis() as i64 - bound.as_millis() as i64);
    });
    over.sort_unstable();
    // The first symbols may be lost, and further questions needed.
    assert!(over[over.len() / 2] <= 0, "{over:?}");
}

#[test]
fn the_preferred_network_is_used_again_when_it_works() {
    for_each_seed(0..10, |seed| {
        let mut draw = Draw::new(seed);
        let mut pair = two_networks(seed, &mut draw, [3, 20], 0.0);
        let preferred = pair.ends[1].address;
        let both = [true, true];
        run(&mut pair, &mut draw, MILLI * 1000, both);
        assert_eq!(in_use(&pair), preferred, "seed {seed}");
        pair.dead = [Some(preferred); 2];
        run(
            &mut pair,
            &mut draw,
            MILLI * (2000 + 4000 * seed as u32),
            both,
        );
        assert_ne!(in_use(&pair), preferred, "seed {seed}");
        pair.dead = [None; 2];
        // It has to be noticed, and to work for five seconds.
        let gap = run(&mut pair, &mut draw, MILLI * 8000, both);
        assert_eq!(in_use(&pair), preferred, "seed {seed}");
        assert!(gap < MILLI * 40, "seed {seed}: {gap:?} without a failure");
        check_complete(seed, &mut pair, &mut draw);
    });
}

#[test]
fn a_network_that_is_dead_at_first_does_not_keep_peers_apart() {
    for_each_seed(0..10, |seed| {
        let mut draw = Draw::new(seed);
        let mut pair = Pair::connecting(seed, &mut draw);
        (pair.loss, pair.delay) = (0.0, [MILLI * 5; 2]);
        let (preferred, other) = (pair.ends[1].address, address(100));
        pair.ends[1].other = Some(other);
        pair.dead = [Some(preferred); 2];
        let (began, peer) = (pair.now, pair.ends[0].peer);
        pair.ends[0]
            .endpoint
            .connect_any(began, &[preferred, other], peer)
            .expect("the addresses are good");
        let connected = |pair: &Pair| pair.ends.iter().all(|end| end.connections > 0);
        assert!(pair.run_until(&mut draw, Duration::from_secs(5), connected));
        // The check after which the other address is tried, a handshake, and the acceptor's last step.
        let time = pair.now - began;
        assert!(time < MILLI * (500 + 40), "seed {seed}: {time:?}");
        pair.dead = [None; 2];
        let returned = |pair: &Pair| in_use(pair) == preferred;
        assert!(pair.run_until(&mut draw, Duration::from_secs(20), returned));
    });
}

#[test]
fn loss_alone_rarely_changes_the_path() {
    let mut changes = 0;
    for_each_seed(0..5, |seed| {
        let mut draw = Draw::new(seed);
        let mut pair = two_networks(seed, &mut draw, [5, 5], 0.2);
        let mut before = in_use(&pair);
        // A sample in 100 ms for a minute.
        for step in 0..60_000 {
            if step % 100 == 0 {
                let now = pair.now;
                pair.ends[0].send(now, 2000);
            }
            pair.step(&mut draw);
            changes += u32::from(in_use(&pair) != before);
            before = in_use(&pair);
        }
        check_complete(seed, &mut pair, &mut draw);
    });
    println!("{changes} changes of the path in five minutes with 20 % loss");
    assert!(changes <= 10, "{changes}");
}
