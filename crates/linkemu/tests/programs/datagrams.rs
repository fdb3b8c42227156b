//! Sends or receives numbered datagrams.
//!
//! `send ADDRESS COUNT BYTES GAP_MICROS` sends COUNT datagrams of BYTES IP bytes to port 5000.
//! `receive QUIET_MILLIS` receives until nothing has come for that time after the first, and prints
//! the count and the least and the median time in transit.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

const IPV4_AND_UDP_HEADER_BYTES: usize = 28;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["send", address, count, bytes, gap] => {
            send(
                address,
                number(count),
                number(bytes) as usize,
                Duration::from_micros(number(gap)),
            );
        }
        ["receive", quiet] => receive(Duration::from_millis(number(quiet))),
        _ => panic!("expected `send ADDRESS COUNT BYTES GAP_MICROS` or `receive QUIET_MILLIS`"),
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn send(address: &str, count: u64, bytes: usize, gap: Duration) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let mut datagram = vec![0_u8; bytes - IPV4_AND_UDP_HEADER_BYTES];
    let start = Instant::now();
    for number in 0..count {
        std::thread::sleep((gap * number as u32).saturating_sub(start.elapsed()));
        datagram[..8].copy_from_slice(&number.to_be_bytes());
        datagram[8..16].copy_from_slice(&now_nanos().to_be_bytes());
        socket.send_to(&datagram, (address, 5000)).unwrap();
    }
}

fn receive(quiet: Duration) {
    let socket = UdpSocket::bind("0.0.0.0:5000").unwrap();
    let mut buffer = [0_u8; 65_536];
    let mut took_nanos = Vec::new();
    while let Ok(length) = socket.recv(&mut buffer) {
        assert!(length >= 16);
        let sent_at = u64::from_be_bytes(buffer[8..16].try_into().unwrap());
        took_nanos.push(now_nanos() - sent_at);
        socket.set_read_timeout(Some(quiet)).unwrap();
    }
    took_nanos.sort_unstable();
    let micros = |index: usize| took_nanos.get(index).map_or(0, |nanos| nanos / 1000);
    println!(
        "received {} least_micros {} middle_micros {}",
        took_nanos.len(),
        micros(0),
        micros(took_nanos.len() / 2)
    );
}

fn now_nanos() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
