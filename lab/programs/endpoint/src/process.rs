//! Clocks, and the resource usage of this process.

use rustix::time::{ClockId, Timespec};
use serde::Serialize;

/// Reads `CLOCK_MONOTONIC`, which all processes of a host share.
pub fn now_nanos() -> u64 {
    nanos(rustix::time::clock_gettime(ClockId::Monotonic))
}

/// Sleeps until `CLOCK_MONOTONIC` shows `deadline_nanos`.
pub fn sleep_until_nanos(deadline_nanos: u64) {
    let deadline = Timespec {
        tv_sec: (deadline_nanos / 1_000_000_000) as i64,
        tv_nsec: (deadline_nanos % 1_000_000_000) as i64,
    };
    while rustix::thread::clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &deadline)
        .is_err()
    {}
}

/// CPU time and context switches of this process within a window, and its size at the end.
#[derive(Debug, Clone, Serialize)]
pub struct Usage {
    pub cpu_seconds: f64,
    pub window_seconds: f64,
    pub voluntary_context_switches: u64,
    pub max_rss_bytes: u64,
    pub threads: u64,
}

/// The counters at the start of a window.
#[derive(Debug, Clone, Copy)]
pub struct UsageStart {
    cpu_nanos: u64,
    now_nanos: u64,
    voluntary_context_switches: u64,
}

impl Usage {
    /// Opens a window.
    pub fn start() -> UsageStart {
        UsageStart {
            cpu_nanos: cpu_nanos(),
            now_nanos: now_nanos(),
            voluntary_context_switches: voluntary_context_switches(),
        }
    }

    /// Closes the window that `start` opened.
    pub fn since(start: UsageStart) -> Self {
        Self {
            cpu_seconds: (cpu_nanos() - start.cpu_nanos) as f64 * 1e-9,
            window_seconds: (now_nanos() - start.now_nanos) as f64 * 1e-9,
            voluntary_context_switches: voluntary_context_switches()
                .saturating_sub(start.voluntary_context_switches),
            max_rss_bytes: status_field("/proc/self/status", "VmHWM:") * 1024,
            threads: status_field("/proc/self/status", "Threads:"),
        }
    }
}

fn cpu_nanos() -> u64 {
    nanos(rustix::time::clock_gettime(ClockId::ProcessCPUTime))
}

fn nanos(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sum over the threads: `/proc/self/status` counts the main thread only.
fn voluntary_context_switches() -> u64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return 0;
    };
    threads
        .flatten()
        .map(|thread| status_field(thread.path().join("status"), "voluntary_ctxt_switches:"))
        .sum()
}

fn status_field(path: impl AsRef<std::path::Path>, name: &str) -> u64 {
    std::fs::read_to_string(path)
        .unwrap_or_default()
        .lines()
        .find_map(|line| {
            line.strip_prefix(name)?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .unwrap_or(0)
}
