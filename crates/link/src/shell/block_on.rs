//! Runs a future in a thread of the application.

use std::{
    cell::LazyCell,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
    time::{Duration, Instant},
};

/// Runs a future in this thread until it is ready, the deadline is over, or `goes_on` returns false,
/// which is asked first and whenever the thread is unparked.
pub(super) fn block_on<T>(
    future: impl Future<Output = T>,
    deadline: Option<Instant>,
    goes_on: impl Fn() -> bool,
) -> Option<T> {
    thread_local! {
        static WAKER: LazyCell<Waker> =
            LazyCell::new(|| Waker::from(Arc::new(Unpark(std::thread::current()))));
    }
    let waker = WAKER.with(|waker| Waker::clone(waker));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    while goes_on() {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => return None,
            Some(left) => std::thread::park_timeout(left),
            None => std::thread::park(),
        }
    }
    None
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
