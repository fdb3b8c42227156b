//! Control groups (version 2, cgroups(7)) of nodes. A process cannot leave its group by a new
//! session or a double fork, and the kernel kills all processes of a group at once.
//!
//! The groups are children of the keeper's own: `nervure-<keeper>-<start>-<namespace>/node-<id>`. That
//! needs write access to it, which systemd grants with `Delegate=yes` and in a user's session, and
//! containers if configured.
//!
//! The keeper holds a lock (flock(2)) on its folder, which the kernel releases when it ends. Its
//! process id would not show whether it is alive: keepers in several namespaces of process ids can
//! have the same group.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::descendants::ProcessKey;

/// The environment variable that disables groups with the value `0`.
const VARIABLE: &str = "NERVURE_CGROUPS";

/// Longest wait for a group to become empty after its processes were killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The groups of the nodes of a dataflow.
#[derive(Debug)]
pub struct NodeGroups {
    folder: PathBuf,
    _lock: File,
}

impl NodeGroups {
    /// Creates the group of this keeper's dataflow, and removes the groups of keepers that were
    /// killed.
    ///
    /// # Errors
    /// Why nodes cannot have groups here.
    pub fn create() -> Result<Self, String> {
        if std::env::var_os(VARIABLE).is_some_and(|value| value == "0") {
            return Err(format!("{VARIABLE} is 0"));
        }
        let own = of_process("self").ok_or("no control group of version 2 is mounted")?;
        remove_orphans_in(&own);
        let keeper = ProcessKey::own().ok_or("/proc cannot be read")?;
        let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino());
        let folder = own.join(format!(
            "nervure-{}-{}-{namespace}",
            keeper.pid, keeper.started_ticks
        ));
        let lock =
            create_locked(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self {
            folder,
            _lock: lock,
        })
    }

    /// Checks whether nodes can have groups here.
    ///
    /// # Errors
    /// Why not.
    pub fn probe() -> Result<(), String> {
        let groups = Self::create()?;
        groups
            .entry("probe")
            .map(drop)
            .map_err(|error| error.to_string())
    }

    /// The file of a node's group to which a process writes `0` to enter it.
    ///
    /// # Errors
    /// When the group cannot be created.
    pub fn entry(&self, node: &str) -> io::Result<File> {
        let group = self.of(node);
        match fs::create_dir(&group) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        OpenOptions::new()
            .write(true)
            .open(group.join("cgroup.procs"))
    }

    /// The processes of a node.
    pub fn members(&self, node: &str) -> Vec<Pid> {
        members(&self.of(node))
    }

    /// Kills all processes of a node.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill(&self, node: &str) -> io::Result<()> {
        let group = self.of(node);
        if group.exists() { kill(&group) } else { Ok(()) }
    }

    fn of(&self, node: &str) -> PathBuf {
        // With the prefix, since an id could be the name of a kernel file: `cpu.stat`.
        self.folder.join(format!("node-{node}"))
    }
}

impl Drop for NodeGroups {
    fn drop(&mut self) {
        remove(&self.folder, KILL_TIMEOUT);
    }
}

/// Creates a folder with a lock. Another keeper may remove it before it is locked.
fn create_locked(folder: &Path) -> io::Result<File> {
    loop {
        fs::create_dir(folder)?;
        let lock = match File::open(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        rustix::io::retry_on_intr(|| flock(&lock, FlockOperation::LockExclusive))?;
        if folder.exists() {
            return Ok(lock);
        }
    }
}

/// The group of a process, `self` or a number, as a folder.
pub fn of_process(pid: &str) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    folder_of(group, &mounts).filter(|folder| folder.is_dir())
}

/// The folder of a node's group, if `pid` is in one.
pub fn of_node(pid: u32) -> Option<PathBuf> {
    let group = of_process(&pid.to_string())?;
    let is_node = group.file_name()?.to_str()?.starts_with("node-");
    (is_node && is_of_dataflow(group.parent()?)).then_some(group)
}

/// The processes in a group. A process that has ended is in no group.
pub fn members(group: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines()
        .filter_map(|line| Pid::from_raw(line.parse().ok()?))
        .collect()
}

/// The CPU time of all processes that are, or were, in a group, in microseconds.
pub fn cpu_micros(group: &Path) -> Option<u64> {
    let text = fs::read_to_string(group.join("cpu.stat")).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok())
}

/// The folder where a group is mounted. A line is `36 35 0:30 <root> <folder> <options> .. -
/// cgroup2 <source> <options>`.
fn folder_of(group: &str, mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, folder) = (fields.next()?, fields.next()?);
        let below = Path::new(group).strip_prefix(root).ok()?;
        file_system
            .starts_with("cgroup2 ")
            .then(|| Path::new(folder).join(below))
    })
}

fn kill(group: &Path) -> io::Result<()> {
    // Without `create`: Linux before 5.14 has no such file.
    let file = OpenOptions::new()
        .write(true)
        .open(group.join("cgroup.kill"));
    match file.and_then(|mut file| file.write_all(b"1")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => kill_each(group),
        other => other,
    }
}

fn kill_each(group: &Path) -> io::Result<()> {
    let deadline = Instant::now() + KILL_TIMEOUT;
    loop {
        let living = members(group);
        if living.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        for pid in living {
            let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
                continue;
            };
            // The id may belong to another process by now.
            if members(group).contains(&pid) {
                let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
            }
        }
    }
}

/// Removes the groups, with all processes, of keepers that were killed, in the group of this
/// process.
pub fn remove_orphans() {
    if let Some(own) = of_process("self") {
        remove_orphans_in(&own);
    }
}

fn remove_orphans_in(own: &Path) {
    let entries = fs::read_dir(own)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    for folder in entries.map(|entry| entry.path()) {
        if !is_of_dataflow(&folder) {
            continue;
        }
        // Held until it is removed.
        if let Ok(lock) = File::open(&folder)
            && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            remove(&folder, KILL_TIMEOUT);
        }
    }
}

/// Whether a group is that of a dataflow: three numbers name its keeper.
fn is_of_dataflow(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    let keeper = name.and_then(|name| name.strip_prefix("nervure-"));
    keeper.is_some_and(|keeper| {
        let numbers: Vec<_> = keeper.split('-').map(str::parse::<u64>).collect();
        numbers.len() == 3 && numbers.iter().all(Result::is_ok)
    })
}

/// Kills the processes in the groups of a dataflow, and removes the groups. A process that does not
/// end keeps its group, which the next keeper removes.
fn remove(folder: &Path, patience: Duration) {
    let deadline = Instant::now() + patience;
    loop {
        let entries = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .filter_map(Result::ok);
        let is_group =
            |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"node-");
        for group in entries.filter(is_group).map(|entry| entry.path()) {
            let _ = kill(&group);
            let _ = fs::remove_dir(&group);
        }
        match fs::remove_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound && Instant::now() < deadline => {}
            _ => return,
        }
        sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_group_is_found_in_every_layout() {
        let unified = "31 23 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(
            folder_of("/user.slice/a.scope", unified),
            Some("/sys/fs/cgroup/user.slice/a.scope".into())
        );
        let hybrid = "\
            40 32 0:36 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            41 32 0:37 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw";
        assert_eq!(
            folder_of("/", hybrid),
            Some("/sys/fs/cgroup/unified/".into())
        );
        let container = "31 23 0:27 /docker/17 /sys/fs/cgroup ro - cgroup2 cgroup rw";
        assert_eq!(
            folder_of("/docker/17/x", container),
            Some("/sys/fs/cgroup/x".into())
        );
        assert_eq!(folder_of("/elsewhere", container), None);
        assert_eq!(
            folder_of(
                "/",
                "40 32 0:36 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"
            ),
            None
        );
    }

    #[test]
    fn each_process_is_killed_where_the_kernel_has_no_cgroup_kill() {
        let group = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        // A folder instead of a group: its list of processes does not become empty.
        fs::write(
            group.path().join("cgroup.procs"),
            format!("{}\n", child.id()),
        )
        .unwrap();
        assert_eq!(
            kill(group.path()).unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn the_name_of_a_group_is_that_of_a_dataflow() {
        assert!(is_of_dataflow(Path::new("/a/nervure-4711-99-4026531836")));
        for other in [
            "/a/nervure-4711-99",
            "/a/nervure.service",
            "/a/nervure-x-1-2",
            "/a/b-1-2-3",
        ] {
            assert!(!is_of_dataflow(Path::new(other)), "{other}");
        }
    }

    #[test]
    fn groups_are_orphans_when_their_keeper_has_ended_in_whatever_namespace() {
        let own = tempfile::tempdir().unwrap();
        // No process has this id here.
        let folder = own.path().join("nervure-4999999-1-2");
        let lock = create_locked(&folder).unwrap();
        remove_orphans_in(own.path());
        assert!(folder.exists(), "its keeper is alive");
        // Closing would not do: a child of another test has the descriptor, too, until it executes its program.
        flock(&lock, FlockOperation::Unlock).unwrap();
        remove_orphans_in(own.path());
        assert!(!folder.exists());
    }
}
