//! Keeps a daemon and the coordinator's store in line, through losses of the coordinator.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use nervure_coordinator::{ACTUAL, Client, Endpoint, LINKS, MACHINES, Machine};
use nervure_protocol::daemon_to_daemon::StreamReport;
use nervure_store::{Entry, Expected, Revision, Store, StoreError};

use crate::alive::Leases;
use crate::bridge::Bridge;
use crate::crossing::Crossing;
use crate::folder::Folder;
use crate::machine::{Event, Kept};
use crate::peers::{PeerChange, Peers};
use crate::reports::Reports;
use crate::runs::NodeStates;
use crate::state::{Actual, ActualRun, Resources, RunId, actual_key, desired_key, link_key, parse};
use crate::threads::spawn;

/// File of the other machines.
pub const PEERS: &str = "peers.json";

/// The pause before the coordinator is called again that could not be reached.
const RECONNECT: Duration = Duration::from_millis(500);

/// The pause before it is called again after it has refused: this machine waits or was revoked.
const REFUSED: Duration = Duration::from_secs(10);

/// The pause after changes of other machines: those in between share an answer, so that machines that
/// join together do not wake all others once for each.
const GATHER: Duration = Duration::from_millis(100);

/// The longest wait of a watch.
const WATCH: Duration = Duration::from_secs(30);

/// What threads of the daemon add to its report.
#[derive(Debug, Default)]
pub(crate) struct Live {
    state: Mutex<LiveState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct LiveState {
    pub runs: BTreeMap<RunId, ActualRun>,
    pub nodes: BTreeMap<RunId, NodeStates>,
    pub crossings: BTreeMap<RunId, Arc<Crossing>>,
    version: u64,
}

impl Live {
    pub fn change(&self, change: impl FnOnce(&mut LiveState)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        state.version += 1;
        self.changed.notify_all();
    }

    /// What became of the samples of a run on their way to other machines and from them.
    pub fn streams(&self, run: &str) -> Vec<StreamReport> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let crossing = state.crossings.get(run);
        crossing.map(|it| it.reports()).unwrap_or_default()
    }

    /// The runs, once they have changed since `version`, or after the timeout.
    fn runs_after(&self, version: &mut u64, timeout: Duration) -> BTreeMap<RunId, ActualRun> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let unchanged = |state: &mut LiveState| state.version == *version;
        let waited = self.changed.wait_timeout_while(state, timeout, unchanged);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        *version = state.version;
        let mut runs = state.runs.clone();
        for (run, actual) in &mut runs {
            if let Some(states) = state.nodes.get(run) {
                actual.nodes.clone_from(&states.nodes);
                actual.is_ready = states.is_ready;
            }
            // Counters change all the time: they are written once.
            if actual.state == crate::state::RunState::Ended {
                actual.streams = state
                    .crossings
                    .get(run)
                    .map(|it| it.reports())
                    .unwrap_or_default();
            }
        }
        runs
    }
}

/// Follows the desired state of this machine.
pub(crate) fn watch_desired(store: &dyn Store, machine: &str, events: &Sender<Event>) {
    let key = desired_key(machine);
    let mut is_away = false;
    let on_error = |error: Option<&StoreError>| match error {
        Some(error) if !std::mem::replace(&mut is_away, true) => {
            tracing::warn!("{error}; the dataflows of this machine go on");
        }
        Some(_) => {}
        None if std::mem::take(&mut is_away) => tracing::info!("the coordinator is back"),
        None => {}
    };
    let found = |_: &str, entry: Option<&Entry>| {
        // A state that is gone says nothing: a store that was lost must end no dataflow.
        let Some(entry) = entry.filter(|entry| entry.key == key) else {
            return true;
        };
        match parse(&key, &entry.value) {
            Ok(desired) => events
                .send(Event::Desired(Kept {
                    revision: entry.revision,
                    desired,
                }))
                .is_ok(),
            Err(error) => {
                tracing::warn!("{error}");
                true
            }
        }
    };
    follow_prefix(
        store,
        &key,
        BTreeSet::new(),
        Duration::ZERO,
        on_error,
        found,
    );
}

/// Calls `found` with each key below a prefix and each later change of one, until it returns false.
/// `known` are keys that were there before. After changes it pauses for `gather`. Errors, and their end, are passed to `on_error`.
fn follow_prefix(
    store: &dyn Store,
    prefix: &str,
    mut known: BTreeSet<String>,
    gather: Duration,
    mut on_error: impl FnMut(Option<&StoreError>),
    mut found: impl FnMut(&str, Option<&Entry>) -> bool,
) {
    let mut from: Option<Revision> = None;
    loop {
        let step = match from {
            None => store.list(prefix).map(|listing| {
                let there: BTreeSet<_> = listing.entries.iter().map(|it| it.key.clone()).collect();
                let gone = known.difference(&there).cloned().map(|key| (key, None));
                let there = listing.entries.into_iter();
                let there = there.map(|entry| (entry.key.clone(), Some(entry)));
                (listing.revision, gone.chain(there).collect::<Vec<_>>())
            }),
            Some(after) => store.watch(prefix, after, WATCH).map(|changes| {
                let changed = changes.changes.into_iter();
                let changed = changed.map(|change| (change.key, change.entry));
                (changes.revision, changed.collect())
            }),
        };
        match step {
            Ok((revision, changes)) => {
                on_error(None);
                let has_changed = from.replace(revision).is_some() && !changes.is_empty();
                for (key, entry) in changes {
                    if !found(&key, entry.as_ref()) {
                        return;
                    }
                    match entry {
                        Some(_) => known.insert(key),
                        None => known.remove(&key),
                    };
                }
                if has_changed {
                    std::thread::sleep(gather);
                }
            }
            Err(StoreError::Compacted { .. }) => from = None,
            Err(error) => {
                on_error(Some(&error));
                std::thread::sleep(match error {
                    StoreError::Refused(_) => REFUSED,
                    _ => RECONNECT,
                });
            }
        }
    }
}

/// Follows the other machines, in two threads. They are kept on disk.
pub(crate) fn follow_peers(
    peers: Peers,
    paired_with: Endpoint,
    (client, bridge): (&Arc<Client>, &Arc<Bridge>),
    leases: &Arc<Leases>,
    folder: Folder,
) -> io::Result<()> {
    let machines = peers.known().machines.keys();
    let known = machines.map(|name| format!("{MACHINES}{name}")).collect();
    let followed = Arc::new(Followed {
        bridge: Arc::clone(bridge),
        client: Arc::clone(client),
        leases: Arc::clone(leases),
        paired_with,
        state: Mutex::new(FollowedState {
            peers,
            is_copy: None,
        }),
        folder,
    });
    followed.note_copy();
    followed.change(|_| None);
    let (for_links, client_for_links) = (Arc::clone(&followed), Arc::clone(client));
    spawn("nervure-links", move || {
        follow_prefix(
            &*client_for_links,
            LINKS,
            BTreeSet::new(),
            GATHER,
            |_| {},
            |key, entry| {
                let name = key.strip_prefix(LINKS).unwrap_or_default();
                if let Some(address) = entry.and_then(|entry| parse(key, &entry.value).ok()) {
                    for_links.change(|peers| peers.link(name, address));
                }
                true
            },
        );
    })?;
    let client = Arc::clone(client);
    spawn("nervure-peers", move || {
        follow_prefix(
            &*client,
            MACHINES,
            known,
            GATHER,
            |_| followed.note_copy(),
            |key, entry| {
                let name = key.strip_prefix(MACHINES).unwrap_or_default();
                let machine = entry.and_then(|entry| parse::<Machine>(key, &entry.value).ok());
                followed.change(|peers| peers.machine(name, machine));
                true
            },
        );
    })
}

/// Keeps what the machines of the fleet report, if this one may read it.
pub(crate) fn follow_reports(client: &Arc<Client>, reports: Arc<Reports>) -> io::Result<()> {
    let client = Arc::clone(client);
    spawn("nervure-reports", move || {
        follow_prefix(
            &*client,
            ACTUAL,
            BTreeSet::new(),
            GATHER,
            |_| {},
            |key, entry| {
                let name = key.strip_prefix(ACTUAL).unwrap_or_default();
                reports.keep(name, entry.and_then(|entry| parse(key, &entry.value).ok()));
                true
            },
        );
    })
}

struct Followed {
    bridge: Arc<Bridge>,
    client: Arc<Client>,
    leases: Arc<Leases>,
    paired_with: Endpoint,
    state: Mutex<FollowedState>,
    folder: Folder,
}

struct FollowedState {
    peers: Peers,
    /// Whether the coordinator refuses this machine as a copy of another one; `None` at first.
    is_copy: Option<bool>,
}

impl Followed {
    /// A copy of a machine has no links: it would take those of the other one.
    fn note_copy(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_copy = self.client.is_copy();
        if state.is_copy.replace(is_copy) == Some(is_copy) {
            return;
        }
        for (name, peer) in state.peers.all() {
            self.bridge.set_peer(&name, peer.filter(|_| !is_copy));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Peers) -> Option<PeerChange>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let FollowedState { peers, is_copy } = &mut *state;
        let before = peers.known().clone();
        let changed = change(peers);
        if *peers.known() != before
            && let Err(error) = self.folder.write(PEERS, peers.known())
        {
            tracing::warn!("the machines of the fleet are not kept on disk: {error}");
        }
        // In the order of the changes.
        if let Some((name, peer)) = changed.filter(|_| *is_copy == Some(false)) {
            self.bridge.set_peer(&name, peer);
        }
        self.client
            .set_coordinators(&peers.known().coordinators(self.paired_with));
        if let Err(error) = self.leases.set_granters(&peers.coordinators()) {
            tracing::warn!("the lease of a coordinator is not held: {error}");
        }
    }
}

/// Writes what is, and where the link is, whenever that has changed.
pub(crate) fn report(
    client: &Client,
    machine: &str,
    labels: &BTreeMap<String, String>,
    resources: Resources,
    address: Option<IpAddr>,
    port: u16,
    live: &Live,
) {
    let (link_key, actual_key) = (link_key(machine), actual_key(machine));
    let mut version = 0;
    let (mut written_link, mut written) = (None, None);
    loop {
        let actual = Actual {
            labels: labels.clone(),
            resources: Some(resources),
            runs: live.runs_after(&mut version, WATCH),
        };
        let link = address.map_or_else(|| client.local_address(), Ok);
        let done = link
            .map_err(|error| StoreError::Unavailable(error.to_string()))
            .and_then(|ip| {
                write(
                    client,
                    &link_key,
                    SocketAddr::new(ip, port),
                    &mut written_link,
                )
            })
            .and_then(|()| write(client, &actual_key, actual, &mut written));
        if let Err(error) = done {
            // What was written last is not known, and the state may have changed meanwhile.
            (version, written_link, written) = (0, None, None);
            std::thread::sleep(match error {
                StoreError::Refused(_) => REFUSED,
                _ => RECONNECT,
            });
        }
    }
}

/// A value that was written last, with its revision: only this machine writes the key, so the next
/// value needs no call to read it.
type Written<T> = Option<(T, Revision)>;

/// Writes a value, unless it was written last.
fn write<T: serde::Serialize + PartialEq>(
    store: &dyn Store,
    key: &str,
    value: T,
    written: &mut Written<T>,
) -> Result<(), StoreError> {
    if written.as_ref().is_some_and(|(last, _)| *last == value) {
        return Ok(());
    }
    let json = serde_json::to_vec(&value).expect("a state can be written as JSON");
    let mut known = written.take().map(|(_, revision)| revision);
    loop {
        let expected = match known.take() {
            Some(revision) => Expected::Revision(revision),
            None => store
                .get(key)?
                .map_or(Expected::Absent, |entry| Expected::Revision(entry.revision)),
        };
        match store.compare_and_set(key, expected, Some(&json), None) {
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error),
            Ok(revision) => {
                *written = Some((value, revision));
                return Ok(());
            }
        }
    }
}
