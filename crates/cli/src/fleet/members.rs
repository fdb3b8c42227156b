//! `nervure machine`: the members of the fleet.

use std::process::ExitCode;

use nervure_coordinator::Terms;
use nervure_daemon::{clock::ClockOffset, state::change_desired};
use nervure_fleet::{
    Fleet,
    answers::{Invited, Machines, ManagedMachine},
    members::rows,
};
use nervure_inspect::{answers, format};

use super::{
    add::add,
    arguments::{InviteArguments, MachineCommand},
    progress,
};
use crate::{
    failure::Failure,
    output,
    table::{Align, Table},
};

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

/// Lists the machines, and what runs on them.
fn list(fleet: &Fleet, json: bool) -> Result<ExitCode, Failure> {
    let rows = rows(fleet)?;
    if json {
        output::write(&answers::line(&Machines::of(rows)))?;
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
    let invitation = fleet.client.invite(terms)?;
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
    let machine = fleet.client.approve(name)?;
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
    let machine = fleet.client.revoke(name)?;
    // A revoked machine that returns has no runs, and stops those it still has.
    change_desired(&fleet.client, name, |state| state.runs.clear()).inspect_err(|_| {
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
