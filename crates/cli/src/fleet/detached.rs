//! `nervure join --detach`: the daemon of this machine, in the background.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::{fs::OpenOptionsExt as _, process::CommandExt as _},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use nervure_daemon::{PAIRING, folder::Pairing};
use nervure_fleet::connection::folder;
use nervure_inspect::daemon;
use serde_json::json;

use super::{
    arguments::{InvitationArgument, JoinArguments},
    daemon::pair,
};
use crate::{failure::Failure, output};

/// The daemon's output, in the folder of this machine's state.
const LOG: &str = "daemon.log";

/// Pause between two looks for the daemon that is being started.
const LOOK: Duration = Duration::from_millis(20);

/// Pairs this machine if there is an invitation, and starts its daemon, unless that runs.
pub fn join(arguments: &JoinArguments) -> Result<ExitCode, Failure> {
    let folder = folder()?;
    let invitation = arguments.invitation.as_ref().map(InvitationArgument::read);
    let invitation = invitation.transpose()?;
    let known: Option<Pairing> = folder
        .read(PAIRING)
        .map_err(nervure_inspect::Error::Folder)?;
    let running = daemon::process()?;
    if let (Some(process), Some(known), Some(invitation)) = (running, &known, &invitation)
        && known.coordinator != invitation.coordinator.to_string()
    {
        let text = format!(
            "the daemon of this machine (process {process}) is that of another fleet, of {}",
            known.address
        );
        return Err(Failure::invalid(text).hint("`nervure down` there ends it"));
    }
    let pairing = pair(&folder, arguments, invitation.as_ref())?;
    let process = match running {
        Some(process) => process,
        None => start(&folder.path().join(LOG))?,
    };
    output::write(&match arguments.json {
        true => format!("{}\n", json!({"machine": pairing.name, "daemon": process})),
        false => format!(
            "{} belongs to the fleet; its daemon is process {process}\n",
            pairing.name
        ),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the daemon of this machine, and waits until it listens.
fn start(log: &Path) -> Result<u32, Failure> {
    let failed =
        |error: io::Error| Failure::internal("the daemon cannot be started").because(error);
    let mut child = spawn(log).map_err(failed)?;
    loop {
        if let Some(process) = daemon::process()? {
            return Ok(process);
        }
        if let Some(status) = child.try_wait().map_err(failed)? {
            let text = fs::read_to_string(log).unwrap_or_default();
            let failure = Failure::internal(format!("the daemon has ended: {status}"));
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            return Err(lines.fold(failure, Failure::because));
        }
        std::thread::sleep(LOOK);
    }
}

fn spawn(log: &Path) -> io::Result<Child> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(0o600);
    let log: File = options.open(log)?;
    Command::new("/proc/self/exe")
        .arg("join")
        // Ctrl-C, and the end of a terminal or an SSH session, are not for the daemon.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
}
