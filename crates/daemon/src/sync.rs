//! Keeps a daemon and the coordinator's store in line, through losses of the coordinator.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nervure_coordinator::{ACTUAL, Address, Client, Endpoint, LINKS, MACHINES, Machine};
use nervure_identity::PublicKey;
use nervure_protocol::daemon_to_daemon::StreamReport;
use nervure_store::{Entry, Epoch, Expected, Revision, Store, StoreError};

use crate::alive::Leases;
use crate::bridge::Bridge;
use crate::crossing::Crossing;
use crate::folder::{Folder, PAIRING, Pairing};
use crate::kept::Kept;
use crate::machine::Event;
use crate::peers::{PeerChange, Peers};
use crate::reports::Reports;
use crate::runs::NodeStates;
use crate::state::{
    Actual, ActualRun, Desired, Resources, RunId, actual_key, desired_key, link_key, parse,
};
use crate::threads::spawn;

/// File of the other machines.
pub const PEERS: &str = "peers.json";

/// Pause before an unreachable coordinator is called again, which announces its return to no machine.
const RECONNECT: Duration = Duration::from_millis(500);

/// Pause after a refusal: this machine awaits approval, or was revoked.
const REFUSED: Duration = Duration::from_secs(10);

/// Pause after changes of other machines: those in between share an answer, so that machines that join
/// together do not wake all others once for each.
const GATHER: Duration = Duration::from_millis(100);

/// The longest wait of a watch.
const WATCH: Duration = Duration::from_secs(30);

/// State that threads of the daemon add to its report.
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

    /// Counts of the samples of a run on their way to other machines and from them.
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
            // Counters change all the time: they are written once, at the end.
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

/// Follows the desired state of this machine. Calls `on_away` repeatedly while the store cannot be used.
pub(crate) fn watch_desired(
    store: &dyn Store,
    machine: &str,
    events: &Sender<Event>,
    mut on_away: impl FnMut(),
) {
    let key = desired_key(machine);
    // Whether the store refuses this machine; `None` while it can be used.
    let mut away: Option<bool> = None;
    let on_error = |error: Option<&StoreError>| match error {
        Some(error) => {
            let is_refused = matches!(error, StoreError::Refused(_));
            if away.replace(is_refused) != Some(is_refused) {
                tracing::warn!("{error}; the dataflows of this machine go on");
            }
            on_away();
        }
        None if away.take().is_some() => tracing::info!("the coordinator is back"),
        None => {}
    };
    let found = |epoch: Epoch, of: &str, entry: Option<&Entry>| {
        if of != key {
            return true;
        }
        // A missing state has no revision. It ends nothing: the store was restored or lost.
        let kept = |revision, desired| Kept {
            epoch,
            revision,
            desired,
            held: BTreeMap::new(),
        };
        let kept = match entry {
            None => Ok(kept(Revision(0), Desired::default())),
            Some(entry) => parse(&key, &entry.value).map(|it| kept(entry.revision, it)),
        };
        match kept {
            Ok(kept) => events.send(Event::Desired(kept)).is_ok(),
            Err(error) => {
                tracing::warn!("{error}");
                true
            }
        }
    };
    // An answer that a cut network has delayed may name an order that was withdrawn since.
    let is_read_again = true;
    follow_prefix(
        store,
        &key,
        BTreeSet::from([key.clone()]),
        (Duration::ZERO, is_read_again),
        on_error,
        found,
    );
}

/// Calls `found` with each key below a prefix and each later change of one, until it returns false.
/// `known` are keys that were there before. After changes it pauses for `gather`; if it reads again, it lists
/// the keys then, and calls `found` with these. Errors, and their end, are passed to `on_error`.
/// After an error the store may be another one, so that all keys are listed again.
fn follow_prefix(
    store: &dyn Store,
    prefix: &str,
    mut known: BTreeSet<String>,
    (gather, is_read_again): (Duration, bool),
    mut on_error: impl FnMut(Option<&StoreError>),
    mut found: impl FnMut(Epoch, &str, Option<&Entry>) -> bool,
) {
    let mut from: Option<(Epoch, Revision)> = None;
    loop {
        let step = match from {
            None => store.list(prefix).map(|listing| {
                let there: BTreeSet<_> = listing.entries.iter().map(|it| it.key.clone()).collect();
                let gone = known.difference(&there).cloned().map(|key| (key, None));
                let there = listing.entries.into_iter();
                let there = there.map(|entry| (entry.key.clone(), Some(entry)));
                let state = (listing.epoch, listing.revision);
                (state, gone.chain(there).collect::<Vec<_>>())
            }),
            Some((_, after)) => store.watch(prefix, after, WATCH).map(|changes| {
                let changed = changes.changes.into_iter();
                let changed = changed.map(|change| (change.key, change.entry));
                ((changes.epoch, changes.revision), changed.collect())
            }),
        };
        match step {
            Ok(((epoch, _), _)) if from.is_some_and(|(known, _)| known != epoch) => from = None,
            Ok((_, changes)) if is_read_again && from.is_some() && !changes.is_empty() => {
                from = None
            }
            Ok((state, changes)) => {
                on_error(None);
                let has_changed = from.replace(state).is_some() && !changes.is_empty();
                for (key, entry) in changes {
                    if !found(state.0, &key, entry.as_ref()) {
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
                from = None;
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
    paired_with: Vec<Endpoint>,
    (client, bridge): (&Arc<Client>, &Arc<Bridge>),
    leases: &Arc<Leases>,
    folder: Folder,
) -> io::Result<Arc<Followed>> {
    let machines = peers.known().machines.keys();
    let known = machines.map(|name| format!("{MACHINES}{name}")).collect();
    let followed = Arc::new(Followed {
        bridge: Arc::clone(bridge),
        client: Arc::clone(client),
        leases: Arc::clone(leases),
        state: Mutex::new(FollowedState {
            peers,
            paired_with,
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
            (GATHER, false),
            |_| {},
            |_, key, entry| {
                let name = key.strip_prefix(LINKS).unwrap_or_default();
                if let Some(address) = entry.and_then(|entry| parse(key, &entry.value).ok()) {
                    let address = for_links.link_address(name, address);
                    for_links.change(|peers| peers.link(name, address));
                }
                true
            },
        );
    })?;
    let (client, for_peers) = (Arc::clone(client), Arc::clone(&followed));
    spawn("nervure-peers", move || {
        follow_prefix(
            &*client,
            MACHINES,
            known,
            (GATHER, false),
            |_| for_peers.note_copy(),
            |_, key, entry| {
                let name = key.strip_prefix(MACHINES).unwrap_or_default();
                let machine = entry.and_then(|entry| parse::<Machine>(key, &entry.value).ok());
                for_peers.change(|peers| peers.machine(name, machine));
                true
            },
        );
    })?;
    Ok(followed)
}

/// Keeps the reports of the machines of the fleet, if this one may read them.
pub(crate) fn follow_reports(client: &Arc<Client>, reports: Arc<Reports>) -> io::Result<()> {
    let client = Arc::clone(client);
    spawn("nervure-reports", move || {
        follow_prefix(
            &*client,
            ACTUAL,
            BTreeSet::new(),
            (GATHER, false),
            |_| {},
            |_, key, entry| {
                let name = key.strip_prefix(ACTUAL).unwrap_or_default();
                reports.keep(name, entry.and_then(|entry| parse(key, &entry.value).ok()));
                true
            },
        );
    })
}

/// The known machines of the fleet. Applies changes to the links, the leases and the client.
pub(crate) struct Followed {
    bridge: Arc<Bridge>,
    client: Arc<Client>,
    leases: Arc<Leases>,
    state: Mutex<FollowedState>,
    folder: Folder,
}

struct FollowedState {
    peers: Peers,
    /// The coordinator that this machine has paired with, at each address that is known here.
    paired_with: Vec<Endpoint>,
    /// Whether the coordinator refuses this machine as a copy of another one; `None` at first.
    is_copy: Option<bool>,
}

impl Followed {
    fn state(&self) -> MutexGuard<'_, FollowedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the links of a copy of a machine, which would replace those of the original.
    fn note_copy(&self) {
        let mut state = self.state();
        let is_copy = self.client.is_copy();
        if state.is_copy.replace(is_copy) == Some(is_copy) {
            return;
        }
        for (name, peer) in state.peers.all() {
            self.bridge.set_peer(&name, peer.filter(|_| !is_copy));
        }
    }

    /// The addresses of the coordinator on this machine.
    pub fn own_addresses(&self) -> Vec<Address> {
        self.state().peers.own_addresses()
    }

    /// Handles the addresses that a coordinator has announced.
    pub fn announced(&self, key: PublicKey, addresses: Vec<Address>) {
        let ips: Vec<IpAddr> = addresses
            .iter()
            .filter_map(|it| Some(it.ip()?.ip()))
            .collect();
        let mut is_taken = false;
        self.change(|peers| {
            is_taken = peers.announced(key, addresses);
            None
        });
        let is_there = |ip| ips.contains(&ip);
        if is_taken && !self.client.reached(key).is_some_and(is_there) {
            self.client.avoid(key);
        }
    }

    /// The address of a machine's link; for the coordinator's machine, on the network on which the
    /// coordinator is reached.
    fn link_address(&self, name: &str, reported: SocketAddr) -> SocketAddr {
        let key = self.state().peers.key_of(name);
        let reached = key.and_then(|key| self.client.reached(key));
        let reached = reached.filter(|ip| !ip.is_loopback());
        reached.map_or(reported, |ip| SocketAddr::new(ip, reported.port()))
    }

    /// Looks for other addresses of a coordinator that cannot be reached: in the file of the pairing, and
    /// by its names.
    pub fn look_for_addresses(&self) {
        let Ok(Some(pairing)) = self.folder.read::<Pairing>(PAIRING) else {
            return;
        };
        let Ok(mut endpoints) = pairing.endpoints() else {
            return;
        };
        let own = std::iter::once(&pairing.address).chain(&pairing.others);
        let own = own.filter(|it| it.ip().is_none());
        let mut names = self.state().peers.known().names();
        names.extend(own.filter_map(|it| Some((it.clone(), pairing.coordinator_key().ok()?))));
        for (name, key) in names {
            let found = name.resolve().unwrap_or_default().into_iter();
            endpoints.extend(found.map(|address| Endpoint { address, key }));
        }
        self.state().paired_with = endpoints;
        self.change(|_| None);
    }

    fn change(&self, change: impl FnOnce(&mut Peers) -> Option<PeerChange>) {
        let mut state = self.state();
        let FollowedState {
            peers,
            paired_with,
            is_copy,
        } = &mut *state;
        let before = peers.known().clone();
        let changed = change(peers);
        if *peers.known() != before
            && let Err(error) = self.folder.write(PEERS, peers.known())
        {
            tracing::warn!("the machines of the fleet are not kept on disk: {error}");
        }
        // Under the lock, in the order of the changes.
        if let Some((name, peer)) = changed.filter(|_| *is_copy == Some(false)) {
            self.bridge.set_peer(&name, peer);
        }
        let coordinators = peers.known().coordinators(paired_with);
        self.client.set_coordinators(&coordinators);
        if let Err(error) = self.leases.set_granters(&peers.coordinators()) {
            tracing::warn!("the lease of a coordinator is not held: {error}");
        }
    }
}

/// Writes the address of the link and the actual state whenever they have changed.
pub(crate) fn report(
    client: &Client,
    machine: &str,
    labels: &BTreeMap<String, String>,
    resources: Resources,
    own_ip: impl Fn() -> Result<IpAddr, StoreError>,
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
        let done = own_ip()
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
            // The last write may have succeeded, and the state may have changed meanwhile.
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
