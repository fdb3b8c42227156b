//! The counters of every edge.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io,
    time::Duration,
};

use nervure_protocol::{
    report::{EdgeStatus, EdgeWired, NodeStarted},
    wiring::{EdgeState, Queue},
};
use nervure_shm::{CountersPage, InputCounters, OutputCounters};
use rustix::fd::OwnedFd;

use crate::activity::ConsumerActivity;

/// Readings over which rates are computed: two seconds at two readings per second.
const WINDOW: usize = 5;

/// A node by its index, and a row of its counters page.
type Row = (u32, u32);

/// Every edge that was ever wired. Counters continue over restarts: each process starts with those
/// of the last one.
#[derive(Debug, Default)]
pub struct Edges {
    /// Counters pages of each node's last process.
    pages: BTreeMap<u32, Page>,
    list: Vec<Edge>,
    by_input: HashMap<String, usize>,
}

/// The counters of a node's last process.
#[derive(Debug)]
struct Page {
    node: String,
    /// The mapped page, or the error.
    counters: Result<CountersPage, String>,
    /// Result of the last reading.
    unreadable: Option<Unreadable>,
    is_reported: bool,
}

/// A node whose counters are not readable, because it has overwritten them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The id of the node.
    pub node: String,
    /// The reason.
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
    /// The queue of the input.
    pub queue: Queue,
    /// True if the consumer is an observer, not a node of the dataflow.
    pub observer: bool,
    producer: Row,
    consumer: Row,
    /// For the producer and the consumer: the error of the last reading, if it failed.
    unreadable: [Option<Unreadable>; 2],
    /// The last readings, the newest at the back.
    samples: VecDeque<(Duration, Totals)>,
    activity: ConsumerActivity,
    /// The reason, if one end has cut the edge off.
    failure: Option<String>,
    shortage: Option<Shortage>,
}

/// A shortage of a system resource at one end of an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The node, the resource, and where to raise its limit.
    pub cause: String,
    /// True if the edge works again.
    pub is_over: bool,
}

/// The counters of an edge, over all restarts of its nodes.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Counters of the producer; zeros if they are not readable.
    pub output: OutputCounters,
    /// Counters of the consumer; zeros if they are not readable.
    pub input: InputCounters,
}

/// Figures of an edge over the last two seconds.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Samples received per second.
    pub rate_hz: f64,
    /// Payload bytes received per second.
    pub bytes_per_second: f64,
    /// Median latency in nanoseconds.
    pub p50_nanos: Option<u64>,
    /// 99th percentile of the latency in nanoseconds.
    pub p99_nanos: Option<u64>,
}

impl Edges {
    /// Adds the counters page of a process that was started.
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

    /// Adds an edge that was wired between two processes.
    pub fn add(&mut self, wired: &EdgeWired) {
        if let Some(&known) = self.by_input.get(&wired.input) {
            // A shortage of an earlier process does not apply to a new one.
            self.list[known].end_shortage();
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

    /// Updates the status of an edge from a report of the keeper.
    pub fn set_status(&mut self, status: &EdgeStatus) {
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
            EdgeState::Working => edge.end_shortage(),
            EdgeState::Failed => edge.failure = Some(status.cause.clone()),
            EdgeState::Unknown => {}
        }
    }

    /// Removes an observer and its edges.
    pub fn remove_node(&mut self, node: u32) {
        self.pages.remove(&node);
        self.retain(|edge| edge.consumer.0 != node);
    }

    /// Removes a node that nothing is known of any more, and all its edges.
    pub fn remove_all_of(&mut self, node: u32) {
        self.pages.remove(&node);
        self.retain(|edge| edge.consumer.0 != node && edge.producer.0 != node);
    }

    fn retain(&mut self, is_kept: impl FnMut(&Edge) -> bool) {
        self.list.retain(is_kept);
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
                // Differences between readable and unreadable counters have no meaning.
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

    /// Nodes whose counters were not readable at the last reading.
    pub fn unreadable(&self) -> impl Iterator<Item = &Unreadable> {
        self.pages
            .values()
            .filter_map(|page| page.unreadable.as_ref())
    }

    /// As [`Self::unreadable`], without the nodes that were returned before.
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

    /// The counters of an input, which may be a timer; `None` if they are not readable.
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
    /// Samples in the queue.
    pub fn queued(&self) -> u64 {
        self.output.queued(&self.input)
    }

    /// Samples published for the edge: [`Self::received`] + [`Self::lost`] + [`Self::not_taken`].
    ///
    /// A producer that is killed may have queued one sample more than it counted, and both ends
    /// count on while their pages are read. Samples that the consumer counted were published.
    pub fn published(&self) -> u64 {
        let accounted = self.received().saturating_add(self.lost());
        self.output.published().max(accounted)
    }

    /// Samples that the consumer took and was not killed with.
    pub fn received(&self) -> u64 {
        self.input
            .received
            .saturating_sub(self.output.lost_in_crash)
    }

    /// Published samples that the consumer could not use, for any cause.
    pub fn lost(&self) -> u64 {
        self.output.lost().saturating_add(self.input.lost)
    }

    /// Samples that are in the queue, or were in it when the consumer ended or the dataflow
    /// stopped. They do not count as lost.
    pub fn not_taken(&self) -> u64 {
        let accounted = self.received().saturating_add(self.lost());
        self.output.published().saturating_sub(accounted)
    }
}

impl Edge {
    /// The counters of the last reading.
    pub fn totals(&self) -> Totals {
        self.samples
            .back()
            .map(|(_, totals)| totals.clone())
            .unwrap_or_default()
    }

    /// Whether the consumer takes samples.
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

    /// Index of the producing node.
    pub fn producer_node(&self) -> u32 {
        self.producer.0
    }

    /// Index of the consuming node.
    pub fn consumer_node(&self) -> u32 {
        self.consumer.0
    }

    /// Whether the counters of the producer were readable at the last reading.
    pub fn has_output(&self) -> bool {
        self.unreadable[0].is_none()
    }

    /// Whether the counters of the consumer were readable at the last reading.
    pub fn has_input(&self) -> bool {
        self.unreadable[1].is_none()
    }

    /// Why the counters of one or both ends are not readable.
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

    /// Whether samples were lost within the last readings.
    pub fn is_losing(&self) -> bool {
        self.span()
            .is_some_and(|(first, last, _)| last.lost() > first.lost())
    }

    /// Whether the dataflow file has the input, so that its queue can be set there: not for requests,
    /// answers and transforms.
    pub fn is_in_file(&self) -> bool {
        !self.observer && !self.input.contains('~')
    }

    /// True if a node receives its own output.
    pub fn is_self_loop(&self) -> bool {
        self.producer.0 == self.consumer.0
    }

    /// Samples not taken at the last reading.
    pub fn not_taken(&self) -> u64 {
        self.samples
            .back()
            .map_or(0, |(_, totals)| totals.not_taken())
    }

    /// True if the producer waits for room, so that no sample may be lost.
    pub fn is_lossless(&self) -> bool {
        self.queue.policy.is_lossless()
    }

    /// The reason, if one end has cut the edge off.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The last shortage of a resource at one end.
    pub fn shortage(&self) -> Option<&Shortage> {
        self.shortage.as_ref()
    }

    fn end_shortage(&mut self) {
        if let Some(shortage) = &mut self.shortage {
            shortage.is_over = true;
        }
    }

    /// True if the queue holds only the newest sample, so that drops are by design.
    pub fn is_latest(&self) -> bool {
        self.queue.is_latest()
    }

    /// The counters of the oldest and the newest of the last readings, and the time between them.
    pub fn span(&self) -> Option<(&Totals, &Totals, Duration)> {
        let ((begin, first), (end, last)) = (self.samples.front()?, self.samples.back()?);
        Some((first, last, end.saturating_sub(*begin)))
    }

    /// Rates and latencies over the last readings.
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
        // A node that was never started has no counters yet.
        (
            output.unwrap_or_else(|| Ok(Default::default())),
            input.unwrap_or_else(|| Ok(Default::default())),
        )
    }
}

#[cfg(any(test, feature = "fakes"))]
impl Edges {
    /// Edges without processes, with counters from [`Self::set_fake`].
    pub fn fake(list: Vec<(&str, &str, Queue)>) -> Self {
        let edge = |(topic, input, queue): (&str, &str, Queue)| Edge {
            topic: topic.to_owned(),
            input: input.to_owned(),
            queue,
            observer: false,
            producer: (0, 0),
            consumer: (
                u32::from(topic.split('/').next() != input.split('/').next()),
                0,
            ),
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

    /// Adds a reading of fake counters to an edge.
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
            "the slow sample was before the window"
        );
    }
}
