//! The control thread: asleep on the keeper's socket and the pair sockets, it alone attaches edges, so that a node that
//! computes, sleeps or waits can still get an observer, learn of a death, and give memory back.

use crate::event::Event;
use crate::node::Core;
use nervure_message::{Header, JsonSample, Metadata};
use nervure_protocol::MAX_MESSAGE_BYTES;
use nervure_protocol::keeper_to_node::{AttachInput, AttachOutput, LastValue, Message};
use nervure_shm::{
    ConsumerPair, EdgeRegion, InboxHandle, InputEdge, OutputEdge, ProducerPair, Received, Sample, Seqpacket,
    WakePage, monotonic_nanos,
};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

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
}

impl Control {
    fn run(mut self) {
        let mut buffer = Vec::with_capacity(MAX_MESSAGE_BYTES);
        while self.receive(&mut buffer) {
            let (producers, consumers) = self.wait();
            for peer in producers {
                self.serve_producer_pair(peer);
            }
            for peer in consumers {
                // Misbehaviour on the pair socket is found again, and told, when a descriptor needs the segment.
                if !matches!(self.consumer_pairs[&peer].receive(), Ok(true)) {
                    self.consumer_pairs.remove(&peer);
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

    /// Sleeps until a socket is readable; returns the pairs, as producer and as consumer, that are.
    fn wait(&self) -> (Vec<u32>, Vec<u32>) {
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let producers: Vec<u32> = self.producer_pairs.keys().copied().collect();
        let consumers: Vec<u32> = self.consumer_pairs.keys().copied().collect();
        let mut polled = vec![readable(self.core.socket.as_fd())];
        polled.extend(producers.iter().map(|peer| readable(self.producer_pairs[peer].as_fd())));
        polled.extend(consumers.iter().map(|peer| readable(self.consumer_pairs[peer].as_fd())));
        if rustix::event::poll(&mut polled, None).is_err() {
            return Default::default();
        }
        let ready = |peers: Vec<u32>, polled: &[PollFd<'_>]| {
            let ready = peers.into_iter().zip(polled).filter(|(_, poll)| !poll.revents().is_empty());
            ready.map(|(peer, _)| peer).collect()
        };
        let (as_producer, as_consumer) = polled[1..].split_at(producers.len());
        (ready(producers, as_producer), ready(consumers, as_consumer))
    }

    /// Handles what the keeper sent. False when it is gone.
    fn receive(&mut self, buffer: &mut Vec<u8>) -> bool {
        loop {
            match self.core.socket.receive(buffer) {
                Ok(Received::Packet(fds)) => match nervure_protocol::decode(buffer) {
                    Ok(message) => self.handle(message, fds),
                    Err(error) => eprintln!("nervure: ignored a message of the keeper: {error}"),
                },
                Ok(Received::Closed) => return false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) => {
                    eprintln!("nervure: cannot receive from the keeper: {error}");
                    return error.kind() == io::ErrorKind::InvalidData;
                }
            }
        }
    }

    fn handle(&mut self, message: Message, fds: Vec<OwnedFd>) {
        match message {
            Message::AttachOutput(attach) => {
                let edge = attach.edge;
                if let Err(error) = self.attach_output(attach, fds) {
                    eprintln!("nervure: cannot attach edge {edge}: {error}");
                }
            }
            Message::AttachInput(attach) => {
                let edge = attach.edge;
                if let Err(error) = self.attach_input(attach, fds) {
                    eprintln!("nervure: cannot attach edge {edge}: {error}");
                }
            }
            Message::DetachOutput { edge, suspended } => {
                if let Some(output) = self.output_of_edge.get(&edge) {
                    self.core.outputs[*output as usize].detach(edge, suspended);
                }
                if let Some(input) = self.answers_of_edge.remove(&edge) {
                    // Requests that were sent until now may have got nowhere.
                    self.inbox.ended(input);
                }
            }
            Message::CloseInput { edge, last } => self.inbox.close(edge, last),
            Message::LastValue(last) => self.last_value(&last),
            Message::Wired => self.tell(|news| news.wired = true),
            Message::Start => self.tell(|news| news.started = true),
            Message::Param(param) => {
                if self.core.set_param(&param) {
                    let event = Event::Param { name: param.name, value: param.value };
                    self.tell(|news| news.events.push_back(event));
                }
            }
            Message::Event(event) => self.tell(|news| news.events.push_back(event.into())),
            Message::Stop { reason, .. } => {
                self.core.producer.stop();
                self.tell(|news| news.stop = Some(reason));
            }
            Message::Welcome(_) | Message::Refused { .. } | Message::Unknown => {}
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
            .and_then(|value| Sample::own(&value, &metadata, header).map_err(|error| error.to_string()));
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
        let pair = match fds.next() {
            Some(socket) => {
                let pair = Arc::new(ProducerPair::new(Seqpacket::from(socket), attach.peer));
                self.producer_pairs.insert(attach.peer, pair.clone());
                pair
            }
            None => self.producer_pairs.get(&attach.peer).cloned().ok_or_else(no_pair)?,
        };
        let is_server = |service: &str| service.split('/').next() == attach.consumer.split('/').next();
        let client = self.core.welcome.clients.iter().find(|client| client.output == attach.output);
        if let Some(client) = client.filter(|client| is_server(&client.service)) {
            self.answers_of_edge.insert(attach.edge, client.input);
        }
        let output = self.core.outputs.get(attach.output as usize);
        let output = output.ok_or_else(|| invalid(format!("there is no output {}", attach.output)))?;
        if attach.clear_counters {
            output.clear_counters(attach.counters_row);
        }
        output.attach(OutputEdge {
            id: attach.edge,
            consumer: attach.consumer,
            input: attach.input,
            queue: attach.queue,
            counters_row: attach.counters_row,
            region: EdgeRegion::map(&region)?,
            bell: Arc::new(WakePage::map(&bell)?),
            eventfd: Arc::new(eventfd),
            pair,
        })?;
        if attach.gives_way {
            output.let_give_way(attach.edge);
        }
        self.output_of_edge.insert(attach.edge, attach.output);
        Ok(())
    }

    fn attach_input(&mut self, attach: AttachInput, fds: Vec<OwnedFd>) -> io::Result<()> {
        let mut fds = fds.into_iter();
        let [region, space] = take(&mut fds)?;
        let pair = match fds.next() {
            Some(socket) => {
                let pair = Arc::new(ConsumerPair::new(Seqpacket::from(socket)));
                self.consumer_pairs.insert(attach.peer, pair.clone());
                pair
            }
            None => self.consumer_pairs.get(&attach.peer).cloned().ok_or_else(no_pair)?,
        };
        self.inbox.attach(InputEdge {
            id: attach.edge,
            input: attach.input,
            policy: attach.queue.policy,
            region: EdgeRegion::map(&region)?,
            pair,
            space: Arc::new(WakePage::map(&space)?),
            counters: self.core.producer.counters.clone(),
        });
        Ok(())
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
