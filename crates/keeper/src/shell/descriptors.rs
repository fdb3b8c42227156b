//! The descriptors that the machine refers to by [`Descriptor`].

use std::{
    collections::{HashMap, hash_map::Entry},
    io,
    rc::Rc,
};

use nervure_protocol::node_to_keeper::Clock;
use nervure_shm::{
    ControlPage, CountersPage, EdgeRegion, RunState, Seqpacket, WakePage, eventfd, monotonic_nanos,
    read_only,
};
use rustix::fd::{AsFd, OwnedFd};

use crate::{
    machine::{Descriptor, GoneQueue, Pulse},
    plan::Plan,
};

/// Most descriptors that a keeper has open besides those of nodes, edges and clients.
const OWN_DESCRIPTORS: u64 = 64;

/// Per client: socket, pidfd, and the pages of a guest.
const CLIENT_DESCRIPTORS: u64 = 6;

/// Per node: wake page, eventfd, counters page and its copy for `run`, control socket, stdout,
/// stderr, log file.
const NODE_DESCRIPTORS: u64 = 8;

/// Per edge: its region, and both ends of a pair's socket until they are sent.
const EDGE_DESCRIPTORS: u64 = 3;

/// Most clients, even where more descriptors are available.
const MAX_CLIENTS: u64 = 64;

/// Most edges of guests, even where more descriptors are available.
const MAX_GUEST_EDGES: u64 = 1 << 14;

/// Every descriptor that the keeper may send.
#[derive(Debug)]
pub struct Descriptors {
    control_page: ControlPage,
    control: Rc<OwnedFd>,
    /// Whether the clock runs while the dataflow is not paused, and at which rate.
    clock_runs: bool,
    clock_rate: f64,
    is_paused: bool,
    nodes: Vec<Option<NodePages>>,
    regions: HashMap<u32, Rc<OwnedFd>>,
    /// Ends of pairs that were not sent.
    pairs: HashMap<u32, [Option<Rc<OwnedFd>>; 2]>,
}

#[derive(Debug)]
struct NodePages {
    wake_page: WakePage,
    wake: Rc<OwnedFd>,
    eventfd: Rc<OwnedFd>,
    counters: Rc<OwnedFd>,
    /// Mapped before the node gets it, so that the node cannot change how this mapping is read.
    counters_page: CountersPage,
    /// A read-only descriptor of it.
    counters_read_only: Rc<OwnedFd>,
}

impl Descriptors {
    /// The most descriptors that the keeper of a plan has open, and the terms of that sum, for
    /// people.
    pub fn needed(plan: &Plan) -> (u64, String) {
        let (nodes, edges) = (plan.nodes.len() as u64, plan.edges.len() as u64);
        let needed = NODE_DESCRIPTORS * nodes + EDGE_DESCRIPTORS * edges + OWN_DESCRIPTORS;
        let terms = format!(
            "{NODE_DESCRIPTORS} for each of {nodes} nodes, {EDGE_DESCRIPTORS} for each of {edges} edges, {OWN_DESCRIPTORS} of its own"
        );
        (needed, terms)
    }

    /// The numbers of clients and of edges of guests for which descriptors are left besides those
    /// of the plan.
    pub fn left_for_clients(plan: &Plan, limit: Option<u64>) -> (usize, usize) {
        let left = limit
            .unwrap_or(u64::MAX)
            .saturating_sub(Self::needed(plan).0);
        let clients = (left / CLIENT_DESCRIPTORS).min(MAX_CLIENTS);
        let edges = (left - clients * CLIENT_DESCRIPTORS) / EDGE_DESCRIPTORS;
        (clients as usize, edges.min(MAX_GUEST_EDGES) as usize)
    }

    /// The descriptors of a dataflow without processes.
    ///
    /// # Errors
    /// When memory or descriptors run out.
    pub fn new(plan: &Plan) -> io::Result<Self> {
        let (control_page, control) = ControlPage::create()?;
        let clock_runs = plan.clock.is_none();
        if let Some(clock) = plan.clock {
            control_page.set(
                RunState::Paused,
                clock.origin_utc_nanos,
                monotonic_nanos(),
                1.0,
            );
        }
        Ok(Self {
            control_page,
            clock_runs,
            clock_rate: 1.0,
            is_paused: false,
            control: Rc::new(control),
            nodes: plan.nodes.iter().map(|_| None).collect(),
            regions: HashMap::new(),
            pairs: HashMap::new(),
        })
    }

    /// Sets the clock. It never goes back: if it has advanced further while the message was in
    /// flight, it continues from there.
    pub fn set_clock(&mut self, clock: Clock) {
        let now = monotonic_nanos();
        self.clock_runs = clock.runs;
        self.clock_rate = clock.rate_millionths as f64 / 1e6;
        let gain = match self.run_state() {
            RunState::Running => now.saturating_sub(clock.base_mono) as f64 * self.clock_rate,
            RunState::Paused => 0.0,
        };
        let wanted = clock.origin_utc_nanos.saturating_add(gain as i64);
        self.write_clock(wanted, now);
    }

    /// Stops the clock, or lets it go on from where it stands.
    pub fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
        self.write_clock(i64::MIN, monotonic_nanos());
    }

    fn write_clock(&self, wanted: i64, now: u64) {
        let (_, reads) = self.control_page.read(now);
        let (state, rate) = (self.run_state(), self.clock_rate);
        self.control_page.set(state, wanted.max(reads), now, rate);
    }

    fn run_state(&self) -> RunState {
        match self.clock_runs && !self.is_paused {
            true => RunState::Running,
            false => RunState::Paused,
        }
    }

    /// Creates the pages of a node's next process, or of a guest. The counters continue from those
    /// of the last process; samples that it has left in queues that are `gone` count as lost.
    ///
    /// # Errors
    /// When memory or descriptors run out.
    pub fn renew_node(
        &mut self,
        node: usize,
        inputs: usize,
        output_rows: u32,
        gone: &[GoneQueue],
    ) -> io::Result<()> {
        let inputs = u32::try_from(inputs).map_err(io::Error::other)?;
        if node >= self.nodes.len() {
            self.nodes.resize_with(node + 1, || None);
        }
        let counters = match &self.nodes[node] {
            Some(earlier) => {
                let earlier = &earlier.counters_page;
                let left_behind = self.left_behind(earlier, gone);
                CountersPage::create_after(output_rows, inputs, earlier, &left_behind)?
            }
            None => CountersPage::create(output_rows, inputs)?,
        };
        let (wake_page, wake) = WakePage::create(inputs)?;
        self.nodes[node] = Some(NodePages {
            wake_page,
            wake: Rc::new(wake),
            eventfd: Rc::new(eventfd()?),
            counters_read_only: Rc::new(read_only(counters.as_fd())?),
            counters_page: CountersPage::map(&counters, false)?,
            counters: Rc::new(counters),
        });
        Ok(())
    }

    /// Samples that were in the queues of a node's last process. Unreadable counters count as none.
    fn left_behind(&self, consumer: &CountersPage, gone: &[GoneQueue]) -> Vec<(u32, u64)> {
        let samples = |queue: &GoneQueue| {
            let producer = &self.nodes.get(queue.producer)?.as_ref()?.counters_page;
            let output = producer.read_output(queue.row).ok()?;
            let input = consumer.read_input(queue.input).ok()?;
            Some((queue.input, output.queued(&input)))
        };
        gone.iter().filter_map(samples).collect()
    }

    /// Drops the pages of a guest.
    pub fn forget_node(&mut self, node: usize) {
        self.nodes[node] = None;
    }

    /// Creates the region of an edge.
    ///
    /// # Errors
    /// When memory or descriptors run out.
    pub fn create_region(&mut self, edge: u32, depth: u32, blocks: u32) -> io::Result<()> {
        self.regions
            .insert(edge, Rc::new(EdgeRegion::create(depth, blocks)?));
        Ok(())
    }

    /// Drops the region of an edge; messages that wait to be sent keep it open.
    pub fn release_region(&mut self, edge: u32) {
        self.regions.remove(&edge);
    }

    /// Drops the ends of a pair that were not sent.
    pub fn release_pair(&mut self, pair: u32) {
        self.pairs.remove(&pair);
    }

    /// Wakes every thread that sleeps on a node's wake page or eventfd.
    pub fn ring(&self, node: usize) {
        if let Some(pages) = &self.nodes[node] {
            pages.wake_page.ring_all(pages.eventfd.as_fd());
        }
    }

    /// Reads a node's signs of life.
    ///
    /// # Errors
    /// When it has no pages.
    pub fn pulse(&self, node: usize) -> io::Result<Pulse> {
        let pages = self.nodes[node]
            .as_ref()
            .ok_or_else(|| io::Error::other("the node was never started"))?;
        let page = &pages.counters_page;
        // From the counters page alone, which no other node can write to. First whether it sleeps:
        // a node that wakes in between has one beat more.
        let is_asleep = page
            .sleeps_until()
            .is_some_and(|until| until >= monotonic_nanos());
        Ok(Pulse {
            beats: page.beats(),
            is_waiting: is_asleep || page.waiting() > 0,
        })
    }

    /// The descriptor that a message refers to.
    ///
    /// # Errors
    /// When it cannot be created, or was sent already.
    pub fn resolve(&mut self, descriptor: Descriptor) -> io::Result<Rc<OwnedFd>> {
        let found = match descriptor {
            Descriptor::ControlPage => Some(self.control.clone()),
            Descriptor::WakePage(node) => self.nodes[node].as_ref().map(|pages| pages.wake.clone()),
            Descriptor::Eventfd(node) => {
                self.nodes[node].as_ref().map(|pages| pages.eventfd.clone())
            }
            Descriptor::Counters(node) => self.nodes[node]
                .as_ref()
                .map(|pages| pages.counters.clone()),
            Descriptor::CountersReadOnly(node) => self.nodes[node]
                .as_ref()
                .map(|pages| pages.counters_read_only.clone()),
            Descriptor::Region(edge) => self.regions.get(&edge).cloned(),
            Descriptor::PairEnd { pair, end } => self.take_pair_end(pair, end)?,
        };
        found
            .ok_or_else(|| io::Error::other(format!("{descriptor:?} was named and does not exist")))
    }

    fn take_pair_end(&mut self, pair: u32, end: u32) -> io::Result<Option<Rc<OwnedFd>>> {
        let ends = match self.pairs.entry(pair) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let (a, b) = Seqpacket::pair()?;
                entry.insert([a, b].map(|end| Some(Rc::new(end.into()))))
            }
        };
        let taken = ends[end as usize].take();
        if ends.iter().all(Option::is_none) {
            self.pairs.remove(&pair);
        }
        Ok(taken)
    }
}
