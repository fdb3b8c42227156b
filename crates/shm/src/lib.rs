//! The data plane on one host: samples in sealed shared memory, and the wake-ups between processes.
//!
//! All of the data plane's `unsafe` code lives here. The lock-free structures are in one module,
//! `lock_free`, which needs no operating system; `tests/loom` checks it. Everything else maps,
//! sends and validates the memory that those structures work on.

// A build for loom compiles `lock_free` as a part of `tests/loom`, and nothing else.
#![cfg(not(loom))]
#![expect(unsafe_code, reason = "shared memory is what this crate is for")]

mod atomics;
mod away;
pub mod component;
mod counter_rows;
mod counters;
mod edge;
mod fork;
mod histogram;
mod inbox;
mod inbox_handle;
mod input_edge;
#[cfg(all(feature = "kill-points", debug_assertions))]
mod kill_points;
mod listener;
mod loan;
mod lock_free;
mod misbehaviour;
mod output;
mod output_state;
mod outstanding_leases;
mod pages;
mod pair;
mod pool;
mod producer;
mod received_sample;
mod scheduling;
mod send;
mod seqpacket;
mod shortage;
mod slot;
mod sys;
mod wake;

pub use self::{
    counter_rows::{CountersError, InputCounters, OutputCounters},
    counters::{CountersPage, MAX_COUNTER_ROWS},
    edge::OutputEdge,
    fork::{NodeForked, check as check_fork, generation as fork_generation},
    histogram::Histogram,
    inbox::{Arrival, Inbox},
    inbox_handle::InboxHandle,
    input_edge::InputEdge,
    listener::{Listener, Peer},
    loan::{Mapped, PayloadLoan},
    lock_free::{Waited, ring::RingError},
    misbehaviour::Misbehaviour,
    output::Output,
    pages::{ControlPage, EdgeRegion, MAX_BLOCKS, MAX_QUEUE_DEPTH, RunState},
    pair::{ConsumerPair, MAX_ANNOUNCEMENT_BYTES, MAX_ANNOUNCEMENTS, PairStatus, ProducerPair},
    pool::Budget,
    producer::Producer,
    received_sample::ReceivedSample,
    scheduling::{NotLocked, Processors, explain_scheduling, lock_memory, schedule_this_thread},
    send::{Receipt, SendError, Wait},
    seqpacket::{Received, Seqpacket},
    shortage::Shortage,
    slot::{INLINE_BYTES, MAX_HEAD_BYTES},
    sys::{
        adopt_inherited_fd, boot_id, eventfd, monotonic_nanos, page_bytes, read_only,
        spawn_without_signals, utc_nanos,
    },
    wake::{MAX_INPUTS, MAX_SLEEP_NANOS, OverwrittenWord, OwnWakePage, WakePage},
};
