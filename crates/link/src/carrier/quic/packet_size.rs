//! The search for the largest packet size of a path, by handshakes with packets of that size.
//!
//! QUIC and `hedge` repeat each handshake, so that even under loss a failed one says something
//! about the size. (The purpose of RFC 8899; its single probes could not be distinguished from lost
//! packets.)

use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The packet size (UDP payload, in bytes) at which every session begins: RFC 9000 demands as much
/// of every path.
pub const FIRST_PACKET_BYTES: u16 = 1200;
/// Common path MTUs, IP headers included: Ethernet, PPPoE, tunnels of several kinds, WireGuard, the
/// minimum of IPv6.
const PATH_MTUS: [u16; 11] = [
    1280, 1300, 1340, 1380, 1400, 1420, 1440, 1460, 1480, 1492, 1500,
];
/// A trial fails after this time, or after [`TRIAL_ROUND_TRIPS`] if they take longer.
const TRIAL: Duration = Duration::from_millis(1000);
const TRIAL_ROUND_TRIPS: u32 = 6;
/// The time until another search, after one that ended below the largest size: paths change.
const SEARCH_AGAIN: Duration = Duration::from_secs(60);

/// A search that begins at the largest size and then bisects.
#[derive(Debug, Default)]
pub struct Search {
    /// The smallest size that failed.
    too_large: Option<u16>,
    trial: Option<Trial>,
    next: Option<Instant>,
}

#[derive(Debug)]
struct Trial {
    packet_bytes: u16,
    handle: Option<usize>,
    until: Instant,
}

impl Search {
    pub fn timeout(&self) -> Option<Instant> {
        self.trial.as_ref().map(|trial| trial.until).or(self.next)
    }

    /// Notes that a connection was established. If it was the trial, larger sizes may follow.
    pub fn succeeded(&mut self, now: Instant, _handle: usize) {
        self.trial = None;
        self.next = Some(now);
    }

    /// Whether a trial is in progress.
    pub fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// Takes the connection of a trial that took too long. One that is established at this end
    /// waits for the peer, because the size must work in both directions.
    pub fn take_failed(
        &mut self,
        now: Instant,
        is_established: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let late = self.trial.as_mut().filter(|trial| trial.until <= now)?;
        if late.handle.is_some_and(is_established) {
            late.until = now + TRIAL;
            return None;
        }
        let trial = self.trial.take()?;
        self.too_large = Some(trial.packet_bytes);
        trial.handle
    }

    /// The size to try now, on a path that takes packets of `known` bytes.
    pub fn next(
        &mut self,
        now: Instant,
        known: u16,
        largest: u16,
        to: SocketAddr,
        rtt: Duration,
    ) -> Option<u16> {
        if self.next.is_some_and(|at| at <= now)
            && self.trial.is_none()
            && self.finished(known, largest, to)
        {
            self.too_large = None;
        }
        let sizes = candidates(known, self.too_large, largest, to);
        let packet_bytes = match self.too_large {
            None => sizes.last(),
            Some(_) => sizes.get(sizes.len() / 2),
        };
        self.next = match packet_bytes {
            Some(_) => None,
            None if known < largest => Some(now + SEARCH_AGAIN),
            None => None,
        };
        let packet_bytes = *packet_bytes?;
        let until = now + TRIAL.max(rtt * TRIAL_ROUND_TRIPS);
        self.trial = Some(Trial {
            packet_bytes,
            handle: None,
            until,
        });
        Some(packet_bytes)
    }

    fn finished(&self, known: u16, largest: u16, to: SocketAddr) -> bool {
        candidates(known, self.too_large, largest, to).is_empty()
    }

    pub fn began(&mut self, handle: Option<usize>) {
        if let Some(trial) = &mut self.trial {
            trial.handle = handle;
        }
    }
}

/// Sizes (UDP payload) between the largest that is known to work and the smallest that is known to
/// fail.
fn candidates(known: u16, too_large: Option<u16>, largest: u16, to: SocketAddr) -> Vec<u16> {
    // Headers of IP and UDP.
    let headers = if to.is_ipv6() { 40 + 8 } else { 20 + 8 };
    let sizes = PATH_MTUS
        .iter()
        .map(|mtu| mtu - headers)
        .filter(|size| *size <= largest);
    let mut sizes: Vec<u16> = sizes
        .chain([largest])
        .filter(|size| *size > known)
        .collect();
    sizes.retain(|size| too_large.is_none_or(|limit| *size < limit));
    sizes.dedup();
    sizes
}
