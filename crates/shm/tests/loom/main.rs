//! Runs the lock-free structures under every interleaving that the memory model of C11 allows:
//! `scripts/loom.sh`. Empty without `--cfg loom`.

#![cfg(loom)]

mod doorbell;
mod double_buffer;
#[path = "../../src/lock_free/mod.rs"]
pub mod lock_free;
mod ring;
mod room_futex;

/// Runs a model under every interleaving with at most `preemptions` preemptions.
pub(crate) fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}
