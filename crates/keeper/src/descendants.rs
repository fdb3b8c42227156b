//! The processes that hang on this one: which have ended, and that none is left behind.
//!
//! A subreaper inherits the orphans among its descendants, so that "all children" is "everything that was started".

#![expect(
    unsafe_code,
    reason = "waitid for any child, without reaping it, and real-time signals are in libc alone"
)]

use std::{
    fs, io,
    mem::MaybeUninit,
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions},
};

/// How a process ended, and which.
pub use crate::machine::End;

/// Makes orphans among the descendants of this process its children.
///
/// # Errors
/// When the kernel does not know how (before 3.4).
pub fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(Pid::INIT))?)
}

/// A child that has ended, which stays a zombie: its process id and group are not used again before [`reap`].
pub fn next_ended() -> Option<Pid> {
    look().unwrap_or_default()
}

/// A child that has ended, if one has; an error when there are no children at all.
fn look() -> io::Result<Option<Pid>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is a valid place for the result.
    if unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all zeros is a valid `siginfo_t`, and what `waitid` fills in has a process id.
    Ok(Pid::from_raw(unsafe { info.assume_init().si_pid() }))
}

/// Removes a child that has ended; `None` when there is no such child, or it lives.
pub fn reap(pid: Pid) -> Option<End> {
    let status =
        rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG).ok()??;
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Some(End::Code(code)),
        (None, Some(signal)) => Some(End::Signal(signal)),
        (None, None) => None,
    }
}

/// Sends a signal to a child that was not reaped.
///
/// # Errors
/// When the signal is none, or the child is not ours to signal.
pub fn signal(child: Pid, signal: i32) -> Result<(), Errno> {
    // SAFETY: the call takes two numbers.
    match unsafe { libc::kill(child.as_raw_pid(), signal) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

/// Kills every child, and whoever becomes one by that, until there is none. Returns how many were killed.
///
/// # Errors
/// Names those that do not die: the kernel holds them.
pub fn kill_all() -> io::Result<usize> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let begin = Instant::now();
    let mut killed = Vec::new();
    loop {
        match look() {
            Ok(Some(pid)) => {
                reap(pid);
                continue;
            }
            Ok(None) => {}
            Err(_) => return Ok(killed.len()),
        }
        let children = children()?;
        if begin.elapsed() > PATIENCE {
            let pids: Vec<_> = children.iter().map(|pid| pid.as_raw_pid().to_string()).collect();
            return Err(io::Error::other(format!(
                "these processes do not end on SIGKILL: {}",
                pids.join(", ")
            )));
        }
        for pid in children {
            // It is a child that was not reaped: its id cannot have gone to another process.
            if rustix::process::kill_process(pid, Signal::KILL).is_ok() && !killed.contains(&pid) {
                killed.push(pid);
            }
        }
        sleep(Duration::from_millis(1));
    }
}

/// The children of every thread of this process, orphans that it adopted included.
fn children() -> io::Result<Vec<Pid>> {
    let own = std::process::id();
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) =
            entry?.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
        else {
            continue;
        };
        // `<pid> (<name>) <state> <parent> ..`, where the name may hold anything.
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())) else { continue };
        let parent =
            stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok());
        if parent == Some(own) {
            children.push(pid);
        }
    }
    Ok(children)
}
