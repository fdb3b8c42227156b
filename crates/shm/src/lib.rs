//! The data plane on one host. All of the data plane's `unsafe` lives here.

#![cfg_attr(not(loom), expect(unsafe_code, reason = "shared memory is what this crate is for"))]

mod doorbell;
mod ring;
mod space;
mod sync;

#[cfg(not(loom))]
mod counters;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod pages;
#[cfg(not(loom))]
mod seqpacket;
#[cfg(not(loom))]
mod sys;

#[cfg(not(loom))]
pub use self::{
    counters::{CountersPage, Histogram, InputCounters, OutputCounters},
    fork::NodeForked,
    pages::{ControlPage, EdgeRegion, MAX_BLOCKS, MAX_INPUTS, MAX_QUEUE_DEPTH, RunState, WakePage},
    ring::Misbehaviour,
    seqpacket::{Received, Seqpacket},
    sync::Waited,
    sys::{boot_id, eventfd, monotonic_nanos, page_bytes, read_only, utc_nanos},
};
