//! What the counters say of every edge.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io,
    time::Duration,
};

use super::activity::ConsumerActivity;
use nervure_protocol::{
    keeper_to_run::{EdgeStatus, EdgeWired, NodeStarted},
    wiring::{EdgeState, Policy, Queue},
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
    pages: BTreeMap<u32, Page>,
    list: Vec<Edge>,
    by_input: HashMap<String, usize>,
}

/// The counters of a node's last process.
#[derive(Debug)]
struct Page {
    node: String,
    /// The mapping, or why there is none.
    counters: Result<CountersPage, String>,
    /// As last found.
    unreadable: Option<Unreadable>,
    is_reported: bool,
}

/// A node that has overwritten its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its id.
    pub node: String,
    /// What is wrong with them.
    pub why: String,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the counters of node `{}` are not readable: {}",
            self.node, self.why
        )
    }
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
    /// Of its producer's and its consumer's end, where the counters could not be read last.
    unreadable: [Option<Unreadable>; 2],
    /// The last samples, the newest at the back.
    samples: VecDeque<(Duration, Totals)>,
    activity: ConsumerActivity,
    /// Why one of its ends cut it off.
    failure: Option<String>,
    shortage: Option<Shortage>,
}

/// A resource of the system is short at one end of an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The node, the resource, and where its limit is set.
    pub cause: String,
    /// The edge works again.
    pub is_over: bool,
}

/// The counters of an edge, over all restarts.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// What its producer counted; zeros where that is not readable.
    pub output: OutputCounters,
    /// What its consumer counted; zeros where that is not readable.
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
    pub fn add_node(&mut self, node: &NodeStarted, page: &OwnedFd) {
        let counters = CountersPage::map(page, false).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => format!("its counters page was overwritten: {error}"),
            _ => format!("its counters page cannot be mapped: {error}"),
        });
        let page = Page {
            node: node.id.clone(),
            counters,
            unreadable: None,
            is_reported: false,
        };
        self.pages.insert(node.node, page);
    }

    /// An edge was wired between two processes.
    pub fn add(&mut self, wired: &EdgeWired) {
        if let Some(&known) = self.by_input.get(&wired.input) {
            // What one of its processes lacked, the next one may have.
            self.list[known].note_that_it_works();
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
            unreadable: [None, None],
            samples: VecDeque::new(),
            failure: None,
            shortage: None,
            activity: ConsumerActivity::default(),
        });
    }

    /// The keeper says how an edge does.
    pub fn note(&mut self, status: &EdgeStatus) {
        let Some(edge) = self
            .by_input
            .get(&status.input)
            .map(|&at| &mut self.list[at])
        else {
            return;
        };
        match status.state {
            EdgeState::Waiting => {
                edge.shortage = Some(Shortage {
                    cause: status.cause.clone(),
                    is_over: false,
                });
            }
            EdgeState::Working => edge.note_that_it_works(),
            EdgeState::Failed => edge.failure = Some(status.cause.clone()),
            EdgeState::Unknown => {}
        }
    }

    /// An observer is gone, and its edges with it.
    pub fn remove_node(&mut self, node: u32) {
        self.pages.remove(&node);
        self.list.retain(|edge| edge.consumer.0 != node);
        self.by_input = self
            .list
            .iter()
            .enumerate()
            .map(|(at, edge)| (edge.input.clone(), at))
            .collect();
    }

    /// Reads the counters of every edge.
    pub fn sample(&mut self, elapsed: Duration) {
        for page in self.pages.values_mut() {
            page.unreadable = page.check().err();
        }
        for edge in &mut self.list {
            let (output, input) = edge.read(&self.pages);
            let unreadable = [
                output.as_ref().err().cloned(),
                input.as_ref().err().cloned(),
            ];
            for ((node, _), unreadable) in [edge.producer, edge.consumer].iter().zip(&unreadable) {
                if let (Some(page), Some(unreadable)) = (self.pages.get_mut(node), unreadable) {
                    page.unreadable.get_or_insert_with(|| unreadable.clone());
                }
            }
            if edge.unreadable != unreadable {
                // Differences to what was, or was not, read before mean nothing.
                edge.samples.clear();
                edge.unreadable = unreadable;
            }
            if edge.samples.len() == WINDOW {
                edge.samples.pop_front();
            }
            let totals = Totals {
                output: output.unwrap_or_default(),
                input: input.unwrap_or_default(),
            };
            if edge.has_output() && edge.has_input() {
                edge.activity
                    .update(totals.queued(), totals.input.received, elapsed);
            } else {
                edge.activity = ConsumerActivity::default();
            }
            edge.samples.push_back((elapsed, totals));
        }
    }

    /// Nodes whose counters could not be read last.
    pub fn unreadable(&self) -> impl Iterator<Item = &Unreadable> {
        self.pages
            .values()
            .filter_map(|page| page.unreadable.as_ref())
    }

    /// Those of them that this has not returned before.
    pub fn newly_unreadable(&mut self) -> Vec<Unreadable> {
        let pages = self
            .pages
            .values_mut()
            .filter(|page| page.unreadable.is_some() && !page.is_reported);
        pages
            .filter_map(|page| {
                page.is_reported = true;
                page.unreadable.clone()
            })
            .collect()
    }

    /// The counters of an input, timers included; `None` where they are not readable.
    pub fn input_of(&self, node: u32, input: u32) -> Option<InputCounters> {
        match self.pages.get(&node) {
            Some(page) => page.read(|counters| counters.read_input(input)).ok(),
            None => Some(InputCounters::default()),
        }
    }

    /// The edges, in the order of their wiring.
    pub fn iter(&self) -> std::slice::Iter<'_, Edge> {
        self.list.iter()
    }
}

impl Page {
    fn check(&self) -> Result<(), Unreadable> {
        self.read(CountersPage::check_head)
    }

    fn read<T>(
        &self,
        read: impl FnOnce(&CountersPage) -> Result<T, nervure_shm::CountersError>,
    ) -> Result<T, Unreadable> {
        let counters = self.counters.as_ref().map_err(Clone::clone);
        let result =
            counters.and_then(|counters| read(counters).map_err(|error| error.to_string()));
        result.map_err(|why| Unreadable {
            node: self.node.clone(),
            why,
        })
    }
}

impl Totals {
    /// Samples that wait for the consumer.
    pub fn queued(&self) -> u64 {
        let Self { output, input } = self;
        [
            input.received,
            input.lost,
            output.dropped_oldest,
            output.undelivered,
        ]
        .into_iter()
        .fold(output.sent, u64::saturating_sub)
    }

    /// Samples that were published and that the consumer had no chance to use, whatever the cause.
    pub fn lost(&self) -> u64 {
        self.output.lost().saturating_add(self.input.lost)
    }
}

impl Edge {
    /// The counters as last read.
    pub fn totals(&self) -> Totals {
        self.samples
            .back()
            .map(|(_, totals)| totals.clone())
            .unwrap_or_default()
    }

    /// Whether its consumer takes samples.
    pub fn activity(&self) -> &ConsumerActivity {
        &self.activity
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

    /// Whether the counters of its producer could be read last.
    pub fn has_output(&self) -> bool {
        self.unreadable[0].is_none()
    }

    /// Whether the counters of its consumer could be read last.
    pub fn has_input(&self) -> bool {
        self.unreadable[1].is_none()
    }

    /// Why counters of an end, or of both, could not be read last.
    pub fn unreadable(&self) -> Option<String> {
        let [output, input] = &self.unreadable;
        let ends = output
            .iter()
            .chain(input.as_ref().filter(|_| output != input));
        let text = ends.map(ToString::to_string).collect::<Vec<_>>().join("; ");
        (!text.is_empty()).then_some(text)
    }

    /// Samples lost so far.
    pub fn lost(&self) -> u64 {
        self.samples.back().map_or(0, |(_, totals)| totals.lost())
    }

    /// True when the producer waits for room, so that nothing may be lost.
    pub fn is_lossless(&self) -> bool {
        self.queue.policy == Policy::Block
    }

    /// Why one of its ends cut it off, if one did.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The last shortage at one of its ends.
    pub fn shortage(&self) -> Option<&Shortage> {
        self.shortage.as_ref()
    }

    fn note_that_it_works(&mut self) {
        if let Some(shortage) = &mut self.shortage {
            shortage.is_over = true;
        }
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
        let (Some((begin, first)), Some((end, last))) = (self.samples.front(), self.samples.back())
        else {
            return Figures::default();
        };
        let latency = last.input.latency.since(&first.input.latency);
        let seconds = end.saturating_sub(*begin).as_secs_f64();
        let per_second = |now: u64, then: u64| {
            if seconds > 0.0 {
                now.saturating_sub(then) as f64 / seconds
            } else {
                0.0
            }
        };
        Figures {
            rate_hz: per_second(last.input.received, first.input.received),
            bytes_per_second: per_second(last.input.bytes, first.input.bytes),
            p50_nanos: latency.quantile(0.5),
            p99_nanos: latency.quantile(0.99),
        }
    }

    fn read(
        &self,
        pages: &BTreeMap<u32, Page>,
    ) -> (
        Result<OutputCounters, Unreadable>,
        Result<InputCounters, Unreadable>,
    ) {
        let output = pages
            .get(&self.producer.0)
            .map(|page| page.read(|it| it.read_output(self.producer.1)));
        let input = pages
            .get(&self.consumer.0)
            .map(|page| page.read(|it| it.read_input(self.consumer.1)));
        // A node that was never started has counted nothing.
        (
            output.unwrap_or_else(|| Ok(Default::default())),
            input.unwrap_or_else(|| Ok(Default::default())),
        )
    }
}

#[cfg(test)]
impl Edges {
    /// Edges without processes, whose counters a test makes up.
    pub fn fake(list: Vec<(&str, &str, Queue)>) -> Self {
        let edge = |(topic, input, queue): (&str, &str, Queue)| Edge {
            topic: topic.to_owned(),
            input: input.to_owned(),
            queue,
            observer: false,
            producer: (0, 0),
            consumer: (0, 0),
            unreadable: [None, None],
            samples: VecDeque::new(),
            failure: None,
            shortage: None,
            activity: ConsumerActivity::default(),
        };
        let list: Vec<_> = list.into_iter().map(edge).collect();
        let by_input = list
            .iter()
            .enumerate()
            .map(|(at, edge)| (edge.input.clone(), at))
            .collect();
        Self {
            list,
            by_input,
            ..Self::default()
        }
    }

    /// What the counters of an edge say from now on.
    pub fn set_fake(
        &mut self,
        edge: usize,
        elapsed: Duration,
        output: OutputCounters,
        input: InputCounters,
    ) {
        let totals = Totals { output, input };
        self.list[edge]
            .activity
            .update(totals.queued(), totals.input.received, elapsed);
        self.list[edge].samples.push_back((elapsed, totals));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nervure_protocol::wiring::Policy;

    #[test]
    fn figures_are_those_of_the_last_samples() {
        let queue = Queue {
            policy: Policy::DropOldest,
            depth: 10,
            max_held: 18,
        };
        let mut edges = Edges::fake(vec![("a/out", "b/in", queue)]);
        let mut input = InputCounters {
            received: 100,
            bytes: 1000,
            ..InputCounters::default()
        };
        input.latency.record(1_000_000_000);
        edges.set_fake(
            0,
            Duration::from_secs(10),
            OutputCounters::default(),
            input.clone(),
        );
        (input.received, input.bytes) = (150, 6000);
        input.latency.record(20_000);
        edges.set_fake(0, Duration::from_secs(12), OutputCounters::default(), input);
        let figures = edges.iter().next().unwrap().figures();
        assert_eq!((figures.rate_hz, figures.bytes_per_second), (25.0, 2500.0));
        assert!(
            (20_000..23_000).contains(&figures.p50_nanos.unwrap()),
            "the slow one was long ago"
        );
    }
}
