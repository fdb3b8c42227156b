//! Sends the samples of a topic to a machine as they come, and requests and answers of services.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nervure_dataflow::{Carries, Delivery, Stream, TrafficClass};
use nervure_link::qos::{self, Qos};
use nervure_link::sender::{SendCounters, SendError as LinkSendError};
use nervure_link::shell::{OutgoingStream, StreamError};
use nervure_node::remote::{self, END_OF_PROCESS};
use nervure_node::{Handle, Sample};

use crate::bridge::Bridge;
use crate::crossing::{Crossing, Failures};
use crate::lease::{LIFETIME, REPEAT};
use crate::service_calls::Failure;
use crate::totals::Counted;

/// The pause before a full or missing stream is tried again: the link has no event for it. It is
/// below the time between two samples of a topic at 200 Hz.
pub(crate) const RETRY: Duration = Duration::from_millis(2);

/// The longest wait for the link without a check whether the run is over; also the interval of checks of
/// requests that wait for answers.
pub(crate) const CHECK: Duration = Duration::from_millis(200);

/// Silence of a machine after which it is probed, if requests wait for its answers.
const PROBE_AFTER: Duration = Duration::from_millis(400);

/// Time that the stand-in allows for the last samples of a topic before it leaves. The link carries the
/// rest.
pub(crate) const FLUSH: Duration = Duration::from_secs(2);

/// The most requests of a client that wait for room in the stream. A client has at most as many in flight,
/// apart from those that it has given up.
const MAX_WAITING: usize = 16;

/// The stream of a topic to a machine.
pub(crate) struct Sender<'b> {
    bridge: &'b Bridge,
    crossing: &'b Crossing,
    machine: &'b str,
    spec: &'b Stream,
    pub stream: Option<OutgoingStream>,
    /// Counters of its former streams, and the last ones of the present stream.
    past: SendCounters,
    last: SendCounters,
    /// Number of accepted messages that are not samples.
    ends: u64,
    pub queue: u64,
    unsent: u64,
    failures: Failures,
    pub is_closed: bool,
    /// Requests that wait for room in the stream, with their ids.
    waiting: VecDeque<(Bytes, u64)>,
    /// Since when requests wait for answers.
    waiting_since: Option<Instant>,
    /// Number of state losses of the machine when the first of them was sent.
    losses: u64,
    /// Probes of the link, while requests wait and nothing arrives.
    probes: Option<OutgoingStream>,
}

impl<'b> Sender<'b> {
    pub fn new(
        bridge: &'b Bridge,
        crossing: &'b Crossing,
        machine: &'b str,
        spec: &'b Stream,
    ) -> Self {
        Self {
            bridge,
            crossing,
            machine,
            spec,
            stream: None,
            past: SendCounters::default(),
            last: SendCounters::default(),
            ends: 0,
            queue: 0,
            unsent: 0,
            failures: Failures::default(),
            is_closed: false,
            waiting: VecDeque::new(),
            waiting_since: None,
            losses: 0,
            probes: None,
        }
    }
}

impl Sender<'_> {
    /// Takes a sample of the stand-in's queue.
    pub fn take(&mut self, sample: &Sample, handle: &Handle) {
        let published = self.bridge.clock().time(sample.header().publish_mono);
        let bytes: Bytes = match remote::encode(sample, published, &[]) {
            Ok(bytes) => bytes.into(),
            Err(error) => return self.fail(&error),
        };
        match &self.spec.carries {
            Carries::Requests { answers } => {
                self.take_request(bytes, answers, sample.header().correlation_id);
            }
            _ => drop(self.send(&bytes, handle)),
        }
    }

    /// Handles the end of the node's process. Clients on the other machine fail their calls behind the last
    /// answer; requests of a client that has ended wait for no answer.
    pub fn process_ended(&mut self, handle: &Handle) {
        match &self.spec.carries {
            Carries::Samples => {}
            Carries::Requests { answers } => {
                self.crossing.calls.forget_all(answers);
                self.drop_waiting();
            }
            Carries::Answers if self.hides_its_end() => {
                self.crossing.forget_requests(&self.spec.topic);
            }
            Carries::Answers => {
                // Before the notice, which does not cover requests queued after its arrival.
                self.crossing.forget_requests(&self.spec.topic);
                let is_sent = self.send(&Bytes::from_static(END_OF_PROCESS), handle);
                self.ends += u64::from(is_sent);
                self.count();
            }
        }
    }

    pub fn has_lost_requests(&self) -> bool {
        let topic = &self.spec.topic;
        matches!(self.spec.carries, Carries::Answers) && self.crossing.has_lost_requests(topic)
    }

    /// Whether to hide the end of its topic from the other machine, which is being stopped too: its clients
    /// would fail.
    pub fn hides_its_end(&self) -> bool {
        matches!(self.spec.carries, Carries::Answers) && self.crossing.is_stopping()
    }

    /// Sends a request, behind those that wait for room in the stream.
    fn take_request(&mut self, message: Bytes, answers: &str, request: u64) {
        self.crossing.calls.begin(answers, request);
        if self.waiting.len() >= MAX_WAITING {
            return self.fail_request(answers, request, Failure::Busy);
        }
        self.waiting.push_back((message, request));
        self.send_requests(answers);
    }

    /// Sends waiting requests while the stream has room. A request may take room even after its answer,
    /// since its arrival is confirmed later. Fails those that cannot be sent.
    fn send_requests(&mut self, answers: &str) {
        while let Some((message, request)) = self.waiting.pop_front() {
            match self.try_send(&message) {
                Some(Ok(())) => {}
                Some(Err(LinkSendError::Full { .. })) => {
                    self.waiting.push_front((message, request));
                    break;
                }
                Some(Err(error)) => {
                    let reason = error.to_string();
                    self.fail_request(answers, request, Failure::Refused(&reason));
                }
                None => self.fail_request(answers, request, Failure::Unreachable(self.machine)),
            }
        }
        self.count();
    }

    /// Sends on the present stream, or on a new one if the machine lacks that. `None` without a connection.
    fn try_send(&mut self, message: &Bytes) -> Option<Result<(), LinkSendError>> {
        for _ in 0..2 {
            self.stream = self
                .stream
                .take()
                .or_else(|| open(self.bridge, self.crossing, self.machine, self.spec));
            match self.stream.as_ref()?.try_send(message.clone()) {
                Ok(()) => return Some(Ok(())),
                Err(StreamError::Send(
                    error @ (LinkSendError::Full { .. } | LinkSendError::TooLong { .. }),
                )) => return Some(Err(error)),
                // The state of the peer is gone, or it had no memory for the stream.
                Err(_) => {
                    self.count();
                    self.forget_stream();
                }
            }
        }
        None
    }

    fn fail_request(&mut self, answers: &str, request: u64, failure: Failure<'_>) {
        self.unsent += 1;
        self.count();
        self.crossing.calls.fail(answers, request, failure);
    }

    /// Drops the requests that wait for room.
    fn drop_waiting(&mut self) {
        self.unsent += self.waiting.len() as u64;
        self.waiting.clear();
        self.count();
    }

    /// Fails the requests that cannot be answered any more. Returns the time of the next look, if
    /// requests wait for answers.
    pub fn follow_requests(&mut self) -> Option<Instant> {
        let Carries::Requests { answers } = &self.spec.carries else {
            return None;
        };
        let calls = &self.crossing.calls;
        if !calls.any_waits(answers) {
            (self.waiting_since, self.probes) = (None, None);
            return None;
        }
        self.send_requests(answers);
        let now = Instant::now();
        let losses = self.bridge.losses(self.machine);
        let since = *self.waiting_since.get_or_insert_with(|| {
            self.losses = losses;
            now
        });
        let silence = self.bridge.silence(self.machine).unwrap_or(Duration::MAX);
        let silence = silence.min(now - since);
        if std::mem::replace(&mut self.losses, losses) != losses {
            calls.fail_all(answers, Failure::Interrupted(self.machine));
            self.drop_waiting();
        } else if silence > LIFETIME || self.bridge.is_excluded(self.machine) {
            calls.fail_all(answers, Failure::Unreachable(self.machine));
            self.drop_waiting();
        } else if silence > PROBE_AFTER {
            self.probe();
            return Some(now + REPEAT);
        }
        Some(
            now + if self.waiting.is_empty() {
                CHECK
            } else {
                RETRY
            },
        )
    }

    /// Probes the link, which the peer's link answers. A lifetime of a lease has as many renewals as
    /// probes, so that the loss of all of them is as unlikely.
    fn probe(&mut self) {
        let qos = Qos {
            traffic_class: qos::TrafficClass::Control,
            ..Qos::new(qos::Delivery::best_effort(1))
        };
        let name = format!("{}~probes", self.crossing.stream_name(&self.spec.topic));
        let key = self.bridge.key_of(self.machine);
        let open = || self.bridge.open_stream(key?, &name, qos);
        self.probes = self.probes.take().or_else(open);
        let sent = self.probes.as_ref().map(|it| it.try_send(vec![0]));
        if sent.is_some_and(|sent| sent.is_err()) {
            self.probes = None;
        }
    }

    /// Sends a message, and returns whether it was accepted. Waits while a stream that keeps all is
    /// full, or there is no connection yet: the input's queue holds the samples behind it, by its
    /// policy.
    fn send(&mut self, message: &Bytes, handle: &Handle) -> bool {
        while !self.crossing.is_over()
            && !handle.is_stopping()
            && !self.bridge.is_excluded(self.machine)
        {
            let Some(stream) = &self.stream else {
                self.stream = open(self.bridge, self.crossing, self.machine, self.spec);
                if self.stream.is_none() {
                    std::thread::sleep(RETRY);
                }
                continue;
            };
            match stream.try_send(message.clone()) {
                Ok(()) => {
                    self.count();
                    return true;
                }
                Err(StreamError::Send(LinkSendError::Full { .. })) => std::thread::sleep(RETRY),
                Err(StreamError::Send(error @ LinkSendError::TooLong { .. })) => {
                    self.fail(&error);
                    return false;
                }
                // The session is gone, or the peer had no memory for the stream: open it again.
                Err(_) => {
                    self.count();
                    self.forget_stream();
                    std::thread::sleep(RETRY * 10);
                }
            }
        }
        self.unsent += 1;
        self.count();
        false
    }

    fn forget_stream(&mut self) {
        self.stream = None;
        let mut ended = std::mem::take(&mut self.last);
        ended.unconfirmed += std::mem::take(&mut ended.held);
        self.past = self.past + ended;
    }

    /// Keeps the counters for the report. A stream whose session is gone counts as of its last sample.
    fn count(&mut self) {
        if let Some(counters) = self.stream.as_ref().and_then(OutgoingStream::counters) {
            self.last = counters;
        }
        let mut link = self.past + self.last;
        link.accepted = link.accepted.saturating_sub(self.ends);
        link.delivered = link.delivered.saturating_sub(self.ends);
        let counted = Counted {
            link,
            queue: self.queue,
            unsent: self.unsent,
            failed: self.failures.count,
            not_taken: 0,
        };
        self.crossing
            .count(&self.spec.topic, self.machine, |place| *place = counted);
    }

    fn fail(&mut self, error: &dyn std::fmt::Display) {
        self.failures.add(&self.spec.topic, self.machine, error);
        self.count();
    }

    /// Waits for the last samples.
    pub fn flush(&mut self) {
        self.drop_waiting();
        if let Some(stream) = &self.stream {
            let until = Instant::now() + FLUSH;
            while !stream.flush(CHECK) && Instant::now() < until {}
        }
        self.count();
    }
}

/// Opens the stream of a topic to a machine; `None` without a connection.
pub(crate) fn open(
    bridge: &Bridge,
    crossing: &Crossing,
    machine: &str,
    spec: &Stream,
) -> Option<OutgoingStream> {
    let name = crossing.stream_name(&spec.topic);
    bridge.open_stream(bridge.key_of(machine)?, &name, qos(spec))
}

fn qos(stream: &Stream) -> Qos {
    let delivery = match stream.delivery {
        Delivery::KeepAll { depth } => qos::Delivery::keep_all(depth),
        Delivery::KeepLast { depth } => qos::Delivery::keep_last(depth),
        Delivery::BestEffort { depth } => qos::Delivery::best_effort(depth),
        Delivery::Latest => qos::Delivery::Latest,
    };
    Qos {
        traffic_class: match stream.traffic_class {
            TrafficClass::Control => qos::TrafficClass::Control,
            TrafficClass::Default => qos::TrafficClass::Default,
            TrafficClass::Bulk => qos::TrafficClass::Bulk,
        },
        lifespan: stream.lifespan,
        ..Qos::new(delivery)
    }
}
