//! The contract of a data plane.
//!
//! A plane carries samples (header, head, payload) from the outputs of producing processes to the inputs of consuming
//! ones, over edges with a queue each. What every plane owes its users:
//!
//! - **Order.** An edge delivers what it delivers in the order of publication, unchanged.
//! - **All edges or none.** A publication is offered to every edge at once; while a `block` edge has no room nothing is
//!   published anywhere, and a `block` edge loses nothing.
//! - **Counted losses.** Whatever an edge does not deliver is in exactly one counter of [`Sent`].
//! - **Bounded memory.** Samples live in blocks of their producer's memory, within [`Limits`]. A consumer holds at most
//!   `max_held` blocks, those in its queue included: beyond that its edge alone misses samples, or its producer waits.
//! - **Stable views.** A delivered sample stays readable and unchanged until its last clone is dropped, whatever becomes
//!   of inbox, edge and producer.
//! - **Deaths.** A producer that is gone is drained, then closed; a consumer that is gone holds nothing any more.
//!
//! The methods of [`Plane`] itself are what a keeper does: it makes processes, wires them, and tells them of deaths.

use nervure_message::Header;
use nervure_protocol::wiring::Queue;
use std::time::{Duration, Instant};

/// A data plane, together with the keeper's part of it.
pub trait Plane: Send + Sync + 'static {
    /// An output of a producing process.
    type Output: Output;
    /// A consuming process, as the keeper knows it.
    type Consumer: Clone + Send + Sync + 'static;
    /// The inputs of a consuming process.
    type Inbox: Inbox;

    /// What differs between planes.
    fn facts(&self) -> Facts;

    /// Starts a producing process with one output.
    fn producer(&self, limits: Limits) -> Self::Output;

    /// Adds an output to the process of `output`; they share its memory.
    fn sibling(&self, output: &Self::Output, blocks: u32, history: u32) -> Self::Output;

    /// Starts a consuming process.
    fn consumer(&self, inputs: u32) -> (Self::Consumer, Self::Inbox);

    /// Wires an output to an input, behind the edges that the input has already. A late joiner first gets the output's
    /// history, as far as its queue and its hold limit allow.
    fn connect(
        &self,
        output: &Self::Output,
        consumer: &Self::Consumer,
        input: u32,
        queue: Queue,
    ) -> Edge;

    /// A consuming process dies as by SIGKILL, with the samples that it holds.
    ///
    /// What it held is free at once. Its edges end, except `block` edges of a process that will be restarted: these
    /// keep what is queued, count blocks that it held as [`Sent::lost_in_crash`], and make their producer wait for
    /// [`Plane::reconnect`].
    fn consumer_died(
        &self,
        consumer: &Self::Consumer,
        inbox: Self::Inbox,
        held: Vec<SampleOf<Self>>,
        restarts: bool,
    );

    /// Gives the same input of a restarted consumer the edge that the dead one had (`block`), or a new one.
    fn reconnect(&self, edge: Edge, consumer: &Self::Consumer) -> Edge;

    /// The producing process is gone. What it queued is still delivered; then, where it was the `last`, the input closes.
    fn producer_gone(&self, output: &Self::Output, last: bool);

    /// Ends every blocked call of the output's process, now and later.
    fn stop(&self, output: &Self::Output);

    /// Wakes a consuming process for all of its inputs, as after the death of a peer.
    fn wake(&self, consumer: &Self::Consumer);

    /// Does what the control threads of all processes do with what has arrived for them.
    fn serve(&self);

    /// What became of the samples offered to an edge.
    fn sent(&self, edge: Edge) -> Sent;

    /// What an input received.
    fn received(&self, consumer: &Self::Consumer, input: u32) -> Received;

    /// Bytes that the process of `output` owns for samples, whether in use, kept for reuse, or not yet given back.
    fn memory_bytes(&self, output: &Self::Output) -> u64;
}

/// The samples of a plane.
pub type SampleOf<P> = <<P as Plane>::Inbox as Inbox>::Sample;

/// An edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge(pub u32);

/// What differs between planes.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// A sample takes no block when its payload, rounded up to a multiple of 8, and its head fit into so many bytes.
    pub inline_bytes: usize,
    /// The largest head.
    pub max_head_bytes: usize,
}

impl Facts {
    /// Whether such a sample takes a block.
    pub fn takes_block(&self, payload_bytes: usize, head_bytes: usize) -> bool {
        payload_bytes.next_multiple_of(8) + head_bytes > self.inline_bytes
    }
}

/// What a producing process may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of memory for samples, over all of its outputs.
    pub memory_bytes: u64,
    /// Blocks of the output that can be in use at once.
    pub blocks: u32,
    /// Samples that the output keeps for late joiners.
    pub history: u32,
    /// How often the process was restarted.
    pub incarnation: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            blocks: 512,
            history: 0,
            incarnation: 0,
        }
    }
}

/// How long a call waits for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Never,
    /// Until there is room, or the process is stopped.
    Forever,
    /// At most so long.
    AtMost(Duration),
}

/// Why a sample was not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A `block` edge has no room, and the call does not wait. Nothing was counted.
    WouldBlock,
    /// A `block` edge had no room until the timeout. Nothing was counted.
    TimedOut,
    /// The process was stopped while the call waited.
    Stopped,
    /// The process' memory is in use, and no edge makes it wait. Every edge has counted [`Sent::missed_memory`].
    OutOfMemory,
    /// The sample alone is larger than the process' memory.
    TooLarge,
    /// The head is larger than was asked for, or allowed.
    HeadTooLarge,
    /// Whatever else; no conformant plane answers with it in the suite.
    Other(String),
}

/// What became of a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Edges in whose queue it now waits.
    pub queued: u32,
    /// Edges that missed it.
    pub missed: u32,
}

/// An output. Clones are the same output; any thread may use it.
pub trait Output: Clone + Send + Sync + 'static {
    /// Memory for one payload.
    type Loan: Loan;

    /// Borrows memory for a payload, whose head will be at most `head_bytes` long.
    ///
    /// # Errors
    /// [`Refusal`].
    fn loan(
        &self,
        payload_bytes: usize,
        head_bytes: usize,
        wait: Wait,
    ) -> Result<Self::Loan, Refusal>;

    /// Publishes a filled loan, and gives it back when it was not published. The header's sequence, incarnation and
    /// times are set by the plane; a stamp of 0 becomes the time of publication.
    ///
    /// # Errors
    /// The loan, to be published again, and why.
    fn publish(
        &self,
        loan: Self::Loan,
        header: Header,
        head: &[u8],
        wait: Wait,
    ) -> Result<Receipt, (Self::Loan, Refusal)>;

    /// Loans, fills and publishes.
    ///
    /// # Errors
    /// [`Refusal`].
    fn send(
        &self,
        header: Header,
        head: &[u8],
        payload: &[u8],
        wait: Wait,
    ) -> Result<Receipt, Refusal> {
        let mut loan = self.loan(payload.len(), head.len(), wait)?;
        loan.payload_mut().copy_from_slice(payload);
        self.publish(loan, header, head, wait)
            .map_err(|(_, refusal)| refusal)
    }
}

/// Memory for one payload. Dropped without being published, it returns.
pub trait Loan: Send {
    /// The payload, of unspecified content.
    fn payload_mut(&mut self) -> &mut [u8];
}

/// What an inbox delivers.
#[derive(Clone, Debug)]
pub enum Arrival<S> {
    /// A sample.
    Sample(u32, S),
    /// The input's last producer is gone, and all that it sent was delivered.
    Closed(u32),
}

/// The inputs of one process: round-robin over those that have news, each in its own order.
pub trait Inbox: Send + 'static {
    /// What it delivers.
    type Sample: Sample;

    /// The next arrival, if there is one.
    fn try_next(&mut self) -> Option<Arrival<Self::Sample>>;

    /// Sleeps until there may be news, or until `deadline`.
    fn wait(&mut self, deadline: Option<Instant>);

    /// The newest sample queued on an input; those before it are let go.
    fn take_newest(&mut self, input: u32) -> Option<Self::Sample>;

    /// Waits for the next arrival.
    ///
    /// # Panics
    /// When nothing comes for so long that nothing will.
    fn next(&mut self) -> Arrival<Self::Sample> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(arrival) = self.try_next() {
                return arrival;
            }
            assert!(
                Instant::now() < deadline,
                "nothing arrived within {PATIENCE:?}"
            );
            self.wait(Some(deadline));
        }
    }
}

/// No test waits longer for what must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A delivered sample. Clones are the same sample.
pub trait Sample: Clone + Send + Sync + 'static {
    /// Its header.
    fn header(&self) -> Header;
    /// Its head.
    fn head(&self) -> &[u8];
    /// Its payload.
    fn payload(&self) -> &[u8];
}

/// What became of the samples that were published while an edge was attached. Each is either queued (`sent`) or in one
/// of `dropped_newest` and the `missed_` counters. What was queued is delivered, still queued, or in one of
/// `dropped_oldest` and `undelivered`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Put into the queue.
    pub sent: u64,
    /// Payload bytes of those.
    pub bytes: u64,
    /// Queued, and made room for newer ones.
    pub dropped_oldest: u64,
    /// Found the queue full.
    pub dropped_newest: u64,
    /// The consumer held as many blocks as it may.
    pub missed_held: u64,
    /// The producer's memory was in use.
    pub missed_memory: u64,
    /// The plane had no means to tell the consumer in time.
    pub missed_control: u64,
    /// Queued when the consumer went for good.
    pub undelivered: u64,
    /// Delivered to a consumer that died with them in its hands, and was restarted: part of what was delivered.
    pub lost_in_crash: u64,
}

/// What an input received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Delivered samples.
    pub received: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Blocks in the consumer's hands now.
    pub held: u64,
}
