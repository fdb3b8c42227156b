//! The state of a running dataflow, from its keeper's reports and its counters.

use std::{collections::BTreeMap, time::Instant};

use nervure_node::running::{Connection, ConnectionError, PATIENCE};
use nervure_protocol::{
    address::KeeperAddress,
    cli_to_keeper::{self, Watch},
    keeper_to_cli::{Message, NodeDeclared, Welcome},
    report::{NodeEnded, NodeStarted, Report},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fd::{BorrowedFd, OwnedFd},
};

use crate::{failure::Failure, run::edges::Edges};

/// The state of a running dataflow.
#[derive(Debug)]
pub struct State {
    connection: Connection,
    begin: Instant,
    /// Nodes by index: those of the dataflow in the order of its file, then observers.
    pub nodes: BTreeMap<u32, NodeState>,
    pub edges: Edges,
    /// Every node has ended.
    pub is_finished: bool,
}

/// A node, or an observer.
#[derive(Debug)]
pub struct NodeState {
    pub declared: NodeDeclared,
    /// The last process, if there was one.
    pub started: Option<NodeStarted>,
    /// How the last process ended, if it has.
    pub ended: Option<NodeEnded>,
}

/// Why [`State::follow_until_readable`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// The other descriptor is readable, or a signal has arrived.
    OtherReadable,
    /// The other descriptor is closed.
    OtherClosed,
    Deadline,
    KeeperEnded,
}

impl NodeState {
    /// The id of the running process.
    pub fn pid(&self) -> Option<u32> {
        self.started
            .as_ref()
            .filter(|_| self.ended.is_none())
            .map(|started| started.pid)
    }

    /// What the start of the dataflow waits for in this node, such as `is not ready`.
    pub fn awaited(&self) -> Option<&str> {
        self.declared
            .not_done
            .as_deref()
            .filter(|_| self.ended.is_none())
    }

    /// The state as text.
    pub fn state(&self) -> &'static str {
        match (&self.started, &self.ended) {
            (_, Some(ended)) if ended.restarts => "restarts",
            (_, Some(ended)) if ended.failed => "failed",
            (_, Some(_)) if self.declared.remote.is_some() => "no daemon",
            (_, Some(_)) if self.declared.dynamic => "absent",
            (_, Some(ended)) if ended.reason.contains("by hand") => "stopped",
            (_, Some(_)) => "ended",
            (Some(_), None) if self.awaited().is_some() => "starts",
            (Some(_), None) => "runs",
            (None, None) if self.declared.remote.is_some() => "no daemon",
            (None, None) if self.declared.dynamic => "absent",
            (None, None) => "starts",
        }
    }
}

impl State {
    /// Requests the state of a dataflow, and with `follow` also later reports.
    pub fn open(connection: Connection, follow: bool) -> Result<Self, Failure> {
        connection.send(&cli_to_keeper::Message::Watch(Watch {
            logs: false,
            follow,
            without_observers: false,
        }))?;
        let mut state = Self {
            connection,
            begin: Instant::now(),
            nodes: BTreeMap::new(),
            edges: Edges::default(),
            is_finished: false,
        };
        loop {
            match state.connection.receive_until(Instant::now() + PATIENCE)? {
                Some((Message::SnapshotComplete, _)) => return Ok(state),
                Some((message, descriptor)) => state.take(message, descriptor)?,
                None => {
                    return Err(Failure::internal(
                        "the keeper does not answer a request for the state of its dataflow",
                    ));
                }
            }
        }
    }

    /// The keeper's description of the dataflow.
    pub fn welcome(&self) -> &Welcome {
        self.connection.welcome()
    }

    /// The connection of a state that is not followed, for further requests.
    pub fn into_connection(self) -> Connection {
        self.connection
    }

    /// The address of the keeper.
    pub fn address(&self) -> &KeeperAddress {
        self.connection.address()
    }

    /// The process id of the keeper.
    pub fn keeper(&self) -> u32 {
        self.connection.address().keeper
    }

    /// Processes reports until `deadline`. False if the keeper has ended.
    pub fn follow_until(&mut self, deadline: Instant) -> Result<bool, Failure> {
        loop {
            match self.connection.receive_until(deadline) {
                Ok(Some((message, descriptor))) => self.take(message, descriptor)?,
                Ok(None) => return Ok(true),
                Err(ConnectionError::Gone(_)) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Processes reports until `deadline`, or until `other` is readable.
    pub fn follow_until_readable(
        &mut self,
        other: BorrowedFd<'_>,
        deadline: Instant,
    ) -> Result<Wakeup, Failure> {
        loop {
            match self.connection.try_receive() {
                Ok(Some((message, descriptor))) => {
                    self.take(message, descriptor)?;
                    continue;
                }
                Ok(None) => {}
                Err(ConnectionError::Gone(_)) => return Ok(Wakeup::KeeperEnded),
                Err(error) => return Err(error.into()),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Wakeup::Deadline);
            }
            let mut polled = [
                PollFd::new(&self.connection, PollFlags::IN),
                PollFd::from_borrowed_fd(other, PollFlags::IN),
            ];
            let left = Timespec::try_from(left).expect("deadlines are at most some days ahead");
            match rustix::event::poll(&mut polled, Some(&left)) {
                Ok(_)
                    if polled[1]
                        .revents()
                        .intersects(PollFlags::HUP | PollFlags::ERR) =>
                {
                    return Ok(Wakeup::OtherClosed);
                }
                Ok(_) if !polled[1].revents().is_empty() => return Ok(Wakeup::OtherReadable),
                Ok(_) => {}
                // The signal may be SIGWINCH.
                Err(rustix::io::Errno::INTR) => return Ok(Wakeup::OtherReadable),
                Err(error) => {
                    return Err(Failure::internal("cannot wait for the keeper").because(error));
                }
            }
        }
    }

    /// Processes one report if it arrives before `deadline`; returns whether it did, and `None` if
    /// the keeper has ended.
    pub fn follow_one(&mut self, deadline: Instant) -> Result<Option<bool>, Failure> {
        match self.connection.receive_until(deadline) {
            Ok(Some((message, descriptor))) => {
                self.take(message, descriptor)?;
                Ok(Some(true))
            }
            Ok(None) => Ok(Some(false)),
            Err(ConnectionError::Gone(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the counters of every edge.
    pub fn sample(&mut self) {
        self.edges.sample(self.begin.elapsed());
    }

    fn take(&mut self, message: Message, descriptor: Option<OwnedFd>) -> Result<(), Failure> {
        match message {
            Message::NodeDeclared(declared) => self.declare(declared),
            Message::Report { report } => self.report(report, descriptor)?,
            Message::Refused(refused) => return Err(ConnectionError::Refused(refused).into()),
            _ => {}
        }
        Ok(())
    }

    fn declare(&mut self, declared: NodeDeclared) {
        self.nodes.insert(
            declared.node,
            NodeState {
                declared,
                started: None,
                ended: None,
            },
        );
    }

    fn report(&mut self, report: Report, descriptor: Option<OwnedFd>) -> Result<(), Failure> {
        match report {
            Report::NodeStarted(started) => {
                if let Some(page) = descriptor {
                    self.edges.add_node(&started, &page);
                }
                if !self.nodes.contains_key(&started.node) {
                    // An observer that attached later.
                    self.declare(NodeDeclared {
                        node: started.node,
                        id: started.id.clone(),
                        program: started.id.clone(),
                        observer: started.observer,
                        attached: None,
                        dynamic: false,
                        remote: None,
                        not_done: None,
                        file_says: None,
                        outputs: Vec::new(),
                        inputs: Vec::new(),
                    });
                }
                if let Some(node) = self.nodes.get_mut(&started.node) {
                    node.started = Some(started);
                    node.ended = None;
                }
            }
            Report::EdgeWired(wired) => self.edges.add(&wired),
            Report::EdgeStatus(status) => self.edges.set_status(&status),
            Report::NodeEnded(ended) => {
                if self
                    .nodes
                    .get(&ended.node)
                    .is_some_and(|node| node.declared.observer)
                {
                    self.nodes.remove(&ended.node);
                    self.edges.remove_node(ended.node);
                } else if let Some(node) = self.nodes.get_mut(&ended.node) {
                    node.ended = Some(ended);
                }
            }
            Report::Finished => self.is_finished = true,
            Report::Ready => {
                for node in self.nodes.values_mut() {
                    node.declared.not_done = None;
                }
            }
            Report::Log(_) | Report::Unknown => {}
        }
        Ok(())
    }
}
