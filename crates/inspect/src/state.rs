//! The state of a running dataflow, from its keeper's reports and its counters.

mod reports;

use std::{collections::BTreeMap, time::Instant};

use nervure_node::running::{Connection, ConnectionError, KEEPER_ANSWER_TIMEOUT, Remote};
use nervure_protocol::{
    cli_to_keeper::{self, Watch},
    daemon_to_cli,
    daemon_to_daemon::StreamReport,
    keeper_to_cli::{DataflowState, Message, NodeDeclared, Welcome},
    report::{EndCause, NodeEnded, NodeStarted},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fd::BorrowedFd,
};

use crate::{
    Error,
    edges::Edges,
    places::{self, Found, PartKeeper, Place, Unreachable},
    streams,
};

/// The state of a running dataflow.
#[derive(Debug)]
pub struct State {
    parts: Vec<OpenPart>,
    /// Parts whose machines cannot be reached.
    pub unreachable: Vec<Unreachable>,
    /// Outcome of the samples that cross machines, at the time the dataflow was found.
    pub streams: Vec<StreamReport>,
    /// Topics that the reports of the machines have left out.
    pub streams_omitted: usize,
    begin: Instant,
    /// Nodes by index, part after part: nodes of the dataflow in the order of its file, then observers.
    pub nodes: BTreeMap<u32, NodeState>,
    /// The edges with their counters.
    pub edges: Edges,
    /// Every node has ended.
    pub is_finished: bool,
}

/// A node, or an observer.
#[derive(Debug)]
pub struct NodeState {
    /// Its declaration.
    pub declared: NodeDeclared,
    /// The last process, if there was one.
    pub started: Option<NodeStarted>,
    /// The end of the last process.
    pub ended: Option<NodeEnded>,
}

/// Why [`State::follow_until_readable`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// The other descriptor is readable, or a signal has arrived.
    OtherReadable,
    /// The other descriptor is closed.
    OtherClosed,
    /// The deadline has passed.
    Deadline,
    /// All keepers have ended.
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

    /// The kernel's id of its thread, if it shares its process with other nodes.
    pub fn thread(&self) -> Option<u32> {
        self.started.as_ref()?.thread
    }

    /// Restarts so far.
    pub fn restarts(&self) -> u32 {
        self.started.as_ref().map_or(0, |started| started.restarts)
    }

    /// The incarnation of the current or last process.
    pub fn incarnation(&self) -> Option<u32> {
        self.started.as_ref().map(|started| started.incarnation)
    }

    /// Why the start of the dataflow waits for this node, such as `is not ready`.
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
            (_, Some(ended)) if is_by_command(ended.cause) => "stopped",
            (_, Some(_)) => "ended",
            (Some(_), None) if self.awaited().is_some() => "starts",
            (Some(_), None) => "runs",
            (None, None) if self.declared.remote.is_some() => "no daemon",
            (None, None) if self.declared.dynamic => "absent",
            (None, None) => "starts",
        }
    }

    /// The state as its machine would report it to others.
    fn reported(&self) -> daemon_to_cli::NodeState {
        use daemon_to_cli::NodeState;
        match (&self.started, &self.ended) {
            (_, Some(ended)) => NodeState::after(ended),
            (Some(_), None) => NodeState::Running,
            (None, None) => NodeState::Waiting,
        }
    }
}

/// Whether a command has ended the process.
fn is_by_command(cause: EndCause) -> bool {
    match cause {
        EndCause::Stopped | EndCause::Unloaded => true,
        EndCause::Ended | EndCause::NotStarted | EndCause::Left | EndCause::Unknown => false,
    }
}

/// A connection to the keeper of a part.
#[derive(Debug)]
struct OpenPart {
    connection: Connection,
    place: Place,
    machine: Option<String>,
    state: DataflowState,
    is_gone: bool,
    is_finished: bool,
}

/// Indices of nodes of different parts differ in their upper bits.
const PART_BITS: u32 = 24;

impl State {
    /// Finds a dataflow, and requests the state of all its parts.
    pub fn find(name: Option<&str>, program: &str, follow: bool) -> Result<Self, Error> {
        Self::open(&places::find(name)?, program, follow)
    }

    /// Requests the state of a dataflow, and with `follow` also later reports.
    pub fn open(found: &Found, program: &str, follow: bool) -> Result<Self, Error> {
        let mut state = Self::empty();
        state.streams_omitted = found.parts.iter().map(|part| part.streams_omitted).sum();
        state.streams = streams::merged(found.parts.iter().flat_map(|part| &part.streams));
        for part in &found.parts {
            match &part.keeper {
                PartKeeper::At(place, _) => {
                    let opened = place.connect(program)?;
                    state.add(opened, place, part.machine.clone(), follow)?;
                }
                PartKeeper::Unreachable(unreachable) => state.unreachable.push(unreachable.clone()),
            }
        }
        if state.parts.is_empty() {
            return Err(not_reached(&found.dataflow, &state.unreachable));
        }
        Ok(state)
    }

    /// As [`Self::open`], for one keeper of this host.
    pub fn open_one(connection: Connection, follow: bool) -> Result<Self, Error> {
        let place = Place::Here(connection.address().clone());
        let mut state = Self::empty();
        state.add(connection, &place, None, follow)?;
        Ok(state)
    }

    fn empty() -> Self {
        Self {
            parts: Vec::new(),
            unreachable: Vec::new(),
            streams: Vec::new(),
            streams_omitted: 0,
            begin: Instant::now(),
            nodes: BTreeMap::new(),
            edges: Edges::default(),
            is_finished: false,
        }
    }

    fn add(
        &mut self,
        connection: Connection,
        place: &Place,
        machine: Option<String>,
        follow: bool,
    ) -> Result<(), Error> {
        connection.send(&cli_to_keeper::Message::Watch(Watch {
            logs: false,
            follow,
            without_observers: false,
        }))?;
        let at = self.parts.len();
        self.parts.push(OpenPart {
            state: connection.welcome().state,
            connection,
            place: place.clone(),
            machine,
            is_gone: false,
            is_finished: false,
        });
        loop {
            let deadline = Instant::now() + KEEPER_ANSWER_TIMEOUT;
            match self.parts[at].connection.receive_until(deadline)? {
                Some((Message::SnapshotComplete, _)) => return Ok(()),
                Some((message, descriptor)) => self.take(at, message, descriptor)?,
                None => {
                    return Err(Error::NoState);
                }
            }
        }
    }

    /// The keeper's description of the dataflow; of the first part, if it has several.
    pub fn welcome(&self) -> &Welcome {
        self.parts[0].connection.welcome()
    }

    /// The welcome of each part's keeper, with its machine and place.
    pub fn parts(&self) -> impl Iterator<Item = (Option<&str>, &Place, &Welcome)> {
        self.parts.iter().map(|part| {
            (
                part.machine.as_deref(),
                &part.place,
                part.connection.welcome(),
            )
        })
    }

    /// The state of the dataflow: starting until all its parts run, paused until all are resumed, and
    /// stopping as soon as one stops.
    pub fn dataflow_state(&self) -> DataflowState {
        let mut states = self.parts.iter().map(|part| part.state);
        let first = states.next().unwrap_or(DataflowState::Unknown);
        states.fold(first, |all, one| match (all, one) {
            (DataflowState::Stopping, _) | (_, DataflowState::Stopping) => DataflowState::Stopping,
            (DataflowState::Starting, _) | (_, DataflowState::Starting) => DataflowState::Starting,
            (DataflowState::Paused, _) | (_, DataflowState::Paused) => DataflowState::Paused,
            (all, _) => all,
        })
    }

    /// The data that daemons have added for keepers of other machines, with the first index of their nodes.
    pub fn remotes(&self) -> impl Iterator<Item = (u32, &Remote)> {
        let parts = (0_u32..).zip(&self.parts);
        parts
            .filter(|(_, part)| part.connection.machine().is_some())
            .map(|(at, part)| (at << PART_BITS, part.connection.remote()))
    }

    /// Bytes that this command has cost on the link so far, if there are parts on other machines.
    pub fn link_bytes(&self) -> Option<u64> {
        let cost =
            |(_, remote): (u32, &Remote)| remote.cost.received_bytes + remote.cost.sent_bytes;
        let mut costs = self.remotes().map(cost).peekable();
        costs.peek().is_some().then(|| costs.sum())
    }

    /// As [`Self::link_bytes`], per second.
    pub fn link_bytes_per_second(&self) -> Option<f64> {
        let seconds = self.begin.elapsed().as_secs_f64().max(1e-3);
        Some(self.link_bytes()? as f64 / seconds)
    }

    /// Whether it has parts on several machines, so that stand-ins are in it as themselves.
    pub fn is_merged(&self) -> bool {
        self.parts.len() + self.unreachable.len() > 1
    }

    /// Whether a node is shown: a stand-in is not where the node itself is, or its machine.
    pub fn is_shown(&self, node: &NodeState) -> bool {
        node.declared.remote.is_none() || !self.is_merged()
    }

    /// Whether it is a dataflow of a fleet.
    pub fn has_machines(&self) -> bool {
        self.is_merged() || self.parts.iter().any(|part| part.machine.is_some())
    }

    /// The shown nodes of the file.
    pub fn own_nodes(&self) -> impl Iterator<Item = &NodeState> {
        let nodes = self.nodes.values();
        nodes.filter(|node| !node.declared.observer && self.is_shown(node))
    }

    /// The ids of observers.
    pub fn observers(&self) -> impl Iterator<Item = &str> {
        let nodes = self.nodes.values();
        nodes
            .filter(|node| node.declared.observer)
            .map(|node| node.declared.id.as_str())
    }

    /// The name of the machine of a node.
    pub fn machine_of(&self, node: u32) -> Option<&str> {
        let part = self.parts.get((node >> PART_BITS) as usize)?;
        part.machine.as_deref()
    }

    /// Where the keeper of a node is.
    pub fn place_of(&self, node: u32) -> &Place {
        &self.parts[(node >> PART_BITS) as usize].place
    }

    /// The node of that id, which must not be an observer.
    pub fn node(&self, name: &str) -> Option<&NodeState> {
        self.nodes
            .values()
            .find(|node| node.declared.id == name && !node.declared.observer && self.is_shown(node))
    }

    /// Where the keeper of the node with that id is. A node that is not known is for any keeper to
    /// refuse, unless its machine cannot be reached.
    pub fn place_of_named(&self, name: &str) -> Result<&Place, Error> {
        if let Some(found) = self.node(name) {
            return Ok(self.place_of(found.declared.node));
        }
        let mut unreachable = self.unreachable.iter();
        match unreachable.find(|one| one.nodes.contains_key(name)) {
            Some(one) => Err(Error::NodeAway {
                node: name.to_owned(),
                machine: one.machine.clone(),
                reason: one.reason.clone(),
            }),
            None => Ok(self.place_of(0)),
        }
    }

    /// The part of a node, as an index for [`Self::into_connection_of`].
    pub fn part_of(node: u32) -> usize {
        (node >> PART_BITS) as usize
    }

    /// The connection of a part of a state that is not followed, for further requests.
    pub fn into_connection_of(mut self, part: usize) -> Connection {
        self.parts.swap_remove(part).connection
    }

    /// The process id of the keeper; of the first part, if it has several.
    pub fn keeper(&self) -> u32 {
        self.parts[0].connection.address().keeper
    }

    /// Processes reports until `deadline`. False if the keepers have ended.
    pub fn follow_until(&mut self, deadline: Instant) -> Result<bool, Error> {
        loop {
            match self.follow_until_readable(None, deadline)? {
                Wakeup::Deadline => return Ok(true),
                Wakeup::KeeperEnded => return Ok(false),
                Wakeup::OtherReadable | Wakeup::OtherClosed => {}
            }
        }
    }

    /// Processes reports until `deadline`, or until `other` is readable.
    pub fn follow_until_readable(
        &mut self,
        other: Option<BorrowedFd<'_>>,
        deadline: Instant,
    ) -> Result<Wakeup, Error> {
        loop {
            while self.take_one()? {}
            if self.parts.iter().all(|part| part.is_gone) {
                return Ok(Wakeup::KeeperEnded);
            }
            if Instant::now() >= deadline {
                return Ok(Wakeup::Deadline);
            }
            if let Some(wakeup) = self.wait(other, deadline)? {
                return Ok(wakeup);
            }
        }
    }

    /// Processes one report if it arrives before `deadline`; returns whether it did, and `None` if
    /// the keepers have ended.
    pub fn follow_one(&mut self, deadline: Instant) -> Result<Option<bool>, Error> {
        loop {
            if self.take_one()? {
                return Ok(Some(true));
            }
            if self.parts.iter().all(|part| part.is_gone) {
                return Ok(None);
            }
            if Instant::now() >= deadline {
                return Ok(Some(false));
            }
            self.wait(None, deadline)?;
        }
    }

    /// Waits for a report, or for `other`, which is returned.
    fn wait(
        &self,
        other: Option<BorrowedFd<'_>>,
        deadline: Instant,
    ) -> Result<Option<Wakeup>, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).expect("deadlines are at most some days ahead");
        let other_first = other.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let open = self.parts.iter().filter(|part| !part.is_gone);
        let mut polled: Vec<PollFd<'_>> = other_first
            .into_iter()
            .chain(open.map(|part| PollFd::new(&part.connection, PollFlags::IN)))
            .collect();
        let revents = match rustix::event::poll(&mut polled, Some(&left)) {
            Ok(_) => polled[0].revents(),
            // The signal may be SIGWINCH.
            Err(rustix::io::Errno::INTR) => return Ok(Some(Wakeup::OtherReadable)),
            Err(error) => return Err(Error::Wait(error)),
        };
        Ok(match other {
            Some(_) if revents.intersects(PollFlags::HUP | PollFlags::ERR) => {
                Some(Wakeup::OtherClosed)
            }
            Some(_) if !revents.is_empty() => Some(Wakeup::OtherReadable),
            _ => None,
        })
    }

    /// Processes one report, if there is one.
    fn take_one(&mut self) -> Result<bool, Error> {
        for at in 0..self.parts.len() {
            if self.parts[at].is_gone {
                continue;
            }
            match self.parts[at].connection.try_receive() {
                Ok(Some((message, descriptor))) => {
                    self.take(at, message, descriptor)?;
                    return Ok(true);
                }
                Ok(None) => {}
                Err(ConnectionError::Gone(_)) => self.parts[at].is_gone = true,
                Err(error) if self.parts[at].connection.machine().is_none() => {
                    return Err(error.into());
                }
                Err(error) => self.lose(at, &error)?,
            }
        }
        Ok(false)
    }

    /// Reads the counters of every edge.
    pub fn sample(&mut self) {
        self.edges.sample(self.begin.elapsed());
    }

    /// Names of the machines that cannot be reached.
    pub fn unreachable_machines(&self) -> Vec<String> {
        let unreachable = self.unreachable.iter();
        unreachable.map(|one| one.machine.clone()).collect()
    }
}

/// Connects to the keeper of a node: of the named dataflow, or of the only running one.
pub fn connect_to_node(name: Option<&str>, node: &str, program: &str) -> Result<Connection, Error> {
    let found = places::find(name)?;
    if let [part] = found.parts.as_slice()
        && let Some(place) = part.place()
    {
        return place.connect(program);
    }
    let state = State::open(&found, program, false)?;
    state.place_of_named(node)?.connect(program)
}

/// No part of a dataflow can be reached.
pub(crate) fn not_reached(dataflow: &str, unreachable: &[Unreachable]) -> Error {
    let reasons = unreachable.iter().map(|one| one.reason.clone());
    Error::NotReached {
        dataflow: dataflow.to_owned(),
        reasons: reasons.collect(),
    }
}
