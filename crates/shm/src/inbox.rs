//! The inbox of a node: waits for all of its inputs, and delivers their samples.

use crate::fork::{self, NodeForked};
use crate::inbox_handle::{Command, InboxHandle};
use crate::input_edge::{Cursor, InputEdge};
use crate::lock_free::Waited;
use crate::misbehaviour::Misbehaviour;
use crate::received_sample::{Pop, ReceivedSample, SampleInner};
use crate::sys::monotonic_nanos;
use crate::wake::OwnWakePage;
use nervure_message::Origin;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::sync::Arc;

/// Result of [`Inbox::try_next`].
#[derive(Debug)]
pub enum Arrival {
    /// A sample.
    Sample {
        /// Index of its input.
        input: u32,
        /// The sample.
        sample: ReceivedSample,
    },
    /// The input's last producer is gone, and its last sample has been delivered.
    Closed {
        /// Index of the input.
        input: u32,
    },
    /// The producer of an edge broke the protocol; the edge was cut off.
    Misbehaved {
        /// Index of its input.
        input: u32,
        /// Id of the edge.
        edge: u32,
        /// The breach.
        misbehaviour: Misbehaviour,
    },
    /// A producer of the input is gone, and its last sample has been delivered; another may come.
    Ended {
        /// Index of the input.
        input: u32,
    },
    /// The control thread has work for the node: see [`InboxHandle::notify`].
    Notified,
}

/// The inputs of one node: waits for all of them at once, and delivers round-robin over those that
/// have news. Each input keeps its own order.
#[derive(Debug)]
pub struct Inbox {
    handle: InboxHandle,
    inputs: Vec<Input>,
    /// Bits taken from the doorbell whose inputs have not been found empty yet.
    pending: Vec<u64>,
    cursor: u32,
    /// Arrivals until the doorbell is checked although something is pending.
    arrivals_until_check: u32,
    /// Memory for the next sample: see [`InputEdge::pop`].
    spare: Option<Arc<SampleInner>>,
}

/// Arrivals between two checks of the doorbell. A producer that is faster than this node keeps its
/// own bit pending forever, and the other inputs must not wait for it. Checking at each arrival
/// would cost both sides a cache line per sample.
const ARRIVALS_PER_DOORBELL_CHECK: u32 = 16;

#[derive(Debug, Default)]
struct Input {
    /// The current edge is the first. The edges of the producer's next incarnations follow, with
    /// samples delivered in place of a lost producer between them.
    sources: VecDeque<Source>,
    /// Edges that were cut off, until the control thread reports their end.
    cut_off_edges: Vec<u32>,
    /// The control thread has reported that no other producer will come.
    has_last_producer: bool,
    is_closed: bool,
    /// See [`Inbox::keep`].
    is_kept: bool,
    /// See [`Inbox::set_held`].
    is_held: bool,
    /// That of the last sample from another machine.
    last_origin: Option<Origin>,
}

#[derive(Debug)]
enum Source {
    Edge(AttachedEdge),
    Local(ReceivedSample),
    /// See [`InboxHandle::deliver_end`].
    End,
}

#[derive(Debug)]
struct AttachedEdge {
    edge: Arc<InputEdge>,
    /// For an input that is kept.
    cursor: Cursor,
    /// The producer is gone: once the ring is empty, the edge has ended.
    is_ended: bool,
    /// The breach by its producer, until it is reported.
    misbehaviour: Option<Misbehaviour>,
}

/// The most local samples that wait on an input; beyond it the oldest is dropped. Each of them
/// reports a producer's failure.
const MAX_LOCAL_SAMPLES: usize = 16;

impl Input {
    fn edges_mut(&mut self) -> impl Iterator<Item = &mut AttachedEdge> {
        self.sources.iter_mut().filter_map(|source| match source {
            Source::Edge(attached) => Some(attached),
            Source::Local(_) | Source::End => None,
        })
    }

    /// Adds a local sample behind everything that is queued.
    fn deliver(&mut self, sample: ReceivedSample) {
        let is_local = |source: &Source| matches!(source, Source::Local(_));
        if self
            .sources
            .iter()
            .filter(|source| is_local(source))
            .count()
            == MAX_LOCAL_SAMPLES
            && let Some(oldest) = self.sources.iter().position(is_local)
        {
            self.sources.remove(oldest);
        }
        self.sources.push_back(Source::Local(sample));
    }

    /// Whether a sample of this origin was delivered before: the stand-in of its producer was
    /// restarted, and has published it again.
    #[inline]
    fn is_repeated(last: &mut Option<Origin>, origin: Option<Origin>) -> bool {
        let Some(origin) = origin else {
            return false;
        };
        if last.is_some_and(|last| origin.is_covered_by(last)) {
            return true;
        }
        *last = Some(origin);
        false
    }

    /// Marks the producer of `edge` as gone. False if the edge is not one of this input.
    fn close(&mut self, edge: u32, last: bool) -> bool {
        if let Some(attached) = self.edges_mut().find(|attached| attached.edge.id == edge) {
            attached.is_ended = true;
        } else if let Some(index) = self.cut_off_edges.iter().position(|&cut| cut == edge) {
            self.cut_off_edges.swap_remove(index);
        } else {
            return false;
        }
        self.has_last_producer |= last;
        true
    }
}

impl Inbox {
    /// Makes the inbox of the node that has this wake page and eventfd.
    pub fn new(page: Arc<OwnWakePage>, eventfd: Arc<OwnedFd>) -> Self {
        let inputs = page.inputs();
        Self {
            inputs: (0..inputs).map(|_| Input::default()).collect(),
            // One bit more than inputs: the last is for commands of the control thread.
            pending: vec![0; (inputs as usize + 1).div_ceil(64)],
            cursor: 0,
            arrivals_until_check: ARRIVALS_PER_DOORBELL_CHECK,
            spare: None,
            handle: InboxHandle::new(page, eventfd),
        }
    }

    /// A handle for the control thread.
    pub fn handle(&self) -> InboxHandle {
        self.handle.clone()
    }

    /// Leaves the samples of `input` in their queue until they are confirmed
    /// ([`ReceivedSample::confirm`]), in the order in which they were delivered. So the next process of
    /// this node gets those that were not. For inputs whose queues have the policy `block`.
    pub fn keep(&mut self, input: u32) {
        if let Some(input) = self.inputs.get_mut(input as usize) {
            input.is_kept = true;
        }
    }

    /// Leaves the samples of `input` in their queue, by its policy, while those of other inputs are
    /// delivered; or delivers them again.
    pub fn set_held(&mut self, input: u32, is_held: bool) {
        if let Some(known) = self.inputs.get_mut(input as usize) {
            known.is_held = is_held;
            self.mark_pending(input);
        }
    }

    /// Whether the samples of an input are left in their queue: see [`Inbox::set_held`].
    pub fn holds_any(&self) -> bool {
        self.inputs.iter().any(|input| input.is_held)
    }

    /// The next arrival, if there is one. Never waits.
    ///
    /// # Errors
    /// [`NodeForked`] in a forked child.
    pub fn try_next(&mut self) -> Result<Option<Arrival>, NodeForked> {
        fork::check(self.handle.fork_generation)?;
        self.arrivals_until_check -= 1;
        if self.arrivals_until_check == 0 {
            self.arrivals_until_check = ARRIVALS_PER_DOORBELL_CHECK;
            self.handle.page.take(&mut self.pending);
        }
        loop {
            let Some(input) = self.next_pending() else {
                if self.handle.page.take(&mut self.pending) {
                    continue;
                }
                return Ok(None);
            };
            let arrival = if input == self.inputs.len() as u32 {
                self.apply_commands()
            } else {
                self.pop_input(input)
            };
            if arrival.is_some() {
                return Ok(arrival);
            }
        }
    }

    /// The newest sample queued on `input`; older ones are dropped. Never waits.
    ///
    /// # Errors
    /// [`NodeForked`] in a forked child.
    pub fn take_newest(&mut self, input: u32) -> Result<Option<ReceivedSample>, NodeForked> {
        fork::check(self.handle.fork_generation)?;
        let (mut newest, mut is_short) = (None, false);
        let Input {
            sources,
            last_origin,
            ..
        } = &mut self.inputs[input as usize];
        while let Some(source) = sources.front_mut() {
            let attached = match source {
                Source::Edge(attached) => attached,
                Source::Local(sample) => {
                    newest = Some(sample.clone());
                    sources.pop_front();
                    continue;
                }
                Source::End => {
                    sources.pop_front();
                    continue;
                }
            };
            // At most a ring's capacity: a producer that pushes all the time must not keep it here.
            for _ in 0..attached.edge.region.capacity() {
                match attached.edge.pop(&mut self.spare, None) {
                    Ok(Pop::Sample(_, origin)) if Input::is_repeated(last_origin, origin) => {}
                    Ok(Pop::Sample(sample, _)) => newest = Some(sample),
                    Ok(Pop::Nothing) => break,
                    Ok(Pop::Shortage) => {
                        is_short = true;
                        break;
                    }
                    Err(misbehaviour) => {
                        attached.misbehaviour = Some(misbehaviour);
                        break;
                    }
                }
            }
            if !attached.is_ended || attached.misbehaviour.is_some() || is_short {
                break;
            }
            sources.pop_front();
        }
        // `try_next` finds everything else that the input has to report.
        self.mark_pending(input);
        Ok(newest)
    }

    /// Whether a sample waits on `input`. If so, [`Inbox::try_next`] finds it, even without a ring
    /// of the doorbell.
    pub fn has_queued(&mut self, input: u32) -> bool {
        self.refresh();
        let has_queued = self.inputs[input as usize]
            .sources
            .iter()
            .any(|source| match source {
                Source::Edge(attached) => !attached.edge.region.ring().is_empty(),
                Source::Local(_) => true,
                Source::End => false,
            });
        if has_queued {
            self.mark_pending(input);
        }
        has_queued
    }

    /// The next arrival of one input, whatever others have. Never waits.
    pub fn next_of(&mut self, input: u32) -> Option<Arrival> {
        if self.belongs_to_this_process() {
            self.pop_input(input)
        } else {
            None
        }
    }

    /// Applies the commands of the control thread, if [`Inbox::collect`] has found any. True if
    /// [`Arrival::Notified`] would follow.
    pub fn take_commands(&mut self) -> bool {
        self.belongs_to_this_process() && self.has_commands() && self.apply_commands().is_some()
    }

    /// Attaches the edges that were added since the last call, so that [`Inbox::take_newest`] sees
    /// them.
    pub fn refresh(&mut self) {
        if !self.belongs_to_this_process() {
            return;
        }
        self.handle.page.take(&mut self.pending);
        if self.has_commands() && self.apply_commands().is_some() {
            // A notification was among the commands: `try_next` must find it again.
            self.handle.notify();
        }
    }

    /// Whether no producer of `input` is left, and none will come, as far as this has looked.
    pub fn is_over(&self, input: u32) -> bool {
        let input = &self.inputs[input as usize];
        input.has_last_producer && input.sources.is_empty()
    }

    /// Takes the pending bits from the doorbell, for a later [`Inbox::try_next`]. [`Inbox::wait`]
    /// then sleeps until another producer rings.
    pub fn collect(&mut self) {
        if self.belongs_to_this_process() {
            self.handle.page.take(&mut self.pending);
        }
    }

    /// False in a child that was forked from the inbox's process.
    pub fn belongs_to_this_process(&self) -> bool {
        fork::check(self.handle.fork_generation).is_ok()
    }

    /// Becomes readable at the next news after [`Inbox::arm`].
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        self.handle.eventfd.as_fd()
    }

    /// Sleeps until there is news, or until `deadline` (nanoseconds of CLOCK_MONOTONIC), and at
    /// most for [`crate::MAX_SLEEP_NANOS`]. Call it when [`Inbox::try_next`] found nothing. In a
    /// forked child it returns at once.
    pub fn wait(&self, deadline: Option<u64>) -> Waited {
        let waited = self.handle.wait(deadline);
        self.prefetch();
        waited
    }

    /// Fetches the ring of the last sample's input into the caches, which it has left during the
    /// sleep. The fetch overlaps with the check of the doorbell.
    fn prefetch(&self) {
        let last = self
            .cursor
            .checked_sub(1)
            .and_then(|last| self.inputs.get(last as usize));
        if let Some(Source::Edge(attached)) = last.and_then(|input| input.sources.front()) {
            attached.edge.region.prefetch_oldest();
        }
    }

    /// Requests that the eventfd becomes readable at the next news. False if there is news already.
    /// The caller looks again at [`Inbox::sleep_deadline`].
    pub fn arm(&self) -> bool {
        self.handle.arm()
    }

    /// When a caller must look again that sleeps in an event loop and itself wants to look again at
    /// `deadline`: see [`OwnWakePage::sleep_deadline`].
    pub fn sleep_deadline(&self, deadline: Option<u64>) -> u64 {
        match self.belongs_to_this_process() {
            true => self.handle.page.sleep_deadline(deadline),
            false => monotonic_nanos(),
        }
    }

    /// Ends the wait that [`Inbox::arm`] began.
    pub fn disarm(&self) {
        self.handle.disarm();
    }

    /// The node's own bit, because commands of the control thread come before samples; otherwise
    /// the first pending input from the cursor on, round-robin.
    fn next_pending(&self) -> Option<u32> {
        if self.has_commands() {
            return Some(self.inputs.len() as u32);
        }
        let start = self.cursor as usize;
        let words = self.pending.len();
        for step in 0..=words {
            let index = (start / 64 + step) % words;
            let mut word = self.pending[index];
            if step == 0 {
                word &= u64::MAX << (start % 64);
            }
            // After a sweep, bits beyond the node's own are pending, too.
            let valid = self.inputs.len() + 1 - (index * 64).min(self.inputs.len() + 1);
            if valid < 64 {
                word &= (1 << valid) - 1;
            }
            if word != 0 {
                return Some(index as u32 * 64 + word.trailing_zeros());
            }
        }
        None
    }

    /// Whether the node's own bit is pending, which follows the bits of its inputs.
    fn has_commands(&self) -> bool {
        let own = self.inputs.len();
        self.pending[own / 64] & 1 << (own % 64) != 0
    }

    fn clear_pending(&mut self, input: u32) {
        self.pending[input as usize / 64] &= !(1 << (input % 64));
    }

    fn mark_pending(&mut self, input: u32) {
        self.pending[input as usize / 64] |= 1 << (input % 64);
    }

    /// Pops from an input. Its bit stays pending until the input is found empty.
    #[inline]
    fn pop_input(&mut self, index: u32) -> Option<Arrival> {
        let inputs = self.inputs.len() as u32;
        let Input {
            sources,
            is_kept,
            is_held,
            last_origin,
            ..
        } = &mut self.inputs[index as usize];
        if *is_held {
            self.clear_pending(index);
            return None;
        }
        if let Some(Source::Edge(AttachedEdge {
            edge,
            cursor,
            misbehaviour: None,
            ..
        })) = sources.front_mut()
        {
            match edge.pop(&mut self.spare, is_kept.then_some(cursor)) {
                Ok(Pop::Sample(sample, origin)) => {
                    self.cursor = (index + 1) % (inputs + 1);
                    if Input::is_repeated(last_origin, origin) {
                        return None;
                    }
                    return Some(Arrival::Sample {
                        input: index,
                        sample,
                    });
                }
                Ok(Pop::Nothing) => {}
                // Also if the producer is gone: the edge ends only behind its queued samples.
                Ok(Pop::Shortage) => {
                    self.clear_pending(index);
                    return None;
                }
                Err(misbehaviour) => return Some(self.cut_off(index, misbehaviour)),
            }
        }
        self.advance_source(index)
    }

    /// The arrival that an input reports without a sample in its first edge.
    #[inline(never)]
    fn advance_source(&mut self, index: u32) -> Option<Arrival> {
        let input = &mut self.inputs[index as usize];
        match input.sources.front_mut() {
            Some(Source::Edge(AttachedEdge {
                misbehaviour: Some(misbehaviour),
                ..
            })) => {
                let misbehaviour = *misbehaviour;
                return Some(self.cut_off(index, misbehaviour));
            }
            Some(Source::Edge(AttachedEdge { is_ended: true, .. }) | Source::End) => {
                input.sources.pop_front();
                return Some(Arrival::Ended { input: index });
            }
            Some(Source::Local(sample)) => {
                let sample = sample.clone();
                input.sources.pop_front();
                self.cursor = (index + 1) % (self.inputs.len() as u32 + 1);
                return Some(Arrival::Sample {
                    input: index,
                    sample,
                });
            }
            Some(Source::Edge(_)) | None => {}
        }
        let closed = input.has_last_producer && input.sources.is_empty() && !input.is_closed;
        input.is_closed |= closed;
        self.clear_pending(index);
        closed.then_some(Arrival::Closed { input: index })
    }

    /// Cuts off the first edge of an input.
    #[cold]
    fn cut_off(&mut self, index: u32, misbehaviour: Misbehaviour) -> Arrival {
        let input = &mut self.inputs[index as usize];
        let Some(Source::Edge(AttachedEdge { edge, .. })) = input.sources.pop_front() else {
            unreachable!("the first source is an edge")
        };
        input.cut_off_edges.push(edge.id);
        Arrival::Misbehaved {
            input: index,
            edge: edge.id,
            misbehaviour,
        }
    }

    /// Applies the commands of the control thread.
    #[cold]
    fn apply_commands(&mut self) -> Option<Arrival> {
        self.clear_pending(self.inputs.len() as u32);
        let mut notified = false;
        for command in self.handle.take_commands() {
            match command {
                Command::Attach(edge) => {
                    let input = edge.input;
                    if let Some(known) = self.inputs.get_mut(input as usize) {
                        let attached = AttachedEdge {
                            edge,
                            cursor: None,
                            is_ended: false,
                            misbehaviour: None,
                        };
                        known.sources.push_back(Source::Edge(attached));
                        self.mark_pending(input);
                    }
                }
                Command::Close { edge, last } => {
                    let inputs = self.inputs.iter_mut().enumerate();
                    let found = inputs
                        .filter_map(|(index, input)| input.close(edge, last).then_some(index))
                        .next();
                    if let Some(input) = found {
                        self.mark_pending(input as u32);
                    }
                }
                Command::Deliver { input, sample } => {
                    if let Some(known) = self.inputs.get_mut(input as usize) {
                        known.deliver(sample);
                        self.mark_pending(input);
                    }
                }
                Command::DeliverEnd { input } => {
                    if let Some(known) = self.inputs.get_mut(input as usize) {
                        known.sources.push_back(Source::End);
                        self.mark_pending(input);
                    }
                }
                Command::Notify => notified = true,
            }
        }
        notified.then_some(Arrival::Notified)
    }
}
