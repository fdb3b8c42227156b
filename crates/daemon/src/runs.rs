//! Prepares, starts, finds, follows and stops the keepers of runs. Each function here may block.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use nervure_coordinator::Client;
use nervure_node::running::{self, Connection, ConnectionError};
use nervure_protocol::address::KeeperAddress;
use nervure_protocol::cli_to_keeper::{Message, NodeOrder, Watch};
use nervure_protocol::daemon_to_cli::NodeState;
use nervure_protocol::keeper_to_cli;
use nervure_protocol::report::Report;

use crate::bundle;
use crate::by_hand;
use crate::folder::{self, Folder};
use crate::part::{self, FILES, PartSpec, STOPPED};
use crate::state::DesiredRun;
use crate::threads::spawn;

/// Pause between two looks for a keeper that is being started. It announces itself by the name of its socket
/// alone, of which no event comes; the start of a process takes about this long.
pub(crate) const LOOK: Duration = Duration::from_millis(5);

/// Pause before a keeper that does not answer is called again: each call lasts as long as its time limit,
/// and no event announces that a stopped process goes on (SIGCONT).
const RETRY: Duration = Duration::from_millis(200);

/// Fetches the bundle of a run, unpacks it, and checks the part.
pub(crate) fn prepare(
    folder: &Folder,
    client: &Client,
    run: &str,
    desired: &DesiredRun,
) -> Result<(), String> {
    let target = folder.run(run);
    folder::make(&target)
        .and_then(|()| part::prepare_end(&target))
        .and_then(|()| by_hand::prepare(&target))
        .map_err(|error| format!("{}: {error}", target.display()))?;
    fetch(client, &desired.bundle, &target)?;
    check(&PartSpec::new(folder, run, desired, true))
}

/// Fetches a bundle, and unpacks it into a folder, unless that has it.
pub(crate) fn fetch(client: &Client, digest: &str, folder: &Path) -> Result<(), String> {
    let files = folder.join(FILES);
    if files.exists() {
        return Ok(());
    }
    let bytes = client.bundle(digest).map_err(|error| error.to_string())?;
    // Complete, or not there.
    let partly = folder.join("files.part");
    let _ = std::fs::remove_dir_all(&partly);
    bundle::unpack(&bytes, &partly).map_err(|error| error.to_string())?;
    std::fs::rename(&partly, &files).map_err(|error| format!("{}: {error}", files.display()))
}

/// Checks a part, or the programs of some of its nodes.
pub(crate) fn check(spec: &PartSpec) -> Result<(), String> {
    // The check of a daemon that was killed ends soon.
    let status = loop {
        match spec.spawn() {
            Ok(Some(mut child)) => break child.wait(),
            Ok(None) => match part::await_unlocked(&spec.folder) {
                Ok(()) => {}
                Err(error) => break Err(error),
            },
            Err(error) => break Err(error),
        }
    };
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(spec.printed()),
        Err(error) => Err(format!("its check cannot be started: {error}")),
    }
}

/// Outcome of a start.
enum Start {
    /// This keeper listens.
    Runs(u32),
    /// All nodes of the run have ended already.
    Ended,
    /// There is neither a process nor a keeper any more.
    Failed,
}

/// Starts a part, and returns its keeper as soon as it listens: nodes start only when the stand-ins have
/// joined. `None` if all have ended already. The process that starts it reports to a file of the run.
pub(crate) fn start(
    folder: &Folder,
    run: &str,
    desired: &DesiredRun,
) -> Result<Option<u32>, String> {
    let spec = PartSpec::new(folder, run, desired, false);
    loop {
        // Reaps the process, which ends when the dataflow is ready or has ended.
        let (to_wait, children) = channel::<Child>();
        let waits = spawn("nervure-wait", move || {
            children
                .into_iter()
                .for_each(|mut child| drop(child.wait()))
        });
        let spawned = waits.and_then(|()| spec.spawn());
        let child = spawned.map_err(|error| format!("it cannot be started: {error}"))?;
        let is_own = child.is_some();
        child.map(|child| to_wait.send(child));
        drop(to_wait);
        match await_keeper(folder, run, Some(&spec.dataflow)) {
            Start::Runs(keeper) => return Ok(Some(keeper)),
            Start::Ended => return Ok(None),
            Start::Failed if is_own => return Err(spec.printed()),
            // Another daemon's process had the lock, or a keeper that was ending.
            Start::Failed => {}
        }
    }
}

/// Awaits the keeper that a process of another daemon is starting, or that did not answer; `None` if all
/// its nodes have ended already.
pub(crate) fn await_start(folder: &Folder, run: &str) -> Result<Option<u32>, String> {
    match await_keeper(folder, run, None) {
        Start::Runs(keeper) => Ok(Some(keeper)),
        Start::Ended => Ok(None),
        Start::Failed => Err("the process that started it has ended".to_owned()),
    }
}

fn await_keeper(folder: &Folder, run: &str, dataflow: Option<&str>) -> Start {
    loop {
        // In this order: a process that has ended has left a keeper, or none.
        let is_over = !is_starting(folder, run);
        let mut keepers = keepers(folder, dataflow);
        match keepers.find(|(of, _)| of == run) {
            Some((_, address)) => return Start::Runs(address.keeper),
            None if is_over && part::has_ended(&folder.run(run)) => return Start::Ended,
            None if is_over => return Start::Failed,
            None => std::thread::sleep(LOOK),
        }
    }
}

/// Whether a process checks or starts a run, or its keeper lives, even if it does not answer now.
pub(crate) fn is_starting(folder: &Folder, run: &str) -> bool {
    part::is_locked(&folder.run(run))
}

/// The run of a dataflow file.
pub(crate) fn run_of(folder: &Folder, file: &str) -> Option<String> {
    let inside = Path::new(file).strip_prefix(folder.runs()).ok()?;
    let run = inside.components().next()?;
    Some(run.as_os_str().to_str()?.to_owned())
}

/// The keepers of all runs of this machine that answer: they outlive the daemon.
pub(crate) fn find_all(folder: &Folder) -> BTreeMap<String, u32> {
    let keepers = keepers(folder, None);
    keepers
        .map(|(run, address)| (run, address.keeper))
        .collect()
}

/// The keeper of a run, if it answers.
pub(crate) fn keeper_of(folder: &Folder, run: &str) -> Option<KeeperAddress> {
    let mut keepers = keepers(folder, None);
    keepers
        .find(|(of, _)| of == run)
        .map(|(_, address)| address)
}

/// The runs of keepers that answer, of one dataflow or of all.
fn keepers(
    folder: &Folder,
    dataflow: Option<&str>,
) -> impl Iterator<Item = (String, KeeperAddress)> {
    let mut asked = running::dataflows().unwrap_or_default();
    asked.retain(|it| dataflow.is_none_or(|name| it.dataflow == name));
    let opened = Connection::open_all(asked, "daemon").into_iter();
    opened.filter_map(|(address, opened)| {
        let run = run_of(folder, opened.ok()?.welcome().file.as_deref()?)?;
        Some((run, address))
    })
}

/// Follows a keeper until it is gone, and reports the states of its nodes. Returns whether all nodes of
/// its run, which has this folder, had ended.
pub(crate) fn follow(keeper: u32, run: &Path, report: impl Fn(&NodeStates)) -> bool {
    let was_finished = follow_reports(keeper, report);
    // The last report may be lost: it does not wait for a slow daemon.
    was_finished || part::has_ended(run)
}

fn follow_reports(keeper: u32, report: impl Fn(&NodeStates)) -> bool {
    let connect = || {
        let address = running::find(Some(&keeper.to_string()))?;
        let connection = Connection::open(&address, "daemon")?;
        let watch = Watch {
            logs: false,
            follow: true,
            without_observers: true,
        };
        connection.send(&Message::Watch(watch))?;
        Ok::<_, ConnectionError>(connection)
    };
    let Ok(mut connection) = until_it_answers(connect) else {
        return false;
    };
    let mut states = NodeStates::default();
    loop {
        match connection.receive_until(Instant::now() + Duration::from_secs(60)) {
            Ok(Some((message, _))) => {
                if states.note(message) {
                    report(&states);
                }
            }
            Ok(None) | Err(ConnectionError::Protocol(_)) => {}
            Err(_) => return states.is_finished,
        }
    }
}

/// The states of the nodes of a keeper, from its reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeStates {
    pub nodes: BTreeMap<String, NodeState>,
    /// Whether all of them have been ready.
    pub is_ready: bool,
    /// Ids of stand-ins, which are nodes of other machines.
    stand_ins: BTreeSet<String>,
    is_finished: bool,
}

impl NodeStates {
    /// Notes a message of the keeper. Returns whether a state has changed.
    fn note(&mut self, message: keeper_to_cli::Message) -> bool {
        let (id, state) = match message {
            keeper_to_cli::Message::NodeDeclared(node) if node.remote.is_some() => {
                self.stand_ins.insert(node.id);
                return false;
            }
            keeper_to_cli::Message::NodeDeclared(node) => {
                self.nodes.entry(node.id).or_insert(NodeState::Waiting);
                return true;
            }
            keeper_to_cli::Message::Report { report } => match report {
                Report::NodeStarted(started) => (started.id, NodeState::Running),
                Report::NodeEnded(ended) => (ended.id.clone(), NodeState::after(&ended)),
                Report::Ready => return !std::mem::replace(&mut self.is_ready, true),
                Report::Finished => {
                    self.is_finished = true;
                    return false;
                }
                _ => return false,
            },
            _ => return false,
        };
        let is_own = !self.stand_ins.contains(&id);
        is_own && self.nodes.insert(id, state.clone()) != Some(state)
    }
}

/// Nodes that the end of the lease has stopped, by the folder of their run. A copy is on disk for the next
/// daemon; this one does not need it if the disk is full.
#[derive(Debug, Default)]
pub(crate) struct StoppedNodes(BTreeMap<PathBuf, BTreeSet<String>>);

impl StoppedNodes {
    /// Stops nodes while the lease is not held, and starts them again when it is. A node that a user
    /// has stopped stays so.
    pub fn apply(
        &mut self,
        keeper: u32,
        run: &Path,
        nodes: &[String],
        is_held: bool,
        has_just_started: bool,
    ) -> Result<(), String> {
        self.0.retain(|run, _| run.exists());
        if has_just_started {
            self.0.remove(run);
        }
        let folder = Folder::at(run).map_err(|error| error.to_string())?;
        let stopped = match self.0.entry(run.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let read = folder
                    .read_cache(STOPPED)
                    .map_err(|error| error.to_string())?;
                place.insert(read.unwrap_or_else(|| nodes.iter().cloned().collect()))
            }
        };
        let before = stopped.clone();
        stop_or_start(keeper, nodes, is_held, stopped)?;
        if *stopped == before {
            return Ok(());
        }
        folder
            .write(STOPPED, stopped)
            .map_err(|error| error.to_string())
    }
}

fn stop_or_start(
    keeper: u32,
    nodes: &[String],
    is_held: bool,
    stopped: &mut BTreeSet<String>,
) -> Result<(), String> {
    let (order, concerned): (_, Vec<&String>) = match is_held {
        true => (
            NodeOrder::Start,
            nodes
                .iter()
                .filter(|node| stopped.contains(*node))
                .collect(),
        ),
        false => (NodeOrder::Stop, nodes.iter().collect()),
    };
    for node in concerned {
        let message = Message::Node {
            node: node.clone(),
            order,
        };
        let accepted = match ask(keeper, "lease", &message) {
            Ok(_) => true,
            // It does not run, or runs already.
            Err(ConnectionError::Refused(_)) => false,
            // The dataflow has ended.
            Err(
                ConnectionError::Gone(_)
                | ConnectionError::NoneRuns(_)
                | ConnectionError::NotRunning { .. },
            ) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        match is_held {
            true => drop(stopped.remove(node)),
            false if accepted => drop(stopped.insert(node.clone())),
            false => {}
        }
    }
    Ok(())
}

/// Stops a keeper. It is gone when [`follow`] returns.
pub(crate) fn stop(keeper: u32) {
    let reason = "`nervure stop`".to_owned();
    // An error if it has ended already.
    let _ = ask(keeper, "daemon", &Message::Stop { reason });
}

/// Pauses a keeper, or lets it go on. Returns false if the dataflow has ended, or is ending.
pub(crate) fn set_paused(keeper: u32, is_paused: bool) -> bool {
    let (program, message) = match is_paused {
        true => ("nervure pause", Message::Pause),
        false => ("nervure resume", Message::Resume),
    };
    ask(keeper, program, &message).is_ok()
}

/// Sends an order to a keeper, and waits for its answer.
fn ask(
    keeper: u32,
    program: &str,
    message: &Message,
) -> Result<keeper_to_cli::Message, ConnectionError> {
    until_it_answers(|| {
        let address = running::find(Some(&keeper.to_string()))?;
        Connection::open(&address, program)?.ask(message)
    })
}

/// Repeats a call to a keeper until it answers: one that does not may be stopped (SIGSTOP).
pub(crate) fn until_it_answers<T>(
    mut call: impl FnMut() -> Result<T, ConnectionError>,
) -> Result<T, ConnectionError> {
    loop {
        match call() {
            Err(
                ConnectionError::NoAnswer { .. }
                | ConnectionError::System(_)
                | ConnectionError::List(_),
            ) => std::thread::sleep(RETRY),
            answer => return answer,
        }
    }
}

/// Removes the programs of a run.
pub(crate) fn clear(folder: &Folder, run: &str) -> io::Result<()> {
    remove_all(&folder.run(run).join(FILES))
}

/// Removes the files of a run.
pub(crate) fn remove(folder: &Folder, run: &str) -> io::Result<()> {
    remove_all(&folder.run(run))
}

fn remove_all(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
