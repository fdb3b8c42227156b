//! The two ends of a stream that loses no sample and delivers none twice, whichever daemon is killed.
//!
//! The sender keeps each sample in its producer's queue, which outlives the daemon, until the receiver
//! has confirmed it. The receiver confirms a sample when it has published it. A sender that does not
//! know which samples have arrived begins an *attempt*: it sends all that are not confirmed, with
//! indices from 0. The receiver takes the samples of an attempt in the order of their indices alone,
//! since a link that has lost its state may carry the rest of an earlier attempt. It drops samples that
//! it has published before, by their origins. A receiver without state publishes them again, and their
//! consumers, which know the last origin too, drop them.
//!
//! Neither end relies on an event of the link: the newest confirmation has all that the sender needs, and
//! is repeated whenever the other machine may lack it.

use std::collections::VecDeque;

use nervure_message::Origin;

/// The first byte of a sample in an attempt: no kind of [`nervure_node::remote`].
const NUMBERED: u8 = 4;
/// Bytes of a place before its sample.
const PLACE_BYTES: usize = 1 + 8 + 8 + 8 + 4;
const CONFIRMATION_BYTES: usize = 8 + 8 + 8 + 8 + 8 + 4;

/// The place of a sample among those that are sent, and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the attempt, from 1.
    pub attempt: u64,
    /// Number of samples before it in the attempt.
    pub index: u64,
    /// The origin of the sample.
    pub origin: Origin,
}

impl Place {
    /// The bytes before the sample.
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PLACE_BYTES);
        bytes.push(NUMBERED);
        put(&mut bytes, [self.attempt, self.index], self.origin);
        bytes
    }

    /// Splits a message into its place and the sample; `None` if it has no place.
    pub fn split(message: &[u8]) -> Option<(Self, &[u8])> {
        let (place, sample) = message.split_first_chunk::<PLACE_BYTES>()?;
        let ([attempt, index], origin) = read(place.strip_prefix(&[NUMBERED])?)?;
        let place = Self {
            attempt,
            index,
            // 0 stands for no origin in shared memory.
            origin: Origin {
                boot: origin.boot.max(1),
                ..origin
            },
        };
        Some((place, sample))
    }
}

/// Appends numbers and an origin.
fn put<const N: usize>(bytes: &mut Vec<u8>, numbers: [u64; N], origin: Origin) {
    for number in numbers.into_iter().chain([origin.published]) {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(origin.boot.to_le_bytes());
}

/// Reads what [`put`] has written.
fn read<const N: usize>(bytes: &[u8]) -> Option<([u64; N], Origin)> {
    let (numbers, boot) = bytes.split_last_chunk()?;
    let (chunks, rest) = numbers.as_chunks();
    let (published, chunks) = chunks.split_last()?;
    let chunks: &[[u8; 8]; N] = chunks.try_into().ok().filter(|_| rest.is_empty())?;
    let origin = Origin {
        boot: u32::from_le_bytes(*boot),
        published: u64::from_le_bytes(*published),
    };
    Some((chunks.map(u64::from_le_bytes), origin))
}

/// The receiver's answer to the samples so far. The newest one replaces all before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confirmation {
    /// Identifies the receiver; another one lacks the state of this one.
    pub receiver: u64,
    /// The last sample that was published.
    pub last: Option<Origin>,
    /// The attempt whose further samples are taken; 0 for none.
    pub attempt: u64,
    /// The highest attempt of which a sample has arrived.
    pub highest: u64,
    /// Whether the receiver leaves, since its dataflow stops: it publishes nothing more.
    pub is_leaving: bool,
}

impl Confirmation {
    /// Its bytes.
    pub fn encode(self) -> Vec<u8> {
        // No boot has the hash 0.
        let last = self.last.unwrap_or(Origin {
            boot: 0,
            published: 0,
        });
        let mut bytes = Vec::with_capacity(CONFIRMATION_BYTES);
        let is_leaving = u64::from(self.is_leaving);
        let numbers = [self.receiver, self.attempt, self.highest, is_leaving];
        put(&mut bytes, numbers, last);
        bytes
    }

    /// Reads it from a message of another machine.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let ([receiver, attempt, highest, is_leaving], last) = read(bytes)?;
        Some(Self {
            receiver,
            last: (last.boot != 0).then_some(last),
            attempt,
            highest,
            is_leaving: is_leaving != 0,
        })
    }
}

/// The samples of a sender that are not confirmed, oldest first.
#[derive(Debug)]
pub struct Unconfirmed<S> {
    samples: VecDeque<Entry<S>>,
    /// The number of the first attempt, which no other sender of the stream has.
    first: u64,
    attempt: u64,
    /// Number of samples at the front that were sent in this attempt, or left out.
    sent: usize,
    /// Index of the next sample in this attempt.
    next: u64,
    /// The receiver that has answered last.
    receiver: Option<u64>,
}

#[derive(Debug)]
struct Entry<S> {
    origin: Origin,
    sample: S,
    is_left_out: bool,
}

impl<S> Unconfirmed<S> {
    /// A sender whose first attempt has this number, from 1. No other sender of the stream has used it.
    pub fn new(attempt: u64) -> Self {
        Self {
            samples: VecDeque::new(),
            first: attempt,
            attempt,
            sent: 0,
            next: 0,
            receiver: None,
        }
    }

    /// Adds a sample.
    pub fn push(&mut self, origin: Origin, sample: S) {
        self.samples.push_back(Entry {
            origin,
            sample,
            is_left_out: false,
        });
    }

    /// The number of samples that may still be confirmed.
    pub fn len(&self) -> usize {
        let samples = self.samples.iter();
        samples.filter(|entry| !entry.is_left_out).count()
    }

    /// Whether all samples are confirmed.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// The next sample to send, and its place.
    pub fn to_send(&mut self) -> Option<(Place, &S)> {
        let rest = self.samples.iter().skip(self.sent);
        self.sent += rest.take_while(|entry| entry.is_left_out).count();
        let entry = self.samples.get(self.sent)?;
        let place = Place {
            attempt: self.attempt,
            index: self.next,
            origin: entry.origin,
        };
        Some((place, &entry.sample))
    }

    /// Notes that the sample of [`Self::to_send`] was sent.
    pub fn note_sent(&mut self) {
        self.sent += 1;
        self.next += 1;
    }

    /// Leaves the sample of [`Self::to_send`] out of all attempts: it cannot be sent. Returns the samples
    /// that are done with, oldest first.
    pub fn leave_out(&mut self) -> Vec<S> {
        if let Some(entry) = self.samples.get_mut(self.sent) {
            entry.is_left_out = true;
        }
        self.remove_first(|entry| entry.is_left_out)
    }

    /// Removes all samples, oldest first.
    pub fn clear(&mut self) -> Vec<S> {
        self.remove_first(|_| true)
    }

    fn remove_first(&mut self, is_done: impl Fn(&Entry<S>) -> bool) -> Vec<S> {
        let count = self.samples.iter().take_while(|it| is_done(it)).count();
        self.sent = self.sent.saturating_sub(count);
        self.samples
            .drain(..count)
            .map(|entry| entry.sample)
            .collect()
    }

    /// Begins another attempt, if this one has begun. Samples of this one may or may not arrive.
    pub fn begin_again(&mut self) {
        if self.next > 0 {
            self.begin(self.attempt.saturating_add(1));
        }
    }

    fn begin(&mut self, attempt: u64) {
        (self.attempt, self.sent, self.next) = (attempt, 0, 0);
    }

    /// Removes and returns the published samples, oldest first, and returns whether another attempt has
    /// begun because the receiver takes no further samples of the last one.
    pub fn confirm(&mut self, confirmation: Confirmation) -> (Vec<S>, bool) {
        let last = confirmation.last;
        let is_covered = |origin: Origin| last.is_some_and(|last| origin.is_covered_by(last));
        let published = self.remove_first(|it| it.is_left_out || is_covered(it.origin));
        let is_new = self.receiver.replace(confirmation.receiver) != Some(confirmation.receiver);
        let takes_another = confirmation.attempt != self.attempt && self.next > 0;
        // An answer from before the first arrival of this attempt does not refuse it.
        let is_refused = takes_another && (is_new || confirmation.highest >= self.attempt);
        if is_refused {
            // A sender whose clock has begun again may be below an earlier one, and that one may have used
            // the next numbers: its samples may still arrive. Its own number makes the sum its own.
            self.begin(match confirmation.highest > self.attempt {
                true => confirmation.highest.saturating_add(self.first),
                false => self.attempt.saturating_add(1),
            });
        }
        (published, is_refused)
    }
}

/// The receiver's decision on a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To publish it, and call [`Receiver::published`].
    Publish,
    /// To drop it: it was published before.
    Repeated,
    /// To drop it: samples before it in its attempt have not arrived here.
    OutOfOrder,
}

/// Progress of the receiver of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Receiver {
    confirmation: Confirmation,
    /// The last attempt whose first sample has arrived, and the index of its next sample.
    begun: u64,
    next: u64,
}

impl Receiver {
    /// A receiver with this identity, which no other of the stream has.
    pub fn new(receiver: u64) -> Self {
        Self {
            confirmation: Confirmation {
                receiver,
                ..Confirmation::default()
            },
            begun: 0,
            next: 0,
        }
    }

    /// Decides on a sample that has arrived.
    pub fn arrived(&mut self, place: Place) -> Verdict {
        let answer = &mut self.confirmation;
        answer.highest = answer.highest.max(place.attempt);
        if place.index == 0 && place.attempt > self.begun {
            (self.begun, self.next) = (place.attempt, 0);
            answer.attempt = place.attempt;
        }
        if place.attempt != answer.attempt {
            return Verdict::OutOfOrder;
        }
        if place.index != self.next {
            answer.attempt = 0;
            return Verdict::OutOfOrder;
        }
        self.next += 1;
        match answer
            .last
            .is_some_and(|last| place.origin.is_covered_by(last))
        {
            true => Verdict::Repeated,
            false => Verdict::Publish,
        }
    }

    /// Notes that the sample was published.
    pub fn published(&mut self, origin: Origin) {
        self.confirmation.last = Some(origin);
    }

    /// Notes that nothing more is published.
    pub fn leave(&mut self) {
        self.confirmation.is_leaving = true;
    }

    /// The answer to the samples so far.
    pub fn confirmation(&self) -> Confirmation {
        self.confirmation
    }
}
