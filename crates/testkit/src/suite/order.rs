//! Order and integrity.

use super::{Line, next_sample, queue};
use crate::content::Content;
use crate::plane::{Arrival, Limits, Plane, PlaneInbox, PlaneOutput, PlaneSample, Refusal, Wait};
use nervure_message::Header;
use nervure_protocol::wiring::Policy;
use std::thread;

const MEGABYTE: usize = 1 << 20;

/// Sizes around every limit that a plane may have.
pub fn every_size_of_payload_and_head_arrives_whole<P: Plane>(plane: &P) {
    let mut line = Line::new(plane, queue(Policy::Block, 64));
    let inline = plane.facts().inline_bytes;
    let around = |bytes: usize| [bytes.saturating_sub(1), bytes, bytes + 1];
    let payloads = [
        around(1),
        around(inline - 8),
        around(inline),
        around(4096),
        around(64 * 1024),
    ]
    .concat();
    let heads = [
        vec![0, 1, 8, 100],
        around(inline).to_vec(),
        vec![4000, plane.facts().max_head_bytes],
    ]
    .concat();
    let mut number = 0;
    for payload in payloads.into_iter().chain([MEGABYTE, 33 * MEGABYTE]) {
        for &head in &heads {
            let content = Content::new(number, payload).with_head(head);
            content.send(&line.output, Wait::Forever).expect("room");
            let sample = next_sample(&mut line.inbox, 0);
            assert_eq!(Content::check(&sample), content);
            assert_eq!(sample.header().sequence, number);
            number += 1;
        }
    }
}

/// Samples that end exactly at the end of their block.
pub fn a_head_that_just_fits_behind_its_payload_arrives<P: Plane>(plane: &P) {
    let mut line = Line::new(plane, queue(Policy::Block, 4));
    let mut number = 0;
    for whole in [1024, 4096, 64 * 1024, 80 * 1024, 128 * 1024, MEGABYTE] {
        for head in [264, 320, 512, 768, 1000] {
            for payload in [whole - head, whole - head - 1, whole - head - 7] {
                let content = Content::new(number, payload).with_head(head);
                content.send(&line.output, Wait::Forever).expect("room");
                assert_eq!(Content::check(&next_sample(&mut line.inbox, 0)), content);
                number += 1;
            }
        }
    }
}

/// The plane sets sequence, incarnation and times; all other fields keep the sender's values.
pub fn headers_keep_the_fields_of_the_sender<P: Plane>(plane: &P) {
    let limits = Limits {
        incarnation: 7,
        ..Limits::default()
    };
    let mut line = Line::with_limits(plane, queue(Policy::DropOldest, 4), limits);
    let header = Header {
        stamp: 5,
        correlation_id: 6,
        trace_id: 1 << 100,
        schema_id: 0,
        sequence: 99,
        incarnation: 98,
        ..Header::default()
    };
    for sequence in 0..3 {
        line.output
            .send(header, b"head", b"payload", Wait::Never)
            .expect("room");
        let Arrival::Sample(0, sample) = line.inbox.next() else {
            panic!("no sample")
        };
        let got = sample.header();
        assert_eq!((got.sequence, got.incarnation), (sequence, 7));
        assert_eq!(
            (got.stamp, got.correlation_id, got.trace_id),
            (5, 6, 1 << 100)
        );
        assert_eq!(
            (sample.head(), sample.payload()),
            (b"head".as_slice(), b"payload".as_slice())
        );
    }
}

/// The largest head arrives; a larger one is an error.
pub fn a_head_beyond_the_limit_is_refused<P: Plane>(plane: &P) {
    let line = Line::new(plane, queue(Policy::DropOldest, 4));
    let max = plane.facts().max_head_bytes;
    assert!(line.output.loan(10, max, Wait::Never).is_ok());
    assert_eq!(
        line.output.loan(10, max + 1, Wait::Never).err(),
        Some(Refusal::HeadTooLarge)
    );
}

/// The samples of each thread stay in order, and the sequence has no gaps.
pub fn threads_of_one_output_keep_their_order<P: Plane>(plane: &P) {
    const THREADS: u64 = 4;
    const EACH: u64 = 300;
    let mut line = Line::new(plane, queue(Policy::Block, 5));
    let output = &line.output;
    let inbox = &mut line.inbox;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for index in 0..EACH {
                    let payload = [30, 300, 3000][index as usize % 3];
                    Content::new(thread * EACH + index, payload)
                        .send(output, Wait::Forever)
                        .expect("room");
                }
            });
        }
        let mut next = [0; THREADS as usize];
        for sequence in 0..THREADS * EACH {
            let sample = next_sample(inbox, 0);
            assert_eq!(sample.header().sequence, sequence);
            let number = sample.header().correlation_id;
            let expected = &mut next[(number / EACH) as usize];
            assert_eq!(number % EACH, *expected);
            *expected += 1;
        }
    });
    assert!(line.inbox.try_next().is_none());
}
