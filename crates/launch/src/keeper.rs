//! Starts the keeper's process, and talks to it.

use std::{
    fs::File,
    io::{self, Read, Seek},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nervure_keeper::{cgroups, descendants, plan::Plan};
use nervure_protocol::{
    MAX_MESSAGE_BYTES, VERSIONS,
    cli_to_keeper::{self, Hello, Watch},
    decode, encode, keeper_to_cli,
    report::Report,
};
use nervure_shm::{Received, Seqpacket};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::MemfdFlags,
    process::Pid,
};

use crate::{error::Error, log_folder::LogFolder};

/// Exit code of a keeper that has printed the reason of its failure.
const FAILED: i32 = 1;

/// Time limit for the exit of a keeper that has closed its socket, and again after SIGKILL.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The inputs of a keeper.
#[derive(Debug)]
pub(crate) struct Start {
    pub plan: Plan,
    pub log_folder: Option<LogFolder>,
    /// Whether log lines are among the reports.
    pub reports_logs: bool,
    /// A locked file, which the keeper holds until it ends; its nodes do not inherit it.
    pub lock: Option<OwnedFd>,
}

/// The process of a keeper, and the socket to it.
#[derive(Debug)]
pub struct Keeper {
    process: Child,
    socket: Seqpacket,
    buffer: Vec<u8>,
    has_finished: bool,
    /// The stderr of a detached keeper. Other keepers have that of this process.
    stderr: Option<File>,
    _log_folder: Option<LogFolder>,
}

/// A report, and the counters page of a node that was started.
pub type ReportWithPage = (Report, Option<OwnedFd>);

/// Reports of the keeper.
#[derive(Debug)]
pub enum Reports {
    /// More may follow.
    Some(Vec<ReportWithPage>),
    /// The keeper has closed the socket.
    Closed(Vec<ReportWithPage>),
}

/// The end of a keeper.
#[derive(Debug)]
pub enum End {
    /// After its nodes.
    Orderly,
    /// With an error. The keeper has printed the reason to stderr.
    Failed,
    /// Killed, or without a reason. Its nodes are killed with it; their descendants may live.
    Killed {
        /// The signal or exit code, as text.
        how: String,
    },
}

impl Keeper {
    /// Starts a keeper, sends it the plan, and requests reports. Until then it starts no node.
    pub(crate) fn start(command: &Path, start: Start) -> Result<Self, Error> {
        Self::try_start(command, start)
            .map_err(|error| Error::internal("cannot start the keeper").because(error))
    }

    fn try_start(command: &Path, start: Start) -> io::Result<Self> {
        let Start {
            plan,
            log_folder,
            reports_logs,
            lock,
        } = start;
        let (socket, theirs) = Seqpacket::pair()?;
        let mut command = Command::new(command);
        command
            .arg0("nervure")
            .arg("__keeper")
            // This process may itself be a child of a node of another dataflow.
            .env_remove(descendants::MARK_VARIABLE)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // A keeper writes nothing there.
            .stdout(lock.map_or_else(Stdio::null, Stdio::from));
        // A reader of this process's stderr must see end of file when the process ends, so a
        // detached keeper does not inherit it.
        let stderr = plan.detached.then(|| stderr_file(&plan)).transpose()?;
        match &stderr {
            Some(file) => command.stderr(file.try_clone()?),
            // A process group of its own keeps Ctrl-C from the keeper, which the end of this process
            // stops in order. A detached keeper calls setsid, which a group leader cannot.
            None => command.process_group(0),
        };
        let process = command.spawn()?;
        nervure_keeper::send_plan(&socket, &plan)?;
        let hello = Hello {
            versions: VERSIONS,
            program: "run".to_owned(),
        };
        // A summary is of the dataflow, and observers are not a part of it.
        let watch = Watch {
            logs: reports_logs,
            follow: true,
            without_observers: true,
        };
        for message in [
            cli_to_keeper::Message::Hello(hello),
            cli_to_keeper::Message::Watch(watch),
        ] {
            let bytes = encode(&message).map_err(io::Error::other)?;
            match socket.send(&bytes, &[]) {
                // The keeper has ended, and has printed why. The closed socket is noticed later.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                sent => sent?,
            }
        }
        let buffer = Vec::with_capacity(MAX_MESSAGE_BYTES);
        Ok(Self {
            process,
            socket,
            buffer,
            has_finished: false,
            stderr,
            _log_folder: log_folder,
        })
    }

    /// The process of the keeper.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Text on the stderr of a detached keeper; `None` for another one.
    #[must_use]
    pub fn stderr(&self) -> Option<String> {
        let mut file = self.stderr.as_ref()?;
        let mut text = String::new();
        file.rewind().ok()?;
        file.read_to_string(&mut text).ok()?;
        Some(text)
    }

    /// Another handle of the socket to the keeper.
    ///
    /// # Errors
    /// If this process has no free descriptor.
    pub fn second_socket(&self) -> io::Result<Seqpacket> {
        Ok(self.socket.as_fd().try_clone_to_owned()?.into())
    }

    /// Sends a message.
    pub fn send(&self, message: &cli_to_keeper::Message) {
        send(&self.socket, message);
    }

    /// Waits until the keeper sends a report, `bell` is readable, or the deadline has passed.
    ///
    /// # Errors
    /// If a message cannot be received, or cannot be decoded.
    pub fn wait(&mut self, bell: Option<BorrowedFd<'_>>, until: Instant) -> Result<Reports, Error> {
        let failed =
            |error: io::Error| Error::internal("cannot receive from the keeper").because(error);
        let timeout = until.saturating_duration_since(Instant::now());
        poll_readable(self.socket.as_fd(), bell, timeout).map_err(failed)?;
        // Limits a batch, so that a flood of log lines does not delay timers.
        const MAX_REPORTS: usize = 1000;
        let mut reports = Vec::new();
        while reports.len() < MAX_REPORTS {
            match self.socket.receive(&mut self.buffer) {
                Ok(Received::Packet(descriptors)) => {
                    let message =
                        decode(&self.buffer).map_err(|error| failed(io::Error::other(error)))?;
                    // Other messages are answers: the outcome of an order is in the reports.
                    if let keeper_to_cli::Message::Report { report } = message {
                        self.has_finished |= report == Report::Finished;
                        reports.push((report, descriptors.into_iter().next()));
                    }
                }
                Ok(Received::Closed) => return Ok(Reports::Closed(reports)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(Reports::Some(reports))
    }

    /// Waits for the exit of a keeper that has closed its socket. Removes the control groups of a
    /// killed one.
    ///
    /// # Errors
    /// If it does not exit in time, even on SIGKILL.
    pub fn end(&mut self) -> Result<End, Error> {
        let failed = |error: io::Error| {
            Error::internal("cannot wait for the end of the keeper").because(error)
        };
        let status = match self.wait_for_exit(EXIT_TIMEOUT).map_err(failed)? {
            Some(status) => status,
            None => {
                self.process.kill().map_err(failed)?;
                let held = io::Error::other(
                    "the process does not end on SIGKILL: it is blocked in the kernel",
                );
                self.wait_for_exit(descendants::KILL_TIMEOUT)
                    .map_err(failed)?
                    .ok_or_else(|| failed(held))?
            }
        };
        if status.success() && self.has_finished {
            return Ok(End::Orderly);
        }
        cgroups::remove_orphans();
        if status.code() == Some(FAILED) {
            return Ok(End::Failed);
        }
        let how = match status.signal() {
            Some(signal) => descendants::End::Signal(signal).to_string(),
            None => status.to_string(),
        };
        Ok(End::Killed { how })
    }
}

/// The file that a detached keeper writes its stderr to.
fn stderr_file(plan: &Plan) -> io::Result<File> {
    match &plan.log_folder {
        Some(folder) => File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(folder.join("keeper.stderr")),
        None => Ok(rustix::fs::memfd_create("nervure-keeper-stderr", MemfdFlags::CLOEXEC)?.into()),
    }
}

impl Keeper {
    /// Waits for the exit of the process; `None` after the timeout.
    fn wait_for_exit(&mut self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.process.try_wait()? {
                None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                status => return Ok(status),
            }
        }
    }
}

/// Sends a message to the keeper. Ignores a full or closed socket: the keeper is overloaded, or has
/// ended.
pub fn send(socket: &Seqpacket, message: &cli_to_keeper::Message) {
    if let Ok(bytes) = encode(message) {
        let _ = socket.send(&bytes, &[]);
    }
}

fn poll_readable(
    socket: BorrowedFd<'_>,
    bell: Option<BorrowedFd<'_>>,
    timeout: Duration,
) -> io::Result<()> {
    let files = [Some(socket), bell];
    let files = files.iter().flatten();
    let mut polled: Vec<_> = files.map(|file| PollFd::new(file, PollFlags::IN)).collect();
    let millis = timeout.as_nanos().div_ceil(1_000_000) as i64;
    let timeout = Timespec {
        tv_sec: millis / 1000,
        tv_nsec: millis % 1000 * 1_000_000,
    };
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
