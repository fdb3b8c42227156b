//! A fleet on a virtual clock, with seeds: the store of the coordinator, daemons and leases as they
//! are, on a network that delays, loses and is interrupted, with processes that are killed.
//!
//! Held all along: a run has one keeper at a time on a machine, and none that its machine was not to
//! run; a run that has ended does not start again; no node with `on_partition: stop` runs on a
//! machine whose lease has ended, where its daemon lives. In the end, what is desired is so.

mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nervure_coordinator::Role;
use nervure_coordinator::access::{self, Method};
use nervure_daemon::lease::{Grants, Holder, LIFETIME, Number};
use nervure_daemon::machine::{Action, Daemon, Event, Kept};
use nervure_daemon::state::{
    Actual, ActualRun, Desired, DesiredRun, Phase, RunState, actual_key, change_desired,
    desired_key, parse,
};
use nervure_store::{Clock, Expected, Local, Store};

use random::Random;

const TICK: Duration = Duration::from_millis(50);

/// The longest time that a keeper needs to stop a node, in the simulation.
const STOP: Duration = Duration::from_millis(100);

/// The pause of a daemon between two looks at the store: its watch has no delay here but the
/// network's, and the pause after an error.
const LOOK: Duration = Duration::from_millis(250);

#[derive(Clone)]
struct Virtual(Arc<Mutex<Instant>>);

impl Clock for Virtual {
    fn now(&self) -> Instant {
        *self.0.lock().unwrap()
    }
}

/// A message under way, to a machine or from one.
enum Message {
    /// The desired state is asked for.
    Ask,
    Desired(Kept),
    Report(Actual),
    Renewal(Number),
    Confirmation(Number),
}

struct Machine {
    name: String,
    // Outlives the daemon.
    disk: Kept,
    files: BTreeSet<String>,
    ended: BTreeSet<String>,
    /// The keepers that run, and since when their leased node is to be stopped: `None` if it runs.
    keepers: BTreeMap<String, Keeper>,
    // Of the daemon; `None` while it is dead.
    daemon: Option<Process>,
    is_reachable: bool,
}

struct Keeper {
    id: u32,
    leased: Leased,
}

#[derive(Clone, Copy, PartialEq)]
enum Leased {
    Runs,
    StopsAt(Duration),
    Stopped,
}

struct Process {
    machine: Daemon,
    under_way: Vec<(Action, Duration)>,
    holder: Holder,
    begin: Duration,
    lease: Option<bool>,
    look_at: Duration,
    reported: Option<Actual>,
}

struct World {
    seed: u64,
    random: Random,
    now: Duration,
    clock: Virtual,
    store: Local,
    is_coordinator_up: bool,
    grants: Grants,
    machines: Vec<Machine>,
    /// Arrival, place in the order, machine, whether it goes to the coordinator.
    network: BTreeMap<(Duration, u64), (usize, bool, Message)>,
    sent: u64,
    next: u32,
    /// What a machine was to run at any time.
    intended: BTreeSet<(usize, String)>,
    starts: u32,
}

impl World {
    fn new(seed: u64, machines: usize) -> Self {
        let clock = Virtual(Arc::new(Mutex::new(Instant::now())));
        let machine = |number| Machine {
            name: format!("r{number}"),
            disk: Kept::default(),
            files: BTreeSet::new(),
            ended: BTreeSet::new(),
            keepers: BTreeMap::new(),
            daemon: None,
            is_reachable: true,
        };
        let mut world = Self {
            seed,
            random: Random::new(seed),
            now: Duration::ZERO,
            store: nervure_store::memory_at(clock.clone()),
            clock,
            is_coordinator_up: true,
            grants: Grants::default(),
            machines: (0..machines).map(machine).collect(),
            network: BTreeMap::new(),
            sent: 0,
            next: 0,
            intended: BTreeSet::new(),
            starts: 0,
        };
        (0..machines).for_each(|at| world.start_daemon(at));
        world
    }

    fn send(&mut self, machine: usize, to_coordinator: bool, message: Message) {
        let is_lost = matches!(message, Message::Renewal(_) | Message::Confirmation(_))
            && self.random.one_in(5);
        if is_lost || !self.machines[machine].is_reachable {
            return;
        }
        self.sent += 1;
        let longest = if self.random.one_in(20) { 2000 } else { 60 };
        let delay = Duration::from_millis(1 + self.random.below(longest));
        let place = (self.now + delay, self.sent);
        self.network
            .insert(place, (machine, to_coordinator, message));
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.network.first_entry() {
            if entry.key().0 > self.now {
                return;
            }
            let (at, to_coordinator, message) = entry.remove();
            if !self.machines[at].is_reachable {
                continue;
            }
            match to_coordinator {
                true if self.is_coordinator_up => self.coordinator_receives(at, message),
                true => {}
                false => self.daemon_receives(at, message),
            }
        }
    }

    fn coordinator_receives(&mut self, at: usize, message: Message) {
        let name = self.machines[at].name.clone();
        let may = |method, key: &str| access::check(&name, Role::Robot, method, key).unwrap();
        match message {
            Message::Ask => {
                let key = desired_key(&name);
                may(Method::Get, &key);
                if let Some(entry) = self.store.get(&key).unwrap() {
                    let kept = Kept {
                        revision: entry.revision,
                        desired: parse(&key, &entry.value).unwrap(),
                    };
                    self.send(at, false, Message::Desired(kept));
                }
            }
            Message::Report(actual) => {
                let key = actual_key(&name);
                may(Method::Set, &key);
                let found = self.store.get(&key).unwrap();
                let expected = found.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
                let json = serde_json::to_vec(&actual).unwrap();
                self.store
                    .compare_and_set(&key, expected, Some(&json), None)
                    .unwrap();
            }
            Message::Renewal(number) => {
                self.grants.renewed(&name, self.now);
                self.send(at, false, Message::Confirmation(number));
            }
            Message::Desired(_) | Message::Confirmation(_) => unreachable!(),
        }
    }

    fn daemon_receives(&mut self, at: usize, message: Message) {
        let now = self.now;
        let Some(process) = &mut self.machines[at].daemon else {
            return;
        };
        match message {
            Message::Desired(kept) => self.handle(at, Event::Desired(kept)),
            Message::Confirmation(number) => {
                process.holder.confirm(number, now - process.begin);
            }
            _ => unreachable!(),
        }
    }

    /// Hands an event to a daemon, and carries out its actions.
    fn handle(&mut self, at: usize, event: Event) {
        let machine = &mut self.machines[at];
        let Some(process) = &mut machine.daemon else {
            return;
        };
        if let Event::Lease { is_held } = event {
            process.lease = Some(is_held);
        }
        for action in process.machine.handle(event, self.now - process.begin) {
            match action {
                Action::Keep(kept) => {
                    assert!(kept.revision >= machine.disk.revision, "seed {}", self.seed);
                    machine.disk = kept;
                }
                Action::NoteEnded { run } => drop(machine.ended.insert(run)),
                Action::Remove { run } => {
                    assert!(!machine.keepers.contains_key(&run), "seed {}", self.seed);
                    machine.files.remove(&run);
                    machine.ended.remove(&run);
                }
                Action::Lease { run, .. } => {
                    if let Some(keeper) = machine.keepers.get_mut(&run) {
                        apply(&mut keeper.leased, process.lease, false, self.now);
                    }
                }
                action => {
                    if let Action::Prepare { run, .. } = &action {
                        machine.files.insert(run.clone());
                    }
                    let due = self.now + Duration::from_millis(self.random.below(300));
                    process.under_way.push((action, due));
                }
            }
        }
    }

    /// Steps of a daemon that end now.
    fn proceed(&mut self, at: usize) {
        loop {
            let machine = &mut self.machines[at];
            let Some(process) = &mut machine.daemon else {
                return;
            };
            let now = self.now;
            let ends = |(action, due): &(Action, Duration)| match action {
                Action::Follow { run, keeper } => {
                    let found = machine.keepers.get(run);
                    found.is_none_or(|it| it.id != *keeper)
                }
                _ => *due <= now,
            };
            let Some(place) = process.under_way.iter().position(ends) else {
                return;
            };
            let (action, _) = process.under_way.swap_remove(place);
            match action {
                Action::Prepare { run, .. } => {
                    let result = Ok(());
                    self.handle(at, Event::Prepared { run, result });
                }
                Action::Start { run, .. } | Action::AwaitStart { run } => {
                    let keeper = self.start(at, &run);
                    let result = Ok(keeper);
                    self.handle(
                        at,
                        Event::Started {
                            run: run.clone(),
                            result,
                        },
                    );
                    self.follow(at, run, keeper);
                }
                Action::Follow { run, .. } => {
                    let finished = false;
                    self.handle(at, Event::KeeperGone { run, finished });
                }
                Action::Stop { run } => drop(self.machines[at].keepers.remove(&run)),
                Action::SetPaused { run, is_paused } => {
                    self.handle(at, Event::Paused { run, is_paused });
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn follow(&mut self, at: usize, run: String, keeper: u32) {
        let process = self.machines[at].daemon.as_mut().unwrap();
        process
            .under_way
            .push((Action::Follow { run, keeper }, self.now));
    }

    /// The process that starts a run: it finds a keeper that another has started.
    fn start(&mut self, at: usize, run: &str) -> u32 {
        let seed = self.seed;
        assert!(
            self.intended.contains(&(at, run.to_owned())),
            "seed {seed}: {run} starts, and was never to run"
        );
        let machine = &mut self.machines[at];
        assert!(!machine.ended.contains(run), "seed {seed}: {run} has ended");
        let lease = machine.daemon.as_ref().and_then(|process| process.lease);
        if let Some(keeper) = machine.keepers.get(run) {
            return keeper.id;
        }
        self.next += 1;
        self.starts += 1;
        let mut leased = Leased::Runs;
        // Before the stand-ins join, so that it does not start.
        if lease != Some(true) {
            leased = Leased::Stopped;
        }
        let keeper = Keeper {
            id: self.next,
            leased,
        };
        let other = machine.keepers.insert(run.to_owned(), keeper);
        assert!(other.is_none(), "seed {seed}: {run} runs twice");
        self.next
    }

    fn start_daemon(&mut self, at: usize) {
        self.next += 1;
        let mut process = Process {
            machine: Daemon::default(),
            under_way: Vec::new(),
            holder: Holder::new(u64::from(self.next)),
            begin: self.now,
            lease: None,
            look_at: self.now,
            reported: None,
        };
        // What a killed daemon has begun is not simulated here: `machine.rs` does.
        process.look_at += Duration::from_millis(self.random.below(100));
        self.machines[at].daemon = Some(process);
        for run in self.machines[at].files.clone() {
            let machine = &self.machines[at];
            let event = match machine.keepers.get(&run) {
                Some(keeper) => Event::Found {
                    keeper: keeper.id,
                    run,
                },
                None if machine.ended.contains(&run) => Event::WasEnded { run },
                None => Event::HasFiles { run },
            };
            self.handle(at, event);
        }
        let kept = self.machines[at].disk.clone();
        self.handle(at, Event::Desired(kept));
    }

    fn run_daemon(&mut self, at: usize) {
        self.proceed(at);
        let Some(process) = &mut self.machines[at].daemon else {
            return;
        };
        let own = self.now - process.begin;
        let renewal = process.holder.renewal(own);
        let is_held = process.holder.is_held(own);
        let is_known = is_held || process.lease.is_some() || own > LIFETIME;
        let lease = (is_known && process.lease != Some(is_held)).then_some(is_held);
        let is_due = process.machine.deadline().is_some_and(|at| at <= own);
        let looks = process.look_at <= self.now;
        if looks {
            process.look_at = self.now + LOOK;
        }
        if let Some(is_held) = lease {
            self.handle(at, Event::Lease { is_held });
        }
        if is_due {
            self.handle(at, Event::Tick);
        }
        if let Some(number) = renewal {
            self.send(at, true, Message::Renewal(number));
        }
        if looks {
            self.send(at, true, Message::Ask);
            let actual = self.actual(at);
            let process = self.machines[at].daemon.as_mut().unwrap();
            if process.reported.as_ref() != Some(&actual) || self.random.one_in(20) {
                process.reported = Some(actual.clone());
                self.send(at, true, Message::Report(actual));
            }
        }
    }

    fn actual(&self, at: usize) -> Actual {
        let process = self.machines[at].daemon.as_ref().unwrap();
        let runs = process
            .machine
            .runs()
            .map(|(run, dataflow, state, is_paused)| {
                let actual = ActualRun {
                    dataflow: dataflow.to_owned(),
                    state,
                    is_paused,
                    nodes: BTreeMap::new(),
                    streams: Vec::new(),
                };
                (run.clone(), actual)
            });
        Actual {
            labels: BTreeMap::new(),
            resources: None,
            runs: runs.collect(),
        }
    }

    fn step(&mut self) {
        self.now += TICK;
        *self.clock.0.lock().unwrap() += TICK;
        self.deliver();
        for at in 0..self.machines.len() {
            self.run_daemon(at);
            for keeper in self.machines[at].keepers.values_mut() {
                if let Leased::StopsAt(time) = keeper.leased
                    && time <= self.now
                {
                    keeper.leased = Leased::Stopped;
                }
            }
        }
        self.grants.take_ended(self.now);
        self.check_leases();
    }

    /// Where the daemon lives, its leased nodes have stopped soon after the lease has ended at the
    /// coordinator: before that they may start nowhere else.
    fn check_leases(&mut self) {
        for machine in &self.machines {
            let Some(process) = &machine.daemon else {
                continue;
            };
            let is_new = self.now - process.begin <= LIFETIME + 2 * TICK;
            if is_new || !self.is_coordinator_up || self.grants.is_reachable(&machine.name) {
                continue;
            }
            for (run, keeper) in &machine.keepers {
                assert!(
                    keeper.leased != Leased::Runs,
                    "seed {}: the leased node of {run} runs on {}, which is unreachable",
                    self.seed,
                    machine.name
                );
            }
        }
    }

    /// An operator starts, advances, stops or removes a dataflow of some machines.
    fn operate(&mut self) {
        let all: Vec<Desired> = (0..self.machines.len())
            .map(|at| self.desired(at))
            .collect();
        let runs: BTreeSet<String> = all.iter().flat_map(|it| it.runs.keys().cloned()).collect();
        let runs: Vec<String> = runs.into_iter().collect();
        let pick = self.random.below(runs.len().max(1) as u64) as usize;
        match (self.random.below(5), runs.get(pick)) {
            (0 | 1, _) | (_, None) => {
                self.next += 1;
                let run = format!("run{}", self.next);
                for at in 0..self.machines.len() {
                    if self.random.one_in(2) {
                        self.change(at, |desired| {
                            desired
                                .runs
                                .insert(run.clone(), desired_run(Phase::Prepare));
                        });
                    }
                }
            }
            (2, Some(run)) => self.advance(run, Phase::Stop),
            (3, Some(run)) => {
                for at in 0..self.machines.len() {
                    self.change(at, |desired| drop(desired.runs.remove(run)));
                }
            }
            (_, Some(run)) => self.advance(run, Phase::Run),
        }
    }

    fn advance(&mut self, run: &str, phase: Phase) {
        for at in 0..self.machines.len() {
            self.change(at, |desired| {
                if let Some(run) = desired.runs.get_mut(run)
                    && run.phase != Phase::Stop
                {
                    run.phase = phase;
                }
            });
        }
    }

    fn desired(&self, at: usize) -> Desired {
        let key = desired_key(&self.machines[at].name);
        let entry = self.store.get(&key).unwrap();
        entry.map_or_else(Desired::default, |entry| parse(&key, &entry.value).unwrap())
    }

    fn change(&mut self, at: usize, change: impl Fn(&mut Desired)) {
        change_desired(&self.store, &self.machines[at].name, change).unwrap();
        for (run, desired) in self.desired(at).runs {
            if desired.phase == Phase::Run {
                self.intended.insert((at, run));
            }
        }
    }

    fn fail(&mut self) {
        let at = self.random.below(self.machines.len() as u64) as usize;
        match self.random.below(7) {
            0 | 1 => self.machines[at].is_reachable ^= true,
            2 => self.is_coordinator_up ^= true,
            3 => self.machines[at].daemon = None,
            4 => {
                // A power failure.
                self.machines[at].daemon = None;
                self.machines[at].keepers.clear();
            }
            5 => {
                let runs: Vec<String> = self.machines[at].keepers.keys().cloned().collect();
                let run = runs.get(self.random.below(runs.len().max(1) as u64) as usize);
                run.map(|run| self.machines[at].keepers.remove(run));
            }
            _ => {}
        }
        let dead = (0..self.machines.len()).filter(|at| self.machines[*at].daemon.is_none());
        for at in dead.collect::<Vec<_>>() {
            if self.random.one_in(3) {
                self.start_daemon(at);
            }
        }
    }

    /// Nothing fails any more: what is desired becomes so, and is reported.
    fn check_convergence(&mut self) {
        self.is_coordinator_up = true;
        for at in 0..self.machines.len() {
            self.machines[at].is_reachable = true;
            if self.machines[at].daemon.is_none() {
                self.start_daemon(at);
            }
        }
        // The longest pause of a keeper that was killed again and again is a minute.
        let until = self.now + Duration::from_secs(75);
        while self.now < until && !(0..self.machines.len()).all(|at| self.is_settled(at)) {
            self.step();
        }
        for at in 0..self.machines.len() {
            let name = &self.machines[at].name;
            assert!(
                self.is_settled(at),
                "seed {}: {name}: desired {:#?}, actual {:#?}",
                self.seed,
                self.desired(at),
                self.actual(at)
            );
        }
    }

    fn is_settled(&self, at: usize) -> bool {
        let (desired, actual, machine) = (self.desired(at), self.actual(at), &self.machines[at]);
        let key = actual_key(&machine.name);
        let reported: Option<Actual> = self
            .store
            .get(&key)
            .unwrap()
            .and_then(|entry| parse(&key, &entry.value).ok());
        let is_so = |(run, desired): (&String, &DesiredRun)| {
            let keeper = machine.keepers.get(run);
            let state = actual.runs.get(run).map(|it| &it.state);
            match (desired.phase, state) {
                (Phase::Prepare, Some(RunState::Prepared)) => keeper.is_none(),
                (Phase::Run, Some(RunState::Running { keeper: id })) => {
                    keeper.is_some_and(|it| it.id == *id && it.leased == Leased::Runs)
                }
                (Phase::Stop, Some(RunState::Ended)) => keeper.is_none(),
                _ => false,
            }
        };
        desired.runs.iter().all(is_so)
            && machine
                .keepers
                .keys()
                .all(|run| desired.runs.contains_key(run))
            && machine
                .files
                .iter()
                .all(|run| desired.runs.contains_key(run))
            && reported.as_ref() == Some(&actual)
    }
}

/// What the shell does with nodes with `on_partition: stop`.
fn apply(leased: &mut Leased, lease: Option<bool>, has_just_started: bool, now: Duration) {
    match lease {
        Some(true) => *leased = Leased::Runs,
        None if !has_just_started => {}
        _ if *leased == Leased::Runs => *leased = Leased::StopsAt(now + STOP),
        _ => {}
    }
}

fn desired_run(phase: Phase) -> DesiredRun {
    DesiredRun {
        phase,
        dataflow: "two".to_owned(),
        bundle: String::new(),
        file: "two.yml".to_owned(),
        role: "robot".to_owned(),
        machines: BTreeMap::new(),
        params: Vec::new(),
        variables: Vec::new(),
        is_paused: false,
    }
}

#[test]
fn a_fleet_does_what_is_desired_through_crashes_and_partitions() {
    let seeds = std::env::var("SEEDS").map_or(2000, |seeds| seeds.parse().unwrap());
    let mut starts = 0;
    for seed in 0..seeds {
        let mut world = World::new(seed, 3);
        for _ in 0..300 {
            world.step();
            if world.random.one_in(8) {
                world.operate();
            }
            if world.random.one_in(25) {
                world.fail();
            }
        }
        world.check_convergence();
        starts += world.starts;
    }
    assert!(
        u64::from(starts) > 3 * seeds,
        "{starts} starts: it tests little"
    );
}

#[test]
fn a_thousand_daemons_start_one_dataflow_with_a_bounded_number_of_messages() {
    let mut world = World::new(7, 1000);
    for _ in 0..8 {
        world.step();
    }
    let before = world.sent;
    let begin = world.now;
    for at in 0..1000 {
        world.change(at, |desired| {
            desired
                .runs
                .insert("run".to_owned(), desired_run(Phase::Run));
        });
    }
    while world
        .machines
        .iter()
        .any(|machine| machine.keepers.is_empty())
    {
        world.step();
    }
    let (took, sent) = (world.now - begin, world.sent - before);
    assert_eq!(world.starts, 1000);
    assert!(took < Duration::from_secs(2), "{took:?} of simulated time");
    // Asks and answers every 100 ms here, renewals and their confirmations, and reports.
    assert!(sent < 1000 * 60, "{sent} messages");
}
