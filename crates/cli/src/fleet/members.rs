//! `nervure machine`: the members of the fleet.

use std::{collections::BTreeMap, process::ExitCode};

use nervure_coordinator::{ALIVE, MACHINES, Machine, Standing, Terms};
use nervure_daemon::clock::ClockOffset;
use nervure_daemon::state::{
    Actual, Alive, actual_key, alive_machines, change_desired, link_key, parse,
};
use nervure_inspect::{answers, format};
use nervure_store::{Store, StoreError};

use super::{
    add::add,
    arguments::{InviteArguments, MachineCommand},
    connection::{Fleet, call_failure, store_failure},
    progress,
};
use crate::{
    failure::Failure,
    fleet::answers::{Invited, ListedMachine, Machines, ManagedMachine},
    output,
    table::{Align, Table},
};

/// A machine, as it is shown.
struct Row {
    machine: Machine,
    /// Its report; `Err` if it cannot be read.
    actual: Option<Result<Actual, StoreError>>,
    link: Option<std::net::SocketAddr>,
    /// If it can be reached.
    alive: Option<Alive>,
}

impl Row {
    fn state(&self) -> &'static str {
        match self.machine.standing {
            Standing::Revoked => "revoked",
            Standing::Waiting => "waits for approval",
            Standing::Paired if self.actual.is_none() => "no report yet",
            Standing::Paired if matches!(self.actual, Some(Err(_))) => "report unreadable",
            Standing::Paired if self.alive.is_some() => "reachable",
            Standing::Paired => "unreachable",
        }
    }

    fn clock(&self) -> Option<ClockOffset> {
        self.alive.and_then(|alive| alive.clock)
    }
}

/// `nervure machine`.
pub fn machine(command: &MachineCommand) -> Result<ExitCode, Failure> {
    let fleet = Fleet::connect()?;
    match command {
        MachineCommand::List { json } => list(&fleet, *json),
        MachineCommand::Add(arguments) => add(&fleet, arguments),
        MachineCommand::Invite(arguments) => invite(&fleet, arguments),
        MachineCommand::Approve { name, json } => approve(&fleet, name, *json),
        MachineCommand::Revoke { name, json } => revoke(&fleet, name, *json),
    }
}

fn rows(fleet: &Fleet) -> Result<Vec<Row>, Failure> {
    let alive = alive(fleet)?;
    let mut rows = Vec::new();
    for machine in machines(fleet)? {
        let key = link_key(&machine.name);
        let link = fleet.client.get(&key).map_err(store_failure)?;
        let actual_key = actual_key(&machine.name);
        let actual = fleet.client.get(&actual_key).map_err(store_failure)?;
        rows.push(Row {
            // A machine can write anything there: the others are shown all the same.
            actual: actual.map(|entry| parse(&actual_key, &entry.value)),
            link: link.and_then(|entry| parse(&key, &entry.value).ok()),
            alive: alive.get(&machine.name).copied(),
            machine,
        });
    }
    Ok(rows)
}

/// The machines that can be reached.
fn alive(fleet: &Fleet) -> Result<BTreeMap<String, Alive>, Failure> {
    let noted = fleet.client.list(ALIVE).map_err(store_failure)?.entries;
    Ok(alive_machines(&noted))
}

/// Offsets of the clocks of reachable machines, relative to the coordinator's.
#[cfg(feature = "api")]
pub fn clocks() -> Result<Vec<(String, ClockOffset)>, Failure> {
    let Some(fleet) = Fleet::connect_if_paired()? else {
        return Ok(Vec::new());
    };
    let alive = alive(&fleet)?.into_iter();
    Ok(alive
        .filter_map(|(machine, alive)| Some((machine, alive.clock?)))
        .collect())
}

/// The machines as `--json` writes them.
#[cfg(feature = "api")]
pub fn machines_of_fleet() -> Result<Machines, Failure> {
    Ok(answer(rows(&Fleet::connect()?)?))
}

fn answer(rows: Vec<Row>) -> Machines {
    let row = |row: Row| ListedMachine {
        reachable: row.alive.is_some(),
        clock: row.clock(),
        name: row.machine.name,
        role: row.machine.role,
        standing: row.machine.standing,
        key: row.machine.key,
        address: row.machine.address,
        link: row.link,
        actual: row.actual.and_then(Result::ok),
    };
    Machines {
        machines: rows.into_iter().map(row).collect(),
    }
}

/// Lists the machines, and what runs on them.
fn list(fleet: &Fleet, json: bool) -> Result<ExitCode, Failure> {
    let rows = rows(fleet)?;
    if json {
        output::write(&answers::line(&answer(rows)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&[
        ("machine", Align::Left),
        ("role", Align::Left),
        ("state", Align::Left),
        ("link", Align::Left),
        ("clock", Align::Left),
        ("dataflows", Align::Left),
    ]);
    for row in rows {
        let state = row.state().to_owned();
        let clock = row.clock().map(clock_text).unwrap_or_default();
        let actual = row.actual.and_then(Result::ok);
        let runs = actual.into_iter().flat_map(|it| it.runs.into_values());
        let runs: Vec<_> = runs
            .map(|run| format!("{} ({})", run.dataflow, progress::run_text(&run)))
            .collect();
        table.row(vec![
            row.machine.name,
            row.machine.role.to_string(),
            state,
            row.link.map(|link| link.to_string()).unwrap_or_default(),
            clock,
            runs.join(", "),
        ]);
    }
    output::write(&table.render(None))?;
    Ok(ExitCode::SUCCESS)
}

/// The offset of a clock, ahead (+) or behind (-), and its error.
fn clock_text(clock: ClockOffset) -> String {
    let sign = if clock.offset_nanos < 0 { '-' } else { '+' };
    let offset = format::latency(Some(clock.offset_nanos.unsigned_abs()));
    let error = format::latency(Some(clock.error_nanos));
    format!("{sign}{offset} +- {error}")
}

/// Prints the command line for another machine.
fn invite(fleet: &Fleet, arguments: &InviteArguments) -> Result<ExitCode, Failure> {
    let terms = Terms {
        role: arguments.role,
        needs_approval: arguments.with_approval,
        lifetime: arguments.valid,
    };
    let invitation = fleet.client.invite(terms).map_err(call_failure)?;
    output::write_secret(&match arguments.json {
        true => answers::line(&Invited {
            invitation: invitation.to_string(),
            role: terms.role,
            with_approval: terms.needs_approval,
            valid_seconds: terms.lifetime.as_secs_f64(),
        }),
        false => format!("nervure join {invitation}\n"),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Pairs a machine that waits.
fn approve(fleet: &Fleet, name: &str, json: bool) -> Result<ExitCode, Failure> {
    let machine = fleet.client.approve(name).map_err(call_failure)?;
    output::write(&match json {
        true => answers::line(&ManagedMachine::from(machine)),
        false => format!(
            "{} belongs to the fleet, as {}\n",
            machine.name, machine.role
        ),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Takes a machine out of the fleet.
fn revoke(fleet: &Fleet, name: &str, json: bool) -> Result<ExitCode, Failure> {
    let machine = fleet.client.revoke(name).map_err(call_failure)?;
    // A revoked machine that returns has no runs, and stops those it still has.
    change_desired(&fleet.client, name, |state| state.runs.clear())
        .map_err(store_failure)
        .inspect_err(|_| {
            if !json {
                note!("{} was revoked", machine.name);
            }
        })?;
    output::write(&match json {
        true => answers::line(&ManagedMachine::from(machine)),
        false => format!("{} was revoked\n", machine.name),
    })?;
    Ok(ExitCode::SUCCESS)
}

impl From<Machine> for ManagedMachine {
    fn from(machine: Machine) -> Self {
        Self {
            machine: machine.name,
            role: machine.role,
            standing: machine.standing,
        }
    }
}

/// The paired machines, by name.
pub fn machines(fleet: &Fleet) -> Result<Vec<Machine>, Failure> {
    let entries = fleet.client.list(MACHINES).map_err(store_failure)?.entries;
    let machines = entries.iter().map(|entry| parse(&entry.key, &entry.value));
    machines.collect::<Result<_, _>>().map_err(store_failure)
}
