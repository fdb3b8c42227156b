//! The folder of a run's log files.

use std::{
    env,
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use nervure_dataflow::parse_size;
use nervure_keeper::log_space::{self, LogLimit};
use nervure_protocol::domain::Domain;

use crate::error::Error;

/// Default limit on the logs of all runs, in bytes. NERVURE_LOG_LIMIT overrides it.
const DEFAULT_LIMIT: u64 = 2_000_000_000;

/// The folder of a run. Its lock keeps other runs from removing it, until this value is dropped and
/// the keeper has ended.
#[derive(Debug)]
pub(crate) struct LogFolder {
    pub path: PathBuf,
    pub limit: LogLimit,
    _lock: File,
}

/// Creates the folder of a new run, and removes old logs beyond the limit.
pub(crate) fn create(dataflow: &str) -> Result<LogFolder, Error> {
    let bytes = limit()?;
    let refused = |why: String| {
        Error::internal(why).hint("set NERVURE_LOG_DIR to another folder, or run with `--no-logs`")
    };
    let root = root_of_default_domain().map_err(refused)?;
    let failed = |folder: &Path, error: io::Error| {
        Error::internal(format!(
            "cannot create the log folder `{}`",
            folder.display()
        ))
        .because(error)
        .hint("set NERVURE_LOG_DIR to a writable folder, or run with `--no-logs`")
    };
    let domain = Domain::of_environment()?;
    make_root(&root).map_err(|error| failed(&root, error))?;
    let root = domain.folder_in(root);
    let root = std::path::absolute(&root).map_err(|error| failed(&root, error))?;
    let runs = root.join(dataflow);
    log_space::make_folder(&runs).map_err(|error| failed(&runs, error))?;
    let utc_seconds = nervure_shm::utc_nanos().div_euclid(1_000_000_000);
    let name = format!("{}-{}", utc_name(utc_seconds), std::process::id());
    let (path, lock) =
        create_locked(&runs, &name).map_err(|error| failed(&runs.join(&name), error))?;
    let limit = LogLimit { root, bytes };
    limit.enforce(&path).map_err(|error| {
        Error::internal(format!(
            "cannot remove old logs in `{}`",
            limit.root.display()
        ))
        .because(error)
    })?;
    Ok(LogFolder {
        path,
        limit,
        _lock: lock,
    })
}

/// `20260131T235959Z`, for file names that sort by time.
#[must_use]
pub fn utc_name(utc_seconds: i64) -> String {
    jiff::Timestamp::from_second(utc_seconds)
        .unwrap_or_default()
        .strftime("%Y%m%dT%H%M%SZ")
        .to_string()
}

/// Creates and locks a folder with a unique name: in containers many processes have the same id.
fn create_locked(runs: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    let mut number = 1;
    loop {
        let suffix = if number == 1 {
            String::new()
        } else {
            format!(".{number}")
        };
        let path = runs.join(format!("{name}{suffix}"));
        number += 1;
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            other => other?,
        }
        let lock = match log_space::lock(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        // Another run may have removed it before it was locked.
        if path.is_dir() {
            return Ok((path, lock));
        }
    }
}

/// Reads the limit in bytes from NERVURE_LOG_LIMIT, such as `500MB`.
fn limit() -> Result<u64, Error> {
    const NAME: &str = "NERVURE_LOG_LIMIT";
    let Some(text) = env::var_os(NAME).filter(|text| !text.is_empty()) else {
        return Ok(DEFAULT_LIMIT);
    };
    let text = text.to_string_lossy();
    parse_size(&text).map_err(|error| {
        Error::invalid(format!("{NAME}: `{text}` {error}"))
            .hint("write a number and a unit, such as `500MB`")
    })
}

/// The folder of the logs of all dataflows of this domain.
///
/// # Errors
/// If other users can write to the folder.
pub fn root() -> Result<PathBuf, String> {
    let domain = Domain::of_environment().map_err(|error| error.to_string())?;
    root_of_default_domain().map(|root| domain.folder_in(root))
}

fn root_of_default_domain() -> Result<PathBuf, String> {
    if let Some(root) = configured_root(|name| env::var_os(name).map(PathBuf::from)) {
        return Ok(root);
    }
    let root = shared_root(rustix::process::geteuid().as_raw());
    match fs::symlink_metadata(&root) {
        Ok(metadata) if !is_own(&metadata) => Err(format!(
            "`{}` is not used for logs: other users can write to it, or it is no folder",
            root.display()
        )),
        _ => Ok(root),
    }
}

/// The folder that the environment configures.
fn configured_root(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let variable = |name: &str| variable(name).filter(|value| !value.as_os_str().is_empty());
    // systemd sets this for a unit with `LogsDirectory=`: paths with colons between them.
    let of_unit = || {
        Some(
            env::split_paths(&variable("LOGS_DIRECTORY")?)
                .next()?
                .join("nervure"),
        )
    };
    // In containers, users without a home directory have `HOME=/`.
    let home = || variable("HOME").filter(|home| home != Path::new("/"));
    variable("NERVURE_LOG_DIR")
        .or_else(of_unit)
        .or_else(|| Some(variable("XDG_STATE_HOME")?.join("nervure")))
        .or_else(|| Some(home()?.join(".local/state/nervure")))
}

/// The folder for users without a home directory.
fn shared_root(uid: u32) -> PathBuf {
    match uid {
        0 => PathBuf::from("/var/log/nervure"),
        _ => env::temp_dir().join(format!("nervure-{uid}")),
    }
}

/// Creates the folder; below a directory that others can write to, with access for this user only.
fn make_root(root: &Path) -> io::Result<()> {
    if root != shared_root(rustix::process::geteuid().as_raw()) {
        return log_space::make_folder(root);
    }
    match DirBuilder::new().mode(0o700).create(root) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    match is_own(&fs::symlink_metadata(root)?) {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "other users have access to it",
        )),
    }
}

/// Whether it is a folder, not a symbolic link, in which only this user can create files.
fn is_own(metadata: &fs::Metadata) -> bool {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    metadata.is_dir()
        && metadata.uid() == rustix::process::geteuid().as_raw()
        && metadata.mode() & WRITABLE_BY_OTHERS == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn names_of_times_are_those_of_the_calendar() {
        assert_eq!(utc_name(0), "19700101T000000Z");
        assert_eq!(utc_name(951_782_399), "20000228T235959Z");
        assert_eq!(utc_name(951_782_400), "20000229T000000Z");
        assert_eq!(utc_name(4_107_542_399), "21000228T235959Z");
        assert_eq!(utc_name(4_107_542_400), "21000301T000000Z");
    }

    #[test]
    fn the_environment_configures_the_folder() {
        let root = |variables: &[(&str, &str)]| {
            configured_root(|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| PathBuf::from(value))
            })
        };
        let home = ("HOME", "/home/robot");
        assert_eq!(
            root(&[home]),
            Some("/home/robot/.local/state/nervure".into())
        );
        assert_eq!(
            root(&[home, ("XDG_STATE_HOME", "/state")]),
            Some("/state/nervure".into())
        );
        let unit = ("LOGS_DIRECTORY", "/var/log/robot:/var/log/other");
        assert_eq!(root(&[home, unit]), Some("/var/log/robot/nervure".into()));
        assert_eq!(
            root(&[home, unit, ("NERVURE_LOG_DIR", "/logs")]),
            Some("/logs".into())
        );
        assert_eq!(root(&[("HOME", "/")]), None);
        assert_eq!(root(&[("NERVURE_LOG_DIR", "")]), None);
    }

    #[test]
    fn users_without_a_home_directory_have_a_place_of_their_own() {
        assert_eq!(shared_root(0), Path::new("/var/log/nervure"));
        assert_eq!(shared_root(1000), env::temp_dir().join("nervure-1000"));
    }

    #[test]
    fn a_folder_that_others_can_write_or_have_linked_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let is_own = |path: &Path| is_own(&fs::symlink_metadata(path).unwrap());
        let own = folder.path().join("own");
        DirBuilder::new().mode(0o700).create(&own).unwrap();
        assert!(is_own(&own));
        let link = folder.path().join("link");
        symlink(&own, &link).unwrap();
        assert!(!is_own(&link));
        fs::set_permissions(&own, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(!is_own(&own));
    }

    #[test]
    fn only_this_user_can_enter_the_folder_of_a_run() {
        let root = tempfile::tempdir().unwrap();
        let runs = root.path().join("above/runs");
        log_space::make_folder(&runs).unwrap();
        let (run, _lock) = create_locked(&runs, "20260101T000000Z-1").unwrap();
        log_space::begin(&run).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&run.join("running")), 0o600);
        for folder in [&run, &runs, runs.parent().unwrap()] {
            assert_eq!(mode(folder), 0o700, "{}", folder.display());
        }
    }

    #[test]
    fn runs_of_the_same_second_and_process_number_have_folders_of_their_own() {
        let runs = tempfile::tempdir().unwrap();
        let (first, _lock) = create_locked(runs.path(), "20260101T000000Z-1").unwrap();
        let (second, _lock) = create_locked(runs.path(), "20260101T000000Z-1").unwrap();
        assert_eq!(first, runs.path().join("20260101T000000Z-1"));
        assert_eq!(second, runs.path().join("20260101T000000Z-1.2"));
    }
}
