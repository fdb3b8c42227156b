//! `nervure list`: lists the running dataflows.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
    time::Duration,
};

use nervure_node::running::{self, Connection, ConnectionError};
use nervure_protocol::{
    address::KeeperAddress,
    daemon_to_cli::NodeState,
    keeper_to_cli::{DataflowState, Welcome},
};

use super::{
    answers::{self, Described, ListedDataflow, Listing, OfOtherUser, UnreachableMachine},
    arguments::ListArguments,
    places::{self, Everything, Found, Part, PartKeeper, Place},
};
use crate::{
    failure::Failure,
    format::{self, count},
    output,
    table::{Align, Table},
};

/// Lists the running dataflows, including those whose keeper does not answer, and those of other
/// machines of the fleet.
pub fn list(arguments: &ListArguments) -> Result<ExitCode, Failure> {
    let Gathered {
        everything,
        rows,
        others,
    } = gather()?;
    if arguments.json {
        output::write(&answers::line(&answer(&everything, &rows, &others)))?;
    } else {
        match rows.as_slice() {
            [] => note!("no dataflow is running; start one with `nervure run FILE`"),
            rows => output::write(&table(rows, everything.own.is_some()).render(None))?,
        }
        if !others.is_empty() {
            note!("{}", of_others(&others));
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

/// The dataflows as `--json` writes them.
#[cfg(feature = "api")]
pub fn listing() -> Result<Listing, Failure> {
    let gathered = gather()?;
    Ok(answer(
        &gathered.everything,
        &gathered.rows,
        &gathered.others,
    ))
}

/// The gathered dataflows and rows of a list.
struct Gathered {
    everything: Everything,
    rows: Vec<Row>,
    others: Vec<KeeperAddress>,
}

fn gather() -> Result<Gathered, Failure> {
    let everything = places::everything()?;
    let mut rows = Vec::new();
    match &everything.own {
        Some(_) => {
            let rows_of = |found: &Found| {
                let row = |part: &Part| Row::of_part(&found.dataflow, part);
                found.parts.iter().map(row).collect::<Vec<_>>()
            };
            rows.extend(everything.dataflows.iter().flat_map(rows_of));
        }
        None => {
            for (address, opened) in Connection::open_all(running::dataflows()?, "list") {
                match opened {
                    // The dataflow ended meanwhile.
                    Err(ConnectionError::Gone(_)) => {}
                    opened => rows.push(Row::of_host(&address, opened)),
                }
            }
        }
    }
    Ok(Gathered {
        others: running::dataflows_of_others()?,
        everything,
        rows,
    })
}

fn answer(everything: &Everything, rows: &[Row], others: &[KeeperAddress]) -> Listing {
    let other = |one: &KeeperAddress| OfOtherUser {
        dataflow: one.dataflow.clone(),
        keeper: one.keeper,
        uid: one.uid,
    };
    let away = everything.unreachable.iter();
    Listing {
        dataflows: rows.iter().map(Row::answer).collect(),
        of_other_users: others.iter().map(other).collect(),
        unreachable: away.map(UnreachableMachine::from).collect(),
    }
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

/// A dataflow, or a part of one.
struct Row {
    dataflow: String,
    machine: Option<String>,
    keeper: Option<u32>,
    uid: Option<u32>,
    welcome: Result<Welcome, String>,
    /// Running nodes and all nodes in the last report of a machine that cannot be reached.
    last_nodes: Option<(usize, usize)>,
}

impl Row {
    fn of_host(address: &KeeperAddress, opened: Result<Connection, ConnectionError>) -> Self {
        Self {
            dataflow: address.dataflow.clone(),
            machine: None,
            keeper: Some(address.keeper),
            uid: Some(address.uid),
            welcome: opened
                .map(|connection| connection.welcome().clone())
                .map_err(|error| error.to_string()),
            last_nodes: None,
        }
    }

    fn of_part(dataflow: &str, part: &Part) -> Self {
        let (keeper, uid, welcome, last_nodes) = match &part.keeper {
            PartKeeper::At(place, welcome) => {
                let uid = match place {
                    Place::Here(address) => Some(address.uid),
                    Place::There { .. } => None,
                };
                (Some(place.keeper()), uid, welcome.clone(), None)
            }
            PartKeeper::Unreachable(away) => {
                let ran = away
                    .nodes
                    .values()
                    .filter(|state| **state == NodeState::Running);
                let nodes = Some((ran.count(), away.nodes.len()));
                (None, None, Err(away.text()), nodes)
            }
        };
        Self {
            dataflow: dataflow.to_owned(),
            machine: part.machine.clone(),
            keeper,
            uid,
            welcome,
            last_nodes,
        }
    }

    fn answer(&self) -> ListedDataflow {
        let described = self.welcome.as_ref().ok().map(|welcome| Described {
            state: welcome.state,
            started_utc_nanos: welcome.started_utc_nanos,
            nodes: welcome.nodes,
            running: welcome.running,
            observers: welcome.observers,
            detached: welcome.detached,
            folder: welcome.folder.clone(),
            log_folder: welcome.log_folder.clone(),
        });
        ListedDataflow {
            dataflow: self.dataflow.clone(),
            keeper: self.keeper,
            uid: self.uid,
            machine: self.machine.clone(),
            described,
            error: self.welcome.as_ref().err().cloned(),
        }
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

/// The state as text.
pub fn state_name(state: DataflowState) -> &'static str {
    match state {
        DataflowState::Starting => "starting",
        DataflowState::Running => "running",
        DataflowState::Paused => "paused",
        DataflowState::Stopping => "stopping",
        DataflowState::Unknown => "?",
    }
}

/// The state and the time since the start: `running for 3.1 s`.
pub fn state_and_age(state: DataflowState, started_utc_nanos: i64) -> String {
    let age = format::elapsed(age(started_utc_nanos));
    match state {
        DataflowState::Paused => format!("paused, started {age} ago"),
        _ => format!("{} for {age}", state_name(state)),
    }
}

/// Time since a point in time.
pub fn age(utc_nanos: i64) -> Duration {
    let nanos = nervure_shm::utc_nanos().saturating_sub(utc_nanos);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
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
