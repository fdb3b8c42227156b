//! Receiving: events, timers, deadlines, requests and answers.

mod adaptive_poll;
mod calls;
mod deadlines;
mod event;
mod events;
mod goal_state;
mod goals;
mod known_transforms;
mod request;
mod schedule;
mod sync;
mod timer;
mod wait;

pub(crate) use self::{
    calls::ENDED,
    request::{failure_of, feedback_to_tool, send_unreached},
};
pub use self::{
    calls::{CallError, Ticket},
    event::Event,
    events::{ALL_INPUTS_CLOSED, Actions, Events, Next, PRODUCER_ENDED, Transforms},
    goal_state::{CancelCause, GoalState, WITHIN_KEY},
    request::{ReplyError, Request},
    sync::SyncedSamples,
    wait::{WaitPlan, Waiter},
};
