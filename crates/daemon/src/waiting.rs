//! Waits of a stand-in for events of its node, which other threads end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::time::{Duration, Instant};

use nervure_node::binding::{self, Waiter};
use nervure_node::{Events, Next, NodeForked, monotonic_nanos};

/// Ends waits for events of a node.
#[derive(Debug)]
pub(crate) struct EventsWaker {
    waiter: Waiter,
    /// Whether it was called since the last [`next_event`]. The inbox notes a call too, but
    /// [`Events::poll`] takes that note.
    is_called: AtomicBool,
}

impl EventsWaker {
    pub fn new(events: &Events) -> Arc<Self> {
        Arc::new(Self {
            waiter: binding::waiter(events),
            is_called: AtomicBool::new(false),
        })
    }
}

impl Wake for EventsWaker {
    fn wake(self: Arc<Self>) {
        self.is_called.store(true, Ordering::SeqCst);
        self.waiter.wake();
    }
}

/// The events of a node.
trait Source {
    fn poll(&mut self) -> Result<Next, NodeForked>;

    /// Waits for news, up to a time.
    fn wait(&mut self, until: Option<Instant>);
}

impl Source for Events {
    fn poll(&mut self) -> Result<Next, NodeForked> {
        Events::poll(self)
    }

    fn wait(&mut self, until: Option<Instant>) {
        wait(self, until);
    }
}

/// Waits for the next event of a node, up to a time. Returns [`Next::Nothing`] then, and if the waker was
/// called since the last return; [`Next::End`] after the last event, and when `is_over`.
pub(crate) fn next_event(
    events: &mut Events,
    waker: &EventsWaker,
    until: Option<Instant>,
    is_over: impl Fn() -> bool,
) -> Next {
    next_of(events, &waker.is_called, until, is_over)
}

fn next_of(
    source: &mut impl Source,
    is_called: &AtomicBool,
    until: Option<Instant>,
    is_over: impl Fn() -> bool,
) -> Next {
    let mut has_waited = false;
    while !is_over() {
        match source.poll() {
            Ok(Next::Nothing) => {}
            Ok(next) => return next,
            Err(_) => break,
        }
        if is_called.swap(false, Ordering::SeqCst) || has_waited {
            return Next::Nothing;
        }
        source.wait(until);
        has_waited = true;
    }
    Next::End
}

/// Waits for news of a node, up to a time.
pub(crate) fn wait(events: &Events, until: Option<Instant>) {
    let nanos = |left: Duration| u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    events.wait(left.map(|left| monotonic_nanos().saturating_add(nanos(left))));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An inbox without news but a note of the waker, which the poll takes.
    struct Inbox {
        is_noted: bool,
        waits: u32,
    }

    impl Source for Inbox {
        fn poll(&mut self) -> Result<Next, NodeForked> {
            self.is_noted = false;
            Ok(Next::Nothing)
        }

        fn wait(&mut self, _: Option<Instant>) {
            self.waits += 1;
        }
    }

    #[test]
    fn a_call_of_the_waker_before_a_poll_ends_the_next_wait() {
        let mut inbox = Inbox {
            is_noted: true,
            waits: 0,
        };
        let is_called = AtomicBool::new(true);
        let mut next = || {
            matches!(
                next_of(&mut inbox, &is_called, None, || false),
                Next::Nothing
            )
        };
        assert!(next());
        assert!(next());
        assert_eq!(
            (inbox.waits, inbox.is_noted),
            (1, false),
            "the second one waits"
        );
        let over = next_of(&mut inbox, &is_called, None, || true);
        assert!(matches!(over, Next::End));
    }
}
