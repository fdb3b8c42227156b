//! A plane that is easy to verify: everything in one process, under one mutex, with one queue per
//! edge.
//!
//! It keeps nothing for reuse, so its memory is the memory in use, in pages.

use crate::plane::*;
use nervure_message::Header;
use nervure_protocol::wiring::{Policy, Queue};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Instant;

const FACTS: Facts = Facts {
    inline_bytes: 256,
    max_head_bytes: 64 * 1024,
};

/// The model. Clones refer to the same plane.
#[derive(Clone, Default)]
pub struct Model(Arc<World>);

#[derive(Default)]
struct World {
    state: Mutex<State>,
    /// Notified after each change of the state.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    processes: Vec<Process>,
    outputs: Vec<OutputState>,
    consumers: Vec<Vec<InputState>>,
    edges: Vec<EdgeState>,
}

struct Process {
    limits: Limits,
    blocks: Vec<Weak<Block>>,
    stopping: bool,
}

struct OutputState {
    process: usize,
    blocks: u32,
    history_depth: usize,
    history: VecDeque<Arc<Content>>,
    next_sequence: u64,
}

#[derive(Default)]
struct InputState {
    /// The current edge is first.
    edges: VecDeque<usize>,
    last: bool,
    closed: bool,
    received: u64,
    bytes: u64,
    taken: Vec<Hold>,
}

/// A sample that a consumer received: whether it still holds it, and whether it has a block.
struct Hold {
    has_block: bool,
    taken: Weak<Taken>,
}

struct EdgeState {
    output: usize,
    /// True until either end is gone.
    attached: bool,
    consumer: usize,
    input: usize,
    queue: Queue,
    queued: VecDeque<Arc<Content>>,
    taken: Vec<Hold>,
    producer_gone: bool,
    sent: Sent,
}

/// A block of memory, alive while it is referenced.
struct Block {
    output: usize,
    bytes: u64,
}

struct Content {
    header: Header,
    head: Vec<u8>,
    payload: Vec<u8>,
    block: Option<Arc<Block>>,
}

/// A sample that a consumer holds.
struct Taken {
    content: Option<Arc<Content>>,
    world: Weak<World>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.content = None;
        if let Some(world) = self.world.upgrade() {
            // With the lock taken once, every waiter has either checked the state already or sleeps
            // and will be notified.
            drop(world.state.lock().expect("no test panics with the lock"));
            world.changed.notify_all();
        }
    }
}

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with the lock")
    }

    /// Repeats `look` until it returns a result or the wait ends.
    fn wait_for<T>(
        &self,
        process: usize,
        wait: Wait,
        mut look: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, Refusal> {
        let deadline = match wait {
            Wait::AtMost(timeout) => Some(Instant::now() + timeout),
            _ => None,
        };
        let mut state = self.state();
        loop {
            if let Some(found) = look(&mut state) {
                return Ok(found);
            }
            if wait == Wait::Never {
                return Err(Refusal::WouldBlock);
            }
            if state.processes[process].stopping {
                return Err(Refusal::Stopped);
            }
            state =
                match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                    Some(left) if left.is_zero() => return Err(Refusal::TimedOut),
                    Some(left) => self.changed.wait_timeout(state, left).expect("as above").0,
                    None => self.changed.wait(state).expect("as above"),
                };
        }
    }
}

impl State {
    fn attached_edges(&self, output: usize) -> Vec<usize> {
        (0..self.edges.len())
            .filter(|&edge| self.edges[edge].attached && self.edges[edge].output == output)
            .collect()
    }

    fn used(&self, process: usize) -> u64 {
        self.processes[process]
            .blocks
            .iter()
            .filter_map(Weak::upgrade)
            .map(|block| block.bytes)
            .sum()
    }

    /// Takes a block. Blocks that only the history holds are released for it, if necessary.
    fn take_block(&mut self, output: usize, bytes: u64) -> Option<Arc<Block>> {
        loop {
            if let Some(block) = self.try_take_block(output, bytes) {
                return Some(block);
            }
            let history = &mut self.outputs[output].history;
            let is_alone =
                |content: &Arc<Content>| content.block.is_some() && Arc::strong_count(content) == 1;
            let oldest = history.iter().position(is_alone)?;
            history.remove(oldest);
        }
    }

    fn try_take_block(&mut self, output: usize, bytes: u64) -> Option<Arc<Block>> {
        let process = self.outputs[output].process;
        self.processes[process]
            .blocks
            .retain(|block| block.strong_count() > 0);
        let own = self.processes[process]
            .blocks
            .iter()
            .filter_map(Weak::upgrade);
        let rows = own.filter(|block| block.output == output).count();
        if rows >= self.outputs[output].blocks as usize
            || self.used(process) + bytes > self.processes[process].limits.memory_bytes
        {
            return None;
        }
        let block = Arc::new(Block { output, bytes });
        self.processes[process].blocks.push(Arc::downgrade(&block));
        Some(block)
    }

    fn publish(&mut self, output: usize, content: Content) -> Receipt {
        let content = Arc::new(content);
        let mut receipt = Receipt::default();
        for edge in self.attached_edges(output) {
            match self.edges[edge].offer(&content) {
                true => receipt.queued += 1,
                false => receipt.missed += 1,
            }
        }
        let OutputState {
            history,
            history_depth,
            ..
        } = &mut self.outputs[output];
        history.push_back(content);
        while history.len() > *history_depth {
            history.pop_front();
        }
        receipt
    }

    fn pop(
        &mut self,
        world: &Arc<World>,
        consumer: usize,
        input: usize,
        edge: usize,
    ) -> Option<Arc<Taken>> {
        let content = self.edges[edge].queued.pop_front()?;
        let input = &mut self.consumers[consumer][input];
        input.received += 1;
        input.bytes += content.payload.len() as u64;
        let has_block = content.block.is_some();
        let taken = Arc::new(Taken {
            content: Some(content),
            world: Arc::downgrade(world),
        });
        for holds in [&mut input.taken, &mut self.edges[edge].taken] {
            holds.push(Hold {
                has_block,
                taken: Arc::downgrade(&taken),
            });
        }
        Some(taken)
    }
}

/// Number of blocks that a consumer holds.
fn blocks_held(holds: &mut Vec<Hold>) -> usize {
    holds.retain(|hold| hold.taken.strong_count() > 0);
    holds.iter().filter(|hold| hold.has_block).count()
}

impl EdgeState {
    fn is_holding_all(&mut self) -> bool {
        let queued = self
            .queued
            .iter()
            .filter(|content| content.block.is_some())
            .count();
        queued + blocks_held(&mut self.taken) >= self.queue.max_held as usize
    }

    fn is_full(&mut self, needs_block: bool) -> bool {
        self.queued.len() >= self.queue.depth as usize || needs_block && self.is_holding_all()
    }

    /// Queues a sample, or counts the reason why not.
    fn offer(&mut self, content: &Arc<Content>) -> bool {
        let may_drop = match self.queue.policy {
            Policy::DropOldest => true,
            Policy::DropNewest | Policy::Block => false,
        };
        let is_full = self.queued.len() >= self.queue.depth as usize;
        if is_full && !may_drop {
            self.sent.dropped_newest += 1;
            return false;
        }
        let would_help =
            |edge: &Self| may_drop && edge.queued.iter().any(|queued| queued.block.is_some());
        let needs_block = content.block.is_some();
        if needs_block && self.is_holding_all() && !would_help(self) {
            self.sent.missed_held += 1;
            return false;
        }
        if is_full {
            self.drop_oldest();
        }
        while needs_block && self.is_holding_all() {
            self.drop_oldest();
        }
        self.queued.push_back(content.clone());
        self.sent.sent += 1;
        self.sent.bytes += content.payload.len() as u64;
        true
    }

    fn drop_oldest(&mut self) {
        if self.queued.pop_front().is_some() {
            self.sent.dropped_oldest += 1;
        }
    }
}

impl Plane for Model {
    type Output = ModelOutput;
    type Consumer = usize;
    type Inbox = ModelInbox;

    fn facts(&self) -> Facts {
        FACTS
    }

    fn producer(&self, limits: Limits) -> ModelOutput {
        let mut state = self.0.state();
        state.processes.push(Process {
            limits,
            blocks: Vec::new(),
            stopping: false,
        });
        let process = state.processes.len() - 1;
        self.output(&mut state, process, limits.blocks, limits.history)
    }

    fn sibling(&self, output: &ModelOutput, blocks: u32, history: u32) -> ModelOutput {
        self.output(&mut self.0.state(), output.process, blocks, history)
    }

    fn consumer(&self, inputs: u32) -> (usize, ModelInbox) {
        let mut state = self.0.state();
        state
            .consumers
            .push((0..inputs).map(|_| InputState::default()).collect());
        let consumer = state.consumers.len() - 1;
        (
            consumer,
            ModelInbox {
                plane: self.clone(),
                consumer,
                cursor: 0,
            },
        )
    }

    fn connect(&self, output: &ModelOutput, consumer: &usize, input: u32, queue: Queue) -> Edge {
        let mut state = self.0.state();
        let mut edge = EdgeState {
            output: output.output,
            attached: true,
            consumer: *consumer,
            input: input as usize,
            queue,
            queued: VecDeque::new(),
            taken: Vec::new(),
            producer_gone: false,
            sent: Sent::default(),
        };
        let history = &state.outputs[output.output].history;
        for content in history
            .iter()
            .skip(history.len().saturating_sub(queue.depth as usize))
        {
            edge.offer(content);
        }
        state.edges.push(edge);
        let id = state.edges.len() - 1;
        state.consumers[*consumer][input as usize]
            .edges
            .push_back(id);
        drop(state);
        self.0.changed.notify_all();
        Edge(id as u32)
    }

    fn consumer_died(
        &self,
        consumer: &usize,
        inbox: ModelInbox,
        held: Vec<ModelSample>,
        restarts: bool,
    ) {
        let mut state = self.0.state();
        for edge in &mut state.edges {
            if edge.consumer != *consumer {
                continue;
            }
            let held = blocks_held(&mut edge.taken) as u64;
            if restarts && edge.queue.policy.is_lossless() && edge.attached {
                edge.sent.lost_in_crash += held;
            } else if edge.attached {
                edge.attached = false;
                edge.sent.undelivered += edge.queued.len() as u64;
                edge.queued.clear();
            }
        }
        drop(state);
        drop((inbox, held));
        self.0.changed.notify_all();
    }

    fn reconnect(&self, edge: Edge, consumer: &usize) -> Edge {
        let mut state = self.0.state();
        let known = &mut state.edges[edge.0 as usize];
        let (output, input, queue) = (known.output, known.input, known.queue);
        if known.attached {
            known.consumer = *consumer;
            state.consumers[*consumer][input]
                .edges
                .push_back(edge.0 as usize);
            drop(state);
            self.0.changed.notify_all();
            return edge;
        }
        let process = state.outputs[output].process;
        drop(state);
        let output = ModelOutput {
            plane: self.clone(),
            process,
            output,
        };
        self.connect(&output, consumer, input as u32, queue)
    }

    fn producer_gone(&self, output: &ModelOutput, last: bool) {
        let mut guard = self.0.state();
        let state = &mut *guard;
        for edge in state
            .edges
            .iter_mut()
            .filter(|edge| edge.output == output.output && edge.attached)
        {
            edge.attached = false;
            edge.producer_gone = true;
            state.consumers[edge.consumer][edge.input].last |= last;
        }
        drop(guard);
        self.0.changed.notify_all();
    }

    fn stop(&self, output: &ModelOutput) {
        self.0.state().processes[output.process].stopping = true;
        self.0.changed.notify_all();
    }

    fn wake(&self, _consumer: &usize) {
        self.0.changed.notify_all();
    }

    fn serve(&self) {}

    fn sent(&self, edge: Edge) -> Sent {
        self.0.state().edges[edge.0 as usize].sent
    }

    fn received(&self, consumer: &usize, input: u32) -> Received {
        let mut state = self.0.state();
        let input = &mut state.consumers[*consumer][input as usize];
        let held = blocks_held(&mut input.taken) as u64;
        Received {
            received: input.received,
            bytes: input.bytes,
            held,
        }
    }

    fn memory_bytes(&self, output: &ModelOutput) -> u64 {
        self.0.state().used(output.process)
    }
}

impl Model {
    fn output(&self, state: &mut State, process: usize, blocks: u32, history: u32) -> ModelOutput {
        state.outputs.push(OutputState {
            process,
            blocks,
            history_depth: history as usize,
            history: VecDeque::new(),
            next_sequence: 0,
        });
        ModelOutput {
            plane: self.clone(),
            process,
            output: state.outputs.len() - 1,
        }
    }
}

/// An output of the model.
#[derive(Clone)]
pub struct ModelOutput {
    plane: Model,
    process: usize,
    output: usize,
}

/// A loan of the model.
pub struct ModelLoan {
    payload: Vec<u8>,
    head_bytes: usize,
    block: Option<Arc<Block>>,
    world: Weak<World>,
}

impl Drop for ModelLoan {
    fn drop(&mut self) {
        if self.block.take().is_some()
            && let Some(world) = self.world.upgrade()
        {
            drop(world.state());
            world.changed.notify_all();
        }
    }
}

impl PlaneLoan for ModelLoan {
    fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.payload
    }
}

impl PlaneOutput for ModelOutput {
    type Loan = ModelLoan;

    fn loan(
        &self,
        payload_bytes: usize,
        head_bytes: usize,
        wait: Wait,
    ) -> Result<ModelLoan, Refusal> {
        if head_bytes > FACTS.max_head_bytes {
            return Err(Refusal::HeadTooLarge);
        }
        let world = &self.plane.0;
        if payload_bytes as u64 > world.state().processes[self.process].limits.memory_bytes {
            return Err(Refusal::TooLarge);
        }
        let loan = |block| ModelLoan {
            payload: vec![0; payload_bytes],
            head_bytes,
            block,
            world: Arc::downgrade(world),
        };
        if !FACTS.takes_block(payload_bytes, head_bytes) {
            return Ok(loan(None));
        }
        let in_block = if head_bytes > FACTS.inline_bytes {
            head_bytes
        } else {
            0
        };
        let bytes = (payload_bytes.next_multiple_of(8) + in_block).next_multiple_of(4096) as u64;
        let look = |state: &mut State| {
            // Padding counts towards the limit.
            if bytes > state.processes[self.process].limits.memory_bytes {
                return Some(Err(Refusal::TooLarge));
            }
            if let Some(block) = state.take_block(self.output, bytes) {
                return Some(Ok(block));
            }
            let edges = state.attached_edges(self.output);
            if edges
                .iter()
                .any(|&edge| state.edges[edge].queue.policy.is_lossless())
            {
                return None;
            }
            state.outputs[self.output].next_sequence += 1;
            for edge in edges {
                state.edges[edge].sent.missed_memory += 1;
            }
            Some(Err(Refusal::OutOfMemory))
        };
        let block = world.wait_for(self.process, wait, look)??;
        Ok(loan(Some(block)))
    }

    fn publish(
        &self,
        mut loan: ModelLoan,
        header: Header,
        head: &[u8],
        wait: Wait,
    ) -> Result<Receipt, (ModelLoan, Refusal)> {
        if head.len() > loan.head_bytes {
            return Err((loan, Refusal::HeadTooLarge));
        }
        let needs_block = loan.block.is_some();
        let room = |state: &mut State| {
            let mut full = false;
            for edge in state.attached_edges(self.output) {
                let edge = &mut state.edges[edge];
                full |= edge.queue.policy.is_lossless() && edge.is_full(needs_block);
            }
            if full {
                return None;
            }
            let output = &mut state.outputs[self.output];
            let sequence = output.next_sequence;
            output.next_sequence += 1;
            let incarnation = state.processes[self.process].limits.incarnation;
            let content = Content {
                header: Header {
                    sequence,
                    incarnation,
                    ..header
                },
                head: head.to_vec(),
                payload: std::mem::take(&mut loan.payload),
                block: loan.block.take(),
            };
            Some(state.publish(self.output, content))
        };
        match self.plane.0.wait_for(self.process, wait, room) {
            Ok(receipt) => {
                self.plane.0.changed.notify_all();
                Ok(receipt)
            }
            Err(refusal) => Err((loan, refusal)),
        }
    }
}

/// An inbox of the model.
pub struct ModelInbox {
    plane: Model,
    consumer: usize,
    cursor: usize,
}

impl PlaneInbox for ModelInbox {
    type Sample = ModelSample;

    fn try_next(&mut self) -> Option<Arrival<ModelSample>> {
        let world = &self.plane.0;
        let mut state = world.state();
        let inputs = state.consumers[self.consumer].len();
        for step in 0..inputs {
            let input = (self.cursor + step) % inputs;
            while let Some(&edge) = state.consumers[self.consumer][input].edges.front() {
                if let Some(taken) = state.pop(world, self.consumer, input, edge) {
                    self.cursor = input + 1;
                    drop(state);
                    world.changed.notify_all();
                    return Some(Arrival::Sample(input as u32, ModelSample(taken)));
                }
                if !state.edges[edge].producer_gone {
                    break;
                }
                state.consumers[self.consumer][input].edges.pop_front();
            }
            let known = &mut state.consumers[self.consumer][input];
            if known.last && known.edges.is_empty() && !known.closed {
                known.closed = true;
                return Some(Arrival::Closed(input as u32));
            }
        }
        None
    }

    fn wait(&mut self, deadline: Option<Instant>) {
        let state = self.plane.0.state();
        let has_news = state.consumers[self.consumer].iter().any(|input| {
            input
                .edges
                .iter()
                .any(|&edge| !state.edges[edge].queued.is_empty())
                || input.last && !input.closed
        });
        if has_news {
            return;
        }
        let changed = &self.plane.0.changed;
        match deadline {
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                drop(
                    changed
                        .wait_timeout(state, left)
                        .expect("no test panics with the lock"),
                );
            }
            None => drop(changed.wait(state).expect("as above")),
        }
    }

    fn take_newest(&mut self, input: u32) -> Option<ModelSample> {
        let world = &self.plane.0;
        let mut passed = Vec::new();
        let mut state = world.state();
        let edges = state.consumers[self.consumer][input as usize].edges.clone();
        for edge in edges {
            while let Some(taken) = state.pop(world, self.consumer, input as usize, edge) {
                passed.push(taken);
            }
            if !state.edges[edge].producer_gone {
                break;
            }
        }
        drop(state);
        world.changed.notify_all();
        passed.pop().map(ModelSample)
    }
}

/// A sample of the model.
#[derive(Clone)]
pub struct ModelSample(Arc<Taken>);

impl ModelSample {
    fn content(&self) -> &Content {
        self.0
            .content
            .as_ref()
            .expect("present until it is dropped")
    }
}

impl PlaneSample for ModelSample {
    fn header(&self) -> Header {
        self.content().header
    }

    fn head(&self) -> &[u8] {
        &self.content().head
    }

    fn payload(&self) -> &[u8] {
        &self.content().payload
    }
}
