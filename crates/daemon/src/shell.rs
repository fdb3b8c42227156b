//! The shell of a daemon: carries out the actions of [`crate::machine`], and feeds it events.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nervure_coordinator::{ACTUAL, Client};
use nervure_identity::{IdentityError, KeyPair, PublicKey};
use nervure_link::shell::{Link, LinkConfig, LinkError};
use nervure_store::{Entry, Expected, Revision, Store, StoreError};

use crate::bridge::{Bridge, Crossing};
use crate::folder::{Folder, Pairing};
use crate::machine::{Action, Daemon, Event, Kept};
use crate::part::{ENDED, PartSpec};
use crate::runs;
use crate::state::{Actual, ActualRun, LinkEnd, RunId, actual_key, desired_key, parse};

/// The pause before the coordinator is called again that could not be reached.
const RECONNECT: Duration = Duration::from_millis(500);

/// The longest wait of a watch.
const WATCH: Duration = Duration::from_secs(30);

/// File of the last desired state.
const DESIRED: &str = "desired.json";
/// File of the links of other machines.
const PEERS: &str = "peers.json";
/// File of the pairing.
pub const PAIRING: &str = "machine.json";

/// What a daemon needs.
#[derive(Debug)]
pub struct Config {
    /// The state of the machine on disk.
    pub folder: Folder,
    /// The pairing of the machine.
    pub pairing: Pairing,
    /// The address of this machine for others; `None` to take that on the network of the
    /// coordinator.
    pub address: Option<IpAddr>,
}

/// Why a daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Another daemon has the folder.
    #[error("a daemon with the state in {0} already runs")]
    Runs(String),
    /// A file cannot be used.
    #[error("the state of this machine cannot be used: {0}")]
    Folder(#[from] io::Error),
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] IdentityError),
    /// The link cannot be used.
    #[error(transparent)]
    Link(#[from] LinkError),
}

struct Shell {
    folder: Folder,
    /// Calls of the daemon, and its long polls.
    client: Arc<Client>,
    bridge: Arc<Bridge>,
    events: Sender<Event>,
    machine: Daemon,
    begin: Instant,
    live: Arc<Live>,
    desired: BTreeMap<RunId, crate::state::DesiredRun>,
    keepers: BTreeMap<RunId, u32>,
}

/// What threads of the daemon add to its report.
#[derive(Debug, Default)]
struct Live {
    state: Mutex<LiveState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LiveState {
    runs: BTreeMap<RunId, ActualRun>,
    nodes: BTreeMap<RunId, BTreeMap<String, String>>,
    crossings: BTreeMap<RunId, Arc<Crossing>>,
    version: u64,
}

/// Runs the daemon. Returns only if it cannot go on; `on_ready` is called once it serves. Its death
/// ends no dataflow.
///
/// # Errors
/// [`DaemonError`].
pub fn serve(config: Config, on_ready: impl FnOnce()) -> Result<(), DaemonError> {
    let Config {
        folder,
        pairing,
        address,
    } = config;
    let _lock = folder.lock().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => DaemonError::Runs(folder.path().display().to_string()),
        _ => error.into(),
    })?;
    std::fs::create_dir_all(folder.runs())?;
    let key = KeyPair::load_or_generate(&folder.key())?;
    let own_key = key.public();
    let coordinator = pairing.coordinator_key()?;
    let client = Arc::new(Client::new(pairing.address, coordinator, &key)?);
    let any = match pairing.address {
        SocketAddr::V4(_) => IpAddr::from([0; 4]),
        SocketAddr::V6(_) => IpAddr::from([0; 16]),
    };
    let link = bind_link(address.unwrap_or(any), pairing.link_port, key)?;
    let link_port = link.local_address().port();
    let pairing = Pairing {
        link_port,
        ..pairing
    };
    folder.write(PAIRING, &pairing)?;
    let bridge = Bridge::start(pairing.name.clone(), link)?;
    let folder_for_peers = folder.clone();
    let (events, received) = channel();
    let shell = Shell {
        bridge: Arc::clone(&bridge),
        client: Arc::clone(&client),
        events: events.clone(),
        machine: Daemon::default(),
        begin: Instant::now(),
        live: Arc::default(),
        desired: BTreeMap::new(),
        keepers: BTreeMap::new(),
        folder,
    };
    let live = Arc::clone(&shell.live);
    let (for_watch, name) = (Arc::clone(&client), pairing.name.clone());
    spawn("nervure-desired", move || {
        watch_desired(&*for_watch, &name, &events)
    })?;
    let peers = Peers {
        own: pairing.name.clone(),
        own_key,
        coordinator,
        bridge,
        known: folder_for_peers.read(PEERS)?.unwrap_or_default(),
        folder: folder_for_peers,
    };
    let for_peers = Arc::clone(&client);
    spawn("nervure-peers", move || peers.follow(&*for_peers))?;
    spawn("nervure-report", move || {
        report(&client, &pairing.name, own_key, address, link_port, &live);
    })?;
    on_ready();
    shell.run(&received)
}

/// The link listens on the address of the machine, or on all of them.
fn bind_link(address: IpAddr, port: u16, key: KeyPair) -> Result<Link, LinkError> {
    let mut at = SocketAddr::new(address, port);
    // The port of the last time may be taken: peers are given the new one.
    if port != 0 && UdpSocket::bind(at).is_err() {
        at.set_port(0);
    }
    let mut config = LinkConfig::new(at, key);
    // Its own key is no peer; it makes the link accept connections of keys that are allowed later.
    config.allow = vec![config.key.public()];
    Link::bind(config)
}

impl Shell {
    fn run(mut self, received: &Receiver<Event>) -> Result<(), DaemonError> {
        self.take_stock()?;
        loop {
            let now = self.begin.elapsed();
            let wait = self
                .machine
                .deadline()
                .map_or(Duration::from_secs(3600), |at| at.saturating_sub(now));
            match received.recv_timeout(wait) {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => self.handle(Event::Tick),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if let Some(failure) = self.bridge.failure() {
                return Err(io::Error::other(format!("the link has ended: {failure}")).into());
            }
        }
    }

    /// What the last daemon of this machine has left.
    fn take_stock(&mut self) -> io::Result<()> {
        let kept: Kept = self.folder.read(DESIRED)?.unwrap_or_default();
        self.desired.clone_from(&kept.desired.runs);
        let mut keepers: BTreeMap<_, _> = runs::find_all(&self.folder).into_iter().collect();
        for entry in std::fs::read_dir(self.folder.runs())? {
            let Ok(run) = entry?.file_name().into_string() else {
                continue;
            };
            // A process that is starting a keeper goes on without the daemon that has begun it.
            let is_starting = runs::is_starting(&self.folder, &run);
            let has_ended = self.folder.run(&run).join(ENDED).exists();
            self.handle(match keepers.remove(&run) {
                Some(keeper) => Event::Found { run, keeper },
                None if is_starting => Event::WasStarting { run },
                None if has_ended => Event::WasEnded { run },
                None => Event::HasFiles { run },
            });
        }
        self.handle(Event::Desired(kept));
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        if let Event::Started {
            run,
            result: Ok(keeper),
        } = &event
        {
            self.keepers.insert(run.clone(), *keeper);
        }
        let actions = self.machine.handle(event, self.begin.elapsed());
        for action in actions {
            self.perform(action);
        }
        self.publish_state();
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Keep(kept) => {
                self.desired.clone_from(&kept.desired.runs);
                // The next start without the coordinator would be of the state before.
                if let Err(error) = self.folder.write(DESIRED, &kept) {
                    eprintln!("warning: the desired state is not kept on disk: {error}");
                }
            }
            Action::Prepare { run, desired } => {
                let (folder, client) = (self.folder.clone(), Arc::clone(&self.client));
                self.background(move |events| {
                    let result = runs::prepare(&folder, &client, &run, &desired);
                    let _ = events.send(Event::Prepared { run, result });
                });
            }
            Action::Start { run, desired } => {
                let (folder, follow) = (self.folder.clone(), self.follower(&run));
                self.background(move |events| {
                    let result = runs::start(&folder, &run, &desired);
                    started(run, result, follow, events);
                });
            }
            Action::AwaitStart { run } => {
                let (folder, follow) = (self.folder.clone(), self.follower(&run));
                self.background(move |events| {
                    let result = runs::await_start(&folder, &run);
                    started(run, result, follow, events);
                });
            }
            Action::Follow { run, keeper } => {
                let follow = self.follower(&run);
                self.keepers.insert(run, keeper);
                self.background(move |events| follow(keeper, events));
            }
            Action::Stop { run } => {
                if let Some(keeper) = self.keepers.get(&run).copied() {
                    self.background(move |_| runs::stop(keeper));
                }
            }
            Action::NoteEnded { run } => {
                let path = self.folder.run(&run);
                let noted = crate::folder::make(&path).and_then(|()| {
                    let mut options = std::fs::OpenOptions::new();
                    options.create(true).truncate(true).write(true).mode(0o600);
                    options.open(path.join(ENDED))?.sync_all()
                });
                if let Err(error) = noted {
                    eprintln!("warning: the end of a run is not kept on disk: {error}");
                }
            }
            Action::Remove { run } => {
                self.keepers.remove(&run);
                self.bridge.forget(&run);
                self.live.change(|state| {
                    state.nodes.remove(&run);
                    state.crossings.remove(&run);
                });
                if let Err(error) = runs::remove(&self.folder, &run) {
                    eprintln!("warning: the files of a run are not removed: {error}");
                }
            }
        }
    }

    /// Follows the keeper of a run, which is not desired any more if its part is not known.
    fn follower(&self, run: &str) -> impl FnOnce(u32, &Sender<Event>) + Send + use<> {
        let (live, bridge) = (Arc::clone(&self.live), Arc::clone(&self.bridge));
        let desired = self.desired.get(run);
        let spec = desired.map(|desired| PartSpec::new(&self.folder, run, desired, false));
        let run = run.to_owned();
        move |keeper, events| match spec {
            Some(spec) => follow(&live, &bridge, &run, keeper, &spec, events),
            None => {
                let finished = runs::follow(keeper, |_| {});
                let _ = events.send(Event::KeeperGone { run, finished });
            }
        }
    }

    fn background(&self, work: impl FnOnce(&Sender<Event>) + Send + 'static) {
        let events = self.events.clone();
        if let Err(error) = spawn("nervure-run", move || work(&events)) {
            eprintln!("warning: {error}");
        }
    }

    fn publish_state(&self) {
        let runs: BTreeMap<RunId, ActualRun> = self
            .machine
            .runs()
            .map(|(run, dataflow, state)| {
                let run_state = ActualRun {
                    dataflow: dataflow.to_owned(),
                    state,
                    nodes: BTreeMap::new(),
                    streams: Vec::new(),
                };
                (run.clone(), run_state)
            })
            .collect();
        self.live.change(|state| state.runs = runs);
    }
}

/// The start of a run has ended.
fn started(
    run: RunId,
    result: Result<u32, String>,
    follow: impl FnOnce(u32, &Sender<Event>),
    events: &Sender<Event>,
) {
    let keeper = result.clone();
    let _ = events.send(Event::Started { run, result });
    if let Ok(keeper) = keeper {
        follow(keeper, events);
    }
}

/// Joins the stand-ins of a run, and follows its keeper.
fn follow(
    live: &Live,
    bridge: &Arc<Bridge>,
    run: &str,
    keeper: u32,
    spec: &PartSpec,
    events: &Sender<Event>,
) {
    let crossing = match spec.stand_ins() {
        Ok(stand_ins) => Some(bridge.join(run, keeper, &spec.machines, stand_ins)),
        Err(error) => {
            eprintln!(
                "warning: the samples of {} do not cross machines: {error}",
                spec.dataflow
            );
            None
        }
    };
    if let Some(crossing) = &crossing {
        live.change(|state| drop(state.crossings.insert(run.to_owned(), Arc::clone(crossing))));
    }
    let finished = runs::follow(keeper, |nodes| {
        live.change(|state| drop(state.nodes.insert(run.to_owned(), nodes.clone())));
    });
    if let Some(crossing) = &crossing {
        crossing.end();
    }
    let _ = events.send(Event::KeeperGone {
        run: run.to_owned(),
        finished,
    });
}

impl Live {
    fn change(&self, change: impl FnOnce(&mut LiveState)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        state.version += 1;
        self.changed.notify_all();
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
            actual.nodes = state.nodes.get(run).cloned().unwrap_or_default();
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

/// Follows the desired state of this machine, through losses of the coordinator.
fn watch_desired(store: &dyn Store, machine: &str, events: &Sender<Event>) {
    let key = desired_key(machine);
    follow_prefix(store, &key, |entry| {
        if entry.key != key {
            return true;
        }
        match parse(&key, &entry.value) {
            Ok(desired) => events
                .send(Event::Desired(Kept {
                    revision: entry.revision,
                    desired,
                }))
                .is_ok(),
            Err(error) => {
                eprintln!("warning: {error}");
                true
            }
        }
    });
}

/// Calls `found` with each entry below a prefix and each later version of one, until it returns
/// false.
fn follow_prefix(store: &dyn Store, prefix: &str, mut found: impl FnMut(&Entry) -> bool) {
    let mut from: Option<Revision> = None;
    let mut is_away = false;
    loop {
        let step = match from {
            None => store
                .list(prefix)
                .map(|listing| (listing.revision, listing.entries)),
            Some(after) => store.watch(prefix, after, WATCH).map(|changes| {
                let entries = changes
                    .changes
                    .into_iter()
                    .filter_map(|change| change.entry);
                (changes.revision, entries.collect())
            }),
        };
        match step {
            Ok((revision, entries)) => {
                if std::mem::take(&mut is_away) {
                    eprintln!("the coordinator is back");
                }
                from = Some(revision);
                if !entries.iter().all(&mut found) {
                    return;
                }
            }
            Err(StoreError::Compacted { .. }) => from = None,
            Err(error) => {
                if !std::mem::replace(&mut is_away, true) && prefix.starts_with("desired/") {
                    eprintln!("warning: {error}; the dataflows of this machine go on");
                }
                std::thread::sleep(RECONNECT);
            }
        }
    }
}

/// The links of the other machines. They are kept on disk: a machine that boots without the
/// coordinator still reaches the others.
struct Peers {
    own: String,
    own_key: PublicKey,
    coordinator: PublicKey,
    bridge: Arc<Bridge>,
    known: BTreeMap<String, LinkEnd>,
    folder: Folder,
}

impl Peers {
    fn follow(mut self, store: &dyn Store) {
        for (name, link) in self.known.clone() {
            self.connect(&name, &link);
        }
        follow_prefix(store, ACTUAL, |entry| {
            if let Some(name) = entry.key.strip_prefix(ACTUAL)
                && name != self.own
                && let Ok(actual) = parse::<Actual>(&entry.key, &entry.value)
                && self.known.get(name) != Some(&actual.link)
            {
                self.connect(name, &actual.link);
                self.known.insert(name.to_owned(), actual.link);
                if let Err(error) = self.folder.write(PEERS, &self.known) {
                    eprintln!("warning: the address of {name} is not kept on disk: {error}");
                }
            }
            true
        });
    }

    fn connect(&self, name: &str, link: &LinkEnd) {
        if let Ok(key) = link.key.parse() {
            let dials = dials(self.own_key, key, self.coordinator);
            self.bridge.set_peer(name, link, dials);
        }
    }
}

/// Which of two machines connects the link: not the coordinator's, since robots may be behind a
/// network address translation; between others the one with the lower key.
fn dials(own: PublicKey, peer: PublicKey, coordinator: PublicKey) -> bool {
    if own == coordinator || peer == coordinator {
        return own != coordinator;
    }
    own < peer
}

/// Writes what is, whenever that has changed.
fn report(
    client: &Client,
    machine: &str,
    own_key: PublicKey,
    address: Option<IpAddr>,
    port: u16,
    live: &Live,
) {
    let key = actual_key(machine);
    let mut version = 0;
    let mut written = None;
    loop {
        let runs = live.runs_after(&mut version, WATCH);
        let result = address
            .map_or_else(|| client.local_address(), Ok)
            .map(|ip| Actual {
                link: LinkEnd {
                    address: SocketAddr::new(ip, port),
                    key: own_key.to_string(),
                },
                runs,
            });
        let done = match result {
            Ok(actual) if written.as_ref() == Some(&actual) => continue,
            Ok(actual) => write(client, &key, &actual).map(|()| written = Some(actual)),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        };
        if done.is_err() {
            // What was written last is not known, and the state may have changed meanwhile.
            (version, written) = (0, None);
            std::thread::sleep(RECONNECT);
        }
    }
}

fn write(store: &dyn Store, key: &str, actual: &Actual) -> Result<(), StoreError> {
    let json = serde_json::to_vec(actual).expect("a state can be written as JSON");
    loop {
        let found = store.get(key)?;
        let expected = found.map_or(Expected::Absent, |entry| Expected::Revision(entry.revision));
        match store.compare_and_set(key, expected, Some(&json), None) {
            Err(StoreError::Conflict { .. }) => {}
            done => return done.map(|_| ()),
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(drop)
}
