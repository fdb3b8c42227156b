//! The daemon's state machine on a virtual clock, with seeds: the coordinator is away, daemons and
//! keepers are killed at any time, revisions arrive late and again, and the machine's own user stops and
//! pauses runs.

mod desired;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;
use nervure_daemon::by_hand::ByHand;
use nervure_daemon::machine::{Action, Daemon, Event, Kept};
use nervure_daemon::state::{
    ActualProgram, Desired, DesiredProgram, Phase, ProgramState, RunState,
};
use nervure_store::{Epoch, Revision};

use desired::desired_run;

/// A machine: state that outlives its daemon, and the actions that the daemon has under way.
#[derive(Default)]
struct World {
    // Outlives the daemon.
    disk: Kept,
    files: BTreeSet<String>,
    ended: BTreeSet<String>,
    /// The orders of the machine's user, by run.
    by_hand: BTreeMap<String, ByHand>,
    keepers: BTreeMap<String, u32>,
    /// Whether each run was last to be paused, by this daemon.
    wanted_pauses: BTreeMap<String, bool>,
    /// Whether each keeper is paused.
    paused: BTreeMap<u32, bool>,
    /// The version of the program that the node of each keeper runs.
    versions: BTreeMap<u32, String>,
    next_keeper: u32,
    /// Number of starts of each run.
    starts: BTreeMap<String, u32>,
    kills: BTreeMap<String, u32>,
    // Of the daemon.
    daemon: Daemon,
    under_way: Vec<Action>,
    /// Runs with an order by hand that the daemon has not read yet.
    unread: Vec<String>,
    now: Duration,
}

impl World {
    fn handle(&mut self, event: Event) {
        for action in self.daemon.handle(event, self.now) {
            match action {
                Action::Keep(kept) => {
                    assert!(
                        kept.revision >= self.disk.revision,
                        "an old state replaces a new one"
                    );
                    self.disk = kept.clone();
                    let is_durable = true;
                    self.handle(Event::Kept { kept, is_durable });
                }
                Action::NoteEnded { run } => {
                    self.ended.insert(run.clone());
                    self.handle(Event::EndNoted { run });
                }
                Action::Remove { run } => {
                    assert!(
                        !self.keepers.contains_key(&run),
                        "{run} runs, and its files are removed"
                    );
                    self.files.remove(&run);
                    self.ended.remove(&run);
                    self.by_hand.remove(&run);
                }
                Action::Prepare { ref run, .. } => {
                    self.files.insert(run.clone());
                    self.under_way.push(action);
                }
                Action::SetPaused { ref run, is_paused } => {
                    self.wanted_pauses.insert(run.clone(), is_paused);
                    self.under_way.push(action);
                }
                action => self.under_way.push(action),
            }
        }
    }

    /// Completes one of the actions that the daemon waits for.
    fn proceed(&mut self, random: &mut Rng) {
        if self.under_way.is_empty() || random.u64(..4) == 0 {
            return self.read_order();
        }
        let at = random.usize(..self.under_way.len());
        match self.under_way[at].clone() {
            Action::Prepare { run, .. } => {
                self.under_way.swap_remove(at);
                self.handle(Event::Prepared {
                    run,
                    result: Ok(()),
                });
            }
            Action::Start { run, .. } | Action::AwaitStart { run } => {
                self.under_way.swap_remove(at);
                let Some(keeper) = self.start(&run) else {
                    return self.handle(Event::WasEnded { run });
                };
                self.handle(Event::Started {
                    run: run.clone(),
                    result: Ok(keeper),
                });
                self.under_way.push(Action::Follow { run, keeper });
            }
            Action::Follow { run, keeper } => {
                if self.keepers.get(&run) != Some(&keeper) {
                    self.under_way.swap_remove(at);
                    let finished = self.is_stopped(&run);
                    self.handle(Event::KeeperGone { run, finished });
                }
            }
            Action::Stop { run } => {
                self.under_way.swap_remove(at);
                self.keepers.remove(&run);
            }
            Action::SetPrograms {
                run,
                keeper,
                desired,
            } => {
                self.under_way.swap_remove(at);
                let mut set = |(node, program): (&String, &DesiredProgram)| {
                    let version = program.version.clone();
                    let fails = random.u64(..4) == 0 || self.keepers.get(&run) != Some(&keeper);
                    let state = match fails {
                        true => ProgramState::Failed {
                            reason: "the coordinator cannot be reached".to_owned(),
                            is_tried_again: true,
                        },
                        false => ProgramState::InPlace,
                    };
                    if !fails {
                        self.versions.insert(keeper, version.clone());
                    }
                    (node.clone(), ActualProgram { version, state })
                };
                let programs = desired.programs.iter().map(&mut set).collect();
                self.handle(Event::ProgramsSet { run, programs });
            }
            Action::SetPaused { run, .. } => {
                self.under_way.swap_remove(at);
                let is_paused = self.wanted_pauses[&run];
                if let Some(keeper) = self.keepers.get(&run) {
                    self.paused.insert(*keeper, is_paused);
                    self.handle(Event::Paused { run, is_paused });
                }
            }
            other => panic!("{other:?}"),
        }
    }

    /// The process that starts a run: it finds a keeper that another has started, and starts none of a
    /// run that the user has stopped.
    fn start(&mut self, run: &str) -> Option<u32> {
        assert!(
            !self.ended.contains(run),
            "{run} has ended, and is started again"
        );
        if let Some(keeper) = self.keepers.get(run) {
            return Some(*keeper);
        }
        if self.is_stopped(run) {
            return None;
        }
        self.next_keeper += 1;
        *self.starts.entry(run.to_owned()).or_default() += 1;
        self.keepers.insert(run.to_owned(), self.next_keeper);
        Some(self.next_keeper)
    }

    fn is_stopped(&self, run: &str) -> bool {
        self.by_hand.get(run) == Some(&ByHand::Stopped)
    }

    /// The user stops or pauses a run, or lets it go on, with or without the daemon: the order is on disk,
    /// the keeper gets it, and the daemon reads it later.
    fn order_by_hand(&mut self, random: &mut Rng) {
        let runs: Vec<_> = self.files.iter().cloned().collect();
        if runs.is_empty() {
            return;
        }
        let run = runs[random.usize(..runs.len())].clone();
        if self.is_stopped(&run) {
            return;
        }
        let keeper = self.keepers.get(&run).copied();
        match random.u64(..3) {
            0 => {
                self.by_hand.insert(run.clone(), ByHand::Stopped);
                self.keepers.remove(&run);
            }
            1 => {
                self.by_hand.insert(run.clone(), ByHand::Paused);
                self.paused.extend(keeper.map(|keeper| (keeper, true)));
            }
            _ => drop(self.by_hand.remove(&run)),
        }
        self.unread.push(run);
    }

    fn read_order(&mut self) {
        if let Some(run) = self.unread.pop() {
            let order = self.by_hand.get(&run).copied();
            self.handle(Event::ByHand { run, order });
        }
    }

    fn kill_keeper(&mut self, random: &mut Rng) {
        let runs: Vec<_> = self.keepers.keys().cloned().collect();
        if !runs.is_empty() {
            let run = &runs[random.usize(..runs.len())];
            self.keepers.remove(run);
            *self.kills.entry(run.clone()).or_default() += 1;
        }
    }

    /// kill -9 of the daemon, and the next one. A start that was under way may still succeed, before
    /// the next daemon looks around or after.
    fn restart_daemon(&mut self, random: &mut Rng) {
        let begun: Vec<Action> = std::mem::take(&mut self.under_way);
        let mut late = Vec::new();
        for action in begun {
            if let Action::Start { run, .. } | Action::AwaitStart { run } = action {
                match random.u64(..3) {
                    0 => drop(self.start(&run)),
                    1 => late.push(run),
                    _ => {}
                }
            }
        }
        self.daemon = Daemon::default();
        self.now = Duration::ZERO;
        self.unread.clear();
        for run in self.files.clone() {
            let keeper = self.keepers.get(&run).copied();
            let has_ended = self.ended.contains(&run) || self.is_stopped(&run);
            let order = self.by_hand.get(&run).copied();
            let by_hand = Event::ByHand {
                run: run.clone(),
                order,
            };
            self.handle(match keeper {
                Some(keeper) => Event::Found { run, keeper },
                None if late.contains(&run) => Event::WasStarting { run },
                None if has_ended => Event::WasEnded { run },
                None => Event::HasFiles { run },
            });
            self.handle(by_hand);
        }
        self.handle(Event::Desired(self.disk.clone()));
    }

    fn reports_pause(&self, run: &str) -> bool {
        let mut runs = self.daemon.runs();
        runs.any(|(id, actual)| id == run && actual.is_paused)
    }

    fn states(&self) -> BTreeMap<String, RunState> {
        self.daemon
            .runs()
            .map(|(run, actual)| (run.clone(), actual.state))
            .collect()
    }
}

/// The store: a history of states.
struct Store {
    history: Vec<Desired>,
    /// Runs that were started, so that their ids are not used again.
    next_run: u32,
}

impl Store {
    fn change(&mut self, random: &mut Rng) {
        let mut next = self.history.last().cloned().unwrap_or_default();
        let runs: Vec<_> = next.runs.keys().cloned().collect();
        let pick = |random: &mut Rng| runs.get(random.usize(..runs.len().max(1))).cloned();
        match (random.u64(..6), pick(random)) {
            (0, _) | (_, None) => {
                self.next_run += 1;
                next.runs
                    .insert(format!("run{}", self.next_run), desired_run(Phase::Prepare));
            }
            (1, Some(run)) => next.runs.get_mut(&run).unwrap().phase = Phase::Stop,
            (2, Some(run)) => drop(next.runs.remove(&run)),
            (3, Some(run)) => {
                let is_paused = &mut next.runs.get_mut(&run).unwrap().is_paused;
                *is_paused = !*is_paused;
            }
            (4, Some(run)) => {
                self.next_run += 1;
                let program = DesiredProgram {
                    version: self.next_run.to_string(),
                    bundle: String::new(),
                    file: "two.yml".to_owned(),
                };
                let programs = &mut next.runs.get_mut(&run).unwrap().programs;
                programs.insert("motor".to_owned(), program);
            }
            (_, Some(run)) => {
                let run = next.runs.get_mut(&run).unwrap();
                if run.phase == Phase::Prepare {
                    run.phase = Phase::Run;
                }
            }
        }
        self.history.push(next);
    }

    fn kept(&self, revision: usize) -> Kept {
        let desired = match revision {
            0 => Desired::default(),
            revision => self.history[revision - 1].clone(),
        };
        Kept {
            epoch: Epoch::default(),
            held: BTreeMap::new(),
            revision: Revision(revision as u64),
            desired,
        }
    }

    fn latest(&self) -> Kept {
        self.kept(self.history.len())
    }
}

#[test]
fn a_run_has_one_keeper_at_a_time_and_what_is_desired_becomes_so() {
    for seed in 0..2000 {
        let mut random = Rng::with_seed(seed);
        let mut world = World::default();
        let mut store = Store {
            history: Vec::new(),
            next_run: 0,
        };
        world.restart_daemon(&mut random);
        for _ in 0..120 {
            world.now += Duration::from_millis(random.u64(..2000));
            match random.u64(..11) {
                0 | 1 => store.change(&mut random),
                2 | 3 => world.handle(Event::Desired(store.latest())),
                // A delayed answer of the coordinator.
                4 => {
                    let revision = random.usize(..store.history.len() + 1);
                    world.handle(Event::Desired(store.kept(revision)));
                }
                5 if random.u64(..3) == 0 => world.restart_daemon(&mut random),
                6 if random.u64(..3) == 0 => world.kill_keeper(&mut random),
                7 => world.handle(Event::Tick),
                8 if random.bool() => world.order_by_hand(&mut random),
                _ => world.proceed(&mut random),
            }
            for (run, starts) in &world.starts {
                let kills = world.kills.get(run).copied().unwrap_or(0);
                assert!(
                    *starts <= kills + 1,
                    "seed {seed}: {run} was started {starts} times, killed {kills} times"
                );
            }
        }
        // The coordinator is back, and nothing fails any more.
        world.handle(Event::Desired(store.latest()));
        for _ in 0..300 {
            world.now += Duration::from_secs(61);
            world.handle(Event::Tick);
            world.proceed(&mut random);
        }
        let states = world.states();
        let desired = store.latest().desired.runs;
        for (run, desired) in &desired {
            let state = &states[run];
            let order = world.by_hand.get(run).copied();
            match desired.phase {
                _ if order == Some(ByHand::Stopped) => {
                    assert_eq!(*state, RunState::Ended, "seed {seed}: {run}");
                }
                Phase::Prepare => assert!(
                    matches!(
                        state,
                        RunState::Prepared | RunState::Running { .. } | RunState::Ended
                    ),
                    "seed {seed}: {run} {state:?}"
                ),
                Phase::Run => assert!(
                    matches!(state, RunState::Running { .. } | RunState::Ended),
                    "seed {seed}: {run} {state:?}"
                ),
                Phase::Stop => assert_eq!(*state, RunState::Ended, "seed {seed}: {run}"),
            }
            if let Some(keeper) = world.keepers.get(run) {
                let is_paused = world.paused.get(keeper).copied().unwrap_or_default();
                let is_to_pause = desired.is_paused || order == Some(ByHand::Paused);
                assert_eq!(is_paused, is_to_pause, "seed {seed}: {run}");
                assert_eq!(world.reports_pause(run), is_paused, "seed {seed}: {run}");
                let desired = desired.programs.get("motor").map(|it| &it.version);
                assert_eq!(world.versions.get(keeper), desired, "seed {seed}: {run}");
                let actual = world.daemon.runs().find(|(id, _)| *id == run).unwrap().1;
                assert_eq!(actual.by_hand, order, "seed {seed}: {run}");
                let is_in_place = |it: &ActualProgram| it.state == ProgramState::InPlace;
                assert!(
                    actual.programs.values().all(is_in_place),
                    "seed {seed}: {run}"
                );
            }
            let runs = world.keepers.contains_key(run);
            assert_eq!(
                runs,
                matches!(state, RunState::Running { .. }),
                "seed {seed}: {run} {state:?}"
            );
        }
        for run in world.keepers.keys().chain(&world.files) {
            assert!(
                desired.contains_key(run),
                "seed {seed}: {run} is left behind"
            );
        }
    }
}

#[test]
fn a_machine_starts_what_its_disk_says_without_the_coordinator() {
    let mut random = Rng::with_seed(1);
    let mut world = World::default();
    let desired = Desired {
        runs: [("run1".to_owned(), desired_run(Phase::Run))].into(),
    };
    world.restart_daemon(&mut random);
    world.handle(Event::Desired(Kept {
        epoch: Epoch::default(),
        held: BTreeMap::new(),
        revision: Revision(5),
        desired,
    }));
    for _ in 0..3 {
        world.proceed(&mut random);
    }
    assert_eq!(world.states()["run1"], RunState::Running { keeper: 1 });
    // A power failure: daemon and keeper are gone.
    world.keepers.clear();
    world.kills.insert("run1".to_owned(), 1);
    world.under_way.clear();
    world.restart_daemon(&mut random);
    for _ in 0..3 {
        world.proceed(&mut random);
    }
    assert_eq!(world.states()["run1"], RunState::Running { keeper: 2 });
}

#[test]
fn a_keeper_that_is_killed_again_and_again_is_started_less_often() {
    let mut daemon = Daemon::default();
    let desired = Desired {
        runs: [("run1".to_owned(), desired_run(Phase::Run))].into(),
    };
    let kept = Kept {
        epoch: Epoch::default(),
        held: BTreeMap::new(),
        revision: Revision(1),
        desired,
    };
    let is_durable = true;
    daemon.handle(Event::Desired(kept.clone()), Duration::ZERO);
    daemon.handle(Event::Kept { kept, is_durable }, Duration::ZERO);
    let run = || "run1".to_owned();
    daemon.handle(
        Event::Prepared {
            run: run(),
            result: Ok(()),
        },
        Duration::ZERO,
    );
    let mut now = Duration::ZERO;
    for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
        daemon.handle(
            Event::Started {
                run: run(),
                result: Ok(1),
            },
            now,
        );
        let gone = daemon.handle(
            Event::KeeperGone {
                run: run(),
                finished: false,
            },
            now,
        );
        assert!(gone.is_empty());
        let due = daemon.deadline().expect("it waits");
        assert_eq!(due - now, Duration::from_secs(expected));
        assert!(
            daemon
                .handle(Event::Tick, due - Duration::from_nanos(1))
                .is_empty()
        );
        let actions = daemon.handle(Event::Tick, due);
        assert!(
            matches!(actions.as_slice(), [Action::Start { .. }]),
            "{actions:?}"
        );
        now = due;
    }
    // One that ends by itself does not start again.
    daemon.handle(
        Event::Started {
            run: run(),
            result: Ok(2),
        },
        now,
    );
    let actions = daemon.handle(
        Event::KeeperGone {
            run: run(),
            finished: true,
        },
        now,
    );
    assert_eq!(actions, [Action::NoteEnded { run: run() }]);
    assert_eq!(daemon.deadline(), None);
}

/// With a desired state that cannot be written to disk, the daemon stops runs, but starts none: the next
/// daemon would not know of it. The end of a run is recorded as long as an older state on disk names it.
#[test]
fn on_a_full_disk_runs_are_stopped_and_none_is_started_until_the_state_is_kept() {
    let mut daemon = Daemon::default();
    let kept = |revision, runs: &[(&str, Phase)]| Kept {
        epoch: Epoch::default(),
        held: BTreeMap::new(),
        revision: Revision(revision),
        desired: Desired {
            runs: runs
                .iter()
                .map(|(run, phase)| ((*run).to_owned(), desired_run(*phase)))
                .collect(),
        },
    };
    let old = || "old".to_owned();
    let mut now = Duration::ZERO;
    let first = kept(1, &[("old", Phase::Run)]);
    let found = Event::Found {
        run: old(),
        keeper: 7,
    };
    daemon.handle(found, now);
    daemon.handle(Event::Desired(first.clone()), now);
    let is_durable = true;
    let actions = daemon.handle(
        Event::Kept {
            kept: first,
            is_durable,
        },
        now,
    );
    let is_paused = false;
    assert_eq!(
        actions,
        [Action::SetPaused {
            run: old(),
            is_paused
        }]
    );

    let second = kept(2, &[("new", Phase::Run)]);
    daemon.handle(Event::Desired(second.clone()), now);
    let refused = Event::Kept {
        kept: second.clone(),
        is_durable: false,
    };
    assert_eq!(daemon.handle(refused, now), [Action::Stop { run: old() }]);
    let gone = Event::KeeperGone {
        run: old(),
        finished: true,
    };
    assert_eq!(daemon.handle(gone, now), [Action::NoteEnded { run: old() }]);
    let noted = Event::EndNoted { run: old() };
    assert_eq!(daemon.handle(noted, now), [Action::Clear { run: old() }]);
    let states: Vec<_> = daemon
        .runs()
        .map(|(run, actual)| (run.clone(), actual.state))
        .collect();
    assert!(
        matches!(&states[0], (run, RunState::Failed { .. }) if run == "new"),
        "{states:?}"
    );

    now += Duration::from_secs(5);
    let again = daemon.handle(Event::Tick, now);
    assert!(again.contains(&Action::Keep(second.clone())), "{again:?}");
    let taken = Event::Kept {
        kept: second,
        is_durable,
    };
    let actions = daemon.handle(taken, now);
    assert!(
        actions.contains(&Action::Remove { run: old() }),
        "{actions:?}"
    );
    now += Duration::from_secs(60);
    let actions = daemon.handle(Event::Tick, now);
    assert!(
        matches!(actions.as_slice(), [Action::Prepare { run, .. }] if run == "new"),
        "{actions:?}"
    );
}

/// A run that replaces another starts when that has ended, also if its daemon was away meanwhile.
#[test]
fn a_run_waits_for_those_of_its_dataflow_that_are_to_end() {
    let mut daemon = Daemon::default();
    let now = Duration::ZERO;
    let (old, new) = (|| "old".to_owned(), || "new".to_owned());
    daemon.handle(
        Event::Found {
            run: old(),
            keeper: 7,
        },
        now,
    );
    let kept = Kept {
        epoch: Epoch::default(),
        held: BTreeMap::new(),
        revision: Revision(3),
        desired: Desired {
            runs: [(new(), desired_run(Phase::Run))].into(),
        },
    };
    let is_durable = true;
    daemon.handle(Event::Desired(kept.clone()), now);
    let actions = daemon.handle(Event::Kept { kept, is_durable }, now);
    assert!(
        matches!(actions.as_slice(), [Action::Prepare { run, .. }, Action::Stop { run: stopped }]
            if *run == new() && *stopped == old()),
        "{actions:?}"
    );
    let prepared = Event::Prepared {
        run: new(),
        result: Ok(()),
    };
    assert_eq!(daemon.handle(prepared, now), []);
    assert_eq!(daemon.deadline(), None);
    let gone = Event::KeeperGone {
        run: old(),
        finished: true,
    };
    let actions = daemon.handle(gone, now);
    assert!(
        actions
            .iter()
            .any(|action| matches!(action, Action::Start { run, .. } if *run == new())),
        "{actions:?}"
    );
}
