//! What an observer has missed: its queues drop the oldest.

use std::collections::HashMap;

use nervure_node::message::Header;

/// The last sample of each topic, by its numbers.
#[derive(Debug, Default)]
pub struct Gaps(HashMap<String, (u32, u64)>);

impl Gaps {
    /// How many samples lie between this one and the last one of the same topic and process.
    pub fn before(&mut self, topic: &str, header: &Header) -> u64 {
        let now = (header.incarnation, header.sequence);
        match self.0.get_mut(topic) {
            Some(last) => {
                let (incarnation, sequence) = std::mem::replace(last, now);
                if incarnation == now.0 { now.1.saturating_sub(sequence.saturating_add(1)) } else { 0 }
            }
            None => {
                self.0.insert(topic.to_owned(), now);
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_no_gap() {
        let mut gaps = Gaps::default();
        let mut before = |incarnation, sequence| {
            gaps.before("a/b", &Header { incarnation, sequence, ..Header::default() })
        };
        assert_eq!([before(0, 7), before(0, 8), before(0, 11)], [0, 0, 2]);
        assert_eq!([before(1, 0), before(1, 1)], [0, 0]);
    }
}
