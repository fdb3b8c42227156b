//! `nervure stop`: stops a running dataflow.

use std::{
    io,
    process::ExitCode,
    time::{Duration, Instant},
};

use nervure_keeper::descendants::{self, Stat};
use nervure_node::running::{Connection, ConnectionError};
use nervure_protocol::{address::KeeperAddress, cli_to_keeper::Message};
use rustix::{
    fd::AsFd,
    process::{Pid, PidfdFlags},
};
use serde_json::json;

use super::{
    arguments::StopArguments,
    places::{self, Place},
    send_order,
};
use crate::{failure::Failure, fleet, output};

/// Interval between messages about waiting.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Stops a dataflow, and waits until its keeper has ended.
pub fn stop(arguments: &StopArguments) -> Result<ExitCode, Failure> {
    if let Some(code) = fleet::stop_if_fleet(arguments)? {
        return Ok(code);
    }
    let found = places::find(arguments.target.dataflow.as_deref())?;
    let place = match found.parts.as_slice() {
        [part] => part.place(),
        _ => None,
    };
    let place = place.ok_or_else(|| {
        Failure::internal(format!("not all of `{}` can be reached", found.dataflow))
            .hint("the coordinator stops a dataflow on all its machines: does `nervure up` run?")
    })?;
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
    let message = match arguments.kill {
        true => Message::Kill,
        false => Message::Stop {
            reason: "`nervure stop`".to_owned(),
        },
    };
    match send_order(&mut connection, &message) {
        Ok(()) => {}
        // The keeper may have ended before it could answer.
        Err(_) if matches!(connection.try_receive(), Err(ConnectionError::Gone(_))) => {}
        Err(failure) => return Err(failure),
    }
    let mut report_at = Instant::now() + REPORT_INTERVAL;
    loop {
        match connection.receive_until(report_at) {
            Err(ConnectionError::Gone(_)) => break,
            Err(error) => return Err(error.into()),
            Ok(Some(_)) => {}
            Ok(None) => {
                // An ending keeper refuses connections; one that hangs does not answer.
                if let Place::Here(address) = place
                    && let Err(ConnectionError::NoAnswer { .. }) = Connection::open(address, "stop")
                {
                    return handle_unresponsive(address, arguments);
                }
                note!(
                    "waiting for the nodes of {dataflow} to end; `nervure stop --kill` does not wait"
                );
                report_at = Instant::now() + REPORT_INTERVAL;
            }
        }
    }
    output::write(&match arguments.target.json {
        true => format!("{}\n", json!({"dataflow": dataflow, "stopped": true})),
        false => format!("{dataflow} has stopped\n"),
    })?;
    Ok(ExitCode::SUCCESS)
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
