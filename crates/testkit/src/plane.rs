//! The contract of a data plane.
//!
//! A plane carries samples (header, head, payload) from outputs of producing processes to inputs of
//! consuming processes, over edges with one queue each. Every plane guarantees:
//!
//! - **Order.** An edge delivers samples unchanged and in the order of publication.
//! - **All edges or none.** A publication is offered to all edges at once. While a `block` edge has
//!   no room nothing is published anywhere, and a `block` edge loses nothing.
//! - **Counted losses.** Each sample that an edge does not deliver is in exactly one counter of
//!   [`Sent`].
//! - **Bounded memory.** Samples are in blocks of their producer's memory, within [`Limits`]. A
//!   consumer holds at most `max_held` blocks, including those in its queue. Beyond that, its edge
//!   alone misses samples, or its producer waits.
//! - **Stable views.** A delivered sample stays readable and unchanged until its last clone is
//!   dropped, even if inbox, edge or producer are gone.
//! - **Deaths.** The edges of a dead producer are drained, then closed. A dead consumer holds
//!   nothing.
//!
//! The methods of [`Plane`] itself are the work of a keeper: it makes processes, wires them, and
//! notifies them of deaths.

use nervure_message::Header;
use nervure_protocol::wiring::Queue;
use std::time::{Duration, Instant};

/// A data plane, including the keeper's part.
pub trait Plane: Send + Sync + 'static {
    /// An output of a producing process.
    type Output: PlaneOutput;
    /// A consuming process, as known to the keeper.
    type Consumer: Clone + Send + Sync + 'static;
    /// The inputs of a consuming process.
    type Inbox: PlaneInbox;

    /// Properties in which planes differ.
    fn facts(&self) -> Facts;

    /// Starts a producing process with one output.
    fn producer(&self, limits: Limits) -> Self::Output;

    /// Adds an output to the process of `output`. The two share the memory of the process.
    fn sibling(&self, output: &Self::Output, blocks: u32, history: u32) -> Self::Output;

    /// Starts a consuming process.
    fn consumer(&self, inputs: u32) -> (Self::Consumer, Self::Inbox);

    /// Wires an output to an input, after the edges that the input has already. A late joiner first
    /// receives the output's history, as far as its queue and its hold limit allow.
    fn connect(
        &self,
        output: &Self::Output,
        consumer: &Self::Consumer,
        input: u32,
        queue: Queue,
    ) -> Edge;

    /// Kills a consuming process, as by SIGKILL, while it holds the samples `held`.
    ///
    /// The held blocks become free at once. The edges end, except `block` edges of a process that
    /// will be restarted. These keep their queue, count the held blocks as [`Sent::lost_in_crash`],
    /// and make their producer wait for [`Plane::reconnect`].
    fn consumer_died(
        &self,
        consumer: &Self::Consumer,
        inbox: Self::Inbox,
        held: Vec<SampleOf<Self>>,
        restarts: bool,
    );

    /// Gives an input of a restarted consumer its former edge (`block`), or a new one.
    fn reconnect(&self, edge: Edge, consumer: &Self::Consumer) -> Edge;

    /// Reports that the producing process is gone. Its queued samples are still delivered. If it
    /// was the `last` producer of the input, the input then closes.
    fn producer_gone(&self, output: &Self::Output, last: bool);

    /// Ends all blocked calls of the output's process, now and in future.
    fn stop(&self, output: &Self::Output);

    /// Wakes a consuming process for all of its inputs, as a keeper does after the death of a peer.
    fn wake(&self, consumer: &Self::Consumer);

    /// Does the pending work of the control threads of all processes.
    fn serve(&self);

    /// Counters of the samples offered to an edge.
    fn sent(&self, edge: Edge) -> Sent;

    /// Counters of the samples that an input received.
    fn received(&self, consumer: &Self::Consumer, input: u32) -> Received;

    /// Bytes that the process of `output` owns for samples: in use, kept for reuse, or not yet
    /// given back.
    fn memory_bytes(&self, output: &Self::Output) -> u64;
}

/// The sample type of a plane.
pub type SampleOf<P> = <<P as Plane>::Inbox as PlaneInbox>::Sample;

/// Identifies an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge(pub u32);

/// Properties in which planes differ.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// A sample takes no block if its payload, rounded up to a multiple of 8, and its head fit into
    /// this many bytes.
    pub inline_bytes: usize,
    /// Size of the largest head.
    pub max_head_bytes: usize,
}

impl Facts {
    /// Whether a sample of these sizes takes a block.
    pub fn takes_block(&self, payload_bytes: usize, head_bytes: usize) -> bool {
        payload_bytes.next_multiple_of(8) + head_bytes > self.inline_bytes
    }
}

/// Resource limits of a producing process.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Memory for samples, over all of its outputs, in bytes.
    pub memory_bytes: u64,
    /// Number of blocks of the output that can be in use at once.
    pub blocks: u32,
    /// Number of samples that the output keeps for late joiners.
    pub history: u32,
    /// Number of restarts of the process.
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
    /// Returns at once.
    Never,
    /// Waits until there is room or the process is stopped.
    Forever,
    /// Waits up to a timeout.
    AtMost(Duration),
}

/// Why a sample was not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A `block` edge has no room, and the call does not wait. No counter has changed.
    WouldBlock,
    /// A `block` edge had no room until the timeout. No counter has changed.
    TimedOut,
    /// The process was stopped while the call waited.
    Stopped,
    /// All memory of the process is in use, and no edge makes it wait. Every edge has counted
    /// [`Sent::missed_memory`].
    OutOfMemory,
    /// The sample is larger than the memory of the process.
    TooLarge,
    /// The head is larger than requested or allowed.
    HeadTooLarge,
    /// Any other error. A conformant plane never returns it in the suite.
    Other(String),
}

/// The result of a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Number of edges that queued the sample.
    pub queued: u32,
    /// Number of edges that missed the sample.
    pub missed: u32,
}

/// An output. Clones refer to the same output. Any thread may use it.
pub trait PlaneOutput: Clone + Send + Sync + 'static {
    /// Memory for one payload.
    type Loan: PlaneLoan;

    /// Borrows memory for a payload with a head of at most `head_bytes`.
    ///
    /// # Errors
    /// [`Refusal`].
    fn loan(
        &self,
        payload_bytes: usize,
        head_bytes: usize,
        wait: Wait,
    ) -> Result<Self::Loan, Refusal>;

    /// Publishes a filled loan. Returns the loan if it was not published. The plane sets sequence,
    /// incarnation and times of the header; a stamp of 0 becomes the time of publication.
    ///
    /// # Errors
    /// The loan, which can be published again, and the reason.
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

/// Memory for one payload. It is given back if dropped before publication.
pub trait PlaneLoan: Send {
    /// The payload. Its initial content is unspecified.
    fn payload_mut(&mut self) -> &mut [u8];
}

/// A delivery of an inbox.
#[derive(Clone, Debug)]
pub enum Arrival<S> {
    /// A sample.
    Sample(u32, S),
    /// The last producer of the input is gone, and all of its samples were delivered.
    Closed(u32),
}

/// The inputs of one process. Inputs with samples take turns; each keeps its own order.
pub trait PlaneInbox: Send + 'static {
    /// Type of the delivered samples.
    type Sample: PlaneSample;

    /// The next delivery; `None` if there is none yet.
    fn try_next(&mut self) -> Option<Arrival<Self::Sample>>;

    /// Sleeps until there may be a delivery, or until `deadline`.
    fn wait(&mut self, deadline: Option<Instant>);

    /// The newest queued sample of an input. Drops the samples before it.
    fn take_newest(&mut self, input: u32) -> Option<Self::Sample>;

    /// Waits for the next delivery.
    ///
    /// # Panics
    /// If nothing arrives within a minute.
    fn next(&mut self) -> Arrival<Self::Sample> {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            if let Some(arrival) = self.try_next() {
                return arrival;
            }
            assert!(
                Instant::now() < deadline,
                "nothing arrived within {MAX_WAIT:?}"
            );
            self.wait(Some(deadline));
        }
    }
}

/// Longest time that a test waits for something that must happen.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// A delivered sample. Clones refer to the same sample.
pub trait PlaneSample: Clone + Send + Sync + 'static {
    /// Header of the sample.
    fn header(&self) -> Header;
    /// Head of the sample.
    fn head(&self) -> &[u8];
    /// Payload of the sample.
    fn payload(&self) -> &[u8];
}

/// Counters of the samples published while an edge was attached. Each sample counts either as
/// `sent`, or in one of `dropped_newest` and the `missed_` counters. A `sent` sample is delivered,
/// still queued, or counted in one of `dropped_oldest` and `undelivered`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Samples that were queued.
    pub sent: u64,
    /// Payload bytes of the queued samples.
    pub bytes: u64,
    /// Samples that were queued, then dropped for newer ones.
    pub dropped_oldest: u64,
    /// Samples that found the queue full.
    pub dropped_newest: u64,
    /// Samples that were missed because the consumer held its maximum of blocks.
    pub missed_held: u64,
    /// Samples that were missed because the producer's memory was in use.
    pub missed_memory: u64,
    /// Samples that were missed because the consumer could not be notified in time.
    pub missed_control: u64,
    /// Samples that were still queued when the consumer went for good.
    pub undelivered: u64,
    /// Delivered samples that a consumer held when it died and was restarted. They count as
    /// delivered too.
    pub lost_in_crash: u64,
}

/// Counters of the samples that an input received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Number of delivered samples.
    pub received: u64,
    /// Payload bytes of the delivered samples.
    pub bytes: u64,
    /// Number of blocks that the consumer holds now.
    pub held: u64,
}
