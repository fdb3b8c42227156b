//! The shell of a daemon: carries out the actions of [`crate::machine`], and feeds it events.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nervure_coordinator::{Address, CallError, Client, own_addresses};
use nervure_identity::{IdentityError, KeyPair};
use nervure_link::shell::{Link, LinkConfig, LinkError};
use nervure_store::{Store, StoreError};

use crate::alive::{self, Leases, Noted};
use crate::announce;
use crate::bridge::Bridge;
use crate::by_hand::{self, ByHand};
use crate::folder::{DESIRED, Folder, PAIRING, Pairing};
use crate::machine::{Action, Daemon, Event, Kept};
use crate::node_changes::ChangeSenders;
use crate::part::{self, PartSpec};
use crate::peers::Peers;
use crate::replacement::{self, Running};
use crate::reports::Reports;
use crate::runs::{self, StoppedNodes};
use crate::stand_ins;
use crate::state::{DesiredRun, Phase, RunId, desired_key, random_number};
use crate::sync::{self, Live, PEERS};
use crate::threads::{self, Work, spawn};
use crate::tools::{self, Dataflows, Host, Served};

/// The longest delay of a daemon's start by the check whether another one has its key.
const COPY_ANSWER: Duration = Duration::from_secs(1);

/// Configuration of a daemon.
pub struct Config {
    /// The state of the machine on disk.
    pub folder: Folder,
    /// The pairing of the machine.
    pub pairing: Pairing,
    /// The address of this machine for others; `None` for its address on the network of the coordinator.
    pub address: Option<IpAddr>,
    /// The command that the daemon is part of.
    pub host: Arc<dyn Host>,
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
    changes: Arc<ChangeSenders>,
    events: Sender<Event>,
    machine: Daemon,
    begin: Instant,
    live: Arc<Live>,
    desired: BTreeMap<RunId, DesiredRun>,
    /// Whether the search for runs of this machine waits for the desired state.
    awaits_desired: bool,
    keepers: BTreeMap<RunId, u32>,
    lease: Arc<HeldLease>,
    pauses: Arc<Pauses>,
    /// Writes to the disk, in this order.
    disk: Sender<DiskWork>,
    /// Starts a thread for each work.
    background: Sender<Work>,
}

type DiskWork = Box<dyn FnOnce(&Sender<Event>) + Send>;

/// The runs to pause. The last of several changes is applied last.
#[derive(Debug, Default)]
struct Pauses {
    wanted: Mutex<BTreeMap<RunId, bool>>,
    applied: Mutex<()>,
}

impl Pauses {
    fn want(&self, run: &str, is_paused: bool) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.insert(run.to_owned(), is_paused);
    }

    fn forget(&self, run: &str) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.remove(run);
    }

    /// Pauses a keeper, or lets it go on. Returns whether it is paused; `None` if it has ended.
    fn apply(&self, run: &str, keeper: u32) -> Option<bool> {
        let _applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let is_paused = {
            let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            *wanted.get(run)?
        };
        runs::set_paused(keeper, is_paused).then_some(is_paused)
    }
}

/// Whether the lease of this machine is held, and the nodes that run only meanwhile.
#[derive(Debug, Default)]
struct HeldLease {
    /// `None` before it is known.
    is_held: Mutex<Option<bool>>,
    applied: Mutex<StoppedNodes>,
}

impl HeldLease {
    fn set(&self, is_held: bool) {
        let mut place = self.is_held.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(is_held);
    }

    /// The nodes of a part that may not run now.
    fn nodes_without_lease(&self, spec: &PartSpec) -> Vec<String> {
        let known = *self.is_held.lock().unwrap_or_else(PoisonError::into_inner);
        match known {
            Some(true) => Vec::new(),
            _ => spec
                .stand_ins()
                .map_or_else(|_| Vec::new(), |it| it.stop_on_partition),
        }
    }

    /// Stops or starts the nodes of a part with `on_partition: stop`, by the state of the lease. While it
    /// is not known, nodes of a part that has just started wait; those that ran go on.
    fn apply(&self, keeper: u32, spec: &PartSpec, has_just_started: bool) {
        let nodes = match spec.stand_ins() {
            Ok(stand_ins) => stand_ins.stop_on_partition,
            Err(_) => return,
        };
        if nodes.is_empty() {
            return;
        }
        // Under the lock, so that the last of several changes is applied last.
        let mut stopped = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let known = *self.is_held.lock().unwrap_or_else(PoisonError::into_inner);
        let is_held = match known {
            Some(is_held) => is_held,
            None if has_just_started => false,
            None => return,
        };
        if let Err(error) = stopped.apply(keeper, &spec.folder, &nodes, is_held, has_just_started) {
            tracing::warn!(
                "the nodes of {} with `on_partition: stop` are not as the lease is: {error}",
                spec.dataflow
            );
        }
    }
}

/// Runs the daemon. Returns only if it cannot go on; `on_ready` is called once it serves. The death of the
/// daemon ends no dataflow.
///
/// # Errors
/// [`DaemonError`].
pub fn serve(config: Config, on_ready: impl FnOnce()) -> Result<(), DaemonError> {
    let Config {
        folder,
        pairing,
        address,
        host,
    } = config;
    let _lock = folder.lock().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => DaemonError::Runs(folder.path().display().to_string()),
        _ => error.into(),
    })?;
    crate::folder::make(&folder.runs())?;
    let key = KeyPair::load_or_generate(&folder.key())?;
    let own_key = key.public();
    let coordinator = pairing.coordinator_key()?;
    let paired_with = pairing.endpoints()?;
    let client = Arc::new(Client::new(paired_with[0].address, coordinator, &key)?);
    client.set_coordinators(&paired_with);
    client.identify(place().or_else(|_| random_number())?);
    let is_copy = is_copy(&client, &pairing.name)?;
    let any = match paired_with[0].address {
        SocketAddr::V4(_) => IpAddr::from([0; 4]),
        SocketAddr::V6(_) => IpAddr::from([0; 16]),
    };
    let link = bind_link(address.unwrap_or(any), pairing.link_port, key)?;
    let link_port = link.local_address().port();
    let pairing = Pairing {
        link_port,
        ..pairing
    };
    // Peers get the port even if it is not kept.
    if let Err(error) = folder.write(PAIRING, &pairing) {
        tracing::warn!("the port of the link is not kept on disk: {error}");
    }
    let (events, received) = channel();
    let (requests, arrived) = channel();
    let bridge = Bridge::start(pairing.name.clone(), link, requests)?;
    let reports = Arc::new(Reports::default());
    let live = Arc::<Live>::default();
    let dataflows = Dataflows {
        folder: folder.clone(),
        live: Arc::clone(&live),
    };
    let resources = host.resources();
    let served = Served {
        bridge: Arc::clone(&bridge),
        dataflows: dataflows.clone(),
        host,
    };
    served.serve_all(arrived)?;
    tools::listen(
        &tools::socket_name(own_key),
        pairing.name.clone(),
        Arc::clone(&bridge),
        Arc::clone(&reports),
        dataflows,
        events.clone(),
    )?;
    sync::follow_reports(&client, reports)?;
    let folder_for_peers = folder.clone();
    let shell = Shell {
        disk: start_disk(events.clone())?,
        background: threads::starter()?,
        changes: ChangeSenders::start(&bridge)?,
        bridge: Arc::clone(&bridge),
        client: Arc::clone(&client),
        events: events.clone(),
        machine: Daemon::default(),
        begin: Instant::now(),
        live: Arc::clone(&live),
        desired: BTreeMap::new(),
        awaits_desired: false,
        keepers: BTreeMap::new(),
        lease: Arc::default(),
        pauses: Arc::default(),
        folder,
    };
    let known = folder_for_peers.read_cache(PEERS)?.unwrap_or_default();
    let peers = Peers::new(own_key, coordinator, known);
    let leases = Leases::new(&bridge, &client, own_key, events.clone());
    let of_fleet = (&client, &bridge);
    let followed = sync::follow_peers(peers, paired_with, of_fleet, &leases, folder_for_peers)?;
    let (for_watch, name) = (Arc::clone(&client), pairing.name.clone());
    let for_addresses = Arc::clone(&followed);
    spawn("nervure-desired", move || {
        let on_away = || for_addresses.look_for_addresses();
        sync::watch_desired(&*for_watch, &name, &events, on_away);
    })?;
    let is_coordinator = own_key == coordinator;
    if is_coordinator {
        grant_leases(&bridge, &client, &leases, &pairing.name)?;
        let (bridge, followed) = (Arc::clone(&bridge), Arc::clone(&followed));
        spawn("nervure-announce", move || {
            announce::announce(&bridge, &followed)
        })?;
    }
    let for_follow = Arc::clone(&bridge);
    spawn("nervure-announced", move || {
        announce::follow(&for_follow, &followed)
    })?;
    spawn("nervure-report", move || {
        let Pairing { name, labels, .. } = &pairing;
        let own_ip = || own_ip(address, is_coordinator, &client);
        sync::report(&client, name, labels, resources, own_ip, link_port, &live);
    })?;
    on_ready();
    shell.run(&received, is_copy)
}

/// Identifies the place of this daemon: the same number for the next one here until the machine boots
/// again, another number for a machine with a copy of its disk.
fn place() -> io::Result<u64> {
    let mut text = std::fs::read("/proc/sys/kernel/random/boot_id")?;
    // The name of the daemon's socket contains its key, so that a network namespace has one daemon for it.
    let network = std::fs::read_link("/proc/self/ns/net")?;
    text.extend(network.as_os_str().as_encoded_bytes());
    let digest = nervure_coordinator::digest(&text);
    u64::from_str_radix(&digest[..16], 16).map_err(io::Error::other)
}

/// Whether another daemon with the key of this machine lives, if the coordinator answers in time. This disk
/// is then a copy, and its desired state is that of the other machine.
fn is_copy(client: &Arc<Client>, name: &str) -> io::Result<bool> {
    let (sender, asked) = channel();
    let (for_call, key) = (Arc::clone(client), desired_key(name));
    spawn("nervure-copy", move || {
        let _ = (for_call.get(&key), sender.send(()));
    })?;
    // A coordinator that does not answer delays no start for longer.
    let _ = asked.recv_timeout(COPY_ANSWER);
    Ok(client.is_copy())
}

/// The address of this machine for links. A coordinator that listens on all addresses is reached on each of
/// them.
fn own_ip(
    named: Option<IpAddr>,
    is_coordinator: bool,
    client: &Client,
) -> Result<IpAddr, StoreError> {
    let of_interface = || own_addresses(0).iter().find_map(Address::ip);
    let found = named.or_else(|| Some(of_interface().filter(|_| is_coordinator)?.ip()));
    let unavailable = |error: CallError| StoreError::Unavailable(error.to_string());
    found.map_or_else(|| client.local_address().map_err(unavailable), Ok)
}

/// Starts the thread that writes to the disk.
fn start_disk(events: Sender<Event>) -> io::Result<Sender<DiskWork>> {
    let (sender, work) = channel::<DiskWork>();
    spawn("nervure-disk", move || {
        work.into_iter().for_each(|write| write(&events))
    })?;
    Ok(sender)
}

/// Grants the leases of the other machines, and notes the reachable ones.
fn grant_leases(
    bridge: &Arc<Bridge>,
    client: &Arc<Client>,
    leases: &Arc<Leases>,
    name: &str,
) -> io::Result<()> {
    let noted = Arc::new(Noted::default());
    let (client, name) = (Arc::clone(client), name.to_owned());
    let (for_grants, bridge, leases) = (Arc::clone(&noted), Arc::clone(bridge), Arc::clone(leases));
    spawn("nervure-grants", move || {
        alive::grant(&bridge, &for_grants, &leases);
    })?;
    spawn("nervure-alive", move || noted.write(&*client, &name))
}

/// The link listens on the address of the machine, or on all of them.
fn bind_link(address: IpAddr, port: u16, key: KeyPair) -> Result<Link, LinkError> {
    let mut at = SocketAddr::new(address, port);
    // The last port may be taken: peers get the new one.
    if port != 0 && UdpSocket::bind(at).is_err() {
        at.set_port(0);
    }
    let mut config = LinkConfig::new(at, key);
    // Its own key is no peer; it makes the link accept connections of keys that are allowed later.
    config.allow = vec![config.key.public()];
    Link::bind(config)
}

impl Shell {
    fn run(mut self, received: &Receiver<Event>, is_copy: bool) -> Result<(), DaemonError> {
        self.take_stock(is_copy)?;
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

    /// Takes over the state of this machine's last daemon.
    fn take_stock(&mut self, is_copy: bool) -> io::Result<()> {
        let kept: Option<Kept> = self.folder.read_cache(DESIRED)?;
        match kept.filter(|_| !is_copy) {
            Some(kept) => {
                self.desired = kept.runs();
                self.find_runs()?;
                self.handle(Event::Desired(kept));
            }
            // No run starts or stops before the coordinator has sent the desired state.
            None => self.awaits_desired = true,
        }
        Ok(())
    }

    /// Finds the runs that have a keeper, are starting, have ended, or have left files.
    fn find_runs(&mut self) -> io::Result<()> {
        let mut keepers = runs::find_all(&self.folder);
        for entry in std::fs::read_dir(self.folder.runs())? {
            let Ok(run) = entry?.file_name().into_string() else {
                continue;
            };
            // A process that starts a keeper outlives the daemon that has begun it. So does a keeper, which
            // may be too slow now to answer.
            let is_starting = runs::is_starting(&self.folder, &run);
            let has_ended = part::has_ended(&self.folder.run(&run));
            let by_hand = Event::ByHand {
                run: run.clone(),
                order: by_hand::current(&self.folder.run(&run)),
            };
            self.handle(match keepers.remove(&run) {
                Some(keeper) => Event::Found { run, keeper },
                None if is_starting => Event::WasStarting { run },
                None if has_ended => Event::WasEnded { run },
                None => Event::HasFiles { run },
            });
            self.handle(by_hand);
        }
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
        if let Event::Lease { is_held } = &event {
            self.lease.set(*is_held);
        }
        if let Event::Kept { kept, .. } = &event {
            self.desired = kept.runs();
            if std::mem::take(&mut self.awaits_desired)
                && let Err(error) = self.find_runs()
            {
                tracing::warn!("the runs of this machine are not found: {error}");
            }
        }
        let actions = self.machine.handle(event, self.begin.elapsed());
        for action in actions {
            self.perform(action);
        }
        self.publish_state();
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::ReportOldStore { known, begin, held } => tracing::warn!(
                "the coordinator's store has gone back from revision {} to {}: it was restored from a backup or emptied. \
                 New orders are taken; {} run(s) stay as they are, and old ones are not started",
                known.0,
                begin.0,
                held.len()
            ),
            Action::Keep(kept) => {
                let folder = self.folder.clone();
                self.on_disk(move |events| {
                    let written = folder.write(DESIRED, &kept);
                    // A start without the coordinator would use the state before.
                    if let Err(error) = &written {
                        tracing::warn!("the desired state is not kept on disk: {error}");
                    }
                    let is_durable = written.is_ok();
                    let _ = events.send(Event::Kept { kept, is_durable });
                });
            }
            Action::Prepare { run, desired } => {
                let (folder, client) = (self.folder.clone(), Arc::clone(&self.client));
                self.background(move |events| {
                    let result = runs::prepare(&folder, &client, &run, &desired);
                    if result.is_ok() {
                        // Without them the nodes start with their earlier programs.
                        replacement::prepare_all(&folder, &client, &run, &desired);
                    }
                    let _ = events.send(Event::Prepared { run, result });
                });
            }
            Action::Start { run, desired } => {
                let (folder, follow) = (self.folder.clone(), self.follower(&run, true));
                self.background(move |events| {
                    let result = runs::start(&folder, &run, &desired);
                    started(run, result, follow, events);
                });
            }
            Action::AwaitStart { run } => {
                let (folder, follow) = (self.folder.clone(), self.follower(&run, true));
                self.background(move |events| {
                    let result = runs::await_start(&folder, &run);
                    started(run, result, follow, events);
                });
            }
            Action::Follow { run, keeper } => {
                let follow = self.follower(&run, false);
                self.keepers.insert(run, keeper);
                self.background(move |events| follow(keeper, events));
            }
            Action::Stop { run } => {
                // After a stop by hand the dataflow goes on elsewhere, without the services of this machine.
                let desired = self.desired.get(&run);
                if desired.is_none_or(|desired| desired.phase == Phase::Stop) {
                    self.live.change(|state| {
                        if let Some(crossing) = state.crossings.get(&run) {
                            crossing.begin_stop();
                        }
                    });
                }
                if let Some(keeper) = self.keepers.get(&run).copied() {
                    self.background(move |_| runs::stop(keeper));
                }
            }
            Action::Lease { run, .. } => {
                if let Some(desired) = self.desired.get(&run) {
                    let spec = PartSpec::new(&self.folder, &run, desired, false);
                    let (lease, keeper) =
                        (Arc::clone(&self.lease), self.keepers.get(&run).copied());
                    self.background(move |_| {
                        if let Some(keeper) = keeper {
                            lease.apply(keeper, &spec, false);
                        }
                    });
                }
            }
            Action::SetPaused { run, is_paused } => {
                let pauses = Arc::clone(&self.pauses);
                pauses.want(&run, is_paused);
                if let Some(keeper) = self.keepers.get(&run).copied() {
                    self.background(move |events| {
                        if let Some(is_paused) = pauses.apply(&run, keeper) {
                            let _ = events.send(Event::Paused { run, is_paused });
                        }
                    });
                }
            }
            Action::SetPrograms {
                run,
                keeper,
                desired,
            } => {
                let (folder, client) = (self.folder.clone(), Arc::clone(&self.client));
                let lease = Arc::clone(&self.lease);
                self.background(move |events| {
                    let spec = PartSpec::new(&folder, &run, &desired, true);
                    let running = Running {
                        run: &run,
                        keeper,
                        desired: &desired,
                    };
                    let programs = replacement::set_all(&folder, &client, running, || {
                        lease.nodes_without_lease(&spec)
                    });
                    // The lease may have ended meanwhile.
                    lease.apply(keeper, &spec, false);
                    let _ = events.send(Event::ProgramsSet { run, programs });
                });
            }
            Action::NoteEnded { run } => {
                let path = self.folder.run(&run);
                self.on_disk(move |events| {
                    if let Err(error) = part::note_ended(&path) {
                        tracing::warn!("the end of a run is not kept on disk: {error}");
                    }
                    let _ = events.send(Event::EndNoted { run });
                });
            }
            Action::Clear { run } => {
                let folder = self.folder.clone();
                self.on_disk(move |_| {
                    if let Err(error) = runs::clear(&folder, &run) {
                        tracing::warn!("the programs of a run are not removed: {error}");
                    }
                });
            }
            Action::Remove { run } => {
                self.keepers.remove(&run);
                self.bridge.forget(&run);
                self.changes.forget(&run);
                self.pauses.forget(&run);
                self.live.change(|state| {
                    state.nodes.remove(&run);
                    state.crossings.remove(&run);
                });
                let folder = self.folder.clone();
                self.on_disk(move |_| {
                    if let Err(error) = runs::remove(&folder, &run) {
                        tracing::warn!("the files of a run are not removed: {error}");
                    }
                });
            }
        }
    }

    /// Follows the keeper of a run, which is not desired any more if its part is not known.
    fn follower(
        &self,
        run: &str,
        has_just_started: bool,
    ) -> impl FnOnce(u32, &Sender<Event>) + Send + use<> {
        let (live, bridge) = (Arc::clone(&self.live), Arc::clone(&self.bridge));
        let changes = Arc::clone(&self.changes);
        let lease = Arc::clone(&self.lease);
        let desired = self.desired.get(run);
        let spec = desired.map(|desired| PartSpec::new(&self.folder, run, desired, false));
        let is_paused = desired.is_some_and(|desired| desired.is_paused);
        let folder = self.folder.run(run);
        let run = run.to_owned();
        move |keeper, events| match spec {
            Some(spec) => {
                // Before the stand-ins join, so that no node and no timer starts without its lease.
                lease.apply(keeper, &spec, has_just_started);
                let is_held = || by_hand::current(&folder) == Some(ByHand::Paused);
                if has_just_started && (is_paused || is_held()) {
                    runs::set_paused(keeper, true);
                }
                follow(&live, (&bridge, &changes), (&run, keeper), &spec, events);
            }
            None => {
                let finished = runs::follow(keeper, &folder, |_| {});
                let _ = events.send(Event::KeeperGone { run, finished });
            }
        }
    }

    /// Queues a write to the disk, which may be slow: events such as the end of the lease do not wait for
    /// it.
    fn on_disk(&self, write: impl FnOnce(&Sender<Event>) + Send + 'static) {
        // Its thread ends with the daemon.
        let _ = self.disk.send(Box::new(write));
    }

    fn background(&self, work: impl FnOnce(&Sender<Event>) + Send + 'static) {
        let events = self.events.clone();
        // Its thread ends with the daemon. A step that is not answered would never end.
        let _ = self.background.send(Box::new(move || work(&events)));
    }

    fn publish_state(&self) {
        let runs = self.machine.runs();
        let runs = runs.map(|(run, actual)| (run.clone(), actual)).collect();
        self.live.change(|state| state.runs = runs);
    }
}

/// Reports the outcome of the start of a run.
fn started(
    run: RunId,
    result: Result<Option<u32>, String>,
    follow: impl FnOnce(u32, &Sender<Event>),
    events: &Sender<Event>,
) {
    let Some(result) = result.transpose() else {
        let _ = events.send(Event::WasEnded { run });
        return;
    };
    let keeper = result.clone();
    let _ = events.send(Event::Started { run, result });
    if let Ok(keeper) = keeper {
        follow(keeper, events);
    }
}

/// Joins the stand-ins of a run, and follows its keeper.
fn follow(
    live: &Live,
    (bridge, changes): (&Arc<Bridge>, &Arc<ChangeSenders>),
    (run, keeper): (&str, u32),
    spec: &PartSpec,
    events: &Sender<Event>,
) {
    let crossing = match spec.stand_ins() {
        Ok(stand_ins) => {
            let of_run = (run, keeper);
            Some(stand_ins::join(bridge, changes, of_run, spec, stand_ins))
        }
        Err(error) => {
            tracing::warn!(
                "the samples of {} do not cross machines: {error}",
                spec.dataflow
            );
            None
        }
    };
    if let Some(crossing) = &crossing {
        live.change(|state| drop(state.crossings.insert(run.to_owned(), Arc::clone(crossing))));
    }
    let finished = runs::follow(keeper, &spec.folder, |nodes| {
        live.change(|state| drop(state.nodes.insert(run.to_owned(), nodes.clone())));
    });
    if let Some(crossing) = &crossing {
        crossing.end();
        bridge.on_change();
    }
    let _ = events.send(Event::KeeperGone {
        run: run.to_owned(),
        finished,
    });
}
