//! The link on simulated networks: every run repeats exactly from its seed.

mod addresses;
mod app;
mod closing;
mod hostile;
mod idle_peers;
mod networks;
mod pair;
mod paths;
mod qos_change;
mod restart;

use std::time::Instant;

use crate::session::Session;

/// Carries the datagrams of both directions, over a path without loss or delay.
fn exchange(now: Instant, one: &mut Session, other: &mut Session) {
    let ends = [one, other];
    for turn in 0..4 {
        let from = turn % 2;
        ends[from].handle_timeout(now);
        let mut packet = Vec::new();
        while ends[from].next_datagram(now, 1200, &mut packet) {
            ends[1 - from].on_datagram(now, None, &packet);
            packet.clear();
        }
    }
}
