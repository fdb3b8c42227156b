//! The events that wait for the application. None is dropped: a newer one of a peer replaces the
//! older one of the same kind and takes over its counts, so at most a few wait for each key, and one
//! for each stream that this end has opened.

use std::collections::VecDeque;

use crate::{endpoint::EndpointEvent, receiver::ReceiverEvent, session::SessionEvent};

#[derive(Debug, Default)]
pub(super) struct Events {
    waiting: VecDeque<EndpointEvent>,
}

impl Events {
    pub(super) fn push(&mut self, mut event: EndpointEvent) {
        if event.stands_alone() {
            return self.waiting.push_back(event);
        }
        let older = self
            .waiting
            .iter_mut()
            .position(|older| event.take_over(older));
        older.map(|older| self.waiting.remove(older));
        self.waiting.push_back(event);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn pop(&mut self) -> Option<EndpointEvent> {
        self.waiting.pop_front()
    }
}

impl EndpointEvent {
    /// Whether it replaces no other: there is one for each stream of this end, at most.
    fn stands_alone(&self) -> bool {
        matches!(
            self,
            Self::Session {
                event: SessionEvent::Sender(_),
                ..
            }
        )
    }

    /// Adds the counts of an older event of the same kind and peer. Returns false if it is none.
    fn take_over(&mut self, older: &Self) -> bool {
        match (self, older) {
            (Self::Connected { peer, .. }, Self::Connected { peer: other, .. })
            | (Self::Disconnected { peer, .. }, Self::Disconnected { peer: other, .. }) => {
                peer == other
            }
            (
                Self::Forgotten { peer, lost },
                Self::Forgotten {
                    peer: other,
                    lost: before,
                },
            ) if peer == other => add(lost, *before),
            // Anyone can be refused: these are one kind for all keys and addresses.
            (Self::Refused { more, .. }, Self::Refused { more: before, .. }) => {
                add(more, *before + 1)
            }
            (
                Self::Session { peer, event },
                Self::Session {
                    peer: other,
                    event: older,
                },
            ) if peer == other => match (event, older) {
                (
                    SessionEvent::PeerLost { unconfirmed },
                    SessionEvent::PeerLost {
                        unconfirmed: before,
                    },
                ) => add(unconfirmed, *before),
                (
                    SessionEvent::Receiver(ReceiverEvent::PeerRestarted { lost }),
                    SessionEvent::Receiver(ReceiverEvent::PeerRestarted { lost: before }),
                ) => add(lost, *before),
                _ => false,
            },
            _ => false,
        }
    }
}

fn add(count: &mut u64, before: u64) -> bool {
    *count += before;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::{DisconnectReason, PublicKey};

    #[test]
    fn events_that_are_not_taken_keep_their_counts_and_stay_few() {
        let mut events = Events::default();
        for round in 0..10_000_u64 {
            for host in [1, 2] {
                let peer = PublicKey([host; 32]);
                let session = |event| EndpointEvent::Session { peer, event };
                events.push(EndpointEvent::Disconnected {
                    peer,
                    why: DisconnectReason::TimedOut(round),
                });
                events.push(session(SessionEvent::PeerLost { unconfirmed: 2 }));
                events.push(session(SessionEvent::Receiver(
                    ReceiverEvent::PeerRestarted { lost: 3 },
                )));
                events.push(EndpointEvent::Forgotten { peer, lost: 1 });
                events.push(EndpointEvent::Refused {
                    peer: Some(PublicKey([(round % 251) as u8; 32])),
                    address: ([10, 0, 0, host], 4000).into(),
                    why: String::new(),
                    more: 4,
                });
            }
        }
        let waiting: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        assert_eq!(waiting.len(), 9, "{waiting:?}");
        let sum = |count: fn(&EndpointEvent) -> u64| waiting.iter().map(count).sum::<u64>();
        let forgotten = sum(|event| match event {
            EndpointEvent::Forgotten { lost, .. } => *lost,
            _ => 0,
        });
        let refused = sum(|event| match event {
            EndpointEvent::Refused { more, .. } => *more + 1,
            _ => 0,
        });
        let unconfirmed = sum(|event| match event {
            EndpointEvent::Session {
                event: SessionEvent::PeerLost { unconfirmed },
                ..
            } => *unconfirmed,
            _ => 0,
        });
        let restarted = sum(|event| match event {
            EndpointEvent::Session {
                event: SessionEvent::Receiver(ReceiverEvent::PeerRestarted { lost }),
                ..
            } => *lost,
            _ => 0,
        });
        assert_eq!(
            (forgotten, refused, unconfirmed, restarted),
            (20_000, 100_000, 40_000, 60_000)
        );
        assert!(waiting.contains(&EndpointEvent::Disconnected {
            peer: PublicKey([2; 32]),
            why: DisconnectReason::TimedOut(9999)
        }));
    }
}
