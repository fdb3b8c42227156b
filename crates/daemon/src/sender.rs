//! Sends the samples of a topic to a machine as they come, and requests and answers of services.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nervure_dataflow::{Carries, Delivery, Stream, TrafficClass};
use nervure_link::qos::{self, Qos};
use nervure_link::sender::{SendCounters, SendError as LinkSendError};
use nervure_link::shell::{OutgoingStream, StreamError};
use nervure_node::binding::set_held;
use nervure_node::remote::{self, END_OF_PROCESS};
use nervure_node::{Events, Handle, Sample};

use crate::bridge::Bridge;
use crate::crossing::{Crossing, Failures};
use crate::lease::{LIFETIME, REPEAT};
use crate::service_calls::Failure;
use crate::totals::Counted;

/// The shortest time between two openings of a stream. No event announces that the other machine has
/// memory for a stream again.
pub(crate) const REOPEN: Duration = Duration::from_millis(20);

/// Silence of a machine after which it is probed, if requests wait for its answers.
const PROBE_AFTER: Duration = Duration::from_millis(400);

/// Time that the stand-in allows for the last samples of a topic before it leaves. The link carries the
/// rest.
pub(crate) const FLUSH: Duration = Duration::from_secs(2);

/// The most requests of a client that wait for room in the stream. A client has at most as many in flight,
/// apart from those that it has given up.
const MAX_WAITING: usize = 16;

/// The way of the samples of a stand-in: to one machine.
#[derive(Clone, Copy)]
pub(crate) struct Way<'b> {
    pub bridge: &'b Arc<Bridge>,
    pub crossing: &'b Arc<Crossing>,
    pub machine: &'b str,
    pub handle: &'b Handle,
    /// Ends the wait of the stand-in for its events.
    pub waker: &'b Waker,
}

/// A message that waits for room in the stream.
struct Waiting {
    message: Bytes,
    content: Content,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Sample,
    /// With its id.
    Request(u64),
    /// The notice that a process of the service has ended.
    EndOfProcess,
}

/// The result of an attempt to send a message.
enum Sent {
    Accepted,
    /// The stream has no room, or it is too early to open it again.
    Waits,
    /// There is no session with the machine.
    NoSession,
    TooLong(LinkSendError),
}

/// The stream of a topic to a machine.
pub(crate) struct Sender<'b> {
    way: Way<'b>,
    spec: &'b Stream,
    stream: Option<OutgoingStream>,
    /// The earliest time to open the stream again.
    reopen_at: Option<Instant>,
    /// Counters of its former streams, and the last ones of the present stream.
    past: SendCounters,
    last: SendCounters,
    /// Number of accepted messages that are not samples.
    ends: u64,
    pub queue: u64,
    pub unsent: u64,
    failures: Failures,
    /// Messages that wait for room in the stream, oldest first: requests, or one sample and notices behind
    /// it. Further samples stay in the input's queue.
    waiting: VecDeque<Waiting>,
    holds_input: bool,
    /// When the topic is closed at the latest: no sample follows.
    closes_by: Option<Instant>,
    pub is_closed: bool,
    /// Since when requests wait for answers.
    waiting_since: Option<Instant>,
    /// Number of state losses of the machine when the first of them was sent.
    losses: u64,
    /// Probes of the link, while requests wait and nothing arrives.
    probes: Option<OutgoingStream>,
}

impl<'b> Sender<'b> {
    pub fn new(way: Way<'b>, spec: &'b Stream) -> Self {
        Self {
            way,
            spec,
            stream: None,
            reopen_at: None,
            past: SendCounters::default(),
            last: SendCounters::default(),
            ends: 0,
            queue: 0,
            unsent: 0,
            failures: Failures::default(),
            waiting: VecDeque::new(),
            holds_input: false,
            closes_by: None,
            is_closed: false,
            waiting_since: None,
            losses: 0,
            probes: None,
        }
    }
}

impl Sender<'_> {
    /// Takes a sample of the stand-in's queue.
    pub fn take(&mut self, sample: &Sample) {
        let published = self.way.bridge.clock().time(sample.header().publish_mono);
        let message: Bytes = match remote::encode(sample, published, &[]) {
            Ok(bytes) => bytes.into(),
            Err(error) => return self.fail(&error),
        };
        let content = match &self.spec.carries {
            Carries::Requests { answers } => {
                let request = sample.header().correlation_id;
                let Way {
                    bridge,
                    crossing,
                    machine,
                    ..
                } = self.way;
                if !crossing.calls.any_waits(answers) {
                    // Before it is sent: a loss after that may concern it.
                    self.losses = bridge.losses(machine);
                    self.waiting_since = Some(Instant::now());
                }
                crossing.calls.begin(answers, request);
                if self.waiting.len() >= MAX_WAITING {
                    return self.fail_request(request, Failure::Busy);
                }
                Content::Request(request)
            }
            Carries::Samples | Carries::Answers => Content::Sample,
        };
        self.send(message, content);
    }

    /// Whether the queue before the link drops no sample: its producer waits for room.
    pub fn keeps_all(&self) -> bool {
        matches!(self.spec.delivery, Delivery::KeepAll { .. })
    }

    /// Handles the end of the node's process. Clients on the other machine fail their calls behind the last
    /// answer; requests of a client that has ended wait for no answer.
    pub fn process_ended(&mut self) {
        match &self.spec.carries {
            Carries::Samples => {}
            Carries::Requests { answers } => {
                self.way.crossing.calls.forget_all(answers);
                self.drop_waiting();
            }
            Carries::Answers => {
                // Before the notice, which does not cover requests queued after its arrival.
                self.way.crossing.forget_requests(&self.spec.topic);
                if !self.hides_its_end() {
                    self.send(Bytes::from_static(END_OF_PROCESS), Content::EndOfProcess);
                }
            }
        }
    }

    /// Whether requests were queued for a process of the service that has ended, after its clients were
    /// notified of its end. Answers that wait for room come first.
    pub fn has_lost_requests(&self) -> bool {
        let (crossing, topic) = (self.way.crossing, &self.spec.topic);
        let carries_answers = matches!(self.spec.carries, Carries::Answers);
        carries_answers && self.waiting.is_empty() && crossing.has_lost_requests(topic)
    }

    /// Whether to hide the end of its topic from the other machine, which is being stopped too: its clients
    /// would fail.
    pub fn hides_its_end(&self) -> bool {
        matches!(self.spec.carries, Carries::Answers) && self.way.crossing.is_stopping()
    }

    /// Sends a message, behind those that wait for room in the stream.
    fn send(&mut self, message: Bytes, content: Content) {
        self.waiting.push_back(Waiting { message, content });
        self.send_waiting();
    }

    /// Sends waiting messages while the stream has room: the waker is called when it has room again. A
    /// request may take room even after its answer, since its arrival is confirmed later. Fails requests
    /// that cannot be sent.
    fn send_waiting(&mut self) {
        let count = self.waiting.len();
        while let Some(Waiting { message, content }) = self.waiting.pop_front() {
            match (self.try_send(&message), content) {
                (Sent::Accepted, Content::Sample | Content::Request(_)) => {}
                (Sent::Accepted, Content::EndOfProcess) => self.ends += 1,
                (Sent::TooLong(error), Content::Request(request)) => {
                    self.fail_request(request, Failure::Refused(&error.to_string()));
                }
                (Sent::TooLong(error), Content::Sample | Content::EndOfProcess) => {
                    self.fail(&error);
                }
                (Sent::NoSession, Content::Request(request)) => {
                    self.fail_request(request, Failure::Unreachable(self.way.machine));
                }
                (Sent::Waits, _) | (Sent::NoSession, Content::Sample | Content::EndOfProcess) => {
                    self.waiting.push_front(Waiting { message, content });
                    break;
                }
            }
        }
        if self.waiting.len() != count {
            self.count();
        }
    }

    /// Sends on the present stream, or on another one if the machine lacks that.
    fn try_send(&mut self, message: &Bytes) -> Sent {
        loop {
            let Some(stream) = &self.stream else {
                let now = Instant::now();
                if self.reopen_at.is_some_and(|at| now < at) {
                    return Sent::Waits;
                }
                self.stream = self.open();
                self.reopen_at = self.stream.as_ref().map(|_| now + REOPEN);
                if self.stream.is_none() {
                    return Sent::NoSession;
                }
                continue;
            };
            let context = Context::from_waker(self.way.waker);
            match stream.poll_send(&context, message.clone()) {
                Poll::Pending => return Sent::Waits,
                Poll::Ready(Ok(())) => return Sent::Accepted,
                Poll::Ready(Err(StreamError::Send(error @ LinkSendError::TooLong { .. }))) => {
                    return Sent::TooLong(error);
                }
                // The state of the peer is gone, or it had no memory for the stream.
                Poll::Ready(Err(_)) => {
                    self.count();
                    self.forget_stream();
                }
            }
        }
    }

    fn fail_request(&mut self, request: u64, failure: Failure<'_>) {
        self.unsent += 1;
        self.count();
        if let Carries::Requests { answers } = &self.spec.carries {
            self.way.crossing.calls.fail(answers, request, failure);
        }
    }

    /// Drops the messages that wait for room.
    fn drop_waiting(&mut self) {
        let waiting = self.waiting.drain(..);
        let samples = waiting.filter(|it| it.content != Content::EndOfProcess);
        self.unsent += samples.count() as u64;
        self.count();
    }

    /// Sends the messages that wait, or drops them if none is sent any more. Fails the requests that cannot
    /// be answered. Returns the time of the next call, if the waker may not be called before.
    pub fn go_on(&mut self) -> Option<Instant> {
        let Way {
            bridge,
            crossing,
            machine,
            handle,
            ..
        } = self.way;
        if let Carries::Requests { answers } = &self.spec.carries {
            return self.follow_requests(answers);
        }
        if self.waiting.is_empty() {
            return None;
        }
        if crossing.is_over() || handle.is_stopping() || bridge.is_excluded(machine) {
            self.drop_waiting();
        }
        self.send_waiting();
        self.reopens_at()
    }

    /// When to open the stream again, if messages wait for that.
    fn reopens_at(&self) -> Option<Instant> {
        let waits = self.stream.is_none() && !self.waiting.is_empty();
        self.reopen_at.filter(|_| waits)
    }

    /// Leaves further samples in the input's queue, by its policy, while one waits for room in the stream.
    pub fn hold_input(&mut self, events: &mut Events) {
        let carries_requests = matches!(self.spec.carries, Carries::Requests { .. });
        let holds = !carries_requests && !self.waiting.is_empty();
        if std::mem::replace(&mut self.holds_input, holds) != holds {
            set_held(events, &self.spec.output, holds);
        }
    }

    fn follow_requests(&mut self, answers: &str) -> Option<Instant> {
        let Way {
            bridge,
            crossing,
            machine,
            ..
        } = self.way;
        let calls = &crossing.calls;
        if !calls.any_waits(answers) {
            (self.waiting_since, self.probes) = (None, None);
            return None;
        }
        self.send_waiting();
        let now = Instant::now();
        let losses = bridge.losses(machine);
        let since = self.waiting_since.unwrap_or(now);
        let silence = bridge.silence(machine).unwrap_or(Duration::MAX);
        let silence = silence.min(now - since);
        if std::mem::replace(&mut self.losses, losses) != losses {
            calls.fail_all(answers, Failure::Interrupted(machine));
            self.drop_waiting();
        } else if silence > LIFETIME || bridge.is_excluded(machine) {
            calls.fail_all(answers, Failure::Unreachable(machine));
            self.drop_waiting();
        } else if silence >= PROBE_AFTER {
            self.probe();
            return Some(now + REPEAT);
        }
        let silent_at = now + PROBE_AFTER.saturating_sub(silence);
        self.reopens_at().or(Some(silent_at))
    }

    /// Probes the link, which the peer's link answers. A lifetime of a lease has as many renewals as
    /// probes, so that the loss of all of them is as unlikely.
    fn probe(&mut self) {
        let qos = Qos {
            traffic_class: qos::TrafficClass::Control,
            ..Qos::new(qos::Delivery::best_effort(1))
        };
        let Way {
            bridge, crossing, ..
        } = self.way;
        let name = format!("{}~probes", crossing.stream_name(&self.spec.topic));
        let key = bridge.key_of(self.way.machine);
        let open = || bridge.open_stream(key?, &name, qos);
        self.probes = self.probes.take().or_else(open);
        let sent = self.probes.as_ref().map(|it| it.try_send(vec![0]));
        if sent.is_some_and(|sent| sent.is_err()) {
            self.probes = None;
        }
    }

    fn forget_stream(&mut self) {
        self.stream = None;
        let mut ended = std::mem::take(&mut self.last);
        ended.unconfirmed += std::mem::take(&mut ended.held);
        self.past = self.past + ended;
    }

    fn open(&self) -> Option<OutgoingStream> {
        self.way.open(self.spec)
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
        let Way {
            crossing, machine, ..
        } = self.way;
        crossing.count(&self.spec.topic, machine, |place| *place = counted);
    }

    fn fail(&mut self, error: &dyn std::fmt::Display) {
        self.failures.add(&self.spec.topic, self.way.machine, error);
        self.count();
    }

    /// Notes that no sample follows.
    pub fn end(&mut self) {
        self.drop_waiting();
        self.closes_by = Some(Instant::now() + FLUSH);
    }

    /// Whether no sample follows, and the topic is not closed yet.
    pub fn is_ending(&self) -> bool {
        self.closes_by.is_some() && !self.is_closed
    }

    /// Closes the topic, if no sample follows and all have arrived, or the time for that is over. The other
    /// machine learns it from the stream that is given to `close`. Returns the time of the next call, if the
    /// waker may not be called before.
    pub fn close_if_ended(
        &mut self,
        close: impl FnOnce(Option<OutgoingStream>),
    ) -> Option<Instant> {
        let closes_by = self.closes_by.filter(|_| !self.is_closed)?;
        let context = Context::from_waker(self.way.waker);
        let is_flushed = |stream: &OutgoingStream| stream.poll_flush(&context).is_ready();
        if Instant::now() < closes_by && !self.stream.as_ref().is_none_or(is_flushed) {
            return Some(closes_by);
        }
        self.count();
        self.is_closed = true;
        if !self.hides_its_end() {
            close(self.stream.take());
        }
        None
    }

    /// Waits for the last samples.
    pub fn flush(&mut self) {
        self.drop_waiting();
        if let Some(stream) = &self.stream {
            stream.flush(FLUSH);
        }
        self.count();
    }
}

impl Way<'_> {
    /// Opens the stream of a topic. `None` without a session: a change of the connections follows.
    pub fn open(&self, spec: &Stream) -> Option<OutgoingStream> {
        let key = self.bridge.key_of(self.machine)?;
        let name = self.crossing.stream_name(&spec.topic);
        self.bridge.open_stream(key, &name, qos(spec))
    }
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
