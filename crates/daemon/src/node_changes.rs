//! Changes of a node and its outputs, for the machines with its consumers.
//!
//! Samples of a topic may be dropped on their way, these changes may not: each node has a stream of its own
//! for them to each such machine, which keeps all. The end of an output is sent when all its samples have
//! arrived or were dropped. It is a state, which is sent again to a restarted daemon.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nervure_link::qos::{Delivery, Qos, TrafficClass};
use nervure_link::shell::OutgoingStream;
use serde::{Deserialize, Serialize};

use crate::bridge::Bridge;

/// The most changes that wait or are in flight.
const DEPTH: u32 = 64;

/// First pause before unconfirmed changes are checked again; it doubles each time.
const RETRY: Duration = Duration::from_millis(10);
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// The longest message that is read, and the longest reason that is sent.
const MAX_BYTES: usize = 16 << 10;
const MAX_REASON_CHARS: usize = 1000;

/// A change of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum NodeChange {
    /// No sample follows on an output.
    OutputClosed {
        /// Its name.
        output: String,
    },
    /// The node has not taken a request, whose answer would have come on an output.
    Refused {
        /// The name of the output.
        output: String,
        /// The id of the request.
        request: u64,
        /// True if its queue is full of requests of this client, false if it does not run.
        is_full: bool,
    },
    /// The node has failed.
    Failed {
        /// What happened, for people.
        reason: String,
        /// It will be started again.
        restarts: bool,
    },
    /// The node runs again after a failure.
    Restarted,
    /// A change of a later version.
    #[serde(other)]
    Unknown,
}

impl NodeChange {
    /// A failure, with a reason of limited length.
    pub fn failed(reason: &str, restarts: bool) -> Self {
        Self::Failed {
            reason: reason.chars().take(MAX_REASON_CHARS).collect(),
            restarts,
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a change can be written as JSON")
    }

    /// Reads it from a message of another machine.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = Some(bytes).filter(|bytes| bytes.len() <= MAX_BYTES)?;
        serde_json::from_slice(bytes).ok()
    }
}

/// The streams of the changes of local nodes. They outlive the run's keeper, so that the last changes
/// arrive whenever the link is back.
#[derive(Debug)]
pub(crate) struct ChangeSenders {
    bridge: Arc<Bridge>,
    /// By the machine and the name of the stream.
    senders: Mutex<BTreeMap<(String, String), Changes>>,
}

/// The changes of a node for one machine.
#[derive(Debug, Default)]
struct Changes {
    stream: Option<OutgoingStream>,
    /// Outputs that are closed, with streams that have samples on the way.
    closing: Vec<(String, Option<OutgoingStream>)>,
    closed: BTreeSet<String>,
    /// Changes other than closed outputs that are not confirmed. They are sent again if the machine has
    /// lost its state.
    unconfirmed: VecDeque<NodeChange>,
    unsent: VecDeque<NodeChange>,
    /// Number of state losses of the machine when everything was last sent again.
    losses: u64,
}

impl ChangeSenders {
    pub fn start(bridge: &Arc<Bridge>) -> io::Result<Arc<Self>> {
        let senders = Arc::new(Self {
            bridge: Arc::clone(bridge),
            senders: Mutex::default(),
        });
        let for_thread = Arc::clone(&senders);
        std::thread::Builder::new()
            .name("nervure-changes".into())
            .spawn(move || for_thread.send_all())?;
        Ok(senders)
    }

    /// Sends a change on the stream `name`.
    pub fn send(&self, machine: &str, name: String, change: NodeChange) {
        let place = (machine.to_owned(), name);
        self.lock().entry(place).or_default().add(change);
        self.bridge.on_change();
    }

    /// Sends that an output is closed, once all samples of its stream have arrived or were dropped.
    pub fn close(&self, machine: &str, name: String, output: &str, stream: Option<OutgoingStream>) {
        let place = (machine.to_owned(), name);
        let output = output.to_owned();
        let mut senders = self.lock();
        senders
            .entry(place)
            .or_default()
            .closing
            .push((output, stream));
        drop(senders);
        self.bridge.on_change();
    }

    /// Forgets a run that is removed.
    pub fn forget(&self, run: &str) {
        let of_run = |name: &str| name.split_once('/').is_some_and(|(of, _)| of == run);
        self.lock().retain(|(_, name), _| !of_run(name));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Changes>> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send_all(&self) {
        let mut pause = RETRY;
        let mut last_seen = 0;
        while self.bridge.failure().is_none() {
            let seen = self.bridge.changes();
            // Checks become rarer while a link is interrupted.
            pause = match std::mem::replace(&mut last_seen, seen) == seen {
                true => LONGEST_RETRY.min(pause * 2),
                false => RETRY,
            };
            let mut are_confirmed = true;
            for ((machine, name), changes) in self.lock().iter_mut() {
                let losses = self.bridge.losses(machine);
                are_confirmed &= changes.go_on(losses, || {
                    let qos = Qos {
                        traffic_class: TrafficClass::Control,
                        ..Qos::new(Delivery::keep_all(DEPTH))
                    };
                    let key = self.bridge.key_of(machine)?;
                    self.bridge.open_stream(key, name, qos)
                });
            }
            let wait = (!are_confirmed).then_some(pause);
            self.bridge.wait_for_change(seen, wait);
        }
    }
}

impl Changes {
    fn add(&mut self, change: NodeChange) {
        match &change {
            NodeChange::OutputClosed { output } => drop(self.closed.insert(output.clone())),
            _ => self.unconfirmed.push_back(change.clone()),
        }
        self.unsent.push_back(change);
    }

    /// Sends the unsent changes, and forgets the confirmed ones. Returns whether all are confirmed, or
    /// there is no connection.
    fn go_on(&mut self, losses: u64, open: impl FnOnce() -> Option<OutgoingStream>) -> bool {
        let has_samples = |stream: &OutgoingStream| stream.counters().is_some_and(|it| it.held > 0);
        let ended = |(_, stream): &mut (_, Option<OutgoingStream>)| {
            !stream.as_ref().is_some_and(has_samples)
        };
        let closed: Vec<_> = self.closing.extract_if(.., ended).collect();
        for (output, _) in closed {
            self.add(NodeChange::OutputClosed { output });
        }
        let counters = self.stream.as_ref().and_then(OutgoingStream::counters);
        let has_lost = std::mem::replace(&mut self.losses, losses) != losses;
        match counters {
            // Changes in flight may be lost, and the link does not send them again.
            Some(counters) if has_lost || counters.unconfirmed > 0 => self.send_again(open),
            Some(counters) if counters.held == 0 && self.unsent.is_empty() => {
                self.unconfirmed.clear();
                return self.closing.is_empty();
            }
            Some(_) => {}
            None => self.send_again(open),
        }
        let Some(stream) = &self.stream else {
            return self.closing.is_empty();
        };
        while let Some(change) = self.unsent.front() {
            if stream.try_send(change.encode()).is_err() {
                break;
            }
            self.unsent.pop_front();
        }
        false
    }

    /// Sends all changes again: there is no stream yet, or the machine lacks the messages of the last one.
    fn send_again(&mut self, open: impl FnOnce() -> Option<OutgoingStream>) {
        let closed = |output: &String| NodeChange::OutputClosed {
            output: output.clone(),
        };
        let before = self.unconfirmed.iter().cloned();
        self.unsent = before.chain(self.closed.iter().map(closed)).collect();
        self.stream = (!self.unsent.is_empty()).then(open).flatten();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_survives_the_link_and_a_long_reason_is_cut() {
        let failed = NodeChange::failed(&"\u{1}".repeat(100_000), true);
        assert!(failed.encode().len() < MAX_BYTES);
        let output = || "image".to_owned();
        for change in [
            failed,
            NodeChange::Restarted,
            NodeChange::OutputClosed { output: output() },
            NodeChange::Refused {
                output: output(),
                request: u64::MAX,
                is_full: true,
            },
        ] {
            assert_eq!(NodeChange::decode(&change.encode()), Some(change));
        }
        assert_eq!(NodeChange::decode(&vec![b' '; MAX_BYTES + 1]), None);
        let later = br#"{"is": "later", "x": 1}"#;
        assert_eq!(NodeChange::decode(later), Some(NodeChange::Unknown));
    }
}
