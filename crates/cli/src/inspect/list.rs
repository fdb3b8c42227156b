//! `nervure list`: lists the running dataflows.

use std::{collections::BTreeMap, process::ExitCode, time::Duration};

use nervure_node::running::{self, Connection, ConnectionError};
use nervure_protocol::{address::KeeperAddress, keeper_to_cli::DataflowState};
use serde_json::{Value, json};

use super::arguments::ListArguments;
use crate::{
    failure::Failure,
    format::{self, count},
    output,
    table::{Align, Table},
};

/// Lists the running dataflows, including those whose keeper does not answer.
pub fn list(arguments: &ListArguments) -> Result<ExitCode, Failure> {
    let mut all = Vec::new();
    for address in running::dataflows()? {
        match Connection::open(&address, "list") {
            // The dataflow ended meanwhile.
            Err(ConnectionError::Gone(_)) => {}
            opened => all.push((address, opened)),
        }
    }
    let others = running::dataflows_of_others()?;
    if arguments.json {
        let all: Vec<_> = all
            .iter()
            .map(|(address, opened)| as_json(address, opened))
            .collect();
        let other = |one: &KeeperAddress| json!({"dataflow": one.dataflow, "keeper": one.keeper, "uid": one.uid});
        let others: Vec<_> = others.iter().map(other).collect();
        output::write(&format!(
            "{}\n",
            json!({ "dataflows": all, "of_other_users": others })
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    match all.as_slice() {
        [] => note!("no dataflow is running; start one with `nervure run FILE`"),
        all => output::write(&table(all).render(None))?,
    }
    if !others.is_empty() {
        note!("{}", of_others(&others));
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
        .map(|(uid, names)| format!("uid {uid}: {}", names.join(", ")))
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

type Found = (KeeperAddress, Result<Connection, ConnectionError>);

fn table(all: &[Found]) -> Table {
    let mut table = Table::new(&[
        ("dataflow", Align::Left),
        ("keeper", Align::Right),
        ("state", Align::Left),
        ("for", Align::Right),
        ("nodes", Align::Right),
        ("observers", Align::Right),
        ("folder", Align::Left),
    ]);
    for (address, opened) in all {
        let mut row = vec![address.dataflow.clone(), address.keeper.to_string()];
        match opened {
            Ok(connection) => {
                let welcome = connection.welcome();
                row.extend([
                    state_name(welcome.state).to_owned(),
                    format::elapsed(age(welcome.started_utc_nanos)),
                    format!("{}/{}", welcome.running, welcome.nodes),
                    welcome.observers.to_string(),
                    welcome.folder.clone(),
                ]);
            }
            Err(error) => {
                let dash = || "-".to_owned();
                row.extend([error.to_string(), dash(), dash(), dash(), dash()]);
            }
        }
        table.row(row);
    }
    table
}

fn as_json(address: &KeeperAddress, opened: &Result<Connection, ConnectionError>) -> Value {
    let mut value =
        json!({"dataflow": address.dataflow, "keeper": address.keeper, "uid": address.uid});
    let more = match opened {
        Ok(connection) => {
            let welcome = connection.welcome();
            json!({
                "state": welcome.state,
                "started_utc_nanos": welcome.started_utc_nanos,
                "nodes": welcome.nodes,
                "running": welcome.running,
                "observers": welcome.observers,
                "detached": welcome.detached,
                "folder": welcome.folder,
                "log_folder": welcome.log_folder,
            })
        }
        Err(error) => json!({"error": error.to_string()}),
    };
    if let (Some(value), Value::Object(more)) = (value.as_object_mut(), more) {
        value.extend(more);
    }
    value
}

/// The state as text.
pub fn state_name(state: DataflowState) -> &'static str {
    match state {
        DataflowState::Starting => "starting",
        DataflowState::Running => "running",
        DataflowState::Stopping => "stopping",
        DataflowState::Unknown => "?",
    }
}

/// Time since a point in time.
pub fn age(utc_nanos: i64) -> Duration {
    let nanos = nervure_shm::utc_nanos().saturating_sub(utc_nanos);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dataflows_of_others_are_counted_by_user() {
        let one = |uid, dataflow: &str| KeeperAddress {
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
