//! The machines of a fleet.

use std::collections::BTreeMap;

use nervure_coordinator::{ALIVE, MACHINES, Machine, Standing};
use nervure_daemon::{
    clock::ClockOffset,
    state::{Actual, Alive, actual_key, alive_machines, link_key, parse},
};
use nervure_store::{Store, StoreError};

use crate::{
    Error, Fleet,
    answers::{ListedMachine, Machines, ManagedMachine},
};

/// A machine, as it is shown.
#[derive(Debug)]
pub struct Row {
    /// The member.
    pub machine: Machine,
    /// Its report; `Err` if it cannot be read.
    pub actual: Option<Result<Actual, StoreError>>,
    /// The address of its link.
    pub link: Option<std::net::SocketAddr>,
    /// If it can be reached.
    pub alive: Option<Alive>,
}

impl Row {
    /// Its state as text.
    pub fn state(&self) -> &'static str {
        match self.machine.standing {
            Standing::Revoked => "revoked",
            Standing::Waiting => "waits for approval",
            Standing::Paired if self.actual.is_none() => "no report yet",
            Standing::Paired if matches!(self.actual, Some(Err(_))) => "report unreadable",
            Standing::Paired if self.alive.is_some() => "reachable",
            Standing::Paired => "unreachable",
        }
    }

    /// The offset of its clock, if it can be reached.
    pub fn clock(&self) -> Option<ClockOffset> {
        self.alive.and_then(|alive| alive.clock)
    }
}

/// All machines, with their reports.
///
/// # Errors
/// If the store cannot be read.
pub fn rows(fleet: &Fleet) -> Result<Vec<Row>, Error> {
    let alive = alive(fleet)?;
    let mut rows = Vec::new();
    for machine in machines(fleet)? {
        let key = link_key(&machine.name);
        let link = fleet.client.get(&key)?;
        let actual_key = actual_key(&machine.name);
        let actual = fleet.client.get(&actual_key)?;
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
fn alive(fleet: &Fleet) -> Result<BTreeMap<String, Alive>, Error> {
    let noted = fleet.client.list(ALIVE)?.entries;
    Ok(alive_machines(&noted))
}

/// Offsets of the clocks of reachable machines, relative to the coordinator's.
pub fn clocks() -> Result<Vec<(String, ClockOffset)>, Error> {
    let Some(fleet) = Fleet::connect_if_paired()? else {
        return Ok(Vec::new());
    };
    let alive = alive(&fleet)?.into_iter();
    Ok(alive
        .filter_map(|(machine, alive)| Some((machine, alive.clock?)))
        .collect())
}

/// The machines of the fleet of this machine.
///
/// # Errors
/// If the store cannot be read.
pub fn machines_of_fleet() -> Result<Machines, Error> {
    Ok(Machines::of(rows(&Fleet::connect()?)?))
}

impl Machines {
    /// These machines.
    pub fn of(rows: Vec<Row>) -> Self {
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
        Self {
            machines: rows.into_iter().map(row).collect(),
        }
    }
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
pub fn machines(fleet: &Fleet) -> Result<Vec<Machine>, Error> {
    let entries = fleet.client.list(MACHINES)?.entries;
    let machines = entries.iter().map(|entry| parse(&entry.key, &entry.value));
    Ok(machines.collect::<Result<_, _>>()?)
}
