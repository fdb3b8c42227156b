//! Dataflows on several machines: `up`, `join`, `start`, `machine`, and `stop` of such a dataflow.

pub mod arguments;
mod connection;
mod daemon;
mod members;
mod part;
mod progress;
mod start;
mod stop;

pub use daemon::{join, up};
pub use part::run_part;
pub use start::start;
pub use stop::stop_if_fleet;

use std::process::ExitCode;

use nervure_coordinator::{MACHINES, Machine};
use nervure_daemon::state::{Actual, actual_key, parse};
use nervure_store::Store;

use crate::failure::Failure;
use arguments::MachineCommand;
use connection::Fleet;

/// `nervure machine`.
pub fn machine(command: &MachineCommand) -> Result<ExitCode, Failure> {
    let fleet = Fleet::connect()?;
    match command {
        MachineCommand::List { json } => members::list(&fleet, *json),
        MachineCommand::Invite(arguments) => members::invite(&fleet, arguments),
        MachineCommand::Approve { name } => members::approve(&fleet, name),
        MachineCommand::Revoke { name } => members::revoke(&fleet, name),
    }
}

/// The paired machines, by name.
fn machines(fleet: &Fleet) -> Result<Vec<Machine>, Failure> {
    let entries = fleet
        .client
        .list(MACHINES)
        .map_err(connection::store_failure)?
        .entries;
    let machines = entries.iter().map(|entry| parse(&entry.key, &entry.value));
    machines
        .collect::<Result<_, _>>()
        .map_err(connection::store_failure)
}

/// What a machine has reported, if it has.
fn actual(fleet: &Fleet, machine: &str) -> Result<Option<Actual>, Failure> {
    let key = actual_key(machine);
    let entry = fleet.client.get(&key).map_err(connection::store_failure)?;
    entry
        .map(|entry| parse(&key, &entry.value))
        .transpose()
        .map_err(connection::store_failure)
}
