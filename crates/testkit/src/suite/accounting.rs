//! Counters add up.

use super::queue;
use crate::content::Content;
use crate::plane::{Arrival, Limits, Plane, PlaneInbox, Refusal, Wait};
use nervure_protocol::wiring::{Policy, Queue};

/// Runs with little memory, held samples, full queues and the death of the consumer.
pub fn every_sample_is_counted_exactly_once<P: Plane>(plane: &P) {
    for policy in Policy::ALL
        .into_iter()
        .filter(|policy| !policy.is_lossless())
    {
        let output = plane.producer(Limits {
            memory_bytes: 1 << 20,
            blocks: 64,
            ..Limits::default()
        });
        let queues = [
            Queue {
                policy,
                depth: 3,
                max_held: 3,
            },
            queue(policy, 8),
        ];
        let mut ends: Vec<_> = queues
            .map(|queue| {
                let (consumer, inbox) = plane.consumer(1);
                (
                    plane.connect(&output, &consumer, 0, queue),
                    consumer,
                    inbox,
                    Vec::new(),
                )
            })
            .into();
        let mut published = 0;
        for step in 0..600_u64 {
            let payload_bytes = [10, 400, 60_000, 200_000][(step * 7 % 4) as usize];
            match Content::new(step, payload_bytes).send(&output, Wait::Never) {
                Ok(receipt) => assert_eq!(receipt.queued + receipt.missed, 2),
                Err(refusal) => assert_eq!(refusal, Refusal::OutOfMemory),
            }
            published += 1;
            plane.serve();
            for (index, (_, _, inbox, held)) in ends.iter_mut().enumerate() {
                if step % (3 + index as u64) == 0
                    && let Some(Arrival::Sample(_, sample)) = inbox.try_next()
                {
                    Content::check(&sample);
                    held.push(sample);
                }
                if held.len() > 3 + step as usize % 5 {
                    held.clear();
                }
            }
        }
        for (edge, consumer, inbox, held) in ends {
            let received = plane.received(&consumer, 0);
            plane.consumer_died(&consumer, inbox, held, false);
            let sent = plane.sent(edge);
            let missed =
                sent.dropped_newest + sent.missed_held + sent.missed_memory + sent.missed_control;
            assert_eq!(sent.sent + missed, published, "{sent:?}");
            assert_eq!(
                received.received + sent.dropped_oldest + sent.undelivered,
                sent.sent,
                "{sent:?}"
            );
            assert!(sent.missed_memory > 0 && sent.sent > 0, "{sent:?}");
        }
    }
}
