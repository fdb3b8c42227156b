//! Ctrl-C and its relatives.
//!
//! A thread of their own passes them on to the keeper: when stdout is a pipe that nobody reads, the main thread is
//! stuck in a write, and Ctrl-C has to work nevertheless.

use std::{
    io::Read,
    os::{fd::AsFd, unix::net::UnixStream},
    process::exit,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use nervure_protocol::run_to_keeper::Message;
use rustix::fd::BorrowedFd;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator,
    low_level::signal_name,
};

use super::{
    escalation::{AFTER_KILL, Escalation},
    keeper::{Keeper, send},
};
use crate::failure::{Failure, KILLED};

/// A second signal within this time is the first once more: `timeout` sends its own to a process and to its group.
const SAME_WITHIN: Duration = Duration::from_millis(100);

/// How many signals came, and the news of them.
#[derive(Debug)]
pub struct Signals {
    count: Arc<AtomicUsize>,
    told: usize,
    /// Readable when a signal has come, or the keeper is killed because it does not end.
    bell: UnixStream,
    escalation: Escalation,
}

/// Passes signals on to the keeper: the first stops the nodes, the second kills them, if need be without the keeper, and
/// the third does so at once.
pub fn forward(keeper: &Keeper) -> Result<Signals, Failure> {
    let failed = |error| Failure::internal("cannot watch for Ctrl-C").because(error);
    let mut signals = iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let (bell, ringer) = UnixStream::pair().map_err(failed)?;
    bell.set_nonblocking(true).map_err(failed)?;
    let socket = keeper.second_socket().map_err(failed)?;
    let escalation =
        Escalation::new(keeper.pid(), ringer.try_clone().map_err(failed)?).map_err(failed)?;
    let escalate = escalation.clone();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let mut counted_at = None;
    let forward = move || {
        for signal in &mut signals {
            if !counts(&mut counted_at, Instant::now()) {
                continue;
            }
            let message = match counted.fetch_add(1, SeqCst) {
                0 => Message::Stop {
                    reason: signal_name(signal).unwrap_or("a signal").to_owned(),
                },
                1 => {
                    escalate.order(
                        AFTER_KILL,
                        format!("within {AFTER_KILL:?} of the order to kill its nodes"),
                    );
                    Message::Kill
                }
                _ => {
                    escalate.kill_now();
                    exit(KILLED.into())
                }
            };
            send(&socket, &message);
            let _ = std::io::Write::write(&mut &ringer, b"!");
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(forward)
        .map_err(failed)?;
    Ok(Signals {
        count,
        told: 0,
        bell,
        escalation,
    })
}

/// Whether a signal is another one than that which counted last.
fn counts(counted_at: &mut Option<Instant>, now: Instant) -> bool {
    let counts = counted_at.is_none_or(|at| now - at >= SAME_WITHIN);
    if counts {
        *counted_at = Some(now);
    }
    counts
}

impl Signals {
    /// Readable when there are news.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// What is to be told of signals that came since the last call.
    pub fn news(&mut self) -> Option<String> {
        let _ = (&self.bell).read(&mut [0; 8]);
        let count = self.count.load(SeqCst);
        if count == self.told {
            return None;
        }
        self.told = count;
        Some(match count {
            1 => "stopping the nodes; once more kills them".to_owned(),
            _ => "killing the nodes".to_owned(),
        })
    }

    /// Kills the keeper when it does not end.
    pub fn escalation(&self) -> &Escalation {
        &self.escalation
    }

    /// True when a signal came.
    pub fn have_come(&self) -> bool {
        self.count.load(SeqCst) > 0
    }

    /// True when a second signal came.
    pub fn has_killed(&self) -> bool {
        self.count.load(SeqCst) > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_comes_twice_at_once_counts_once_and_a_key_that_is_held_counts_again() {
        let begin = Instant::now();
        let mut counted_at = None;
        let counted = [0, 1, 60, 100, 160, 220]
            .map(|millis| counts(&mut counted_at, begin + Duration::from_millis(millis)));
        assert_eq!(counted, [true, false, false, true, false, true]);
    }
}
