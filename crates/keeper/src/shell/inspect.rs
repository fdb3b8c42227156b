//! States of the threads of a hanging process, from /proc, for the log.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::process::Pid;

/// Most threads that are described.
const MAX_THREADS: usize = 16;

/// Most frames of a kernel stack that are shown.
const MAX_FRAMES: usize = 6;

/// A line for each thread: its name, its state, and where in the kernel it waits.
pub fn threads(pid: Pid) -> Vec<String> {
    let folder = PathBuf::from(format!("/proc/{}/task", pid.as_raw_pid()));
    let entries = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let mut threads: Vec<_> = entries.map(|entry| entry.path()).collect();
    threads.sort();
    let more = threads.len().saturating_sub(MAX_THREADS);
    let mut lines: Vec<_> = threads
        .iter()
        .take(MAX_THREADS)
        .filter_map(|folder| thread(folder))
        .collect();
    if more > 0 {
        lines.push(format!("and {more} threads more"));
    }
    lines
}

/// True if the process has a handler for the signal.
pub fn catches(pid: Pid, signal: i32) -> bool {
    let status =
        fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    (1..=64).contains(&signal) && caught & 1 << (signal - 1) != 0
}

fn thread(folder: &Path) -> Option<String> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let status = read("status")?;
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    };
    let (name, state) = (field("Name:")?, field("State:")?);
    let mut line = format!(
        "thread {} ({name}): {state}",
        folder.file_name()?.to_string_lossy()
    );
    // "0" when it runs, or where the kernel does not show it.
    if let Some(place) = read("wchan").filter(|place| !matches!(place.as_str(), "" | "0")) {
        line.push_str(&format!(", in {place}"));
    }
    // Its first word is the number, or "running".
    if let Some(call) =
        read("syscall").and_then(|text| text.split_ascii_whitespace().next()?.parse::<u32>().ok())
    {
        line.push_str(&format!(", system call {call}"));
    }
    // Readable by the superuser only. Frames below the system call are always the same.
    let stack = read("stack").unwrap_or_default();
    let frames = stack
        .lines()
        .filter_map(|frame| frame.split_ascii_whitespace().nth(1)?.split('+').next());
    let frames: Vec<_> = frames
        .take_while(|frame| !frame.starts_with("do_syscall"))
        .take(MAX_FRAMES)
        .collect();
    if !frames.is_empty() {
        line.push_str(&format!(", kernel stack {}", frames.join(" < ")));
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_described_thread_by_thread() {
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let (started, start) = std::sync::mpsc::channel();
        let sleep = move || {
            started.send(()).unwrap();
            wait.recv()
        };
        let thread = std::thread::Builder::new()
            .name("sleeper".to_owned())
            .spawn(sleep)
            .unwrap();
        start.recv().unwrap();
        let lines = threads(rustix::process::getpid());
        assert!(
            lines.iter().any(|line| line.contains("(sleeper): ")),
            "{lines:?}"
        );
        drop(stop);
        assert!(thread.join().unwrap().is_err());
    }

    #[test]
    fn signals_with_a_handler_are_recognised() {
        let own = rustix::process::getpid();
        // Rust ignores SIGPIPE, and handles SIGSEGV to report stack overflows.
        assert!(catches(own, libc::SIGSEGV) && !catches(own, libc::SIGPIPE));
        assert!(!catches(own, 0) && !catches(own, 65));
    }
}
