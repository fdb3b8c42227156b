//! Reads the facts about a machine that `nervure doctor` judges.

use std::{collections::BTreeMap, fs, io, path::Path, process::Command};

use rustix::{
    process::Resource,
    thread::{CapabilitySet, capabilities},
};

use nervure_inspect::daemon;
use nervure_keeper::cgroups::NodeGroups;
use nervure_launch::{log_folder, memory::cgroup_limit};

use crate::failure::Failure;

/// Facts about this machine.
pub(super) struct Facts {
    /// The release of the kernel, as `uname -r` prints it.
    pub kernel: String,
    /// Whether memory can be shared and sealed as the data plane does; otherwise the error.
    pub sealed_memory: Result<(), String>,
    /// Hard limit per process; `None` for no limit.
    pub open_files: Option<u64>,
    pub available_memory_bytes: u64,
    /// The limit of the control group, if it has one.
    pub memory_limit_bytes: Option<u64>,
    /// The highest priority that this user may request; `None` for any.
    pub real_time_priority: Option<u64>,
    pub is_real_time_kernel: bool,
    /// `None` for no limit.
    pub locked_memory_bytes: Option<u64>,
    /// The governor of the first processor; `None` if the machine exposes none, as virtual ones do.
    pub governor: Option<String>,
    pub clock_source: Option<String>,
    /// The folder of log files and the free bytes on its disk, or the error.
    pub logs: Result<(String, u64), String>,
    /// Version of the module `nervure` in the Python that runs nodes, or the error.
    pub python: Result<String, String>,
    pub ptrace_scope: Option<u32>,
    /// Whether nodes can have control groups; otherwise the reason.
    pub control_groups: Result<(), String>,
    pub is_root: bool,
    pub receive_buffer_bytes: Option<u64>,
    pub has_tun: bool,
    /// The process of the daemon, if one runs, or the error; `None` if the machine belongs to no fleet.
    pub daemon: Option<Result<Option<u32>, String>>,
}

impl Facts {
    pub(super) fn gather() -> Self {
        let is_root = rustix::process::geteuid().is_root();
        let hard = |resource| rustix::process::getrlimit(resource).maximum;
        Self {
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            sealed_memory: sealed_memory().map_err(|error| error.to_string()),
            open_files: hard(Resource::Nofile),
            available_memory_bytes: available_memory().unwrap_or(0),
            memory_limit_bytes: cgroup_limit(),
            real_time_priority: if has_capability(CapabilitySet::SYS_NICE) {
                None
            } else {
                hard(Resource::Rtprio)
            },
            is_real_time_kernel: line("/sys/kernel/realtime").is_some_and(|text| text == "1"),
            locked_memory_bytes: if has_capability(CapabilitySet::IPC_LOCK) {
                None
            } else {
                hard(Resource::Memlock)
            },
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            clock_source: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            logs: logs(),
            python: python(),
            control_groups: NodeGroups::probe(),
            ptrace_scope: number("/proc/sys/kernel/yama/ptrace_scope"),
            is_root,
            receive_buffer_bytes: number("/proc/sys/net/core/rmem_max"),
            has_tun: Path::new("/dev/net/tun").exists(),
            daemon: match daemon::belongs_to_fleet() {
                Ok(false) => None,
                Ok(true) => Some(daemon::process().map_err(with_causes)),
                Err(error) => Some(Err(with_causes(error))),
            },
        }
    }
}

fn with_causes(error: nervure_inspect::Error) -> String {
    Failure::from(error).to_string()
}

/// Whether this thread has a capability; root in a container may lack it.
fn has_capability(capability: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// Creates and maps a counters page, which is sealed as segments are.
fn sealed_memory() -> io::Result<()> {
    let page = nervure_shm::CountersPage::create(1, 1)?;
    nervure_shm::CountersPage::map(&page, true).map(drop)
}

fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number<N: std::str::FromStr>(path: &str) -> Option<N> {
    line(path)?.parse().ok()
}

fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kilobytes = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(
        kilobytes
            .trim()
            .strip_suffix("kB")?
            .trim()
            .parse::<u64>()
            .ok()?
            * 1024,
    )
}

/// The folder may not exist yet: its nearest existing ancestor must be writable.
fn logs() -> Result<(String, u64), String> {
    let root = log_folder::root()?;
    let exists = root
        .ancestors()
        .find(|folder| folder.exists())
        .ok_or("no such folder")?;
    let failed = |error: rustix::io::Errno| format!("{}: {error}", exists.display());
    rustix::fs::access(exists, rustix::fs::Access::WRITE_OK).map_err(failed)?;
    let disk = rustix::fs::statvfs(exists).map_err(failed)?;
    Ok((root.display().to_string(), disk.f_bavail * disk.f_frsize))
}

fn python() -> Result<String, String> {
    let python = nervure_keeper::python(&BTreeMap::new())?;
    let shown = python.display();
    let asked = Command::new(&python)
        .args(["-c", "import nervure; print(nervure.__version__)"])
        .output();
    let output = asked.map_err(|error| format!("{shown} cannot be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("{shown} cannot import the module nervure"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
