//! A machine: what outlives its daemon, and the daemon.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use nervure_coordinator::Role;
use nervure_daemon::by_hand::ByHand;
use nervure_daemon::lease::{Holder, LIFETIME};
use nervure_daemon::machine::{Daemon, Kept};
use nervure_daemon::state::{Actual, ActualRun};
use nervure_protocol::daemon_to_cli::NodeState;

use crate::client::{Thread, WATCHERS, Watcher, Writer};

pub struct Machine {
    pub name: String,
    pub role: Role,
    pub disk: Disk,
    pub keepers: BTreeMap<String, Keeper>,
    /// The runs whose end a keeper has noted. A power failure may undo that, and then they start again.
    pub noted: BTreeSet<String>,
    /// Ids of the processes that start a keeper, by run.
    pub starting: BTreeMap<String, u32>,
    pub daemon: Option<Process>,
    pub is_reachable: bool,
    /// Runs that were desired at any time, those that have run, and those that have ended.
    pub intended: BTreeSet<String>,
    pub has_run: BTreeSet<String>,
    pub is_over: BTreeSet<String>,
}

/// State that survives a power failure.
#[derive(Default)]
pub struct Disk {
    pub kept: Kept,
    pub runs: BTreeMap<String, RunFolder>,
    pub is_full: bool,
    /// The longest time of a write, in milliseconds.
    pub write_millis: u64,
}

#[derive(Clone, Copy, Default)]
pub struct RunFolder {
    /// The order of the machine's user.
    pub by_hand: Option<ByHand>,
    /// It has its programs, and the file that becomes the note of its end.
    pub is_prepared: bool,
    pub has_ended: bool,
}

/// Work of the daemon's thread for the disk.
pub enum Write {
    Keep(Kept),
    NoteEnded(String),
    Clear(String),
    Remove(String),
}

pub struct Keeper {
    pub id: u32,
    /// Whether its node with `on_partition: stop` runs.
    pub leased_runs: bool,
    pub nodes: BTreeMap<String, NodeState>,
    /// The program of one of them.
    pub version: String,
}

pub struct Process {
    pub id: u32,
    pub machine: Daemon,
    pub begin: Duration,
    pub holder: Holder,
    pub lease: Option<bool>,
    /// The runs whose start it awaits, and the keepers that it follows.
    pub awaits: BTreeSet<String>,
    pub follows: BTreeMap<String, u32>,
    pub wanted_pauses: BTreeMap<String, bool>,
    pub writes: VecDeque<Write>,
    pub watchers: Vec<(Thread, Watcher)>,
    pub writer: Writer,
    /// Whether the report may have changed since the last call of the writer.
    pub has_changed: bool,
    /// When it is to be woken.
    pub wakes_at: Option<Duration>,
    /// The other machines that it knows.
    pub peers: BTreeSet<String>,
}

impl Machine {
    pub fn new(name: String, role: Role) -> Self {
        Self {
            name,
            role,
            disk: Disk {
                write_millis: 10,
                ..Disk::default()
            },
            keepers: BTreeMap::new(),
            noted: BTreeSet::new(),
            starting: BTreeMap::new(),
            daemon: None,
            is_reachable: true,
            intended: BTreeSet::new(),
            has_run: BTreeSet::new(),
            is_over: BTreeSet::new(),
        }
    }

    /// Carries out a write. Returns whether it has succeeded.
    pub fn write(&mut self, write: &Write) -> bool {
        let is_full = self.disk.is_full;
        match write {
            Write::Keep(kept) if *kept == self.disk.kept => true,
            Write::Keep(_) if is_full => false,
            Write::Keep(kept) => {
                let known = &self.disk.kept;
                assert!(
                    kept.revision >= known.revision
                        || !kept.epoch.continues(known.epoch, known.revision),
                    "an old state replaces a new one"
                );
                self.disk.kept = kept.clone();
                true
            }
            // A file is renamed, if there is one, or has been.
            Write::NoteEnded(run) => {
                let folder = self.disk.runs.get(run);
                let has_file = folder.is_some_and(|it| it.is_prepared || it.has_ended);
                let can_note = !is_full || has_file || self.noted.contains(run);
                if can_note {
                    self.disk.runs.entry(run.clone()).or_default().has_ended = true;
                }
                can_note
            }
            Write::Clear(run) => {
                if let Some(folder) = self.disk.runs.get_mut(run) {
                    folder.is_prepared = false;
                }
                true
            }
            Write::Remove(run) => {
                assert!(
                    !self.keepers.contains_key(run),
                    "{run} runs, and its files are removed"
                );
                self.disk.runs.remove(run);
                self.noted.remove(run);
                true
            }
        }
    }

    pub fn by_hand(&self, run: &str) -> Option<ByHand> {
        self.disk.runs.get(run).and_then(|folder| folder.by_hand)
    }

    /// The run whose end this write records: it may not start again.
    pub fn ended_by(&self, write: &Write) -> Option<String> {
        match write {
            Write::NoteEnded(run) if self.has_run.contains(run) => Some(run.clone()),
            _ => None,
        }
    }

    /// Whether the programs of a run are there after this.
    pub fn prepare(&mut self, run: &str) -> bool {
        let is_full = self.disk.is_full;
        match self.disk.runs.get_mut(run) {
            Some(folder) => folder.is_prepared |= !is_full,
            None if is_full => return false,
            None => {
                let folder = RunFolder {
                    is_prepared: true,
                    ..RunFolder::default()
                };
                self.disk.runs.insert(run.to_owned(), folder);
            }
        }
        self.disk.runs[run].is_prepared
    }
}

impl Process {
    pub fn new(id: u32, machine: &str, now: Duration) -> Self {
        Self {
            id,
            machine: Daemon::default(),
            begin: now,
            holder: Holder::new(u64::from(id)),
            lease: None,
            awaits: BTreeSet::new(),
            follows: BTreeMap::new(),
            wanted_pauses: BTreeMap::new(),
            writes: VecDeque::new(),
            watchers: WATCHERS
                .into_iter()
                .map(|thread| (thread, Watcher::new(thread, machine)))
                .collect(),
            writer: Writer::new(machine),
            has_changed: true,
            wakes_at: None,
            peers: BTreeSet::new(),
        }
    }

    /// The change of the lease since the last call.
    pub fn take_lease(&mut self, now: Duration) -> Option<bool> {
        let own = now - self.begin;
        let is_held = self.holder.is_held(own);
        let is_known = is_held || self.lease.is_some() || own > LIFETIME;
        if !is_known || self.lease == Some(is_held) {
            return None;
        }
        self.lease = Some(is_held);
        self.lease
    }

    pub fn deadline(&self, now: Duration) -> Duration {
        let own = now - self.begin;
        let lines = self.watchers.iter().map(|(_, it)| it.deadline());
        let lines = lines.chain([self.writer.deadline()]).filter(|at| *at > now);
        let lease = self.begin + self.holder.deadline(own);
        let first =
            (self.lease.is_none()).then(|| self.begin + LIFETIME + Duration::from_millis(1));
        let machine = self.machine.deadline().map(|at| self.begin + at);
        lines
            .chain([lease])
            .chain(first)
            .chain(machine)
            .min()
            .unwrap()
    }

    /// The report of the daemon.
    pub fn actual(&self, keepers: &BTreeMap<String, Keeper>) -> Actual {
        let runs = self.machine.runs().map(|(run, actual)| {
            let nodes = match (self.follows.get(run), keepers.get(run)) {
                (Some(id), Some(keeper)) if keeper.id == *id => keeper.nodes.clone(),
                _ => BTreeMap::new(),
            };
            (run.clone(), ActualRun { nodes, ..actual })
        });
        Actual {
            labels: BTreeMap::new(),
            resources: None,
            runs: runs.collect(),
        }
    }
}
