//! Orders for a run that the user of its machine gives on the machine itself.
//!
//! An order is the name of a file in the folder of the run. The file is made with the run and renamed by an
//! order, so that an order needs no coordinator, no daemon, and no room on a full disk. It holds until the
//! run is removed: the coordinator's desired state does not undo it.

use std::fs::File;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::folder::{self, private_file};

/// An order for a run, given on its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ByHand {
    /// The run is paused until the user of the machine resumes it.
    Paused,
    /// The run has ended. An operator can start the dataflow again, as another run.
    Stopped,
}

/// All states of the file.
const ALL: [Option<ByHand>; 3] = [Some(ByHand::Stopped), Some(ByHand::Paused), None];

fn file_name(order: Option<ByHand>) -> &'static str {
    match order {
        None => "by-hand.none",
        Some(ByHand::Paused) => "by-hand.paused",
        Some(ByHand::Stopped) => "by-hand.stopped",
    }
}

/// Makes the file of a run, unless there is an order already.
pub(crate) fn prepare(run: &Path) -> io::Result<()> {
    match current(run) {
        Some(_) => Ok(()),
        None => private_file(&run.join(file_name(None))).map(drop),
    }
}

/// The order for the run with this folder.
pub fn current(run: &Path) -> Option<ByHand> {
    let is_there = |order: &Option<ByHand>| run.join(file_name(*order)).exists();
    ALL.into_iter().find(is_there).flatten()
}

/// Gives an order for the run with this folder, or takes back a pause. The order is on disk when this
/// returns.
///
/// # Errors
/// If it cannot be kept on disk, or the run was stopped before.
pub fn order(run: &Path, order: Option<ByHand>) -> io::Result<()> {
    let (known, wanted) = (current(run), run.join(file_name(order)));
    if known == Some(ByHand::Stopped) && order != known {
        return Err(io::Error::other("it was stopped on this machine"));
    }
    let from = run.join(file_name(known));
    if known != order && std::fs::rename(from, &wanted).is_err() {
        // The run was not prepared yet, or was prepared by an earlier version.
        folder::make(run)?;
        private_file(&wanted)?;
    }
    File::open(run)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_the_name_of_one_file_and_a_stop_is_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path();
        prepare(run).unwrap();
        assert_eq!(current(run), None);
        let files = || std::fs::read_dir(run).unwrap().count();
        for paused in [Some(ByHand::Paused), None, Some(ByHand::Paused)] {
            order(run, paused).unwrap();
            prepare(run).unwrap();
            assert_eq!((current(run), files()), (paused, 1));
        }
        order(run, Some(ByHand::Stopped)).unwrap();
        order(run, Some(ByHand::Stopped)).unwrap();
        prepare(run).unwrap();
        assert_eq!((current(run), files()), (Some(ByHand::Stopped), 1));
        assert!(order(run, None).is_err());
        assert!(order(run, Some(ByHand::Paused)).is_err());
    }

    #[test]
    fn a_run_that_was_not_prepared_can_be_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("runs/1");
        order(&run, Some(ByHand::Stopped)).unwrap();
        assert_eq!(current(&run), Some(ByHand::Stopped));
    }
}
