//! Receiving: events, timers, deadlines, requests and answers.

mod adaptive_poll;
mod calls;
mod deadlines;
mod event;
mod events;
mod request;
mod schedule;
mod sync;
mod timer;
mod wait;

pub(crate) use self::{calls::ENDED, request::send_unreached};
pub use self::{
    calls::{CallError, Ticket},
    event::Event,
    events::{ALL_INPUTS_CLOSED, Events, Next, PRODUCER_ENDED},
    request::{ReplyError, Request},
    sync::SyncedSamples,
    wait::{WaitPlan, Waiter},
};
