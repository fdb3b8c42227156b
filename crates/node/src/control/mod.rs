//! The control thread. It sleeps on the keeper's socket and the sockets of pairs, and it alone
//! attaches edges. So a node that computes, sleeps or waits still gets new edges, learns of deaths,
//! and gives memory back.
//!
//! A packet with descriptors leaves its socket only when its edge is attached, or its segment
//! mapped. Whatever resource runs out before, no packet is lost, and the packets behind it keep
//! their order. Until then the thread tries again, and the keeper is notified.

mod edges;
mod pairs;
mod retry;

use crate::core::{CONSUMER_ENDED, Core, Notice, Notices};
use crate::diagnostics::emit;
use crate::sending::Publisher;
use edges::Edges;
use nervure_message::{Header, JsonSample, Metadata};
use nervure_protocol::keeper_to_node::{LastValue, Message, NeighbourEvent, NodeEnd, Publish};
use nervure_protocol::node_to_keeper::{EdgeStatus, Message as Answer, Published};
use nervure_protocol::wiring::EdgeState;
use nervure_protocol::{MAX_MESSAGE_BYTES, keeper_to_cli};
use nervure_shm::{InboxHandle, PairStatus, Received, Shortage, monotonic_nanos};
use retry::Retry;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Time limit for attaching an edge while descriptors or memory are short. After that the keeper
/// ends the process, which would not be the node that the file describes.
const ATTACH_TIMEOUT_NANOS: u64 = 5_000_000_000;

/// The pause before sockets are checked again that can be neither polled nor read for lack of
/// memory.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// Reaction of a node to the end of its keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// Stop at once.
    AtOnce,
    /// Stop when all queued samples were received.
    WhenDrained,
}

/// Starts the control thread. It ends with the keeper's socket, or with the process.
pub(crate) fn start(core: Arc<Core>, inbox: InboxHandle, departure: Departure) -> io::Result<()> {
    let control = Control {
        core,
        inbox,
        departure,
        edges: Edges::default(),
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
    edges: Edges,
    /// The edge whose packet waits in the keeper's socket. Later packets wait, too.
    unattached: Option<Retry>,
    /// Segments that wait in the sockets of pairs, by peer.
    unmapped: HashMap<u32, Retry>,
}

/// A socket that the thread listens to.
#[derive(Clone, Copy, Debug)]
enum Source {
    Keeper,
    /// The peer of a pair in which this node is the producer.
    Consumer(u32),
    /// The peer of a pair in which this node is the consumer.
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
        emit!(debug, "the connection to the keeper is closed");
        let mut notices = self.core.notices();
        notices.keeper_gone = true;
        let reason = "the keeper is gone".to_owned();
        match self.departure {
            Departure::AtOnce => notices.stop.get_or_insert(reason),
            Departure::WhenDrained => notices.stop_when_drained.get_or_insert(reason),
        };
        drop(notices);
        self.core.producer.stop();
        self.inbox.notify();
    }

    /// Sleeps until a socket is readable, or a packet that was left in one is due for a retry.
    fn wait(&self) -> Vec<Source> {
        let mut sources = self.sources_to_poll();
        let next_attempt = self.retries().map(|(_, attempt)| attempt).min();
        let timeout = next_attempt.map(|attempt| {
            let nanos = attempt.saturating_sub(monotonic_nanos());
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
            // No memory, or more sockets than the process may have by now. Each can be read alone.
            Err(_) => std::thread::sleep(SHORTAGE_PAUSE),
        }
        let now = monotonic_nanos();
        let due = self.retries().filter(|(_, attempt)| *attempt <= now);
        sources.extend(due.map(|(source, _)| source));
        sources
    }

    /// All sockets but those with a packet that has to be tried again: these stay readable.
    fn sources_to_poll(&self) -> Vec<Source> {
        let keeper = self.unattached.is_none().then_some(Source::Keeper);
        let consumers = self.edges.producer_pairs.open_peers();
        let consumers = consumers.map(Source::Consumer);
        let producers = self.edges.consumer_pairs.open_peers();
        let producers = producers.filter(|peer| !self.unmapped.contains_key(peer));
        keeper
            .into_iter()
            .chain(consumers)
            .chain(producers.map(Source::Producer))
            .collect()
    }

    /// Sockets with a packet to be tried again, and when.
    fn retries(&self) -> impl Iterator<Item = (Source, u64)> {
        let keeper = self.unattached.iter();
        let keeper = keeper.map(|retry| (Source::Keeper, retry.next_attempt()));
        let producers = self.unmapped.iter();
        let producers =
            producers.map(|(&peer, retry)| (Source::Producer(peer), retry.next_attempt()));
        keeper.chain(producers)
    }

    fn socket_of(&self, source: Source) -> BorrowedFd<'_> {
        match source {
            Source::Keeper => self.core.socket.as_fd(),
            Source::Consumer(peer) => self.edges.producer_pairs.get(peer).as_fd(),
            Source::Producer(peer) => self.edges.consumer_pairs.get(peer).as_fd(),
        }
    }

    /// Handles the keeper's messages. Returns false when the keeper is gone.
    fn receive(&mut self, buffer: &mut Vec<u8>) -> bool {
        while self
            .unattached
            .is_none_or(|retry| retry.next_attempt() <= monotonic_nanos())
        {
            let fds = match self.core.socket.peek(buffer) {
                Ok(Received::Packet(fds)) => Ok(fds),
                Ok(Received::Closed) => return false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                // Not even the packet's bytes could be read. The socket stays readable.
                Err(error) if Shortage::of(&error).is_some() && buffer.is_empty() => {
                    std::thread::sleep(SHORTAGE_PAUSE);
                    return true;
                }
                Err(error) if Shortage::of(&error).is_some() => Err(error),
                Err(error) => {
                    emit!(warn, %error, "cannot receive from the keeper");
                    return error.kind() == io::ErrorKind::InvalidData;
                }
            };
            match nervure_protocol::decode(buffer) {
                Ok(Message::AttachOutput(attach)) => {
                    let edge = attach.edge;
                    let attached =
                        fds.and_then(|fds| self.edges.attach_output(&self.core, attach, fds));
                    if !self.finish_attachment(edge, attached) {
                        return true;
                    }
                }
                Ok(Message::AttachInput(attach)) => {
                    let edge = attach.edge;
                    let attached = fds.and_then(|fds| {
                        self.edges
                            .attach_input(&self.core, &self.inbox, attach, fds)
                    });
                    if !self.finish_attachment(edge, attached) {
                        return true;
                    }
                }
                // No other message carries descriptors.
                Ok(message) => self.handle(message),
                Err(error) => emit!(warn, %error, "ignored a message of the keeper"),
            }
            self.core.socket.consume();
        }
        true
    }

    /// Reports the result of an attempt to attach an edge. Returns false if it has to be tried
    /// again.
    fn finish_attachment(&mut self, edge: u32, attached: io::Result<()>) -> bool {
        let now = monotonic_nanos();
        let Err(error) = attached else {
            emit!(debug, edge, "edge attached");
            let retry = self.unattached.take();
            if retry.is_some_and(|retry| retry.edge == edge) {
                self.report_status(edge, EdgeState::Working, String::new());
            }
            return true;
        };
        if Shortage::of(&error).is_none() {
            emit!(warn, edge, %error, "cannot attach an edge");
            return self.report_status(edge, EdgeState::Failed, error.to_string());
        }
        let Some(retry) = &mut self.unattached else {
            emit!(info, edge, %error, "the attachment of an edge waits");
            self.unattached = Some(Retry::new(edge, now));
            self.report_status(edge, EdgeState::Waiting, error.to_string());
            return false;
        };
        // The shortage may have begun with an earlier edge: the timeout is for all edges together.
        retry.edge = edge;
        retry.failed_again(now);
        retry.age(now) >= ATTACH_TIMEOUT_NANOS
            && self.report_status(edge, EdgeState::Failed, error.to_string())
    }

    /// Returns false if the keeper's socket is full.
    fn report_status(&self, edge: u32, state: EdgeState, cause: String) -> bool {
        self.core
            .try_send_to_keeper(&Answer::EdgeStatus(EdgeStatus { edge, state, cause }))
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::DetachOutput { edge, suspended } => {
                emit!(debug, edge, suspended, "output edge detached");
                let output = self.edges.output_of(edge);
                let answers = self.edges.detach_output(&self.core, edge, suspended);
                if let Some(output) = output.filter(|_| self.core.reports_ended_consumers()) {
                    self.notify_of_ended_consumer(output);
                }
                if let Some(input) = answers {
                    // Requests that were sent until now may never be answered.
                    self.inbox.deliver_end(input);
                }
            }
            Message::AwaitConsumer {
                output,
                counters_row,
                returns,
            } => {
                if let Some(output) = self.core.outputs.get(output as usize) {
                    output.await_consumer(counters_row, returns);
                }
            }
            Message::CloseInput { edge, last } => {
                emit!(debug, edge, "input edge closed");
                self.edges.consumer_pairs.detach(edge);
                self.inbox.close(edge, last);
            }
            Message::LastValue(last) => self.deliver_last_value(&last),
            Message::Wired => self.notify(|notices| notices.wired = true),
            Message::Start => {
                emit!(debug, "the dataflow has started");
                self.notify(|notices| notices.started = true);
            }
            Message::Param(param) => {
                if self.core.set_param(&param) {
                    let notice = Notice::ParamChanged(param);
                    self.notify(|notices| notices.events.push_back(notice));
                }
            }
            Message::Publish(publish) => {
                let result = self.publish(&publish);
                let id = publish.id;
                self.core
                    .send_to_keeper(&Answer::Published(Published { id, result }));
            }
            Message::Call(call) => {
                self.notify(|notices| notices.events.push_back(Notice::Call(call)));
            }
            Message::Event(event) => {
                match event.kind.as_str() {
                    "PAUSE" => self.core.set_paused(true),
                    "RESUME" => self.core.set_paused(false),
                    _ => {}
                }
                self.notify(|notices| notices.events.push_back(Notice::Event(event)));
            }
            Message::Stop { reason, .. } => {
                emit!(debug, reason, "asked to stop");
                self.core.producer.stop();
                self.notify(|notices| notices.stop = Some(reason));
            }
            Message::StopWhenDrained { reason } => {
                emit!(debug, reason, "asked to stop when drained");
                self.notify(|notices| notices.stop_when_drained = Some(reason));
            }
            Message::AttachOutput(_)
            | Message::AttachInput(_)
            | Message::Welcome(_)
            | Message::Refused { .. }
            | Message::Unknown => {}
        }
    }

    fn notify_of_ended_consumer(&self, output: u32) {
        let output = self.core.welcome.outputs.get(output as usize);
        let event = NeighbourEvent {
            kind: CONSUMER_ENDED.to_owned(),
            node: String::new(),
            inputs: output.iter().map(|output| output.name.clone()).collect(),
            reason: String::new(),
            restarts: false,
        };
        self.notify(|notices| notices.events.push_back(Notice::Event(event)));
    }

    /// Delivers the value that the keeper sends in place of a producer that failed (`on_failure`).
    fn deliver_last_value(&self, last: &LastValue) {
        let header = Header {
            incarnation: last.incarnation,
            ..Header::default()
        };
        let metadata: Metadata = [("on_failure", last.reason.as_str())].into_iter().collect();
        match self.core.sample_of(&last.value, &metadata, header) {
            Ok(sample) => self.inbox.deliver(last.input, sample),
            Err(error) => emit!(warn, %error, "cannot deliver a value of `on_failure`"),
        }
    }

    /// Publishes a sample of a tool, or delivers it to an input of this node alone. It waits for no
    /// consumer: the program may fill the queue, and this thread has to go on.
    fn publish(&self, publish: &Publish) -> Result<keeper_to_cli::Published, String> {
        match publish.at {
            NodeEnd::Output(output) => {
                let known = self.core.outputs.get(output as usize).cloned();
                let known = known.ok_or_else(|| format!("there is no output {output}"))?;
                let check = self.core.check(output as usize);
                let publisher = Publisher::new(known, self.core.clone(), check);
                let value = JsonSample::new(&publish.value).map_err(|error| error.to_string())?;
                let receipt = publisher
                    .try_send(&value)
                    .map_err(|error| error.to_string())?;
                Ok(keeper_to_cli::Published {
                    queued: receipt.queued,
                    missed: receipt.missed,
                })
            }
            NodeEnd::Input(input) => {
                let (metadata, header) = (Metadata::default(), Header::default());
                let sample = self.core.sample_of(&publish.value, &metadata, header)?;
                let notice = Notice::Sample(input, Box::new(sample));
                self.notify(|notices| notices.events.push_back(notice));
                Ok(keeper_to_cli::Published {
                    queued: 1,
                    missed: 0,
                })
            }
        }
    }

    /// Adds to the notices, and wakes the node's program.
    fn notify(&self, add: impl FnOnce(&mut Notices)) {
        add(&mut self.core.notices());
        self.inbox.notify();
    }

    fn serve_consumer_pair(&mut self, peer: u32) {
        // On an error the pair is closed. A misbehaving peer is found again, and reported, when a
        // descriptor refers to the missing segment.
        let closed = PairStatus {
            is_open: false,
            shortage: None,
            is_relieved: true,
        };
        let pairs = &mut self.edges.consumer_pairs;
        let status = pairs.get(peer).receive().unwrap_or(closed);
        let edge = pairs.edge_of(peer).unwrap_or_default();
        if !status.is_open {
            pairs.close(peer);
        }
        let now = monotonic_nanos();
        match (status.shortage, self.unmapped.get_mut(&peer)) {
            (Some(_), Some(retry)) => retry.failed_again(now),
            (Some(shortage), None) => {
                emit!(info, edge, %shortage, "the mapping of a segment waits");
                self.unmapped.insert(peer, Retry::new(edge, now));
                self.report_status(edge, EdgeState::Waiting, shortage.to_string());
            }
            (None, Some(_)) => {
                self.unmapped.remove(&peer);
                self.report_status(edge, EdgeState::Working, String::new());
            }
            (None, None) => {}
        }
        if status.is_relieved {
            self.inbox.check_all_inputs();
        }
    }

    fn serve_producer_pair(&mut self, peer: u32) {
        match self.edges.producer_pairs.get(peer).receive() {
            Some(retired) => {
                for output in &self.core.outputs {
                    output.acknowledge(peer, &retired);
                }
            }
            // The socket is closed. Whether the consumer is dead, the keeper decides.
            None => self.edges.producer_pairs.close(peer),
        }
    }
}
