//! The runs of this machine, as its disk and its keepers show them: for commands that do without the daemon.

use std::collections::BTreeMap;

use nervure_node::running::{self, Connection, ConnectionError};
use nervure_protocol::address::KeeperAddress;

use crate::folder::{DESIRED, Folder};
use crate::kept::Kept;
use crate::part::has_ended;
use crate::runs::{LOOK, is_starting, keeper_of, run_of};
use crate::state::{DesiredRun, Phase, RunId};

/// A run of this machine, as its folder and its keepers show it.
#[derive(Clone, Debug)]
pub struct RunHere {
    /// The run.
    pub run: RunId,
    /// Name of its dataflow.
    pub dataflow: String,
    /// Its keeper; `None` while none runs.
    pub keeper: Option<KeeperAddress>,
    /// Its desired state, if that can be read from the disk.
    pub desired: Option<DesiredRun>,
}

impl RunHere {
    /// A run with a keeper, and with its desired state, which is taken out of the others.
    fn of_keeper(
        run: RunId,
        keeper: KeeperAddress,
        desired: &mut BTreeMap<RunId, DesiredRun>,
    ) -> Self {
        Self {
            desired: desired.remove(&run),
            run,
            dataflow: keeper.dataflow.clone(),
            keeper: Some(keeper),
        }
    }
}

/// The runs of this machine that have not ended, and the dataflows here that no daemon has started. Asks
/// the disk and the keepers, and no daemon.
///
/// # Errors
/// If the keepers cannot be listed.
pub fn runs_here(folder: &Folder) -> Result<(Vec<RunHere>, Vec<KeeperAddress>), ConnectionError> {
    // Without a readable file, the keepers are found nevertheless.
    let kept: Kept = folder.read(DESIRED).ok().flatten().unwrap_or_default();
    let mut desired = kept.runs();
    let (mut runs, mut others, mut silent) = (Vec::new(), Vec::new(), Vec::new());
    for (address, opened) in Connection::open_all(running::dataflows()?, "stop") {
        let welcome = match opened {
            Ok(connection) => connection.welcome().clone(),
            Err(ConnectionError::NoAnswer { .. }) => {
                silent.push(address);
                continue;
            }
            // It has ended meanwhile, or is another user's.
            Err(_) => continue,
        };
        match welcome.file.and_then(|file| run_of(folder, &file)) {
            Some(run) => runs.push(RunHere::of_keeper(run, address, &mut desired)),
            None => others.push(address),
        }
    }
    // A keeper that hangs does not name its run: it counts for one of its dataflow whose keeper is missing.
    for address in silent {
        let of_name = desired
            .iter()
            .find(|(_, it)| it.dataflow == address.dataflow);
        match of_name.map(|(run, _)| run.clone()) {
            Some(run) => runs.push(RunHere::of_keeper(run, address, &mut desired)),
            None => others.push(address),
        }
    }
    desired.retain(|run, desired| desired.phase != Phase::Stop && !has_ended(&folder.run(run)));
    runs.extend(desired.into_iter().map(|(run, desired)| RunHere {
        run,
        dataflow: desired.dataflow.clone(),
        keeper: None,
        desired: Some(desired),
    }));
    Ok((runs, others))
}

/// Waits until no process checks or starts a run. Returns the keeper that has started.
pub fn await_starter(folder: &Folder, run: &str) -> Option<KeeperAddress> {
    loop {
        // In this order: a process that has ended has left a keeper, or none.
        let is_over = !is_starting(folder, run);
        let found = keeper_of(folder, run);
        if found.is_some() || is_over {
            return found;
        }
        std::thread::sleep(LOOK);
    }
}
