//! State that the outputs of a node share.

use crate::atomics::Ordering;
use crate::counters::CountersPage;
use crate::misbehaviour::Misbehaviour;
use crate::pool::Budget;
use crate::wake::OwnWakePage;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// State that the outputs of a node share.
#[derive(Clone)]
pub struct Producer {
    /// The shared memory that they may own together.
    pub budget: Arc<Budget>,
    /// The node's own wake page, for its room futex.
    pub wake: Arc<OwnWakePage>,
    /// The node's counters page.
    pub counters: Arc<CountersPage>,
    /// The node's incarnation, for the headers of its samples.
    pub incarnation: u32,
    /// Set by [`Producer::stop`].
    pub stopping: Arc<AtomicBool>,
    /// Set between [`Producer::hold`] and [`Producer::release`].
    pub held: Arc<AtomicBool>,
    /// Set when a call failed because the dataflow stops.
    pub cut_short: Arc<AtomicBool>,
    /// Called with the id of an edge that was cut off because its consumer broke the protocol.
    pub on_misbehaviour: Arc<dyn Fn(u32, Misbehaviour) + Send + Sync>,
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer")
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

impl Producer {
    /// Lets publications wait until [`Producer::release`]. One that waits for a queue is not held.
    pub fn hold(&self) {
        self.held.store(true, Ordering::SeqCst);
    }

    /// Lets the publications that wait go on.
    pub fn release(&self) {
        self.held.store(false, Ordering::SeqCst);
        self.wake.notify_room();
    }

    /// Ends every blocked call of these outputs, now and later.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake.notify_room();
    }
}
