//! The shared-memory plane under the contract: both ends in one process, wired as by a keeper.
//!
//! Every page, region and socket is made, mapped and passed on exactly as between processes. Only
//! the control threads are missing; [`Plane::serve`] does their work when a test calls it. The
//! death of a process is simulated by leaking the samples that it held and shutting down its
//! sockets.

use crate::plane::{
    Arrival, Edge, Facts, Limits, Plane, PlaneInbox, PlaneLoan, PlaneOutput, PlaneSample, Receipt,
    Received, Refusal, Sent, Wait,
};
use nervure_message::Header;
use nervure_protocol::wiring::Queue;
use nervure_shm as shm;
use rustix::fd::{AsFd, OwnedFd};
use std::mem::forget;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Number of edges that one producing process may have in a test.
const ROWS: u32 = 256;

/// The shared-memory plane. Clones refer to the same plane.
#[derive(Clone, Default)]
pub struct SharedMemory(Arc<Mutex<Keeper>>);

#[derive(Default)]
struct Keeper {
    producers: Vec<Producing>,
    consumers: Vec<Consuming>,
    pairs: Vec<Pair>,
    edges: Vec<EdgeEntry>,
}

/// A producing process, with the keeper's handles of it.
struct Producing {
    process: shm::Producer,
    wake: OwnedFd,
    outputs: Vec<(shm::Output, u32)>,
    next_row: u32,
}

/// A consuming process, with the keeper's handles of it.
struct Consuming {
    page: shm::WakePage,
    wake: OwnedFd,
    eventfd: Arc<OwnedFd>,
    counters: Arc<shm::CountersPage>,
    handle: shm::InboxHandle,
}

/// The socket between two processes.
struct Pair {
    producer: usize,
    consumer: usize,
    number: u32,
    producer_end: Arc<shm::ProducerPair>,
    /// `None` if the process is dead.
    consumer_end: Option<Arc<shm::ConsumerPair>>,
}

struct EdgeEntry {
    /// For a `block` edge, the keeper keeps it for the next process of the consumer.
    region: OwnedFd,
    producer: usize,
    output: usize,
    consumer: usize,
    input: u32,
    queue: Queue,
    row: u32,
    is_attached: bool,
}

impl SharedMemory {
    fn keeper(&self) -> MutexGuard<'_, Keeper> {
        self.0.lock().expect("no test panics with the lock")
    }
}

impl Keeper {
    fn add_output(&mut self, producer: usize, blocks: u32, history: u32) -> SharedOutput {
        let producing = &mut self.producers[producer];
        let name = format!("output{}", producing.outputs.len());
        let output = shm::Output::new(name, blocks, history, producing.process.clone());
        producing.outputs.push((output.clone(), blocks));
        SharedOutput {
            producer,
            index: producing.outputs.len() - 1,
            output,
        }
    }

    /// The socket between two processes, created on first use.
    fn pair(&mut self, producer: usize, consumer: usize) -> usize {
        let known = self
            .pairs
            .iter()
            .position(|pair| (pair.producer, pair.consumer) == (producer, consumer));
        known.unwrap_or_else(|| {
            let (a, b) = shm::Seqpacket::pair().expect("a socket");
            let number = self.pairs.len() as u32;
            self.pairs.push(Pair {
                producer,
                consumer,
                number,
                producer_end: Arc::new(shm::ProducerPair::new(a, number)),
                consumer_end: Some(Arc::new(shm::ConsumerPair::new(b))),
            });
            self.pairs.len() - 1
        })
    }

    /// Attaches both ends of an edge. The consumer is first, so that it is ready when the producer
    /// rings.
    fn attach(&mut self, edge: usize) {
        let EdgeEntry {
            producer,
            output,
            consumer,
            input,
            queue,
            row,
            ..
        } = self.edges[edge];
        let pair = self.pair(producer, consumer);
        let (entry, pair) = (&self.edges[edge], &self.pairs[pair]);
        let (producing, consuming) = (&self.producers[producer], &self.consumers[consumer]);
        let (output, blocks) = &producing.outputs[output];
        let region =
            || shm::EdgeRegion::map(&entry.region, queue.depth, *blocks).expect("a region");
        consuming.handle.attach(shm::InputEdge {
            id: edge as u32,
            input,
            policy: queue.policy,
            region: region(),
            pair: pair.consumer_end.clone().expect("a living consumer"),
            producer_wake: Arc::new(shm::WakePage::map(&producing.wake).expect("a wake page")),
            counters: consuming.counters.clone(),
        });
        let attached = output.attach(shm::OutputEdge {
            id: edge as u32,
            consumer: format!("consumer{consumer}/input{input}"),
            input,
            queue,
            counters_row: row,
            region: region(),
            bell: Arc::new(shm::WakePage::map(&consuming.wake).expect("a wake page")),
            eventfd: consuming.eventfd.clone(),
            pair: pair.producer_end.clone(),
        });
        attached.expect("an edge that fits its output");
    }

    fn serve(&mut self) {
        let mut is_quiet = false;
        while !is_quiet {
            is_quiet = true;
            for pair in &self.pairs {
                if let Some(consumer_end) = &pair.consumer_end {
                    consumer_end.receive().expect("an honest producer");
                }
                let retired = pair.producer_end.receive().unwrap_or_default();
                is_quiet &= retired.is_empty();
                for (output, _) in &self.producers[pair.producer].outputs {
                    output.acknowledge(pair.number, &retired);
                }
            }
        }
    }
}

impl Plane for SharedMemory {
    type Output = SharedOutput;
    type Consumer = usize;
    type Inbox = SharedInbox;

    fn facts(&self) -> Facts {
        Facts {
            inline_bytes: shm::INLINE_BYTES,
            max_head_bytes: shm::MAX_HEAD_BYTES,
        }
    }

    fn producer(&self, limits: Limits) -> SharedOutput {
        let (_, wake) = shm::WakePage::create(0).expect("memory");
        let counters = shm::CountersPage::create(ROWS, 0).expect("memory");
        let counters =
            Arc::new(shm::CountersPage::map(&counters, true).expect("a page of counters"));
        let own_page = shm::OwnWakePage::map(&wake, 0, counters.clone()).expect("a wake page");
        let process = shm::Producer {
            budget: shm::Budget::new(limits.memory_bytes),
            wake: Arc::new(own_page),
            counters,
            incarnation: limits.incarnation,
            stopping: Arc::default(),
            held: Arc::default(),
            cut_short: Arc::default(),
            on_misbehaviour: Arc::new(|edge, misbehaviour| panic!("edge {edge}: {misbehaviour}")),
        };
        let mut keeper = self.keeper();
        keeper.producers.push(Producing {
            process,
            wake,
            outputs: Vec::new(),
            next_row: 0,
        });
        let producer = keeper.producers.len() - 1;
        keeper.add_output(producer, limits.blocks, limits.history)
    }

    fn sibling(&self, output: &SharedOutput, blocks: u32, history: u32) -> SharedOutput {
        self.keeper().add_output(output.producer, blocks, history)
    }

    fn consumer(&self, inputs: u32) -> (usize, SharedInbox) {
        let (page, wake) = shm::WakePage::create(inputs).expect("memory");
        let eventfd = Arc::new(shm::eventfd().expect("a descriptor"));
        let counters = shm::CountersPage::create(0, inputs).expect("memory");
        let counters =
            Arc::new(shm::CountersPage::map(&counters, true).expect("a page of counters"));
        let own_page = shm::OwnWakePage::map(&wake, inputs, counters.clone()).expect("a wake page");
        let own_page =
            own_page.on_overwritten(|how| panic!("a page that peers keep in order: {how}"));
        let inbox = shm::Inbox::new(Arc::new(own_page), eventfd.clone());
        let mut keeper = self.keeper();
        keeper.consumers.push(Consuming {
            page,
            wake,
            eventfd,
            counters,
            handle: inbox.handle(),
        });
        (keeper.consumers.len() - 1, SharedInbox(inbox))
    }

    fn connect(&self, output: &SharedOutput, consumer: &usize, input: u32, queue: Queue) -> Edge {
        let mut keeper = self.keeper();
        let producing = &mut keeper.producers[output.producer];
        let row = producing.next_row;
        producing.next_row += 1;
        assert!(row < ROWS, "more edges than a test may have");
        let blocks = producing.outputs[output.index].1;
        keeper.edges.push(EdgeEntry {
            region: shm::EdgeRegion::create(queue.depth, blocks).expect("memory"),
            producer: output.producer,
            output: output.index,
            consumer: *consumer,
            input,
            queue,
            row,
            is_attached: true,
        });
        let edge = keeper.edges.len() - 1;
        keeper.attach(edge);
        Edge(edge as u32)
    }

    fn consumer_died(
        &self,
        consumer: &usize,
        inbox: SharedInbox,
        held: Vec<SharedSample>,
        restarts: bool,
    ) {
        // Dropping the samples would notify the producer, which a dead process cannot do.
        forget(held);
        let mut guard = self.keeper();
        let keeper = &mut *guard;
        for pair in keeper
            .pairs
            .iter_mut()
            .filter(|pair| pair.consumer == *consumer)
        {
            if let Some(end) = pair.consumer_end.take() {
                rustix::net::shutdown(end.as_fd(), rustix::net::Shutdown::Both).expect("a socket");
            }
        }
        drop(inbox);
        for (id, edge) in keeper.edges.iter_mut().enumerate() {
            if edge.consumer == *consumer && edge.is_attached {
                let suspended = restarts && edge.queue.policy.is_lossless();
                edge.is_attached = suspended;
                keeper.producers[edge.producer].outputs[edge.output]
                    .0
                    .detach(id as u32, suspended);
            }
        }
    }

    fn reconnect(&self, edge: Edge, consumer: &usize) -> Edge {
        let mut keeper = self.keeper();
        let entry = &mut keeper.edges[edge.0 as usize];
        if entry.is_attached {
            entry.consumer = *consumer;
            keeper.attach(edge.0 as usize);
            return edge;
        }
        let (producer, index, input, queue) =
            (entry.producer, entry.output, entry.input, entry.queue);
        let output = keeper.producers[producer].outputs[index].0.clone();
        drop(keeper);
        self.connect(
            &SharedOutput {
                producer,
                index,
                output,
            },
            consumer,
            input,
            queue,
        )
    }

    fn producer_gone(&self, output: &SharedOutput, last: bool) {
        let mut guard = self.keeper();
        let keeper = &mut *guard;
        for (id, edge) in keeper.edges.iter_mut().enumerate() {
            if (edge.producer, edge.output) == (output.producer, output.index) && edge.is_attached {
                edge.is_attached = false;
                let consumer = &keeper.consumers[edge.consumer];
                consumer.handle.close(id as u32, last);
                consumer.page.ring_all(consumer.eventfd.as_fd());
            }
        }
    }

    fn stop(&self, output: &SharedOutput) {
        self.keeper().producers[output.producer].process.stop();
    }

    fn wake(&self, consumer: &usize) {
        let keeper = self.keeper();
        let consumer = &keeper.consumers[*consumer];
        consumer.page.ring_all(consumer.eventfd.as_fd());
    }

    fn serve(&self) {
        self.keeper().serve();
    }

    fn sent(&self, edge: Edge) -> Sent {
        let keeper = self.keeper();
        let entry = &keeper.edges[edge.0 as usize];
        let counters = keeper.producers[entry.producer]
            .process
            .counters
            .output(entry.row);
        Sent {
            sent: counters.sent,
            bytes: counters.bytes,
            dropped_oldest: counters.dropped_oldest,
            dropped_newest: counters.dropped_newest,
            missed_held: counters.missed_held,
            missed_memory: counters.missed_memory,
            missed_control: counters.missed_control,
            undelivered: counters.undelivered,
            lost_in_crash: counters.lost_in_crash,
        }
    }

    fn received(&self, consumer: &usize, input: u32) -> Received {
        let counters = self.keeper().consumers[*consumer].counters.input(input);
        Received {
            received: counters.received,
            bytes: counters.bytes,
            held: counters.held,
        }
    }

    fn memory_bytes(&self, output: &SharedOutput) -> u64 {
        self.keeper().producers[output.producer]
            .process
            .budget
            .used()
    }
}

/// An output in shared memory.
#[derive(Clone)]
pub struct SharedOutput {
    producer: usize,
    index: usize,
    output: shm::Output,
}

/// A loan of shared memory.
pub struct SharedLoan(shm::PayloadLoan);

impl PlaneLoan for SharedLoan {
    fn payload_mut(&mut self) -> &mut [u8] {
        self.0.payload_mut()
    }
}

fn until(wait: Wait) -> shm::Wait {
    match wait {
        Wait::Never => shm::Wait::Never,
        Wait::Forever => shm::Wait::Forever,
        Wait::AtMost(timeout) => {
            shm::Wait::Until(shm::monotonic_nanos().saturating_add(timeout.as_nanos() as u64))
        }
    }
}

fn refusal(error: shm::SendError) -> Refusal {
    match error {
        shm::SendError::WouldBlock { .. } => Refusal::WouldBlock,
        shm::SendError::TimedOut { .. } => Refusal::TimedOut,
        shm::SendError::Stopped => Refusal::Stopped,
        shm::SendError::OutOfMemory { .. } => Refusal::OutOfMemory,
        shm::SendError::TooLarge { .. } => Refusal::TooLarge,
        shm::SendError::HeadTooLarge { .. } => Refusal::HeadTooLarge,
        other => Refusal::Other(other.to_string()),
    }
}

impl PlaneOutput for SharedOutput {
    type Loan = SharedLoan;

    fn loan(
        &self,
        payload_bytes: usize,
        head_bytes: usize,
        wait: Wait,
    ) -> Result<SharedLoan, Refusal> {
        self.output
            .loan(payload_bytes, head_bytes, until(wait))
            .map(SharedLoan)
            .map_err(refusal)
    }

    fn publish(
        &self,
        mut loan: SharedLoan,
        header: Header,
        head: &[u8],
        wait: Wait,
    ) -> Result<Receipt, (SharedLoan, Refusal)> {
        match self.output.publish(&mut loan.0, header, head, until(wait)) {
            Ok(shm::Receipt { queued, missed }) => Ok(Receipt { queued, missed }),
            Err(cause) => Err((loan, refusal(cause))),
        }
    }
}

/// An inbox in shared memory.
pub struct SharedInbox(shm::Inbox);

impl PlaneInbox for SharedInbox {
    type Sample = SharedSample;

    fn try_next(&mut self) -> Option<Arrival<SharedSample>> {
        match self.0.try_next().expect("not forked")? {
            shm::Arrival::Sample { input, sample } => {
                Some(Arrival::Sample(input, SharedSample(sample)))
            }
            shm::Arrival::Closed { input } => Some(Arrival::Closed(input)),
            // In this contract, an input has one producer.
            shm::Arrival::Ended { .. } => self.try_next(),
            other => panic!("unexpected: {other:?}"),
        }
    }

    fn wait(&mut self, deadline: Option<Instant>) {
        let nanos = |deadline: Instant| {
            let left = deadline.saturating_duration_since(Instant::now());
            shm::monotonic_nanos().saturating_add(left.as_nanos() as u64)
        };
        self.0.wait(deadline.map(nanos));
    }

    fn take_newest(&mut self, input: u32) -> Option<SharedSample> {
        self.0.refresh();
        self.0
            .take_newest(input)
            .expect("not forked")
            .map(SharedSample)
    }
}

/// A sample in shared memory.
#[derive(Clone)]
pub struct SharedSample(shm::ReceivedSample);

impl PlaneSample for SharedSample {
    fn header(&self) -> Header {
        *self.0.header()
    }

    fn head(&self) -> &[u8] {
        self.0.head()
    }

    fn payload(&self) -> &[u8] {
        self.0.payload()
    }
}
