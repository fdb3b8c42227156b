//! Descendants of this process: reaping those that have ended, and killing those that are left.
//!
//! A subreaper inherits the orphans among its descendants, so that its children are all the
//! processes it has to reap.

#![expect(
    unsafe_code,
    reason = "waitid for any child, without reaping it, and real-time signals are in libc alone"
)]

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    mem::MaybeUninit,
    os::unix::fs::MetadataExt,
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::BorrowedFd,
    io::Errno,
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions},
};

pub use crate::machine::End;

/// Makes this process a subreaper: orphans among its descendants become its children.
///
/// # Errors
/// When the kernel does not support it (before 3.4).
pub fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(Pid::INIT))?)
}

/// A child that has ended. It stays a zombie, so that its process id and group are not used again
/// before [`reap`].
pub fn next_ended() -> Option<Pid> {
    wait_for_zombie().unwrap_or_default()
}

/// A child that has ended, if one has; an error when there are no children.
fn wait_for_zombie() -> io::Result<Option<Pid>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is valid for the write of one `siginfo_t`.
    if unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `info` is initialised, since all zeros is a valid `siginfo_t`; `waitid` fills in the
    // variant with a process id.
    Ok(Pid::from_raw(unsafe { info.assume_init().si_pid() }))
}

/// Reaps a child that has ended. `None` when there is no such child, or it is alive.
pub fn reap(pid: Pid) -> Option<End> {
    let status = rustix::process::waitid(
        WaitId::Pid(pid),
        WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
    )
    .ok()??;
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Some(End::Code(code)),
        (None, Some(signal)) => Some(End::Signal(signal)),
        (None, None) => None,
    }
}

/// Sends a signal to a child that was not reaped.
///
/// # Errors
/// When the signal is invalid, or this process may not signal the child.
pub fn signal(child: Pid, signal: i32) -> Result<(), Errno> {
    // SAFETY: `kill` takes two numbers, and no pointer.
    match unsafe { libc::kill(child.as_raw_pid(), signal) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

/// Longest wait for processes to end after SIGKILL: only a system call in the kernel can delay
/// that.
pub const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Kills every descendant and reaps those that are children, until there is none. Returns the
/// number of killed processes.
///
/// # Errors
/// Names the processes that do not end within [`KILL_TIMEOUT`].
pub fn kill_all() -> io::Result<usize> {
    let begin = Instant::now();
    let mut killed = HashSet::new();
    loop {
        match wait_for_zombie() {
            Ok(Some(pid)) => {
                reap(pid);
                continue;
            }
            Ok(None) => {}
            Err(_) => return Ok(killed.len()),
        }
        let living = kill_below(rustix::process::getpid())?;
        if begin.elapsed() > KILL_TIMEOUT {
            return Err(still_living(&living));
        }
        killed.extend(living);
        sleep(Duration::from_millis(1));
    }
}

/// Kills a process and all its descendants, also when it is stopped, and waits until they have
/// ended. Reaps none. Returns the number of killed descendants.
///
/// # Errors
/// Names the processes that do not end within [`KILL_TIMEOUT`].
pub fn kill_tree(root: Pid, pidfd: BorrowedFd<'_>) -> io::Result<usize> {
    let begin = Instant::now();
    // While it is stopped, it starts no process, and its descendants keep it as ancestor.
    let _ = rustix::process::pidfd_send_signal(pidfd, Signal::STOP);
    let mut killed = HashSet::new();
    loop {
        let living = kill_below(root)?;
        if living.is_empty() {
            break;
        }
        if begin.elapsed() > KILL_TIMEOUT {
            let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
            return Err(still_living(&living));
        }
        killed.extend(living);
        sleep(Duration::from_millis(1));
    }
    match rustix::process::pidfd_send_signal(pidfd, Signal::KILL) {
        Err(error) if error != Errno::SRCH => Err(error.into()),
        _ if await_end(pidfd, KILL_TIMEOUT)? => Ok(killed.len()),
        _ => Err(still_living(&[root])),
    }
}

/// Waits for the end of a process. Returns false when it has not ended in time.
///
/// # Errors
/// When the descriptor is not a pidfd.
pub fn await_end(pidfd: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)) {
            Err(Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

/// The error with the ids of processes that do not end on SIGKILL.
fn still_living(processes: &[Pid]) -> io::Error {
    let pids: Vec<_> = processes
        .iter()
        .map(|pid| pid.as_raw_pid().to_string())
        .collect();
    io::Error::other(format!(
        "these processes do not end on SIGKILL: {}",
        pids.join(", ")
    ))
}

/// Sends SIGKILL to every living descendant of a process, and returns them. Reaps none.
///
/// # Errors
/// When /proc cannot be read.
fn kill_below(ancestor: Pid) -> io::Result<Vec<Pid>> {
    let table = process_table()?;
    let below = below(&table, &[ancestor.as_raw_pid()])
        .into_iter()
        .filter(|pid| !table[pid].has_ended());
    let living: Vec<_> = below.filter_map(Pid::from_raw).collect();
    for &pid in &living {
        kill_exactly(pid, &table[&pid.as_raw_pid()]);
    }
    Ok(living)
}

/// All descendants of some processes.
fn below(table: &HashMap<i32, Stat>, ancestors: &[i32]) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, stat) in table {
        children.entry(stat.parent).or_default().push(*pid);
    }
    let mut found = Vec::new();
    let mut waiting = ancestors.to_vec();
    while let Some(parent) = waiting.pop() {
        let children = children.remove(&parent).unwrap_or_default();
        waiting.extend(&children);
        found.extend(children);
    }
    found
}

/// Kills a process, unless its id belongs to another by now.
fn kill_exactly(pid: Pid, seen: &Stat) {
    // It has ended: the caller reads the process table again.
    let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    if Stat::read(pid.as_raw_pid()).is_some_and(|now| now.started_ticks == seen.started_ticks) {
        let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
    }
}

/// The environment variable that marks the processes of a node: `<keeper>-<start>/<node>`. Children
/// inherit it.
pub const MARK_VARIABLE: &str = "NERVURE_KEEPER";

/// A process id and its start time, which identify a process even when the id is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessKey {
    /// The process id.
    pub pid: i32,
    /// The start time in clock ticks since boot.
    pub started_ticks: u64,
}

impl ProcessKey {
    /// The key of this process.
    pub fn own() -> Option<Self> {
        let pid = rustix::process::getpid().as_raw_pid();
        Some(Self {
            pid,
            started_ticks: Stat::read(pid)?.started_ticks,
        })
    }

    /// True until it has ended. A zombie has ended: the first process of some containers does not
    /// reap orphans.
    pub fn is_alive(self) -> bool {
        Stat::read(self.pid)
            .is_some_and(|stat| stat.started_ticks == self.started_ticks && !stat.has_ended())
    }

    /// The value of [`MARK_VARIABLE`] in a node of this keeper.
    pub fn mark(self, node: &str) -> String {
        format!("{}-{}/{node}", self.pid, self.started_ticks)
    }

    fn of_mark(mark: &str) -> Option<Self> {
        let (pid, started_ticks) = mark.split_once('/')?.0.split_once('-')?;
        Some(Self {
            pid: pid.parse().ok()?,
            started_ticks: started_ticks.parse().ok()?,
        })
    }
}

/// Kills the children of this process with that mark and their descendants: processes left behind
/// by a node that has ended. Returns the number of killed processes outside its process group.
///
/// # Errors
/// When /proc cannot be read.
pub fn kill_marked(mark: &str, group: Pid) -> io::Result<usize> {
    let own = rustix::process::getpid().as_raw_pid();
    let mut killed = HashSet::new();
    let mut outside = 0;
    loop {
        let table = process_table()?;
        let is_left = |pid: i32, stat: &Stat| {
            stat.parent == own && !stat.has_ended() && mark_of(pid).as_deref() == Some(mark)
        };
        let left: Vec<_> = table
            .iter()
            .filter(|(pid, stat)| is_left(**pid, stat))
            .map(|(pid, _)| *pid)
            .collect();
        let below = below(&table, &left);
        // A killed process stays visible for a moment. Processes that it started before are found
        // in the next round.
        let is_new =
            |pid: &i32| !table[pid].has_ended() && killed.insert((*pid, table[pid].started_ticks));
        let new: Vec<_> = left.into_iter().chain(below).filter(is_new).collect();
        if new.is_empty() {
            return Ok(outside);
        }
        for pid in new.into_iter().filter_map(Pid::from_raw) {
            let stat = &table[&pid.as_raw_pid()];
            outside += usize::from(stat.group != group.as_raw_pid());
            kill_exactly(pid, stat);
        }
    }
}

/// Kills processes of this user that belong to nodes of keepers which were killed together with
/// their `run`. Spares this process and its ancestors. Returns the number of killed processes.
///
/// # Errors
/// When /proc cannot be read.
pub fn kill_orphans() -> io::Result<usize> {
    let own = fs::read_link("/proc/self/ns/pid")?;
    let uid = rustix::process::geteuid().as_raw();
    let mut killed = 0;
    let table = process_table()?;
    let spared = ancestry(&table, rustix::process::getpid().as_raw_pid());
    for (pid, stat) in table {
        let folder = format!("/proc/{pid}");
        // Process ids of another namespace (a container) mean nothing here.
        let is_own = || {
            fs::metadata(&folder).is_ok_and(|metadata| metadata.uid() == uid)
                && fs::read_link(format!("{folder}/ns/pid")).is_ok_and(|namespace| namespace == own)
        };
        let is_orphan = || {
            mark_of(pid)
                .and_then(|mark| ProcessKey::of_mark(&mark))
                .is_some_and(|key| !key.is_alive())
        };
        let is_wanted = !stat.has_ended() && !spared.contains(&pid) && is_own() && is_orphan();
        if let Some(pid) = Pid::from_raw(pid).filter(|_| is_wanted) {
            kill_exactly(pid, &stat);
            killed += 1;
        }
    }
    Ok(killed)
}

/// A process and its ancestors.
fn ancestry(table: &HashMap<i32, Stat>, pid: i32) -> HashSet<i32> {
    let mut found = HashSet::new();
    let mut next = Some(pid);
    while let Some(pid) = next.filter(|&pid| found.insert(pid)) {
        next = table.get(&pid).map(|stat| stat.parent);
    }
    found
}

fn mark_of(pid: i32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = environment.split(|&byte| byte == 0).find_map(|variable| {
        variable
            .strip_prefix(MARK_VARIABLE.as_bytes())?
            .strip_prefix(b"=")
    })?;
    String::from_utf8(value.to_vec()).ok()
}

/// The number of living processes outside a process group.
pub fn count_outside(processes: &[Pid], group: Pid) -> usize {
    let is_outside = |pid: &&Pid| {
        Stat::read(pid.as_raw_pid())
            .is_some_and(|stat| stat.group != group.as_raw_pid() && !stat.has_ended())
    };
    processes.iter().filter(is_outside).count()
}

/// Fields of `/proc/<pid>/stat` (proc_pid_stat(5)).
#[derive(Debug, PartialEq)]
pub struct Stat {
    /// `R` for running, `S` and `D` for asleep, `T` for stopped, `Z` for a zombie.
    state: char,
    parent: i32,
    /// Its process group.
    group: i32,
    /// The start time in clock ticks since boot: distinguishes it from a later process with the
    /// same id.
    started_ticks: u64,
}

impl Stat {
    /// Reads the fields of a process; `None` when there is none.
    pub fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// `<pid> (<name>) <state> <parent> ..`, where the name may hold anything.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<_> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            state: field(3)?.chars().next()?,
            parent: field(4)?.parse().ok()?,
            group: field(5)?.parse().ok()?,
            started_ticks: field(22)?.parse().ok()?,
        })
    }

    /// The likely reason why a process does not answer, for people.
    pub fn state_text(&self) -> &'static str {
        match self.state {
            'T' | 't' => "it is stopped, by SIGSTOP or a debugger",
            'D' => "the kernel holds it: a disk or a device does not answer",
            'R' => "it is busy",
            'Z' | 'X' => "it has ended",
            _ => "it waits",
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// All processes, by id.
fn process_table() -> io::Result<HashMap<i32, Stat>> {
    let mut table = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if let Some(stat) = Stat::read(pid) {
            table.insert(pid, stat);
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::{
        io::{BufRead, BufReader},
        os::unix::process::ExitStatusExt,
        process::{Command, Stdio},
    };

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let text = "4711 (a ) b) T 1 4711 4711 0 -1 4194560 1 2 3 4 70 30 0 0 20 0 5 0 100 200 300";
        assert_eq!(
            Stat::parse(text),
            Some(Stat {
                state: 'T',
                parent: 1,
                group: 4711,
                started_ticks: 100
            })
        );
        assert_eq!(Stat::parse("4711 (x) S 1"), None);
    }

    #[test]
    fn a_whole_tree_is_killed_and_its_root_is_not() {
        // The grandchild is in a session of its own.
        let script = "setsid sh -c 'echo; exec sleep 1000' & wait; exit 7";
        let mut root = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        BufReader::new(root.stdout.take().unwrap())
            .lines()
            .next()
            .unwrap()
            .unwrap();
        let pid = Pid::from_child(&root);
        assert!(!kill_below(pid).unwrap().is_empty());
        assert_eq!(root.wait().unwrap().code(), Some(7));
    }

    #[test]
    fn a_stopped_process_is_killed_with_what_is_below_it() {
        let script = "sleep 1000 & kill -STOP $$; wait";
        let mut root = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let pid = Pid::from_child(&root);
        while Stat::read(pid.as_raw_pid()).unwrap().state != 'T' {
            sleep(Duration::from_millis(1));
        }
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap();
        assert_eq!(kill_tree(pid, pidfd.as_fd()).unwrap(), 1);
        assert_eq!(root.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_process_with_a_reused_id_is_not_killed() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let stat = Stat::read(pid.as_raw_pid()).unwrap();
        kill_exactly(
            pid,
            &Stat {
                started_ticks: stat.started_ticks + 1,
                ..stat
            },
        );
        assert_eq!(child.try_wait().unwrap(), None);
        kill_exactly(pid, &Stat::read(pid.as_raw_pid()).unwrap());
        assert!(!child.wait().unwrap().success());
    }
}
