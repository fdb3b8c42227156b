//! Threads of the daemon. A temporary lack of threads affects only the work that needs one at that time.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::thread::{Builder, JoinHandle, Thread};
use std::time::Duration;

/// The pause before a thread is asked for again. The system announces no room for one: another process of
/// its user may have had it.
const RETRY: Duration = Duration::from_millis(200);

/// Work for a thread of its own.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// Starts a thread.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    builder(name).spawn(work).map(drop)
}

/// Starts a thread as soon as the system gives one.
pub(crate) fn spawn_when_possible(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> JoinHandle<()> {
    spawn_by(|| builder(name), work)
}

fn spawn_by(
    mut builder: impl FnMut() -> Builder,
    work: impl FnOnce() + Send + 'static,
) -> JoinHandle<()> {
    // A thread that fails to start drops its closure: the work stays here.
    let place = Arc::new(Mutex::new(Some(work)));
    let mut has_failed = false;
    loop {
        let place = Arc::clone(&place);
        let run = move || {
            let work = place.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(work) = work {
                work();
            }
        };
        match builder().spawn(run) {
            Ok(thread) => return thread,
            Err(error) if !std::mem::replace(&mut has_failed, true) => {
                tracing::warn!("no thread can be started, which is tried again: {error}");
            }
            Err(_) => {}
        }
        std::thread::sleep(RETRY);
    }
}

/// Starts a thread that starts threads as soon as the system gives them.
pub(crate) fn starter() -> io::Result<Sender<Work>> {
    let (sender, works) = channel::<Work>();
    spawn("nervure-starts", move || {
        works
            .into_iter()
            .for_each(|work| drop(spawn_when_possible("nervure-run", work)))
    })?;
    Ok(sender)
}

/// Threads of one kind, of which a number may run at a time.
#[derive(Debug)]
pub(crate) struct Threads {
    name: &'static str,
    most: usize,
    /// Each thread has a clone of this handle, which it also drops if it panics or fails to start.
    running: Arc<()>,
}

impl Threads {
    pub fn new(name: &'static str, most: usize) -> Self {
        Self {
            name,
            most,
            running: Arc::default(),
        }
    }

    /// Starts a thread.
    ///
    /// # Errors
    /// If the system gives none, or too many run.
    pub fn start(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.start_by(builder(self.name), work)
    }

    fn start_by(&self, builder: Builder, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        if Arc::strong_count(&self.running) > self.most {
            return Err(io::Error::other(format!("{} are served", self.most)));
        }
        let running = Arc::clone(&self.running);
        let work = move || {
            let _running = running;
            work();
        };
        builder.spawn(work).map(drop)
    }
}

/// Does the work for all items at the same time, as far as the system gives threads.
pub(crate) fn for_all<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let work = &work;
    std::thread::scope(|scope| {
        let started: Vec<_> = items
            .iter()
            .map(|item| (item, Builder::new().spawn_scoped(scope, move || work(item))))
            .collect();
        let done = started
            .into_iter()
            .filter_map(|(item, thread)| match thread {
                // The panic hook has reported a panic.
                Ok(thread) => thread.join().ok(),
                Err(_) => Some(work(item)),
            });
        done.collect()
    })
}

/// A waker that unparks this thread.
pub(crate) fn unpark_this_thread() -> Waker {
    Waker::from(Arc::new(Unpark(std::thread::current())))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn builder(name: &str) -> Builder {
    Builder::new().name(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread with a stack that no system has room for.
    fn impossible() -> Builder {
        Builder::new().stack_size(1 << 60)
    }

    #[test]
    fn a_thread_that_is_not_started_gives_its_slot_back() {
        let threads = Threads::new("test", 2);
        for _ in 0..10 {
            assert!(threads.start_by(impossible(), || {}).is_err());
        }
        let (sender, ended) = channel::<()>();
        let (end, ends) = channel::<()>();
        let ends = Arc::new(Mutex::new(ends));
        let start = || {
            let (sender, ends) = (sender.clone(), Arc::clone(&ends));
            threads.start(move || {
                let _sender = sender;
                let _ = ends.lock().unwrap_or_else(PoisonError::into_inner).recv();
                panic!("the slot of a thread that panics is free, too");
            })
        };
        start().unwrap();
        start().unwrap();
        let refused = start().unwrap_err();
        assert_eq!(refused.to_string(), "2 are served");
        drop((end, sender));
        assert!(ended.recv().is_err(), "both have ended");
        // Threads drop their handles a moment after the end of their work.
        while Arc::strong_count(&threads.running) > 1 {
            std::thread::yield_now();
        }
        threads.start(|| {}).unwrap();
    }

    #[test]
    fn work_waits_for_a_thread_and_is_done_once() {
        let (sender, done) = channel();
        let mut attempts = 0;
        let builder = || {
            attempts += 1;
            match attempts {
                ..3 => impossible(),
                _ => Builder::new(),
            }
        };
        let thread = spawn_by(builder, move || sender.send(7).unwrap());
        thread.join().unwrap();
        assert_eq!((done.iter().collect::<Vec<i32>>(), attempts), (vec![7], 3));
    }

    #[test]
    fn the_work_for_all_is_in_their_order() {
        assert_eq!(for_all(&[1, 2, 3], |it| it * 2), [2, 4, 6]);
    }
}
