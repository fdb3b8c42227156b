//! The calls of a daemon to the coordinator, as `sync.rs` makes them: four watches and a writer, each
//! with one call at a time.

use std::time::Duration;

use nervure_coordinator::{ACTUAL, LINKS, MACHINES};
use nervure_daemon::state::{Actual, actual_key, desired_key, link_key};
use nervure_store::{Change, Entry, Epoch, Expected, Revision};

/// Pause before an unreachable coordinator is called again.
const RECONNECT: Duration = Duration::from_millis(500);
/// The pause after changes of other machines: those in between share an answer.
const GATHER: Duration = Duration::from_millis(100);
/// Pause after a refusal.
const REFUSED: Duration = Duration::from_secs(10);
/// The longest wait for an answer.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait of a watch.
pub const WATCH: Duration = Duration::from_secs(30);

/// A call to the coordinator.
#[derive(Clone, Debug)]
pub enum Call {
    List(String),
    Watch(String, Revision),
    Get(String),
    Set(String, Expected, Vec<u8>),
}

impl Call {
    /// Its size in JSON, without that of its frame.
    pub fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::List(key) | Self::Watch(key, _) | Self::Get(key) => key.len(),
            Self::Set(key, _, value) => key.len() + in_json(value),
        };
        bytes as u64 + 60
    }

    fn patience(&self) -> Duration {
        match self {
            Self::Watch(..) => PEER_TIMEOUT + WATCH,
            _ => PEER_TIMEOUT,
        }
    }
}

/// An answer of the coordinator.
#[derive(Clone, Debug)]
pub enum Answer {
    Listing((Epoch, Revision), Vec<Entry>),
    Changes((Epoch, Revision), Vec<Change>),
    Compacted,
    Entry(Option<Entry>),
    Set(Revision),
    Conflict,
    /// The role of the machine does not allow it.
    Refused,
    /// The store cannot be used, or the connection was lost.
    Unavailable,
}

impl Answer {
    /// Its size in JSON, without that of its frame.
    pub fn bytes(&self) -> u64 {
        let of_entry = |entry: &Entry| entry.key.len() + in_json(&entry.value) + 60;
        let bytes = match self {
            Self::Listing(_, entries) => entries.iter().map(of_entry).sum(),
            Self::Changes(_, changes) => changes
                .iter()
                .map(|it| it.key.len() + 40 + it.entry.as_ref().map_or(0, of_entry))
                .sum(),
            Self::Entry(entry) => entry.as_ref().map_or(0, of_entry),
            _ => 0,
        };
        bytes as u64 + 60
    }
}

/// A value is a list of numbers in JSON.
fn in_json(value: &[u8]) -> usize {
    value.len() * 7 / 2
}

/// A thread of a daemon that calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    Desired,
    Links,
    Machines,
    Reports,
    Writer,
}

/// The threads that watch, in this order.
pub const WATCHERS: [Thread; 4] = [
    Thread::Desired,
    Thread::Links,
    Thread::Machines,
    Thread::Reports,
];

/// The calls of a thread, one at a time.
#[derive(Debug, Default)]
pub struct Line {
    /// The number of the call whose answer is awaited, and the deadline.
    waits: Option<(u64, Duration)>,
    calls: u64,
    retry_at: Duration,
}

impl Line {
    pub fn is_free(&self, now: Duration) -> bool {
        self.waits.is_none() && self.retry_at <= now
    }

    pub fn begin(&mut self, call: Call, now: Duration) -> (u64, Call) {
        self.calls += 1;
        self.waits = Some((self.calls, now + call.patience()));
        (self.calls, call)
    }

    /// Whether this is the answer that is awaited.
    pub fn end(&mut self, number: u64, answer: &Answer, now: Duration) -> bool {
        let is_it = self.waits.is_some_and(|(awaited, _)| awaited == number);
        if is_it {
            self.waits = None;
            match answer {
                Answer::Unavailable => self.retry_at = now + RECONNECT,
                Answer::Refused => self.retry_at = now + REFUSED,
                _ => {}
            }
        }
        is_it
    }

    /// Gives up a call without an answer.
    fn give_up(&mut self, now: Duration) -> bool {
        let is_late = self.is_late(now);
        if is_late {
            self.waits = None;
            self.retry_at = now + RECONNECT;
        }
        is_late
    }

    fn is_late(&self, now: Duration) -> bool {
        self.waits.is_some_and(|(_, until)| until <= now)
    }

    fn deadline(&self) -> Duration {
        self.waits.map_or(self.retry_at, |(_, until)| until)
    }
}

/// Follows the keys below a prefix.
#[derive(Debug)]
pub struct Watcher {
    prefix: String,
    /// Whether it waits for further changes after some.
    gathers: bool,
    from: Option<(Epoch, Revision)>,
    line: Line,
}

impl Watcher {
    pub fn new(thread: Thread, machine: &str) -> Self {
        let prefix = match thread {
            Thread::Desired => desired_key(machine),
            Thread::Links => LINKS.to_owned(),
            Thread::Machines => MACHINES.to_owned(),
            Thread::Reports | Thread::Writer => ACTUAL.to_owned(),
        };
        Self {
            prefix,
            gathers: thread != Thread::Desired,
            from: None,
            line: Line::default(),
        }
    }

    /// The call to make now, with its number.
    pub fn call(&mut self, now: Duration) -> Option<(u64, Call)> {
        if self.line.give_up(now) {
            self.from = None;
        }
        let prefix = || self.prefix.clone();
        let call = match self.from {
            None => Call::List(prefix()),
            Some((_, after)) => Call::Watch(prefix(), after),
        };
        self.line.is_free(now).then(|| self.line.begin(call, now))
    }

    /// The entries of an answer.
    pub fn answer(&mut self, number: u64, answer: Answer, now: Duration) -> Vec<Entry> {
        if !self.line.end(number, &answer, now) {
            return Vec::new();
        }
        match answer {
            Answer::Listing(state, entries) => {
                self.from = Some(state);
                entries
            }
            Answer::Changes((epoch, _), _)
                if self.from.is_some_and(|(known, _)| known != epoch) =>
            {
                self.from = None;
                Vec::new()
            }
            Answer::Changes(state, changes) => {
                if self.gathers {
                    self.line.retry_at = now + GATHER;
                }
                self.from = Some(state);
                changes.into_iter().filter_map(|it| it.entry).collect()
            }
            // After an error the store may be another one.
            Answer::Compacted | Answer::Unavailable | Answer::Refused => {
                self.from = None;
                Vec::new()
            }
            Answer::Entry(_) | Answer::Set(_) | Answer::Conflict => Vec::new(),
        }
    }

    pub fn deadline(&self) -> Duration {
        self.line.deadline()
    }
}

/// Writes the address of the link, and the actual state.
#[derive(Debug)]
pub struct Writer {
    machine: String,
    line: Line,
    link: Option<Revision>,
    written: Option<(Actual, Revision)>,
    /// The state that is being written: `None` for the link.
    writing: Option<Actual>,
    /// The expected state of the key, once it was read.
    expected: Option<Expected>,
}

impl Writer {
    pub fn new(machine: &str) -> Self {
        Self {
            machine: machine.to_owned(),
            line: Line::default(),
            link: None,
            written: None,
            writing: None,
            expected: None,
        }
    }

    fn key(&self) -> String {
        match self.link {
            None => link_key(&self.machine),
            Some(_) => actual_key(&self.machine),
        }
    }

    pub fn call(&mut self, actual: &Actual, now: Duration) -> Option<(u64, Call)> {
        if self.line.give_up(now) {
            self.forget();
        }
        if !self.line.is_free(now) || self.has_written(actual) {
            return None;
        }
        let known = self.written.as_ref().map(|it| Expected::Revision(it.1));
        let call = match self.expected.take().or(known) {
            None => Call::Get(self.key()),
            Some(expected) => {
                self.writing = self.link.map(|_| actual.clone());
                let json = match &self.writing {
                    None => b"\"10.0.0.1:45678\"".to_vec(),
                    Some(actual) => serde_json::to_vec(actual).unwrap(),
                };
                Call::Set(self.key(), expected, json)
            }
        };
        Some(self.line.begin(call, now))
    }

    pub fn answer(&mut self, number: u64, answer: &Answer, now: Duration) {
        if !self.line.end(number, answer, now) {
            return;
        }
        match answer {
            Answer::Entry(entry) => {
                let revision = entry.as_ref().map(|entry| entry.revision);
                self.expected = Some(revision.map_or(Expected::Absent, Expected::Revision));
            }
            Answer::Set(revision) => match self.writing.take() {
                None => self.link = Some(*revision),
                Some(actual) => self.written = Some((actual, *revision)),
            },
            Answer::Conflict => self.written = None,
            _ => self.forget(),
        }
    }

    fn forget(&mut self) {
        (self.link, self.written, self.expected) = (None, None, None);
    }

    pub fn has_written(&self, actual: &Actual) -> bool {
        let is_written = |(last, _): &(Actual, Revision)| last == actual;
        self.link.is_some() && self.written.as_ref().is_some_and(is_written)
    }

    /// Whether it waits for no answer, or not any more.
    pub fn is_to_call(&self, now: Duration) -> bool {
        self.line.waits.is_none() || self.line.is_late(now)
    }

    pub fn deadline(&self) -> Duration {
        self.line.deadline()
    }
}
