//! The sockets between producing and consuming processes.

use crate::machine::action::Descriptor;

/// The pairs that live edges use.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    pairs: Vec<Pair>,
    next: u32,
}

/// A producing and a consuming process, which share a socket for all edges between them. Two nodes
/// that feed each other are two pairs.
#[derive(Clone, Copy, Debug)]
struct Pair {
    id: u32,
    producer: usize,
    consumer: usize,
    /// By [`Role`].
    sent: [bool; 2],
}

/// A role of a process in a pair, and the end of the socket that it gets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Producer,
    Consumer,
}

/// One end of a pair's socket. Numbers name ends, so that they differ also where a node reads its
/// own output.
pub(super) struct PairEnd {
    pub number: u32,
    /// The end itself, the first time.
    pub descriptor: Option<Descriptor>,
}

impl Pairs {
    /// The end that a process gets.
    pub fn end(&mut self, producer: usize, consumer: usize, role: Role) -> PairEnd {
        let is_same = |pair: &Pair| (pair.producer, pair.consumer) == (producer, consumer);
        let at = self.pairs.iter().position(is_same).unwrap_or_else(|| {
            let id = self.next_id();
            self.pairs.push(Pair {
                id,
                producer,
                consumer,
                sent: [false; 2],
            });
            self.pairs.len() - 1
        });
        let pair = &mut self.pairs[at];
        let was_sent = std::mem::replace(&mut pair.sent[role as usize], true);
        let (pair, end) = (pair.id, role as u32);
        PairEnd {
            number: pair * 2 + end,
            descriptor: (!was_sent).then_some(Descriptor::PairEnd { pair, end }),
        }
    }

    /// The consumer's end of a new pair whose other end is not sent, and the pair's id.
    pub fn single_consumer_end(&mut self) -> (PairEnd, u32) {
        let (pair, end) = (self.next_id(), Role::Consumer as u32);
        let consumer_end = PairEnd {
            number: pair * 2 + end,
            descriptor: Some(Descriptor::PairEnd { pair, end }),
        };
        (consumer_end, pair)
    }

    /// Forgets the pairs of a process. Returns those of which an end was not sent.
    pub fn forget(&mut self, node: usize) -> Vec<u32> {
        let is_its = |pair: &Pair| pair.producer == node || pair.consumer == node;
        let has_unsent = |pair: &&Pair| is_its(pair) && pair.sent != [true; 2];
        let unsent = self.pairs.iter().filter(has_unsent);
        let unsent = unsent.map(|pair| pair.id).collect();
        self.pairs.retain(|pair| !is_its(pair));
        unsent
    }

    fn next_id(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }
}
