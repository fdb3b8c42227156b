//! Handles Ctrl-C, SIGTERM and SIGHUP.
//!
//! A separate thread forwards them to the keeper, so that Ctrl-C works while the main thread is
//! blocked in a write to a full pipe.

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

use nervure_launch::keeper::{Keeper, send};
use nervure_protocol::cli_to_keeper::Message;
use rustix::fd::BorrowedFd;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator,
    low_level::signal_name,
};

use super::escalation::{AFTER_KILL, Escalation};
use crate::failure::{Failure, KILLED};

/// A second signal within this time is a duplicate: `timeout` signals both a process and its group.
const SAME_WITHIN: Duration = Duration::from_millis(100);

/// Counts signals, and wakes the main thread.
#[derive(Debug)]
pub struct Signals {
    count: Arc<AtomicUsize>,
    reported: usize,
    /// Readable when a signal has arrived, or when the escalation makes progress.
    bell: UnixStream,
    escalation: Escalation,
}

/// Forwards signals to the keeper: the first stops the nodes, and the second kills them. If the
/// keeper does not react, it is killed with its nodes after [`AFTER_KILL`], or at once on a third
/// signal.
pub fn forward(keeper: &Keeper) -> Result<Signals, Failure> {
    let failed = |error| Failure::internal("cannot watch for Ctrl-C").because(error);
    let mut signals = iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let (bell, waker) = UnixStream::pair().map_err(failed)?;
    bell.set_nonblocking(true).map_err(failed)?;
    let socket = keeper.second_socket().map_err(failed)?;
    let escalation =
        Escalation::new(keeper.pid(), waker.try_clone().map_err(failed)?).map_err(failed)?;
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
            let _ = std::io::Write::write(&mut &waker, b"!");
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(forward)
        .map_err(failed)?;
    Ok(Signals {
        count,
        reported: 0,
        bell,
        escalation,
    })
}

/// Whether a signal counts: false for a duplicate of the last one.
fn counts(counted_at: &mut Option<Instant>, now: Instant) -> bool {
    let counts = counted_at.is_none_or(|at| now - at >= SAME_WITHIN);
    if counts {
        *counted_at = Some(now);
    }
    counts
}

impl Signals {
    /// Readable when there is a message or progress.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The message about signals that arrived since the last call.
    pub fn take_message(&mut self) -> Option<String> {
        let _ = (&self.bell).read(&mut [0; 8]);
        let count = self.count.load(SeqCst);
        if count == self.reported {
            return None;
        }
        self.reported = count;
        Some(match count {
            1 => "stopping the nodes; a second Ctrl-C kills them".to_owned(),
            _ => "killing the nodes".to_owned(),
        })
    }

    /// The escalation, which kills an overdue keeper.
    pub fn escalation(&self) -> &Escalation {
        &self.escalation
    }

    /// True if a signal has arrived.
    pub fn any_received(&self) -> bool {
        self.count.load(SeqCst) > 0
    }

    /// True if a second signal has arrived, which kills the nodes.
    pub fn is_kill_requested(&self) -> bool {
        self.count.load(SeqCst) > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_signal_counts_once_and_a_later_one_again() {
        let begin = Instant::now();
        let mut counted_at = None;
        let counted = [0, 1, 60, 100, 160, 220]
            .map(|millis| counts(&mut counted_at, begin + Duration::from_millis(millis)));
        assert_eq!(counted, [true, false, false, true, false, true]);
    }
}
