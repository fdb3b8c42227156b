//! Kills a keeper that does not end in time: a process that is stopped (SIGSTOP) or blocked in the
//! kernel does not react to messages.

use std::{
    io::{self, Write},
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Sender},
    },
    thread,
    time::Duration,
};

use nervure_keeper::descendants::{self, Stat};
use rustix::{
    fd::{AsFd, OwnedFd},
    process::{Pid, PidfdFlags},
};

/// Time limit for the end of a keeper after the order to kill its nodes.
pub const AFTER_KILL: Duration = Duration::from_secs(3);

/// Time limit for the end of a keeper after the grace periods of a stop.
pub const AFTER_GRACE: Duration = Duration::from_secs(5);

/// Kills an overdue keeper and all its descendants, from a thread of its own.
#[derive(Clone, Debug)]
pub struct Escalation {
    target: Arc<Target>,
    orders: Sender<Order>,
}

#[derive(Debug)]
struct Target {
    keeper: Pid,
    pidfd: OwnedFd,
    progress: Mutex<Progress>,
}

/// Kill the keeper if it has not ended within `patience`.
struct Order {
    patience: Duration,
    /// `within 3s of the order to kill its nodes`
    limit: String,
}

/// The progress of killing the keeper.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// The keeper is not overdue.
    #[default]
    Idle,
    /// The keeper is being killed, for this reason.
    Begun(String),
    /// Killing has failed, for this reason.
    Failed(String),
}

impl Escalation {
    /// For a keeper that is not reaped yet. Writes a byte to `waker` at each progress.
    pub fn new(keeper: Pid, waker: UnixStream) -> io::Result<Self> {
        let pidfd = rustix::process::pidfd_open(keeper, PidfdFlags::empty())?;
        let target = Arc::new(Target {
            keeper,
            pidfd,
            progress: Mutex::default(),
        });
        let (orders, received) = mpsc::channel::<Order>();
        let killer = Arc::clone(&target);
        let kill_overdue = move || {
            for order in received {
                if descendants::await_end(killer.pidfd.as_fd(), order.patience).unwrap_or(false) {
                    return;
                }
                killer.begin(&order.limit);
                let _ = (&waker).write(b"!");
                if let Err(error) = killer.kill() {
                    killer.set(Progress::Failed(error.to_string()));
                    let _ = (&waker).write(b"!");
                }
            }
        };
        thread::Builder::new()
            .name("escalation".to_owned())
            .spawn(kill_overdue)?;
        Ok(Self { target, orders })
    }

    /// Kills the keeper if it has not ended within `patience`. `limit` describes this limit in
    /// messages.
    pub fn order(&self, patience: Duration, limit: String) {
        // The thread ends with the keeper.
        let _ = self.orders.send(Order { patience, limit });
    }

    /// Kills the keeper and its nodes at once, in the calling thread.
    pub fn kill_now(&self) {
        let _ = self.target.kill();
    }

    /// The progress of killing the keeper.
    pub fn progress(&self) -> Progress {
        self.target
            .progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Target {
    fn begin(&self, limit: &str) {
        let keeper = self.keeper.as_raw_pid();
        let state = Stat::read(keeper).map_or("it is gone", |stat| stat.state_text());
        self.set(Progress::Begun(format!(
            "the keeper (process {keeper}) has not ended {limit} ({state}): killing it and its nodes"
        )));
    }

    fn set(&self, progress: Progress) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    fn kill(&self) -> io::Result<usize> {
        descendants::kill_tree(self.keeper, self.pidfd.as_fd())
    }
}
