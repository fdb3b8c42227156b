//! The public socket of a keeper, and the connections of its clients.

use std::{collections::BTreeMap, io, rc::Rc, time::Duration};

use nervure_protocol::{
    address::KeeperAddress,
    cli_to_keeper::Message,
    decode, encode, keeper_to_cli,
    keeper_to_run::{self, Level},
};
use nervure_shm::{Listener, Peer, Received, Seqpacket, utc_nanos};
use rustix::{
    fd::{AsFd, OwnedFd},
    process::{Pid, PidfdFlags},
};

use super::{
    KeeperError, Shell, Token,
    report_link::{Reader, ReportLink},
    slot::Slot,
    system,
};
use crate::machine::{Event, Machine};

/// A client that was silent for this long gives way to another when there is no place left. Commands send their next
/// message at once; a client that connects at the same time as many others is not cut off before its first.
const CLIENT_IDLE_AFTER: Duration = Duration::from_secs(1);

/// The public socket, and who is connected to it.
#[derive(Debug)]
pub struct Clients {
    max: usize,
    listener: Option<Listener>,
    /// By numbers that are not used again: epoll may still report on one that has just left.
    connected: BTreeMap<usize, Client>,
    next: usize,
}

#[derive(Debug)]
struct Client {
    peer: Peer,
    link: ReportLink,
    /// When it connected, or sent a message, last.
    heard: Duration,
    /// Becomes readable when its process has ended; `None` when that is in another pid namespace.
    _pidfd: Option<OwnedFd>,
    follows: Option<Follows>,
    /// The node that it is, as which it is told and heard.
    guest: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Follows {
    logs: bool,
}

impl Clients {
    /// At most so many, and none yet.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            listener: None,
            connected: BTreeMap::new(),
            next: 0,
        }
    }

    /// Sends a report to those who follow.
    pub fn report(
        &mut self,
        message: &keeper_to_run::Message,
        descriptor: Option<&Rc<OwnedFd>>,
        now: Duration,
    ) {
        let is_log = matches!(message, keeper_to_run::Message::Log(_));
        for client in self.connected.values_mut() {
            if client
                .follows
                .is_some_and(|follows| follows.logs || !is_log)
            {
                client.link.send(message, descriptor.cloned(), now);
            }
        }
    }

    /// Sends an answer to one.
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

    /// One wants every report from now on.
    pub fn follow(&mut self, client: usize, logs: bool) {
        if let Some(client) = self.client(client) {
            client.follows = Some(Follows { logs });
        }
    }

    /// Closes the connection of one.
    pub fn remove(&mut self, client: usize) {
        self.connected.remove(&client);
    }

    /// The client that has been silent longest, of those that may give way: every message has been answered, nothing is
    /// sent to it unasked, and it is no node.
    fn idlest(&self, machine: &Machine, now: Duration) -> Option<(usize, Duration)> {
        let may_give_way = |number: usize, client: &Client| {
            client.follows.is_none() && client.guest.is_none() && !machine.keeps_place(number)
        };
        self.connected
            .iter()
            .filter(|(number, client)| may_give_way(**number, client))
            .map(|(number, client)| (*number, now.saturating_sub(client.heard)))
            .filter(|(_, silent)| *silent >= CLIENT_IDLE_AFTER)
            .max_by_key(|(_, silent)| *silent)
    }

    /// When to flush again.
    pub fn deadline(&self) -> Option<Duration> {
        self.connected
            .values()
            .filter_map(|client| client.link.deadline())
            .min()
    }

    /// True when nothing waits to be sent.
    pub fn have_all(&self) -> bool {
        self.connected
            .values()
            .all(|client| !client.link.is_waiting())
    }

    /// Nobody can connect any more.
    pub fn listen_no_more(&mut self) {
        self.listener = None;
    }

    fn client(&mut self, client: usize) -> Option<&mut Client> {
        self.connected.get_mut(&client)
    }
}

impl Shell {
    /// Opens the public socket. A dataflow runs without one, too.
    pub(super) fn listen(&mut self) {
        let address = KeeperAddress {
            dataflow: self.machine.plan().dataflow.clone(),
            keeper: std::process::id(),
            uid: rustix::process::geteuid().as_raw(),
        };
        let opened = Listener::bind(&address.to_string()).map_err(KeeperError::from_listener);
        let watched = opened.and_then(|listener| {
            self.watch(listener.as_fd(), Token::Listener)?;
            Ok(listener)
        });
        match watched {
            Ok(listener) => self.clients.listener = Some(listener),
            Err(error) => {
                let text = format!("this dataflow cannot be looked into: {error}");
                self.log(None, Level::Warn, "keeper", text);
            }
        }
    }

    pub(super) fn accept(&mut self) {
        let Some(listener) = &self.clients.listener else {
            return;
        };
        let socket = match listener.accept() {
            Ok(Some(socket)) => socket,
            Ok(None) => return,
            Err(error) => {
                // Those who wait would keep the loop busy for ever.
                self.clients.listen_no_more();
                let text = format!("this dataflow cannot be looked into any more: {error}");
                return self.log(None, Level::Error, "keeper", text);
            }
        };
        if let Err(text) = self.try_accept(socket) {
            self.log(None, Level::Warn, "keeper", text);
        }
    }

    fn try_accept(&mut self, socket: Seqpacket) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("a client was not let in: {error}");
        let peer = socket.peer().map_err(|error| failed(&error))?;
        let own = rustix::process::geteuid().as_raw();
        if peer.uid != own && peer.uid != 0 {
            return Err(format!(
                "process {} of user {} was not let in: this dataflow is of user {own}",
                peer.pid, peer.uid
            ));
        }
        self.make_room();
        if self.clients.connected.len() >= self.clients.max {
            let reason = format!(
                "{} clients are connected already, the most",
                self.clients.max
            );
            let hint = Some(
                "end some of them, or start the dataflow with a higher `ulimit -Hn`".to_owned(),
            );
            let refused = keeper_to_cli::Refused {
                reason: reason.clone(),
                hint,
            };
            if let Ok(bytes) = encode(&keeper_to_cli::Message::Refused(refused)) {
                let _ = socket.send(&bytes, &[]);
            }
            return Err(failed(&reason));
        }
        let number = self.clients.next;
        let pid = i32::try_from(peer.pid).ok().and_then(Pid::from_raw);
        let pidfd = match pid.map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty())) {
            None => None,
            Some(Ok(pidfd)) => Some(pidfd),
            // It ended right after it had connected.
            Some(Err(rustix::io::Errno::SRCH)) => return Ok(()),
            Some(Err(error)) => return Err(failed(&error)),
        };
        self.watch(socket.as_fd(), Token::Client(number))
            .map_err(|error| failed(&error))?;
        if let Some(pidfd) = &pidfd {
            self.watch(pidfd.as_fd(), Token::ClientEnded(number))
                .map_err(|error| failed(&error))?;
        }
        let link = ReportLink::new(socket, Reader::Client);
        let client = Client {
            peer,
            link,
            heard: self.now(),
            _pidfd: pidfd,
            follows: None,
            guest: None,
        };
        self.clients.connected.insert(number, client);
        self.clients.next += 1;
        Ok(())
    }

    /// Cuts off the client that has been idle longest, where there is no place for another.
    fn make_room(&mut self) {
        if self.clients.connected.len() < self.clients.max {
            return;
        }
        let Some((client, silent)) = self.clients.idlest(&self.machine, self.now()) else {
            return;
        };
        let Some(found) = self.clients.client(client) else {
            return;
        };
        let reason = format!(
            "this connection was idle for {} s, and its place was needed for another client",
            silent.as_secs()
        );
        let refused = keeper_to_cli::Refused {
            reason,
            hint: Some("connect again".to_owned()),
        };
        if let (Some(socket), Ok(bytes)) = (
            found.link.socket(),
            encode(&keeper_to_cli::Message::Refused(refused)),
        ) {
            let _ = socket.send(&bytes, &[]);
        }
        let text = format!(
            "process {} was idle for {} s as a client, and has given its place to another",
            found.peer.pid,
            silent.as_secs()
        );
        self.log(None, Level::Info, "keeper", text);
        self.client_gone(client);
    }

    /// One message at a time: what the next one means may depend on the answer.
    pub(super) fn receive_from_client(&mut self, client: usize) {
        let now = self.now();
        let Some(found) = self.clients.client(client) else {
            return;
        };
        found.heard = now;
        if let Some(node) = found.guest {
            self.receive_from_node(node);
            if self.slots[node].is_closed() {
                self.client_gone(client);
            }
            return;
        }
        let pid = found.peer.pid;
        let Some(socket) = found.link.socket() else {
            return;
        };
        match socket.receive(&mut self.buffer) {
            Ok(Received::Packet(_)) => match decode::<Message>(&self.buffer) {
                Ok(message) => self.events.push_back(Event::ClientMessage {
                    client,
                    pid,
                    message,
                }),
                Err(error) => {
                    let text =
                        format!("process {pid} sent what is no message, and was cut off: {error}");
                    self.log(None, Level::Warn, "keeper", text);
                    self.client_gone(client);
                }
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(Received::Closed) | Err(_) => self.client_gone(client),
        }
    }

    /// A client's process has ended. What it said last is heard: a node may have taken its leave.
    pub(super) fn client_ended(&mut self, client: usize) {
        if let Some(node) = self.clients.client(client).and_then(|client| client.guest) {
            self.receive_from_node(node);
        }
        self.client_gone(client);
    }

    pub(super) fn client_gone(&mut self, client: usize) {
        if self.clients.client(client).is_some() {
            self.clients.remove(client);
            self.events.push_back(Event::ClientGone { client });
        }
    }

    /// Makes a client a guest, or a node that joins: its connection becomes the control socket of a node.
    pub(super) fn admit(&mut self, client: usize, node: usize) {
        let pid = self
            .clients
            .client(client)
            .map_or(0, |client| client.peer.pid);
        // What it lacks is no reason to end the dataflow.
        if let Err(error) = self.renew_pages(node) {
            self.log(
                None,
                Level::Error,
                "keeper",
                format!("process {pid} was not let in: {error}"),
            );
            self.client_gone(client);
        }
        if node == self.slots.len() {
            // Nothing is written to it: a guest has no output that the keeper sees.
            self.slots.push(Slot::new());
        }
        let Some(found) = self.clients.client(client) else {
            return;
        };
        found.guest = Some(node);
        let (socket, outbox) = std::mem::take(&mut found.link).into_parts();
        if let Some(socket) = socket {
            self.slots[node].begin_guest(socket, outbox);
        }
    }

    /// Sends what the clients take, and cuts those off that take nothing.
    pub(super) fn flush_clients(&mut self, now: Duration) {
        let mut behind = Vec::new();
        for (number, client) in &mut self.clients.connected {
            client.link.flush(now, utc_nanos());
            if client.link.is_behind() {
                behind.push((*number, client.peer.pid));
            }
        }
        for (client, pid) in behind {
            let text = format!("process {pid} watches and does not read: it was cut off");
            self.log(None, Level::Warn, "keeper", text);
            self.client_gone(client);
        }
    }
}

impl KeeperError {
    fn from_listener(error: io::Error) -> Self {
        system("cannot open the public socket")(error)
    }
}
