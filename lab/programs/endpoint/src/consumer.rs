//! The receiving side: counts and times the messages, and counts the losses.

use std::hint::black_box;

use serde::Serialize;

use crate::case::{Case, Mode};
use crate::driver::Endpoint;
use crate::process::{Usage, UsageStart, now_nanos};
use crate::{END_OF_STREAM, FIRST_UNREAD_WORD};

/// End-of-stream messages, 50 ms apart, after which a missing message counts as lost: it may be late.
const ENDS_UNTIL_LOST: u32 = 10;

/// Counts and times the messages of one consumer.
pub struct Consumer<'a> {
    endpoint: &'a mut Endpoint,
    case: Case,
    seen: SeenSequences,
    record: ConsumerRecord,
    usage: Option<UsageStart>,
    sent: Option<u64>,
    ends_seen: u32,
}

impl<'a> Consumer<'a> {
    /// Notifies the driver that this consumer is subscribed, and waits for the start.
    pub fn start(endpoint: &'a mut Endpoint) -> Result<Self, String> {
        let case = endpoint.case().clone();
        let expected = if case.mode == Mode::Paced {
            case.messages as usize
        } else {
            0
        };
        let mut record = ConsumerRecord {
            role: "consumer",
            index: case.index,
            ..Default::default()
        };
        record.latency_nanos.reserve(expected);
        record.end_to_end_nanos.reserve(expected);
        endpoint.ready_then_wait_for_start()?;
        Ok(Self {
            endpoint,
            case,
            seen: SeenSequences::default(),
            record,
            usage: None,
            sent: None,
            ends_seen: 0,
        })
    }

    /// Takes one message. `received_at_nanos` is read as soon as the peer returns it, before its bytes are touched.
    #[inline]
    pub fn observe(&mut self, received_at_nanos: u64, message: &[u64]) {
        let sequence = message[0];
        if sequence == END_OF_STREAM {
            self.sent = Some(message[1]);
            self.ends_seen += 1;
            return;
        }
        if self.case.touch {
            let sum = message[FIRST_UNREAD_WORD..]
                .iter()
                .fold(0u64, |sum, word| sum.wrapping_add(*word));
            black_box(sum);
        }
        let first_nanos = *self
            .record
            .first_receive_nanos
            .get_or_insert(received_at_nanos);
        match self.case.mode {
            Mode::Flood => self.count_throughput(received_at_nanos - first_nanos, message.len()),
            Mode::Mesh => {}
            Mode::Paced | Mode::Idle => self.time(sequence, received_at_nanos, message),
        }
        self.seen.insert(sequence);
        self.record.last_receive_nanos = received_at_nanos;
    }

    /// Sets the number of messages after which the stream has ended, where no end-of-stream message comes.
    pub fn expect(&mut self, messages: u64) {
        self.sent = Some(messages);
    }

    /// Whether the stream has ended for this consumer.
    pub fn is_finished(&self) -> bool {
        self.sent
            .is_some_and(|sent| self.seen.distinct >= sent || self.ends_seen >= ENDS_UNTIL_LOST)
    }

    /// Reports to the driver, and waits until all endpoints have reported.
    pub fn report(mut self) -> Result<(), String> {
        self.record.usage = self.usage.map(Usage::since);
        self.record.received = self.seen.distinct;
        self.record.lost = self.sent.unwrap_or(0).saturating_sub(self.seen.distinct);
        self.record.lost_before_first = self.seen.first.unwrap_or(0);
        self.record.reordered = self.seen.reordered;
        self.record.duplicates = self.seen.duplicates;
        self.endpoint.report(&self.record)?;
        self.endpoint.wait_for_leave()
    }

    fn time(&mut self, sequence: u64, received_at_nanos: u64, message: &[u64]) {
        let touched_at_nanos = now_nanos();
        let end_to_end = touched_at_nanos.saturating_sub(message[1]);
        let latency = received_at_nanos.saturating_sub(message[2]);
        if sequence < self.case.warmup_messages {
            self.record.warmup_latency_nanos.push(latency);
            self.record.warmup_end_to_end_nanos.push(end_to_end);
            return;
        }
        self.usage.get_or_insert_with(Usage::start);
        self.record.latency_nanos.push(latency);
        self.record.end_to_end_nanos.push(end_to_end);
    }

    fn count_throughput(&mut self, since_first_nanos: u64, words: usize) {
        if since_first_nanos < (self.case.flood_warmup_seconds * 1e9) as u64 {
            return;
        }
        if self.usage.is_none() {
            // The message that opens the window is not counted, so that a rate is messages over intervals.
            self.usage = Some(Usage::start());
            self.record.window_start_nanos =
                self.record.first_receive_nanos.unwrap_or(0) + since_first_nanos;
            return;
        }
        self.record.window_messages += 1;
        self.record.window_bytes += words as u64 * 8;
    }
}

#[derive(Default, Serialize)]
struct ConsumerRecord {
    role: &'static str,
    index: usize,
    received: u64,
    lost: u64,
    lost_before_first: u64,
    reordered: u64,
    duplicates: u64,
    warmup_latency_nanos: Vec<u64>,
    warmup_end_to_end_nanos: Vec<u64>,
    latency_nanos: Vec<u64>,
    end_to_end_nanos: Vec<u64>,
    first_receive_nanos: Option<u64>,
    window_start_nanos: u64,
    last_receive_nanos: u64,
    window_messages: u64,
    window_bytes: u64,
    usage: Option<Usage>,
}

/// Sequences received so far, with their order.
#[derive(Default)]
struct SeenSequences {
    bits: Vec<u64>,
    distinct: u64,
    duplicates: u64,
    reordered: u64,
    first: Option<u64>,
    highest: u64,
}

impl SeenSequences {
    fn insert(&mut self, sequence: u64) {
        let (word, bit) = ((sequence / 64) as usize, 1 << (sequence % 64));
        if word >= self.bits.len() {
            self.bits.resize((word + 1).next_power_of_two(), 0);
        }
        if self.bits[word] & bit != 0 {
            self.duplicates += 1;
            return;
        }
        self.bits[word] |= bit;
        self.distinct += 1;
        if self.first.is_some() && sequence < self.highest {
            self.reordered += 1;
        }
        self.first.get_or_insert(sequence);
        self.highest = self.highest.max(sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::SeenSequences;

    #[test]
    fn counts_gaps_repeats_and_late_arrivals() {
        let mut seen = SeenSequences::default();
        for sequence in [2, 3, 5, 4, 5, 200] {
            seen.insert(sequence);
        }
        assert_eq!(
            (seen.distinct, seen.duplicates, seen.reordered, seen.first),
            (5, 1, 1, Some(2))
        );
    }
}
