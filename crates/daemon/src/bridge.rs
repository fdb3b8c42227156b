//! All links of a machine: its peers, the streams that arrive, and the streams of commands.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender as RequestSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use nervure_coordinator::Role;
use nervure_identity::PublicKey;
use nervure_link::policy::Refusal;
use nervure_link::qos::{self, Qos};
use nervure_link::shell::{IncomingStream, Link, LinkEvent, OutgoingStream};
use nervure_protocol::daemon_to_cli::LinkFigures;

use crate::clock::FleetClock;
use crate::peers::Peer;

/// The longest wait for a change; each change ends it.
const REST: Duration = Duration::from_secs(3600);

/// Number of removed runs whose streams are refused. A machine that is stopped later opens them again.
const REMEMBERED: usize = 64;

/// Prefixes of the streams for commands, before the id of the request. Those of topics begin with
/// the id of a run, which has hexadecimal digits only.
const ASKS: &str = "asks/";
const ANSWERS: &str = "answers/";

/// The most messages of a command, and of the answers to it, that wait or are in flight.
const ASKS_DEPTH: u32 = 64;
pub(crate) const ANSWERS_DEPTH: u32 = 256;

/// Lifespan of a message of a command: it is not carried out after a long interruption of the link.
const ASK_LIFESPAN: Duration = Duration::from_secs(3);

/// A request of a command on another machine.
#[derive(Debug)]
pub(crate) struct Request {
    /// The key of the machine.
    pub peer: PublicKey,
    /// The id of the request.
    pub id: String,
    /// The messages of the command.
    pub asks: IncomingStream,
}

/// A stream of answers that is awaited.
#[derive(Debug)]
pub(crate) struct Awaited<'b> {
    bridge: &'b Bridge,
    name: String,
}

impl Awaited<'_> {
    /// Waits until the machine has opened the stream of its answers.
    pub fn wait(&self, peer: PublicKey, timeout: Duration) -> Option<IncomingStream> {
        let place = (peer, self.name.clone());
        let state = self.bridge.lock();
        let waited = self
            .bridge
            .changed
            .wait_timeout_while(state, timeout, |state| !state.arrived.contains_key(&place));
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.arrived.remove(&place)
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let mut state = self.bridge.lock();
        state.awaited.remove(&self.name);
        state.arrived.retain(|(_, name), _| *name != self.name);
    }
}

/// All links of a machine, and the streams that arrive on them.
#[derive(Debug)]
pub(crate) struct Bridge {
    /// Name of this machine.
    own: String,
    link: Link,
    state: Mutex<State>,
    changed: Condvar,
    /// Number of changes that wake waiting threads: connections, streams that arrived, changes of peers and
    /// of nodes, runs that ended.
    changes: AtomicU64,
    requests: RequestSender<Request>,
    clock: FleetClock,
}

#[derive(Debug, Default)]
struct State {
    /// Names of streams with answers that commands of this machine await.
    awaited: HashSet<String>,
    peers: HashMap<String, Peer>,
    /// Machines that were revoked, or wait for approval.
    excluded: HashSet<String>,
    /// Streams that no stand-in has taken yet, by the peer's key and their name.
    arrived: HashMap<(PublicKey, String), IncomingStream>,
    /// Topics of other machines without further samples, by the peer's key and the name of their
    /// streams.
    closed: HashSet<(PublicKey, String)>,
    /// The runs that were removed last.
    removed: VecDeque<String>,
    /// Number of times that each peer has lost its state, and with it the messages sent to it before.
    losses: HashMap<PublicKey, u64>,
    /// Wakers that are called at each change, with a number each.
    watching: HashMap<u64, Waker>,
    last_watching: u64,
}

impl State {
    /// Whether a stream is of a run that was removed.
    fn is_removed(&self, stream: &str) -> bool {
        run_of(stream).is_some_and(|run| self.removed.iter().any(|removed| removed == run))
    }
}

/// The run of a stream.
fn run_of(stream: &str) -> Option<&str> {
    stream.split_once('/').map(|(run, _)| run)
}

fn removed() -> Refusal {
    Refusal::because("the dataflow was removed")
}

impl Bridge {
    /// Takes over a link. Requests of commands on other machines are sent to `requests`.
    pub fn start(
        own: String,
        link: Link,
        requests: RequestSender<Request>,
    ) -> std::io::Result<Arc<Self>> {
        let bridge = Arc::new(Self {
            own,
            link,
            requests,
            state: Mutex::default(),
            changed: Condvar::new(),
            changes: AtomicU64::new(0),
            clock: FleetClock::default(),
        });
        let for_thread = Arc::clone(&bridge);
        std::thread::Builder::new()
            .name("nervure-arrive".into())
            .spawn(move || for_thread.take_events())?;
        Ok(bridge)
    }

    /// The clock that the machines share.
    pub fn clock(&self) -> &FleetClock {
        &self.clock
    }

    /// The state of the link's socket, if it has failed.
    pub fn failure(&self) -> Option<String> {
        self.link.failure()
    }

    /// Connects to a machine, or lets it connect; again if it has moved. `None` for a machine that
    /// is no peer any more: its key is forbidden, and its streams end.
    pub fn set_peer(&self, machine: &str, peer: Option<Peer>) {
        let known = {
            let mut state = self.lock();
            match peer {
                Some(peer) => {
                    state.excluded.remove(machine);
                    state.peers.insert(machine.to_owned(), peer)
                }
                None => {
                    state.excluded.insert(machine.to_owned());
                    state.peers.remove(machine)
                }
            }
        };
        if let Some(old) = known.filter(|old| peer.is_none_or(|peer| peer.key != old.key)) {
            self.link.forbid(old.key);
            let mut state = self.lock();
            state.arrived.retain(|(of, _), _| *of != old.key);
            state.closed.retain(|(of, _)| *of != old.key);
        }
        let moved = |old: Peer| {
            let of = |peer: Peer| (peer.key, peer.address, peer.dials);
            peer.is_none_or(|peer| of(peer) != of(old))
        };
        if let Some(peer) = peer.filter(|_| known.is_none_or(moved)) {
            // A peer that this end dials may also connect: its address may be outdated here.
            self.link.allow(peer.key);
            if let Some(address) = peer.address.filter(|_| peer.dials) {
                // Fails if the address cannot be sent to; the next report of the peer has another.
                drop(self.link.connect(address, peer.key));
            }
        }
        self.on_change();
    }

    /// The name and the role of the machine with this key; `None` if it is not paired. The role limits its
    /// requests ([`Role::may_ask`]).
    pub fn machine_of(&self, peer: PublicKey) -> Option<(String, Role)> {
        let state = self.lock();
        let mut peers = state.peers.iter();
        let (machine, known) = peers.find(|(_, known)| known.key == peer)?;
        Some((machine.clone(), known.role))
    }

    /// Opens a stream that belongs to no dataflow.
    pub fn open_stream(&self, peer: PublicKey, name: &str, qos: Qos) -> Option<OutgoingStream> {
        self.link.peer(peer).open(name, qos).ok()
    }

    /// Takes a stream that has arrived from a machine.
    pub fn take_stream(&self, peer: PublicKey, name: &str) -> Option<IncomingStream> {
        self.lock().arrived.remove(&(peer, name.to_owned()))
    }

    /// Takes the streams of this name that have arrived from all machines.
    pub fn take_streams(&self, name: &str) -> Vec<(PublicKey, IncomingStream)> {
        let mut state = self.lock();
        let arrived = state.arrived.extract_if(|(_, of), _| of == name);
        arrived.map(|((peer, _), stream)| (peer, stream)).collect()
    }

    /// Refuses the streams of a removed run, also those that arrive later.
    pub fn forget(&self, run: &str) {
        let of_run = |name: &str| run_of(name) == Some(run);
        let mut state = self.lock();
        state.closed.retain(|(_, name)| !of_run(name));
        if state.removed.len() == REMEMBERED {
            state.removed.pop_front();
        }
        state.removed.push_back(run.to_owned());
        let left: Vec<_> = state
            .arrived
            .extract_if(|(_, name), _| of_run(name))
            .collect();
        drop(state);
        for (_, stream) in left {
            stream.close(removed());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_events(&self) {
        while self.link.failure().is_none() {
            match self.link.next_event(REST) {
                Some(LinkEvent::Opened { peer, name, stream }) if name.starts_with(ASKS) => {
                    let (peer, id) = (peer, name[ASKS.len()..].to_owned());
                    let asks = stream;
                    let _ = self.requests.send(Request { peer, id, asks });
                }
                Some(LinkEvent::Opened { name, stream, .. })
                    if name.starts_with(ANSWERS) && !self.lock().awaited.contains(&name) =>
                {
                    stream.close(Refusal::because("the command has ended"));
                }
                Some(LinkEvent::Opened { peer, name, stream }) => {
                    let place = (peer, name);
                    let mut state = self.lock();
                    if state.is_removed(&place.1) {
                        drop(state);
                        stream.close(removed());
                        continue;
                    }
                    // A peer that has restarted opens its streams again.
                    state.closed.remove(&place);
                    state.arrived.insert(place, stream);
                    drop(state);
                    self.on_change();
                }
                Some(LinkEvent::Forgotten { peer, .. }) => {
                    self.lock().arrived.retain(|(of, _), _| *of != peer);
                    self.on_change();
                }
                Some(LinkEvent::PeerLost { peer, .. }) => {
                    *self.lock().losses.entry(peer).or_default() += 1;
                    self.on_change();
                }
                Some(LinkEvent::Connected { .. }) => self.on_change(),
                _ => {}
            }
        }
    }

    /// Counts a change, which ends all waits for one.
    pub fn on_change(&self) {
        let state = self.lock();
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_all();
        state.watching.values().for_each(Waker::wake_by_ref);
    }

    /// The number of changes so far.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Waits for a change after the first `seen`, or the timeout.
    pub fn wait_for_change(&self, seen: u64, timeout: Option<Duration>) {
        let is_unchanged = |_: &mut State| self.changes() == seen;
        let timeout = timeout.unwrap_or(REST);
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), timeout, is_unchanged);
        drop(waited);
    }

    /// Whether a machine was a peer, and is none any more: its topics have ended.
    pub fn is_excluded(&self, machine: &str) -> bool {
        self.lock().excluded.contains(machine)
    }

    /// Connects to a machine, even if that one is to connect: it may not know the address of this one.
    pub fn dial(&self, peer: Peer) {
        if let Some(address) = peer.address {
            // Fails if the address cannot be sent to now.
            let _ = self.link.connect(address, peer.key);
        }
    }

    /// The other machines, and how they are reached.
    pub fn peers(&self) -> Vec<(String, Peer)> {
        let state = self.lock();
        let peers = state.peers.iter();
        peers.map(|(name, peer)| (name.clone(), *peer)).collect()
    }

    /// The other machines.
    pub fn machines(&self) -> Vec<String> {
        let mut machines: Vec<_> = self.lock().peers.keys().cloned().collect();
        machines.sort();
        machines
    }

    /// Time since anything has arrived from a machine; `None` if nothing has yet.
    pub fn silence(&self, machine: &str) -> Option<Duration> {
        let status = self.link.peer(self.key_of(machine)?).status()?;
        (status.datagram_bytes_received > 0).then(|| status.last_arrival.elapsed())
    }

    /// The link to a machine; `None` if nothing has arrived over it yet.
    pub fn link_figures(&self, machine: &str) -> Option<LinkFigures> {
        let status = self.link.peer(self.key_of(machine)?).status()?;
        let nanos = |time: Duration| time.as_nanos().try_into().unwrap_or(u64::MAX);
        (status.datagram_bytes_received > 0).then(|| LinkFigures {
            round_trip_nanos: nanos(status.path.rtt),
            queue_delay_nanos: nanos(status.path.queue_delay),
            loss: status.path.loss,
            bytes_per_second: status.path.bytes_per_second,
            in_flight_bytes: status.path.in_flight_bytes,
            packets_sent: status.packets_sent,
            sent_bytes: status.datagram_bytes_sent,
            received_bytes: status.datagram_bytes_received,
        })
    }

    /// Opens the stream for the messages of a command.
    pub fn open_asks(&self, peer: PublicKey, id: &str) -> Option<OutgoingStream> {
        let qos = Qos {
            traffic_class: qos::TrafficClass::Control,
            lifespan: Some(ASK_LIFESPAN),
            ..Qos::new(qos::Delivery::keep_all(ASKS_DEPTH))
        };
        self.link.peer(peer).open(&format!("{ASKS}{id}"), qos).ok()
    }

    /// Awaits the stream of the answers to a request.
    pub fn await_answers(&self, id: &str) -> Awaited<'_> {
        let name = format!("{ANSWERS}{id}");
        self.lock().awaited.insert(name.clone());
        Awaited { bridge: self, name }
    }

    /// Opens the stream of the answers to a request. Samples and logs go after everything else.
    pub fn open_answers(&self, peer: PublicKey, id: &str, is_bulk: bool) -> Option<OutgoingStream> {
        let qos = Qos {
            traffic_class: match is_bulk {
                true => qos::TrafficClass::Bulk,
                false => qos::TrafficClass::Default,
            },
            ..Qos::new(qos::Delivery::keep_all(ANSWERS_DEPTH))
        };
        let name = format!("{ANSWERS}{id}");
        self.link.peer(peer).open(&name, qos).ok()
    }

    /// The key of a machine.
    pub fn key_of(&self, machine: &str) -> Option<PublicKey> {
        self.lock().peers.get(machine).map(|peer| peer.key)
    }

    /// Takes the stream of this name that the machine has opened last.
    pub fn take_arrived(&self, machine: &str, name: &str) -> Option<IncomingStream> {
        self.take_stream(self.key_of(machine)?, name)
    }

    /// Gives back a stream for the next keeper of the run, unless there is a newer one.
    pub fn put_back(&self, machine: &str, name: &str, stream: IncomingStream) {
        let Some(key) = self.key_of(machine) else {
            return;
        };
        let mut state = self.lock();
        if state.is_removed(name) {
            drop(state);
            return stream.close(removed());
        }
        state
            .arrived
            .entry((key, name.to_owned()))
            .or_insert(stream);
    }

    /// Notes that no sample follows on a topic of a machine.
    pub fn note_closed(&self, machine: &str, name: &str) {
        if let Some(key) = self.key_of(machine) {
            self.lock().closed.insert((key, name.to_owned()));
        }
        self.on_change();
    }

    /// Whether a topic of a machine has no samples apart from those that have arrived.
    pub fn is_closed(&self, machine: &str, name: &str) -> bool {
        self.key_of(machine)
            .is_some_and(|key| self.lock().closed.contains(&(key, name.to_owned())))
    }

    /// Number of times that a machine has lost its state, by restarts of its daemon.
    pub fn losses(&self, machine: &str) -> u64 {
        let state = self.lock();
        let peer = state.peers.get(machine);
        peer.and_then(|peer| state.losses.get(&peer.key).copied())
            .unwrap_or_default()
    }

    /// The name of this machine.
    pub fn own(&self) -> &str {
        &self.own
    }
}

/// Has a waker called at each change, until dropped.
pub(crate) struct Watching<'b> {
    bridge: &'b Bridge,
    number: u64,
}

impl<'b> Watching<'b> {
    pub fn begin(bridge: &'b Bridge, waker: &Waker) -> Self {
        let mut state = bridge.lock();
        state.last_watching += 1;
        let number = state.last_watching;
        state.watching.insert(number, waker.clone());
        Self { bridge, number }
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.bridge.lock().watching.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use nervure_identity::KeyPair;
    use nervure_link::shell::LinkConfig;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn streams_of_a_removed_run_are_closed_and_later_ones_refused() {
        let keys = [1, 2].map(|number| KeyPair::from_seed([number; 32]));
        let ids = keys.each_ref().map(KeyPair::public);
        let [receiving, sending] = keys.map(|key| {
            let address = "127.0.0.1:0".parse().expect("an address");
            let allow = vec![ids[1]];
            let config = LinkConfig::new(address, key);
            Link::bind(LinkConfig { allow, ..config }).expect("a socket")
        });
        let peer = sending
            .connect(receiving.local_address(), ids[0])
            .expect("the address is good");
        let (requests, _received) = channel();
        let bridge = Bridge::start("edge".to_owned(), receiving, requests).expect("a thread");
        let open = |name: &str| {
            let qos = Qos::new(qos::Delivery::keep_all(4));
            peer.open(name, qos).expect("the name is short")
        };
        let (removed, other) = (open("1f/camera/image"), open("2e/camera/image"));
        for stream in [&removed, &other] {
            assert!(stream.wait_opened(TIMEOUT).expect("it is accepted"));
            stream.send(vec![0; 1000]).expect("there is room");
        }
        let arrived = || bridge.lock().arrived.len();
        loop {
            let seen = bridge.changes();
            if arrived() == 2 {
                break;
            }
            bridge.wait_for_change(seen, Some(TIMEOUT));
        }
        bridge.forget("1f");
        assert_eq!(arrived(), 1);
        let left = || {
            bridge
                .link
                .peers()
                .iter()
                .map(|peer| peer.incoming.len())
                .sum::<usize>()
        };
        assert_eq!(left(), 1, "its samples are dropped");
        let again = open("1f/camera/image");
        let refused = loop {
            match again.wait_opened(TIMEOUT) {
                // It was opened before it was closed.
                Ok(_) => match again.send(vec![0; 1000]) {
                    Ok(()) => {}
                    Err(error) => break error.to_string(),
                },
                Err(error) => break error.to_string(),
            }
        };
        assert!(refused.contains("the dataflow was removed"), "{refused}");
        assert_eq!(arrived(), 1);
    }
}
