//! Starts the keeper's process, and talks to it.

use std::{
    fs::File,
    io::{self, Read, Seek},
    os::unix::process::{CommandExt, ExitStatusExt},
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
    process::{Pid, Resource, Rlimit},
};

use crate::failure::{Failure, INTERNAL};

/// Time limit for the exit of a keeper that has closed its socket, and again after SIGKILL.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The process of a keeper, and the socket to it.
#[derive(Debug)]
pub struct Keeper {
    process: Child,
    socket: Seqpacket,
    buffer: Vec<u8>,
    has_finished: bool,
    /// The stderr of a detached keeper. Other keepers write to `run`'s.
    stderr: Option<File>,
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
    /// Killed, or without a reason.
    Killed {
        /// The signal or exit code, as text.
        how: String,
        /// Number of processes that the nodes left behind and that were killed.
        leftovers: io::Result<usize>,
    },
}

impl Keeper {
    /// Starts a keeper, sends it the plan, and requests reports. Until then it starts no node. It holds
    /// `lock` until it ends; its nodes do not inherit it.
    pub fn start(plan: &Plan, lock: Option<OwnedFd>) -> Result<Self, Failure> {
        Self::try_start(plan, lock)
            .map_err(|error| Failure::internal("cannot start the keeper").because(error))
    }

    fn try_start(plan: &Plan, lock: Option<OwnedFd>) -> io::Result<Self> {
        // Orphans of a killed keeper become children of this process.
        descendants::adopt_orphans()?;
        let (socket, theirs) = Seqpacket::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("nervure")
            .arg("__keeper")
            // This `run` may itself be a child of a node of another dataflow.
            .env_remove(descendants::MARK_VARIABLE)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // A keeper writes nothing there.
            .stdout(lock.map_or_else(Stdio::null, Stdio::from));
        // A reader of the stderr of `run` must see end of file when `run` ends, so a detached
        // keeper does not inherit it.
        let stderr = plan.detached.then(|| stderr_file(plan)).transpose()?;
        match &stderr {
            Some(file) => command.stderr(file.try_clone()?),
            // A process group of its own keeps Ctrl-C from the keeper: `run` stops it in order. A
            // detached keeper calls setsid, which a group leader cannot.
            None => command.process_group(0),
        };
        let process = command.spawn()?;
        // Reports arrive with many descriptors at once. The keeper was started with the original
        // limit, which its nodes inherit.
        let limit = rustix::process::getrlimit(Resource::Nofile);
        rustix::process::setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit.maximum,
                ..limit
            },
        )?;
        nervure_keeper::send_plan(&socket, plan)?;
        let hello = Hello {
            versions: VERSIONS,
            program: "run".to_owned(),
        };
        // `run` sums up the dataflow, and observers are not a part of it.
        let watch = Watch {
            logs: true,
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
        })
    }

    /// The process of the keeper.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Prints the stderr of a detached keeper.
    pub fn print_stderr(&self) {
        let read = |mut file: &File| {
            let mut text = String::new();
            file.rewind()?;
            file.read_to_string(&mut text).map(|_| text)
        };
        if let Some(text) = self.stderr.as_ref().and_then(|file| read(file).ok()) {
            note!("{}", text.trim_end());
        }
    }

    /// Another handle of the socket to the keeper.
    pub fn second_socket(&self) -> io::Result<Seqpacket> {
        Ok(self.socket.as_fd().try_clone_to_owned()?.into())
    }

    /// Sends a message.
    pub fn send(&self, message: &cli_to_keeper::Message) {
        send(&self.socket, message);
    }

    /// Waits until the keeper sends a report, `bell` is readable, or the deadline has passed.
    pub fn wait(&mut self, bell: BorrowedFd<'_>, until: Instant) -> Result<Reports, Failure> {
        let failed =
            |error: io::Error| Failure::internal("cannot receive from the keeper").because(error);
        let timeout = until.saturating_duration_since(Instant::now());
        poll_both(self.socket.as_fd(), bell, timeout).map_err(failed)?;
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

    /// Waits for the exit of a keeper that has closed its socket. After a killed one, removes its
    /// control groups and kills its processes.
    pub fn end(&mut self) -> Result<End, Failure> {
        let failed = |error: io::Error| {
            Failure::internal("cannot wait for the end of the keeper").because(error)
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
        let leftovers = descendants::kill_all();
        if status.code() == Some(INTERNAL.into()) {
            return Ok(End::Failed);
        }
        let how = match status.signal() {
            Some(signal) => descendants::End::Signal(signal).to_string(),
            None => status.to_string(),
        };
        Ok(End::Killed { how, leftovers })
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

fn poll_both(socket: BorrowedFd<'_>, bell: BorrowedFd<'_>, timeout: Duration) -> io::Result<()> {
    let mut polled = [
        PollFd::new(&socket, PollFlags::IN),
        PollFd::new(&bell, PollFlags::IN),
    ];
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
