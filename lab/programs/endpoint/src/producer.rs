//! The sending side: wait, stamp, copy, publish; then repeat the end of the stream until all consumers have it.

use std::time::Duration;

use serde::Serialize;

use crate::case::Mode;
use crate::driver::Endpoint;
use crate::process::{Usage, now_nanos, sleep_until_nanos};
use crate::{END_OF_STREAM, FIRST_UNREAD_WORD, HEADER_WORDS};

/// Publishing one message with a peer.
pub trait Publish {
    /// Borrows memory for `words` words of 8 bytes from the peer, lets `fill` write them, and publishes.
    fn publish(&mut self, words: usize, fill: impl FnOnce(&mut [u64])) -> Result<(), String>;
}

/// Sends the messages of the case, and reports.
pub fn produce(endpoint: &mut Endpoint, publisher: &mut impl Publish) -> Result<(), String> {
    // Not zeros: the kernel would back a zeroed vector with one shared page.
    let source = vec![1; endpoint.case().payload_words()];
    endpoint.ready_then_wait_for_start()?;
    let usage = Usage::start();
    let sent = match endpoint.case().mode {
        Mode::Paced => paced(endpoint, publisher, &source)?,
        Mode::Flood => flood(endpoint, publisher, &source)?,
        Mode::Idle => idle(endpoint),
        Mode::Mesh => return Err("the mode mesh has no producer".to_owned()),
    };
    endpoint.report(&ProducerRecord {
        role: "producer",
        sent,
        usage: Usage::since(usage),
    })?;
    loop {
        publisher.publish(FIRST_UNREAD_WORD, |message| {
            message.fill(0);
            message[0] = END_OF_STREAM;
            message[1] = sent;
        })?;
        if endpoint.may_leave_within(Duration::from_millis(50))? {
            return Ok(());
        }
    }
}

#[derive(Serialize)]
struct ProducerRecord {
    role: &'static str,
    sent: u64,
    usage: Usage,
}

fn paced(endpoint: &Endpoint, publisher: &mut impl Publish, source: &[u64]) -> Result<u64, String> {
    let case = endpoint.case();
    let period_nanos = (1e9 / case.rate_hz) as u64;
    let total = case.warmup_messages + case.messages;
    let first_nanos = now_nanos() + period_nanos;
    for sequence in 0..total {
        sleep_until_nanos(first_nanos + sequence * period_nanos);
        let before_copy_nanos = now_nanos();
        publisher.publish(source.len(), |message| {
            message.copy_from_slice(source);
            message[..HEADER_WORDS].copy_from_slice(&[sequence, before_copy_nanos, now_nanos()]);
        })?;
    }
    Ok(total)
}

fn idle(endpoint: &Endpoint) -> u64 {
    std::thread::sleep(Duration::from_secs_f64(endpoint.case().idle_seconds));
    0
}

fn flood(endpoint: &Endpoint, publisher: &mut impl Publish, source: &[u64]) -> Result<u64, String> {
    let end_nanos = now_nanos() + (endpoint.case().flood_seconds * 1e9) as u64;
    let mut sequence = 0;
    while now_nanos() < end_nanos {
        publisher.publish(source.len(), |message| {
            message.copy_from_slice(source);
            message[0] = sequence;
        })?;
        sequence += 1;
    }
    Ok(sequence)
}
