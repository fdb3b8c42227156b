//! The cost of peers for each other on one socket, over loopback: `cargo run --release -p
//! nervure-link --example peers_cost`.
//!
//! - How long `send` takes on a stream of 1 KB at 1 kHz, alone and beside a stream of 4 MB samples
//!   without pause to another peer.
//! - The processor time of this process, both ends, with idle peers. Each has a socket and a thread
//!   of its own.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use nervure_link::{
    carrier::KeyPair,
    qos::{Delivery, Qos},
    rate,
    receiver::ReceiverConfig,
    session::SessionConfig,
    shell::{Link, LinkConfig, LinkEvent, LinkLimits, OutgoingStream, Peer},
};

const TIMEOUT: Duration = Duration::from_secs(10);
/// The rate to each peer is bounded, so that it is the same in all runs.
const BYTES_PER_SECOND: f64 = 50e6;

fn main() {
    let idle: usize = std::env::args()
        .nth(1)
        .map_or(200, |count| count.parse().expect("a number of idle peers"));
    println!("| beside | send of 1 KB, p50 | p99 | most |");
    println!("| :--- | ---: | ---: | ---: |");
    for bulk in [false, true] {
        let mut waits = send_waits(bulk, Duration::from_secs(8));
        waits.sort();
        let at =
            |share: f64| waits[((waits.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
        let beside = if bulk { "4 MB samples" } else { "nothing" };
        println!(
            "| {beside} | {:.0} µs | {:.0} µs | {:.0} µs |",
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
    println!();
    let (one, others) = idle_peers(idle, Duration::from_secs(10));
    println!(
        "{idle} idle peers: {:.2} % of a core for the end that has them all, {:.2} % for all of theirs",
        one * 100.0,
        others * 100.0
    );
}

fn end(number: u64, allow: Option<&Link>) -> Link {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    let config = SessionConfig {
        rate: rate::Config {
            max_bytes_per_second: BYTES_PER_SECOND,
            ..rate::Config::default()
        },
        receiver: ReceiverConfig {
            budget_bytes: 2 << 30,
            ..ReceiverConfig::default()
        },
    };
    let address = "127.0.0.1:0".parse().expect("an address");
    Link::bind(LinkConfig {
        allow: allow.map(Link::public_key).into_iter().collect(),
        limits: LinkLimits {
            peers: 1100,
            ..LinkLimits::default()
        },
        session: config,
        ..LinkConfig::new(address, KeyPair::from_seed(seed))
    })
    .expect("a socket on loopback")
}

fn connect(from: &Link, to: &Link) -> Peer {
    from.connect(to.local_address(), to.public_key())
        .expect("the address is good")
}

fn open(peer: &Peer, qos: Qos) -> OutgoingStream {
    let stream = peer.open("stream", qos).expect("the name is short");
    assert!(stream.wait_opened(TIMEOUT).expect("it is accepted"));
    stream
}

/// Takes all samples until told to stop.
fn receive(link: &Link, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        while link.next_event(Duration::ZERO).is_some() {}
        let _ = link.receive_any(Duration::from_millis(20));
    }
}

/// Duration of each `send`.
fn send_waits(beside_bulk: bool, time: Duration) -> Vec<Duration> {
    let sender = end(1, None);
    let [first, second] = [2, 3].map(|number| end(number, Some(&sender)));
    let small = open(&connect(&sender, &first), Qos::new(Delivery::keep_last(8)));
    let bulk = connect(&sender, &second);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| receive(&first, &stop));
        scope.spawn(|| receive(&second, &stop));
        if beside_bulk {
            scope.spawn(|| {
                let stream = open(&bulk, Qos::new(Delivery::keep_last(2)));
                let sample = Bytes::from(vec![7; 4 << 20]);
                while !stop.load(Ordering::Relaxed) {
                    stream.send(sample.clone()).expect("it is open");
                    std::thread::sleep(Duration::from_millis(40));
                }
            });
        }
        let sample = Bytes::from(vec![7; 1000]);
        let began = Instant::now();
        let mut waits = Vec::new();
        while began.elapsed() < time {
            let before = Instant::now();
            small.send(sample.clone()).expect("it is open");
            waits.push(before.elapsed());
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        waits
    })
}

/// The share of a core that is used by an end with this number of idle peers, and by the peers.
fn idle_peers(count: usize, time: Duration) -> (f64, f64) {
    let one = end(1, None);
    let others: Vec<_> = (0..count)
        .map(|number| {
            let other = end(number as u64 + 2, Some(&one));
            let peer = connect(&one, &other);
            while !matches!(one.next_event(TIMEOUT), Some(LinkEvent::Connected { .. })) {}
            (other, peer)
        })
        .collect();
    // The size of packets is found within this time.
    std::thread::sleep(Duration::from_secs(5));
    let (all_before, one_before, began) = (processor_time(), first_thread_time(), Instant::now());
    std::thread::sleep(time);
    let elapsed = began.elapsed().as_secs_f64();
    let one = (first_thread_time() - one_before).as_secs_f64() / elapsed;
    let all = (processor_time() - all_before).as_secs_f64() / elapsed;
    drop(others);
    (one, all - one)
}

/// Processor time of the oldest thread of a link.
fn first_thread_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a Linux system");
    let tasks = tasks.map(|task| task.expect("a readable folder").path());
    let is_link = |task: &std::path::PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "nervure-link")
    };
    let number = |task: &std::path::PathBuf| {
        let name = task.file_name().expect("a number").to_string_lossy();
        name.parse::<u64>().expect("a number")
    };
    let first = tasks.filter(is_link).min_by_key(number);
    let times = std::fs::read_to_string(first.expect("a link").join("schedstat"));
    let nanos = times.expect("a running thread");
    let nanos = nanos.split(' ').next().expect("three numbers");
    Duration::from_nanos(nanos.parse().expect("a number"))
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
