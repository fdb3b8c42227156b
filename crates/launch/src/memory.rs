//! The memory of this host.

use std::{
    fs,
    io::{Error, Result},
    path::{Path, PathBuf},
};

/// Half of the memory of the host or of the container, in bytes: the default limit on a node's
/// shared memory.
pub(crate) fn default_shared_memory() -> Result<u64> {
    Ok(total()? / 2)
}

/// The memory of the host or of the container, in bytes.
///
/// # Errors
/// If /proc does not show it.
pub fn total() -> Result<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let kibibytes = meminfo.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?
            .trim()
            .strip_suffix("kB")?
            .trim()
            .parse::<u64>()
            .ok()
    });
    let physical = kibibytes.ok_or_else(|| Error::other("no MemTotal in /proc/meminfo"))? * 1024;
    Ok(cgroup_limit().unwrap_or(u64::MAX).min(physical))
}

/// The lowest limit of the control groups (version 2) of this process; `None` without a limit.
#[must_use]
pub fn cgroup_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let leaf = PathBuf::from("/sys/fs/cgroup").join(path.trim_start_matches('/'));
    let limit = |folder: &Path| {
        fs::read_to_string(folder.join("memory.max"))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    leaf.ancestors()
        .take_while(|folder| folder.starts_with("/sys/fs/cgroup"))
        .filter_map(limit)
        .min()
}
