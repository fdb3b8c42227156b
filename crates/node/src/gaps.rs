use nervure_message::Header;
use std::collections::HashMap;
use std::sync::Arc;

/// Counts the samples that an observer has missed, by the sequence numbers of the samples that it
/// has received: its queues drop the oldest sample.
#[derive(Clone, Debug, Default)]
pub struct SequenceGaps {
    /// Incarnation and sequence number of the last sample of each topic.
    last: HashMap<Arc<str>, (u32, u64)>,
    total: u64,
}

impl SequenceGaps {
    /// Takes the header of a received sample. Returns the number of samples that were missed
    /// between it and the last one of the same topic and incarnation.
    pub fn record(&mut self, topic: &str, header: &Header) -> u64 {
        let Header {
            incarnation,
            sequence,
            ..
        } = *header;
        if sequence == Header::NO_SEQUENCE {
            return 0;
        }
        let Some(last) = self.last.get_mut(topic) else {
            self.last.insert(topic.into(), (incarnation, sequence));
            return 0;
        };
        let (last_incarnation, last_sequence) = std::mem::replace(last, (incarnation, sequence));
        let missed = if last_incarnation == incarnation {
            sequence.saturating_sub(last_sequence.saturating_add(1))
        } else {
            0
        };
        self.total = self.total.saturating_add(missed);
        missed
    }

    /// The number of samples that were missed so far, over all topics.
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_a_restart_nor_the_last_value_of_a_failed_node_is_a_gap() {
        let mut gaps = SequenceGaps::default();
        let mut record = |incarnation, sequence| {
            gaps.record(
                "a/b",
                &Header {
                    incarnation,
                    sequence,
                    ..Header::default()
                },
            )
        };
        assert_eq!([record(0, 7), record(0, 8), record(0, 11)], [0, 0, 2]);
        assert_eq!([record(0, Header::NO_SEQUENCE), record(0, 12)], [0, 0]);
        assert_eq!([record(1, 0), record(1, 1), record(1, 3)], [0, 0, 1]);
        assert_eq!(gaps.total(), 3);
    }
}
