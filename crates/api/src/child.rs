//! A command that runs beside requests.

use std::{
    io,
    process::{Child, Command, Stdio},
};

use rustix::{
    fd::OwnedFd,
    process::{
        Pid, PidfdFlags, Signal, getppid, pidfd_open, pidfd_send_signal,
        set_parent_process_death_signal,
    },
};

/// Environment variable of a command that ends with this server, with its process id.
pub const ENDS_WITH: &str = "NERVURE_ENDS_WITH";

/// If a server started this process for a client, the kernel kills it when the server ends.
pub fn end_with_server() {
    let server = std::env::var(ENDS_WITH)
        .ok()
        .and_then(|pid| pid.parse().ok());
    let Some(server) = server.and_then(Pid::from_raw) else {
        return;
    };
    // On failure it ends with the next line that it cannot write.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid() != Some(server) {
        std::process::exit(0);
    }
}

/// A running command, to which another thread can send signals.
#[derive(Debug)]
pub struct Handle(OwnedFd);

impl Handle {
    /// Sends a signal, if the process has not ended.
    pub fn signal(&self, signal: Signal) {
        // This fails if the process has ended.
        let _ = pidfd_send_signal(&self.0, signal);
    }
}

/// A command of this program with these arguments, and pipes for its output.
pub fn command(arguments: &[String]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The handle of a child that was not waited for yet.
pub fn handle(child: &Child) -> io::Result<Handle> {
    let pid = Pid::from_child(child);
    Ok(Handle(pidfd_open(pid, PidfdFlags::empty())?))
}
