//! One stream of events over all inputs, timers and messages of the keeper.
//!
//! Order of events: first Stop, then messages of the keeper and a missed deadline of the loop, then
//! timers and stale inputs (earliest due first), then inputs round-robin. A timer that is due again
//! right after its tick lets one sample pass first, so that a slow handler of ticks cannot starve
//! the inputs. Samples of one input keep their order; samples of different inputs have none.

mod acting;
mod calling;
mod looking_up;

pub use acting::Actions;
pub use looking_up::Transforms;

use super::adaptive_poll::AdaptivePoll;
use super::calls::Calls;
use super::deadlines::{LoopDeadline, Overrun};
use super::event::Event;
use super::goals::Goals;
use super::known_transforms::KnownTransforms;
use super::schedule::{DueItem, Schedule};
use super::sync::Synchroniser;
use super::wait::{WaitPlan, Waiter};
use crate::core::{Core, Notice};
use crate::diagnostics::emit;
use crate::error::UnknownName;
use crate::sample::Sample;
use nervure_protocol::nanos::nanos;
use nervure_protocol::node_to_keeper::Message;
use nervure_protocol::wiring::InputSpec;
use nervure_shm::{Arrival, Inbox, NodeForked, RunState, Waited, monotonic_nanos};
use rustix::fd::BorrowedFd;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The reason of [`Event::Stop`] for a node all of whose inputs are closed.
pub const ALL_INPUTS_CLOSED: &str = "all inputs are closed";

/// The kind of the event for the end of a producer's process, behind its last sample: see
/// [`crate::binding::report_ended_producers`].
pub const PRODUCER_ENDED: &str = "PRODUCER_ENDED";

/// The receiving half of a node.
#[derive(Debug)]
pub struct Events {
    core: Arc<Core>,
    pub(crate) inbox: Inbox,
    /// Names of the inputs.
    pub(crate) names: Vec<Arc<str>>,
    /// Per input.
    roles: Vec<Role>,
    schedule: Schedule,
    sync: Option<Synchroniser>,
    calls: Calls,
    /// Goals of actions that the program works on.
    goals: Goals,
    transforms: Option<KnownTransforms>,
    loop_deadline: Option<LoopDeadline>,
    /// Events that are not about samples and not delivered yet.
    pending: VecDeque<Event>,
    stop: Option<String>,
    stop_when_drained: Option<String>,
    /// Inputs for samples and requests that are not closed.
    open_inputs: usize,
    /// Per input.
    newest: Vec<Newest>,
    /// The last event came from the schedule, so a sample may pass first.
    sample_passes_first: bool,
    /// Whether the start of the dataflow is known.
    knows_start: bool,
    /// Between Pause and Resume the schedule delivers nothing, not even an earlier tick.
    is_paused: bool,
    /// Whether Stop is delivered at once, before queued samples.
    pub(crate) samples_follow_stop: bool,
    /// Whether the end of a producer's process is an event of its own.
    pub(crate) reports_ended_producers: bool,
    progress: Progress,
    /// Whether the program handles a sample of a trace.
    handles_traced: bool,
    /// Set for an observer that polls, and is not woken by its producers.
    poll: Option<AdaptivePoll>,
}

/// Progress of the stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Running,
    /// Stop was delivered at this time, in nanoseconds of CLOCK_MONOTONIC. Samples that were
    /// published before it follow.
    Stopped {
        at: u64,
    },
    Ended,
}

impl Progress {
    fn has_stopped(self) -> bool {
        self != Self::Running
    }
}

/// What [`Events::latest`] keeps of an input.
#[derive(Clone, Debug, Default)]
struct Newest {
    /// Set by the first call for this input. Until then no sample is kept.
    is_wanted: bool,
    sample: Option<Sample>,
}

/// Contents of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Samples, or ticks.
    Data,
    /// Requests of one client to one service, by their indices.
    Requests { service: usize, client: usize },
    /// Answers to a client, by its index.
    Answers { client: usize },
    /// Feedback on the goals of a client, by its index.
    Feedback { client: usize },
    /// Transforms between frames, which are no events.
    Transforms,
}

impl Role {
    /// Whether the node goes on and ends without regard to the input: its samples are no work.
    fn is_beside(self) -> bool {
        match self {
            Self::Data | Self::Requests { .. } => false,
            Self::Answers { .. } | Self::Feedback { .. } | Self::Transforms => true,
        }
    }
}

fn roles(core: &Core) -> Vec<Role> {
    let mut roles = vec![Role::Data; core.welcome.inputs.len()];
    let mut set = |input: u32, role| roles.get_mut(input as usize).map(|known| *known = role);
    for (client, spec) in core.welcome.clients.iter().enumerate() {
        set(spec.input, Role::Answers { client });
        if let Some(feedback) = spec.feedback {
            set(feedback, Role::Feedback { client });
        }
    }
    for (service, spec) in core.welcome.services.iter().enumerate() {
        for (client, asker) in spec.clients.iter().enumerate() {
            set(asker.input, Role::Requests { service, client });
        }
    }
    for &input in core.welcome.transforms.iter().flat_map(|it| &it.inputs) {
        set(u32::try_from(input).unwrap_or(u32::MAX), Role::Transforms);
    }
    roles
}

/// The result of [`Events::poll`].
#[derive(Clone, Debug)]
pub enum Next {
    /// An event.
    Event(Event),
    /// There is no event yet.
    Nothing,
    /// There will be no more events.
    End,
}

impl Events {
    pub(crate) fn new(core: Arc<Core>, inbox: Inbox) -> Self {
        let inputs = &core.welcome.inputs;
        let schedule = Schedule::new(inputs);
        let roles = roles(&core);
        let beside = roles.iter().filter(|role| role.is_beside()).count();
        let names: Vec<Arc<str>> = inputs
            .iter()
            .map(|input| Arc::from(input.name.as_str()))
            .collect();
        let sync = core.welcome.sync.as_ref();
        let sync = sync.and_then(|spec| Synchroniser::new(spec, inputs, &names));
        let loop_deadline = core.welcome.loop_deadline;
        let loop_deadline = loop_deadline.filter(|it| it.input < inputs.len());
        Self {
            names,
            sync,
            newest: vec![Newest::default(); inputs.len()],
            open_inputs: inputs.len() - schedule.timers() - beside,
            roles,
            calls: Calls::new(&core),
            goals: Goals::default(),
            transforms: KnownTransforms::new(&core.welcome),
            schedule,
            loop_deadline: loop_deadline
                .map(|it| LoopDeadline::new(it.input, nanos(it.finish_within))),
            pending: VecDeque::new(),
            stop: None,
            stop_when_drained: None,
            sample_passes_first: false,
            knows_start: false,
            is_paused: false,
            samples_follow_stop: false,
            reports_ended_producers: false,
            progress: Progress::Running,
            handles_traced: false,
            poll: None,
            inbox,
            core,
        }
    }

    /// Sets the longest interval of an observer that polls; `None` if each sample wakes it, which
    /// costs the producer a system call.
    pub(crate) fn set_patience(&mut self, patience: Option<Duration>) {
        let depth = |input: &InputSpec| input.queue.map_or(1, |queue| queue.depth);
        let depths = self.core.welcome.inputs.iter().map(depth);
        self.poll = patience.map(|longest| AdaptivePoll::new(longest, depths));
    }

    /// Waits for the next event. Returns `None` after [`Event::Stop`].
    #[expect(
        clippy::should_implement_trait,
        reason = "the same name as on `Node`, which cannot be an iterator"
    )]
    pub fn next(&mut self) -> Option<Event> {
        self.next_until(None)
    }

    /// Waits at most `timeout` for the next event. Returns `None` after the timeout or
    /// [`Event::Stop`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<Event> {
        let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.next_until(Some(monotonic_nanos().saturating_add(nanos)))
    }

    /// Returns the next event if there is one, without waiting.
    pub fn try_next(&mut self) -> Option<Event> {
        match self.poll() {
            Ok(Next::Event(event)) => Some(event),
            _ => None,
        }
    }

    fn next_until(&mut self, deadline: Option<u64>) -> Option<Event> {
        loop {
            match self.poll() {
                Ok(Next::Event(event)) => return Some(event),
                Ok(Next::Nothing) => {}
                Ok(Next::End) => return None,
                Err(forked) => panic!("{forked}"),
            }
            if deadline.is_some_and(|deadline| monotonic_nanos() >= deadline) {
                return None;
            }
            self.wait(deadline);
        }
    }

    /// Returns the next event without waiting, or the reason why there is none.
    ///
    /// # Errors
    /// [`NodeForked`] in a forked child.
    pub fn poll(&mut self) -> Result<Next, NodeForked> {
        if self.handles_traced {
            self.core.traces.end();
            self.handles_traced = false;
        }
        match self.progress {
            Progress::Running => {}
            Progress::Stopped { at } => return self.poll_after_stop(at),
            Progress::Ended => return Ok(Next::End),
        }
        self.core.producer.counters.beat();
        if self.samples_follow_stop && self.core.producer.stopping.load(Ordering::Relaxed) {
            // At once: the notice would wait behind up to 16 samples.
            self.absorb_notices();
        }
        if self.loop_deadline.is_some() {
            self.end_turn_of_loop();
        }
        loop {
            if let Some(event) = self.pending_or_due().or_else(|| self.next_synced()) {
                return Ok(Next::Event(event));
            }
            let arrival = self.inbox.try_next()?;
            let schedule_was_skipped = std::mem::take(&mut self.sample_passes_first);
            match arrival {
                Some(arrival) => {
                    if let Some(event) = self.handle_arrival(arrival) {
                        return Ok(Next::Event(event));
                    }
                }
                // No sample passed after the tick: check the schedule again.
                None if schedule_was_skipped => {}
                None if self.stop_when_drained.is_some() && !self.inbox.holds_any() => {
                    self.stop = self.stop_when_drained.take()
                }
                None => {
                    if let Some(poll) = &mut self.poll {
                        poll.adjust();
                    }
                    return Ok(Next::Nothing);
                }
            }
        }
    }

    /// The next of the samples that were queued when Stop was delivered at `stopped_at`. Later ones
    /// are dropped: two nodes that answer each other would not end.
    #[cold]
    fn poll_after_stop(&mut self, stopped_at: u64) -> Result<Next, NodeForked> {
        self.core.producer.counters.beat();
        while let Some(arrival) = self.inbox.try_next()? {
            let Arrival::Sample { input, sample } = arrival else {
                // Its event is not delivered after Stop.
                self.on_control(arrival);
                continue;
            };
            let was_queued = sample.header().publish_mono <= stopped_at;
            if was_queued && self.roles[input as usize] == Role::Data {
                let id = self.names[input as usize].clone();
                let sample = Sample::new(sample);
                return Ok(Next::Event(Event::Input { id, sample }));
            }
        }
        self.progress = Progress::Ended;
        Ok(Next::End)
    }

    /// Waits for news until `deadline` (nanoseconds of CLOCK_MONOTONIC), or until a timer or a
    /// stale input is due. Call it when [`Events::poll`] found nothing.
    pub fn wait(&self, deadline: Option<u64>) -> Waited {
        self.plan_wait(deadline).run(|until| self.inbox.wait(until))
    }

    pub(crate) fn plan_wait(&self, deadline: Option<u64>) -> WaitPlan {
        let until = self.next_check().into_iter().chain(deadline).min();
        WaitPlan::new(until, self.is_woken())
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.poll.is_none()
    }

    pub(crate) fn waiter(&self) -> Waiter {
        Waiter::new(self.inbox.handle())
    }

    /// For event loops: the latest time of the next [`Events::poll`], in nanoseconds of
    /// CLOCK_MONOTONIC. By then a timer or a stale input is due, an observer has to poll, or the
    /// node has slept for [`nervure_shm::MAX_SLEEP_NANOS`]. Call this before each sleep: a node
    /// that sleeps longer counts as hanging.
    pub fn next_deadline(&self) -> u64 {
        self.inbox.sleep_deadline(self.next_check())
    }

    /// When the schedule or the observer's polling needs a check, in nanoseconds of
    /// CLOCK_MONOTONIC.
    fn next_check(&self) -> Option<u64> {
        let due = self.schedule.next_due().filter(|_| !self.is_paused);
        let due = due.and_then(|(due, _)| self.core.clock.monotonic_at(due));
        let poll = self.poll.as_ref();
        let poll = poll.map(|poll| poll.next_poll(monotonic_nanos()));
        let goal = self.goals.next_deadline();
        due.into_iter().chain(poll).chain(goal).min()
    }

    /// For event loops: makes [`Events::eventfd`] readable at the next news. Returns false if there
    /// is news already. The schedule and an observer that polls do not write to the eventfd: they
    /// need a check at [`Events::next_deadline`].
    pub fn arm(&self) -> bool {
        !self.is_woken() || self.inbox.arm()
    }

    /// Ends what [`Events::arm`] began.
    pub fn disarm(&self) {
        self.inbox.disarm();
    }

    /// The descriptor that [`Events::arm`] makes readable.
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        self.inbox.eventfd()
    }

    /// The newest sample of an input: see [`crate::Node::latest`].
    ///
    /// # Errors
    /// [`UnknownName`] with the names of the inputs.
    pub fn latest(&mut self, input: &str) -> Result<Option<Sample>, UnknownName> {
        // Inputs for requests and answers, with a `~` in the name, come after those of the file.
        let declared = || self.names.iter().take_while(|name| !name.contains('~'));
        let Some(index) = declared().position(|name| &**name == input) else {
            return Err(UnknownName {
                node: self.core.welcome.node.clone(),
                kind: "input",
                name: input.to_owned(),
                known: declared().map(ToString::to_string).collect(),
            });
        };
        // Edges that were attached since the last call come first.
        self.inbox.refresh();
        self.newest[index].is_wanted = true;
        let is_synced = self.sync.as_ref().is_some_and(|sync| sync.has(index));
        // A sample that is taken here would be missing in its set.
        if !is_synced && let Ok(Some(raw)) = self.inbox.take_newest(index as u32) {
            let sample = Sample::new(raw);
            self.handles_traced |= self.core.begins_trace(index, &sample);
            self.schedule
                .note_published(index, &sample, &self.core.clock);
            self.newest[index].sample = Some(sample);
        }
        Ok(self.newest[index].sample.clone())
    }

    /// Takes over the notices of the control thread.
    pub(crate) fn absorb_notices(&mut self) {
        let mut notices = self.core.notices();
        let mut calls = Vec::new();
        let mut samples = Vec::new();
        for notice in notices.events.drain(..) {
            let event = match notice {
                Notice::ParamChanged(param) => Event::Param {
                    name: param.name,
                    value: param.value,
                },
                Notice::Event(event) => event.into(),
                Notice::Call(call) => {
                    calls.push(call);
                    continue;
                }
                Notice::Sample(input, sample) => {
                    samples.push((input, sample));
                    continue;
                }
            };
            match event {
                Event::Pause => self.is_paused = true,
                Event::Resume => {
                    self.is_paused = false;
                    self.schedule.resume(self.core.clock.now());
                }
                _ => {}
            }
            self.pending.push_back(event);
        }
        if let Some(reason) = notices.stop.take() {
            self.stop.get_or_insert(reason);
            // `connect` looks at it there while it waits.
            notices.stop = self.stop.clone();
        }
        self.stop_when_drained = self
            .stop_when_drained
            .take()
            .or_else(|| notices.stop_when_drained.take());
        if notices.started {
            self.schedule.start(self.core.clock.now());
        }
        drop(notices);
        for call in calls {
            self.goals.take_call(&self.core, &call, &mut self.pending);
        }
        for (input, sample) in samples {
            if self.roles.get(input as usize) == Some(&Role::Data) {
                let arrival = Arrival::Sample {
                    input,
                    sample: *sample,
                };
                let event = self.handle_arrival(arrival);
                self.pending.extend(event);
            }
        }
    }

    /// Measures the last turn, which ends with the request for the next event.
    #[inline(never)]
    fn end_turn_of_loop(&mut self) {
        let now = monotonic_nanos();
        let is_paused = self.core.clock.read(now).0 == RunState::Paused;
        if let (true, Some(turn)) = (is_paused, &mut self.loop_deadline) {
            turn.cancel();
        }
        let Some(turn) = self.loop_deadline.as_mut().filter(|turn| turn.is_running()) else {
            return;
        };
        if let Some(Overrun { input, by, count }) = turn.end(monotonic_nanos()) {
            let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            let counters = &self.core.producer.counters;
            counters.count_missed_deadline(input as u32, nanos);
            let id = self.names[input].clone();
            self.pending.push_front(Event::DeadlineMissed {
                id,
                overrun: by,
                count,
            });
        }
    }

    #[inline]
    fn pending_or_due(&mut self) -> Option<Event> {
        let is_quiet = self.stop.is_none() && self.pending.is_empty();
        let nothing_due = self.schedule.is_empty() && self.goals.next_deadline().is_none();
        if is_quiet && nothing_due {
            None
        } else {
            self.next_pending_or_due()
        }
    }

    #[inline(never)]
    fn next_pending_or_due(&mut self) -> Option<Event> {
        if let Some(reason) = self.stop.take() {
            self.progress = match self.samples_follow_stop {
                true => Progress::Stopped {
                    at: monotonic_nanos(),
                },
                false => Progress::Ended,
            };
            return Some(Event::Stop { reason });
        }
        let late = self.goals.cancel_late(monotonic_nanos());
        self.pending.extend(late.into_iter().map(Event::Cancel));
        if let Some(event) = self.pending.pop_front() {
            return Some(event);
        }
        if self.sample_passes_first || self.is_paused {
            return None;
        }
        loop {
            let (due, item) = self.schedule.next_due()?;
            let monotonic = monotonic_nanos();
            let now = self.core.clock.now();
            if due > now {
                return None;
            }
            let event = match item {
                DueItem::Timer(at) => self.tick(at, now, monotonic),
                DueItem::Expected(at) => self.stale(at, now),
            };
            if event.is_some() {
                self.sample_passes_first = true;
                return event;
            }
        }
    }

    fn tick(&mut self, timer: usize, now: i64, monotonic: u64) -> Option<Event> {
        let tick = self.schedule.take_tick(timer, now)?;
        let turn = self.loop_deadline.as_mut();
        if let Some(turn) = turn.filter(|turn| turn.input == tick.input) {
            turn.tick(tick.due, &self.core.clock, monotonic);
        }
        Some(Event::Tick {
            id: self.names[tick.input].clone(),
            due: tick.due,
            missed: tick.missed,
        })
    }

    fn stale(&mut self, expected: usize, now: i64) -> Option<Event> {
        let has_queued = |input| self.inbox.has_queued(input);
        let stale = self.schedule.take_stale(expected, now, has_queued)?;
        self.core.producer.counters.count_stale(stale.input as u32);
        Some(Event::Stale {
            id: self.names[stale.input].clone(),
            age: stale.age,
            count: stale.count,
        })
    }

    fn handle_arrival(&mut self, arrival: Arrival) -> Option<Event> {
        let Arrival::Sample { input, sample } = arrival else {
            return self.on_control(arrival);
        };
        if !self.knows_start {
            self.knows_start = self.core.await_edges();
        }
        let (input, sample) = (input as usize, Sample::new(sample));
        match self.roles[input] {
            Role::Data => {}
            Role::Answers { client } => {
                self.calls.answer(client, sample);
                return None;
            }
            Role::Feedback { client } => {
                self.calls.feedback(client, sample);
                return None;
            }
            Role::Requests { service, client } => {
                self.handles_traced |= self.core.begins_trace(input, &sample);
                let (core, events) = (&self.core, &mut self.pending);
                self.goals
                    .take_request(core, (service, client), input, sample, events);
                return self.pending.pop_front();
            }
            Role::Transforms => {
                let (name, counters) = (&self.names[input], &self.core.producer.counters);
                if let Some(known) = &mut self.transforms {
                    known.take(input, name, &sample, counters);
                }
                return None;
            }
        }
        if let Some(poll) = &mut self.poll {
            poll.count_sample(input);
        }
        self.schedule
            .note_published(input, &sample, &self.core.clock);
        let newest = &mut self.newest[input];
        if newest.is_wanted {
            newest.sample = Some(sample.clone());
        }
        if let Some(sync) = self.sync.as_mut().filter(|sync| sync.has(input)) {
            sync.add(input, sample, &self.core.producer.counters);
            return self.next_synced();
        }
        self.handles_traced |= self.core.begins_trace(input, &sample);
        let turn = self.loop_deadline.as_mut();
        if let Some(turn) = turn.filter(|turn| turn.input == input) {
            turn.sample(sample.raw().received_mono());
        }
        Some(Event::Input {
            id: self.names[input].clone(),
            sample,
        })
    }

    /// The next samples that belong together.
    fn next_synced(&mut self) -> Option<Event> {
        let set = self.sync.as_mut()?.next()?;
        let is_traced = |(_, sample): &(usize, &Sample)| sample.header().trace_id != 0;
        if let Some((input, sample)) = set.by_input().find(is_traced) {
            self.handles_traced |= self.core.begins_trace(input, sample);
        }
        // The turn does not contain the time for which a sample has waited for the others.
        if let Some(turn) = &mut self.loop_deadline
            && set.by_input().any(|(input, _)| turn.input == input)
        {
            turn.sample(monotonic_nanos());
        }
        Some(Event::Synced(set))
    }

    /// Handles an arrival that is not a sample.
    #[cold]
    fn on_control(&mut self, arrival: Arrival) -> Option<Event> {
        match arrival {
            Arrival::Sample { .. } => None,
            Arrival::Ended { input } => {
                if matches!(self.roles[input as usize], Role::Requests { .. }) {
                    let cancelled = self.goals.cancel_of_input(input as usize);
                    self.pending
                        .extend(cancelled.into_iter().map(Event::Cancel));
                }
                match self.roles[input as usize] {
                    Role::Answers { client } => self.calls.fail_all(client),
                    Role::Feedback { .. } | Role::Transforms => {}
                    Role::Data | Role::Requests { .. } if self.reports_ended_producers => {
                        return Some(Event::Other {
                            kind: PRODUCER_ENDED.to_owned(),
                            node: String::new(),
                            inputs: vec![self.names[input as usize].to_string()],
                            reason: String::new(),
                        });
                    }
                    Role::Data | Role::Requests { .. } => {}
                }
                None
            }
            Arrival::Closed { input } => self.close_input(input as usize),
            Arrival::Misbehaved {
                input,
                edge,
                misbehaviour,
            } => {
                let name = &self.names[input as usize];
                emit!(warn, input = %name, %misbehaviour, "an input is cut off from its producer");
                self.core.send_to_keeper(&Message::Misbehaviour {
                    edge,
                    what: misbehaviour.to_string(),
                });
                None
            }
            Arrival::Notified => {
                self.absorb_notices();
                None
            }
        }
    }

    fn close_input(&mut self, input: usize) -> Option<Event> {
        if self.roles[input].is_beside() {
            return None;
        }
        self.schedule.close(input);
        self.open_inputs -= 1;
        if self.open_inputs == 0 && self.schedule.timers() == 0 {
            // After the input's own event, and the samples that it completes.
            let reason = || ALL_INPUTS_CLOSED.to_owned();
            self.stop_when_drained.get_or_insert_with(reason);
        }
        if self.roles[input] != Role::Data {
            return None;
        }
        let closed = Event::InputClosed {
            id: self.names[input].clone(),
        };
        let Some(sync) = &mut self.sync else {
            return Some(closed);
        };
        sync.close(input, &self.core.producer.counters);
        let sets = std::iter::from_fn(|| sync.next()).map(Event::Synced);
        self.pending.extend(sets.chain([closed]));
        self.pending.pop_front()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // In a forked child the node is the parent's.
        if self.inbox.belongs_to_this_process() {
            self.core.traces.end();
            for output in &self.core.outputs {
                if let Some(consumer) = output.consumer_to_await() {
                    emit!(info, %consumer, "the end waits for a restarting consumer");
                    output.await_consumers();
                }
            }
            let cut_short = self.core.producer.cut_short.load(Ordering::SeqCst);
            self.core.send_to_keeper(&Message::Goodbye { cut_short });
        }
    }
}
