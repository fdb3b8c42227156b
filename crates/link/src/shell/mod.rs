//! The link on real sockets: one thread for each socket, and handles for the application.
//!
//! ```
//! use std::time::Duration;
//! use nervure_link::{carrier::KeyPair, qos::{Delivery, Qos}, shell::{Link, LinkConfig, LinkEvent}};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (robot_key, edge_key) = (KeyPair::generate()?, KeyPair::generate()?);
//! let (robot_id, edge_id) = (robot_key.public(), edge_key.public());
//! let edge = Link::bind(LinkConfig { allow: vec![robot_id], ..LinkConfig::new("127.0.0.1:0".parse()?, edge_key) })?;
//! let robot = Link::bind(LinkConfig::new("127.0.0.1:0".parse()?, robot_key))?;
//!
//! let peer = robot.connect(edge.local_address(), edge_id)?;
//! let images = peer.open("camera/image", Qos::new(Delivery::keep_all(4)))?;
//! images.send("an image")?;
//!
//! let received = loop {
//!     if let Some(LinkEvent::Opened { stream, .. }) = edge.next_event(Duration::from_secs(10)) {
//!         break stream.receive(Duration::from_secs(10)).expect("it is on its way");
//!     }
//! };
//! assert_eq!(&received.payload[..], b"an image");
//! # Ok(())
//! # }
//! ```

mod block_on;
mod events;
mod handles;
mod shared;
mod socket;
#[cfg(test)]
mod tests;
mod thread;
mod trace;

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, eventfd};
use thiserror::Error;

use crate::{
    budget::SMALL_BYTES,
    carrier::{
        self, ConnectError, DisconnectReason, KeyPair, PublicKey,
        quic::{FIRST_PACKET_BYTES, MAX_UNVALIDATED, QuicCarrier, QuicConfig},
    },
    endpoint::{Endpoint, EndpointEvent, MemoryOf, PeerStatus},
    policy::{Refusal, StreamPolicy},
    qos::Qos,
    receiver::{LinkSample, ReceiverEvent},
    sender::SenderEvent,
    session::{SessionConfig, SessionEvent},
};

use handles::Incoming;
pub use handles::{
    ClosedError, IncomingRequest, IncomingStream, OpenError, OutgoingStream, Peer, StreamError,
};
pub use shared::SocketCounters;
use shared::{Shared, State};
use socket::Socket;
pub use trace::TraceSink;

/// The configuration of a link.
#[derive(Debug)]
pub struct LinkConfig {
    /// The address to listen on and send from.
    pub address: SocketAddr,
    /// The key of this end.
    pub key: KeyPair,
    /// The keys of peers that may connect.
    pub allow: Vec<PublicKey>,
    /// Decides on streams that are opened; see [`policy`](crate::policy).
    pub streams: StreamPolicy,
    /// Limits on the number of peers.
    pub limits: LinkLimits,
    /// The configuration of each peer's session, with its limits on streams and memory
    /// ([`ReceiverConfig`](crate::receiver::ReceiverConfig)).
    pub session: SessionConfig,
    /// The largest packet to try, in bytes of UDP payload.
    pub largest_packet_bytes: u16,
    /// Where to write the trace of all peers, if at all; see [`crate::trace`]. Call
    /// [`Link::end_trace`] at the end.
    pub trace: Option<TraceSink>,
}

impl LinkConfig {
    /// The usual configuration; no peer may connect, and those connected to may open any stream.
    pub fn new(address: SocketAddr, key: KeyPair) -> Self {
        Self {
            address,
            key,
            allow: Vec::new(),
            streams: StreamPolicy::accept_all(),
            limits: LinkLimits::default(),
            session: SessionConfig::default(),
            largest_packet_bytes: 1472,
            trace: None,
        }
    }
}

/// Limits on the number of peers of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// The most peers that are connected or being connected to at once.
    pub peers: usize,
    /// The most handshakes that peers have begun and not completed, at least 9. Of these, 8 may come
    /// from addresses that are not validated, and 8 from one host.
    pub handshakes: usize,
}

impl Default for LinkLimits {
    fn default() -> Self {
        Self {
            peers: 256,
            handshakes: 64,
        }
    }
}

/// Memory of the budget for each peer, in bytes: an idle session takes 0.4 MiB of its half.
const BUDGET_PER_PEER: u64 = 1 << 20;

impl LinkConfig {
    /// Checks the limits.
    fn check(&self) -> Result<(), LinkError> {
        let bounds = self.session.receiver;
        let budget = self.limits.peers as u64 * BUDGET_PER_PEER;
        for (field, value, least) in [
            ("limits.peers", self.limits.peers as u64, 1),
            (
                "limits.handshakes",
                self.limits.handshakes as u64,
                MAX_UNVALIDATED as u64 + 1,
            ),
            ("session.receiver.budget_bytes", bounds.budget_bytes, budget),
            ("session.receiver.shares", bounds.shares as u64, 1),
            ("session.receiver.max_streams", bounds.max_streams as u64, 1),
            (
                "session.receiver.initial_credit",
                bounds.initial_credit,
                SMALL_BYTES,
            ),
            (
                "largest_packet_bytes",
                self.largest_packet_bytes.into(),
                FIRST_PACKET_BYTES.into(),
            ),
        ] {
            if value < least {
                return Err(LinkError::Config {
                    field,
                    value,
                    least,
                });
            }
        }
        Ok(())
    }
}

/// Why a link or a connection could not be made.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The socket could not be bound.
    #[error("cannot listen on {address}: {error}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        error: io::Error,
    },
    /// A limit is too low.
    #[error("{field} is {value}, expected at least {least}")]
    Config {
        /// The field of [`LinkConfig`].
        field: &'static str,
        /// Its value.
        value: u64,
        /// The least value.
        least: u64,
    },
    /// The thread or its descriptors could not be made.
    #[error("cannot start the link's thread: {0}")]
    Start(#[source] io::Error),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    NoRandomness,
    /// The connection could not be attempted.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// An event of a link.
#[derive(Debug)]
pub enum LinkEvent {
    /// A peer connected, for the first time or again.
    Connected {
        /// The key of the peer.
        peer: PublicKey,
        /// The address of the peer.
        address: SocketAddr,
    },
    /// The connection to a peer was lost; the end that began it connects again.
    Disconnected {
        /// The key of the peer.
        peer: PublicKey,
        /// The reason.
        why: DisconnectReason,
    },
    /// The state of a peer was dropped.
    Forgotten {
        /// The key of the peer.
        peer: PublicKey,
        /// Accepted samples that were not delivered, or whose delivery is not confirmed.
        lost: u64,
    },
    /// A peer opened a stream.
    Opened {
        /// The key of the peer.
        peer: PublicKey,
        /// The name of the stream.
        name: String,
        /// The handle to receive from.
        stream: IncomingStream,
    },
    /// A peer requests a stream, and the policy leaves the decision to the application.
    Requested {
        /// The key of the peer.
        peer: PublicKey,
        /// The name of the stream.
        name: String,
        /// The handle to accept or refuse it with.
        request: IncomingRequest,
    },
    /// A peer has changed the quality of service of a stream.
    QosChanged {
        /// The key of the peer.
        peer: PublicKey,
        /// The number of the stream; see [`IncomingStream::id`].
        stream: u32,
        /// Its name.
        name: String,
        /// The quality of service of the samples that come from now on.
        qos: Qos,
    },
    /// A peer does not accept a stream of this end, or not any more.
    StreamRefused {
        /// The key of the peer.
        peer: PublicKey,
        /// The number of the stream; see [`OutgoingStream::id`].
        stream: u32,
        /// Its name.
        name: String,
        /// The reason.
        why: Refusal,
    },
    /// A peer lost the state of its receiver. The samples in flight may or may not have been
    /// delivered.
    PeerLost {
        /// The key of the peer.
        peer: PublicKey,
        /// Number of samples in flight.
        unconfirmed: u64,
    },
    /// A peer restarted.
    PeerRestarted {
        /// The key of the peer.
        peer: PublicKey,
        /// Number of samples from it that had arrived in part.
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
}

/// A sample and its origin.
#[derive(Debug)]
pub struct Received {
    /// The key of the sender.
    pub peer: PublicKey,
    /// The number of its stream; see [`IncomingStream::id`].
    pub stream: u32,
    /// The sample.
    pub sample: LinkSample,
}

/// One end of links, on one UDP socket.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    local: SocketAddr,
    thread: Option<std::thread::JoinHandle<()>>,
    trace_writer: Option<trace::Writer>,
}

impl Link {
    /// Binds a socket and starts the thread that serves it.
    ///
    /// # Errors
    /// When a limit is too low, the address is in use or not of this host, or the system is out of
    /// descriptors or threads.
    pub fn bind(config: LinkConfig) -> Result<Self, LinkError> {
        config.check()?;
        let address = config.address;
        let socket = Socket::bind(address).map_err(|error| LinkError::Bind { address, error })?;
        let local = socket
            .local_address()
            .map_err(|error| LinkError::Bind { address, error })?;
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|_| LinkError::NoRandomness)?;
        let quic = QuicConfig {
            accepts: !config.allow.is_empty(),
            largest_packet_bytes: config.largest_packet_bytes,
            max_sessions: config.limits.peers,
            max_handshakes: config.limits.handshakes,
            ..QuicConfig::new(config.key)
        };
        let mut carrier = QuicCarrier::new(quic);
        config
            .allow
            .into_iter()
            .for_each(|peer| carrier.allow(peer));
        let mut endpoint = Endpoint::new(carrier, config.session, u64::from_le_bytes(seed));
        endpoint.set_policy(Instant::now(), config.streams);
        let (trace, trace_writer) = match config.trace.map(trace::start).transpose() {
            Ok(started) => started.unzip(),
            Err(error) => return Err(LinkError::Start(error)),
        };
        if trace.is_some() {
            endpoint.begin_trace(Instant::now());
        }
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| LinkError::Start(error.into()))?;
        let ready = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| LinkError::Start(error.into()))?;
        let shared = Arc::new(Shared::new(State::new(endpoint, trace), wake, ready));
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("nervure-link".into())
            .spawn(move || thread::serve(&for_thread, socket))
            .map_err(LinkError::Start)?;
        Ok(Self {
            shared,
            local,
            thread: Some(thread),
            trace_writer,
        })
    }

    /// The address that this end listens on.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// The key of this end.
    pub fn public_key(&self) -> PublicKey {
        self.shared.lock().endpoint.carrier().public_key()
    }

    /// Connects to a peer, and again whenever the connection is lost. A peer that was connected to
    /// before may have moved: its streams continue from the new address, a round trip later.
    ///
    /// # Errors
    /// When the address cannot be sent to, or too many sessions are open.
    pub fn connect(&self, to: SocketAddr, peer: PublicKey) -> Result<Peer, LinkError> {
        self.shared
            .lock()
            .endpoint
            .connect(Instant::now(), to, peer)?;
        self.shared.wake();
        Ok(self.peer(peer))
    }

    /// Connects to a peer that has several addresses, on different networks, say; the preferred one
    /// first. A connection to each of the first [`MAX_PATHS`](crate::carrier::quic::MAX_PATHS) is kept
    /// ready. When packets have no answer on one for 40 ms and a round trip, either end changes to
    /// another that works; the preferred one is returned to when it has worked for five seconds.
    /// Streams continue, and no sample is lost.
    ///
    /// # Errors
    /// When there is no address, the first one cannot be sent to, or too many sessions are open.
    pub fn connect_any(&self, to: &[SocketAddr], peer: PublicKey) -> Result<Peer, LinkError> {
        self.shared
            .lock()
            .endpoint
            .connect_any(Instant::now(), to, peer)?;
        self.shared.wake();
        Ok(self.peer(peer))
    }

    /// The peers that are known, with their state and their streams in both directions.
    pub fn peers(&self) -> Vec<PeerStatus> {
        self.shared.lock().endpoint.peers().collect()
    }

    /// The handle of a peer that has connected.
    pub fn peer(&self, peer: PublicKey) -> Peer {
        Peer::new(Arc::clone(&self.shared), peer)
    }

    /// Sets the memory for samples of peers that become known from now on, instead of the heap. The
    /// link's thread calls it, and waits for its result.
    pub fn set_memory(&self, memory_of: MemoryOf) {
        self.shared.lock().endpoint.set_memory(memory_of);
    }

    /// Sets the policy for streams that are opened from now on, by peers and to them. Open streams
    /// of peers that it refuses are closed.
    pub fn set_stream_policy(&self, policy: StreamPolicy) {
        let mut state = self.shared.lock();
        state.endpoint.set_policy(Instant::now(), policy);
        state.wake_all_receivers();
        self.shared.notify(state);
        self.shared.wake();
    }

    /// Allows a peer to connect.
    pub fn allow(&self, peer: PublicKey) {
        self.shared.lock().endpoint.carrier_mut().allow(peer);
    }

    /// Forbids a key while the link runs, such as a stolen robot's: ends the connections to its
    /// peer at once and drops the peer's state. The peer cannot connect again, unless it is allowed
    /// or connected to later.
    pub fn forbid(&self, peer: PublicKey) {
        let mut state = self.shared.lock();
        state.endpoint.forbid(Instant::now(), peer);
        state.forget_streams(peer);
        self.shared.notify(state);
        self.shared.wake();
    }

    /// Returns the next event; waits for one up to the timeout. No event is dropped: events of a
    /// peer that wait are summed up, and a stream that a peer opened counts as open until its event
    /// was taken.
    pub fn next_event(&self, timeout: Duration) -> Option<LinkEvent> {
        self.shared
            .wait_for(Some(timeout), |state| self.find_event(state))
    }

    /// Waits for the next event, as [`next_event`](Self::next_event), on any executor. `None` when
    /// the link has ended.
    pub async fn next_event_async(&self) -> Option<LinkEvent> {
        poll_fn(|context| {
            self.shared
                .poll_for(context, |state| self.find_event(state))
        })
        .await
    }

    fn find_event(&self, state: &mut State) -> Option<LinkEvent> {
        while let Some(event) = state.poll_event() {
            let event = LinkEvent::new(&self.shared, state, event);
            if event.is_some() {
                return event;
            }
        }
        while let Some((peer, stream)) = state.changed.pop_first() {
            let session = state.endpoint.session(&peer);
            let known = session.and_then(|session| session.receiver().incoming().get(stream));
            if let Some((name, qos)) = known {
                let name = name.into();
                return Some(LinkEvent::QosChanged {
                    peer,
                    stream,
                    name,
                    qos,
                });
            }
        }
        None
    }

    /// Returns the next sample of any stream; waits for one up to the timeout. Do not mix it with
    /// reads from a stream's own handle.
    pub fn receive_any(&self, timeout: Duration) -> Option<Received> {
        let received = self.shared.wait_for_any_sample(timeout, |state| {
            while let Some((peer, stream)) = state.readable.first().copied() {
                let sample = state.take(peer, stream);
                if let Some(sample) = sample {
                    return Some(Received {
                        peer,
                        stream,
                        sample,
                    });
                }
            }
            None
        });
        if received.is_some() {
            self.shared.wake();
        }
        received
    }

    /// The counters of the socket.
    pub fn socket_counters(&self) -> SocketCounters {
        self.shared.lock().socket
    }

    /// The counters of the carrier.
    pub fn carrier_counters(&self) -> carrier::CarrierCounters {
        use crate::carrier::Carrier;
        self.shared.lock().endpoint.carrier().counters()
    }

    /// Ends the trace, and waits until it is written.
    ///
    /// # Errors
    /// When it could not be written as a whole.
    pub fn end_trace(&mut self) -> io::Result<()> {
        drop(self.shared.lock().trace.take());
        match self.trace_writer.take().map(std::thread::JoinHandle::join) {
            Some(Ok(written)) => written,
            Some(Err(_)) => Err(io::Error::other("the thread of the trace has panicked")),
            None => Ok(()),
        }
    }

    /// Why the link has ended, if it has: the error of its socket.
    pub fn failure(&self) -> Option<String> {
        self.shared.lock().failed.clone()
    }
}

/// The descriptor is readable while an event or a sample of any stream waits, and when the link has
/// ended. It is for `poll` only. From the first use on, it costs a system call each time that this
/// changes.
impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.use_ready();
        self.shared.ready.as_fd()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic of the thread.
            let _ = thread.join();
        }
        if let Err(error) = self.end_trace() {
            tracing::warn!(%error, "cannot write the trace");
        }
    }
}

impl LinkEvent {
    /// The event for the application; `None` when it has no use for it.
    fn new(shared: &Arc<Shared>, state: &State, event: EndpointEvent) -> Option<Self> {
        let handle = |peer, stream| Incoming::new(shared, state, peer, stream);
        Some(match event {
            EndpointEvent::Connected { peer, address } => Self::Connected { peer, address },
            EndpointEvent::Disconnected { peer, why } => Self::Disconnected { peer, why },
            EndpointEvent::Forgotten { peer, lost } => Self::Forgotten { peer, lost },
            EndpointEvent::Refused {
                peer,
                address,
                why,
                more,
            } => Self::Refused {
                peer,
                address,
                why,
                more,
            },
            EndpointEvent::Session { peer, event } => match event {
                SessionEvent::Receiver(ReceiverEvent::Opened { stream, name, qos }) => {
                    Self::Opened {
                        peer,
                        name,
                        stream: IncomingStream::new(handle(peer, stream), qos),
                    }
                }
                SessionEvent::Receiver(ReceiverEvent::Requested { stream, name, qos }) => {
                    Self::Requested {
                        peer,
                        name,
                        request: IncomingRequest::new(handle(peer, stream), qos),
                    }
                }
                SessionEvent::Sender(SenderEvent::Refused { stream, name, why }) => {
                    Self::StreamRefused {
                        peer,
                        stream,
                        name,
                        why,
                    }
                }
                SessionEvent::Receiver(ReceiverEvent::PeerRestarted { lost }) => {
                    Self::PeerRestarted { peer, lost }
                }
                SessionEvent::PeerLost { unconfirmed } => Self::PeerLost { peer, unconfirmed },
                SessionEvent::Sender(_)
                | SessionEvent::Receiver(
                    ReceiverEvent::Readable(_)
                    | ReceiverEvent::Changed(_)
                    | ReceiverEvent::Ended(_),
                ) => {
                    return None;
                }
            },
        })
    }
}
