//! The control thread: asleep on the keeper's socket and the pair sockets, it alone attaches edges, so that a node that
//! computes, sleeps or waits can still get an observer, learn of a death, and give memory back.
//!
//! A packet with descriptors leaves its socket when its edge is attached, or its segment mapped, and not before: whatever
//! runs out meanwhile, nothing that was sent is lost, and what comes behind keeps its order. Until then it is tried again,
//! and the keeper is notified.

use crate::event::Event;
use crate::node::Core;
use crate::shortfall::Shortfall;
use nervure_message::{Header, JsonSample, Metadata};
use nervure_protocol::MAX_MESSAGE_BYTES;
use nervure_protocol::keeper_to_node::{AttachInput, AttachOutput, LastValue, Message};
use nervure_protocol::node_to_keeper::{EdgeStatus, Message as Answer};
use nervure_protocol::wiring::EdgeState;
use nervure_shm::{
    ConsumerPair, EdgeRegion, InboxHandle, InputEdge, OutputEdge, PairStatus, ProducerPair,
    Received, ReceivedSample, Seqpacket, Shortage, WakePage, monotonic_nanos,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long the attachment of an edge is tried while descriptors or memory are short. After that the keeper ends the
/// process, which is not the node that the file describes.
const ATTACH_PATIENCE_NANOS: u64 = 5_000_000_000;

/// The pause between looks at sockets that can be neither waited for nor read for lack of memory.
const POLL_PAUSE: Duration = Duration::from_millis(50);

/// What a node does when its keeper is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It stops at once.
    AtOnce,
    /// It stops when it has received what is queued.
    WhenDrained,
}

/// Starts the thread. It ends with the keeper's socket, or with the process.
pub(crate) fn start(core: Arc<Core>, inbox: InboxHandle, departure: Departure) -> io::Result<()> {
    let control = Control {
        core,
        inbox,
        departure,
        producer_pairs: HashMap::new(),
        consumer_pairs: HashMap::new(),
        output_of_edge: HashMap::new(),
        answers_of_edge: HashMap::new(),
        edge_of_pair: HashMap::new(),
        unattached: None,
        unmapped: HashMap::new(),
    };
    nervure_shm::spawn_without_signals("nervure-control", move || control.run())?;
    Ok(())
}

struct Control {
    core: Arc<Core>,
    inbox: InboxHandle,
    departure: Departure,
    producer_pairs: HashMap<u32, Arc<ProducerPair>>,
    consumer_pairs: HashMap<u32, Arc<ConsumerPair>>,
    output_of_edge: HashMap<u32, u32>,
    /// Of the edges on which this node's requests go to their server: the input for the answers.
    answers_of_edge: HashMap<u32, u32>,
    /// An edge of each pair as consumer, for messages.
    edge_of_pair: HashMap<u32, u32>,
    /// The edge whose packet waits in the keeper's socket. What is behind it waits, too.
    unattached: Option<Shortfall>,
    /// Per pair as consumer: a segment waits in its socket.
    unmapped: HashMap<u32, Shortfall>,
}

/// What the thread listens to.
#[derive(Clone, Copy, Debug)]
enum Source {
    Keeper,
    /// A pair, as producer.
    Consumer(u32),
    /// A pair, as consumer.
    Producer(u32),
}

impl Control {
    fn run(mut self) {
        let mut buffer = Vec::with_capacity(MAX_MESSAGE_BYTES);
        while self.receive(&mut buffer) {
            for source in self.wait() {
                match source {
                    Source::Keeper => {}
                    Source::Consumer(peer) => self.serve_producer_pair(peer),
                    Source::Producer(peer) => self.serve_consumer_pair(peer),
                }
            }
        }
        let mut news = self.core.news();
        news.keeper_gone = true;
        let reason = "the keeper is gone".to_owned();
        match self.departure {
            Departure::AtOnce => news.stop.get_or_insert(reason),
            Departure::WhenDrained => news.stop_when_drained.get_or_insert(reason),
        };
        drop(news);
        self.core.producer.stop();
        self.inbox.notify();
    }

    /// Sleeps until a socket is readable, or one that was left with a packet in it is to be tried again.
    fn wait(&self) -> Vec<Source> {
        let keeper = self.unattached.is_none().then_some(Source::Keeper);
        let as_producer = self
            .producer_pairs
            .keys()
            .map(|&peer| Source::Consumer(peer));
        let unhindered = self
            .consumer_pairs
            .keys()
            .filter(|peer| !self.unmapped.contains_key(peer));
        let as_consumer = unhindered.map(|&peer| Source::Producer(peer));
        let mut sources: Vec<Source> = keeper
            .into_iter()
            .chain(as_producer)
            .chain(as_consumer)
            .collect();
        let shortfalls = || {
            let of_keeper = self
                .unattached
                .iter()
                .map(|shortfall| (Source::Keeper, shortfall.again()));
            let of_pairs = self.unmapped.iter();
            of_keeper.chain(
                of_pairs.map(|(&peer, shortfall)| (Source::Producer(peer), shortfall.again())),
            )
        };
        let timeout = shortfalls().map(|(_, again)| again).min().map(|again| {
            let nanos = again.saturating_sub(monotonic_nanos());
            Timespec {
                tv_sec: (nanos / 1_000_000_000).cast_signed(),
                tv_nsec: (nanos % 1_000_000_000).cast_signed() as _,
            }
        });
        let readable =
            |source: &Source| PollFd::from_borrowed_fd(self.socket_of(*source), PollFlags::IN);
        let mut polled: Vec<_> = sources.iter().map(readable).collect();
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {
                let mut is_ready = polled.iter().map(|poll| !poll.revents().is_empty());
                sources.retain(|_| is_ready.next() == Some(true));
            }
            // More sockets than the process may have by now, or no memory: each can be looked at by itself.
            Err(_) => std::thread::sleep(POLL_PAUSE),
        }
        let now = monotonic_nanos();
        sources.extend(
            shortfalls()
                .filter(|(_, again)| *again <= now)
                .map(|(source, _)| source),
        );
        sources
    }

    fn socket_of(&self, source: Source) -> BorrowedFd<'_> {
        match source {
            Source::Keeper => self.core.socket.as_fd(),
            Source::Consumer(peer) => self.producer_pairs[&peer].as_fd(),
            Source::Producer(peer) => self.consumer_pairs[&peer].as_fd(),
        }
    }

    /// Handles what the keeper sent. False when it is gone.
    fn receive(&mut self, buffer: &mut Vec<u8>) -> bool {
        while self
            .unattached
            .is_none_or(|shortfall| shortfall.again() <= monotonic_nanos())
        {
            let fds = match self.core.socket.peek(buffer) {
                Ok(Received::Packet(fds)) => Ok(fds),
                Ok(Received::Closed) => return false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                // Not even its bytes: the socket stays readable.
                Err(error) if Shortage::of(&error).is_some() && buffer.is_empty() => {
                    std::thread::sleep(POLL_PAUSE);
                    return true;
                }
                Err(error) if Shortage::of(&error).is_some() => Err(error),
                Err(error) => {
                    eprintln!("nervure: cannot receive from the keeper: {error}");
                    return error.kind() == io::ErrorKind::InvalidData;
                }
            };
            match nervure_protocol::decode(buffer) {
                Ok(Message::AttachOutput(attach)) => {
                    let edge = attach.edge;
                    let attached = fds.and_then(|fds| self.attach_output(attach, fds));
                    if !self.note_attachment(edge, attached) {
                        return true;
                    }
                }
                Ok(Message::AttachInput(attach)) => {
                    let edge = attach.edge;
                    let attached = fds.and_then(|fds| self.attach_input(attach, fds));
                    if !self.note_attachment(edge, attached) {
                        return true;
                    }
                }
                // No other message has descriptors.
                Ok(message) => self.handle(message),
                Err(error) => eprintln!("nervure: ignored a message of the keeper: {error}"),
            }
            self.core.socket.consume();
        }
        true
    }

    /// Takes note of a try to attach an edge. False when it has to be tried again.
    fn note_attachment(&mut self, edge: u32, attached: io::Result<()>) -> bool {
        let now = monotonic_nanos();
        let Err(error) = attached else {
            if self
                .unattached
                .take()
                .is_some_and(|shortfall| shortfall.edge == edge)
            {
                self.tell_status(edge, EdgeState::Working, String::new());
            }
            return true;
        };
        if Shortage::of(&error).is_none() {
            eprintln!("nervure: cannot attach edge {edge}: {error}");
            return self.tell_status(edge, EdgeState::Failed, error.to_string());
        }
        let Some(shortfall) = &mut self.unattached else {
            self.unattached = Some(Shortfall::new(edge, now));
            self.tell_status(edge, EdgeState::Waiting, error.to_string());
            return false;
        };
        // The shortage may be older than the try for this edge: patience is for all of them together.
        shortfall.edge = edge;
        shortfall.failed_again(now);
        shortfall.age(now) >= ATTACH_PATIENCE_NANOS
            && self.tell_status(edge, EdgeState::Failed, error.to_string())
    }

    /// False when the keeper's socket is full.
    fn tell_status(&self, edge: u32, state: EdgeState, cause: String) -> bool {
        self.core
            .try_tell(&Answer::EdgeStatus(EdgeStatus { edge, state, cause }))
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::DetachOutput { edge, suspended } => {
                if let Some(output) = self.output_of_edge.get(&edge) {
                    self.core.outputs[*output as usize].detach(edge, suspended);
                }
                if let Some(input) = self.answers_of_edge.remove(&edge) {
                    // Requests that were sent until now may have got nowhere.
                    self.inbox.deliver_end(input);
                }
            }
            Message::CloseInput { edge, last } => self.inbox.close(edge, last),
            Message::LastValue(last) => self.last_value(&last),
            Message::Wired => self.tell(|news| news.wired = true),
            Message::Start => self.tell(|news| news.started = true),
            Message::Param(param) => {
                if self.core.set_param(&param) {
                    let event = Event::Param {
                        name: param.name,
                        value: param.value,
                    };
                    self.tell(|news| news.events.push_back(event));
                }
            }
            Message::Event(event) => self.tell(|news| news.events.push_back(event.into())),
            Message::Stop { reason, .. } => {
                self.core.producer.stop();
                self.tell(|news| news.stop = Some(reason));
            }
            Message::AttachOutput(_)
            | Message::AttachInput(_)
            | Message::Welcome(_)
            | Message::Refused { .. }
            | Message::Unknown => {}
        }
    }

    /// Delivers what the keeper sends in the place of a producer that failed.
    fn last_value(&self, last: &LastValue) {
        let utc = nervure_shm::utc_nanos();
        let header = Header {
            sequence: Header::NO_SEQUENCE,
            incarnation: last.incarnation,
            stamp: self.core.clock.now(),
            publish_mono: monotonic_nanos(),
            publish_utc: utc,
            boot_id: nervure_shm::boot_id(),
            ..Header::default()
        };
        let metadata: Metadata = [("on_failure", last.reason.as_str())].into_iter().collect();
        let sample = JsonSample::new(&last.value)
            .map_err(|error| error.to_string())
            .and_then(|value| {
                ReceivedSample::local(&value, &metadata, header).map_err(|error| error.to_string())
            });
        match sample {
            Ok(sample) => self.inbox.deliver(last.input, sample),
            Err(error) => eprintln!("nervure: cannot deliver a value of `on_failure`: {error}"),
        }
    }

    fn tell(&self, change: impl FnOnce(&mut crate::node::News)) {
        change(&mut self.core.news());
        self.inbox.notify();
    }

    fn attach_output(&mut self, attach: AttachOutput, fds: Vec<OwnedFd>) -> io::Result<()> {
        let mut fds = fds.into_iter();
        let [region, bell, eventfd] = take(&mut fds)?;
        // First what may fail for lack of memory, so that a failed try leaves nothing behind.
        let region = EdgeRegion::map(&region)?;
        let bell = Arc::new(WakePage::map(&bell)?);
        let pair = match fds.next() {
            Some(socket) => {
                let pair = Arc::new(ProducerPair::new(Seqpacket::from(socket), attach.peer));
                self.producer_pairs.insert(attach.peer, pair.clone());
                pair
            }
            None => self
                .producer_pairs
                .get(&attach.peer)
                .cloned()
                .ok_or_else(no_pair)?,
        };
        let is_server =
            |service: &str| service.split('/').next() == attach.consumer.split('/').next();
        let client = self
            .core
            .welcome
            .clients
            .iter()
            .find(|client| client.output == attach.output);
        if let Some(client) = client.filter(|client| is_server(&client.service)) {
            self.answers_of_edge.insert(attach.edge, client.input);
        }
        let output = self.core.outputs.get(attach.output as usize);
        let output =
            output.ok_or_else(|| invalid(format!("there is no output {}", attach.output)))?;
        if attach.clear_counters {
            output.clear_counters(attach.counters_row);
        }
        output.attach(OutputEdge {
            id: attach.edge,
            consumer: attach.consumer,
            input: attach.input,
            queue: attach.queue,
            counters_row: attach.counters_row,
            region,
            bell,
            eventfd: Arc::new(eventfd),
            pair,
        })?;
        if attach.gives_way {
            output.mark_as_observer(attach.edge);
        }
        self.output_of_edge.insert(attach.edge, attach.output);
        Ok(())
    }

    fn attach_input(&mut self, attach: AttachInput, fds: Vec<OwnedFd>) -> io::Result<()> {
        let mut fds = fds.into_iter();
        let [region, producer_wake] = take(&mut fds)?;
        let region = EdgeRegion::map(&region)?;
        let producer_wake = Arc::new(WakePage::map(&producer_wake)?);
        let pair = match fds.next() {
            Some(socket) => {
                let pair = Arc::new(ConsumerPair::new(Seqpacket::from(socket)));
                self.consumer_pairs.insert(attach.peer, pair.clone());
                pair
            }
            None => self
                .consumer_pairs
                .get(&attach.peer)
                .cloned()
                .ok_or_else(no_pair)?,
        };
        self.edge_of_pair.insert(attach.peer, attach.edge);
        self.inbox.attach(InputEdge {
            id: attach.edge,
            input: attach.input,
            policy: attach.queue.policy,
            region,
            pair,
            producer_wake,
            counters: self.core.producer.counters.clone(),
        });
        Ok(())
    }

    fn serve_consumer_pair(&mut self, peer: u32) {
        // Misbehaviour is found again, and reported, when a descriptor needs the segment.
        let closed = PairStatus {
            is_open: false,
            shortage: None,
            is_relieved: true,
        };
        let intake = self.consumer_pairs[&peer].receive().unwrap_or(closed);
        if !intake.is_open {
            self.consumer_pairs.remove(&peer);
        }
        let now = monotonic_nanos();
        let edge = self.edge_of_pair.get(&peer).copied().unwrap_or_default();
        match (intake.shortage, self.unmapped.get_mut(&peer)) {
            (Some(_), Some(shortfall)) => shortfall.failed_again(now),
            (Some(shortage), None) => {
                self.unmapped.insert(peer, Shortfall::new(edge, now));
                self.tell_status(edge, EdgeState::Waiting, shortage.to_string());
            }
            (None, Some(_)) => {
                self.unmapped.remove(&peer);
                self.tell_status(edge, EdgeState::Working, String::new());
            }
            (None, None) => {}
        }
        if intake.is_relieved {
            self.inbox.check_all_inputs();
        }
    }

    fn serve_producer_pair(&mut self, peer: u32) {
        match self.producer_pairs[&peer].receive() {
            Some(retired) => {
                for output in &self.core.outputs {
                    output.acknowledge(peer, &retired);
                }
            }
            // Whether the consumer is dead is for the keeper to say.
            None => {
                self.producer_pairs.remove(&peer);
            }
        }
    }
}

fn take<const N: usize>(fds: &mut impl Iterator<Item = OwnedFd>) -> io::Result<[OwnedFd; N]> {
    let taken: Vec<OwnedFd> = fds.take(N).collect();
    taken
        .try_into()
        .map_err(|taken: Vec<_>| invalid(format!("{} descriptors came, expected {N}", taken.len())))
}

fn no_pair() -> io::Error {
    invalid("the pair's socket did not come".to_owned())
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
