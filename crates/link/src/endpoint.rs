//! All peers of one socket: sessions over a carrier. Sans-IO.
//!
//! A peer is identified by its key. Its [`Session`] outlives the connections of the carrier: when a
//! connection is lost and made again, no accepted sample is lost.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    time::{Duration, Instant},
};

use crate::{
    budget::Budget,
    carrier::{
        Addresses, Carrier, CarrierEvent, ConnectError, DisconnectReason, Ecn, PublicKey,
        SessionId, Transmit,
    },
    memory::{Heap, Memory},
    path_watch::PathWatch,
    policy::{PeerPolicy, SharedPolicy, StreamPolicy},
    receiver::IncomingStatus,
    sender::OutgoingStatus,
    session::{Session, SessionConfig, SessionEvent, SessionStatus},
    timed::{Timed, TimedMap},
    trace::Record,
};

/// Delay until the next attempt to send a due packet that could not be sent.
const RETRY: Duration = Duration::from_micros(500);
/// The shortest time between two connection attempts to a peer.
const RECONNECT_PERIOD: Duration = Duration::from_secs(1);
/// The state of a peer that began the connection is kept this long after it was lost.
const FORGET_AFTER: Duration = Duration::from_secs(120);
/// While no connection is made, the next address of a peer is tried after this time.
const NEXT_TARGET_AFTER: Duration = Duration::from_secs(1);

/// Provides the memory for the samples of a peer.
pub type MemoryOf = Box<dyn FnMut(PublicKey) -> Box<dyn Memory> + Send>;

/// An event of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointEvent {
    /// A peer connected, for the first time or again.
    Connected {
        /// The key of the peer.
        peer: PublicKey,
        /// The address of the peer.
        address: SocketAddr,
    },
    /// The connection to a peer was lost. Accepted samples are kept.
    Disconnected {
        /// The key of the peer.
        peer: PublicKey,
        /// The reason.
        why: DisconnectReason,
    },
    /// The state of a peer was dropped: it was away for too long, or was closed.
    Forgotten {
        /// The key of the peer.
        peer: PublicKey,
        /// Accepted samples that were not delivered, or whose delivery is not confirmed.
        lost: u64,
    },
    /// A peer was refused.
    Refused {
        /// The key of the peer, if it sent one.
        peer: Option<PublicKey>,
        /// The source address of the attempt.
        address: SocketAddr,
        /// The reason.
        why: String,
        /// Number of other refusals since the last such event.
        more: u64,
    },
    /// An event of the session with a peer.
    Session {
        /// The key of the peer.
        peer: PublicKey,
        /// The event.
        event: SessionEvent,
    },
}

/// The state of a peer and of the streams in both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerStatus {
    /// The key of the peer.
    pub peer: PublicKey,
    /// The address of the peer, while it is connected.
    pub address: Option<SocketAddr>,
    /// The address to connect to, if this end began the connection.
    pub target: Option<SocketAddr>,
    /// Since when it is connected, if it is.
    pub connected_since: Option<Instant>,
    /// The path, and the counters of both directions.
    pub session: SessionStatus,
    /// The streams to the peer.
    pub outgoing: Vec<OutgoingStatus>,
    /// The streams of the peer.
    pub incoming: Vec<IncomingStatus>,
}

/// The sessions with all peers of a socket, over carrier `C`.
pub struct Endpoint<C> {
    carrier: C,
    config: SessionConfig,
    budget: Budget,
    memory_of: MemoryOf,
    policy: SharedPolicy,
    seed: u64,
    /// Number of sessions begun.
    begun: u64,
    peers: TimedMap<PublicKey, Peer>,
    by_session: BTreeMap<SessionId, PublicKey>,
    events: VecDeque<EndpointEvent>,
    /// Peers whose sessions may have events.
    eventful: BTreeSet<PublicKey>,
    /// Peers that may have opened streams which the application has not taken yet.
    opening: BTreeSet<PublicKey>,
    uses_coding: bool,
    /// When the trace began, if there is one.
    trace_began: Option<Instant>,
    trace: VecDeque<(PublicKey, Record)>,
}

struct Peer {
    session: Session,
    /// Its number among the sessions of the endpoint.
    number: u64,
    carried: Option<SessionId>,
    /// The address to connect to, if this end began the connection.
    target: Option<SocketAddr>,
    /// Other addresses of the peer, the next one to try first.
    alternatives: VecDeque<SocketAddr>,
    /// All addresses of the peer, if it has several, the preferred one first.
    addresses: Vec<SocketAddr>,
    /// When to try the next one, while no connection is made.
    next_target_at: Option<Instant>,
    /// When the last attempt to connect began.
    connected_at: Instant,
    carried_since: Instant,
    /// When to connect again.
    again_at: Option<Instant>,
    lost_at: Instant,
}

impl Peer {
    /// Notes which of its addresses is in use.
    fn use_address(&mut self, address: SocketAddr) {
        let place = self.alternatives.iter().position(|other| *other == address);
        if let Some((place, target)) = place.zip(self.target.as_mut()) {
            self.alternatives[place] = std::mem::replace(target, address);
        }
    }

    /// When its state is dropped, if it does not come back.
    fn forget_at(&self) -> Option<Instant> {
        let is_away = self.carried.is_none() && self.target.is_none();
        is_away.then(|| self.lost_at + FORGET_AFTER)
    }
}

impl Timed for Peer {
    fn timeout(&mut self) -> Option<Instant> {
        let carried = self.carried.and(self.session.poll_timeout());
        [
            carried,
            self.again_at,
            self.next_target_at,
            self.forget_at(),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

impl<C: Carrier> Endpoint<C> {
    /// An endpoint without peers. `seed` must be random and differ each time.
    pub fn new(carrier: C, config: SessionConfig, seed: u64) -> Self {
        let bounds = config.receiver;
        Self {
            carrier,
            config,
            budget: Budget::new(bounds.budget_bytes, bounds.shares),
            memory_of: Box::new(|_| Box::new(Heap)),
            policy: SharedPolicy::default(),
            seed,
            begun: 0,
            peers: TimedMap::new(),
            by_session: BTreeMap::new(),
            events: VecDeque::new(),
            eventful: BTreeSet::new(),
            opening: BTreeSet::new(),
            uses_coding: false,
            trace_began: None,
            trace: VecDeque::new(),
        }
    }

    /// Sets the memory for samples of peers that become known from now on, instead of the heap.
    pub fn set_memory(&mut self, memory_of: MemoryOf) {
        self.memory_of = memory_of;
    }

    /// Sets the policy for streams that are opened from now on, by peers and to them, instead of
    /// accepting all. Open streams of peers that it does not allow are closed.
    pub fn set_policy(&mut self, now: Instant, policy: StreamPolicy) {
        self.policy.set(policy);
        for key in self.peers.keys() {
            if let Some(peer) = self.peers.get_mut(&key) {
                peer.session.apply_policy(now);
            }
        }
    }

    /// Begins traces of the sessions with peers that become known from now on; see
    /// [`poll_trace`](Self::poll_trace).
    pub fn begin_trace(&mut self, now: Instant) {
        self.trace_began = Some(now);
    }

    /// Returns the oldest record of the trace, when all events have been taken.
    pub fn poll_trace(&mut self) -> Option<(PublicKey, Record)> {
        self.trace.pop_front()
    }

    /// Connects to a peer, and again whenever the connection is lost. Streams may be opened at
    /// once. If a connection was begun before, the peer may have moved to this address: the session
    /// continues from whichever address answers, a round trip later.
    ///
    /// # Errors
    /// When the address cannot be sent to, or too many sessions are open.
    pub fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        key: PublicKey,
    ) -> Result<(), ConnectError> {
        let begun_here = self
            .peers
            .get(&key)
            .is_some_and(|peer| peer.target.is_some());
        let session = self
            .by_session
            .iter()
            .find(|(_, peer)| begun_here && **peer == key);
        match session.map(|(session, _)| *session) {
            Some(session) => self.carrier.reconnect(now, session, to)?,
            None => {
                let carried = self.carrier.connect(now, to, key)?;
                self.by_session.insert(carried, key);
            }
        }
        let peer = self.peer(now, key);
        (peer.target, peer.connected_at, peer.again_at) = (Some(to), now, None);
        Ok(())
    }

    /// Connects to a peer that has several addresses, on different networks, say; the preferred one
    /// first. A connection to each of the first [`MAX_PATHS`](crate::carrier::quic::MAX_PATHS) is kept
    /// ready. When the peer does not answer on one, either end changes to another that works; the
    /// preferred one is returned to when it has worked for five seconds. Streams continue, and no
    /// sample is lost.
    ///
    /// # Errors
    /// When there is no address, the first one cannot be sent to, or too many sessions are open.
    pub fn connect_any(
        &mut self,
        now: Instant,
        to: &[SocketAddr],
        key: PublicKey,
    ) -> Result<(), ConnectError> {
        let (first, others) = to.split_first().ok_or(ConnectError::NoAddress)?;
        self.connect(now, *first, key)?;
        let peer = self.peer(now, key);
        peer.alternatives = others.iter().copied().collect();
        peer.session.watch = (!others.is_empty()).then(PathWatch::default);
        peer.next_target_at = (!others.is_empty()).then_some(now + NEXT_TARGET_AFTER);
        peer.addresses = to.to_vec();
        self.keep_ready(now, key);
        Ok(())
    }

    /// Lets the carrier keep a connection to each address of a peer.
    fn keep_ready(&mut self, now: Instant, key: PublicKey) {
        let session = self.by_session.iter().find(|(_, peer)| **peer == key);
        let Some((session, peer)) = session.zip(self.peers.get(&key)) else {
            return;
        };
        if peer.addresses.len() > 1 {
            self.carrier.keep_ready(now, *session.0, &peer.addresses);
        }
    }

    /// Changes to another path to a peer: one that is ready, or the next address.
    fn fail_over(&mut self, now: Instant, key: PublicKey) {
        let Some(peer) = self.peers.get_mut(&key) else {
            return;
        };
        if peer
            .carried
            .is_some_and(|session| self.carrier.fail_over(now, session))
        {
            return;
        }
        let (Some(current), Some(next)) = (peer.target, peer.alternatives.pop_front()) else {
            return;
        };
        peer.alternatives.push_back(current);
        if let Err(error) = self.connect(now, next, key) {
            self.events.push_back(EndpointEvent::Refused {
                peer: Some(key),
                address: next,
                why: error.to_string(),
                more: 0,
            });
        }
        let peer = self.peers.get_mut(&key).expect("it was just seen");
        peer.target = Some(next);
        peer.next_target_at = peer.carried.is_none().then_some(now + NEXT_TARGET_AFTER);
    }

    /// Ends the connection to a peer, and drops its state.
    pub fn close(&mut self, now: Instant, key: PublicKey) {
        self.close_for(now, key, &DisconnectReason::ClosedHere);
    }

    fn close_for(&mut self, now: Instant, key: PublicKey, why: &DisconnectReason) {
        let sessions: Vec<_> = self
            .by_session
            .iter()
            .filter(|(_, peer)| **peer == key)
            .map(|(session, _)| *session)
            .collect();
        sessions
            .into_iter()
            .for_each(|session| self.carrier.close(now, session, why.clone()));
        self.forget(key);
        self.on_carrier_events(now);
    }

    /// Forbids a key, such as a stolen robot's: ends the connections to its peer at once and drops
    /// the peer's state. The peer cannot connect again, unless it is allowed or connected to later.
    /// Other peers are not affected.
    pub fn forbid(&mut self, now: Instant, key: PublicKey) {
        if let Some(peer) = self.peers.get_mut(&key) {
            (peer.target, peer.again_at) = (None, None);
        }
        self.carrier.forbid(now, key);
        self.on_carrier_events(now);
        self.by_session.retain(|_, peer| *peer != key);
        self.forget(key);
    }

    /// Ends all connections. The packets that notify the peers are still to be sent.
    pub fn close_all(&mut self, now: Instant) {
        let peers = self.peers.keys();
        peers.into_iter().for_each(|key| self.close(now, key));
    }

    /// The session with a peer.
    pub fn session(&self, key: &PublicKey) -> Option<&Session> {
        self.peers.get(key).map(|peer| &peer.session)
    }

    /// The state of each peer, by its key.
    pub fn peers(&self) -> impl Iterator<Item = PeerStatus> {
        self.peers.iter().map(|(key, peer)| PeerStatus {
            peer: *key,
            address: peer
                .carried
                .and_then(|carried| self.carrier.address(carried)),
            target: peer.target,
            connected_since: peer.carried.map(|_| peer.carried_since),
            session: peer.session.status(),
            outgoing: peer.session.sender().streams().list().collect(),
            incoming: peer.session.receiver().incoming().list().collect(),
        })
    }

    /// Limits the rate of sending to a peer from now on, in bytes per second. Returns false for a
    /// peer that is not known.
    pub fn set_max_rate(&mut self, key: &PublicKey, bytes_per_second: u64) -> bool {
        let session = self.session_mut(key);
        session
            .map(|session| session.set_max_rate(bytes_per_second))
            .is_some()
    }

    /// The number of the session with a peer, which no other session of this endpoint has. The numbers of
    /// its streams hold in it alone.
    pub fn session_number(&self, key: &PublicKey) -> Option<u64> {
        self.peers.get(key).map(|peer| peer.number)
    }

    /// The session with a peer, for sending and receiving.
    pub fn session_mut(&mut self, key: &PublicKey) -> Option<&mut Session> {
        self.peers.get_mut(key).map(|peer| &mut peer.session)
    }

    /// Whether the session with any peer has used the erasure code; see [`Session::uses_coding`].
    pub fn uses_coding(&self) -> bool {
        self.uses_coding
    }

    /// Number of peers that were looked at so far.
    #[cfg(test)]
    pub(crate) fn looked_at(&self) -> u64 {
        self.peers.looked_at()
    }

    /// The carrier.
    pub fn carrier(&self) -> &C {
        &self.carrier
    }

    /// The carrier, for allowing peers.
    pub fn carrier_mut(&mut self) -> &mut C {
        &mut self.carrier
    }

    /// Processes a received packet, which may be anything from any source.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        from: impl Into<Addresses>,
        ecn: Option<Ecn>,
        mut packet: impl AsMut<[u8]>,
    ) {
        let datagram = self.carrier.handle_packet(now, from, ecn, packet.as_mut());
        if let Some((session, datagram)) = datagram
            && let Some(key) = self.by_session.get(&session)
            && let Some(peer) = self.peers.get_mut(key)
        {
            peer.session.on_datagram(now, ecn, datagram);
            let key = *key;
            self.end_violator(now, key);
        }
        self.on_carrier_events(now);
    }

    /// Ends the session with a peer that broke the protocol.
    fn end_violator(&mut self, now: Instant, key: PublicKey) {
        let violation = self
            .peers
            .get(&key)
            .and_then(|peer| peer.session.violation());
        if let Some(violation) = violation {
            let why = DisconnectReason::Protocol(violation.into());
            self.events.push_back(EndpointEvent::Disconnected {
                peer: key,
                why: why.clone(),
            });
            self.close_for(now, key, &why);
        }
    }

    /// Processes everything that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.carrier.poll_timeout().is_some_and(|at| at <= now) {
            self.carrier.handle_timeout(now);
        }
        for key in self.peers.due(now) {
            let Some(peer) = self.peers.get_mut(&key) else {
                continue;
            };
            let session_is_due = peer.session.poll_timeout().is_some_and(|at| at <= now);
            if peer.carried.is_some() && session_is_due {
                peer.session.handle_timeout(now);
            }
            let is_silent = match peer.carried {
                Some(_) => peer.session.is_path_dead(now),
                None => {
                    !peer.alternatives.is_empty() && peer.next_target_at.is_some_and(|at| at <= now)
                }
            };
            if is_silent {
                self.fail_over(now, key);
            }
            let Some(peer) = self.peers.get(&key) else {
                continue;
            };
            if peer.again_at.is_some_and(|at| at <= now) {
                self.reconnect(now, key);
            } else if peer.forget_at().is_some_and(|at| at <= now) {
                self.forget(key);
            }
        }
        self.on_carrier_events(now);
    }

    /// Appends the next packet to the buffer. Call it until it returns `None`, after every other
    /// call.
    pub fn poll_transmit(&mut self, now: Instant, packet: &mut Vec<u8>) -> Option<Transmit> {
        self.wake_carrier();
        let (peers, by_session) = (&mut self.peers, &self.by_session);
        let eventful = &mut self.eventful;
        let mut next = |session: SessionId, bytes: usize, out: &mut Vec<u8>| {
            let key = by_session.get(&session);
            eventful.extend(key);
            let peer = key.and_then(|key| peers.get_asleep(key));
            peer.filter(|peer| peer.carried == Some(session))
                .is_some_and(|peer| peer.session.next_datagram(now, bytes, out))
        };
        let transmit = self.carrier.poll_transmit(now, &mut next, packet);
        self.on_carrier_events(now);
        transmit
    }

    /// The latest time at which to call [`handle_timeout`](Self::handle_timeout). It is later than
    /// `now`, provided that all packets were sent.
    pub fn poll_timeout(&mut self, now: Instant) -> Option<Instant> {
        let timeouts = [self.peers.first_timeout(), self.carrier.poll_timeout()];
        let first = timeouts.into_iter().flatten().min()?;
        // Everything that was due has just been tried.
        Some(if first <= now { now + RETRY } else { first })
    }

    /// Lets the carrier ask sessions that may have datagrams, and notes that their peers may have
    /// events.
    fn wake_carrier(&mut self) {
        for key in self.peers.take_awake() {
            let Some(peer) = self.peers.get(&key) else {
                continue;
            };
            if let Some(session) = peer.carried {
                self.carrier.wake(session);
            }
            self.uses_coding |= peer.session.uses_coding();
            self.eventful.insert(key);
        }
    }

    /// Returns the oldest event.
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        self.poll_sessions(Session::poll_event)
            .or_else(|| self.poll_opened())
    }

    /// Returns the oldest event that is no [`ReceiverEvent::Opened`]; see
    /// [`Session::poll_event_but_opened`].
    ///
    /// [`ReceiverEvent::Opened`]: crate::receiver::ReceiverEvent::Opened
    pub fn poll_event_but_opened(&mut self) -> Option<EndpointEvent> {
        self.poll_sessions(Session::poll_event_but_opened)
    }

    fn poll_sessions(
        &mut self,
        poll: impl Fn(&mut Session) -> Option<SessionEvent>,
    ) -> Option<EndpointEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        self.wake_carrier();
        while let Some(key) = self.eventful.first().copied() {
            if let Some(peer) = self.peers.get_asleep(&key) {
                if let Some(event) = poll(&mut peer.session) {
                    return Some(EndpointEvent::Session { peer: key, event });
                }
                if peer.session.receiver().incoming().has_opened() {
                    self.opening.insert(key);
                }
                let records = peer.session.take_trace().map(|record| (key, record));
                self.trace.extend(records);
            }
            self.eventful.remove(&key);
        }
        None
    }

    /// Whether a peer may have opened a stream for [`poll_opened`](Self::poll_opened), as far as
    /// other events have been taken.
    pub fn has_opened(&self) -> bool {
        !self.opening.is_empty()
    }

    /// Returns a stream that a peer has opened, as an event, when all other events have been taken.
    pub fn poll_opened(&mut self) -> Option<EndpointEvent> {
        while let Some(key) = self.opening.first().copied() {
            let peer = self.peers.get_mut(&key);
            let (opened, more) = peer.map_or((None, false), |peer| {
                let opened = peer.session.poll_opened();
                (opened, peer.session.receiver().incoming().has_opened())
            });
            if !more {
                self.opening.remove(&key);
            }
            if let Some(event) = opened {
                return Some(EndpointEvent::Session { peer: key, event });
            }
        }
        None
    }

    fn peer(&mut self, now: Instant, key: PublicKey) -> &mut Peer {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        if self.peers.get(&key).is_none() {
            let mut session = Session::with_budget(self.config, &self.budget, self.seed, now);
            session.set_memory((self.memory_of)(key));
            session.set_policy(PeerPolicy::new(key, &self.policy));
            if let Some(began) = self.trace_began {
                session.begin_trace(began);
            }
            self.begun += 1;
            let peer = Peer {
                session,
                number: self.begun,
                carried: None,
                target: None,
                alternatives: VecDeque::new(),
                addresses: Vec::new(),
                next_target_at: None,
                connected_at: now,
                carried_since: now,
                again_at: None,
                lost_at: now,
            };
            self.peers.insert(key, peer);
        }
        self.peers.get_mut(&key).expect("it is there or was added")
    }

    fn on_carrier_events(&mut self, now: Instant) {
        while let Some(event) = self.carrier.poll_event() {
            match event {
                CarrierEvent::Connected {
                    session,
                    peer,
                    address,
                } => {
                    self.by_session.insert(session, peer);
                    let state = self.peer(now, peer);
                    (state.carried, state.carried_since) = (Some(session), now);
                    state.next_target_at = None;
                    state.use_address(address);
                    state.session.on_connected(now);
                    self.events
                        .push_back(EndpointEvent::Connected { peer, address });
                }
                CarrierEvent::Datagram {
                    session,
                    ecn,
                    datagram,
                } => {
                    if let Some(key) = self.by_session.get(&session)
                        && let Some(peer) = self.peers.get_mut(key)
                    {
                        peer.session.on_datagram(now, ecn, &datagram);
                        let key = *key;
                        self.end_violator(now, key);
                    }
                }
                CarrierEvent::MaxDatagramChanged { .. } => {}
                CarrierEvent::PathChanged {
                    session,
                    address,
                    rtt,
                } => {
                    self.on_path_changed(now, session, address, rtt);
                }
                CarrierEvent::Standby { session, ready } => {
                    let key = self.by_session.get(&session);
                    let peer = key.and_then(|key| self.peers.get_mut(key));
                    // The end that connected watches the path as long as it knows another address.
                    if let Some(peer) = peer.filter(|peer| peer.alternatives.is_empty()) {
                        peer.session.watch = ready.then(PathWatch::default);
                    }
                }
                CarrierEvent::Lost { session, why } => self.on_lost(now, session, why),
                CarrierEvent::Refused {
                    peer,
                    address,
                    why,
                    more,
                } => {
                    self.events.push_back(EndpointEvent::Refused {
                        peer,
                        address,
                        why,
                        more,
                    });
                }
            }
        }
    }

    fn on_path_changed(
        &mut self,
        now: Instant,
        session: SessionId,
        address: SocketAddr,
        rtt: Duration,
    ) {
        let key = self.by_session.get(&session);
        let Some(peer) = key.and_then(|key| self.peers.get_mut(key)) else {
            return;
        };
        if peer.carried != Some(session) {
            return;
        }
        peer.session.on_path_changed(now, rtt);
        peer.use_address(address);
    }

    fn on_lost(&mut self, now: Instant, session: SessionId, why: DisconnectReason) {
        let Some(key) = self.by_session.remove(&session) else {
            return;
        };
        let Some(peer) = self.peers.get_mut(&key) else {
            return;
        };
        // Another connection to the same peer may be in use, or being made.
        if peer.carried.is_some_and(|carried| carried != session) {
            return;
        }
        peer.carried = None;
        peer.lost_at = now;
        let has_others = !peer.alternatives.is_empty();
        peer.next_target_at = has_others.then_some(now + NEXT_TARGET_AFTER);
        let again = peer.target.filter(|_| why != DisconnectReason::ClosedHere);
        self.events
            .push_back(EndpointEvent::Disconnected { peer: key, why });
        let pending = self.by_session.values().any(|other| *other == key);
        if again.is_some() && !pending {
            let peer = self.peers.get_mut(&key).expect("it was just seen");
            peer.again_at = Some(now.max(peer.connected_at + RECONNECT_PERIOD));
        }
    }

    fn reconnect(&mut self, now: Instant, key: PublicKey) {
        let Some(peer) = self.peers.get_mut(&key) else {
            return;
        };
        (peer.again_at, peer.connected_at) = (None, now);
        let Some(target) = peer.target else { return };
        match self.carrier.connect(now, target, key) {
            Ok(session) => {
                self.by_session.insert(session, key);
                self.keep_ready(now, key);
            }
            Err(error) => {
                peer.again_at = Some(now + RECONNECT_PERIOD);
                let why = error.to_string();
                self.events.push_back(EndpointEvent::Refused {
                    peer: Some(key),
                    address: target,
                    why,
                    more: 0,
                });
            }
        }
    }

    fn forget(&mut self, key: PublicKey) {
        let Some(mut peer) = self.peers.remove(&key) else {
            return;
        };
        self.opening.remove(&key);
        let records = peer.session.take_trace().map(|record| (key, record));
        self.trace.extend(records);
        let sent = peer.session.status().sent;
        let lost = sent.held + sent.unconfirmed;
        self.events
            .push_back(EndpointEvent::Forgotten { peer: key, lost });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        carrier::plain::PlainCarrier,
        qos::{Delivery, Qos},
        receiver::ReceiverEvent,
        wire::feedback::Feedback,
    };

    const ONE_WAY: Duration = Duration::from_millis(10);

    fn address(host: u8) -> SocketAddr {
        ([10, 0, 0, host], 4000).into()
    }

    /// Two endpoints and the packets in flight between them.
    struct Pair {
        now: Instant,
        ends: [(SocketAddr, Endpoint<PlainCarrier>); 2],
        under_way: VecDeque<(Instant, SocketAddr, SocketAddr, Vec<u8>)>,
        received: u64,
    }

    impl Pair {
        const KEYS: [PublicKey; 2] = [PublicKey([1; 32]), PublicKey([2; 32])];

        /// The first connects to the second.
        fn connecting() -> Self {
            let now = Instant::now();
            let end = |number: usize| {
                let carrier = PlainCarrier::new(Self::KEYS[number]);
                (
                    address(number as u8),
                    Endpoint::new(carrier, SessionConfig::default(), number as u64),
                )
            };
            let mut ends = [end(0), end(1)];
            ends[0]
                .1
                .connect(now, address(1), Self::KEYS[1])
                .expect("the address is good");
            Self {
                now,
                ends,
                under_way: VecDeque::new(),
                received: 0,
            }
        }

        fn step(&mut self) {
            self.now += Duration::from_millis(1);
            while self
                .under_way
                .front()
                .is_some_and(|(at, ..)| *at <= self.now)
            {
                let (_, from, to, packet) =
                    self.under_way.pop_front().expect("there is a first one");
                if let Some((_, end)) = self.ends.iter_mut().find(|(address, _)| *address == to) {
                    end.handle_packet(self.now, from, None, packet);
                }
            }
            for (from, end) in &mut self.ends {
                end.handle_timeout(self.now);
                let mut packet = Vec::new();
                while let Some(transmit) = end.poll_transmit(self.now, &mut packet) {
                    let packet = std::mem::take(&mut packet);
                    self.under_way.push_back((
                        self.now + ONE_WAY,
                        *from,
                        transmit.destination,
                        packet,
                    ));
                }
            }
            while let Some(event) = self.ends[1].1.poll_event() {
                if let EndpointEvent::Session {
                    peer,
                    event: SessionEvent::Receiver(event),
                } = event
                    && let ReceiverEvent::Readable(stream) = event
                {
                    let session = self.ends[1]
                        .1
                        .session_mut(&peer)
                        .expect("it just emitted an event");
                    self.received += u64::from(session.take(self.now, stream).is_some());
                }
            }
        }
    }

    #[test]
    fn a_forbidden_peer_is_gone_at_once_and_stays_away() {
        let mut pair = Pair::connecting();
        let keys = Pair::KEYS;
        (0..100).for_each(|_| pair.step());
        assert!(pair.ends[1].1.session(&keys[0]).is_some());

        let now = pair.now;
        pair.ends[1].1.forbid(now, keys[0]);
        assert!(pair.ends[1].1.session(&keys[0]).is_none());
        let events: Vec<_> = std::iter::from_fn(|| pair.ends[1].1.poll_event()).collect();
        let (peer, why) = (keys[0], DisconnectReason::Forbidden);
        assert_eq!(
            events,
            [
                EndpointEvent::Disconnected { peer, why },
                EndpointEvent::Forgotten { peer, lost: 0 }
            ]
        );
        // The robot tries again, in vain.
        (0..3000).for_each(|_| pair.step());
        assert!(pair.ends[1].1.session(&keys[0]).is_none());
    }

    #[test]
    fn a_peer_that_reports_packets_that_were_not_sent_is_disconnected() {
        let mut pair = Pair::connecting();
        let keys = Pair::KEYS;
        const CARRIER_BYTES: usize = 9;
        for _ in 0..200 {
            pair.step();
            for (_, from, _, packet) in &mut pair.under_way {
                if let Some(content) = packet.get(CARRIER_BYTES..)
                    && *from == address(1)
                    && let Ok(mut feedback) = Feedback::read(content)
                {
                    feedback.highest_packet += 1000;
                    packet.truncate(CARRIER_BYTES);
                    feedback.write(1400, packet);
                }
            }
        }
        assert!(pair.ends[0].1.session(&keys[1]).is_none());
        let events: Vec<_> = std::iter::from_fn(|| pair.ends[0].1.poll_event()).collect();
        let disconnected = events.iter().find_map(|event| match event {
            EndpointEvent::Disconnected { why, .. } => Some(why.to_string()),
            _ => None,
        });
        let why = disconnected.expect("the application is notified");
        assert!(
            why.starts_with("protocol violated: feedback names packet"),
            "{why}"
        );
    }

    #[test]
    fn a_peer_that_moved_goes_on_where_it_is() {
        let mut pair = Pair::connecting();
        let keys = Pair::KEYS;
        let send = |pair: &mut Pair, stream| {
            let now = pair.now;
            let session = pair.ends[0]
                .1
                .session_mut(&keys[1])
                .expect("it was connected to");
            session
                .send(now, stream, vec![7; 100].into())
                .expect("there is room");
        };
        let session = pair.ends[0]
            .1
            .session_mut(&keys[1])
            .expect("it was connected to");
        let stream = session
            .open(pair.now, "stream", Qos::new(Delivery::keep_all(4)))
            .expect("the name is short");
        send(&mut pair, stream);
        (0..500).for_each(|_| pair.step());
        assert_eq!(pair.received, 1);

        pair.ends[1].0 = address(77);
        let moved = pair.now;
        pair.ends[0]
            .1
            .connect(moved, address(77), keys[1])
            .expect("the address is good");
        send(&mut pair, stream);
        while pair.received < 2 && pair.now < moved + Duration::from_secs(5) {
            pair.step();
        }
        assert!(
            pair.now - moved < 4 * ONE_WAY,
            "after {:?}",
            pair.now - moved
        );
        (0..100).for_each(|_| pair.step());
        let counters = pair.ends[0]
            .1
            .session(&keys[1])
            .expect("it is known")
            .status()
            .sent;
        assert_eq!((counters.delivered, counters.unconfirmed), (2, 0));
        let events: Vec<_> = std::iter::from_fn(|| pair.ends[0].1.poll_event()).collect();
        assert!(
            !events
                .iter()
                .any(|event| matches!(event, EndpointEvent::Disconnected { .. })),
            "{events:?}"
        );
    }
}
