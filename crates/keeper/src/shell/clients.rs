//! The clients: `run`, and those of the public socket.

use std::{collections::BTreeMap, rc::Rc, time::Duration};

use nervure_protocol::{cli_to_keeper::Watch, keeper_to_cli, report::Report};
use nervure_shm::{Listener, Peer};
use rustix::{
    event::epoll,
    fd::{AsFd, OwnedFd},
};

use super::{refusals::Refusals, report_link::ReportLink, retry::Retry, token::Token};
use crate::machine::{Audience, Machine, STARTER};

/// A client that has sent nothing for this long may be disconnected in favour of another when all
/// places are taken. Commands send their next message at once. The time is long enough for the
/// first message of one of many clients that connect at the same moment.
const CLIENT_IDLE_AFTER: Duration = Duration::from_secs(1);

/// The public socket and the connections.
#[derive(Debug)]
pub struct Clients {
    /// The most clients besides the starter.
    pub max: usize,
    pub listener: Option<Listener>,
    /// By number. Numbers are not used again: epoll may still report an event of a connection that
    /// was just closed.
    pub connected: BTreeMap<usize, Client>,
    pub next: usize,
    pub refusals: Refusals,
    /// When to accept again, after a connection could not be accepted.
    pub accepting: Retry,
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    pub peer: Peer,
    pub link: ReportLink,
    /// When it connected, or sent its last message.
    pub last_active: Duration,
    /// Becomes readable when its process has ended; `None` when that is in another pid namespace.
    pub _pidfd: Option<OwnedFd>,
    /// The reports that it gets.
    pub follows: Option<Watch>,
    /// The node whose control socket it is.
    pub node: Option<usize>,
}

impl Client {
    /// A connection that was just opened.
    pub fn new(peer: Peer, link: ReportLink, pidfd: Option<OwnedFd>, now: Duration) -> Self {
        Self {
            peer,
            link,
            last_active: now,
            _pidfd: pidfd,
            follows: None,
            node: None,
        }
    }
}

impl Clients {
    /// No clients yet, and at most `max` besides the starter.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            listener: None,
            connected: BTreeMap::new(),
            next: STARTER + 1,
            refusals: Refusals::default(),
            accepting: Retry::default(),
        }
    }

    /// Sends a report to the clients that follow.
    pub fn report(
        &mut self,
        message: &Report,
        descriptor: Option<&Rc<OwnedFd>>,
        audience: Audience,
        now: Duration,
    ) {
        let is_log = matches!(message, Report::Log(_));
        let is_of_observer = audience == Audience::ObserversToo;
        let wants =
            |watch: Watch| (watch.logs || !is_log) && !(watch.without_observers && is_of_observer);
        for client in self.connected.values_mut() {
            if client.follows.is_some_and(wants) {
                client.link.send(message, descriptor.cloned(), now);
            }
        }
    }

    /// Sends an answer to a client.
    pub fn answer(
        &mut self,
        client: usize,
        message: &keeper_to_cli::Message,
        descriptor: Option<Rc<OwnedFd>>,
    ) {
        if let Some(client) = self.client(client) {
            client.link.answer(message, descriptor);
        }
    }

    /// Sends reports to a client from now on.
    pub fn follow(&mut self, client: usize, watch: Watch) {
        if let Some(client) = self.client(client) {
            client.follows = Some(watch);
        }
    }

    /// Closes the connection of a client.
    pub fn remove(&mut self, client: usize) {
        self.connected.remove(&client);
    }

    /// True when as many clients are connected as are allowed.
    pub fn are_full(&self) -> bool {
        let besides_starter = |number: &&usize| **number != STARTER;
        self.connected.keys().filter(besides_starter).count() >= self.max
    }

    /// The client that has started the keeper, while it is connected.
    pub fn starter(&self) -> Option<&Client> {
        self.connected.get(&STARTER)
    }

    /// True while messages for the client that has started the keeper wait to be sent.
    pub fn starter_waits(&self) -> bool {
        self.starter()
            .is_some_and(|starter| starter.link.is_waiting())
    }

    /// Sends the summary of omitted log records to the starter with the next flush.
    pub fn sum_up_now(&mut self, now: Duration) {
        if let Some(starter) = self.client(STARTER) {
            starter.link.sum_up_now(now);
        }
    }

    /// The client that has been idle longest, of those that may be disconnected: it does not
    /// follow, and is neither a node nor keeps the place of one.
    pub fn idlest(&self, machine: &Machine, now: Duration) -> Option<(usize, Duration)> {
        let may_give_way = |number: usize, client: &Client| {
            number != STARTER
                && client.follows.is_none()
                && client.node.is_none()
                && !machine.keeps_place(number)
        };
        self.connected
            .iter()
            .filter(|(number, client)| may_give_way(**number, client))
            .map(|(number, client)| (*number, now.saturating_sub(client.last_active)))
            .filter(|(_, idle)| *idle >= CLIENT_IDLE_AFTER)
            .max_by_key(|(_, idle)| *idle)
    }

    /// When to flush again.
    pub fn deadline(&self) -> Option<Duration> {
        let links = self.connected.values();
        let links = links.filter_map(|client| client.link.deadline());
        links
            .chain(self.refusals.deadline())
            .chain(self.accepting.deadline())
            .min()
    }

    /// True when no message waits to be sent.
    pub fn have_received_all(&self) -> bool {
        self.connected
            .values()
            .all(|client| !client.link.is_waiting())
    }

    /// Watches the public socket again, some time after a connection could not be accepted. Commands that stop
    /// the dataflow connect there.
    pub fn resume_accepting(&mut self, epoll: &OwnedFd, now: Duration) {
        if self.accepting.deadline().is_none_or(|at| now < at) {
            return;
        }
        let Some(listener) = &self.listener else {
            return;
        };
        let watched = epoll::add(
            epoll,
            listener.as_fd(),
            Token::Listener.pack(),
            epoll::EventFlags::IN,
        );
        self.accepting.tried(watched.is_err(), false, now);
    }

    /// Accepts no further connections.
    pub fn stop_listening(&mut self) {
        self.listener = None;
    }

    pub fn client(&mut self, client: usize) -> Option<&mut Client> {
        self.connected.get_mut(&client)
    }
}
