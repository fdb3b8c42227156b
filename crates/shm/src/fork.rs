//! Handles that a forked child inherits are inert.
//!
//! A child that was forked without exec (Python's `multiprocessing`) has copies of all handles. If
//! it dropped them, it would release leases that the parent still holds. If it used them, two
//! processes would share one end of a ring. So a fork handler counts forks: a handle of an earlier
//! generation refuses to be used, and does nothing when it is dropped.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The handle belongs to a process that this one was forked from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process was forked from a Nervure node, and a node cannot be used by two processes: \
     use it in the parent alone, or start the worker with the 'spawn' method"
)]
pub struct NodeForked;

/// Number of forks between this process and the one that first called this function.
#[inline]
pub fn generation() -> u32 {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        extern "C" fn in_child() {
            GENERATION.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the handler only increments an atomic, which is async-signal-safe.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    GENERATION.load(Ordering::Relaxed)
}

/// Checks that a handle of this generation may be used in this process.
///
/// # Errors
/// [`NodeForked`] if it was inherited by a fork.
#[inline]
pub fn check(of_handle: u32) -> Result<(), NodeForked> {
    if of_handle == generation() {
        Ok(())
    } else {
        Err(NodeForked)
    }
}
