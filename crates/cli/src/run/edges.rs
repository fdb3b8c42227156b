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

/// A process: index of its node, and its incarnation.
type Process = (u32, u32);

/// Every edge that was ever wired, over all restarts of its nodes.
#[derive(Debug, Default)]
pub struct Edges {
    pages: HashMap<Process, CountersPage>,
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
    /// Processes that produced, and consumed, and their rows.
    producers: Vec<(Process, u32)>,
    consumers: Vec<(Process, u32)>,
    /// The last samples, the newest at the back.
    samples: VecDeque<(Duration, Totals)>,
}

/// The counters of an edge, summed over restarts.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// What its producers counted.
    pub output: OutputCounters,
    /// What its consumers counted.
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
        self.pages.insert((node.node, node.incarnation), CountersPage::map(page, false)?);
        Ok(())
    }

    /// An edge was wired between two processes.
    pub fn add(&mut self, wired: &EdgeWired) {
        let at = *self.by_input.entry(wired.input.clone()).or_insert_with(|| {
            self.list.push(Edge {
                topic: wired.topic.clone(),
                input: wired.input.clone(),
                queue: wired.queue,
                producers: Vec::new(),
                consumers: Vec::new(),
                samples: VecDeque::new(),
            });
            self.list.len() - 1
        });
        let edge = &mut self.list[at];
        remember(&mut edge.producers, (wired.producer, wired.producer_row));
        remember(&mut edge.consumers, (wired.consumer, wired.consumer_row));
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

    /// The counters of an input, timers included, summed over restarts of its node.
    pub fn input_of(&self, node: u32, input: u32) -> InputCounters {
        let mut sum = InputCounters::default();
        for (_, page) in self.pages.iter().filter(|((of, _), _)| *of == node) {
            add_input(&mut sum, page.input(input));
        }
        sum
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

    fn read(&self, pages: &HashMap<Process, CountersPage>) -> Totals {
        let mut totals = Totals::default();
        for (process, row) in &self.producers {
            if let Some(page) = pages.get(process) {
                add_output(&mut totals.output, page.output(*row));
            }
        }
        for (process, row) in &self.consumers {
            if let Some(page) = pages.get(process) {
                add_input(&mut totals.input, page.input(*row));
            }
        }
        totals
    }
}

fn remember(rows: &mut Vec<(Process, u32)>, row: (Process, u32)) {
    if !rows.contains(&row) {
        rows.push(row);
    }
}

/// Adds the counters of a later process.
fn add_output(sum: &mut OutputCounters, later: OutputCounters) {
    *sum = OutputCounters {
        sent: sum.sent + later.sent,
        bytes: sum.bytes + later.bytes,
        dropped_oldest: sum.dropped_oldest + later.dropped_oldest,
        dropped_newest: sum.dropped_newest + later.dropped_newest,
        missed_held: sum.missed_held + later.missed_held,
        missed_memory: sum.missed_memory + later.missed_memory,
        missed_control: sum.missed_control + later.missed_control,
        lost_in_crash: sum.lost_in_crash + later.lost_in_crash,
        undelivered: sum.undelivered + later.undelivered,
        blocked_nanos: sum.blocked_nanos + later.blocked_nanos,
    };
}

/// Adds the counters of a later process; what is held is that of the last.
fn add_input(sum: &mut InputCounters, later: InputCounters) {
    sum.received += later.received;
    sum.bytes += later.bytes;
    sum.held = later.held;
    sum.stale += later.stale;
    sum.deadlines_missed += later.deadlines_missed;
    sum.max_overrun_nanos = sum.max_overrun_nanos.max(later.max_overrun_nanos);
    sum.latency.merge(&later.latency);
}

#[cfg(test)]
impl Edges {
    /// Edges without processes, whose counters a test makes up.
    pub fn imagined(list: Vec<(&str, &str, Queue)>) -> Self {
        let edge = |(topic, input, queue): (&str, &str, Queue)| Edge {
            topic: topic.to_owned(),
            input: input.to_owned(),
            queue,
            producers: Vec::new(),
            consumers: Vec::new(),
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
