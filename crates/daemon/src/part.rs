//! The part of a dataflow on this machine, for the process that checks or starts it.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nervure_dataflow::{Incoming, Outgoing};
use nervure_protocol::MACHINE_VARIABLE;
use nervure_protocol::cli_to_keeper::Replace;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::by_hand::{self, ByHand};
use crate::folder::{Folder, private_file};
use crate::state::{DesiredProgram, DesiredRun};

/// Input of `nervure __part`, as JSON on its standard input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartSpec {
    /// True to check it only.
    pub check: bool,
    /// The dataflow file.
    pub file: PathBuf,
    /// The folder of the run: the stand-ins are written there.
    pub folder: PathBuf,
    /// Name of the dataflow.
    pub dataflow: String,
    /// Role of this machine.
    pub role: String,
    /// The machine of each role.
    pub machines: BTreeMap<String, String>,
    /// Parameters that override those of the file.
    pub params: Vec<String>,
    /// Environment variables of the nodes.
    pub variables: Vec<String>,
    /// Nodes that run the program of another file. A check is for these.
    #[serde(default)]
    pub programs: BTreeMap<String, PartProgram>,
}

/// The program of a node that replaces that of the dataflow file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartProgram {
    /// The dataflow file that has it.
    pub file: PathBuf,
    /// Its version.
    pub version: String,
}

/// The stand-ins of a part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandIns {
    /// Those of remote consumers.
    pub outgoing: Vec<Outgoing>,
    /// Those of remote producers.
    pub incoming: Vec<Incoming>,
    /// Nodes that run only while this machine holds its lease.
    #[serde(default)]
    pub stop_on_partition: Vec<String>,
}

/// Name of the file with the stand-ins, in the folder of a run.
const STAND_INS: &str = "stand-ins.json";

/// Name of the file with the request for a keeper, in the folder of a program.
pub(crate) const REQUEST: &str = "replace.json";

/// File of the nodes that the end of the lease has stopped, which start when it is held. Without it all
/// nodes with `on_partition: stop` do, since a keeper starts none by itself.
pub(crate) const STOPPED: &str = "stopped-in-partition.json";

/// Folder of the programs, in the folder of a run.
pub(crate) const PROGRAMS: &str = "programs";

/// File with the reason why a program has failed.
pub(crate) const FAILED: &str = "failed.json";

/// File with the output of a run's start. The process that checks or starts the run holds its lock and
/// hands it down to the keeper, so that the lock is at no time free in between.
const START_LOG: &str = "start.log";

/// Name of the file that marks a run as ended.
const ENDED: &str = "ended";

/// Its name before: a rename needs no room on a full disk.
const NOT_ENDED: &str = "not-ended";

/// Name of the folder with the unpacked bundle.
pub(crate) const FILES: &str = "files";

impl PartSpec {
    pub(crate) fn new(folder: &Folder, run: &str, desired: &DesiredRun, check: bool) -> Self {
        let folder = folder.run(run);
        let programs = match check {
            true => BTreeMap::new(),
            false => prepared(&folder, desired),
        };
        Self {
            check,
            file: folder.join(FILES).join(&desired.file),
            folder,
            dataflow: desired.dataflow.clone(),
            role: desired.role.clone(),
            machines: desired.machines.clone(),
            params: desired.params.clone(),
            variables: desired.variables.clone(),
            programs,
        }
    }

    /// Writes the request to a keeper that replaces the program of a node, for the daemon.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_request(&self, request: &Replace) -> io::Result<()> {
        Folder::at(&self.folder)?.write(REQUEST, request)
    }

    /// Writes the stand-ins of the part, for the daemon, before its keeper is started.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_stand_ins(&self, stand_ins: &StandIns) -> io::Result<()> {
        // It belongs to the keeper before.
        match std::fs::remove_file(self.folder.join(STOPPED)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Folder::at(&self.folder)?.write(STAND_INS, stand_ins)
    }

    /// Whether the run has ended meanwhile: its user has stopped it.
    pub fn has_ended(&self) -> bool {
        has_ended(&self.folder)
    }

    /// The file that the keeper renames at the end of the part, and its new name.
    pub fn end_note(&self) -> (PathBuf, PathBuf) {
        (self.folder.join(NOT_ENDED), self.folder.join(ENDED))
    }

    pub(crate) fn stand_ins(&self) -> io::Result<StandIns> {
        let stand_ins = Folder::at(&self.folder)?.read(STAND_INS)?;
        stand_ins.ok_or_else(|| io::Error::other("the run has no list of its stand-ins"))
    }

    /// Starts the process that checks or starts the part. Its output goes to a file of the run, which is
    /// locked before. Returns `None` if another process, or a keeper, has the lock.
    pub(crate) fn spawn(&self) -> io::Result<Option<Child>> {
        let Some(log) = lock(&self.folder)? else {
            return Ok(None);
        };
        log.set_len(0)?;
        let mut child = Command::new("/proc/self/exe")
            .arg0("nervure")
            .arg("__part")
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .envs(self.machine().map(|name| (MACHINE_VARIABLE, name)))
            // Ctrl-C in the terminal of the daemon is not for the dataflow.
            .process_group(0)
            .spawn()?;
        let json = serde_json::to_vec(self)?;
        let mut stdin = child.stdin.take().expect("it is piped");
        match stdin.write_all(&json) {
            // The process has ended, and has printed the reason.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(Some(child)),
        }
    }

    /// The lock of this part, which the daemon has handed to this process as its standard output. The
    /// keeper gets it, so that there is no second keeper as long as it lives.
    ///
    /// # Errors
    /// If the standard output is another file, or another process has the lock.
    pub fn inherited_lock(&self) -> io::Result<OwnedFd> {
        let path = self.folder.join(START_LOG);
        let given = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let identity = |file: Metadata| (file.dev(), file.ino());
        if identity(given.metadata()?) != identity(std::fs::metadata(&path)?) {
            let text = format!("the standard output is not {}", path.display());
            return Err(io::Error::other(text));
        }
        // Succeeds for a descriptor that has the lock already.
        match try_lock(&given)? {
            true => Ok(given.into()),
            false => Err(io::Error::other("another process of this run has it")),
        }
    }

    /// The name of this machine.
    fn machine(&self) -> Option<&String> {
        self.machines.get(&self.role)
    }

    /// The output of the process, up to its last two thousand characters.
    pub(crate) fn printed(&self) -> String {
        let text = std::fs::read(self.folder.join(START_LOG)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let text = text.trim();
        let from = text.char_indices().rev().nth(2000).map_or(0, |(at, _)| at);
        text[from..].to_owned()
    }
}

/// The programs that the nodes of a part start with, instead of those of its file.
fn prepared(run: &Path, desired: &DesiredRun) -> BTreeMap<String, PartProgram> {
    let of_node = |(node, program): (&String, &DesiredProgram)| {
        let place = place(run, program).ok()?;
        let is_usable = !program.version.is_empty()
            && place.join(REQUEST).exists()
            && !place.join(FAILED).exists();
        let part = || (node.clone(), part_program(run, &place, desired, program));
        is_usable.then(part)
    };
    desired.programs.iter().filter_map(of_node).collect()
}

/// The folder of a program.
pub(crate) fn place(run: &Path, program: &DesiredProgram) -> Result<PathBuf, String> {
    let version = program.version.as_str();
    let is_name = version.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let name = match version {
        "" => "of-run",
        version => version,
    };
    match is_name {
        true => Ok(run.join(PROGRAMS).join(name)),
        false => Err(format!("`{version}` is no version")),
    }
}

pub(crate) fn part_program(
    run: &Path,
    place: &Path,
    desired: &DesiredRun,
    program: &DesiredProgram,
) -> PartProgram {
    let folder = match program.bundle == desired.bundle {
        true => run,
        false => place,
    };
    PartProgram {
        file: folder.join(FILES).join(&program.file),
        version: program.version.clone(),
    }
}

/// Prepares the note of the end of a run.
pub(crate) fn prepare_end(folder: &Path) -> io::Result<()> {
    if has_ended(folder) {
        return Ok(());
    }
    private_file(&folder.join(NOT_ENDED)).map(drop)
}

/// Whether a run has ended, as its keeper, the daemon or the user of this machine has noted.
pub(crate) fn has_ended(folder: &Path) -> bool {
    folder.join(ENDED).exists() || by_hand::current(folder) == Some(ByHand::Stopped)
}

/// Notes durably that a run has ended. A note of its keeper may not be on disk yet.
pub(crate) fn note_ended(folder: &Path) -> io::Result<()> {
    let renamed = std::fs::rename(folder.join(NOT_ENDED), folder.join(ENDED));
    if renamed.is_err() {
        crate::folder::make(folder)?;
        private_file(&folder.join(ENDED))?;
    }
    File::open(folder)?.sync_all()
}

/// Whether a process checks or starts the run with this folder, or its keeper lives.
pub(crate) fn is_locked(folder: &Path) -> bool {
    folder.exists() && matches!(lock(folder), Ok(None))
}

/// Waits until no process checks or starts the run with this folder, and no keeper of it lives.
pub(crate) fn await_unlocked(folder: &Path) -> io::Result<()> {
    let file = private_file(&folder.join(START_LOG))?;
    loop {
        match flock(&file, FlockOperation::LockShared) {
            Err(rustix::io::Errno::INTR) => {}
            // The lock ends with the descriptor.
            locked => return Ok(locked?),
        }
    }
}

/// Takes the lock of a run; `None` if a process has it.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    let file = private_file(&folder.join(START_LOG))?;
    Ok(try_lock(&file)?.then_some(file))
}

fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
