//! The stand-in of a remote node: publishes here what arrives from its machine.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nervure_dataflow::Incoming;
use nervure_link::shell::IncomingStream;
use nervure_node::binding::{
    CONSUMER_ENDED, Crossed, RemoteProcess, Waiter, begin_no_traces, close_output,
    report_ended_consumers, report_remote_process, send_in_pause, with_way,
};
use nervure_node::remote::{self, Arrival, RemoteSample};
use nervure_node::{Event, Handle, Next, Publisher, Receipt, SendError, Wait, monotonic_nanos};
use nervure_protocol::wiring;

use crate::bridge::{Bridge, Publishing};
use crate::crossing::{Crossing, Failures, Latencies, spawn};
use crate::node_changes::{ChangeSenders, NodeChange};
use crate::service_calls::Failure;

/// The longest wait for a slow consumer without a look at whether the run is over.
const CHECK: Duration = Duration::from_millis(200);

/// What the threads of a stand-in share.
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
}

/// Publishes as a remote node what arrives from its machine.
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
    let waiter = crossing.add_waiter(&events);
    let mut threads = Vec::new();
    for mut topic in topics {
        let (stand_in, waiter) = (Arc::clone(&stand_in), waiter.clone());
        threads.push(spawn(move || {
            let _ended = Ended(&stand_in, waiter);
            stand_in.publish(&mut topic);
        }));
    }
    let for_changes = Arc::clone(&stand_in);
    threads.push(spawn(move || for_changes.take_changes()));
    let are_over = || stand_in.open_topics.load(Ordering::SeqCst) == 0;
    while let Next::Event(event) = crossing.next_event(&mut events, None, are_over) {
        match event {
            Event::Other { kind, inputs, .. } if kind == CONSUMER_ENDED => {
                let answers = inputs
                    .iter()
                    .filter_map(|output| incoming.requests.get(output));
                answers.for_each(|answers| crossing.service_ended(answers));
            }
            Event::Stop { .. } => break,
            _ if handle.is_stopping() => break,
            _ => {}
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
            failures: Failures::default(),
        })
    };
    incoming.outputs.iter().filter_map(topic).collect()
}

/// Takes what has arrived on a stream.
fn take_all(
    stream: Option<&IncomingStream>,
    mut take: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> ControlFlow<()> {
    while let Some(sample) = stream.and_then(IncomingStream::try_receive) {
        take(&sample.payload)?;
    }
    ControlFlow::Continue(())
}

/// A topic's thread: counted as running until this is dropped, and then the thread that waits for
/// events of its node looks.
struct Ended<'s>(&'s StandIn, Waiter);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.open_topics.fetch_sub(1, Ordering::SeqCst);
        self.1.wake();
    }
}

impl StandIn {
    fn is_over(&self) -> bool {
        self.crossing.is_over() || self.has_left.load(Ordering::SeqCst)
    }

    /// Publishes a topic until no sample follows.
    fn publish(&self, topic: &mut Topic) {
        let (bridge, stream) = (&*self.bridge, topic.stream.clone());
        let is_closed = || bridge.is_closed(&self.machine, &stream);
        let ends = self.receive(&stream, is_closed, |payload| self.take(topic, payload));
        if ends.is_continue() {
            close_output(&self.handle, &topic.output);
        }
    }

    /// Takes over what becomes of the node and its outputs.
    fn take_changes(&self) {
        let name = self.crossing.stream_name(&self.node);
        let _ = self.receive(
            &name,
            || false,
            |payload| {
                self.take_change(payload);
                ControlFlow::Continue(())
            },
        );
    }

    /// Receives the messages of a stream. Returns when the machine is no peer any more, or when
    /// `is_closed` and all that had arrived before is taken; breaks if `take` does, and when the
    /// stand-in leaves.
    fn receive(
        &self,
        name: &str,
        is_closed: impl Fn() -> bool,
        mut take: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let bridge = &*self.bridge;
        let mut current: Option<IncomingStream> = None;
        let _publishing = Publishing::begin(bridge);
        while !self.is_over() {
            if bridge.is_excluded(&self.machine) {
                return ControlFlow::Continue(());
            }
            let seen = bridge.changes();
            let is_unchanged = || bridge.changes() == seen;
            let is_last = is_closed();
            // What arrived in one session comes before the next.
            if let Some(newer) = bridge.take_arrived(&self.machine, name) {
                take_all(current.as_ref(), &mut take)?;
                current = Some(newer);
            }
            if is_last {
                return take_all(current.as_ref(), &mut take);
            }
            let Some(stream) = &current else {
                while is_unchanged() && !self.is_over() {
                    std::thread::park();
                }
                continue;
            };
            while let Some(sample) = stream.receive_while(is_unchanged) {
                take(&sample.payload)?;
            }
            if stream.has_ended() {
                current = None;
            }
        }
        if let Some(stream) = current {
            bridge.put_back(&self.machine, name, stream);
        }
        ControlFlow::Break(())
    }

    fn take(&self, topic: &mut Topic, payload: &[u8]) -> ControlFlow<()> {
        match remote::decode(payload) {
            Ok(Arrival::Sample(value)) => return self.publish_sample(topic, &value),
            Ok(Arrival::EndOfProcess) if topic.has_answers => {
                self.crossing.calls.fail_all(&topic.topic, Failure::Ended);
            }
            Ok(Arrival::EndOfProcess) => {}
            Err(error) => self.fail(topic, &error),
        }
        ControlFlow::Continue(())
    }

    fn publish_sample(&self, topic: &mut Topic, value: &RemoteSample<'_>) -> ControlFlow<()> {
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
                    break;
                }
                Err(SendError::Stopped) => return ControlFlow::Break(()),
                Err(error) => {
                    self.fail(topic, &error);
                    break;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// A local service has not taken a request of this node.
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
