//! The stand-in of a remote node: publishes the samples of its machine here, and confirms them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use nervure_dataflow::Incoming;
use nervure_link::qos::{Delivery, Qos, TrafficClass};
use nervure_link::shell::OutgoingStream;
use nervure_message::Origin;
use nervure_node::binding::{
    CONSUMER_ENDED, Crossed, RemoteProcess, begin_no_traces, close_output, report_ended_consumers,
    report_remote_process, send_in_pause, with_origin, with_way,
};
use nervure_node::remote::{self, Arrival, RemoteSample};
use nervure_node::{Event, Handle, Next, Publisher, Receipt, SendError, Wait, monotonic_nanos};
use nervure_protocol::wiring;

use crate::arrivals::{Arrivals, Taker};
use crate::bridge::Bridge;
use crate::crossing::{Crossing, Failures, Latencies, spawn};
use crate::lossless::{Place, Receiver, Verdict};
use crate::node_changes::{ChangeSenders, NodeChange};
use crate::service_calls::Failure;
use crate::waiting::next_event;

/// The longest wait for a slow consumer without a check whether the run is over: the wait for room in its
/// queue ends by that alone, and the end of a run is rare.
const CHECK: Duration = Duration::from_millis(200);

/// State shared by the threads of a stand-in.
struct StandIn {
    bridge: Arc<Bridge>,
    changes: Arc<ChangeSenders>,
    crossing: Arc<Crossing>,
    node: String,
    /// Name of its machine.
    machine: String,
    outputs: Vec<String>,
    handle: Handle,
    has_left: AtomicBool,
    /// Topics that have not ended.
    open_topics: AtomicUsize,
}

/// A topic of a remote node, which is published here.
struct Topic {
    output: String,
    topic: String,
    /// The name of its stream.
    stream: String,
    publisher: Publisher,
    /// Whether it carries answers to local clients.
    has_answers: bool,
    /// If it carries requests to a local service, the topic of the answers.
    answers: Option<String>,
    failures: Failures,
    latencies: Arc<Latencies>,
    /// If each sample is confirmed.
    confirms: Option<Confirms>,
}

/// Confirms the samples of a topic to its machine.
struct Confirms {
    receiver: Receiver,
    /// The stream of the confirmations, which keeps the newest.
    stream: Option<OutgoingStream>,
    /// Number of state losses of the machine when the newest was sent.
    losses: u64,
}

/// Publishes the samples that arrive from a remote node's machine.
pub(crate) fn publish_all(
    bridge: &Arc<Bridge>,
    changes: &Arc<ChangeSenders>,
    crossing: &Arc<Crossing>,
    incoming: &Incoming,
) {
    let Some(node) = crossing.join(&incoming.node) else {
        return;
    };
    let (handle, mut events) = node.split();
    send_in_pause(&handle);
    begin_no_traces(&handle);
    report_ended_consumers(&handle);
    let topics = topics(bridge, crossing, incoming, &handle);
    let stand_in = Arc::new(StandIn {
        bridge: Arc::clone(bridge),
        changes: Arc::clone(changes),
        crossing: Arc::clone(crossing),
        node: incoming.node.clone(),
        machine: crossing.machine(&incoming.machine).to_owned(),
        outputs: incoming.outputs.clone(),
        handle: handle.clone(),
        has_left: AtomicBool::new(false),
        open_topics: AtomicUsize::new(topics.len()),
    });
    let waker = crossing.waker(&events);
    let mut threads = Vec::new();
    for mut topic in topics {
        let (stand_in, waker) = (Arc::clone(&stand_in), Waker::from(Arc::clone(&waker)));
        threads.push(spawn(move || {
            let _ended = Ended(&stand_in, waker);
            stand_in.publish(&mut topic);
        }));
    }
    let for_changes = Arc::clone(&stand_in);
    threads.push(spawn(move || for_changes.take_changes()));
    let is_over = || crossing.is_over() || stand_in.open_topics.load(Ordering::SeqCst) == 0;
    loop {
        match next_event(&mut events, &waker, None, is_over) {
            Next::Event(Event::Other { kind, inputs, .. }) if kind == CONSUMER_ENDED => {
                let answers = inputs
                    .iter()
                    .filter_map(|output| incoming.requests.get(output));
                answers.for_each(|answers| crossing.service_ended(answers));
            }
            Next::Event(Event::Stop { .. }) | Next::End => break,
            Next::Event(_) if handle.is_stopping() => break,
            Next::Event(_) | Next::Nothing => {}
        }
    }
    stand_in.has_left.store(true, Ordering::SeqCst);
    bridge.on_change();
    for thread in threads {
        // The panic hook has reported a panic.
        let _ = thread.join();
    }
}

/// The topics that the node has here.
fn topics(
    bridge: &Bridge,
    crossing: &Crossing,
    incoming: &Incoming,
    handle: &Handle,
) -> Vec<Topic> {
    let topic = |output: &String| {
        let publisher = handle.output(output).ok()?;
        let topic = wiring::topic(&incoming.node, output);
        let has_answers = crossing.calls.has(&topic);
        if has_answers {
            crossing.calls.set_publisher(&topic, &publisher);
        }
        Some(Topic {
            output: output.clone(),
            stream: crossing.stream_name(&topic),
            latencies: crossing.latencies(&topic, bridge.own()),
            topic,
            publisher,
            has_answers,
            answers: incoming.requests.get(output).cloned(),
            confirms: incoming.lossless.contains(output).then(|| Confirms {
                receiver: Receiver::new(monotonic_nanos()),
                stream: None,
                losses: 0,
            }),
            failures: Failures::default(),
        })
    };
    incoming.outputs.iter().filter_map(topic).collect()
}

/// Counts a topic's thread as running until dropped, and then wakes the thread that waits for events of its
/// node.
struct Ended<'s>(&'s StandIn, Waker);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.open_topics.fetch_sub(1, Ordering::SeqCst);
        self.1.wake_by_ref();
    }
}

impl StandIn {
    fn is_over(&self) -> bool {
        self.crossing.is_over() || self.has_left.load(Ordering::SeqCst)
    }

    /// Publishes a topic until no sample follows.
    fn publish(&self, topic: &mut Topic) {
        let name = topic.stream.clone();
        let is_closed = || self.bridge.is_closed(&self.machine, &name);
        let arrivals = self.arrivals(&name);
        let mut samples = Samples {
            stand_in: self,
            topic,
        };
        let ends = arrivals.receive(|| self.is_over(), is_closed, &mut samples);
        if ends.is_continue() {
            close_output(&self.handle, &topic.output);
        } else if let Some(confirms) = &mut topic.confirms {
            confirms.receiver.leave();
            self.confirm(&topic.topic, confirms);
        }
    }

    /// Applies changes of the node and its outputs.
    fn take_changes(&self) {
        let name = self.crossing.stream_name(&self.node);
        let arrivals = self.arrivals(&name);
        let _ = arrivals.receive(|| self.is_over(), || false, &mut Changes(self));
    }

    fn arrivals<'a>(&'a self, name: &'a str) -> Arrivals<'a> {
        Arrivals {
            bridge: &self.bridge,
            machine: &self.machine,
            name,
        }
    }

    fn take(&self, topic: &mut Topic, payload: &[u8]) -> ControlFlow<()> {
        if let (Some(confirms), Some((place, sample))) =
            (&mut topic.confirms, Place::split(payload))
        {
            let verdict = confirms.receiver.arrived(place);
            let mut is_published = false;
            if verdict == Verdict::Publish {
                is_published = self.take_message(topic, sample, Some(place.origin))?;
            }
            if let Some(confirms) = &mut topic.confirms {
                if is_published {
                    confirms.receiver.published(place.origin);
                }
                self.confirm(&topic.topic, confirms);
            }
            return ControlFlow::Continue(());
        }
        self.take_message(topic, payload, None).map_continue(drop)
    }

    /// Sends the newest confirmation.
    fn confirm(&self, topic: &str, confirms: &mut Confirms) {
        let bytes = confirms.receiver.confirmation().encode();
        let losses = self.bridge.losses(&self.machine);
        let open = || {
            let qos = Qos {
                traffic_class: TrafficClass::Control,
                ..Qos::new(Delivery::Latest)
            };
            let key = self.bridge.key_of(&self.machine)?;
            let name = self.crossing.confirmations_name(topic);
            self.bridge.open_stream(key, &name, qos)
        };
        // The machine may have lost the stream.
        for _ in 0..2 {
            confirms.stream = confirms.stream.take().or_else(open);
            let sent = confirms
                .stream
                .as_ref()
                .map(|it| it.try_send(bytes.clone()));
            match sent {
                Some(Err(_)) => confirms.stream = None,
                _ => break,
            }
        }
        confirms.losses = losses;
    }

    /// Takes a message. Returns whether it is done with: published, or counted as failed.
    fn take_message(
        &self,
        topic: &mut Topic,
        payload: &[u8],
        origin: Option<Origin>,
    ) -> ControlFlow<(), bool> {
        match remote::decode(payload) {
            Ok(Arrival::Sample(value)) => return self.publish_sample(topic, &value, origin),
            Ok(Arrival::EndOfProcess) if topic.has_answers => {
                self.crossing.calls.fail_all(&topic.topic, Failure::Ended);
            }
            Ok(Arrival::EndOfProcess) => {}
            Err(error) => self.fail(topic, &error),
        }
        ControlFlow::Continue(true)
    }

    fn publish_sample(
        &self,
        topic: &mut Topic,
        value: &RemoteSample<'_>,
        origin: Option<Origin>,
    ) -> ControlFlow<(), bool> {
        let request = value.correlation_id();
        if topic.has_answers {
            self.crossing.calls.answered(&topic.topic, request);
        }
        let clock = self.bridge.clock();
        let times = value.published().zip(clock.time(monotonic_nanos()));
        if let Some((published, now)) = times {
            topic.latencies.add(published, now);
        }
        let way = (value.trace_id() != 0).then(|| Crossed {
            from: self.machine.clone(),
            latency_nanos: times.map(|(published, now)| now.nanos.saturating_sub(published.nanos)),
            error_nanos: times.map_or(0, |(published, now)| {
                published.error_nanos.saturating_add(now.error_nanos)
            }),
        });
        let mut envelope = value.envelope();
        if let Some(way) = &way {
            envelope = with_way(envelope, way);
        }
        if let Some(origin) = origin {
            envelope = with_origin(envelope, origin);
        }
        let answers = topic.answers.as_deref();
        while !self.is_over() {
            let until = monotonic_nanos() + CHECK.as_nanos() as u64;
            let ended = answers.map_or(0, |answers| self.crossing.ended_services(answers));
            let sent = topic
                .publisher
                .send_with(value, &envelope, Wait::Until(until));
            match sent {
                Err(SendError::TimedOut { .. }) => {}
                Ok(Receipt { queued, missed, .. }) => {
                    match answers {
                        Some(answers) if queued > 0 => {
                            self.crossing.request_queued(answers, ended);
                        }
                        Some(answers) if !self.crossing.is_stopping() => {
                            self.refuse(answers, request, missed > 0);
                        }
                        _ => {}
                    }
                    return ControlFlow::Continue(true);
                }
                Err(SendError::Stopped) => return ControlFlow::Break(()),
                Err(error) => {
                    self.fail(topic, &error);
                    return ControlFlow::Continue(true);
                }
            }
        }
        ControlFlow::Continue(false)
    }

    /// Notifies the machine of this node that a local service has not taken a request.
    fn refuse(&self, answers: &str, request: u64, is_full: bool) {
        let Some((service, output)) = answers.split_once('/') else {
            return;
        };
        let change = NodeChange::Refused {
            output: output.to_owned(),
            request,
            is_full,
        };
        let name = self.crossing.stream_name(service);
        self.changes.send(&self.machine, name, change);
    }

    fn take_change(&self, payload: &[u8]) {
        let topic = |output: &str| wiring::topic(&self.node, output);
        match NodeChange::decode(payload) {
            Some(NodeChange::OutputClosed { output }) if self.outputs.contains(&output) => {
                let name = self.crossing.stream_name(&topic(&output));
                self.bridge.note_closed(&self.machine, &name);
            }
            Some(NodeChange::Refused {
                output,
                request,
                is_full,
            }) if self.crossing.calls.has(&topic(&output)) => {
                let failure = match is_full {
                    true => Failure::Busy,
                    false => Failure::NotRunning,
                };
                self.crossing.calls.fail(&topic(&output), request, failure);
            }
            Some(NodeChange::Failed { reason, restarts }) => {
                let failed = RemoteProcess::Failed { reason, restarts };
                report_remote_process(&self.handle, failed);
            }
            Some(NodeChange::Restarted) => {
                report_remote_process(&self.handle, RemoteProcess::Restarted);
            }
            Some(_) => {}
            None => tracing::warn!(
                "a change of {} on {} cannot be read",
                self.node,
                self.machine
            ),
        }
    }

    fn fail(&self, topic: &mut Topic, error: &dyn std::fmt::Display) {
        let own = self.bridge.own();
        topic.failures.add(&topic.topic, own, error);
        let count = topic.failures.count;
        let crossing = &self.crossing;
        crossing.count(&topic.topic, own, |counted| counted.failed = count);
    }
}

/// The samples of a topic.
struct Samples<'a> {
    stand_in: &'a StandIn,
    topic: &'a mut Topic,
}

impl Taker for Samples<'_> {
    fn take(&mut self, payload: &[u8]) -> ControlFlow<()> {
        self.stand_in.take(self.topic, payload)
    }

    fn on_change(&mut self) {
        let Topic {
            topic, confirms, ..
        } = &mut *self.topic;
        let losses = self.stand_in.bridge.losses(&self.stand_in.machine);
        // The sender waits for the answer of a new receiver, and may have lost the last one.
        if let Some(confirms) = confirms
            .as_mut()
            .filter(|it| it.stream.is_none() || it.losses != losses)
        {
            self.stand_in.confirm(topic, confirms);
        }
    }
}

/// The changes of a node.
struct Changes<'a>(&'a StandIn);

impl Taker for Changes<'_> {
    fn take(&mut self, payload: &[u8]) -> ControlFlow<()> {
        self.0.take_change(payload);
        ControlFlow::Continue(())
    }
}
