//! Receiving from a dataflow that one is no node of.

use crate::connect;
use crate::control::Departure;
use crate::error::ConnectError;
use crate::event::Event;
use crate::events::Events;
use crate::node::Handle;
use crate::running::{self, Connection, ConnectionError};
use nervure_message::Header;
use nervure_protocol::address::KeeperAddress;
use nervure_protocol::cli_to_keeper::{Message, Observe};
use nervure_protocol::keeper_to_cli;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// See [`Observer::set_patience`].
const PATIENCE: Duration = Duration::from_millis(10);

/// Why a dataflow cannot be observed.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// There is no connection to its keeper, or the keeper refused: no such topic, too many observers.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The keeper let it in, and it could not be set up.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// Receives topics of a running dataflow, as a node that only has inputs.
///
/// Events are those of a node: [`Event::Input`] with `node/output` as its id, [`Event::InputClosed`] when a producer has
/// ended for good, [`Event::NodeFailed`] and [`Event::NodeRestarted`], and at last [`Event::Stop`]. A producer that is
/// restarted goes on being observed; what an output keeps as its history comes first.
///
/// It cannot hold the dataflow up: its queues drop the oldest sample, and it may keep 16 of a topic at most (queue
/// included). Past that it misses samples, which the counters of its edge say. Samples are valid as long as the observer
/// lives. Nor does it cost its producers a wake-up: it looks every 10 ms for what has come, see
/// [`Observer::set_patience`].
///
/// ```no_run
/// use nervure_node::{Event, Observer};
///
/// let mut observer = Observer::open(None, &["camera/image"], 4, "my-tool")?;
/// while let Some(event) = observer.next() {
///     if let Event::Input { id, sample } = event {
///         println!("{id}: {} bytes after {:?}", sample.bytes().len(), sample.latency());
///     }
/// }
/// # Ok::<(), nervure_node::ObserveError>(())
/// ```
#[derive(Debug)]
pub struct Observer {
    handle: Handle,
    events: Events,
    gaps: Gaps,
}

/// What an observer has missed, by the numbers of what it has received: its queues drop the oldest.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// The last sample of each topic, by incarnation and sequence number.
    last: HashMap<Arc<str>, (u32, u64)>,
    total: u64,
}

impl Gaps {
    /// A sample was received. Returns how many were missed between it and the one before it of the same topic and
    /// process.
    pub fn before(&mut self, topic: &str, header: &Header) -> u64 {
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
        let (before, number) = std::mem::replace(last, (incarnation, sequence));
        let is_same = before == incarnation;
        let missed = if is_same {
            sequence.saturating_sub(number.saturating_add(1))
        } else {
            0
        };
        self.total = self.total.saturating_add(missed);
        missed
    }

    /// How many were missed so far.
    pub fn total(&self) -> u64 {
        self.total
    }
}

impl Observer {
    /// Observes `topics` (`node/output`) of the dataflow of that name, or of the only one that runs. Each queue holds
    /// `depth` samples. `program` is what the observer is called, for people.
    ///
    /// # Errors
    /// [`ObserveError`], whose text says what is wrong and which names there are.
    pub fn open<T: AsRef<str>>(
        dataflow: Option<&str>,
        topics: &[T],
        depth: u32,
        program: &str,
    ) -> Result<Self, ObserveError> {
        Self::open_at(&running::find(dataflow)?, topics, depth, program)
    }

    /// As [`Observer::open`], for bindings: see [`crate::Node::connect_as`].
    ///
    /// # Errors
    /// As [`Observer::open`], and [`ConnectError::Interrupted`] when `go_on` returns false.
    pub fn open_as<T: AsRef<str>>(
        dataflow: Option<&str>,
        topics: &[T],
        depth: u32,
        program: &str,
        go_on: impl FnMut() -> bool,
    ) -> Result<Self, ObserveError> {
        Self::wire(
            Connection::open(&running::find(dataflow)?, program)?,
            topics,
            depth,
            go_on,
        )
    }

    /// As [`Observer::open`], of the dataflow with that keeper.
    ///
    /// # Errors
    /// As [`Observer::open`].
    pub fn open_at<T: AsRef<str>>(
        keeper: &KeeperAddress,
        topics: &[T],
        depth: u32,
        program: &str,
    ) -> Result<Self, ObserveError> {
        Self::open_through(Connection::open(keeper, program)?, topics, depth)
    }

    /// As [`Observer::open`], over a connection that was opened already.
    ///
    /// # Errors
    /// As [`Observer::open`].
    pub fn open_through<T: AsRef<str>>(
        connection: Connection,
        topics: &[T],
        depth: u32,
    ) -> Result<Self, ObserveError> {
        Self::wire(connection, topics, depth, || true)
    }

    fn wire<T: AsRef<str>>(
        mut connection: Connection,
        topics: &[T],
        depth: u32,
        go_on: impl FnMut() -> bool,
    ) -> Result<Self, ObserveError> {
        let topics = topics
            .iter()
            .map(|topic| topic.as_ref().to_owned())
            .collect();
        match connection.ask(&Message::Observe(Observe { topics, depth }))? {
            keeper_to_cli::Message::Observing { .. } => {}
            other => return Err(ConnectionError::Unexpected(format!("{other:?}")).into()),
        }
        let (core, mut events) = connect::connect_through(
            connection.into_socket(),
            Departure::WhenDrained,
            "observer",
            go_on,
        )?;
        events.set_patience(Some(PATIENCE));
        Ok(Self {
            handle: Handle(core),
            events,
            gaps: Gaps::default(),
        })
    }

    /// How many samples were missed between those that were received: the observer was too slow, or kept too many.
    pub fn dropped(&self) -> u64 {
        self.gaps.total()
    }

    /// Takes the observer apart, for bindings.
    pub fn split(self) -> (Handle, Events) {
        (self.handle, self.events)
    }

    /// How long a sample may lie in its queue before the observer looks for it, at most; 10 ms by default. Looks become
    /// denser by themselves when much comes. `None`: each sample wakes the observer at once, which costs its producer a
    /// system call, and the robot's nodes the core that the observer then runs on.
    pub fn set_patience(&mut self, patience: Option<Duration>) {
        self.events.set_patience(patience);
    }

    /// Its id in the dataflow, `echo@4711`.
    pub fn id(&self) -> &str {
        self.handle.id()
    }

    /// The dataflow's name.
    pub fn dataflow(&self) -> &str {
        self.handle.dataflow()
    }

    /// The dataflow's clock, in nanoseconds since the Unix epoch.
    pub fn now(&self) -> i64 {
        self.handle.now()
    }

    /// Waits for the next event. `None` after [`Event::Stop`].
    #[expect(
        clippy::should_implement_trait,
        reason = "the same name as on `Node` and `Events`"
    )]
    pub fn next(&mut self) -> Option<Event> {
        let event = self.events.next();
        self.noted(event)
    }

    /// Waits at most `timeout` for the next event; `None` when none came, or after [`Event::Stop`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<Event> {
        let event = self.events.next_timeout(timeout);
        self.noted(event)
    }

    /// The next event, if there is one.
    pub fn try_next(&mut self) -> Option<Event> {
        let event = self.events.try_next();
        self.noted(event)
    }

    /// The events, to be waited for together with other things: see [`Events::poll`] and [`Events::eventfd`].
    pub fn events(&mut self) -> &mut Events {
        &mut self.events
    }

    fn noted(&mut self, event: Option<Event>) -> Option<Event> {
        if let Some(Event::Input { id, sample }) = &event {
            self.gaps.before(id, sample.header());
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_a_restart_nor_the_last_word_of_a_failed_node_is_a_gap() {
        let mut gaps = Gaps::default();
        let mut before = |incarnation, sequence| {
            gaps.before(
                "a/b",
                &Header {
                    incarnation,
                    sequence,
                    ..Header::default()
                },
            )
        };
        assert_eq!([before(0, 7), before(0, 8), before(0, 11)], [0, 0, 2]);
        assert_eq!([before(0, Header::NO_SEQUENCE), before(0, 12)], [0, 0]);
        assert_eq!([before(1, 0), before(1, 1), before(1, 3)], [0, 0, 1]);
        assert_eq!(gaps.total(), 3);
    }
}
