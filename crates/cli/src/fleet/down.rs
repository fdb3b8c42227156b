//! `nervure down`: ends the daemon of this machine.

use std::{collections::BTreeSet, io, process::ExitCode, time::Duration};

use nervure_inspect::daemon;
use nervure_keeper::descendants;
use nervure_node::running;
use rustix::{
    fd::AsFd,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use serde_json::json;

use super::arguments::DownArguments;
use crate::{domain, failure::Failure, output};

/// Time limit for the end of a daemon. A daemon that does not hang ends at once.
const DAEMON_END_TIMEOUT: Duration = Duration::from_secs(5);

/// Ends the daemon, and with it the coordinator if it is on this machine. Dataflows continue.
pub fn down(arguments: &DownArguments) -> Result<ExitCode, Failure> {
    let process = daemon::process()?;
    if let Some(process) = process {
        end(process, arguments.kill)?;
    }
    let running: BTreeSet<String> = running::dataflows()?
        .into_iter()
        .map(|address| address.dataflow)
        .collect();
    if arguments.json {
        output::write(&format!(
            "{}\n",
            json!({"daemon": process, "running": running})
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::write(match process {
        Some(_) => "the daemon has ended\n",
        None => "no daemon runs on this machine\n",
    })?;
    if !running.is_empty() {
        let names: Vec<_> = running.into_iter().collect();
        note!(
            "{} still run here; `nervure stop -d NAME{}` stops one",
            names.join(", "),
            domain::option()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends a process that is a daemon of this user.
fn end(process: u32, kill: bool) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::internal(format!("the daemon (process {process}) cannot be ended")).because(error)
    };
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| failed(io::Error::other("it is in another pid namespace")))?;
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(error) => return Err(failed(error.into())),
    };
    // Another process may have the id by now, unless the daemon still listens.
    if daemon::process()? != Some(process) {
        return Ok(());
    }
    let signal = if kill { Signal::KILL } else { Signal::TERM };
    match pidfd_send_signal(&pidfd, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => return Err(failed(error.into())),
    }
    if descendants::await_end(pidfd.as_fd(), DAEMON_END_TIMEOUT).map_err(failed)? {
        return Ok(());
    }
    let failure = Failure::internal(format!(
        "the daemon (process {process}) has not ended within {} s",
        DAEMON_END_TIMEOUT.as_secs()
    ));
    Err(match kill {
        true => failure,
        false => failure.hint(format!(
            "`nervure down --kill{}` kills it; its dataflows go on",
            domain::option()
        )),
    })
}
