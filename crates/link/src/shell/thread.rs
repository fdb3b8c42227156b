//! The thread that serves a socket.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Once,
    time::{Duration, Instant},
};

use parking_lot::MutexGuard;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use tracing::{debug, info, warn};

use super::{
    shared::{Shared, State},
    socket::Socket,
};
use crate::{
    carrier::Ecn, coding, endpoint::EndpointEvent, receiver::ReceiverEvent, sender::SenderEvent,
    session::SessionEvent,
};

/// Batches of packets to receive before sending again.
const RECEIVE_BATCHES: usize = 4;
/// Packets to send before receiving again.
const SEND_PACKETS: usize = 64;
/// While packets keep arriving, those of this time are received together, since each wake-up costs
/// several system calls. The first one after a pause does not wait.
const RECEIVE_STEP: Duration = Duration::from_micros(200);

/// Serves the socket until the link is dropped or the socket fails.
pub(super) fn serve(shared: &Shared, mut socket: Socket) {
    let mut unsent = Unsent::default();
    let mut arrivals = Arrivals::default();
    let mut readable = true;
    let failure = loop {
        let sleep = match turn(shared, &mut socket, &mut unsent, &mut arrivals, readable) {
            Ok(Some(sleep)) => sleep,
            Ok(None) => break None,
            Err(error) => break Some(error),
        };
        let waited = match sleep {
            Sleep::NotAtAll => Ok(true),
            Sleep::Until(at) => wait(shared, &socket, Some(at), &unsent, &arrivals),
            Sleep::Forever => wait(shared, &socket, None, &unsent, &arrivals),
        };
        match waited {
            Ok(heard) => readable = heard,
            Err(error) => break Some(error),
        }
    };
    let mut state = shared.lock();
    state.stopping = true;
    state.failed = failure.map(|error| error.to_string());
    shared.notify(state);
}

/// Packets that the socket has not taken yet: all of one length, the last may be shorter, to one
/// destination.
#[derive(Default)]
struct Unsent {
    bytes: Vec<u8>,
    segment_bytes: usize,
    to: Option<Destination>,
}

/// The destination of packets, the address that they come from, and their mark.
type Destination = (SocketAddr, Option<IpAddr>, Option<Ecn>);

/// When packets arrived.
#[derive(Default)]
struct Arrivals {
    last: Option<Instant>,
    /// Packets keep arriving: the last ones came soon after those before.
    keep_coming: bool,
}

impl Arrivals {
    fn on_received(&mut self, now: Instant) {
        self.keep_coming = self.last.is_some_and(|last| now < last + RECEIVE_STEP * 4);
        self.last = Some(now);
    }

    /// When to receive again, if packets that arrive before can wait.
    fn next(&self) -> Option<Instant> {
        self.last
            .filter(|_| self.keep_coming)
            .map(|last| last + RECEIVE_STEP)
    }
}

/// The wait until the next turn.
enum Sleep {
    Until(Instant),
    Forever,
    /// There is more to do at once.
    NotAtAll,
}

/// Receives, sends and passes events on; `None` when the link is to end. Between packets, threads of
/// the application that wait for the state have it first: one waits for one packet at most, and the
/// coding of its block, whatever there is to do for other peers.
fn turn(
    shared: &Shared,
    socket: &mut Socket,
    unsent: &mut Unsent,
    arrivals: &mut Arrivals,
    readable: bool,
) -> io::Result<Option<Sleep>> {
    let mut state = shared.lock();
    if state.stopping {
        state.endpoint.close_all(Instant::now());
        transmit(&mut state, socket, unsent);
        return Ok(None);
    }
    let (mut more, mut arrived) = (readable, None);
    for _ in 0..RECEIVE_BATCHES {
        if !more {
            break;
        }
        more = socket.receive(|now, from, ecn, packet| {
            arrived = Some(now);
            state.socket.packets_received += 1;
            state.socket.bytes_received += packet.len() as u64;
            state.endpoint.handle_packet(now, from, ecn, packet);
            MutexGuard::bump(&mut state);
        })?;
    }
    arrived
        .into_iter()
        .for_each(|now| arrivals.on_received(now));
    state.endpoint.handle_timeout(Instant::now());
    let all_sent = transmit(&mut state, socket, unsent);
    let changed = take_events(&mut state);
    state.write_trace();
    if state.endpoint.uses_coding() {
        make_coding_tables();
    }
    let now = Instant::now();
    let timeout = state.endpoint.poll_timeout(now);
    shared.notify_after_turn(state, changed);
    Ok(Some(match timeout {
        _ if more || !all_sent => Sleep::NotAtAll,
        Some(at) => Sleep::Until(at),
        None => Sleep::Forever,
    }))
}

/// Makes the tables of the erasure code in a thread of their own, once in a process, so that the
/// first repair does not wait for them.
fn make_coding_tables() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let thread = std::thread::Builder::new().name("nervure-tables".into());
        // Without a thread, the first repair makes them.
        drop(thread.spawn(coding::make_tables));
    });
}

/// Sends pending packets. Returns false when there may be more.
fn transmit(state: &mut MutexGuard<'_, State>, socket: &Socket, unsent: &mut Unsent) -> bool {
    if !unsent.flush(socket) {
        // The socket becomes writable when it has room.
        return true;
    }
    for _ in 0..SEND_PACKETS {
        let Some(transmit) = state
            .endpoint
            .poll_transmit(Instant::now(), &mut unsent.bytes)
        else {
            unsent.flush(socket);
            return true;
        };
        let to = (transmit.destination, transmit.source, transmit.ecn);
        state.socket.packets_sent += 1;
        state.socket.bytes_sent += transmit.size as u64;
        MutexGuard::bump(state);
        if !unsent.on_written(to, transmit.size, socket) {
            return true;
        }
    }
    unsent.flush(socket);
    false
}

/// Waits. Returns whether the socket may have packets to receive.
fn wait(
    shared: &Shared,
    socket: &Socket,
    until: Option<Instant>,
    unsent: &Unsent,
    arrivals: &Arrivals,
) -> io::Result<bool> {
    let now = Instant::now();
    let receive_at = arrivals.next().filter(|at| *at > now && unsent.is_empty());
    let until = [until, receive_at].into_iter().flatten().min();
    let timeout = until.map(|at| {
        let left = at.saturating_duration_since(now);
        Timespec {
            tv_sec: left.as_secs() as _,
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    let interest = if unsent.is_empty() {
        PollFlags::IN
    } else {
        PollFlags::IN | PollFlags::OUT
    };
    let socket = socket.as_fd();
    let mut fds = [
        PollFd::new(&shared.wake, PollFlags::IN),
        PollFd::new(&socket, interest),
    ];
    let watched = if receive_at.is_some() { 1 } else { 2 };
    match poll(&mut fds[..watched], timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    if !fds[0].revents().is_empty() {
        // The count is irrelevant.
        let _ = rustix::io::read(&shared.wake, &mut [0; 8]);
    }
    let beside_room = PollFlags::IN | PollFlags::ERR | PollFlags::HUP;
    Ok(match receive_at {
        Some(at) => at <= Instant::now(),
        None => fds[1].revents().intersects(beside_room),
    })
}

/// Moves the endpoint's events to those for the application, except streams that peers opened: the
/// endpoint holds them until the application takes them. Returns whether there were any, except
/// samples, room and ends of streams, which wake their own tasks.
pub(super) fn take_events(state: &mut State) -> bool {
    let mut changed = false;
    while let Some(event) = state.endpoint.poll_event_but_opened() {
        log(&event);
        match &event {
            EndpointEvent::Session { peer, event } => match event {
                SessionEvent::Receiver(ReceiverEvent::Readable(stream)) => {
                    // A handle may have taken the last one.
                    let session = state.endpoint.session(peer);
                    if session.is_some_and(|session| session.receiver().has_sample(*stream)) {
                        state.on_readable(*peer, *stream);
                    }
                    continue;
                }
                SessionEvent::Receiver(ReceiverEvent::Ended(stream)) => {
                    state.on_ended(*peer, *stream);
                    continue;
                }
                SessionEvent::Receiver(ReceiverEvent::Changed(stream)) => {
                    state.changed.insert((*peer, *stream));
                    changed = true;
                    continue;
                }
                // Handles that wait for these poll the state of their stream.
                SessionEvent::Sender(
                    SenderEvent::Opened(_) | SenderEvent::Changed(_) | SenderEvent::Finished(..),
                ) => {
                    changed = true;
                    continue;
                }
                SessionEvent::Sender(SenderEvent::Writable(stream)) => {
                    state.wake_senders(*peer, *stream);
                    continue;
                }
                SessionEvent::Sender(SenderEvent::Refused { stream, .. }) => {
                    state.wake_senders(*peer, *stream);
                }
                SessionEvent::Receiver(ReceiverEvent::PeerRestarted { .. }) => {
                    state.forget_streams(*peer);
                }
                SessionEvent::Receiver(
                    ReceiverEvent::Opened { .. } | ReceiverEvent::Requested { .. },
                )
                | SessionEvent::PeerLost { .. } => {}
            },
            EndpointEvent::Forgotten { peer, .. } => {
                state.forget_streams(*peer);
                state.wake_senders_to(*peer);
            }
            _ => {}
        }
        changed = true;
        state.events.push(event);
    }
    changed | state.endpoint.has_opened()
}

/// Logs events that help to diagnose a link in the field: none per packet or per sample.
pub(super) fn log(event: &EndpointEvent) {
    match event {
        EndpointEvent::Connected { peer, address } => info!(%peer, %address, "peer connected"),
        EndpointEvent::Disconnected { peer, why } => warn!(%peer, %why, "peer disconnected"),
        EndpointEvent::Forgotten { peer, lost } => {
            warn!(%peer, lost, "state of the peer dropped");
        }
        EndpointEvent::Refused {
            peer,
            address,
            why,
            more,
        } => {
            let peer = peer.map(tracing::field::display);
            warn!(peer, %address, %why, more, "connection refused");
        }
        EndpointEvent::Session { peer, event } => match event {
            SessionEvent::PeerLost { unconfirmed } => {
                warn!(%peer, unconfirmed, "peer lost what it had received");
            }
            SessionEvent::Receiver(ReceiverEvent::PeerRestarted { lost }) => {
                warn!(%peer, lost, "peer restarted");
            }
            SessionEvent::Receiver(ReceiverEvent::Opened { stream, name, .. }) => {
                debug!(%peer, stream, name, "stream opened by the peer");
            }
            SessionEvent::Receiver(ReceiverEvent::Requested { stream, name, .. }) => {
                debug!(%peer, stream, name, "stream requested by the peer");
            }
            SessionEvent::Sender(SenderEvent::Refused { stream, name, why }) => {
                warn!(%peer, stream, name, %why, "stream refused by the peer");
            }
            SessionEvent::Sender(_) | SessionEvent::Receiver(_) => {}
        },
    }
}

impl Unsent {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Notes a packet that was written behind the others. If it cannot be sent with them, they are
    /// sent first. Returns false when the socket has no room for them: then this packet is lost, as
    /// in transit.
    fn on_written(&mut self, to: Destination, size: usize, socket: &Socket) -> bool {
        let before = self.bytes.len() - size;
        if before > 0 && !self.takes(to, before, size, socket) {
            if !self.flush_first(before, socket) {
                self.bytes.truncate(before);
                return false;
            }
            self.bytes.drain(..before);
        }
        if self.bytes.len() == size {
            (self.to, self.segment_bytes) = (Some(to), size);
        }
        true
    }

    /// Whether a packet can be sent with the `before` bytes that wait.
    fn takes(&self, to: Destination, before: usize, size: usize, socket: &Socket) -> bool {
        self.to == Some(to)
            && size <= self.segment_bytes
            && before.is_multiple_of(self.segment_bytes)
            && before / self.segment_bytes < socket.segments(self.segment_bytes)
    }

    /// Passes the packets to the socket. Returns false when it has no room; then they still wait.
    fn flush(&mut self, socket: &Socket) -> bool {
        let sent = self.flush_first(self.bytes.len(), socket);
        if sent {
            self.bytes.clear();
        }
        sent
    }

    fn flush_first(&self, bytes: usize, socket: &Socket) -> bool {
        let Some((to, source, ecn)) = self.to.filter(|_| bytes > 0) else {
            return true;
        };
        socket.send(to, source, ecn, &self.bytes[..bytes], self.segment_bytes)
    }
}
