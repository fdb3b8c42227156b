//! The folder of a run's log files.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use nervure_node::running::{self, Connection};

use crate::{failure::Failure, run::format};

/// Runs of a dataflow whose logs are kept.
const KEPT_RUNS: usize = 20;

/// Makes the folder of a new run, and removes those of runs long ago.
pub fn create(dataflow: &str) -> Result<PathBuf, Failure> {
    let failed = |folder: &Path, error: io::Error| {
        Failure::internal(format!("the log folder `{}` cannot be made", folder.display()))
            .because(error)
            .hint("set NERVURE_LOG_DIR to a folder that can be written")
    };
    let root = root().ok_or_else(|| {
        Failure::internal("there is no place for log files: neither NERVURE_LOG_DIR nor HOME is set")
    })?;
    let runs = root.join(dataflow);
    let utc_seconds = nervure_shm::utc_nanos().div_euclid(1_000_000_000);
    let folder = runs.join(format!("{}-{}", format::utc_name(utc_seconds), std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| failed(&folder, error))?;
    let folder = std::path::absolute(&folder).map_err(|error| failed(&folder, error))?;
    remove_old(&runs).map_err(|error| {
        Failure::internal(format!("old logs in `{}` cannot be removed", runs.display())).because(error)
    })?;
    Ok(folder)
}

/// Where the logs of all dataflows are, if anywhere.
pub fn root() -> Option<PathBuf> {
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("NERVURE_LOG_DIR")
        .or_else(|| Some(variable("XDG_STATE_HOME")?.join("nervure")))
        .or_else(|| Some(variable("HOME")?.join(".local/state/nervure")))
}

/// Removes all but the last runs. Touches nothing but folders that are named as runs are.
fn remove_old(runs: &Path) -> io::Result<()> {
    let mut names: Vec<_> = fs::read_dir(runs)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| run_process(name).is_some())
        .collect();
    names.sort_unstable();
    let old = names.len().saturating_sub(KEPT_RUNS);
    let in_use = if old > 0 { folders_in_use() } else { Vec::new() };
    for name in &names[..old] {
        let is_running =
            run_process(name).is_some_and(|pid| Path::new("/proc").join(pid.to_string()).exists());
        if !is_running && !in_use.contains(&std::path::absolute(runs.join(name))?) {
            match fs::remove_dir_all(runs.join(name)) {
                // Another `run` removes it at the same time.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Those of dataflows that outlived their `run`.
fn folders_in_use() -> Vec<PathBuf> {
    let running = running::dataflows().unwrap_or_default();
    let connections = running.iter().filter_map(|address| Connection::open(address, "run").ok());
    connections.map(|connection| PathBuf::from(&connection.welcome().log_folder)).collect()
}

/// The process id in the name of a run's folder, `20260131T235959Z-4711`.
fn run_process(name: &str) -> Option<u32> {
    let (time, pid) = name.split_once('-')?;
    let is_time = time.len() == 16
        && time.bytes().enumerate().all(|(at, byte)| match at {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
    is_time.then(|| pid.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_runs_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<_> = (0..25).map(|n| format!("202601{:02}T000000Z-{}", n + 1, u32::MAX - n)).collect();
        for name in names.iter().map(String::as_str).chain(["precious", "20260101T000000Z-1", "20260101-5"]) {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        remove_old(folder.path()).unwrap();
        let exists = |name: &str| folder.path().join(name).exists();
        assert!(exists("precious") && exists("20260101-5"));
        assert!(exists("20260101T000000Z-1"), "process 1 runs");
        assert_eq!(names.iter().filter(|name| exists(name)).count(), KEPT_RUNS);
        assert!(exists(&names[24]) && !exists(&names[0]));
    }
}
