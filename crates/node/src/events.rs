//! Receiving: one stream of events over all inputs, timers and the keeper's messages.
//!
//! Order: Stop first, then what the keeper has to say and a missed deadline of the loop, then timers and stale inputs,
//! those first that are due for longest, then inputs round-robin. A timer that is due again right after its tick lets
//! one sample pass first, so that a slow handler of ticks cannot starve the inputs. Between inputs there is no order of
//! arrival: each is in its own order.

use crate::calls::{CallError, Calls, Request, Ticket};
use crate::doze::Doze;
use crate::error::UnknownName;
use crate::event::Event;
use crate::node::Core;
use crate::publisher::Publisher;
use crate::sample::Sample;
use crate::timer::{Due, Timer};
use crate::watch::{Expected, LoopDeadline, Overrun, Stale};
use nervure_message::Encode;
use nervure_protocol::nanos::nanos;
use nervure_protocol::node_to_keeper::Message;
use nervure_protocol::wiring::{InputSpec, Source};
use nervure_shm::{
    Arrival, Inbox, InboxHandle, NodeForked, Receipt, SendError, Wait, Waited, monotonic_nanos,
};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::BorrowedFd;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The receiving half of a node.
#[derive(Debug)]
pub struct Events {
    core: Arc<Core>,
    pub(crate) inbox: Inbox,
    names: Vec<Arc<str>>,
    timers: Vec<Timer>,
    expected: Vec<Expected>,
    /// Per input.
    roles: Vec<Role>,
    calls: Calls,
    loop_deadline: Option<LoopDeadline>,
    /// Told by the keeper, not yet delivered.
    told: VecDeque<Event>,
    stop: Option<String>,
    stop_when_drained: Option<String>,
    /// Data inputs that are not closed.
    open_inputs: usize,
    newest: Vec<Newest>,
    /// The last event was one of the clock's: a sample may pass.
    clock_had_its_turn: bool,
    ended: bool,
    /// How it waits when nobody is to wake it.
    doze: Option<Doze>,
}

/// What [`Events::latest`] remembers of an input.
#[derive(Clone, Debug, Default)]
struct Newest {
    /// Whether anybody asked; only then is a sample kept.
    wanted: bool,
    sample: Option<Sample>,
}

/// What an input is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Samples, or ticks.
    Data,
    /// Requests to a service, by a client, by their indices.
    Requests { service: usize, client: usize },
    /// Answers to a client, by its index.
    Answers { client: usize },
}

fn roles(core: &Core) -> Vec<Role> {
    let mut roles = vec![Role::Data; core.welcome.inputs.len()];
    let mut set = |input: u32, role| roles.get_mut(input as usize).map(|known| *known = role);
    for (client, spec) in core.welcome.clients.iter().enumerate() {
        set(spec.input, Role::Answers { client });
    }
    for (service, spec) in core.welcome.services.iter().enumerate() {
        for (client, asker) in spec.clients.iter().enumerate() {
            set(asker.input, Role::Requests { service, client });
        }
    }
    roles
}

/// What the clock makes due: see [`Events::next_due`].
#[derive(Clone, Copy, Debug)]
enum Clocked {
    /// A timer, by its index.
    Timer(usize),
    /// An input that is expected, by its index in [`Events::expected`].
    Expected(usize),
}

/// Waits in the place of [`Events`], which others may use meanwhile.
#[derive(Clone, Debug)]
pub struct Waiter(InboxHandle);

/// How to wait: see [`Events::rest`].
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    until: Option<u64>,
    is_woken: bool,
}

impl Rest {
    /// The same, for those who have to look at something else before.
    #[must_use]
    pub fn no_later_than(self, until: u64) -> Self {
        Self {
            until: Some(self.until.map_or(until, |own| own.min(until))),
            ..self
        }
    }

    fn take(self, wait: impl FnOnce(Option<u64>) -> Waited) -> Waited {
        match self {
            Self {
                until,
                is_woken: true,
            } => wait(until),
            Self {
                until,
                is_woken: false,
            } => {
                std::thread::sleep(left(until).unwrap_or_default());
                Waited::LookAgain
            }
        }
    }
}

fn left(until: Option<u64>) -> Option<Duration> {
    until.map(|until| Duration::from_nanos(until.saturating_sub(monotonic_nanos())))
}

/// What [`Events::poll`] found.
#[derive(Clone, Debug)]
pub enum Next {
    /// An event.
    Event(Event),
    /// Nothing yet.
    Nothing,
    /// There will be no more.
    End,
}

impl Events {
    pub(crate) fn new(core: Arc<Core>, inbox: Inbox) -> Self {
        let inputs = &core.welcome.inputs;
        let timers = inputs
            .iter()
            .enumerate()
            .filter_map(|(index, input)| match input.source {
                Source::Timer { period_nanos } => Some(Timer::new(index, period_nanos)),
                Source::Output { .. } => None,
            });
        let timers = timers.collect::<Vec<_>>();
        let roles = roles(&core);
        let answers = roles
            .iter()
            .filter(|role| matches!(role, Role::Answers { .. }))
            .count();
        let expected = inputs.iter().enumerate();
        let expected = expected
            .filter_map(|(index, input)| Some(Expected::new(index, input.expect_every_nanos?)))
            .collect();
        let loop_deadline = core
            .welcome
            .loop_deadline
            .filter(|it| it.input < inputs.len());
        Self {
            names: inputs
                .iter()
                .map(|input| Arc::from(input.name.as_str()))
                .collect(),
            newest: vec![Newest::default(); inputs.len()],
            open_inputs: inputs.len() - timers.len() - answers,
            roles,
            calls: Calls::new(&core),
            timers,
            expected,
            loop_deadline: loop_deadline
                .map(|it| LoopDeadline::new(it.input, nanos(it.finish_within))),
            told: VecDeque::new(),
            stop: None,
            stop_when_drained: None,
            clock_had_its_turn: false,
            ended: false,
            doze: None,
            inbox,
            core,
        }
    }

    /// How long a sample may lie in its queue before it is looked for; `None` to be woken by each, for which its producer
    /// pays.
    pub(crate) fn set_patience(&mut self, patience: Option<Duration>) {
        let depth = |input: &InputSpec| input.queue.map_or(1, |queue| queue.depth);
        let depths = self.core.welcome.inputs.iter().map(depth);
        self.doze = patience.map(|longest| Doze::new(longest, depths));
    }

    /// Waits for the next event. `None` after [`Event::Stop`].
    #[expect(
        clippy::should_implement_trait,
        reason = "the same name as on `Node`, which cannot be an iterator"
    )]
    pub fn next(&mut self) -> Option<Event> {
        self.next_until(None)
    }

    /// Waits at most `timeout` for the next event.
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<Event> {
        let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.next_until(Some(monotonic_nanos().saturating_add(nanos)))
    }

    /// The next event, if there is one.
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

    /// The next event, without waiting, with the reason why there is none.
    ///
    /// # Errors
    /// [`NodeForked`] in a forked child.
    pub fn poll(&mut self) -> Result<Next, NodeForked> {
        if self.ended {
            return Ok(Next::End);
        }
        self.core.producer.counters.beat();
        self.end_turn();
        loop {
            if let Some(event) = self.told_or_due() {
                return Ok(Next::Event(event));
            }
            let arrival = self.inbox.try_next()?;
            let had_its_turn = std::mem::take(&mut self.clock_had_its_turn);
            match arrival {
                Some(arrival) => {
                    if let Some(event) = self.arrived(arrival) {
                        return Ok(Next::Event(event));
                    }
                }
                // Nothing passed after the tick: look at the clock again.
                None if had_its_turn => {}
                None if self.stop_when_drained.is_some() => {
                    self.stop = self.stop_when_drained.take()
                }
                None => {
                    if let Some(doze) = &mut self.doze {
                        doze.settle();
                    }
                    return Ok(Next::Nothing);
                }
            }
        }
    }

    /// Waits for news until `deadline` (nanoseconds of CLOCK_MONOTONIC), or until a timer or a stale input is due. Call it when
    /// [`Events::poll`] found nothing.
    pub fn wait(&self, deadline: Option<u64>) -> Waited {
        self.rest(deadline).take(|until| self.inbox.wait(until))
    }

    /// How to wait for news until `deadline`, or until a timer or a stale input is due: for [`Waiter::wait`], when
    /// [`Events::poll`] found nothing.
    pub fn rest(&self, deadline: Option<u64>) -> Rest {
        Rest {
            until: self.next_look().into_iter().chain(deadline).min(),
            is_woken: self.is_woken(),
        }
    }

    /// Whether news end its waits. An observer looks every so often: see [`crate::Observer::set_patience`].
    pub fn is_woken(&self) -> bool {
        self.doze.is_none()
    }

    /// For those who keep the events behind a lock, and do not hold it while they wait.
    pub fn waiter(&self) -> Waiter {
        Waiter(self.inbox.handle())
    }

    /// For event loops: when to look again at the latest, in nanoseconds of CLOCK_MONOTONIC. A timer, a stale input or
    /// the next look of an observer is due then, or a sleep has lasted for [`nervure_shm::MAX_SLEEP_NANOS`]. To be asked
    /// before each sleep: a node that sleeps for longer hangs for its keeper.
    pub fn next_deadline(&self) -> u64 {
        self.inbox.sleep_deadline(self.next_look())
    }

    /// As [`Events::next_deadline`], for a wait for an answer until `deadline`, whatever is due meanwhile.
    pub fn next_deadline_for_answer(&self, deadline: Option<u64>) -> u64 {
        self.inbox.sleep_deadline(deadline)
    }

    fn next_look(&self) -> Option<u64> {
        let due = self
            .next_due()
            .and_then(|(due, _)| self.core.clock.monotonic_at(due));
        let look = self
            .doze
            .as_ref()
            .map(|doze| doze.next_look(monotonic_nanos()));
        due.into_iter().chain(look).min()
    }

    /// For event loops: asks for [`Events::eventfd`] to become readable at the next news. False when there is news already.
    /// What the clock makes due, and all of an observer that is not [`Events::is_woken`], is found by a look at
    /// [`Events::next_deadline`].
    pub fn arm(&self) -> bool {
        !self.is_woken() || self.inbox.arm()
    }

    /// Ends what [`Events::arm`] began.
    pub fn disarm(&self) {
        self.inbox.disarm();
    }

    /// See [`Events::arm`].
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        self.inbox.eventfd()
    }

    /// See [`crate::Node::latest`].
    ///
    /// # Errors
    /// [`UnknownName`] with the names of the inputs.
    pub fn latest(&mut self, input: &str) -> Result<Option<Sample>, UnknownName> {
        // Behind the file's own come those for requests and answers.
        let own = || self.names.iter().take_while(|name| !name.contains('~'));
        let Some(index) = own().position(|name| &**name == input) else {
            return Err(UnknownName {
                node: self.core.welcome.node.clone(),
                kind: "input",
                name: input.to_owned(),
                known: own().map(ToString::to_string).collect(),
            });
        };
        // Edges that were attached meanwhile are taken in first.
        self.inbox.refresh();
        self.newest[index].wanted = true;
        if let Ok(Some(raw)) = self.inbox.take_newest(index as u32) {
            let sample = Sample::new(raw);
            self.note_published(index, &sample);
            self.newest[index].sample = Some(sample);
        }
        Ok(self.newest[index].sample.clone())
    }

    /// See [`crate::Node::call`].
    ///
    /// # Errors
    /// [`CallError`].
    pub fn call<V: Encode + ?Sized>(
        &mut self,
        client: &str,
        value: &V,
        timeout: Option<Duration>,
    ) -> Result<Sample, CallError> {
        let nanos = timeout.map(|timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let deadline = nanos.map(|nanos| monotonic_nanos().saturating_add(nanos));
        let ticket = self.begin_call(client, value)?;
        loop {
            if let Some(answer) = self.take_answer(ticket) {
                return answer;
            }
            if deadline.is_some_and(|deadline| monotonic_nanos() >= deadline) {
                self.forget_call(ticket);
                let service = self.calls.service(ticket.client).to_owned();
                return Err(CallError::TimedOut {
                    service,
                    timeout: timeout.unwrap_or_default(),
                });
            }
            self.rest_for_answer(deadline)
                .take(|until| self.inbox.wait(until));
        }
    }

    /// See [`crate::Node::begin_call`].
    ///
    /// # Errors
    /// [`CallError`].
    pub fn begin_call<V: Encode + ?Sized>(
        &mut self,
        client: &str,
        value: &V,
    ) -> Result<Ticket, CallError> {
        let (ticket, publisher) = self.prepare_call(client)?;
        let sent = publisher.send_with(value, &ticket.envelope(), Wait::Never);
        self.finish_call(ticket, sent)
    }

    /// For bindings that encode the value themselves: where the request goes, with [`Ticket::envelope`]; then comes
    /// [`Events::finish_call`].
    ///
    /// # Errors
    /// [`CallError`].
    pub fn prepare_call(&mut self, client: &str) -> Result<(Ticket, Publisher), CallError> {
        let client = self.calls.find(&self.core, client)?;
        // What has ended is told to those who had asked it, and not to this request.
        self.look_for_answers(client);
        self.calls.begin(&self.core, client)
    }

    /// The request was sent, or could not be.
    ///
    /// # Errors
    /// [`CallError`] when nobody will answer it.
    pub fn finish_call(
        &mut self,
        ticket: Ticket,
        sent: Result<Receipt, SendError>,
    ) -> Result<Ticket, CallError> {
        self.calls.sent(ticket, sent)
    }

    /// See [`crate::Node::take_answer`].
    pub fn take_answer(&mut self, ticket: Ticket) -> Option<Result<Sample, CallError>> {
        self.core.producer.counters.beat();
        self.look_for_answers(ticket.client);
        let answer = self.calls.take(ticket);
        if answer.is_none() && (self.stop.is_some() || self.ended) {
            self.forget_call(ticket);
            return Some(Err(CallError::Stopped));
        }
        answer
    }

    /// Nobody waits for the answer any more.
    pub fn forget_call(&mut self, ticket: Ticket) {
        self.calls.forget(ticket);
    }

    /// `node/service` of a request, for messages.
    pub fn service_of(&self, ticket: Ticket) -> &str {
        self.calls.service(ticket.client)
    }

    /// How to wait for an answer until `deadline`, whatever is due meanwhile: for [`Waiter::wait`], when
    /// [`Events::take_answer`] found none.
    pub fn rest_for_answer(&self, deadline: Option<u64>) -> Rest {
        Rest {
            until: deadline,
            is_woken: self.is_woken(),
        }
    }

    /// Takes in the answers to a client, and leaves all other inputs as they are.
    fn look_for_answers(&mut self, client: usize) {
        // What rings from here on ends the wait that follows.
        self.inbox.collect();
        if self.inbox.take_commands() {
            self.absorb();
        }
        let input = self.calls.input(client);
        while let Some(arrival) = self.inbox.next_of(input) {
            self.arrived(arrival);
        }
    }

    #[inline(never)]
    fn request(&self, service: usize, client: usize, sample: Sample) -> Option<Event> {
        let spec = &self.core.welcome.services[service];
        let asker = &spec.clients[client];
        let output = self.core.outputs.get(asker.output as usize)?.clone();
        let publisher = Publisher {
            output,
            core: self.core.clone(),
        };
        let name = Arc::from(spec.name.as_str());
        Some(Event::Request(Request::new(
            name,
            asker.node.clone(),
            sample,
            publisher,
        )))
    }

    /// Takes over what the control thread has heard.
    pub(crate) fn absorb(&mut self) {
        let mut news = self.core.news();
        self.told.append(&mut news.events);
        if let Some(reason) = news.stop.take() {
            self.stop.get_or_insert(reason);
            // Whoever waits in `connect` looks at it.
            news.stop = self.stop.clone();
        }
        self.stop_when_drained = self
            .stop_when_drained
            .take()
            .or_else(|| news.stop_when_drained.take());
        if news.started {
            let now = self.core.clock.now();
            for timer in &mut self.timers {
                timer.start(now);
            }
            for expected in &mut self.expected {
                expected.start(now);
            }
        }
    }

    /// The node asks for its next event, and so has done with the last one.
    fn end_turn(&mut self) {
        if self.loop_deadline.is_some() {
            self.end_turn_of_loop();
        }
    }

    #[inline(never)]
    fn end_turn_of_loop(&mut self) {
        let Some(turn) = self.loop_deadline.as_mut().filter(|turn| turn.is_running()) else {
            return;
        };
        if let Some(Overrun { input, by, count }) = turn.end(monotonic_nanos()) {
            let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            self.core
                .producer
                .counters
                .count_missed_deadline(input as u32, nanos);
            let id = self.names[input].clone();
            self.told.push_front(Event::DeadlineMissed {
                id,
                overrun: by,
                count,
            });
        }
    }

    #[inline]
    fn told_or_due(&mut self) -> Option<Event> {
        let is_quiet = self.stop.is_none() && self.told.is_empty();
        if is_quiet && self.timers.is_empty() && self.expected.is_empty() {
            None
        } else {
            self.next_told_or_due()
        }
    }

    #[inline(never)]
    fn next_told_or_due(&mut self) -> Option<Event> {
        if let Some(reason) = self.stop.take() {
            self.ended = true;
            return Some(Event::Stop { reason });
        }
        if let Some(event) = self.told.pop_front() {
            return Some(event);
        }
        if self.clock_had_its_turn {
            return None;
        }
        loop {
            let (due, what) = self.next_due()?;
            let monotonic = monotonic_nanos();
            let now = self.core.clock.now();
            if due > now {
                return None;
            }
            let event = match what {
                Clocked::Timer(at) => self.tick(at, now, monotonic),
                Clocked::Expected(at) => self.stale(at, now),
            };
            if event.is_some() {
                self.clock_had_its_turn = true;
                return event;
            }
        }
    }

    /// What is due next, and when, on the dataflow's clock.
    fn next_due(&self) -> Option<(i64, Clocked)> {
        if self.timers.is_empty() && self.expected.is_empty() {
            return None;
        }
        let timers = self.timers.iter().enumerate();
        let timers = timers.filter_map(|(at, timer)| Some((timer.due()?, Clocked::Timer(at))));
        let expected = self.expected.iter().enumerate();
        let expected = expected.filter_map(|(at, it)| Some((it.due()?, Clocked::Expected(at))));
        timers.chain(expected).min_by_key(|(due, _)| *due)
    }

    fn tick(&mut self, at: usize, now: i64, monotonic: u64) -> Option<Event> {
        let Due { input, due, missed } = self.timers[at].take(now)?;
        if let Some(turn) = self
            .loop_deadline
            .as_mut()
            .filter(|turn| turn.input == input)
        {
            turn.tick(due, &self.core.clock, monotonic);
        }
        Some(Event::Tick {
            id: self.names[input].clone(),
            due,
            missed,
        })
    }

    fn stale(&mut self, at: usize, now: i64) -> Option<Event> {
        let input = self.expected[at].input as u32;
        if self.inbox.has_queued(input) {
            self.expected[at].postpone(now);
            return None;
        }
        let Stale { input, age, count } = self.expected[at].take(now);
        self.core.producer.counters.count_stale(input as u32);
        Some(Event::Stale {
            id: self.names[input].clone(),
            age,
            count,
        })
    }

    /// A sample of an input was taken that may be expected every so often.
    fn note_published(&mut self, input: usize, sample: &Sample) {
        if self.expected.is_empty() {
            return;
        }
        if let Some(expected) = self
            .expected
            .iter_mut()
            .find(|expected| expected.input == input)
        {
            // A time that the producer wrote: it may be anything.
            let published = sample
                .header()
                .publish_mono
                .min(sample.raw().received_mono());
            expected.sample(self.core.clock.read(published).1);
        }
    }

    fn arrived(&mut self, arrival: Arrival) -> Option<Event> {
        let Arrival::Sample { input, sample } = arrival else {
            return self.heard(arrival);
        };
        let (input, sample) = (input as usize, Sample::new(sample));
        match self.roles[input] {
            Role::Data => {}
            Role::Answers { client } => {
                self.calls.answer(client, sample);
                return None;
            }
            Role::Requests { service, client } => return self.request(service, client, sample),
        }
        if let Some(turn) = self
            .loop_deadline
            .as_mut()
            .filter(|turn| turn.input == input)
        {
            turn.sample(sample.raw().received_mono());
        }
        self.note_published(input, &sample);
        if let Some(doze) = &mut self.doze {
            doze.arrived(input);
        }
        let newest = &mut self.newest[input];
        if newest.wanted {
            newest.sample = Some(sample.clone());
        }
        Some(Event::Input {
            id: self.names[input].clone(),
            sample,
        })
    }

    /// What arrives besides samples.
    #[cold]
    fn heard(&mut self, arrival: Arrival) -> Option<Event> {
        match arrival {
            Arrival::Sample { .. } => None,
            Arrival::Ended { input } => {
                if let Role::Answers { client } = self.roles[input as usize] {
                    self.calls.server_gone(client);
                }
                None
            }
            Arrival::Closed { input }
                if matches!(self.roles[input as usize], Role::Answers { .. }) =>
            {
                None
            }
            Arrival::Closed { input } => {
                self.expected
                    .iter_mut()
                    .filter(|it| it.input == input as usize)
                    .for_each(Expected::close);
                self.open_inputs -= 1;
                if self.open_inputs == 0 && self.timers.is_empty() {
                    self.stop
                        .get_or_insert_with(|| "all inputs are closed".to_owned());
                }
                if self.roles[input as usize] != Role::Data {
                    return None;
                }
                // The input's own event comes before the stop that follows from it.
                Some(Event::InputClosed {
                    id: self.names[input as usize].clone(),
                })
            }
            Arrival::Misbehaved {
                input,
                edge,
                misbehaviour,
            } => {
                let name = &self.names[input as usize];
                eprintln!("nervure: input {name} is cut off from its producer: {misbehaviour}");
                self.core.tell(&Message::Misbehaviour {
                    edge,
                    what: misbehaviour.to_string(),
                });
                None
            }
            Arrival::Notified => {
                self.absorb();
                None
            }
        }
    }
}

impl Waiter {
    /// Waits for news. One thread at a time may wait, and none while the events are armed.
    pub fn wait(&self, rest: Rest) -> Waited {
        rest.take(|until| self.0.wait(until))
    }

    /// As [`Waiter::wait`], and ends as [`Waited::Interrupted`] when `other` is readable, too. What then comes costs its
    /// producer a write to an eventfd.
    pub fn wait_beside(&self, other: BorrowedFd<'_>, rest: Rest) -> Waited {
        match rest {
            Rest {
                until,
                is_woken: true,
            } => self.0.wait_beside(other, until),
            Rest {
                until,
                is_woken: false,
            } => {
                let timeout = left(until).and_then(|left| left.try_into().ok());
                let interest = PollFd::from_borrowed_fd(other, PollFlags::IN);
                match rustix::event::poll(&mut [interest], timeout.as_ref()) {
                    Ok(0) => Waited::LookAgain,
                    _ => Waited::Interrupted,
                }
            }
        }
    }

    /// Ends the wait of another thread, present or next: news that it waits for may have been taken in by
    /// [`Events::poll`] or [`Events::latest`] of this one.
    pub fn wake(&self) {
        self.0.notify();
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // In a forked child the node is the parent's.
        if self.inbox.belongs_to_this_process() {
            self.core.tell(&Message::Goodbye);
        }
    }
}
