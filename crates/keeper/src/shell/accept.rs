//! Connections and messages of clients.

use std::{io, time::Duration};

use nervure_protocol::{
    address::KeeperAddress, cli_to_keeper::Message, decode, domain::Domain, encode, keeper_to_cli,
    report::Level,
};
use nervure_shm::{Listener, Received, Seqpacket, utc_nanos};
use rustix::{
    event::epoll,
    fd::AsFd,
    process::{Pid, PidfdFlags},
};
use tracing::debug;

use super::{
    clients::Client,
    error::{KeeperError, system},
    event_loop::Shell,
    report_link::{Reader, ReportLink},
    slot::Slot,
    token::Token,
};
use crate::machine::{Event, STARTER};

impl Shell {
    /// Makes the process that has started the keeper a client. Its end is seen at the connection
    /// alone, behind its last messages.
    pub(super) fn connect_starter(&mut self, socket: Seqpacket) -> Result<(), KeeperError> {
        let peer = socket.peer().map_err(system(
            "cannot identify the process that started the keeper",
        ))?;
        self.watch(socket.as_fd(), Token::Client(STARTER))?;
        let link = ReportLink::new(socket, Reader::Starter);
        let starter = Client::new(peer, link, None, self.now());
        self.clients.connected.insert(STARTER, starter);
        Ok(())
    }

    /// Opens the public socket. If that fails, the dataflow runs without one.
    pub(super) fn listen(&mut self) {
        let bind = || {
            let address = KeeperAddress {
                domain: Domain::of_environment().map_err(io::Error::other)?,
                dataflow: self.machine.plan().dataflow.clone(),
                keeper: std::process::id(),
                uid: rustix::process::geteuid().as_raw(),
            };
            Listener::bind(&address.to_string())
        };
        let opened = bind().map_err(system("cannot open the public socket"));
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

    /// Accepts a connection.
    pub(super) fn accept(&mut self) {
        let Some(listener) = &self.clients.listener else {
            return;
        };
        let socket = match listener.accept() {
            Ok(Some(socket)) => socket,
            Ok(None) => return,
            Err(error) => {
                // The pending connections would keep epoll returning at once.
                let paused = epoll::delete(&self.epoll, listener.as_fd());
                debug_assert!(paused.is_ok(), "the listener was watched");
                self.clients.accepting.tried(true, false, self.now());
                return self
                    .clients
                    .refusals
                    .add(format!("a client waits: {error}"));
            }
        };
        self.clients.accepting.tried(false, true, self.now());
        if let Err(reason) = self.try_accept(socket) {
            self.clients.refusals.add(reason);
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
        if self.clients.are_full() {
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
                rolled_back: false,
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
        debug!(client = number, pid = peer.pid, "client connected");
        let link = ReportLink::new(socket, Reader::Client);
        let client = Client::new(peer, link, pidfd, self.now());
        self.clients.connected.insert(number, client);
        self.clients.next += 1;
        Ok(())
    }

    /// Disconnects the client that has been idle longest when all places are taken.
    fn make_room(&mut self) {
        if !self.clients.are_full() {
            return;
        }
        let Some((client, idle)) = self.clients.idlest(&self.machine, self.now()) else {
            return;
        };
        let Some(found) = self.clients.client(client) else {
            return;
        };
        let reason = format!(
            "this connection was idle for {} s, and its place was needed for another client",
            idle.as_secs()
        );
        let refused = keeper_to_cli::Refused {
            reason,
            hint: Some("connect again".to_owned()),
            rolled_back: false,
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
            idle.as_secs()
        );
        self.log(None, Level::Info, "keeper", text);
        self.client_gone(client);
    }

    /// Receives one message: the meaning of the next may depend on the answer.
    pub(super) fn receive_from_client(&mut self, client: usize) {
        let now = self.now();
        let Some(found) = self.clients.client(client) else {
            return;
        };
        found.last_active = now;
        if let Some(node) = found.node {
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
                    let text = format!(
                        "process {pid} sent an invalid message, and was disconnected: {error}"
                    );
                    self.log(None, Level::Warn, "keeper", text);
                    self.client_gone(client);
                }
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(Received::Closed) | Err(_) => self.client_gone(client),
        }
    }

    /// A client's process has ended. Its last messages are received first: a node may have sent
    /// Goodbye.
    pub(super) fn client_ended(&mut self, client: usize) {
        if let Some(node) = self.clients.client(client).and_then(|client| client.node) {
            self.receive_from_node(node);
        }
        self.client_gone(client);
    }

    /// Closes the connection of a client, and notifies the machine.
    pub(super) fn client_gone(&mut self, client: usize) {
        if self.clients.client(client).is_some() {
            debug!(client, "client disconnected");
            self.clients.remove(client);
            self.events.push_back(Event::ClientGone { client });
        }
    }

    /// Makes a client a guest, or a node that joins: its connection becomes the control socket of a
    /// node.
    pub(super) fn admit(&mut self, client: usize, node: usize) {
        let pid = self
            .clients
            .client(client)
            .map_or(0, |client| client.peer.pid);
        // A shortage for a client does not end the dataflow.
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
            // A guest's stdout and stderr do not go to the keeper.
            self.slots.push(Slot::new());
        }
        let Some(found) = self.clients.client(client) else {
            return;
        };
        found.node = Some(node);
        let (socket, outbox) = std::mem::take(&mut found.link).into_parts();
        if let Some(socket) = socket {
            self.slots[node].begin_guest(socket, outbox);
        }
    }

    /// Sends queued messages, and disconnects clients that do not read.
    pub(super) fn flush_clients(&mut self, now: Duration) {
        self.clients.resume_accepting(&self.epoll, now);
        if let Some(text) = self.clients.refusals.take_line(now) {
            self.log(None, Level::Warn, "keeper", text);
        }
        let mut behind = Vec::new();
        for (number, client) in &mut self.clients.connected {
            client.link.flush(now, utc_nanos());
            if client.link.is_behind() {
                behind.push((*number, client.peer.pid));
            }
        }
        for (client, pid) in behind {
            let text = format!(
                "process {pid} follows the dataflow and does not read: it was disconnected"
            );
            self.log(None, Level::Warn, "keeper", text);
            self.client_gone(client);
        }
    }
}
