//! The edges of a node and the sockets of its peers, from the descriptors that the keeper sends.

use super::pairs::Pairs;
use crate::core::Core;
use nervure_protocol::keeper_to_node::{AttachInput, AttachOutput};
use nervure_shm::{
    ConsumerPair, EdgeRegion, InboxHandle, InputEdge, OutputEdge, ProducerPair, Seqpacket, WakePage,
};
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Edges {
    /// Pairs in which this node is the producer, by peer.
    pub(super) producer_pairs: Pairs<ProducerPair>,
    /// Pairs in which this node is the consumer, by peer.
    pub(super) consumer_pairs: Pairs<ConsumerPair>,
    output_of_edge: HashMap<u32, u32>,
    /// The input for answers, by the edge on which this node sends requests.
    answers_of_edge: HashMap<u32, u32>,
}

impl Edges {
    pub(super) fn attach_output(
        &mut self,
        core: &Core,
        attach: AttachOutput,
        fds: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let mut fds = fds.into_iter();
        let [region, bell, eventfd] = take(&mut fds)?;
        // Steps that can fail for lack of memory come first, so that a failed attempt has no
        // effect.
        let output = core.outputs.get(attach.output as usize);
        let declared = core.welcome.outputs.get(attach.output as usize);
        let (output, declared) = output
            .zip(declared)
            .ok_or_else(|| invalid(format!("there is no output {}", attach.output)))?;
        let region = EdgeRegion::map(&region, attach.queue.depth, declared.blocks)?;
        let bell = Arc::new(WakePage::map(&bell)?);
        if let Some(socket) = fds.next() {
            let pair = ProducerPair::new(Seqpacket::from(socket), attach.peer);
            self.producer_pairs.open(attach.peer, pair);
        }
        let pair = self.producer_pairs.attach(attach.peer, attach.edge);
        let pair = pair.ok_or_else(no_pair)?;
        self.note_answers(core, &attach);
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

    /// If the edge carries requests to their service, or to the stand-in of a client on its machine,
    /// remembers the input for the answers. Only observers consume requests otherwise.
    fn note_answers(&mut self, core: &Core, attach: &AttachOutput) {
        let mut clients = core.welcome.clients.iter();
        let client = clients.find(|client| client.output == attach.output);
        if let Some(client) = client.filter(|_| !attach.gives_way) {
            self.answers_of_edge.insert(attach.edge, client.input);
        }
    }

    pub(super) fn attach_input(
        &mut self,
        core: &Core,
        inbox: &InboxHandle,
        attach: AttachInput,
        fds: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let mut fds = fds.into_iter();
        let [region, producer_wake] = take(&mut fds)?;
        let region = EdgeRegion::map(&region, attach.queue.depth, attach.blocks)?;
        let producer_wake = Arc::new(WakePage::map(&producer_wake)?);
        if let Some(socket) = fds.next() {
            let pair = ConsumerPair::new(Seqpacket::from(socket));
            self.consumer_pairs.open(attach.peer, pair);
        }
        let pair = self.consumer_pairs.attach(attach.peer, attach.edge);
        let pair = pair.ok_or_else(no_pair)?;
        inbox.attach(InputEdge {
            id: attach.edge,
            input: attach.input,
            policy: attach.queue.policy,
            region,
            pair,
            producer_wake,
            counters: core.producer.counters.clone(),
        });
        Ok(())
    }

    /// The output of an edge that is attached.
    pub(super) fn output_of(&self, edge: u32) -> Option<u32> {
        self.output_of_edge.get(&edge).copied()
    }

    /// Detaches an edge from its output. Returns the input for answers, if the edge carried
    /// requests.
    pub(super) fn detach_output(&mut self, core: &Core, edge: u32, suspended: bool) -> Option<u32> {
        if let Some(output) = self.output_of_edge.get(&edge) {
            core.outputs[*output as usize].detach(edge, suspended);
        }
        self.producer_pairs.detach(edge);
        self.answers_of_edge.remove(&edge)
    }
}

fn take<const N: usize>(fds: &mut impl Iterator<Item = OwnedFd>) -> io::Result<[OwnedFd; N]> {
    let taken: Vec<OwnedFd> = fds.take(N).collect();
    taken
        .try_into()
        .map_err(|taken: Vec<_>| invalid(format!("expected {N} descriptors, got {}", taken.len())))
}

fn no_pair() -> io::Error {
    invalid("the socket of the pair is missing".to_owned())
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
