//! The desired and the actual state of a machine, as JSON in the store.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};

use nervure_coordinator::{ACTUAL, ALIVE, DESIRED, LINKS};
use nervure_protocol::daemon_to_cli::NodeState;
use nervure_protocol::daemon_to_daemon::StreamReport;
use nervure_store::{Entry, Expected, Revision, Store, StoreError};
use serde::{Deserialize, Serialize};

use crate::by_hand::ByHand;
use crate::clock::ClockOffset;

/// Identifies one start of a dataflow on all its machines: 16 hexadecimal digits.
pub type RunId = String;

/// A number that is drawn at random: for ids of runs, of requests and of daemons.
///
/// # Errors
/// If the system provides no random numbers.
pub fn random_number() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// A [`random_number`] as an id.
///
/// # Errors
/// As [`random_number`].
pub fn random_id() -> io::Result<String> {
    Ok(format!("{:016x}", random_number()?))
}

/// The desired state of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Desired {
    /// Its parts of dataflows.
    pub runs: BTreeMap<RunId, DesiredRun>,
}

/// A part of a dataflow that a machine is to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredRun {
    /// The phase to bring it to.
    pub phase: Phase,
    /// Name of the dataflow.
    pub dataflow: String,
    /// Digest of the bundle with its file and programs.
    pub bundle: String,
    /// The dataflow file, relative to the bundle.
    pub file: String,
    /// The role of this machine.
    pub role: String,
    /// The machine of each role.
    pub machines: BTreeMap<String, String>,
    /// Parameters that override those of the file: `node.parameter=value`.
    #[serde(default)]
    pub params: Vec<String>,
    /// Environment variables of the nodes: `NAME=value`.
    #[serde(default)]
    pub variables: Vec<String>,
    /// Whether it is to be paused, as long as it runs.
    #[serde(default)]
    pub is_paused: bool,
    /// The id of the store's epoch in which it was made desired; 0 by a command of an earlier version.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub epoch: u64,
    /// The programs of nodes that were replaced since the start.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, DesiredProgram>,
}

/// The program of a node: the entry of the node's id in a dataflow file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredProgram {
    /// Identifies it on the machine: 16 hexadecimal digits; empty for the program of the run.
    pub version: String,
    /// Digest of the bundle with the file and the program.
    pub bundle: String,
    /// The dataflow file, relative to the bundle.
    pub file: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl DesiredRun {
    /// The program of a node: its replacement, or that of the run.
    pub fn program(&self, node: &str) -> DesiredProgram {
        let own = || DesiredProgram {
            version: String::new(),
            bundle: self.bundle.clone(),
            file: self.file.clone(),
        };
        self.programs.get(node).cloned().unwrap_or_else(own)
    }
}

/// Desired progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Its programs are to be there, and checked.
    Prepare,
    /// It is to run.
    Run,
    /// It is to be stopped; its report stays.
    Stop,
}

/// Resources of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Processors that the daemon may use.
    pub cpus: u32,
    /// Memory in bytes, of the machine or of the control group of the daemon.
    pub memory: u64,
    /// Graphics processors.
    pub gpus: u32,
}

/// The actual state of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actual {
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Its resources; `None` from a daemon of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Its parts of dataflows.
    pub runs: BTreeMap<RunId, ActualRun>,
}

/// A part of a dataflow on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActualRun {
    /// Name of the dataflow.
    pub dataflow: String,
    /// Its state.
    pub state: RunState,
    /// Whether it is paused.
    #[serde(default)]
    pub is_paused: bool,
    /// The order of the machine's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_hand: Option<ByHand>,
    /// Whether the coordinator's store does not name it: it was restored from a backup, or emptied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_orphan: bool,
    /// Whether all nodes have been ready since it was started.
    #[serde(default)]
    pub is_ready: bool,
    /// State of each node, without stand-ins.
    pub nodes: BTreeMap<String, NodeState>,
    /// State of each program that was to replace another.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, ActualProgram>,
    /// Samples that were sent to other machines, when the run has ended.
    pub streams: Vec<StreamReport>,
}

/// State of the desired program of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActualProgram {
    /// Its version.
    pub version: String,
    /// Its state.
    pub state: ProgramState,
}

/// The state of a program that is to replace another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum ProgramState {
    /// It is fetched and checked, or not ready yet.
    Preparing,
    /// The node runs it.
    InPlace,
    /// The node does not run it.
    Failed {
        /// The reason.
        reason: String,
        /// Whether it is tried again by itself.
        is_tried_again: bool,
    },
}

/// The state of a run on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum RunState {
    /// The bundle is fetched and checked.
    Preparing,
    /// It can start.
    Prepared,
    /// Its nodes are starting.
    Starting,
    /// Its keeper runs.
    Running {
        /// Process id of the keeper.
        keeper: u32,
    },
    /// Its keeper was killed; it will be started again.
    Waiting,
    /// Its nodes are stopping.
    Stopping,
    /// Its nodes have ended.
    Ended,
    /// It cannot be prepared or started.
    Failed {
        /// The reason.
        reason: String,
    },
}

/// Entry of a reachable machine, written by a coordinator's machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// How far its clock of the day is ahead of the oldest coordinator machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
}

/// The key of a machine's desired state.
pub fn desired_key(machine: &str) -> String {
    format!("{DESIRED}{machine}")
}

/// The key of a machine's actual state.
pub fn actual_key(machine: &str) -> String {
    format!("{ACTUAL}{machine}")
}

/// The key of the entry by which a coordinator's machine marks a machine as reachable. Names of machines
/// contain no `@`.
pub fn alive_key(machine: &str, noted_by: &str) -> String {
    format!("{ALIVE}{machine}@{noted_by}")
}

/// The reachable machines among the entries below [`ALIVE`]: the entry of any coordinator's machine counts,
/// and the most exact clock.
pub fn alive_machines(noted: &[Entry]) -> BTreeMap<String, Alive> {
    let mut machines: BTreeMap<String, Alive> = BTreeMap::new();
    for entry in noted {
        let place = entry.key.strip_prefix(ALIVE);
        let Some((machine, _)) = place.and_then(|place| place.split_once('@')) else {
            continue;
        };
        let alive: Alive = parse(&entry.key, &entry.value).unwrap_or_default();
        let known = machines.entry(machine.to_owned()).or_default();
        let clocks = known.clock.into_iter().chain(alive.clock);
        known.clock = clocks.min_by_key(|clock| clock.error_nanos);
    }
    machines
}

/// The key of the address of a machine's link.
pub fn link_key(machine: &str) -> String {
    format!("{LINKS}{machine}")
}

/// Changes the desired state of a machine, whatever other writers do meanwhile. Nothing is written
/// if `change` leaves it as it is.
///
/// # Errors
/// As [`Store::compare_and_set`]; [`StoreError::Unavailable`] if the state cannot be read.
pub fn change_desired(
    store: &dyn Store,
    machine: &str,
    change: impl Fn(&mut Desired),
) -> Result<Revision, StoreError> {
    let key = desired_key(machine);
    loop {
        let entry = store.get(&key)?;
        let (expected, before) = match &entry {
            None => (Expected::Absent, Desired::default()),
            Some(entry) => (
                Expected::Revision(entry.revision),
                parse(&key, &entry.value)?,
            ),
        };
        let mut desired = before.clone();
        change(&mut desired);
        if desired == before {
            return Ok(entry.map_or(Revision(0), |entry| entry.revision));
        }
        let json = serde_json::to_vec(&desired).expect("a state can be written as JSON");
        match store.compare_and_set(&key, expected, Some(&json), None) {
            // Another writer was first.
            Err(StoreError::Conflict { .. }) => {}
            done => return done,
        }
    }
}

/// Reads a state.
///
/// # Errors
/// [`StoreError::Unavailable`] if it is not one.
pub fn parse<T: serde::de::DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(value)
        .map_err(|error| StoreError::Unavailable(format!("`{key}` cannot be read: {error}")))
}
