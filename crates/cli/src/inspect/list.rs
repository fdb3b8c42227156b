//! `nervure list`: lists the running dataflows.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

use nervure_inspect::{
    answers::{self, Listing},
    format::{self, count},
    listing::{self, Row},
    status::{age, state_name},
};
use nervure_protocol::{address::KeeperAddress, keeper_to_cli::DataflowState};

use super::arguments::ListArguments;
use crate::{
    failure::Failure,
    output,
    table::{Align, Table},
};

/// Lists the running dataflows, including those whose keeper does not answer, and those of other
/// machines of the fleet.
pub fn list(arguments: &ListArguments) -> Result<ExitCode, Failure> {
    let gathered = listing::gather()?;
    let everything = &gathered.everything;
    if arguments.json {
        output::write(&answers::line(&Listing::of(&gathered)))?;
    } else {
        match gathered.rows.as_slice() {
            [] => note!("no dataflow is running; start one with `nervure run FILE`"),
            rows => output::write(&table(rows, everything.own.is_some()).render(None))?,
        }
        if !gathered.others.is_empty() {
            note!("{}", of_others(&gathered.others));
        }
    }
    // All machines may have refused for the same reason.
    let away = everything.unreachable.iter();
    let reasons: BTreeSet<&str> = away.map(|one| one.reason.as_str()).collect();
    for reason in reasons {
        note!("warning: {reason}");
    }
    if let Some(error) = &everything.no_fleet {
        note!("warning: {error}; dataflows of other machines are not listed");
    }
    Ok(ExitCode::SUCCESS)
}

/// `3 dataflows of other users run on this host (uid 1000: drive, arm; uid 1001: drive)`
fn of_others(others: &[KeeperAddress]) -> String {
    let mut users: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for one in others {
        users.entry(one.uid).or_default().push(&one.dataflow);
    }
    let users: Vec<_> = users
        .iter()
        .map(|(uid, names)| format!("uid {uid}: {}", first_of(names)))
        .collect();
    let (dataflows, verb) = (
        count(others.len(), "dataflow"),
        if others.len() == 1 { "runs" } else { "run" },
    );
    format!(
        "{dataflows} of other users {verb} on this host ({})",
        users.join("; ")
    )
}

/// Their number has no limit: any user can take any name.
fn first_of(names: &[&str]) -> String {
    const SHOWN: usize = 20;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn table(rows: &[Row], has_machines: bool) -> Table {
    let mut columns = vec![("dataflow", Align::Left)];
    columns.extend(has_machines.then_some(("machine", Align::Left)));
    columns.extend([
        ("keeper", Align::Right),
        ("state", Align::Left),
        ("for", Align::Right),
        ("nodes", Align::Right),
        ("observers", Align::Right),
        ("folder", Align::Left),
    ]);
    let mut table = Table::new(&columns);
    let dash = || "-".to_owned();
    for row in rows {
        let mut cells = vec![row.dataflow.clone()];
        cells.extend(has_machines.then(|| row.machine.clone().unwrap_or_else(dash)));
        cells.push(row.keeper.map_or_else(dash, |keeper| keeper.to_string()));
        match &row.welcome {
            Ok(welcome) => cells.extend([
                state_name(welcome.state).to_owned(),
                format::elapsed(age(welcome.started_utc_nanos)),
                format!("{}/{}", welcome.running, welcome.nodes),
                welcome.observers.to_string(),
                welcome.folder.clone(),
            ]),
            Err(error) => {
                let nodes = row
                    .last_nodes
                    .map_or_else(dash, |(ran, all)| format!("{ran}/{all}"));
                cells.extend([error.clone(), dash(), nodes, dash(), dash()]);
            }
        }
        table.row(cells);
    }
    table
}

/// The state and the time since the start: `running for 3.1 s`.
pub fn state_and_age(state: DataflowState, started_utc_nanos: i64) -> String {
    let age = format::elapsed(age(started_utc_nanos));
    match state {
        DataflowState::Paused => format!("paused, started {age} ago"),
        _ => format!("{} for {age}", state_name(state)),
    }
}

#[cfg(test)]
mod tests {
    use nervure_protocol::domain::Domain;

    use super::*;

    #[test]
    fn dataflows_of_others_are_counted_by_user() {
        let one = |uid, dataflow: &str| KeeperAddress {
            domain: Domain::default(),
            dataflow: dataflow.to_owned(),
            keeper: 1,
            uid,
        };
        let others = [one(1001, "drive"), one(1000, "drive"), one(1000, "arm")];
        assert_eq!(
            of_others(&others),
            "3 dataflows of other users run on this host (uid 1000: drive, arm; uid 1001: drive)"
        );
        assert_eq!(
            of_others(&others[..1]),
            "1 dataflow of other users runs on this host (uid 1001: drive)"
        );
    }
}
