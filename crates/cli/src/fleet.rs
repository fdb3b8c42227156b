//! Dataflows on several machines: `up`, `join`, `start`, `machine`, and `stop` of such a dataflow.

pub mod arguments;
mod connection;
mod daemon;
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
use serde_json::json;

use crate::{
    failure::Failure,
    output,
    table::{Align, Table},
};
use arguments::MachineCommand;
use connection::Fleet;

/// `nervure machine`.
pub fn machine(command: &MachineCommand) -> Result<ExitCode, Failure> {
    let MachineCommand::List { json } = command;
    let fleet = Fleet::connect()?;
    let mut rows = Vec::new();
    for machine in machines(&fleet)? {
        let actual = actual(&fleet, &machine.name)?;
        rows.push((machine, actual));
    }
    if *json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(machine, actual)| json!({"name": machine.name, "key": machine.key, "address": machine.address, "actual": actual}))
            .collect();
        output::write(&format!("{}\n", json!({ "machines": rows })))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&[
        ("machine", Align::Left),
        ("link", Align::Left),
        ("dataflows", Align::Left),
    ]);
    for (machine, actual) in rows {
        let link = actual
            .as_ref()
            .map_or("no report yet".to_owned(), |actual| {
                actual.link.address.to_string()
            });
        let runs = actual
            .into_iter()
            .flat_map(|actual| actual.runs.into_values());
        let runs: Vec<_> = runs
            .map(|run| format!("{} ({})", run.dataflow, progress::state_text(&run.state)))
            .collect();
        table.row(vec![machine.name, link, runs.join(", ")]);
    }
    output::write(&table.render(None))?;
    Ok(ExitCode::SUCCESS)
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
