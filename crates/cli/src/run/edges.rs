//! What the counters say of every edge.

use std::{
    collections::{HashMap, VecDeque},
    io,
    time::Duration,
};

use nervure_protocol::{
    keeper_to_run::{EdgeWired, NodeStarted},
    wiring::{Policy, Queue},
};
use nervure_shm::{CountersPage, InputCounters, OutputCounters};
use rustix::fd::OwnedFd;

/// Samples over which rates are taken: two seconds at two samples a second.
const WINDOW: usize = 5;

/// A node by its index, and a row of its counters page.
type Row = (u32, u32);

/// Every edge that was ever wired, over all restarts of its nodes: the counters of a process go on from those of the
/// last one.
#[derive(Debug, Default)]
pub struct Edges {
    /// Of each node's last process.
    pages: HashMap<u32, CountersPage>,
    list: Vec<Edge>,
    by_input: HashMap<String, usize>,
}

/// An edge of the dataflow.
#[derive(Debug)]
pub struct Edge {
    /// `node/output`.
    pub topic: String,
    /// `node/input`.
    pub input: String,
    /// Its queue.
    pub queue: Queue,
    /// True when its consumer is an observer, and no node of the dataflow.
    pub observer: bool,
    producer: Row,
    consumer: Row,
    /// The last samples, the newest at the back.
    samples: VecDeque<(Duration, Totals)>,
}

/// The counters of an edge, over all restarts.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// What its producer counted.
    pub output: OutputCounters,
    /// What its consumer counted.
    pub input: InputCounters,
}

/// What an edge does at the moment.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Samples received a second.
    pub rate_hz: f64,
    /// Payload bytes received a second.
    pub bytes_per_second: f64,
    /// Half of the samples took at most so long, in nanoseconds.
    pub p50_nanos: Option<u64>,
    /// 99 % of the samples took at most so long, in nanoseconds.
    pub p99_nanos: Option<u64>,
}

impl Edges {
    /// A process was started.
    pub fn add_node(&mut self, node: &NodeStarted, page: &OwnedFd) -> io::Result<()> {
        self.pages.insert(node.node, CountersPage::map(page, false)?);
        Ok(())
    }

    /// An edge was wired between two processes.
    pub fn add(&mut self, wired: &EdgeWired) {
        if self.by_input.contains_key(&wired.input) {
            return;
        }
        self.by_input.insert(wired.input.clone(), self.list.len());
        self.list.push(Edge {
            topic: wired.topic.clone(),
            input: wired.input.clone(),
            queue: wired.queue,
            observer: wired.observer,
            producer: (wired.producer.0, wired.producer_row),
            consumer: (wired.consumer.0, wired.consumer_row),
            samples: VecDeque::new(),
        });
    }

    /// An observer is gone, and its edges with it.
    pub fn remove_node(&mut self, node: u32) {
        self.pages.remove(&node);
        self.list.retain(|edge| edge.consumer.0 != node);
        self.by_input = self.list.iter().enumerate().map(|(at, edge)| (edge.input.clone(), at)).collect();
    }

    /// Reads the counters of every edge.
    pub fn sample(&mut self, elapsed: Duration) {
        for edge in &mut self.list {
            let totals = edge.read(&self.pages);
            if edge.samples.len() == WINDOW {
                edge.samples.pop_front();
            }
            edge.samples.push_back((elapsed, totals));
        }
    }

    /// The counters of an input, timers included.
    pub fn input_of(&self, node: u32, input: u32) -> InputCounters {
        self.pages.get(&node).map(|page| page.input(input)).unwrap_or_default()
    }

    /// The edges, in the order of their wiring.
    pub fn iter(&self) -> std::slice::Iter<'_, Edge> {
        self.list.iter()
    }
}

impl Totals {
    /// Samples that wait for the consumer.
    pub fn queued(&self) -> u64 {
        let Self { output, input } = self;
        output.sent.saturating_sub(input.received + output.dropped_oldest + output.undelivered)
    }
}

impl Edge {
    /// The counters as last read.
    pub fn totals(&self) -> Totals {
        self.samples.back().map(|(_, totals)| totals.clone()).unwrap_or_default()
    }

    /// `node/output -> node/input`, and for an observer its id alone.
    pub fn name(&self) -> String {
        format!("{} -> {}", self.topic, self.consumer_name())
    }

    /// `node/input`, and for an observer its id alone.
    pub fn consumer_name(&self) -> &str {
        match self.observer {
            true => self.input.split('/').next().unwrap_or(&self.input),
            false => &self.input,
        }
    }

    /// Index of the consuming node.
    pub fn consumer_node(&self) -> u32 {
        self.consumer.0
    }

    /// Samples lost so far.
    pub fn lost(&self) -> u64 {
        self.samples.back().map_or(0, |(_, totals)| totals.output.lost())
    }

    /// True when the producer waits for room, so that nothing may be lost.
    pub fn is_lossless(&self) -> bool {
        self.queue.policy == Policy::Block
    }

    /// True when only the newest sample counts, so that older ones are dropped on purpose.
    pub fn is_latest(&self) -> bool {
        self.queue.policy == Policy::DropOldest && self.queue.depth == 1
    }

    /// The counters of the oldest of the last samples and of the newest, and the time between them.
    pub fn span(&self) -> Option<(&Totals, &Totals, Duration)> {
        let ((begin, first), (end, last)) = (self.samples.front()?, self.samples.back()?);
        Some((first, last, end.saturating_sub(*begin)))
    }

    /// What happened over the last samples.
    pub fn figures(&self) -> Figures {
        let (Some((begin, first)), Some((end, last))) = (self.samples.front(), self.samples.back()) else {
            return Figures::default();
        };
        let latency = last.input.latency.since(&first.input.latency);
        let seconds = end.saturating_sub(*begin).as_secs_f64();
        let per_second =
            |now: u64, then: u64| if seconds > 0.0 { now.saturating_sub(then) as f64 / seconds } else { 0.0 };
        Figures {
            rate_hz: per_second(last.input.received, first.input.received),
            bytes_per_second: per_second(last.input.bytes, first.input.bytes),
            p50_nanos: latency.quantile(0.5),
            p99_nanos: latency.quantile(0.99),
        }
    }

    fn read(&self, pages: &HashMap<u32, CountersPage>) -> Totals {
        let page = |(node, row): Row| pages.get(&node).map(|page| (page, row));
        Totals {
            output: page(self.producer).map(|(page, row)| page.output(row)).unwrap_or_default(),
            input: page(self.consumer).map(|(page, row)| page.input(row)).unwrap_or_default(),
        }
    }
}
#[cfg(test)]
impl Edges {
    /// Edges without processes, whose counters a test makes up.
    pub fn imagined(list: Vec<(&str, &str, Queue)>) -> Self {
        let edge = |(topic, input, queue): (&str, &str, Queue)| Edge {
            topic: topic.to_owned(),
            input: input.to_owned(),
            queue,
            observer: false,
            producer: (0, 0),
            consumer: (0, 0),
            samples: VecDeque::new(),
        };
        Self { list: list.into_iter().map(edge).collect(), ..Self::default() }
    }

    /// What the counters of an edge say from now on.
    pub fn imagine(&mut self, edge: usize, elapsed: Duration, output: OutputCounters, input: InputCounters) {
        self.list[edge].samples.push_back((elapsed, Totals { output, input }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nervure_protocol::wiring::Policy;

    #[test]
    fn figures_are_those_of_the_last_samples() {
        let queue = Queue { policy: Policy::DropOldest, depth: 10, max_held: 18 };
        let mut edges = Edges::imagined(vec![("a/out", "b/in", queue)]);
        let mut input = InputCounters { received: 100, bytes: 1000, ..InputCounters::default() };
        input.latency.record(1_000_000_000);
        edges.imagine(0, Duration::from_secs(10), OutputCounters::default(), input.clone());
        (input.received, input.bytes) = (150, 6000);
        input.latency.record(20_000);
        edges.imagine(0, Duration::from_secs(12), OutputCounters::default(), input);
        let figures = edges.iter().next().unwrap().figures();
        assert_eq!((figures.rate_hz, figures.bytes_per_second), (25.0, 2500.0));
        assert!((20_000..23_000).contains(&figures.p50_nanos.unwrap()), "the slow one was long ago");
    }
}
