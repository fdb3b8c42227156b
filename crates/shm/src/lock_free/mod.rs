//! The lock-free structures, and nothing that needs the operating system: loom compiles this module
//! alone (`tests/loom`) and runs it under every interleaving.
//!
//! The structures own no memory. Each is a view of atomics that lie in a shared page.

pub(crate) mod doorbell;
pub(crate) mod double_buffer;
pub(crate) mod ring;
pub(crate) mod room_futex;
pub(crate) mod sync;

/// Why a wait ended. Anything but the deadline is a reason to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Woken, or the word had changed before the wait began.
    LookAgain,
    /// A signal handler ran (EINTR).
    Interrupted,
    /// The deadline passed.
    TimedOut,
}
