//! The end of a keeper: ordered, awaited, and forced.

use std::{
    io,
    process::ExitCode,
    time::{Duration, Instant},
};

use nervure_inspect::{State, answers::LoadOfEdge, places::Place};
use nervure_keeper::descendants::{self, Stat};
use nervure_node::running::{Connection, ConnectionError, KEEPER_ANSWER_TIMEOUT};
use nervure_protocol::{address::KeeperAddress, cli_to_keeper::Message};
use rustix::{
    fd::AsFd,
    process::{Pid, PidfdFlags},
};
use serde_json::json;

use super::arguments::StopArguments;
use crate::{
    failure::{Failure, IMPERFECT},
    output,
    run::edge_table,
};

/// Interval between messages about waiting.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// The exit code of a command that has ended several keepers.
pub fn of_all(codes: Vec<ExitCode>) -> ExitCode {
    let mut codes = codes.into_iter();
    codes
        .find(|code| *code != ExitCode::SUCCESS)
        .unwrap_or(ExitCode::SUCCESS)
}

/// Stops or kills the nodes of a keeper, and waits until it has ended.
pub fn end_keeper(place: &Place, arguments: &StopArguments) -> Result<ExitCode, Failure> {
    let mut connection = match place {
        Place::Here(address) => match Connection::open(address, "stop") {
            Err(ConnectionError::NoAnswer { .. }) => {
                return handle_unresponsive(address, arguments);
            }
            other => other?,
        },
        Place::There { .. } => place.connect("stop")?,
    };
    let dataflow = connection.welcome().dataflow.clone();
    let message = order(arguments);
    let mut state = state_for_account(&connection, place);
    match connection.ask(&message) {
        Ok(_) => {}
        // The keeper may have ended before it could answer.
        Err(_) if matches!(connection.try_receive(), Err(ConnectionError::Gone(_))) => {}
        Err(error) => return Err(error.into()),
    }
    if let Some(unresponsive) = await_end(&mut connection, place, arguments)? {
        return Ok(unresponsive);
    }
    let account = state.as_mut().map(Account::of).transpose()?;
    conclude(&dataflow, account, arguments)
}

/// The edges of a dataflow that no `nervure run` reports on.
fn state_for_account(connection: &Connection, place: &Place) -> Option<State> {
    if !connection.welcome().detached || !matches!(place, Place::Here(_)) {
        return None;
    }
    let opened = place.connect("stop");
    let opened = opened.and_then(|connection| State::open_one(connection, true));
    opened
        .map_err(Failure::from)
        .inspect_err(|failure| note!("warning: its edges are not reported: {failure}"))
        .ok()
}

/// Waits until the keeper has ended. Returns the exit code if it does not answer.
pub fn await_end(
    connection: &mut Connection,
    place: &Place,
    arguments: &StopArguments,
) -> Result<Option<ExitCode>, Failure> {
    let dataflow = connection.welcome().dataflow.clone();
    let mut report_at = Instant::now() + REPORT_INTERVAL;
    loop {
        match connection.receive_until(report_at) {
            Err(ConnectionError::Gone(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
            Ok(Some(_)) => {}
            Ok(None) => {
                // An ending keeper refuses connections; a hanging one does not answer.
                if let Place::Here(address) = place
                    && let Err(ConnectionError::NoAnswer { .. }) = Connection::open(address, "stop")
                {
                    return handle_unresponsive(address, arguments).map(Some);
                }
                note!(
                    "waiting for the nodes of {dataflow} to end; `nervure stop --kill` does not wait"
                );
                report_at = Instant::now() + REPORT_INTERVAL;
            }
        }
    }
}

fn conclude(
    dataflow: &str,
    account: Option<Account>,
    arguments: &StopArguments,
) -> Result<ExitCode, Failure> {
    output::write(&match arguments.target.json {
        true => format!(
            "{}\n",
            json!({"dataflow": dataflow, "stopped": true, "edges": account.as_ref().map(|it| &it.edges)})
        ),
        false => format!(
            "{}{dataflow} has stopped\n",
            account.as_ref().map(Account::text).unwrap_or_default()
        ),
    })?;
    Ok(match account.is_some_and(|account| account.has_lost) {
        true => ExitCode::from(IMPERFECT),
        false => ExitCode::SUCCESS,
    })
}

/// The order to a keeper that the arguments ask for.
pub fn order(arguments: &StopArguments) -> Message {
    let reason = "`nervure stop`".to_owned();
    let millis = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    match arguments.drain {
        _ if arguments.kill => Message::Kill,
        Some(limit) => Message::Drain {
            reason,
            limit_millis: limit.map(millis),
        },
        None => Message::Stop { reason },
    }
}

/// Losses on the `block` edges of a dataflow that has ended.
struct Account {
    /// Edges that lost samples, or whose consumers did not take all.
    edges: Vec<LoadOfEdge>,
    has_lost: bool,
}

impl Account {
    fn of(state: &mut State) -> Result<Self, Failure> {
        // Processes that were started meanwhile have other counters.
        state.follow_until(Instant::now() + KEEPER_ANSWER_TIMEOUT)?;
        state.sample();
        let edges = state.edges.iter().filter(|edge| edge.is_lossless());
        let left = edges.filter(|edge| edge.lost() > 0 || edge.not_taken() > 0);
        Ok(Self {
            has_lost: left.clone().any(|edge| edge.lost() > 0),
            edges: left.map(LoadOfEdge::from).collect(),
        })
    }

    fn text(&self) -> String {
        let line = |edge: &LoadOfEdge| {
            let [sent, received, lost, not_taken] =
                [edge.sent, edge.received, edge.lost, edge.not_taken]
                    .map(|count| edge_table::known(count.is_some(), count.unwrap_or_default()));
            format!(
                "{} -> {}: {sent} sent, {received} received, {lost} lost, {not_taken} not taken\n",
                edge.topic, edge.input
            )
        };
        self.edges.iter().map(line).collect()
    }
}

/// Handles a keeper that does not answer: `--kill` kills it and its nodes.
fn handle_unresponsive(
    address: &KeeperAddress,
    arguments: &StopArguments,
) -> Result<ExitCode, Failure> {
    let KeeperAddress {
        dataflow, keeper, ..
    } = address;
    let failed = |error: io::Error| {
        Failure::internal(format!(
            "the keeper of {dataflow} (process {keeper}) cannot be killed"
        ))
        .because(error)
    };
    let pid = i32::try_from(*keeper).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| failed(rustix::io::Errno::SRCH.into()))?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())
        .map_err(|error| failed(error.into()))?;
    let state = Stat::read(pid.as_raw_pid()).map_or("it is gone", |stat| stat.state_text());
    let hangs = format!("the keeper of {dataflow} (process {keeper}) does not answer: {state}");
    if !arguments.kill {
        return Err(Failure::internal(hangs).hint(format!(
            "continue a stopped process with `kill -CONT {keeper}`, or kill the keeper and its nodes with `nervure stop --kill -d {keeper}`"
        )));
    }
    // Any user can create a socket whose name contains the id of another process.
    if !is_keeper(pid) {
        return Err(failed(io::Error::other("the process is not a keeper")));
    }
    note!("{hangs}; killing it and its nodes");
    let killed = descendants::kill_tree(pid, pidfd.as_fd()).map_err(failed)?;
    output::write(&match arguments.target.json {
        true => format!(
            "{}\n",
            json!({"dataflow": dataflow, "stopped": true, "killed_keeper": true})
        ),
        false => format!("{dataflow} was killed: its keeper, and {killed} process(es) below it\n"),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Whether a process was started as `run` starts keepers.
fn is_keeper(pid: Pid) -> bool {
    let arguments =
        std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default();
    arguments == b"nervure\0__keeper\0"
}
