//! Starting the process of a node.

#![expect(
    unsafe_code,
    reason = "code of a child between fork and exec is unsafe by its nature"
)]

use std::{
    io,
    mem::MaybeUninit,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nervure_protocol::{CONTROL_FD_VARIABLE, DATAFLOW_FILE_VARIABLE, HOST_FD_VARIABLE};
use nervure_shm::{Processors, Shortage, explain_scheduling, schedule_this_thread};
use rustix::{
    fd::{AsRawFd, BorrowedFd, OwnedFd},
    pipe::PipeFlags,
    process::{Pid, Resource, Rlimit},
};

use super::{program, python_path::python_path};
use crate::{
    descendants::MARK_VARIABLE,
    plan::{NodePlan, Plan, Scheduling},
};

/// A process that was started, and the ends of its pipes.
#[derive(Debug)]
pub struct Started {
    pub pid: Pid,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    /// The Python that runs the script, for messages.
    pub interpreter: Option<PathBuf>,
}

/// Why a process was not started.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// It could not enter its control group, and may be started without one.
    #[error("it cannot enter its control group: {0}")]
    Group(io::Error),
    /// A resource is short: a later attempt may succeed.
    #[error("{0}")]
    Short(Shortage),
    /// Another reason, for people.
    #[error("{0}")]
    Other(String),
}

impl From<String> for NotStarted {
    fn from(reason: String) -> Self {
        Self::Other(reason)
    }
}

/// Starts a node in its own process group, with `control` as the only descriptor beside its
/// standard streams.
///
/// # Errors
/// What failed, for people.
pub fn start(
    plan: &Plan,
    node: &NodePlan,
    control: BorrowedFd<'_>,
    files: Rlimit,
    group: Option<BorrowedFd<'_>>,
    mark: &str,
) -> Result<Started, NotStarted> {
    let folder = node.settings.folder.as_deref().unwrap_or(&plan.folder);
    let words = match node.host() {
        Some(_) => program::host_words(&node.program, &node.settings.env)?,
        None => program::words(&node.program, &node.settings.env)?,
    };
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let interpreter = program::is_run_by_python(&node.program).then(|| {
        command.env("PYTHONUNBUFFERED", "1");
        PathBuf::from(&words[0])
    });
    let (stdout, stdout_end) = output_pipe()?;
    let (stderr, stderr_end) = output_pipe()?;
    command
        .args(&node.settings.args)
        .current_dir(folder)
        .envs(&node.settings.env)
        .envs(node.program.environment())
        .env(control_variable(node), control.as_raw_fd().to_string())
        .env(MARK_VARIABLE, mark)
        .stdin(Stdio::null())
        .stdout(stdout_end)
        .stderr(stderr_end)
        .process_group(0);
    if let Some(path) = python_path(&node.settings.env) {
        command.env("PYTHONPATH", path);
    }
    if let Some(file) = &plan.file {
        command.env(DATAFLOW_FILE_VARIABLE, file);
    }
    let setup = Setup {
        control: control.as_raw_fd(),
        group: group.map(|group| group.as_raw_fd()),
        keeper: rustix::process::getpid(),
        affinity: Processors::new(&node.settings.cpu_affinity)?,
        scheduling: node.settings.scheduling,
        files,
    };
    // SAFETY: between fork and exec, `apply` only makes system calls: it does not allocate, lock or
    // drop anything.
    unsafe { command.pre_exec(move || setup.apply()) };
    let child = command.spawn().map_err(|error| match Step::of(&error) {
        Some((Step::Group, cause)) => NotStarted::Group(cause),
        None if error.kind() == io::ErrorKind::WouldBlock => NotStarted::Short(Shortage::Processes),
        step => match Shortage::of(&error).filter(|_| step.is_none()) {
            Some(shortage) => NotStarted::Short(shortage),
            None => explain(&error, node, &command, folder).into(),
        },
    })?;
    let pid = Pid::from_child(&child);
    Ok(Started {
        pid,
        stdout,
        stderr,
        interpreter,
    })
}

/// A pipe for the output of a node: the keeper's end, which never blocks, and the node's.
///
/// # Errors
/// What failed, for people.
pub fn output_pipe() -> Result<(OwnedFd, OwnedFd), NotStarted> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|error| {
        let error = io::Error::from(error);
        match Shortage::of(&error) {
            Some(shortage) => NotStarted::Short(shortage),
            None => format!("no pipe for its output: {error}").into(),
        }
    })?;
    rustix::io::ioctl_fionbio(&read, true)
        .map_err(|error| format!("no pipe for its output: {error}"))?;
    Ok((read, write))
}

/// The environment variable with the descriptor by which the process reaches its keeper.
fn control_variable(node: &NodePlan) -> &'static str {
    match node.host() {
        Some(_) => HOST_FD_VARIABLE,
        None => CONTROL_FD_VARIABLE,
    }
}

/// Arranges that a command gets SIGHUP when the thread that starts it ends, for whatever reason.
pub fn hang_up_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let setup = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::HUP))?;
        match rustix::process::getppid() == Some(parent) {
            true => Ok(()),
            // The parent ended before the line above.
            false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    };
    // SAFETY: between fork and exec, it only makes system calls: it does not allocate, lock or drop
    // anything.
    unsafe { command.pre_exec(setup) };
}

/// The set-up of the child between fork and exec.
struct Setup {
    control: i32,
    /// The file that moves the child into its control group.
    group: Option<i32>,
    keeper: Pid,
    affinity: Option<Processors>,
    scheduling: Scheduling,
    files: Rlimit,
}

/// A step of [`Setup::apply`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(i32)]
enum Step {
    Control = 1,
    Signals,
    Death,
    Files,
    Affinity,
    Scheduling,
    Group,
}

impl Setup {
    fn apply(&self) -> io::Result<()> {
        if let Some(group) = self.group {
            // SAFETY: the descriptor is open: the parent keeps it until after the fork.
            let group = unsafe { BorrowedFd::borrow_raw(group) };
            rustix::io::retry_on_intr(|| rustix::io::write(group, b"0"))
                .map_err(|error| Step::Group.failed(error.into()))?;
        }
        close_foreign_descriptors();
        // SAFETY: the descriptor is open: the parent keeps it until after the fork.
        let control = unsafe { BorrowedFd::borrow_raw(self.control) };
        let inherited = rustix::io::fcntl_setfd(control, rustix::io::FdFlags::empty());
        inherited.map_err(|error| Step::Control.failed(error.into()))?;
        unblock_signals().map_err(|error| Step::Signals.failed(error))?;
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
            .map_err(|error| Step::Death.failed(error.into()))?;
        // The keeper may have ended before the line above.
        if rustix::process::getppid() != Some(self.keeper) {
            return Err(Step::Death.failed(io::Error::from_raw_os_error(libc::ESRCH)));
        }
        rustix::process::setrlimit(Resource::Nofile, self.files)
            .map_err(|error| Step::Files.failed(error.into()))?;
        if let Some(set) = &self.affinity {
            set.bind_this_thread()
                .map_err(|error| Step::Affinity.failed(error))?;
        }
        schedule_this_thread(self.scheduling).map_err(|error| Step::Scheduling.failed(error))
    }
}

impl Step {
    const ALL: [Self; 7] = [
        Self::Control,
        Self::Signals,
        Self::Death,
        Self::Files,
        Self::Affinity,
        Self::Scheduling,
        Self::Group,
    ];
    const SHIFT: i32 = 16;

    /// The child can only pass an error number to its parent: the upper 16 bits carry the step.
    fn failed(self, error: io::Error) -> io::Error {
        io::Error::from_raw_os_error(
            (self as i32) << Self::SHIFT | error.raw_os_error().unwrap_or(libc::EINVAL),
        )
    }

    fn of(error: &io::Error) -> Option<(Self, io::Error)> {
        let number = error.raw_os_error()?;
        let step = Self::ALL
            .into_iter()
            .find(|&step| step as i32 == number >> Self::SHIFT)?;
        Some((
            step,
            io::Error::from_raw_os_error(number & ((1 << Self::SHIFT) - 1)),
        ))
    }
}

/// Closes inherited descriptors at exec. Linux 5.10 does not support this, and nothing depends on
/// it.
fn close_foreign_descriptors() {
    const FIRST: libc::c_uint = 3;
    // SAFETY: it only sets close-on-exec; no descriptor that is in use before exec is closed.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Clears the signal mask, which a node would inherit from the process that started `run`.
fn unblock_signals() -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is initialised by `sigemptyset` and then only read.
    check(unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut())
    })
}

fn explain(error: &io::Error, node: &NodePlan, command: &Command, folder: &Path) -> String {
    let Some((step, cause)) = Step::of(error) else {
        let program = Path::new(command.get_program());
        return match error.kind() {
            io::ErrorKind::NotFound if !folder.is_dir() => {
                format!("its folder `{}` does not exist", folder.display())
            }
            io::ErrorKind::NotFound if program.is_file() => {
                format!(
                    "the interpreter in the first line of `{}` (`#!..`) does not exist",
                    program.display()
                )
            }
            io::ErrorKind::NotFound => format!("`{}` does not exist", program.display()),
            io::ErrorKind::PermissionDenied => {
                format!(
                    "`{0}` may not be executed (`chmod +x {0}`?)",
                    program.display()
                )
            }
            _ => format!("`{}`: {error}", program.display()),
        };
    };
    match step {
        Step::Affinity => {
            let online = std::thread::available_parallelism().map_or(1, usize::from);
            format!(
                "`cpu_affinity: {:?}` was refused: {cause}; {online} CPUs may be used here, counted from 0",
                node.settings.cpu_affinity
            )
        }
        Step::Scheduling => explain_scheduling(node.settings.scheduling, &cause),
        Step::Death => format!("its keeper is gone: {cause}"),
        Step::Control | Step::Signals | Step::Files | Step::Group => format!("{step:?}: {cause}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_recognises_the_step_that_failed() {
        for step in Step::ALL {
            let sent = step
                .failed(io::Error::from_raw_os_error(libc::EPERM))
                .raw_os_error()
                .unwrap();
            let (received, cause) = Step::of(&io::Error::from_raw_os_error(sent)).unwrap();
            assert_eq!((received, cause.raw_os_error()), (step, Some(libc::EPERM)));
        }
        assert!(Step::of(&io::Error::from_raw_os_error(libc::ENOENT)).is_none());
    }
}
