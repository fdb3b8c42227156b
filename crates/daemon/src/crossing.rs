//! A run whose stand-ins are joined: state shared by their threads.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use nervure_node::binding::Histogram;
use nervure_node::remote::FleetTime;
use nervure_node::{Events, Node};
use nervure_protocol::daemon_to_daemon::{StreamLatency, StreamReport};
use nervure_protocol::loss::LossCause;
use nervure_protocol::wiring;

use crate::part::StandIns;
use crate::service_calls::ServiceCalls;
use crate::threads::spawn_when_possible;
use crate::totals::{Counted, Totals};
use crate::waiting::EventsWaker;

/// Pause before a stand-in whose place is taken tries to join again. The keeper learns of the death of the
/// last daemon within about this time, and announces a free place to no client that has not joined.
const JOIN_PAUSE: Duration = Duration::from_millis(20);

/// The shortest time between two lines about the losses of a topic.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// A run whose stand-ins are joined.
#[derive(Debug)]
pub(crate) struct Crossing {
    run: String,
    keeper: u32,
    machines: BTreeMap<String, String>,
    over: AtomicBool,
    stops: AtomicBool,
    /// Those of the threads that wait for events of their nodes.
    wakers: Mutex<Vec<Waker>>,
    /// The streams from and to this machine, by topic and consuming machine.
    streams: BTreeMap<(String, String), CountedStream>,
    /// Counts of this daemon, by the place of the stream.
    counts: Mutex<Vec<Counted>>,
    totals: Totals,
    latencies: Mutex<BTreeMap<(String, String), Arc<Latencies>>>,
    /// Requests to services on other machines.
    pub calls: ServiceCalls,
    /// Requests of other machines to services here, by the topic of the answers.
    requests: Mutex<BTreeMap<String, Requests>>,
}

/// A stream whose samples are counted.
#[derive(Clone, Copy, Debug)]
struct CountedStream {
    /// Its place in the file of the counts.
    at: usize,
    is_lossless: bool,
    /// Whether its consumers are here. Then it has counts only if samples have failed here.
    is_incoming: bool,
}

/// Requests of another machine to a service here.
#[derive(Clone, Copy, Debug, Default)]
struct Requests {
    /// Number of processes of the service that have ended.
    ended: u64,
    /// Whether some were queued since the client was last notified of an end.
    are_queued: bool,
    /// Whether some were queued for a process that has ended, without a notice to the client.
    are_lost: bool,
}

/// Latencies of the samples of a topic since their publication on the other machine.
#[derive(Debug, Default)]
pub(crate) struct Latencies(Mutex<(Histogram, u64)>);

impl Latencies {
    /// A sample has arrived.
    pub fn add(&self, published: FleetTime, now: FleetTime) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.0.record(now.nanos.saturating_sub(published.nanos));
        all.1 = published.error_nanos.saturating_add(now.error_nanos);
    }

    fn report(&self) -> Option<StreamLatency> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (histogram, error_nanos) = &*all;
        Some(StreamLatency {
            p50_nanos: histogram.quantile(0.5)?,
            p99_nanos: histogram.quantile(0.99)?,
            max_nanos: histogram.max_nanos(),
            error_nanos: *error_nanos,
        })
    }
}

/// Counts samples that cannot be carried, and reports them once a second at most.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    pub count: u64,
    unreported: u64,
    report_at: Option<Instant>,
}

impl Failures {
    pub fn add(&mut self, topic: &str, machine: &str, error: &dyn std::fmt::Display) {
        (self.count, self.unreported) = (self.count + 1, self.unreported + 1);
        let now = Instant::now();
        if self.report_at.is_none_or(|at| at <= now) {
            let count = std::mem::take(&mut self.unreported);
            tracing::warn!("{count} samples of {topic} to {machine} lost: {error}");
            self.report_at = Some(now + REPORT_PERIOD);
        }
    }
}

/// The streams of a run from and to the machine with the name `own`.
fn counted_streams(
    stand_ins: &StandIns,
    own: &str,
    machine: impl Fn(&str) -> String,
) -> BTreeMap<(String, String), CountedStream> {
    let mut streams = BTreeMap::new();
    for outgoing in &stand_ins.outgoing {
        for stream in &outgoing.streams {
            let place = (stream.topic.clone(), machine(&outgoing.machine));
            streams.insert(place, (stream.is_lossless(), false));
        }
    }
    for incoming in &stand_ins.incoming {
        for output in &incoming.outputs {
            let place = (wiring::topic(&incoming.node, output), own.to_owned());
            streams.insert(place, (incoming.lossless.contains(output), true));
        }
    }
    let numbered = streams.into_iter().enumerate();
    let counted = numbered.map(|(at, (place, (is_lossless, is_incoming)))| {
        let stream = CountedStream {
            at,
            is_lossless,
            is_incoming,
        };
        (place, stream)
    });
    counted.collect()
}

impl Crossing {
    /// `folder` is the folder of the run, and `own` the name of this machine.
    pub fn new(
        (run, keeper): (&str, u32),
        (folder, own): (&Path, &str),
        machines: &BTreeMap<String, String>,
        stand_ins: &StandIns,
    ) -> Self {
        let machine = |role: &str| machines.get(role).map_or(role, String::as_str).to_owned();
        let streams = counted_streams(stand_ins, own, machine);
        Self {
            counts: Mutex::new(vec![Counted::default(); streams.len()]),
            totals: Totals::open(folder, streams.len()),
            streams,
            run: run.to_owned(),
            keeper,
            machines: machines.clone(),
            over: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            wakers: Mutex::default(),
            latencies: Mutex::default(),
            calls: ServiceCalls::default(),
            requests: Mutex::default(),
        }
    }

    fn wakers(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A waker that ends waits for events of a node. The end of the run ends them too.
    pub fn waker(&self, events: &Events) -> Arc<EventsWaker> {
        let waker = EventsWaker::new(events);
        self.wakers().push(Waker::from(Arc::clone(&waker)));
        waker
    }

    /// Notes that the dataflow is being stopped. Other machines stop at about the same time: until then,
    /// clients there get no errors from services that end here.
    pub fn begin_stop(&self) {
        self.stops.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub fn is_stopping(&self) -> bool {
        self.stops.load(Ordering::SeqCst)
    }

    /// Ends the threads that wait for events of their nodes.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        self.wakers().iter().for_each(Waker::wake_by_ref);
    }

    fn requests<T>(&self, answers: &str, change: impl FnOnce(&mut Requests) -> T) -> T {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        change(requests.entry(answers.to_owned()).or_default())
    }

    /// Number of processes of a service that have ended, for [`Self::request_queued`].
    pub fn ended_services(&self, answers: &str) -> u64 {
        self.requests(answers, |requests| requests.ended)
    }

    /// Notes that a request was queued. `ended` is the number from [`Self::ended_services`] before that.
    pub fn request_queued(&self, answers: &str, ended: u64) {
        let is_lost = self.requests(answers, |requests| {
            requests.are_queued = true;
            requests.are_lost |= requests.ended != ended;
            requests.are_lost
        });
        if is_lost {
            self.wake();
        }
    }

    /// Notes the end of a process of a service, which loses the requests in its queue.
    pub fn service_ended(&self, answers: &str) {
        let are_lost = self.requests(answers, |requests| {
            requests.ended += 1;
            requests.are_lost |= requests.are_queued;
            requests.are_lost
        });
        if are_lost {
            self.wake();
        }
    }

    /// Whether the client waits for requests that are lost.
    pub fn has_lost_requests(&self, answers: &str) -> bool {
        self.requests(answers, |requests| requests.are_lost)
    }

    /// Notes that the client was notified: requests queued before have no answer.
    pub fn forget_requests(&self, answers: &str) {
        self.requests(answers, |requests| {
            (requests.are_queued, requests.are_lost) = (false, false);
        });
    }

    /// Counts of the samples so far, by stream.
    pub fn reports(&self) -> Vec<StreamReport> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let report = |((topic, machine), stream): (&(String, String), &CountedStream)| {
            let counted = self.totals.whole(stream.at, &counts[stream.at]);
            if stream.is_incoming && counted.failed == 0 {
                return None;
            }
            let counters = &counted.link;
            // While the run goes on, these may still arrive.
            let (in_flight, not_taken) = match self.is_over() {
                true => (counters.held, counted.not_taken),
                false => (0, 0),
            };
            let count = |cause: &LossCause| match cause {
                LossCause::Failed => counted.failed,
                LossCause::Lifespan => counters.expired,
                LossCause::NotRepaired => counters.incomplete,
                LossCause::NotSent => counted.unsent,
                LossCause::Overwritten => counters.overwritten,
                LossCause::Queue => counted.queue,
                LossCause::Refused => counters.refused,
                LossCause::Superseded => counters.superseded,
                LossCause::Unconfirmed => counters.unconfirmed + in_flight,
                LossCause::Other(_) => 0,
            };
            Some(StreamReport {
                topic: topic.clone(),
                machine: machine.clone(),
                accepted: counters.accepted,
                delivered: counters.delivered,
                not_taken,
                is_lossless: stream.is_lossless,
                lost: LossCause::ALL
                    .into_iter()
                    .filter_map(|cause| {
                        let count = count(&cause);
                        (count > 0).then_some((cause, count))
                    })
                    .collect(),
                latency: None,
            })
        };
        let sent = self.streams.iter().filter_map(report);
        let latencies = self
            .latencies
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let received = latencies
            .iter()
            .map(|((topic, machine), latencies)| StreamReport {
                topic: topic.clone(),
                machine: machine.clone(),
                latency: latencies.report(),
                ..StreamReport::default()
            });
        sent.chain(received).collect()
    }

    /// The latencies of a topic to a machine.
    pub fn latencies(&self, topic: &str, machine: &str) -> Arc<Latencies> {
        let mut latencies = self
            .latencies
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let place = (topic.to_owned(), machine.to_owned());
        Arc::clone(latencies.entry(place).or_default())
    }

    pub fn count(&self, topic: &str, machine: &str, count: impl FnOnce(&mut Counted)) {
        let place = (topic.to_owned(), machine.to_owned());
        let Some(CountedStream { at, .. }) = self.streams.get(&place) else {
            return;
        };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        count(&mut counts[*at]);
        self.totals.write(*at, &counts[*at]);
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// The name of the machine in a role.
    pub fn machine<'c>(&'c self, role: &'c str) -> &'c str {
        self.machines.get(role).map_or(role, String::as_str)
    }

    /// The name of the stream of a topic, or of the changes of a node.
    pub fn stream_name(&self, of: &str) -> String {
        format!("{}/{of}", self.run)
    }

    /// The name of the stream of the confirmations of a topic.
    pub fn confirmations_name(&self, topic: &str) -> String {
        format!("{}~confirmed", self.stream_name(topic))
    }

    /// Joins as a node; `None` if the run is over. Waits while the place is taken: the keeper may not know
    /// the death of the last daemon yet.
    pub fn join(&self, node: &str) -> Option<Node> {
        let keeper = self.keeper.to_string();
        while !self.is_over() {
            match Node::join(Some(&keeper), node) {
                Ok(node) => return Some(node),
                Err(_) => std::thread::sleep(JOIN_PAUSE),
            }
        }
        None
    }
}

/// Runs the work of a stand-in or a topic on a thread of its own.
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    spawn_when_possible("nervure-bridge", work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_queued_for_an_ended_process_is_lost_until_its_client_is_notified() {
        let answers = "server/double~client~twice";
        let folder = tempfile::tempdir().expect("a folder for a test");
        let of_machine = (folder.path(), "edge");
        let stand_ins = StandIns::default();
        let crossing = Crossing::new(("1f", 1), of_machine, &BTreeMap::new(), &stand_ins);
        let queue = || crossing.request_queued(answers, crossing.ended_services(answers));
        // Queued before the client was notified: the notice covers it.
        queue();
        crossing.forget_requests(answers);
        crossing.service_ended(answers);
        assert!(!crossing.has_lost_requests(answers));
        // Queued behind the notice, for the process whose end is not known here yet.
        queue();
        assert!(!crossing.has_lost_requests(answers));
        crossing.service_ended(answers);
        assert!(crossing.has_lost_requests(answers));
        crossing.forget_requests(answers);
        assert!(!crossing.has_lost_requests(answers));
        // Its end becomes known while the request is queued.
        let ended = crossing.ended_services(answers);
        crossing.service_ended(answers);
        crossing.request_queued(answers, ended);
        assert!(crossing.has_lost_requests(answers));
    }

    #[test]
    fn every_failure_is_counted_and_one_in_a_second_is_reported() {
        let mut failures = Failures::default();
        (0..1000).for_each(|_| failures.add("camera/image", "edge", &"the message is too short"));
        assert_eq!((failures.count, failures.unreported), (1000, 999));
        failures.report_at = Some(Instant::now());
        failures.add("camera/image", "edge", &"the message is too short");
        assert_eq!((failures.count, failures.unreported), (1001, 0));
    }
}
