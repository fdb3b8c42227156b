//! The decisions of a daemon: `handle(event, now) -> actions`.
//!
//! For each run it takes one step at a time from the actual to the desired state. A step that is under way
//! is awaited before the next, so that a run has at most one keeper. A run is identified by its id, not by
//! the dataflow's name: a stale revision names only earlier runs, and a run that has ended does not start
//! again.
//!
//! An order of the machine's user ([`ByHand`]) takes precedence over the desired state, and is reported to
//! the coordinator.
//!
//! A desired state counts once it is on disk, so that the next daemon does not go back behind it. Events of
//! the lease are handled during a slow write. With a full disk the state counts nevertheless, and is
//! written later; but no run starts that no state on disk names, since the next daemon would stop it.

use std::collections::BTreeMap;
use std::time::Duration;

use nervure_store::Revision;

use crate::by_hand::ByHand;
pub use crate::kept::Kept;
use crate::pauses::pause;
use crate::programs::Programs;
use crate::state::{ActualProgram, ActualRun, DesiredRun, Phase, RunId, RunState};

/// Pause before a failed write of the desired state is repeated.
const KEEP_PAUSE: Duration = Duration::from_secs(5);

/// An input of the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The desired state, from the store or from the disk.
    Desired(Kept),
    /// The answer to [`Action::Keep`].
    Kept {
        /// The state.
        kept: Kept,
        /// Whether it is on disk.
        is_durable: bool,
    },
    /// At the start of the daemon: a keeper runs.
    Found {
        /// Its run.
        run: RunId,
        /// Its process id.
        keeper: u32,
    },
    /// At the start of the daemon: a process of the last daemon is starting a run.
    WasStarting {
        /// The run.
        run: RunId,
    },
    /// A run has ended before the daemon followed it: before its start, or at once.
    WasEnded {
        /// The run.
        run: RunId,
    },
    /// At the start of the daemon: a run has left files.
    HasFiles {
        /// The run.
        run: RunId,
    },
    /// The order of this machine's user for a run, read from its folder.
    ByHand {
        /// The run.
        run: RunId,
        /// The order.
        order: Option<ByHand>,
    },
    /// The preparation of a run has ended.
    Prepared {
        /// The run.
        run: RunId,
        /// Why it failed.
        result: Result<(), String>,
    },
    /// The start of a run has ended.
    Started {
        /// The run.
        run: RunId,
        /// The keeper, or why there is none.
        result: Result<u32, String>,
    },
    /// A keeper is gone.
    KeeperGone {
        /// Its run.
        run: RunId,
        /// Whether all nodes had ended. Otherwise it was killed.
        finished: bool,
    },
    /// The answer to [`Action::NoteEnded`].
    EndNoted {
        /// The run.
        run: RunId,
    },
    /// The lease of this machine has begun or ended.
    Lease {
        /// Whether it is held.
        is_held: bool,
    },
    /// A keeper was paused, or goes on: the answer to [`Action::SetPaused`].
    Paused {
        /// Its run.
        run: RunId,
        /// Whether it is paused.
        is_paused: bool,
    },
    /// The answer to [`Action::SetPrograms`].
    ProgramsSet {
        /// The run.
        run: RunId,
        /// State of each program, by node.
        programs: BTreeMap<String, ActualProgram>,
    },
    /// Time has passed.
    Tick,
}

/// An output of the state machine, for the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Report that the store was restored from a backup, or emptied.
    ReportOldStore {
        /// The revision that was known.
        known: Revision,
        /// The revision that it has begun at.
        begin: Revision,
        /// The runs whose state there is an old one, by their ids.
        held: Vec<RunId>,
    },
    /// Keep the desired state on disk: answered by [`Event::Kept`].
    Keep(Kept),
    /// Fetch and check the programs of a run: answered by [`Event::Prepared`].
    Prepare {
        /// The run.
        run: RunId,
        /// Its desired state.
        desired: DesiredRun,
    },
    /// Start a run: answered by [`Event::Started`], and then [`Event::KeeperGone`].
    Start {
        /// The run.
        run: RunId,
        /// Its desired state.
        desired: DesiredRun,
    },
    /// Await the start of a run that the last daemon has begun: answered by [`Event::Started`], and
    /// then [`Event::KeeperGone`].
    AwaitStart {
        /// The run.
        run: RunId,
    },
    /// Follow a keeper that was found: answered by [`Event::KeeperGone`].
    Follow {
        /// The run.
        run: RunId,
        /// Its process id.
        keeper: u32,
    },
    /// Stop the nodes with `on_partition: stop` of a run, or start them again.
    Lease {
        /// The run.
        run: RunId,
        /// Whether the lease is held.
        is_held: bool,
    },
    /// Pause a run, or let it go on: answered by [`Event::Paused`]. The last of several that are under way
    /// for one run holds.
    SetPaused {
        /// The run.
        run: RunId,
        /// Whether it is to be paused.
        is_paused: bool,
    },
    /// Bring the programs that are desired of nodes of a run into their places: answered by
    /// [`Event::ProgramsSet`].
    SetPrograms {
        /// The run.
        run: RunId,
        /// Its keeper.
        keeper: u32,
        /// Its desired state.
        desired: DesiredRun,
    },
    /// Stop the keeper of a run.
    Stop {
        /// The run.
        run: RunId,
    },
    /// Note on disk that a run has ended: answered by [`Event::EndNoted`].
    NoteEnded {
        /// The run.
        run: RunId,
    },
    /// Remove the programs of a run, but not the note of its end: while the disk is full, a state there may
    /// still name it.
    Clear {
        /// The run.
        run: RunId,
    },
    /// Remove the files of a run.
    Remove {
        /// The run.
        run: RunId,
    },
}

#[derive(Clone, Debug)]
struct Run {
    /// `None` if it is not desired any more.
    desired: Option<DesiredRun>,
    by_hand: Option<ByHand>,
    /// Whether it is desired only because it was before the store went back.
    is_orphan: bool,
    /// Name of its dataflow; empty if that is not known.
    dataflow: String,
    state: State,
    /// Whether the keeper was last asked to pause; `None` if that is not known.
    asked_to_pause: Option<bool>,
    /// Whether it is paused.
    is_paused: bool,
    programs: Programs,
    /// Number of keepers that were killed, and of failed attempts.
    failures: u32,
    /// Whether its programs were removed, and the note of its end stays.
    is_cleared: bool,
    /// Whether the state on disk names it.
    is_on_disk: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    New,
    Preparing,
    Prepared,
    Starting,
    Running {
        keeper: u32,
    },
    Stopping,
    Waiting {
        until: Duration,
    },
    /// It has ended, which may not be on disk yet: the next daemon would start it again.
    Ending,
    Ended,
    Failed {
        reason: String,
        until: Duration,
    },
}

/// The state machine of a daemon.
#[derive(Clone, Debug, Default)]
pub struct Daemon {
    /// The newest desired state that is known.
    newest: Option<Kept>,
    /// Whether a write of a state is under way.
    is_keeping: bool,
    /// When to write the newest again, if the disk was full.
    keep_at: Option<Duration>,
    /// The revision that counts.
    revision: Option<Revision>,
    /// Whether it is on disk.
    is_durable: bool,
    /// Whether the lease is held; `None` before that is known.
    holds_lease: Option<bool>,
    runs: BTreeMap<RunId, Run>,
}

impl Daemon {
    /// Handles an event at a time since the start of the daemon. The actions are in order.
    pub fn handle(&mut self, event: Event, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Desired(kept) => self.desired(kept, &mut actions),
            Event::Kept { kept, is_durable } => self.kept(kept, is_durable, now, &mut actions),
            Event::Found { run, keeper } => {
                self.run(&run).state = State::Running { keeper };
                actions.push(Action::Follow { run, keeper });
            }
            Event::Lease { is_held } => self.lease(is_held, &mut actions),
            Event::WasStarting { run } => {
                self.run(&run).state = State::Starting;
                actions.push(Action::AwaitStart { run });
            }
            Event::WasEnded { run } => {
                self.run(&run).state = State::Ending;
                actions.push(Action::NoteEnded { run });
            }
            Event::HasFiles { run } => drop(self.run(&run)),
            Event::ByHand { run, order } => {
                if let Some(run) = self.runs.get_mut(&run) {
                    // The keeper has the order too: whether it is paused now is not known.
                    (run.by_hand, run.asked_to_pause) = (order, None);
                }
            }
            Event::Prepared { run, result } => {
                self.finish_step(
                    &run,
                    State::Preparing,
                    result.map(|()| State::Prepared),
                    now,
                );
            }
            Event::Started { run, result } => {
                // The lease may have changed since the nodes were started.
                if let (Ok(_), Some(is_held)) = (&result, self.holds_lease) {
                    let run = run.clone();
                    actions.push(Action::Lease { run, is_held });
                }
                let result = result.map(|keeper| State::Running { keeper });
                self.finish_step(&run, State::Starting, result, now);
            }
            Event::KeeperGone { run, finished } => {
                self.keeper_gone(&run, finished, now, &mut actions)
            }
            Event::EndNoted { run } => self.finish_step(&run, State::Ending, Ok(State::Ended), now),
            Event::Paused { run, is_paused } => {
                if let Some(run) = self.runs.get_mut(&run) {
                    run.is_paused = is_paused;
                }
            }
            Event::ProgramsSet { run, programs } => {
                if let Some(run) = self.runs.get_mut(&run) {
                    run.programs.end(programs, now);
                }
            }
            Event::Tick => {}
        }
        if self.keep_at.is_some_and(|at| at <= now) {
            self.keep_newest(&mut actions);
        }
        self.forget_ended_orphans(&mut actions);
        self.settle(now, &mut actions);
        actions
    }

    /// When [`Event::Tick`] is due.
    pub fn deadline(&self) -> Option<Duration> {
        let waits = self.runs.values().filter_map(Run::deadline);
        waits.chain(self.keep_at).min()
    }

    /// The runs, without the parts of their state that threads of the shell add.
    pub fn runs(&self) -> impl Iterator<Item = (&RunId, ActualRun)> {
        self.runs.iter().map(|(id, run)| {
            let dataflow = run.desired.as_ref().map_or("", |desired| &desired.dataflow);
            let actual = ActualRun {
                dataflow: dataflow.to_owned(),
                state: run.report(),
                is_paused: run.is_paused,
                by_hand: run.by_hand,
                is_orphan: run.is_orphan,
                is_ready: false,
                nodes: BTreeMap::new(),
                programs: self.programs(id),
                streams: Vec::new(),
            };
            (id, actual)
        })
    }

    /// States of the programs that replace others in a running run.
    fn programs(&self, run: &str) -> BTreeMap<String, ActualProgram> {
        let run = self.runs.get(run);
        let run = run.filter(|run| matches!(run.state, State::Running { .. }));
        let found = run.and_then(|run| Some((run, run.desired.as_ref()?)));
        found.map_or_else(BTreeMap::new, |(run, desired)| {
            run.programs.report(&desired.programs)
        })
    }

    fn run(&mut self, id: &str) -> &mut Run {
        self.runs.entry(id.to_owned()).or_insert(Run {
            desired: None,
            by_hand: None,
            is_orphan: false,
            dataflow: String::new(),
            state: State::New,
            asked_to_pause: None,
            is_paused: false,
            programs: Programs::default(),
            failures: 0,
            is_cleared: false,
            is_on_disk: false,
        })
    }

    fn desired(&mut self, kept: Kept, actions: &mut Vec<Action>) {
        let kept = match &self.newest {
            None => kept,
            Some(known) => {
                let (was, is) = ((known.epoch, known.revision), kept.epoch);
                let Some(kept) = kept.after(known) else {
                    return;
                };
                if !is.continues(was.0, was.1) {
                    actions.push(Action::ReportOldStore {
                        known: was.1,
                        begin: is.begin,
                        held: kept.held.keys().cloned().collect(),
                    });
                }
                kept
            }
        };
        self.newest = Some(kept);
        if !self.is_keeping {
            self.keep_newest(actions);
        }
    }

    /// Forgets ended orphans: no order of the coordinator removes them.
    fn forget_ended_orphans(&mut self, actions: &mut Vec<Action>) {
        let Some(newest) = &mut self.newest else {
            return;
        };
        let before = newest.held.len();
        let has_ended = |id: &RunId| {
            let run = self.runs.get(id);
            run.is_some_and(|run| run.state == State::Ended)
        };
        newest
            .held
            .retain(|id, held| held.stale.is_some() || !has_ended(id));
        if newest.held.len() != before && !self.is_keeping {
            self.keep_newest(actions);
        }
    }

    fn keep_newest(&mut self, actions: &mut Vec<Action>) {
        self.keep_at = None;
        self.is_keeping = self.newest.is_some();
        actions.extend(self.newest.clone().map(Action::Keep));
    }

    fn kept(&mut self, kept: Kept, is_durable: bool, now: Duration, actions: &mut Vec<Action>) {
        self.is_keeping = false;
        if self.newest.as_ref() != Some(&kept) {
            self.keep_newest(actions);
        } else if !is_durable {
            self.keep_at = Some(now + KEEP_PAUSE);
        }
        self.is_durable = is_durable;
        self.revision = Some(kept.revision);
        for (id, run) in &mut self.runs {
            run.desired = kept.get(id).cloned();
            run.is_orphan = kept.is_orphan(id);
        }
        for (id, desired) in kept.runs() {
            let run = self.run(&id);
            run.dataflow.clone_from(&desired.dataflow);
            run.desired = Some(desired);
            run.is_on_disk |= is_durable;
        }
    }

    fn lease(&mut self, is_held: bool, actions: &mut Vec<Action>) {
        if self.holds_lease.replace(is_held) == Some(is_held) {
            return;
        }
        // A run that starts meanwhile is brought in line when it has started.
        for (run, state) in &self.runs {
            if matches!(state.state, State::Running { .. } | State::Stopping) {
                let run = run.clone();
                actions.push(Action::Lease { run, is_held });
            }
        }
    }

    /// Finishes a step, unless it was overtaken.
    fn finish_step(
        &mut self,
        run: &str,
        step: State,
        result: Result<State, String>,
        now: Duration,
    ) {
        if let Some(run) = self.runs.get_mut(run)
            && run.state == step
        {
            run.state = result.unwrap_or_else(|reason| State::Failed {
                reason,
                until: run.pause_until(now),
            });
        }
    }

    fn keeper_gone(&mut self, id: &str, finished: bool, now: Duration, actions: &mut Vec<Action>) {
        let Some(run) = self.runs.get_mut(id) else {
            return;
        };
        let was_asked = run.state == State::Stopping;
        if !matches!(run.state, State::Running { .. } | State::Stopping) {
            return;
        }
        (run.asked_to_pause, run.is_paused) = (None, false);
        run.programs.keeper_gone();
        if finished || was_asked {
            run.state = State::Ending;
            actions.push(Action::NoteEnded { run: id.to_owned() });
        } else {
            run.state = State::Waiting {
                until: run.pause_until(now),
            };
        }
    }

    /// Takes the next step of each run towards its desired state.
    fn settle(&mut self, now: Duration, actions: &mut Vec<Action>) {
        // No desired state is known before the disk was read.
        if self.revision.is_none() {
            return;
        }
        let is_durable = self.is_durable;
        let ending = self.runs.values().filter(|run| run.is_to_end());
        let ending: Vec<String> = ending.map(|run| run.dataflow.clone()).collect();
        for (id, run) in &mut self.runs {
            // Runs of one dataflow use the same devices, so that one starts after the end of the other.
            let is_of_run = |name: &String| name.is_empty() || *name == run.dataflow;
            let can_start = !ending.iter().any(is_of_run);
            run.settle(id, (is_durable, can_start), now, actions);
        }
        self.runs
            .retain(|_, run| run.desired.is_some() || !run.is_idle() || !is_durable);
    }
}

impl Run {
    /// Counts a failure, and returns the time of the next attempt.
    fn pause_until(&mut self, now: Duration) -> Duration {
        let pause = pause(self.failures);
        self.failures += 1;
        now + pause
    }

    /// The phase to bring it to; `None` if it is not desired.
    fn phase(&self) -> Option<Phase> {
        let desired = self.desired.as_ref()?;
        match self.by_hand {
            Some(ByHand::Stopped) => Some(Phase::Stop),
            Some(ByHand::Paused) | None => Some(desired.phase),
        }
    }

    fn deadline(&self) -> Option<Duration> {
        let phase = self.phase()?;
        match self.state {
            State::Waiting { until } | State::Failed { until, .. } => {
                (phase == Phase::Run).then_some(until)
            }
            State::Running { .. } if phase == Phase::Run => self.programs.deadline(),
            _ => None,
        }
    }

    /// Whether no step is under way and no keeper runs.
    fn is_idle(&self) -> bool {
        let is_under_way = matches!(
            self.state,
            State::Preparing
                | State::Starting
                | State::Running { .. }
                | State::Stopping
                | State::Ending
        );
        !is_under_way && !self.programs.is_awaited()
    }

    /// Whether it has a keeper, or gets one, that is to end.
    fn is_to_end(&self) -> bool {
        let has_keeper = matches!(
            self.state,
            State::Starting | State::Running { .. } | State::Stopping
        );
        has_keeper && self.phase().is_none_or(|phase| phase == Phase::Stop)
    }

    /// `can_start`: whether no other run of its dataflow is to end before.
    fn settle(
        &mut self,
        id: &str,
        (is_durable, can_start): (bool, bool),
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let run = || id.to_owned();
        let (Some(desired), Some(phase)) = (&self.desired, self.phase()) else {
            return self.settle_removed(id, is_durable, actions);
        };
        let is_paused = desired.is_paused || self.by_hand == Some(ByHand::Paused);
        if let (Phase::Run, State::Running { keeper }) = (phase, &self.state)
            && self.programs.begin(&desired.programs, now)
        {
            actions.push(Action::SetPrograms {
                run: run(),
                keeper: *keeper,
                desired: desired.clone(),
            });
        }
        match (phase, &self.state) {
            (Phase::Prepare | Phase::Run, State::New) if !self.is_on_disk => {
                self.state = State::Failed {
                    reason: "the desired state cannot be kept on disk".to_owned(),
                    until: self.pause_until(now),
                };
            }
            (Phase::Prepare | Phase::Run, State::New) => {
                actions.push(Action::Prepare {
                    run: run(),
                    desired: desired.clone(),
                });
                self.state = State::Preparing;
            }
            (Phase::Run, State::Prepared) if can_start => {
                actions.push(Action::Start {
                    run: run(),
                    desired: desired.clone(),
                });
                self.state = State::Starting;
            }
            // Retry: a missing device may be there now, or a full disk have room.
            (Phase::Run, State::Failed { until, .. }) if *until <= now => {
                self.state = State::New;
                self.settle(id, (is_durable, can_start), now, actions);
            }
            (Phase::Run, State::Waiting { until }) if !can_start && *until <= now => {
                self.state = State::Prepared;
            }
            (Phase::Run, State::Waiting { until }) if *until <= now => {
                actions.push(Action::Start {
                    run: run(),
                    desired: desired.clone(),
                });
                self.state = State::Starting;
            }
            (Phase::Run, State::Running { .. }) if self.asked_to_pause != Some(is_paused) => {
                self.asked_to_pause = Some(is_paused);
                actions.push(Action::SetPaused {
                    run: run(),
                    is_paused,
                });
            }
            (Phase::Stop, State::Running { .. }) => self.stop(id, actions),
            (
                Phase::Stop,
                State::New | State::Prepared | State::Waiting { .. } | State::Failed { .. },
            ) => {
                self.state = State::Ending;
                actions.push(Action::NoteEnded { run: run() });
            }
            _ => {}
        }
    }

    /// As [`Run::settle`], for a run that is not desired any more.
    fn settle_removed(&mut self, id: &str, is_durable: bool, actions: &mut Vec<Action>) {
        let run = id.to_owned();
        match self.state {
            State::Running { .. } => self.stop(id, actions),
            _ if !self.is_idle() => {}
            _ if is_durable => actions.push(Action::Remove { run }),
            // The next daemon may read a state that names it.
            State::Ended if !self.is_cleared => {
                self.is_cleared = true;
                actions.push(Action::Clear { run });
            }
            State::Ended => {}
            _ => {
                self.state = State::Ending;
                actions.push(Action::NoteEnded { run });
            }
        }
    }

    fn stop(&mut self, id: &str, actions: &mut Vec<Action>) {
        actions.push(Action::Stop { run: id.to_owned() });
        self.state = State::Stopping;
    }

    fn report(&self) -> RunState {
        match &self.state {
            State::New | State::Preparing => RunState::Preparing,
            State::Prepared => RunState::Prepared,
            State::Starting => RunState::Starting,
            State::Running { keeper } => RunState::Running { keeper: *keeper },
            State::Waiting { .. } => RunState::Waiting,
            State::Stopping | State::Ending => RunState::Stopping,
            State::Ended => RunState::Ended,
            State::Failed { reason, .. } => RunState::Failed {
                reason: reason.clone(),
            },
        }
    }
}
