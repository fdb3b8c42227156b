//! The lease of a machine: whether it can reach the coordinator's machine, and can be reached.
//!
//! Each daemon renews its lease with the daemon of the coordinator's machine, which confirms each renewal.
//! A machine holds its lease for [`LIFETIME`] from when it *sent* the last confirmed renewal; the other end
//! counts it as reachable for that time from when the last renewal *arrived*. So the lease ends at the
//! machine before it is shown as unreachable, on any clocks that run at the same rate.
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

use crate::clock::ClockOffset;

/// How long a lease is valid.
pub const LIFETIME: Duration = Duration::from_millis(1200);

/// Time from a renewal that was confirmed at once to the next.
pub const INTERVAL: Duration = Duration::from_millis(300);

/// Time to a repetition of a renewal that was not confirmed.
pub const REPEAT: Duration = Duration::from_millis(50);

/// Time for the first confirmation: a round trip on a link with a queue.
const FIRST_REPEAT: Duration = Duration::from_millis(150);

/// Identifies a renewal of a daemon process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// Random for each daemon process, so that it ignores a confirmation for an earlier one.
    pub holder: u64,
    /// Number of the renewal, from 1.
    pub renewal: u64,
}

/// A renewal: 32 bytes, in fields of 8 bytes, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Its number.
    pub number: Number,
    /// How far the sender's clock of the day is ahead of the receiver's, if it knows. On the link an
    /// error of 2^64 - 1 means that it does not.
    pub clock: Option<ClockOffset>,
}

/// The confirmation of a renewal: 40 bytes, in fields of 8 bytes, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// The number of that renewal.
    pub number: Number,
    /// When the renewal arrived, in nanoseconds of the sender's monotonic clock.
    pub received: u64,
    /// When the confirmation was sent, by the same clock.
    pub answered: u64,
    /// How far the sender's clock of the day is ahead of its monotonic one, in nanoseconds.
    pub day_ahead: i64,
}

impl Renewal {
    /// Its bytes.
    pub fn encode(self) -> [u8; 32] {
        let unknown = ClockOffset {
            offset_nanos: 0,
            error_nanos: u64::MAX,
        };
        let clock = self.clock.unwrap_or(unknown);
        message([
            self.number.holder,
            self.number.renewal,
            clock.offset_nanos.cast_unsigned(),
            clock.error_nanos,
        ])
    }

    /// Reads it from a message of another machine.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let [holder, renewal, offset, error_nanos] = fields(bytes)?;
        let clock = ClockOffset {
            offset_nanos: offset.cast_signed(),
            error_nanos,
        };
        let clock = Some(clock).filter(|clock| clock.error_nanos != u64::MAX);
        (clock.is_some() || offset == 0).then_some(Self {
            number: Number { holder, renewal },
            clock,
        })
    }
}

impl Confirmation {
    /// Its bytes.
    pub fn encode(self) -> [u8; 40] {
        message([
            self.number.holder,
            self.number.renewal,
            self.received,
            self.answered,
            self.day_ahead.cast_unsigned(),
        ])
    }

    /// Reads it from a message of another machine.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let [holder, renewal, received, answered, day_ahead] = fields(bytes)?;
        Some(Self {
            number: Number { holder, renewal },
            received,
            answered,
            day_ahead: day_ahead.cast_signed(),
        })
    }
}

/// The bytes of a message of some fields.
fn message<const FIELDS: usize, const BYTES: usize>(fields: [u64; FIELDS]) -> [u8; BYTES] {
    const { assert!(BYTES == FIELDS * 8) };
    let mut bytes = [0; BYTES];
    for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    bytes
}

/// The fields of a message; `None` if it has another size.
fn fields<const FIELDS: usize>(bytes: &[u8]) -> Option<[u64; FIELDS]> {
    let (fields, rest) = bytes.as_chunks::<8>();
    let fields: &[[u8; 8]; FIELDS] = fields.try_into().ok()?;
    rest.is_empty().then(|| fields.map(u64::from_le_bytes))
}

/// The end that holds a lease.
#[derive(Clone, Debug)]
pub struct Holder {
    id: u64,
    /// Send times of the renewals that may still be confirmed.
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

    /// Handles a confirmation. Returns when its renewal was sent; `None` if another daemon sent it, or too
    /// long ago.
    pub fn confirm(&mut self, number: Number, now: Duration) -> Option<Duration> {
        let sent = self.sent.get(&number.renewal).copied();
        let sent = sent.filter(|sent| number.holder == self.id && *sent + LIFETIME > now)?;
        if number.renewal > self.confirmed {
            self.confirmed = number.renewal;
            self.until = Some(sent + LIFETIME);
            self.is_repeated = false;
            self.next_at = sent + INTERVAL;
        }
        Some(sent)
    }

    /// Whether the lease is held.
    pub fn is_held(&self, now: Duration) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// The next deadline: of a renewal, or of the lease.
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
    /// Handles a renewal of a machine. Returns whether it was not reachable before.
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
