//! The fleet: machines, coordinator and network on a virtual clock, by events in the order of time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use nervure_coordinator::{LINKS, Role};
use nervure_daemon::by_hand::ByHand;
use nervure_daemon::lease::{LIFETIME, Number};
use nervure_daemon::machine::{Action, Event, Kept};
use nervure_daemon::state::{ActualProgram, Desired, ProgramState, parse};
use nervure_protocol::daemon_to_cli::NodeState;
use nervure_store::{Backup, Entry, Epoch, Revision};

use crate::client::{Answer, Call, Thread, WATCH, Watcher};
use crate::coordinator::{Caller, Coordinator, Reply, Virtual};
use crate::machine::{Keeper, Machine, Process, Write};
use crate::operator::Operator;

/// An event of the simulation.
pub enum Happening {
    Call(Caller, Call),
    Answer(Caller, Answer),
    Renewal(usize, Number),
    Confirmation(usize, Number),
    /// A machine's lease may have ended at the coordinator.
    Grants,
    WatchEnds(String, u64),
    /// Of the process of a machine.
    Wake(usize, u32),
    Done(usize, u32, Action),
    Written(usize, u32),
    /// A process that starts a keeper has come to its end.
    Started(usize, String, u32),
    NodeStarted(usize, String, u32, usize),
    /// A daemon reads the order of its machine's user for a run.
    ReadByHand(usize, u32, String),
}

/// The delays of the network.
#[derive(Clone, Copy)]
pub struct Delays {
    pub most_millis: u64,
    /// One message in 20 takes up to this.
    pub rarely_millis: u64,
    /// One of this many datagrams is lost; 0 means that none is.
    pub lost: u64,
}

/// Messages and their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    pub calls: u64,
    pub bytes: u64,
    pub renewals: u64,
}

pub struct World {
    pub seed: u64,
    pub random: Rng,
    pub now: Duration,
    pub coordinator: Coordinator,
    pub machines: Vec<Machine>,
    pub operator: Operator,
    /// Messages in both directions, by machine.
    pub traffic: Vec<Traffic>,
    pub starts: u32,
    /// Nodes of each run on each machine.
    pub nodes: usize,
    /// Whether the users of machines give orders there.
    pub has_users: bool,
    next: u32,
    clock: Virtual,
    delays: Delays,
    /// Whether a next check of the leases is queued.
    awaits_grants: bool,
    queue: BTreeMap<(Duration, u64), Happening>,
    queued: u64,
    /// Messages that wait for the network, by machine.
    held: Vec<Vec<Happening>>,
}

impl World {
    pub fn new(seed: u64, machines: usize, delays: Delays) -> Self {
        let clock = Virtual(Arc::new(Mutex::new(Instant::now())));
        let role = |number| match number {
            0 => Role::Operator,
            _ => Role::Robot,
        };
        let machine = |number| Machine::new(format!("r{number}"), role(number));
        Self {
            seed,
            random: Rng::with_seed(seed),
            now: Duration::ZERO,
            coordinator: Coordinator::new(clock.clone()),
            machines: (0..machines).map(machine).collect(),
            operator: Operator::default(),
            traffic: vec![Traffic::default(); machines],
            starts: 0,
            nodes: 1,
            has_users: false,
            next: 0,
            clock,
            delays,
            awaits_grants: false,
            queue: BTreeMap::new(),
            queued: 0,
            held: (0..machines).map(|_| Vec::new()).collect(),
        }
    }

    pub fn draw_number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// Lets everything happen that is due until a time.
    pub fn run_to(&mut self, until: Duration) {
        while let Some(entry) = self.queue.first_entry().filter(|it| it.key().0 <= until) {
            let ((at, _), happening) = entry.remove_entry();
            self.set_time(at);
            self.happen(happening);
        }
        self.set_time(until);
    }

    fn set_time(&mut self, at: Duration) {
        *self.clock.0.lock().unwrap() += at - self.now;
        self.now = at;
    }

    pub fn after(&mut self, delay: Duration, happening: Happening) {
        self.queued += 1;
        self.queue
            .insert((self.now + delay, self.queued), happening);
    }

    fn happen(&mut self, happening: Happening) {
        if let Some(at) = crosses(&happening)
            && !self.machines[at].is_reachable
        {
            // TCP repeats; datagrams are lost.
            if !matches!(
                happening,
                Happening::Renewal(..) | Happening::Confirmation(..)
            ) {
                self.held[at].push(happening);
            }
            return;
        }
        match happening {
            Happening::Call(caller, call) => self.coordinator_receives(caller, call),
            Happening::Answer(caller, answer) => self.receive(&caller, answer),
            Happening::Renewal(at, number) => {
                if self.coordinator.is_up {
                    let name = self.machines[at].name.clone();
                    self.coordinator.grants.renewed(&name, self.now);
                    if !self.awaits_grants {
                        self.await_grants();
                    }
                    self.send_datagram(at, Happening::Confirmation(at, number));
                }
            }
            Happening::Confirmation(at, number) => {
                let now = self.now;
                if let Some(process) = &mut self.machines[at].daemon {
                    process.holder.confirm(number, now - process.begin);
                    self.run_daemon(at);
                }
            }
            Happening::Grants => {
                self.awaits_grants = false;
                if !self.coordinator.grants.take_ended(self.now).is_empty() {
                    (0..self.machines.len()).for_each(|at| self.check_lease(at));
                }
                self.await_grants();
            }
            Happening::WatchEnds(place, number) => {
                let replies = self.coordinator.end_watch(&place, number, self.now);
                self.reply(replies);
            }
            Happening::Wake(at, process) => {
                if self.is_process(at, process) {
                    self.daemon(at).wakes_at = None;
                    self.run_daemon(at);
                }
            }
            Happening::Done(at, process, action) => {
                if self.is_process(at, process) {
                    self.done(at, action);
                    self.run_daemon(at);
                }
            }
            Happening::Written(at, process) => {
                if self.is_process(at, process) {
                    self.written(at);
                    self.run_daemon(at);
                }
            }
            Happening::Started(at, run, starter) => self.keeper_starts(at, &run, starter),
            Happening::ReadByHand(at, process, run) => {
                if self.is_process(at, process) {
                    let order = self.machines[at].by_hand(&run);
                    self.handle(at, Event::ByHand { run, order });
                    self.run_daemon(at);
                }
            }
            Happening::NodeStarted(at, run, keeper, node) => {
                if let Some(it) = self.machines[at].keepers.get_mut(&run)
                    && it.id == keeper
                {
                    it.nodes.insert(node_name(at, node), NodeState::Running);
                    if let Some(process) = &mut self.machines[at].daemon {
                        process.has_changed = true;
                    }
                    self.run_daemon(at);
                }
            }
        }
    }

    /// Looks at the leases again when the next one may have ended.
    fn await_grants(&mut self) {
        let next = self
            .coordinator
            .grants
            .deadline()
            .filter(|_| !self.awaits_grants);
        if let Some(at) = next {
            self.awaits_grants = true;
            self.after(at.saturating_sub(self.now), Happening::Grants);
        }
    }

    fn is_process(&self, at: usize, process: u32) -> bool {
        let daemon = self.machines[at].daemon.as_ref();
        daemon.is_some_and(|it| it.id == process)
    }

    fn daemon(&mut self, at: usize) -> &mut Process {
        self.machines[at].daemon.as_mut().unwrap()
    }

    // The network.

    fn delay(&mut self) -> Duration {
        let Delays {
            most_millis,
            rarely_millis,
            ..
        } = self.delays;
        let most = match self.random.u64(..20) == 0 {
            true => rarely_millis,
            false => most_millis,
        };
        Duration::from_micros(500 + self.random.u64(..most * 1000))
    }

    fn send_datagram(&mut self, at: usize, happening: Happening) {
        self.traffic[at].renewals += 1;
        let is_lost = self.delays.lost != 0 && self.random.u64(..self.delays.lost) == 0;
        let delay = self.delay();
        if !is_lost && self.machines[at].is_reachable {
            self.after(delay, happening);
        }
    }

    pub fn call(&mut self, caller: Caller, call: Call) {
        self.count(&caller, call.bytes());
        let delay = self.delay();
        self.after(delay, Happening::Call(caller, call));
    }

    fn reply(&mut self, replies: Vec<Reply>) {
        for Reply { to, answer, at } in replies {
            self.count(&to, answer.bytes());
            let delay = self.delay();
            self.after(at - self.now + delay, Happening::Answer(to, answer));
        }
    }

    fn count(&mut self, caller: &Caller, bytes: u64) {
        let traffic = match caller.machine {
            Some(at) => &mut self.traffic[at],
            None => &mut self.operator.traffic,
        };
        traffic.calls += 1;
        traffic.bytes += bytes;
    }

    /// A machine can be reached from now on, or not any more.
    pub fn set_reachable(&mut self, at: usize, is_reachable: bool) {
        self.machines[at].is_reachable = is_reachable;
        if is_reachable {
            for happening in std::mem::take(&mut self.held[at]) {
                let delay = self.delay();
                self.after(delay, happening);
            }
        }
    }

    fn coordinator_receives(&mut self, caller: Caller, call: Call) {
        if !self.coordinator.is_up {
            return self.reply(vec![Reply {
                to: caller,
                answer: Answer::Unavailable,
                at: self.now,
            }]);
        }
        if self.coordinator.busy_until > self.now {
            let wait = self.coordinator.busy_until - self.now;
            return self.after(wait, Happening::Call(caller, call));
        }
        let (replies, waits) = self.coordinator.call(caller, call, self.now);
        if let Some((place, number)) = waits {
            self.after(WATCH, Happening::WatchEnds(place, number));
        }
        self.reply(replies);
    }

    /// The operator's command has changed a key on the coordinator's own machine.
    pub fn notify(&mut self, key: &str) {
        let replies = self.coordinator.notify(key, self.now);
        self.reply(replies);
    }

    /// The coordinator is killed. Connections end, unless its machine has failed as well.
    pub fn stop_coordinator(&mut self, with_machine: bool) {
        let callers = self.coordinator.stop();
        if !with_machine {
            let now = self.now;
            let reset = |to| Reply {
                to,
                answer: Answer::Unavailable,
                at: now,
            };
            self.reply(callers.into_iter().map(reset).collect());
        }
    }

    pub fn start_coordinator(&mut self) {
        self.coordinator.start(self.now);
    }

    /// The coordinator is killed, and started with a store that comes back from a backup.
    pub fn restore_coordinator(&mut self, backup: Backup) {
        self.stop_coordinator(false);
        self.coordinator.start_with(backup, self.now);
    }

    fn run_operator(&mut self) {
        let Some((number, call)) = self.operator.call(self.now) else {
            return;
        };
        if let Some(at) = self.operator.intends() {
            let run = self.operator.run().to_owned();
            self.machines[at].intended.insert(run);
        }
        let caller = Caller {
            machine: None,
            name: self.machines[0].name.clone(),
            role: Role::Operator,
            process: 0,
            thread: Thread::Writer,
            number,
        };
        self.call(caller, call);
    }

    /// Begins `nervure start` on these machines.
    pub fn begin_start(&mut self, run: &str, machines: std::ops::Range<usize>) {
        let names = self.machines[machines.clone()].iter();
        let names = names.map(|it| it.name.clone()).collect();
        let nodes = self.nodes;
        self.operator.begin(run, machines.start, names, nodes);
        self.run_operator();
    }

    fn receive(&mut self, caller: &Caller, answer: Answer) {
        let now = self.now;
        let Some(at) = caller.machine else {
            self.operator.answer(caller.number, answer, now);
            return self.run_operator();
        };
        if !self.is_process(at, caller.process) {
            return;
        }
        let process = self.daemon(at);
        if caller.thread == Thread::Writer {
            process.writer.answer(caller.number, &answer, now);
            process.has_changed = true;
        } else {
            let mut watchers = process.watchers.iter_mut();
            let (_, watcher) = watchers.find(|it| it.0 == caller.thread).unwrap();
            let state = match &answer {
                Answer::Listing(state, _) | Answer::Changes(state, _) => *state,
                _ => Default::default(),
            };
            let is_listing = matches!(answer, Answer::Listing(..));
            let entries = watcher.answer(caller.number, answer, now);
            match caller.thread {
                Thread::Desired => self.take_desired(at, state.0, is_listing, &entries),
                Thread::Links => {
                    let names = entries
                        .into_iter()
                        .map(|it| it.key[LINKS.len()..].to_owned());
                    process.peers.extend(names);
                }
                _ => {}
            }
        }
        self.run_daemon(at);
    }

    fn take_desired(&mut self, at: usize, epoch: Epoch, is_listing: bool, entries: &[Entry]) {
        let kept = |revision, desired| Kept {
            epoch,
            revision,
            desired,
            held: BTreeMap::new(),
        };
        for entry in entries {
            let desired = parse(&entry.key, &entry.value).unwrap();
            self.handle(at, Event::Desired(kept(entry.revision, desired)));
        }
        if is_listing && entries.is_empty() {
            let nothing = kept(Revision(0), Desired::default());
            self.handle(at, Event::Desired(nothing));
        }
    }

    // A daemon.

    pub fn start_daemon(&mut self, at: usize) {
        let id = self.draw_number();
        let process = Process::new(id, &self.machines[at].name, self.now);
        self.machines[at].daemon = Some(process);
        for (run, folder) in self.machines[at].disk.runs.clone() {
            let machine = &self.machines[at];
            let by_hand = Event::ByHand {
                run: run.clone(),
                order: folder.by_hand,
            };
            let event = match machine.keepers.get(&run) {
                Some(keeper) => Event::Found {
                    keeper: keeper.id,
                    run,
                },
                None if machine.starting.contains_key(&run) => Event::WasStarting { run },
                None if folder.has_ended || machine.noted.contains(&run) => Event::WasEnded { run },
                None if folder.by_hand == Some(ByHand::Stopped) => Event::WasEnded { run },
                None => Event::HasFiles { run },
            };
            self.handle(at, event);
            self.handle(at, by_hand);
        }
        let kept = self.machines[at].disk.kept.clone();
        self.handle(at, Event::Desired(kept));
        self.run_daemon(at);
    }

    /// kill -9. A write that is under way may have reached the disk.
    pub fn kill_daemon(&mut self, at: usize) {
        if let Some(mut process) = self.machines[at].daemon.take()
            && let Some(write) = process.writes.pop_front()
            && self.random.bool()
        {
            let machine = &mut self.machines[at];
            machine.write(&write);
            machine.is_over.extend(machine.ended_by(&write));
        }
    }

    pub fn fail_power(&mut self, at: usize) {
        self.kill_daemon(at);
        self.machines[at].keepers.clear();
        self.machines[at].noted.clear();
        self.machines[at].starting.clear();
    }

    /// The user of a machine stops or pauses a run there, or lets it go on.
    pub fn order_by_hand(&mut self, at: usize, run: &str, order: Option<ByHand>) {
        let machine = &mut self.machines[at];
        let folder = machine.disk.runs.get_mut(run).unwrap();
        if folder.by_hand == Some(ByHand::Stopped) {
            return;
        }
        folder.by_hand = order;
        if order == Some(ByHand::Stopped) {
            let is_over = machine.has_run.contains(run).then(|| run.to_owned());
            machine.is_over.extend(is_over);
            self.end_keeper(at, run, true);
        }
        if let Some(process) = &self.machines[at].daemon {
            let reads = Happening::ReadByHand(at, process.id, run.to_owned());
            let delay = Duration::from_millis(self.random.u64(..300));
            self.after(delay, reads);
        }
    }

    /// A keeper ends: killed, or because its nodes have ended.
    pub fn end_keeper(&mut self, at: usize, run: &str, finished: bool) {
        let Some(keeper) = self.machines[at].keepers.remove(run) else {
            return;
        };
        if finished {
            self.machines[at].noted.insert(run.to_owned());
        }
        let Some(process) = &mut self.machines[at].daemon else {
            return;
        };
        if process.follows.get(run) == Some(&keeper.id) {
            process.follows.remove(run);
            let run = run.to_owned();
            self.handle(at, Event::KeeperGone { run, finished });
            self.run_daemon(at);
        }
    }

    /// Hands an event to a daemon, and begins its actions.
    fn handle(&mut self, at: usize, event: Event) {
        let now = self.now;
        let process = self.daemon(at);
        process.has_changed = true;
        let actions = process.machine.handle(event, now - process.begin);
        for action in actions {
            self.perform(at, action);
        }
    }

    fn perform(&mut self, at: usize, action: Action) {
        let id = self.daemon(at).id;
        match action {
            Action::ReportOldStore { .. } => {}
            Action::Keep(kept) => self.write(at, Write::Keep(kept)),
            Action::NoteEnded { run } => self.write(at, Write::NoteEnded(run)),
            Action::Clear { run } => self.write(at, Write::Clear(run)),
            Action::Remove { run } => self.write(at, Write::Remove(run)),
            Action::Lease { run, .. } => self.apply_lease(at, &run, false),
            Action::Follow { run, keeper } => self.follow(at, run, keeper, false),
            Action::AwaitStart { run } => drop(self.daemon(at).awaits.insert(run)),
            Action::Start { run, .. } => {
                self.daemon(at).awaits.insert(run.clone());
                // It finds the process that another daemon has begun.
                if !self.machines[at].starting.contains_key(&run) {
                    let starter = self.draw_number();
                    self.machines[at].starting.insert(run.clone(), starter);
                    let delay = Duration::from_millis(self.random.u64(..300));
                    self.after(delay, Happening::Started(at, run, starter));
                }
            }
            action => {
                if let Action::SetPaused { run, is_paused } = &action {
                    let wanted = &mut self.daemon(at).wanted_pauses;
                    wanted.insert(run.clone(), *is_paused);
                }
                let delay = Duration::from_millis(self.random.u64(..300));
                self.after(delay, Happening::Done(at, id, action));
            }
        }
    }

    fn done(&mut self, at: usize, action: Action) {
        match action {
            Action::Prepare { run, .. } => {
                let is_prepared = self.machines[at].prepare(&run);
                let result = is_prepared.then_some(()).ok_or("no space left".to_owned());
                self.handle(at, Event::Prepared { run, result });
            }
            Action::Stop { run } => self.end_keeper(at, &run, true),
            Action::SetPrograms {
                run,
                keeper,
                desired,
            } => {
                let mut programs = BTreeMap::new();
                for (node, program) in &desired.programs {
                    let version = program.version.clone();
                    // Its bundle is fetched, and may be refused for now.
                    let can_be = self.machines[at].is_reachable && self.random.u64(..4) != 0;
                    let found = self.machines[at].keepers.get_mut(&run);
                    let found = found.filter(|it| it.id == keeper && can_be);
                    let state = match found {
                        Some(keeper) => {
                            keeper.version.clone_from(&version);
                            ProgramState::InPlace
                        }
                        None => ProgramState::Failed {
                            reason: "the coordinator cannot be reached".to_owned(),
                            is_tried_again: true,
                        },
                    };
                    programs.insert(node.clone(), ActualProgram { version, state });
                }
                self.handle(at, Event::ProgramsSet { run, programs });
            }
            // The last of several holds.
            Action::SetPaused { run, .. } => {
                let is_paused = self.daemon(at).wanted_pauses[&run];
                self.handle(at, Event::Paused { run, is_paused });
            }
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, at: usize, write: Write) {
        let process = self.daemon(at);
        let id = process.id;
        process.writes.push_back(write);
        if process.writes.len() == 1 {
            self.begin_write(at, id);
        }
    }

    fn begin_write(&mut self, at: usize, process: u32) {
        let millis = self.random.u64(..self.machines[at].disk.write_millis);
        let delay = Duration::from_millis(millis);
        self.after(delay, Happening::Written(at, process));
    }

    fn written(&mut self, at: usize) {
        let process = self.daemon(at);
        let (id, write) = (process.id, process.writes.pop_front().unwrap());
        if !process.writes.is_empty() {
            self.begin_write(at, id);
        }
        let is_durable = self.machines[at].write(&write);
        match write {
            Write::Keep(kept) => self.handle(at, Event::Kept { kept, is_durable }),
            Write::NoteEnded(run) => {
                let machine = &mut self.machines[at];
                let ended = machine.ended_by(&Write::NoteEnded(run.clone()));
                assert!(
                    ended.is_none() || is_durable,
                    "the end of {run} is not on disk"
                );
                machine.is_over.extend(ended);
                self.handle(at, Event::EndNoted { run });
            }
            Write::Clear(_) | Write::Remove(_) => {}
        }
    }

    /// The end of a process that starts a keeper, which does not need the daemon.
    fn keeper_starts(&mut self, at: usize, run: &str, starter: u32) {
        let seed = self.seed;
        if self.machines[at].starting.get(run) != Some(&starter) {
            return;
        }
        self.machines[at].starting.remove(run);
        let fails = self.machines[at].disk.is_full && self.random.bool();
        let id = self.draw_number();
        let machine = &mut self.machines[at];
        let known = machine.keepers.get(run).map(|keeper| keeper.id);
        let is_stopped = known.is_none() && machine.by_hand(run) == Some(ByHand::Stopped);
        if !fails && known.is_none() && !is_stopped {
            assert!(
                machine.intended.contains(run),
                "seed {seed}: {run} starts, and was never to run"
            );
            assert!(
                !machine.is_over.contains(run),
                "seed {seed}: {run} has ended, and starts again"
            );
            assert!(
                !machine.noted.contains(run),
                "seed {seed}: {run} has ended as its keeper has noted, and starts again"
            );
            machine.has_run.insert(run.to_owned());
            let keeper = Keeper {
                id,
                // Before the stand-ins have joined.
                leased_runs: false,
                nodes: BTreeMap::new(),
                version: String::new(),
            };
            machine.keepers.insert(run.to_owned(), keeper);
            self.starts += 1;
        }
        let Some(process) = &mut self.machines[at].daemon else {
            return;
        };
        if !process.awaits.remove(run) {
            return;
        }
        if is_stopped {
            let run = run.to_owned();
            self.handle(at, Event::WasEnded { run });
            return self.run_daemon(at);
        }
        let result = match (known, fails) {
            (Some(known), _) => Ok(known),
            (None, false) => Ok(id),
            (None, true) => Err("no space left".to_owned()),
        };
        let keeper = result.clone();
        if keeper.is_ok() {
            // Before the stand-ins join.
            self.apply_lease(at, run, true);
        }
        self.handle(
            at,
            Event::Started {
                run: run.to_owned(),
                result,
            },
        );
        if let Ok(keeper) = keeper {
            self.follow(at, run.to_owned(), keeper, true);
        }
        self.run_daemon(at);
    }

    fn follow(&mut self, at: usize, run: String, keeper: u32, just_started: bool) {
        let found = self.machines[at].keepers.get(&run);
        if found.is_none_or(|it| it.id != keeper) {
            let finished = self.machines[at].noted.contains(&run);
            return self.handle(at, Event::KeeperGone { run, finished });
        }
        let has_joined = !found.unwrap().nodes.is_empty();
        let process = self.daemon(at);
        process.has_changed = true;
        process.follows.insert(run.clone(), keeper);
        if has_joined {
            return;
        }
        // The stand-ins join, and with that the nodes start.
        let names = (0..self.nodes).map(|node| (node_name(at, node), NodeState::Waiting));
        let lease = self.daemon(at).lease;
        let found = self.machines[at].keepers.get_mut(&run).unwrap();
        found.nodes = names.collect();
        found.leased_runs = found.leased_runs || (lease != Some(false) && !just_started);
        for node in 0..self.nodes {
            let delay = Duration::from_millis(20 + self.random.u64(..180));
            self.after(delay, Happening::NodeStarted(at, run.clone(), keeper, node));
        }
    }

    /// Applies the lease to nodes with `on_partition: stop`, as the shell does.
    fn apply_lease(&mut self, at: usize, run: &str, has_just_started: bool) {
        let lease = self.daemon(at).lease;
        let Some(keeper) = self.machines[at].keepers.get_mut(run) else {
            return;
        };
        match lease {
            Some(is_held) => keeper.leased_runs = is_held,
            None if has_just_started && keeper.nodes.is_empty() => keeper.leased_runs = false,
            None => {}
        }
    }

    /// Runs the work that is due in a daemon.
    fn run_daemon(&mut self, at: usize) {
        let now = self.now;
        let Some(process) = &mut self.machines[at].daemon else {
            return;
        };
        let own = now - process.begin;
        let lease = process.take_lease(now);
        let renewal = process.holder.renewal(own);
        let is_due = process.machine.deadline().is_some_and(|at| at <= own);
        if let Some(is_held) = lease {
            self.handle(at, Event::Lease { is_held });
        }
        if is_due {
            self.handle(at, Event::Tick);
        }
        if let Some(number) = renewal {
            self.send_datagram(at, Happening::Renewal(at, number));
        }
        self.make_calls(at);
        let process = self.daemon(at);
        let wakes_at = process.deadline(now).max(now + Duration::from_micros(1));
        if process.wakes_at.is_none_or(|known| wakes_at < known) {
            process.wakes_at = Some(wakes_at);
            let id = process.id;
            self.after(wakes_at - now, Happening::Wake(at, id));
        }
        self.check_lease(at);
    }

    fn make_calls(&mut self, at: usize) {
        let now = self.now;
        let machine = &mut self.machines[at];
        let process = machine.daemon.as_mut().unwrap();
        let writes = process.has_changed && process.writer.is_to_call(now);
        let is_due = |watcher: &Watcher| watcher.deadline() <= now;
        if !writes && !process.watchers.iter().any(|(_, it)| is_due(it)) {
            return;
        }
        let mut calls = Vec::new();
        for (thread, watcher) in &mut process.watchers {
            calls.extend(watcher.call(now).map(|call| (*thread, call)));
        }
        if writes {
            let actual = process.actual(&machine.keepers);
            let call = process.writer.call(&actual, now);
            // After an error it pauses.
            process.has_changed = call.is_none() && !process.writer.has_written(&actual);
            calls.extend(call.map(|call| (Thread::Writer, call)));
        }
        let caller = Caller {
            machine: Some(at),
            name: machine.name.clone(),
            role: machine.role,
            process: process.id,
            thread: Thread::Writer,
            number: 0,
        };
        for (thread, (number, call)) in calls {
            let caller = Caller {
                thread,
                number,
                ..caller.clone()
            };
            self.call(caller, call);
        }
    }

    /// Where the daemon lives, its leased nodes have stopped when the lease has ended at the
    /// coordinator: from then on they may start elsewhere.
    fn check_lease(&mut self, at: usize) {
        let machine = &self.machines[at];
        let Some(process) = &machine.daemon else {
            return;
        };
        let is_new = self.now - process.begin <= LIFETIME + Duration::from_millis(2);
        let is_reachable = self.coordinator.grants.is_reachable(&machine.name);
        if is_new || !self.coordinator.is_up || is_reachable {
            return;
        }
        for (run, keeper) in &machine.keepers {
            assert!(
                !keeper.leased_runs,
                "seed {}: the leased node of {run} runs on {}, which is unreachable",
                self.seed, machine.name
            );
        }
    }
}

/// The machine whose network a message takes.
fn crosses(happening: &Happening) -> Option<usize> {
    match happening {
        Happening::Call(caller, _) | Happening::Answer(caller, _) => caller.machine,
        Happening::Renewal(at, _) | Happening::Confirmation(at, _) => Some(*at),
        _ => None,
    }
}

pub fn node_name(machine: usize, node: usize) -> String {
    format!("node-{machine}-{node}")
}
