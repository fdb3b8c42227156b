//! Replaces programs of nodes while their run goes on. Each function here may block.
//!
//! A program has a folder of its own in the folder of the run, named by its version. It has the files of the
//! bundle, the request for the keeper, once these are checked, and a note if the program has failed:
//! then it is not tried again, and the next keeper does not start it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nervure_coordinator::Client;
use nervure_node::running::{self, Connection, ConnectionError};
use nervure_protocol::cli_to_keeper::{Message, Replace};
use nervure_protocol::keeper_to_cli;

use crate::folder::{self, Folder};
use crate::part::{FAILED, PROGRAMS, PartSpec, REQUEST, part_program, place};
use crate::runs;
use crate::state::{ActualProgram, DesiredProgram, DesiredRun, ProgramState};

/// Why a program is not in its place.
struct Failed {
    reason: String,
    is_tried_again: bool,
}

impl Failed {
    fn for_now(reason: impl ToString) -> Self {
        Self {
            reason: reason.to_string(),
            is_tried_again: true,
        }
    }
}

/// A run with its keeper.
#[derive(Clone, Copy)]
pub(crate) struct Running<'a> {
    pub run: &'a str,
    pub keeper: u32,
    pub desired: &'a DesiredRun,
}

/// Prepares all programs of a run that can be.
pub(crate) fn prepare_all(folder: &Folder, client: &Client, run: &str, desired: &DesiredRun) {
    for (node, program) in &desired.programs {
        if !program.version.is_empty()
            && let Err(reason) = prepare(folder, client, (run, desired), node, program)
        {
            tracing::warn!("the program of {node} is not prepared: {reason}");
        }
    }
}

/// Brings all programs of a run into their places. `without_lease` are nodes that may not run now.
pub(crate) fn set_all(
    folder: &Folder,
    client: &Client,
    running: Running<'_>,
    without_lease: impl Fn() -> Vec<String>,
) -> BTreeMap<String, ActualProgram> {
    let mut programs = BTreeMap::new();
    for (node, program) in &running.desired.programs {
        let set = set(folder, client, running, node, program, &without_lease);
        let state = match set {
            Ok(()) => ProgramState::InPlace,
            Err(Failed {
                reason,
                is_tried_again,
            }) => ProgramState::Failed {
                reason,
                is_tried_again,
            },
        };
        let version = program.version.clone();
        programs.insert(node.clone(), ActualProgram { version, state });
    }
    let mut states = programs.values().map(|program| &program.state);
    if states.all(|state| *state == ProgramState::InPlace) {
        remove_others(&folder.run(running.run), running.desired);
    }
    programs
}

fn set(
    folder: &Folder,
    client: &Client,
    running: Running<'_>,
    node: &str,
    program: &DesiredProgram,
    without_lease: impl Fn() -> Vec<String>,
) -> Result<(), Failed> {
    let Running {
        run,
        keeper,
        desired,
    } = running;
    let path = folder.run(run);
    let place = place(&path, program).map_err(Failed::for_now)?;
    let noted = Folder::at(&place).and_then(|it| it.read_cache::<String>(FAILED));
    if let Some(reason) = noted.map_err(Failed::for_now)? {
        return Err(Failed {
            reason,
            is_tried_again: false,
        });
    }
    let request = prepare(folder, client, (run, desired), node, program);
    let request = request.map_err(Failed::for_now)?;
    if without_lease().iter().any(|one| one == node) {
        return Err(Failed::for_now("its machine cannot be reached"));
    }
    match ask(keeper, &request) {
        Ok(()) => Ok(()),
        Err(ConnectionError::Refused(refused)) if refused.rolled_back => {
            // A failure of the run's own program is not noted: it is the only one left to try.
            if !program.version.is_empty() {
                let noted = Folder::at(&place).and_then(|it| it.write(FAILED, &refused.reason));
                if let Err(error) = noted {
                    tracing::warn!("the failure of a program is not kept on disk: {error}");
                }
            }
            Err(Failed {
                reason: refused.reason,
                is_tried_again: false,
            })
        }
        Err(error) => Err(Failed::for_now(error)),
    }
}

/// Fetches and checks a program. Returns the request for the keeper.
fn prepare(
    folder: &Folder,
    client: &Client,
    (run, desired): (&str, &DesiredRun),
    node: &str,
    program: &DesiredProgram,
) -> Result<Replace, String> {
    let path = folder.run(run);
    let place = place(&path, program)?;
    folder::make(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let read = || {
        let read = Folder::at(&place).and_then(|it| it.read_cache::<Replace>(REQUEST));
        read.map_err(|error| error.to_string())
    };
    // The folder of the run's own program is shared by its nodes.
    if !program.version.is_empty()
        && let Some(request) = read()?
    {
        return Ok(request);
    }
    if program.bundle != desired.bundle {
        runs::fetch(client, &program.bundle, &place)?;
    }
    let of_node = part_program(&path, &place, desired, program);
    let spec = PartSpec {
        folder: place.clone(),
        programs: [(node.to_owned(), of_node)].into(),
        ..PartSpec::new(folder, run, desired, true)
    };
    runs::check(&spec)?;
    read()?.ok_or_else(|| "its check has left no request".to_owned())
}

/// Asks a keeper to replace a program, and waits for its decision.
fn ask(keeper: u32, request: &Replace) -> Result<(), ConnectionError> {
    let answer = runs::until_it_answers(|| {
        let address = running::find(Some(&keeper.to_string()))?;
        let mut connection = Connection::open(&address, "nervure start")?;
        connection.send(&Message::Replace(request.clone()))?;
        loop {
            let until = Instant::now() + Duration::from_secs(60);
            if let Some((answer, _)) = connection.receive_until(until)? {
                return Ok(answer);
            }
        }
    })?;
    match answer {
        keeper_to_cli::Message::Refused(refused) => Err(ConnectionError::Refused(refused)),
        _ => Ok(()),
    }
}

/// Removes the programs that no node runs any more.
fn remove_others(run: &Path, desired: &DesiredRun) {
    let programs = desired.programs.values();
    let used: BTreeSet<PathBuf> = programs.filter_map(|it| place(run, it).ok()).collect();
    let entries = fs::read_dir(run.join(PROGRAMS))
        .into_iter()
        .flatten()
        .flatten();
    for path in entries.map(|entry| entry.path()) {
        if !used.contains(&path)
            && let Err(error) = fs::remove_dir_all(&path)
        {
            tracing::warn!("{} is not removed: {error}", path.display());
        }
    }
}
