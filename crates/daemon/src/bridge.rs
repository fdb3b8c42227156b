//! Carries samples between the stand-ins of dataflows and the links to other machines.
//!
//! Each stand-in is joined by a thread of its own, and each topic that arrives has one, so that a
//! consumer that makes one topic wait holds up no other. A topic has one stream for each consuming
//! machine.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender as RequestSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Thread, ThreadId};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nervure_coordinator::Role;
use nervure_dataflow::{Delivery, Incoming, Outgoing, Stream, TrafficClass};
use nervure_identity::PublicKey;
use nervure_link::policy::Refusal;
use nervure_link::qos::{self, Qos};
use nervure_link::sender::{SendCounters, SendError as LinkSendError};
use nervure_link::shell::{IncomingStream, Link, LinkEvent, OutgoingStream, StreamError};
use nervure_node::binding::{self, SequenceGaps, Waiter};
use nervure_node::{
    Event, Events, Handle, Next, Node, Publisher, SendError, Wait, monotonic_nanos,
};

use crate::part::StandIns;
use crate::peers::Peer;
use crate::state::StreamReport;
use crate::wire::{self, Arrival, END_OF_TOPIC};

/// The longest wait for a slow consumer or the link without a look at whether the run is over.
const CHECK: Duration = Duration::from_millis(200);

/// The longest wait for an event of the link. Whatever happens ends it.
const REST: Duration = Duration::from_secs(3600);

/// The pause before a full or missing stream is tried again: the link has no event for it. It is
/// below the time between two samples of a topic at 200 Hz.
const RETRY: Duration = Duration::from_millis(2);

/// The shortest time between two lines about the losses of a topic.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// How long the last samples of a run may take.
const FLUSH: Duration = Duration::from_secs(2);

/// Prefixes of the streams for commands, before the id of the request. Those of topics begin with
/// the id of a run, which has hexadecimal digits only.
const ASKS: &str = "asks/";
const ANSWERS: &str = "answers/";

/// The most messages of a command, and of the answers to it, that wait or are in flight.
const ASKS_DEPTH: u32 = 64;
pub(crate) const ANSWERS_DEPTH: u32 = 256;

/// How long a message of a command is valid: it is not carried out when the link is back later.
const ASK_LIFESPAN: Duration = Duration::from_secs(3);

/// A request of a command on another machine.
#[derive(Debug)]
pub(crate) struct Request {
    /// The key of the machine.
    pub peer: PublicKey,
    /// The id of the request.
    pub id: String,
    /// The messages of the command.
    pub asks: IncomingStream,
}

/// The answers to a request, which are awaited.
#[derive(Debug)]
pub(crate) struct Awaited<'b> {
    bridge: &'b Bridge,
    name: String,
}

impl Awaited<'_> {
    /// Waits until the machine has opened the stream of its answers.
    pub fn wait(&self, peer: PublicKey, timeout: Duration) -> Option<IncomingStream> {
        let place = (peer, self.name.clone());
        let state = self.bridge.lock();
        let waited = self
            .bridge
            .changed
            .wait_timeout_while(state, timeout, |state| !state.arrived.contains_key(&place));
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.arrived.remove(&place)
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let mut state = self.bridge.lock();
        state.awaited.remove(&self.name);
        state.arrived.retain(|(_, name), _| *name != self.name);
    }
}

/// All links of a machine, and what arrives on them.
#[derive(Debug)]
pub(crate) struct Bridge {
    /// Name of this machine.
    own: String,
    link: Link,
    state: Mutex<State>,
    changed: Condvar,
    /// Counts what threads that publish have to look at: streams that arrived, changes of peers, runs
    /// that ended.
    changes: AtomicU64,
    requests: RequestSender<Request>,
}

#[derive(Debug, Default)]
struct State {
    /// Names of streams with answers that commands of this machine await.
    awaited: HashSet<String>,
    peers: HashMap<String, Peer>,
    /// Machines that were revoked, or wait for approval.
    excluded: HashSet<String>,
    /// Streams that no stand-in has taken yet, by the peer's key and their name.
    arrived: HashMap<(PublicKey, String), IncomingStream>,
    /// Threads that publish, which are unparked at each change.
    publishing: HashMap<ThreadId, Thread>,
}

/// What became of the samples of a topic.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    link: SendCounters,
    /// Dropped in the queue before the link, which did not take them in time.
    queue: u64,
    /// Waited for the link when the run ended.
    unsent: u64,
    /// Could not be encoded, sent or published.
    failed: u64,
}

/// Counts samples that cannot be carried, and reports them once a second at most.
#[derive(Debug, Default)]
struct Failures {
    count: u64,
    unreported: u64,
    report_at: Option<Instant>,
}

impl Failures {
    fn add(&mut self, topic: &str, machine: &str, error: &dyn std::fmt::Display) {
        (self.count, self.unreported) = (self.count + 1, self.unreported + 1);
        let now = Instant::now();
        if self.report_at.is_none_or(|at| at <= now) {
            let count = std::mem::take(&mut self.unreported);
            tracing::warn!("{count} samples of {topic} to {machine} lost: {error}");
            self.report_at = Some(now + REPORT_PERIOD);
        }
    }
}

/// A run whose stand-ins are joined.
#[derive(Debug)]
pub(crate) struct Crossing {
    run: String,
    keeper: u32,
    machines: BTreeMap<String, String>,
    over: AtomicBool,
    /// Threads that wait for events of their nodes.
    waiters: Mutex<Vec<Waiter>>,
    reports: Mutex<BTreeMap<(String, String), Counted>>,
}

impl Bridge {
    /// Takes over a link. Requests of commands on other machines are sent to `requests`.
    pub fn start(
        own: String,
        link: Link,
        requests: RequestSender<Request>,
    ) -> std::io::Result<Arc<Self>> {
        let bridge = Arc::new(Self {
            own,
            link,
            requests,
            state: Mutex::default(),
            changed: Condvar::new(),
            changes: AtomicU64::new(0),
        });
        let for_thread = Arc::clone(&bridge);
        std::thread::Builder::new()
            .name("nervure-arrive".into())
            .spawn(move || for_thread.take_events())?;
        Ok(bridge)
    }

    /// The state of the link's socket, if it has failed.
    pub fn failure(&self) -> Option<String> {
        self.link.failure()
    }

    /// Connects to a machine, or lets it connect; again if it has moved. `None` for a machine that
    /// is no peer any more: its key is forbidden, and its streams end.
    pub fn set_peer(&self, machine: &str, peer: Option<Peer>) {
        let known = {
            let mut state = self.lock();
            match peer {
                Some(peer) => {
                    state.excluded.remove(machine);
                    state.peers.insert(machine.to_owned(), peer)
                }
                None => {
                    state.excluded.insert(machine.to_owned());
                    state.peers.remove(machine)
                }
            }
        };
        if let Some(old) = known.filter(|old| peer.is_none_or(|peer| peer.key != old.key)) {
            self.link.forbid(old.key);
            self.lock().arrived.retain(|(of, _), _| *of != old.key);
        }
        let moved =
            |old: Peer| peer.is_none_or(|peer| (peer.key, peer.address) != (old.key, old.address));
        if let Some(peer) = peer.filter(|_| known.is_none_or(moved)) {
            match peer.address.filter(|_| peer.dials) {
                // Fails if the address cannot be sent to; the next report of the peer has another.
                Some(address) => drop(self.link.connect(address, peer.key)),
                None => self.link.allow(peer.key),
            }
        }
        self.on_change();
    }

    /// The machine with this key, and its role, which decides what it may ask of this one
    /// ([`Role::may_ask`]). `None` if it is not paired.
    pub fn machine_of(&self, peer: PublicKey) -> Option<(String, Role)> {
        let state = self.lock();
        let mut peers = state.peers.iter();
        let (machine, known) = peers.find(|(_, known)| known.key == peer)?;
        Some((machine.clone(), known.role))
    }

    /// Opens a stream that is none of a dataflow.
    pub fn open_stream(&self, peer: PublicKey, name: &str, qos: Qos) -> Option<OutgoingStream> {
        self.link.peer(peer).open(name, qos).ok()
    }

    /// A stream of a machine that has arrived.
    pub fn take_stream(&self, peer: PublicKey, name: &str) -> Option<IncomingStream> {
        self.lock().arrived.remove(&(peer, name.to_owned()))
    }

    /// The streams of this name of all machines that have arrived.
    pub fn take_streams(&self, name: &str) -> Vec<(PublicKey, IncomingStream)> {
        let mut state = self.lock();
        let arrived = state.arrived.extract_if(|(_, of), _| of == name);
        arrived.map(|((peer, _), stream)| (peer, stream)).collect()
    }

    /// Refuses what a run that is removed has left: streams that no stand-in has taken.
    pub fn forget(&self, run: &str) {
        let of_run = |name: &str| name.split_once('/').is_some_and(|(of, _)| of == run);
        self.lock().arrived.retain(|(_, name), _| !of_run(name));
    }

    /// Joins as the stand-ins of a run.
    pub fn join(
        self: &Arc<Self>,
        run: &str,
        keeper: u32,
        machines: &BTreeMap<String, String>,
        stand_ins: StandIns,
    ) -> Arc<Crossing> {
        let crossing = Arc::new(Crossing {
            run: run.to_owned(),
            keeper,
            machines: machines.clone(),
            over: AtomicBool::new(false),
            waiters: Mutex::default(),
            reports: Mutex::default(),
        });
        for outgoing in stand_ins.outgoing {
            let (bridge, crossing) = (Arc::clone(self), Arc::clone(&crossing));
            spawn(move || bridge.send_all(&crossing, &outgoing));
        }
        for incoming in stand_ins.incoming {
            let (bridge, crossing) = (Arc::clone(self), Arc::clone(&crossing));
            spawn(move || bridge.publish_all(&crossing, &incoming));
        }
        crossing
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_events(&self) {
        while self.link.failure().is_none() {
            match self.link.next_event(REST) {
                Some(LinkEvent::Opened { peer, name, stream }) if name.starts_with(ASKS) => {
                    let (peer, id) = (peer, name[ASKS.len()..].to_owned());
                    let asks = stream;
                    let _ = self.requests.send(Request { peer, id, asks });
                }
                Some(LinkEvent::Opened { name, stream, .. })
                    if name.starts_with(ANSWERS) && !self.lock().awaited.contains(&name) =>
                {
                    stream.close(Refusal::because("the command has ended"));
                }
                Some(LinkEvent::Opened { peer, name, stream }) => {
                    // A peer that has restarted opens its streams again.
                    self.lock().arrived.insert((peer, name), stream);
                    self.on_change();
                }
                Some(LinkEvent::Forgotten { peer, .. }) => {
                    self.lock().arrived.retain(|(of, _), _| *of != peer);
                }
                _ => {}
            }
        }
    }

    /// Has all who wait for a change look again.
    fn on_change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_all();
        self.lock().publishing.values().for_each(Thread::unpark);
    }

    /// Ends all threads of a run.
    pub fn end(&self, crossing: &Crossing) {
        crossing.over.store(true, Ordering::SeqCst);
        crossing.waiters().iter().for_each(Waiter::wake);
        self.on_change();
    }

    /// Whether a machine was a peer, and is none any more: its topics have ended.
    fn is_excluded(&self, machine: &str) -> bool {
        self.lock().excluded.contains(machine)
    }

    /// The other machines.
    pub fn machines(&self) -> Vec<String> {
        let mut machines: Vec<_> = self.lock().peers.keys().cloned().collect();
        machines.sort();
        machines
    }

    /// Time since anything has arrived from a machine; `None` if nothing has yet.
    pub fn silence(&self, machine: &str) -> Option<Duration> {
        let status = self.link.peer(self.key_of(machine)?).status()?;
        (status.datagram_bytes_received > 0).then(|| status.last_arrival.elapsed())
    }

    /// Opens the stream for the messages of a command.
    pub fn open_asks(&self, peer: PublicKey, id: &str) -> Option<OutgoingStream> {
        let qos = Qos {
            traffic_class: qos::TrafficClass::Control,
            lifespan: Some(ASK_LIFESPAN),
            ..Qos::new(qos::Delivery::keep_all(ASKS_DEPTH))
        };
        self.link.peer(peer).open(&format!("{ASKS}{id}"), qos).ok()
    }

    /// Awaits the stream of the answers to a request.
    pub fn await_answers(&self, id: &str) -> Awaited<'_> {
        let name = format!("{ANSWERS}{id}");
        self.lock().awaited.insert(name.clone());
        Awaited { bridge: self, name }
    }

    /// Opens the stream of the answers to a request. Samples and logs go after everything else.
    pub fn open_answers(&self, peer: PublicKey, id: &str, is_bulk: bool) -> Option<OutgoingStream> {
        let qos = Qos {
            traffic_class: match is_bulk {
                true => qos::TrafficClass::Bulk,
                false => qos::TrafficClass::Default,
            },
            ..Qos::new(qos::Delivery::keep_all(ANSWERS_DEPTH))
        };
        let name = format!("{ANSWERS}{id}");
        self.link.peer(peer).open(&name, qos).ok()
    }

    /// The key of a machine.
    pub fn key_of(&self, machine: &str) -> Option<PublicKey> {
        self.lock().peers.get(machine).map(|peer| peer.key)
    }

    /// Takes the samples of a local node, and sends them to one machine.
    fn send_all(&self, crossing: &Crossing, outgoing: &Outgoing) {
        let Some(node) = crossing.join(&outgoing.node) else {
            return;
        };
        let (handle, mut events) = node.split();
        let machine = crossing.machine(&outgoing.machine);
        crossing.add_waiter(&events);
        let mut senders: HashMap<&str, Sender<'_>> = HashMap::new();
        for stream in &outgoing.streams {
            let sender = Sender {
                bridge: self,
                crossing,
                machine,
                spec: stream,
                stream: None,
                past: SendCounters::default(),
                last: SendCounters::default(),
                queue: 0,
                unsent: 0,
                failures: Failures::default(),
                is_closed: false,
            };
            senders.insert(&stream.output, sender);
        }
        let mut gaps = SequenceGaps::default();
        while let Some(event) = crossing.next_event(&mut events, || false) {
            match event {
                Event::Input { id, sample } => {
                    let Some(sender) = senders.get_mut(&*id) else {
                        continue;
                    };
                    sender.queue += gaps.record(&id, sample.header());
                    match wire::encode(&sample) {
                        Ok(bytes) => sender.send(&bytes.into(), &handle),
                        Err(error) => sender.fail(&error),
                    }
                }
                Event::InputClosed { id } => {
                    if let Some(sender) = senders.get_mut(&*id) {
                        sender.send(&Bytes::from_static(END_OF_TOPIC), &handle);
                        sender.is_closed = true;
                    }
                }
                Event::Stop { .. } => break,
                _ => {}
            }
            if senders.values().all(|sender| sender.is_closed) {
                break;
            }
        }
        for sender in senders.values_mut() {
            sender.finish();
        }
    }

    /// Publishes as a remote node what arrives from its machine.
    fn publish_all(self: &Arc<Self>, crossing: &Arc<Crossing>, incoming: &Incoming) {
        let Some(node) = crossing.join(&incoming.node) else {
            return;
        };
        let (handle, mut events) = node.split();
        let has_left = Arc::new(AtomicBool::new(false));
        let running = Arc::new(AtomicUsize::new(incoming.outputs.len()));
        let waiter = crossing.add_waiter(&events);
        let topics = incoming.outputs.iter().filter_map(|output| {
            let publisher = handle.output(output).ok()?;
            let (bridge, crossing) = (Arc::clone(self), Arc::clone(crossing));
            let machine = crossing.machine(&incoming.machine).to_owned();
            let topic = nervure_protocol::wiring::topic(&incoming.node, output);
            let has_left = Arc::clone(&has_left);
            let ended = Ended(Arc::clone(&running), waiter.clone());
            Some(spawn(move || {
                let _ended = ended;
                bridge.publish(&crossing, &machine, &topic, &publisher, &has_left)
            }))
        });
        let topics: Vec<_> = topics.collect();
        // Topics that the node does not have were not begun.
        let begun = topics.len();
        running.fetch_sub(incoming.outputs.len() - begun, Ordering::SeqCst);
        let are_over = || running.load(Ordering::SeqCst) == 0;
        while let Some(event) = crossing.next_event(&mut events, are_over) {
            if matches!(event, Event::Stop { .. }) || handle.is_stopping() {
                break;
            }
        }
        has_left.store(true, Ordering::SeqCst);
        self.on_change();
        for topic in topics {
            // The panic hook has reported a panic.
            let _ = topic.join();
        }
    }

    /// Publishes a topic until its node has ended.
    fn publish(
        &self,
        crossing: &Crossing,
        machine: &str,
        topic: &str,
        publisher: &Publisher,
        has_left: &AtomicBool,
    ) {
        let name = crossing.stream_name(topic);
        let is_over = || crossing.is_over() || has_left.load(Ordering::SeqCst);
        let mut current: Option<IncomingStream> = None;
        let mut failures = Failures::default();
        let mut fail = |error: &dyn std::fmt::Display| {
            failures.add(topic, &self.own, error);
            crossing.count(topic, &self.own, |counted| counted.failed = failures.count);
        };
        let _publishing = Publishing::begin(self);
        while !is_over() && !self.is_excluded(machine) {
            let seen = self.changes.load(Ordering::SeqCst);
            let is_unchanged = || self.changes.load(Ordering::SeqCst) == seen;
            if let Some(newer) = self.take_arrived(machine, &name) {
                current = Some(newer);
            }
            let Some(stream) = &current else {
                while is_unchanged() && !is_over() {
                    std::thread::park();
                }
                continue;
            };
            while let Some(sample) = stream.receive_while(is_unchanged) {
                match wire::decode(&sample.payload) {
                    Ok(Arrival::End) => return,
                    Ok(Arrival::Sample(value)) => {
                        let envelope = value.envelope();
                        while !is_over() {
                            let until = monotonic_nanos() + CHECK.as_nanos() as u64;
                            match publisher.send_with(&*value, &envelope, Wait::Until(until)) {
                                Err(SendError::TimedOut { .. }) => {}
                                Ok(_) => break,
                                Err(SendError::Stopped) => return,
                                Err(error) => {
                                    fail(&error);
                                    break;
                                }
                            }
                        }
                    }
                    Err(error) => fail(&error),
                }
            }
            if stream.has_ended() {
                current = None;
            }
        }
    }

    /// The stream of this name that the machine has opened last.
    fn take_arrived(&self, machine: &str, name: &str) -> Option<IncomingStream> {
        let mut state = self.lock();
        let place = Self::place(&state, machine, name)?;
        state.arrived.remove(&place)
    }

    /// Streams of other machines with this name are not taken.
    fn place(state: &State, machine: &str, name: &str) -> Option<(PublicKey, String)> {
        let place = (state.peers.get(machine)?.key, name.to_owned());
        state.arrived.contains_key(&place).then_some(place)
    }
}

/// A topic's thread: counted as running until this is dropped, and then the thread that waits for
/// events of its node looks.
struct Ended(Arc<AtomicUsize>, Waiter);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
        self.1.wake();
    }
}

/// This thread publishes: it is unparked at each change.
pub(crate) struct Publishing<'b>(&'b Bridge);

impl<'b> Publishing<'b> {
    pub fn begin(bridge: &'b Bridge) -> Self {
        let thread = std::thread::current();
        bridge.lock().publishing.insert(thread.id(), thread);
        Self(bridge)
    }
}

impl Drop for Publishing<'_> {
    fn drop(&mut self) {
        let thread = std::thread::current().id();
        self.0.lock().publishing.remove(&thread);
    }
}

impl Crossing {
    fn waiters(&self) -> MutexGuard<'_, Vec<Waiter>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What ends a wait for events of a node. The end of the run does so, too.
    fn add_waiter(&self, events: &Events) -> Waiter {
        let waiter = binding::waiter(events);
        self.waiters().push(waiter.clone());
        waiter
    }

    /// Waits for the next event of a node. `None` when there will be none, the run is over, or
    /// `is_enough`.
    fn next_event(&self, events: &mut Events, is_enough: impl Fn() -> bool) -> Option<Event> {
        while !self.is_over() && !is_enough() {
            match events.poll() {
                Ok(Next::Event(event)) => return Some(event),
                Ok(Next::Nothing) => drop(events.wait(None)),
                Ok(Next::End) | Err(_) => return None,
            }
        }
        None
    }

    /// What became of the samples that were sent so far.
    pub fn reports(&self) -> Vec<StreamReport> {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let report = |((topic, machine), counted): (&(String, String), &Counted)| {
            let counters = &counted.link;
            let causes = [
                ("queue", counted.queue),
                ("overwritten", counters.overwritten),
                ("lifespan", counters.expired),
                ("superseded", counters.superseded),
                ("not repaired", counters.incomplete),
                ("refused", counters.refused),
                ("unconfirmed", counters.unconfirmed + counters.held),
                ("not sent", counted.unsent),
                ("failed", counted.failed),
            ];
            StreamReport {
                topic: topic.clone(),
                machine: machine.clone(),
                accepted: counters.accepted,
                delivered: counters.delivered,
                lost: causes
                    .into_iter()
                    .filter(|(_, count)| *count > 0)
                    .map(|(cause, count)| (cause.to_owned(), count))
                    .collect(),
            }
        };
        reports.iter().map(report).collect()
    }

    fn count(&self, topic: &str, machine: &str, count: impl FnOnce(&mut Counted)) {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        count(
            reports
                .entry((topic.to_owned(), machine.to_owned()))
                .or_default(),
        );
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn machine<'c>(&'c self, role: &'c str) -> &'c str {
        self.machines.get(role).map_or(role, String::as_str)
    }

    fn stream_name(&self, topic: &str) -> String {
        format!("{}/{topic}", self.run)
    }

    /// Joins as a node; `None` if the run is over. The keeper may not know the last daemon's death
    /// yet, and then the place is taken.
    fn join(&self, node: &str) -> Option<Node> {
        let keeper = self.keeper.to_string();
        while !self.is_over() {
            match Node::join(Some(&keeper), node) {
                Ok(node) => return Some(node),
                Err(_) => std::thread::sleep(RETRY * 10),
            }
        }
        None
    }
}

/// The stream of a topic to a machine.
struct Sender<'b> {
    bridge: &'b Bridge,
    crossing: &'b Crossing,
    machine: &'b str,
    spec: &'b Stream,
    stream: Option<OutgoingStream>,
    /// Counters of its former streams, and the last ones of the present stream.
    past: SendCounters,
    last: SendCounters,
    queue: u64,
    unsent: u64,
    failures: Failures,
    is_closed: bool,
}

impl Sender<'_> {
    /// Sends a message. Waits while a stream that keeps all is full, or there is no connection yet:
    /// the input's queue holds the samples behind it, by its policy.
    fn send(&mut self, message: &Bytes, handle: &Handle) {
        while !self.crossing.is_over()
            && !handle.is_stopping()
            && !self.bridge.is_excluded(self.machine)
        {
            let Some(stream) = &self.stream else {
                self.stream = self.open();
                if self.stream.is_none() {
                    std::thread::sleep(RETRY);
                }
                continue;
            };
            match stream.try_send(message.clone()) {
                Ok(()) => return self.count(),
                Err(StreamError::Send(LinkSendError::Full { .. })) => std::thread::sleep(RETRY),
                Err(StreamError::Send(error @ LinkSendError::TooLong { .. })) => {
                    return self.fail(&error);
                }
                // The session is gone, or the peer had no memory for the stream: open it again.
                Err(_) => {
                    self.count();
                    self.stream = None;
                    let mut ended = std::mem::take(&mut self.last);
                    ended.unconfirmed += std::mem::take(&mut ended.held);
                    self.past = self.past + ended;
                    std::thread::sleep(RETRY * 10);
                }
            }
        }
        self.unsent += 1;
        self.count();
    }

    fn open(&self) -> Option<OutgoingStream> {
        let key = self.bridge.key_of(self.machine)?;
        let name = self.crossing.stream_name(&self.spec.topic);
        self.bridge.link.peer(key).open(&name, qos(self.spec)).ok()
    }

    /// Keeps the counters for the report. Those of a stream whose session is gone are those of its
    /// last sample.
    fn count(&mut self) {
        if let Some(counters) = self.stream.as_ref().and_then(OutgoingStream::counters) {
            self.last = counters;
        }
        let counted = Counted {
            link: self.past + self.last,
            queue: self.queue,
            unsent: self.unsent,
            failed: self.failures.count,
        };
        self.crossing
            .count(&self.spec.topic, self.machine, |place| *place = counted);
    }

    fn fail(&mut self, error: &dyn std::fmt::Display) {
        self.failures.add(&self.spec.topic, self.machine, error);
        self.count();
    }

    /// Waits for the last samples.
    fn finish(&mut self) {
        if let Some(stream) = &self.stream {
            let until = Instant::now() + FLUSH;
            while !stream.flush(CHECK) && Instant::now() < until {}
        }
        self.count();
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

fn spawn(work: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::Builder::new()
        .name("nervure-bridge".into())
        .spawn(work)
        .expect("the system gives threads")
}

#[cfg(test)]
mod tests {
    use super::*;

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
