//! The data plane on one host. All of the data plane's `unsafe` lives here.

#![cfg_attr(
    not(loom),
    expect(unsafe_code, reason = "shared memory is what this crate is for")
)]

mod doorbell;
mod double_buffer;
mod ring;
mod room_futex;
mod sync;

#[cfg(not(loom))]
mod counters;
#[cfg(not(loom))]
mod edge;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod input;
#[cfg(all(feature = "kill-points", debug_assertions, not(loom)))]
mod kill_points;
#[cfg(not(loom))]
mod listener;
#[cfg(not(loom))]
mod loan;
#[cfg(not(loom))]
mod output;
#[cfg(not(loom))]
mod outstanding_leases;
#[cfg(not(loom))]
mod pages;
#[cfg(not(loom))]
mod pair;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod send;
#[cfg(not(loom))]
mod seqpacket;
#[cfg(not(loom))]
mod shortage;
#[cfg(not(loom))]
mod slot;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
mod wake;

#[cfg(not(loom))]
pub use self::{
    counters::{CountersPage, Histogram, InputCounters, OutputCounters, Unreadable},
    edge::OutputEdge,
    fork::{NodeForked, check as check_fork, generation as fork_generation},
    input::{Arrival, Inbox, InboxHandle, InputEdge, ReceivedSample},
    listener::{Listener, Peer},
    loan::{Mapped, PayloadLoan},
    output::{Output, Producer},
    pages::{ControlPage, EdgeRegion, MAX_BLOCKS, MAX_QUEUE_DEPTH, RunState},
    pair::{ConsumerPair, MAX_ANNOUNCEMENT_BYTES, MAX_ANNOUNCEMENTS, PairStatus, ProducerPair},
    pool::Budget,
    ring::Misbehaviour,
    send::{Receipt, SendError, Wait},
    seqpacket::{Received, Seqpacket},
    shortage::Shortage,
    slot::{INLINE_BYTES, MAX_HEAD_BYTES},
    sync::Waited,
    sys::{
        adopt_inherited_fd, boot_id, eventfd, monotonic_nanos, page_bytes, read_only,
        spawn_without_signals, utc_nanos,
    },
    wake::{MAX_INPUTS, MAX_SLEEP_NANOS, Overwritten, OwnWakePage, WakePage},
};
