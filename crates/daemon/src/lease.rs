//! The lease of a machine: whether it can reach the coordinator's machine, and can be reached.
//!
//! Each daemon renews its lease with the daemon of the coordinator's machine, and that confirms each
//! renewal. A machine holds its lease for [`LIFETIME`] from when it *sent* the last renewal that was
//! confirmed; the other end counts it as reachable for that time from when the last renewal
//! *arrived*. So the lease has ended at the machine before it is shown as unreachable, on any clocks
//! that run at the same rate.
//!
//! Renewals go over the link as datagrams that are not repaired: each is independent of those before,
//! unlike segments of TCP, whose repetitions double their distance (at a loss of 20 % four of them in
//! 1.5 s, so that one in 600 renewals would come too late). A renewal that is not confirmed is
//! repeated every [`REPEAT`].
//!
//! With loss `p` in each direction a repetition fails with `q = 1 - (1 - p)^2`. 15 of them fit into a
//! lifetime, after the first. At `p` = 20 %: `q`^16 = 8e-8 for each of 2000 renewals in 10 minutes:
//! one false alarm in 6000 such periods at the machine, and `p`^16 = 7e-12 at the other end. The
//! simulation in `tests/lease.rs` has these figures, also with losses in bursts.

use std::collections::BTreeMap;
use std::time::Duration;

/// How long a lease is valid.
pub const LIFETIME: Duration = Duration::from_millis(1200);

/// Time from a renewal that was confirmed at once to the next.
pub const INTERVAL: Duration = Duration::from_millis(300);

/// Time to a repetition of a renewal that was not confirmed.
pub const REPEAT: Duration = Duration::from_millis(50);

/// Time for the first confirmation: a round trip on a link with a queue.
const FIRST_REPEAT: Duration = Duration::from_millis(150);

/// Bytes of a message.
pub const MESSAGE_BYTES: usize = 16;

/// A renewal or its confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// Random for each daemon process, so that a confirmation for the last one counts for none.
    pub holder: u64,
    /// Of the renewal, from 1.
    pub renewal: u64,
}

impl Number {
    /// Its bytes.
    pub fn encode(self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..8].copy_from_slice(&self.holder.to_le_bytes());
        bytes[8..].copy_from_slice(&self.renewal.to_le_bytes());
        bytes
    }

    /// Reads it from a message of another machine.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MESSAGE_BYTES] = bytes.try_into().ok()?;
        let (holder, renewal) = bytes.split_at(8);
        Some(Self {
            holder: u64::from_le_bytes(holder.try_into().ok()?),
            renewal: u64::from_le_bytes(renewal.try_into().ok()?),
        })
    }
}

/// The end that holds a lease.
#[derive(Clone, Debug)]
pub struct Holder {
    id: u64,
    /// When each renewal was sent that may still be confirmed.
    sent: BTreeMap<u64, Duration>,
    last: u64,
    confirmed: u64,
    is_repeated: bool,
    next_at: Duration,
    until: Option<Duration>,
}

impl Holder {
    /// A lease that is not held yet.
    pub fn new(id: u64) -> Self {
        Self {
            id,
            sent: BTreeMap::new(),
            last: 0,
            confirmed: 0,
            is_repeated: false,
            next_at: Duration::ZERO,
            until: None,
        }
    }

    /// The renewal to send, if one is due.
    pub fn renewal(&mut self, now: Duration) -> Option<Number> {
        if now < self.next_at {
            return None;
        }
        let pause = if self.is_repeated {
            REPEAT
        } else {
            FIRST_REPEAT
        };
        self.next_at = now + pause;
        self.is_repeated = true;
        self.last += 1;
        self.sent.insert(self.last, now);
        // Older ones would confirm a lease that has ended.
        self.sent.retain(|_, at| *at + LIFETIME > now);
        Some(Number {
            holder: self.id,
            renewal: self.last,
        })
    }

    /// A confirmation has arrived.
    pub fn confirm(&mut self, number: Number, now: Duration) {
        let sent = self.sent.get(&number.renewal).copied();
        let Some(sent) = sent.filter(|sent| number.holder == self.id && *sent + LIFETIME > now)
        else {
            return;
        };
        if number.renewal > self.confirmed {
            self.confirmed = number.renewal;
            self.until = Some(sent + LIFETIME);
            self.is_repeated = false;
            self.next_at = sent + INTERVAL;
        }
    }

    /// Whether the lease is held.
    pub fn is_held(&self, now: Duration) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// The next time at which something is due: a renewal, or the end of the lease.
    pub fn deadline(&self, now: Duration) -> Duration {
        let end = self.until.filter(|until| *until > now);
        end.map_or(self.next_at, |until| until.min(self.next_at))
    }
}

/// The end that grants leases to machines, by name.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    until: BTreeMap<String, Duration>,
}

impl Grants {
    /// A renewal has arrived from a machine. Returns whether it was not reachable before.
    pub fn renewed(&mut self, machine: &str, now: Duration) -> bool {
        self.until
            .insert(machine.to_owned(), now + LIFETIME)
            .is_none()
    }

    /// The machines whose leases have ended since the last call.
    pub fn take_ended(&mut self, now: Duration) -> Vec<String> {
        let ended = self.until.iter().filter(|(_, until)| **until <= now);
        let ended: Vec<String> = ended.map(|(machine, _)| machine.clone()).collect();
        for machine in &ended {
            self.until.remove(machine);
        }
        ended
    }

    /// When the next lease ends.
    pub fn deadline(&self) -> Option<Duration> {
        self.until.values().min().copied()
    }

    /// Whether a machine is reachable.
    pub fn is_reachable(&self, machine: &str) -> bool {
        self.until.contains_key(machine)
    }
}
