//! What `run` does by itself when its keeper does not end: a process that is stopped, or that the kernel holds, obeys
//! no order.

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

/// How long a keeper may take to end after the order to kill its nodes.
pub const AFTER_KILL: Duration = Duration::from_secs(3);

/// How long a keeper may take to end after the grace periods of a stop.
pub const AFTER_GRACE: Duration = Duration::from_secs(5);

/// Kills a keeper that does not end, with all that is below it, from a thread of its own.
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

/// The keeper has to end within `patience`, or else it is killed.
struct Order {
    patience: Duration,
    /// `within 3s of the order to kill its nodes`
    limit: String,
}

/// How far it has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// The keeper had no cause to be killed.
    #[default]
    Idle,
    /// It was killed, for this reason.
    Begun(String),
    /// These processes do not end.
    Failed(String),
}

impl Escalation {
    /// Of a keeper that was not reaped. `ringer` is written to whenever there is progress.
    pub fn new(keeper: Pid, ringer: UnixStream) -> io::Result<Self> {
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
                let _ = (&ringer).write(b"!");
                if let Err(error) = killer.kill() {
                    killer.set(Progress::Failed(error.to_string()));
                    let _ = (&ringer).write(b"!");
                }
            }
        };
        thread::Builder::new()
            .name("escalation".to_owned())
            .spawn(kill_overdue)?;
        Ok(Self { target, orders })
    }

    /// Kills the keeper when it has not ended within `patience`, which is the limit of that name.
    pub fn order(&self, patience: Duration, limit: String) {
        // The thread is gone when the keeper is.
        let _ = self.orders.send(Order { patience, limit });
    }

    /// Kills the keeper and its nodes at once, in the calling thread.
    pub fn kill_now(&self) {
        let _ = self.target.kill();
    }

    /// How far it has come.
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
