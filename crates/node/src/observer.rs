//! Receiving from a dataflow that one is no node of.

use crate::connect;
use crate::control::Departure;
use crate::error::ConnectError;
use crate::event::Event;
use crate::events::Events;
use crate::node::Handle;
use crate::running::{self, Connection, ConnectionError};
use nervure_protocol::address::KeeperAddress;
use nervure_protocol::cli_to_keeper::{Message, Observe};
use nervure_protocol::keeper_to_cli;
use std::time::Duration;

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
/// lives.
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
        mut connection: Connection,
        topics: &[T],
        depth: u32,
    ) -> Result<Self, ObserveError> {
        let topics = topics.iter().map(|topic| topic.as_ref().to_owned()).collect();
        match connection.ask(&Message::Observe(Observe { topics, depth }))? {
            keeper_to_cli::Message::Observing { .. } => {}
            other => return Err(ConnectionError::Unexpected(format!("{other:?}")).into()),
        }
        let (core, events) =
            connect::connect_through(connection.into_socket(), Departure::WhenDrained, "observer", || true)?;
        Ok(Self { handle: Handle(core), events })
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
    #[expect(clippy::should_implement_trait, reason = "the same name as on `Node` and `Events`")]
    pub fn next(&mut self) -> Option<Event> {
        self.events.next()
    }

    /// Waits at most `timeout` for the next event; `None` when none came, or after [`Event::Stop`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<Event> {
        self.events.next_timeout(timeout)
    }

    /// The next event, if there is one.
    pub fn try_next(&mut self) -> Option<Event> {
        self.events.try_next()
    }

    /// The events, to be waited for together with other things: see [`Events::poll`] and [`Events::eventfd`].
    pub fn events(&mut self) -> &mut Events {
        &mut self.events
    }
}
