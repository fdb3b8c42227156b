//! Starts the command behind a filter, and answers its calls until its last process has ended.

use std::{
    collections::HashMap,
    fs, io,
    process::{Command, ExitCode},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, set_child_subreaper, wait},
};
use syscalls::Sysno;

use crate::{
    Arguments,
    fault::{self, Action, Afterwards},
    report::Report,
    roles::{Player, Roles},
    seccomp::{Answer, Call, Listener, Selection, install},
};

/// Grace period of processes after the end of the command.
const GRACE: Duration = Duration::from_secs(10);
/// Interval at which ended processes are reaped.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// Not counted with `--calls all`: their faults are of no interest, and the thread that starts the command ends with them.
const UNCOUNTED: [Sysno; 9] = [
    Sysno::exit,
    Sysno::exit_group,
    Sysno::madvise,
    Sysno::munmap,
    Sysno::rseq,
    Sysno::rt_sigprocmask,
    Sysno::rt_sigreturn,
    Sysno::set_robust_list,
    Sysno::sigaltstack,
];

/// State of the thread that starts the command. The main thread answers the system calls of that thread, so neither may
/// wait for the other: the fields are set and read without a lock.
struct Start {
    thread: OnceLock<u32>,
    listener: OnceLock<Result<Listener, String>>,
    command: OnceLock<Result<i32, String>>,
}

/// The reason why the command was not run to its end.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The kernel has no such filters, or does not permit them.
    Unsupported(String),
    Other(String),
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Other(error.to_string())
    }
}

/// Runs the command, and returns its exit code.
pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    static START: Start = Start {
        thread: OnceLock::new(),
        listener: OnceLock::new(),
        command: OnceLock::new(),
    };
    set_child_subreaper(Some(Pid::INIT)).map_err(io::Error::from)?;
    let selection = selection(&arguments.calls)?;
    let command = arguments.command.clone();
    thread::spawn(move || start(&START, &selection, &command));
    let listener = loop {
        match START.listener.get() {
            Some(Ok(listener)) => break listener,
            Some(Err(error)) => return Err(Failure::Unsupported(error.clone())),
            None => thread::sleep(Duration::from_millis(1)),
        }
    };
    let mut supervisor = Supervisor {
        start: &START,
        listener,
        roles: Roles::default(),
        report: Report::default(),
        pending: HashMap::new(),
        delayed: Vec::new(),
        ended: None,
        deadline: Instant::now() + Duration::from_secs(arguments.patience_seconds),
        arguments,
    };
    let status = supervisor.serve()?;
    supervisor.report.write(&supervisor.arguments.report)?;
    let code = status
        .exit_status()
        .or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    Ok(ExitCode::from(code.unwrap_or(125) as u8))
}

fn selection(calls: &str) -> Result<Selection, String> {
    let number = |call: &Sysno| *call as u32;
    if calls == "all" {
        return Ok(Selection::AllBut(UNCOUNTED.iter().map(number).collect()));
    }
    let numbers: Vec<u32> = calls
        .split(',')
        // Some architectures lack some calls: they have `ppoll`, but not `poll`.
        .filter_map(|name| name.parse().ok().as_ref().map(number))
        // A process changes its role with `execve`.
        .chain([Sysno::execve as u32])
        .collect();
    if numbers.len() > 200 {
        Err("too many system calls".to_owned())
    } else {
        Ok(Selection::Only(numbers))
    }
}

fn start(start: &Start, selection: &Selection, command: &[String]) {
    let _ = start
        .thread
        .set(rustix::thread::gettid().as_raw_pid().cast_unsigned());
    let mut prepared = Command::new(&command[0]);
    prepared.args(&command[1..]);
    let listener = install(selection).map(Listener::new);
    let is_filtered = listener.is_ok();
    let _ = start
        .listener
        .set(listener.map_err(|error| error.to_string()));
    if is_filtered {
        let child = prepared.spawn();
        let _ = start.command.set(
            child
                .map(|child| child.id().cast_signed())
                .map_err(|error| error.to_string()),
        );
    }
}

struct Supervisor<'a> {
    start: &'a Start,
    listener: &'a Listener,
    arguments: Arguments,
    roles: Roles,
    report: Report,
    /// Actions to complete before the next call of a thread, by thread.
    pending: HashMap<u32, (Player, Afterwards)>,
    /// Delayed calls, with the times of their answers.
    delayed: Vec<(Instant, Call)>,
    /// Exit status of the command.
    ended: Option<WaitStatus>,
    /// Time at which all processes must have ended.
    deadline: Instant,
}

impl Supervisor<'_> {
    fn serve(&mut self) -> Result<WaitStatus, Failure> {
        loop {
            self.answer_calls()?;
            match self.start.command.get() {
                Some(Ok(command)) => {
                    if let Some(status) = self.reap(*command) {
                        return Ok(status);
                    }
                }
                Some(Err(error)) => {
                    return Err(format!("{}: {error}", self.arguments.command[0]).into());
                }
                None => {}
            }
        }
    }

    /// Reaps ended processes. Returns the status of the command when no process is left.
    fn reap(&mut self, command: i32) -> Option<WaitStatus> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_pid() == command => {
                    self.ended = Some(status);
                    self.deadline = self.deadline.min(Instant::now() + GRACE);
                }
                Ok(Some(_)) => {}
                Err(Errno::CHILD) => return self.ended,
                Ok(None) | Err(_) => break,
            }
        }
        if Instant::now() > self.deadline {
            self.kill_all();
        }
        None
    }

    /// Kills all processes; called repeatedly, because further ones may be orphaned meanwhile. The first call reports them.
    fn kill_all(&mut self) {
        let left = descendants();
        if self.report.left.is_empty() {
            self.report.hangs = self.ended.is_none();
            self.report.left = left
                .iter()
                .flat_map(|process| self.describe(*process))
                .collect();
        }
        for process in left {
            let _ = kill_process(process, Signal::KILL);
        }
    }

    /// Describes a process: its role, its command line, and the calls in which its threads wait.
    fn describe(&mut self, process: Pid) -> Option<String> {
        let number = process.as_raw_pid().cast_unsigned();
        let role = self
            .roles
            .of(number)
            .map(|player| player.role)
            .unwrap_or_default();
        let line = fs::read(format!("/proc/{number}/cmdline"))
            .ok()
            .filter(|line| !line.is_empty())?;
        let waits = fs::read_dir(format!("/proc/{number}/task"))
            .ok()?
            .flatten()
            .filter_map(|task| {
                let call = fs::read_to_string(task.path().join("syscall")).ok()?;
                let number = call.split(' ').next()?.parse().ok().and_then(Sysno::new);
                Some(
                    number
                        .map_or_else(|| call.trim().to_owned(), |number| number.name().to_owned()),
                )
            });
        let waits: Vec<_> = waits.collect();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        Some(format!(
            "{role} ({}) in {}",
            line.trim(),
            waits.join(" and ")
        ))
    }

    /// Answers the calls that are due, and those that arrive within a tick.
    fn answer_calls(&mut self) -> io::Result<()> {
        let now = Instant::now();
        for (_, call) in self.delayed.extract_if(.., |(until, _)| *until <= now) {
            self.listener.answer(&call, Answer::Continue)?;
        }
        let mut interest = [PollFd::new(self.listener, PollFlags::IN)];
        match poll(&mut interest, Some(&TICK)) {
            Ok(_) if interest[0].revents().contains(PollFlags::IN) => {}
            Ok(0) | Err(Errno::INTR) => return Ok(()),
            Ok(_) => {
                // The remaining processes have no filter.
                thread::sleep(Duration::from_millis(5));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        let Some(call) = self.listener.receive()? else {
            return Ok(());
        };
        // First, and without allocating: the stopped thread may hold the allocator's lock.
        if self.start.thread.get() == Some(&call.thread) {
            return self.listener.answer(&call, Answer::Continue);
        }
        let (answer, afterwards) = self.decide(&call)?;
        if let Afterwards::Delay(time) = afterwards {
            self.delayed.push((Instant::now() + time, call));
            return Ok(());
        }
        if let (Some(player), false) = (
            self.roles.of(call.thread),
            matches!(afterwards, Afterwards::Nothing),
        ) {
            let afterwards = self.with_own_limit(&player, afterwards);
            self.pending.insert(call.thread, (player, afterwards));
        }
        if call.number == Sysno::execve as u32
            && let Some(player) = self.roles.of(call.thread)
        {
            self.roles.forget(player.process);
        }
        self.listener.answer(&call, answer)
    }

    /// The limit on descriptors that is restored is the process's own: another thread may have lowered it.
    fn with_own_limit(&self, player: &Player, afterwards: Afterwards) -> Afterwards {
        let mut pending = self.pending.values();
        let own = pending.find_map(|(other, first)| match (first, &afterwards) {
            (Afterwards::Restore(own), Afterwards::Restore(_))
                if other.process == player.process =>
            {
                Some(Afterwards::Restore(*own))
            }
            _ => None,
        });
        own.unwrap_or(afterwards)
    }

    fn is_excepted(&self, number: Sysno, player: &Player, call: &Call) -> bool {
        let is_file_call = matches!(number, Sysno::openat | Sysno::read | Sysno::write);
        let excepted = self.arguments.except.as_ref().filter(|_| is_file_call);
        excepted.is_some_and(|folder| fault::object(player.process, call).starts_with(folder))
    }

    fn decide(&mut self, call: &Call) -> io::Result<(Answer, Afterwards)> {
        let pass = (Answer::Continue, Afterwards::Nothing);
        if let Some((player, afterwards)) = self.pending.remove(&call.thread) {
            tolerate_end(fault::conclude(player.process, &afterwards))?;
        }
        let Some(player) = self.roles.of(call.thread) else {
            return Ok(pass);
        };
        let Some(number) = Sysno::new(call.number as usize) else {
            return Ok(pass);
        };
        if !is_counted(number, call) || self.is_excepted(number, &player, call) {
            return Ok(pass);
        }
        let name = number.name();
        let count = self.report.count(&player.role, name);
        let is_any = self.arguments.call.as_deref() == Some("all");
        let count = if is_any {
            self.report.count(&player.role, "all")
        } else {
            count
        };
        let (Some(role), Some(wanted), Some(action)) = (
            &self.arguments.role,
            &self.arguments.call,
            self.arguments.action,
        ) else {
            return Ok(pass);
        };
        let done = self.report.acted_on.len() as u64;
        let is_due = count >= self.arguments.nth && done < self.arguments.times;
        if *role != player.role || !(is_any || wanted == name) || !is_due {
            return Ok(pass);
        }
        match fault::act(action, player.process, call) {
            Ok(Some(outcome)) => {
                let object = match action {
                    Action::Kill | Action::KillAfter => String::new(),
                    _ => fault::object(player.process, call),
                };
                self.report.acted_on.push(format!("{name} {object}"));
                Ok(outcome)
            }
            Ok(None) => Ok(pass),
            Err(error) => tolerate_end(Err(error)).map(|()| pass),
        }
    }
}

/// Whether a call can fail: waking the waiters of a futex cannot, nor can most operations of `fcntl`.
fn is_counted(number: Sysno, call: &Call) -> bool {
    const FUTEX_OPERATION: i32 = 0x7f;
    let operation = call.arguments[1] as i32;
    match number {
        Sysno::futex => {
            matches!(
                operation & FUTEX_OPERATION,
                libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET
            )
        }
        Sysno::fcntl => matches!(operation, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC),
        _ => true,
    }
}

/// Ignores that a process has ended: others may kill it at any time.
fn tolerate_end(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::ESRCH))
                || error.kind() == io::ErrorKind::NotFound =>
        {
            Ok(())
        }
        other => other,
    }
}

/// All processes below this one.
fn descendants() -> Vec<Pid> {
    let mut found = children("self");
    let mut next = 0;
    while next < found.len() {
        found.extend(children(&found[next].as_raw_pid().to_string()));
        next += 1;
    }
    found
}

fn children(process: &str) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lines = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let lines: Vec<String> = lines.collect();
    let numbers = lines.iter().flat_map(|line| line.split_ascii_whitespace());
    numbers
        .filter_map(|number| Pid::from_raw(number.parse().ok()?))
        .collect()
}
