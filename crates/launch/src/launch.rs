//! Prepares and starts a dataflow.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use nervure_dataflow::{Dataflow, Entry, Host, Surroundings};
use nervure_keeper::{
    descendants,
    log_space::{self, LogLimit},
    plan::{ClockPlan, Plan},
};
use nervure_node::running::{self, Connection, ConnectionError};
use nervure_protocol::{domain::Domain, nanos::elapsed};
use rustix::fd::OwnedFd;

use crate::{
    error::Error,
    keeper::{Keeper, Start},
    log_folder, plan,
    running::Running,
};

/// Settings of a start.
#[derive(Debug)]
pub struct Options {
    /// Absolute path of the dataflow file, for messages of the keeper. With it, the dataflow is not
    /// started if it runs from this file already, under the same name: two copies of a robot's drivers
    /// would compete for its hardware.
    pub file: Option<PathBuf>,
    /// Grace period between Stop and SIGTERM.
    pub grace: Duration,
    /// Whether it writes log files.
    pub has_logs: bool,
    /// Whether the log lines of nodes are among the keeper's reports.
    pub reports_logs: bool,
    /// Whether it outlives this process.
    pub is_detached: bool,
    /// The clock; `None` for real time.
    pub clock: Option<ClockPlan>,
    /// A file that the keeper renames after the end of all nodes, and its new name.
    pub end_note: Option<(PathBuf, PathBuf)>,
    /// A locked file that the keeper holds until it ends.
    pub lock: Option<OwnedFd>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            file: None,
            grace: Duration::from_secs(5),
            has_logs: true,
            reports_logs: false,
            is_detached: false,
            clock: None,
            end_note: None,
            lock: None,
        }
    }
}

/// A dataflow that is ready to start.
#[derive(Debug)]
pub struct Launch(Start);

impl Launch {
    /// Makes the plan and the log folder of a dataflow. Kills processes that killed dataflows left
    /// behind: they may hold devices that the new nodes need. `warn` gets warnings for the user.
    ///
    /// # Errors
    /// If the dataflow already runs from its file, or the system refuses a folder or a file.
    pub fn prepare(
        dataflow: &Dataflow,
        options: Options,
        warn: &mut dyn FnMut(&str),
    ) -> Result<Self, Error> {
        if let Some(file) = &options.file {
            check_not_running(&dataflow.name, file, warn)?;
        }
        // A node that joins reads its token from the log folder.
        let needs_folder = options.has_logs || plan::has_dynamic_nodes(dataflow);
        let log_folder = needs_folder
            .then(|| log_folder::create(&dataflow.name))
            .transpose()?;
        let path = log_folder.as_ref().map(|folder| folder.path.clone());
        let mut plan = plan::plan(dataflow, path, options.grace, options.is_detached)?;
        plan.log_limit = log_folder
            .as_ref()
            .filter(|_| options.has_logs)
            .map(|folder| folder.limit.clone());
        plan.clock = options.clock;
        plan.file = options.file;
        plan.end_note = options.end_note;
        if let (Some(limit), Some(folder)) = (&plan.log_limit, &plan.log_folder) {
            kill_orphans(limit, warn)?;
            log_space::begin(folder).map_err(|error| {
                Error::internal(format!("cannot write to `{}`", folder.display())).because(error)
            })?;
        }
        Ok(Self(Start {
            plan,
            log_folder,
            reports_logs: options.reports_logs,
            lock: options.lock,
        }))
    }

    /// The plan of the keeper.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.0.plan
    }

    /// Starts the keeper as a process of `command`, the path of the command `nervure`.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(self, command: &Path) -> Result<Keeper, Error> {
        Keeper::start(command, self.0)
    }

    /// As [`Self::start`], for a program that waits for the dataflow and does not show it.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn run(self, command: &Path) -> Result<Running, Error> {
        self.start(command).map(Running::of)
    }
}

/// The command `nervure` on the PATH.
///
/// # Errors
/// If there is none.
pub fn find_command() -> Result<PathBuf, Error> {
    find_on_path("nervure").ok_or_else(|| {
        Error::invalid("the command `nervure` is not on the PATH")
            .hint("install it, or name its path")
    })
}

/// The first executable file of this name on the PATH.
#[must_use]
pub fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| Host.entry(file) == Entry::File { executable: true })
}

fn check_not_running(dataflow: &str, file: &Path, warn: &mut dyn FnMut(&str)) -> Result<(), Error> {
    for address in running::dataflows()?
        .into_iter()
        .filter(|address| address.dataflow == dataflow)
    {
        let keeper = address.keeper;
        match Connection::open(&address, "run") {
            Ok(running) if running.welcome().file.as_deref().map(Path::new) == Some(file) => {
                let age = nervure_shm::utc_nanos() - running.welcome().started_utc_nanos;
                let ago = elapsed(Duration::from_nanos(u64::try_from(age).unwrap_or(0)));
                let text = format!(
                    "dataflow `{dataflow}` already runs from this file: keeper {keeper}, started {ago} ago"
                );
                let domain = Domain::of_environment().unwrap_or_default().option();
                return Err(Error::invalid(text).hint(format!(
                    "stop it with `nervure stop -d {keeper}{domain}`, or start a second one with `--name NAME`"
                )));
            }
            Err(error @ ConnectionError::NoAnswer { .. }) => {
                warn(&format!(
                    "dataflow `{dataflow}` may already run from this file: {error}"
                ));
            }
            // The dataflow is from another file, or has ended meanwhile.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// Kills the processes of dataflows whose keeper and starter were killed.
fn kill_orphans(limit: &LogLimit, warn: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let failed = |error| {
        Error::internal("cannot find the processes that killed dataflows left behind")
            .because(error)
    };
    if !log_space::take_killed_runs(&limit.root).map_err(failed)? {
        return Ok(());
    }
    let killed = descendants::kill_orphans().map_err(failed)?;
    if killed > 0 {
        warn(&format!(
            "killed {killed} process(es) that a dataflow had left behind when its keeper and `run` were killed"
        ));
    }
    Ok(())
}
