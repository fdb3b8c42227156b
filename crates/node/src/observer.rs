//! Receiving topics of a dataflow from outside, without being a node of it.

use crate::connect;
use crate::control::Departure;
use crate::error::ConnectError;
use crate::gaps::SequenceGaps;
use crate::handle::Handle;
use crate::receiving::{Event, Events};
use crate::running::{self, Connection, ConnectionError};
use nervure_protocol::address::KeeperAddress;
use nervure_protocol::cli_to_keeper::{Message, Observe};
use nervure_protocol::keeper_to_cli;
use std::time::Duration;

/// The default of [`Observer::set_patience`].
const DEFAULT_LONGEST_POLL: Duration = Duration::from_millis(10);

/// Why a dataflow cannot be observed.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The keeper cannot be reached, or refused: there is no such topic, or too many observers.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The keeper accepted the observer, but it could not be set up.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// Receives topics of a running dataflow, like a node that only has inputs.
///
/// Events are those of a node: [`Event::Input`] with `node/output` as its id,
/// [`Event::InputClosed`] when a producer has ended for good, [`Event::NodeFailed`] and
/// [`Event::NodeRestarted`], and at last [`Event::Stop`]. The history of an output comes first. A
/// producer that is restarted is still observed.
///
/// An observer cannot delay the dataflow: its queues drop the oldest sample, and it can hold at
/// most 16 samples per topic, those in the queue included. Beyond that it misses samples, which its
/// edge counts. It does not cost its producers a wake-up either: it polls every 10 ms, see
/// [`Observer::set_patience`]. Samples are valid as long as the observer lives.
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
    gaps: SequenceGaps,
}

impl Observer {
    /// Observes `topics` (`node/output`) of the dataflow with that name, or of the only one that
    /// runs. Each queue holds `depth` samples. `program` names the observer in messages to users.
    ///
    /// # Errors
    /// [`ObserveError`], whose message lists the names that exist.
    pub fn open<T: AsRef<str>>(
        dataflow: Option<&str>,
        topics: &[T],
        depth: u32,
        program: &str,
    ) -> Result<Self, ObserveError> {
        Self::open_at(&running::find(dataflow)?, topics, depth, program)
    }

    /// As [`Observer::open`], for the dataflow of that keeper.
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

    /// As [`Observer::open`], over an open connection.
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

    pub(crate) fn wire<T: AsRef<str>>(
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
        core.traces.observe_only();
        events.set_patience(Some(DEFAULT_LONGEST_POLL));
        Ok(Self {
            handle: Handle::new(core),
            events,
            gaps: SequenceGaps::default(),
        })
    }

    /// The number of samples that were missed between those that were received: the observer was
    /// too slow, or held too many.
    pub fn dropped(&self) -> u64 {
        self.gaps.total()
    }

    /// Splits the observer, to ask and receive in different places.
    pub fn split(self) -> (Handle, Events) {
        (self.handle, self.events)
    }

    /// Sets how long a sample may lie in its queue before the observer takes it: the longest
    /// interval at which it polls, 10 ms by default. The interval shortens by itself when many
    /// samples arrive. With `None` each sample wakes the observer at once, which costs its producer
    /// a system call, and the robot's nodes the core that the observer then runs on.
    pub fn set_patience(&mut self, patience: Option<Duration>) {
        self.events.set_patience(patience);
    }

    /// The observer's id in the dataflow, for example `echo@4711`.
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

    /// Waits for the next event. Returns `None` after [`Event::Stop`].
    #[expect(
        clippy::should_implement_trait,
        reason = "the same name as on `Node` and `Events`"
    )]
    pub fn next(&mut self) -> Option<Event> {
        let event = self.events.next();
        self.record(event)
    }

    /// Waits at most `timeout` for the next event. Returns `None` after the timeout or
    /// [`Event::Stop`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<Event> {
        let event = self.events.next_timeout(timeout);
        self.record(event)
    }

    /// Returns the next event if there is one, without waiting.
    pub fn try_next(&mut self) -> Option<Event> {
        let event = self.events.try_next();
        self.record(event)
    }

    /// The events, for an event loop: see [`Events::poll`] and [`Events::eventfd`].
    pub fn events(&mut self) -> &mut Events {
        &mut self.events
    }

    fn record(&mut self, event: Option<Event>) -> Option<Event> {
        if let Some(Event::Input { id, sample }) = &event {
            self.gaps.record(id, sample.header());
        }
        event
    }
}
