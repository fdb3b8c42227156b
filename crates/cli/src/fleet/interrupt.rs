//! Commands that are ended by a signal while machines carry their orders out.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::Builder,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag::register_conditional_shutdown,
    iterator::Signals,
};

use crate::failure::Failure;

const SIGNALS: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// Does some work. A signal ends the command after `give_up` has withdrawn its orders; a second one ends it
/// at once.
pub fn or_give_up<T>(
    work: impl FnOnce() -> Result<T, Failure>,
    give_up: impl FnOnce() + Send,
) -> Result<T, Failure> {
    let failed =
        |error: std::io::Error| Failure::internal("cannot watch for signals").because(error);
    let ends_at_once = Arc::new(AtomicBool::new(false));
    for signal in SIGNALS {
        register_conditional_shutdown(signal, 128 + signal, Arc::clone(&ends_at_once))
            .map_err(failed)?;
    }
    let mut signals = Signals::new(SIGNALS).map_err(failed)?;
    let handle = signals.handle();
    std::thread::scope(|scope| {
        let at_once = Arc::clone(&ends_at_once);
        let watch = move || {
            if let Some(signal) = signals.forever().next() {
                at_once.store(true, Ordering::SeqCst);
                give_up();
                std::process::exit(128 + signal);
            }
        };
        Builder::new()
            .spawn_scoped(scope, watch)
            .map_err(nervure_inspect::Error::Thread)?;
        let result = work();
        handle.close();
        ends_at_once.store(true, Ordering::SeqCst);
        result
    })
}
