//! Receiving with a node.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::Duration;

use crate::event::Event;
use crate::node::Node;
use crate::pointers::{self, recycled};
use crate::sample::Sample;
use crate::status::{Failure, Status, guarded};
use crate::value::Value;

/// Waits for the next event: for `timeout` nanoseconds, without end if it is negative, not at all if it is 0. Returns
/// `NERVURE_STATUS_TIMEOUT` if there is none, and `NERVURE_STATUS_END` after `NERVURE_EVENT_KIND_STOP`. The event before is
/// freed. An event with a sample or a tick allocates no memory.
///
/// # Safety
/// The pointers are null or valid, and no other thread receives with the node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_next(node: *mut Node, timeout: i64, event: *mut Event) -> Status {
    // SAFETY: the caller's promise: nothing else uses the cell.
    guarded("nervure_next", || unsafe {
        let receiving = &mut *pointers::shared(node, "node")?.receiving.get();
        if event.is_null() {
            return Err(Failure::argument("the place for the event is NULL"));
        }
        receiving.sample = None;
        receiving.request = None;
        receiving.set = None;
        match receiving.next(timeout)? {
            Some(next) => {
                pointers::put(event, receiving.hold(next), "event")?;
                Ok(Status::Ok)
            }
            None => Ok(Status::End),
        }
    })
}

/// Returns the newest sample of an input without waiting: from its queue, or else the newest that was received before;
/// `NERVURE_STATUS_NONE` if there is none. Older samples of the queue are not delivered as events. Free it with
/// `nervure_sample_free`.
///
/// # Safety
/// As `nervure_next`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_latest(
    node: *mut Node,
    input: *const c_char,
    sample: *mut *mut Sample,
) -> Status {
    // SAFETY: the caller's promise: nothing else uses the cell.
    guarded("nervure_latest", || unsafe {
        let receiving = &mut *pointers::shared(node, "node")?.receiving.get();
        pointers::put(sample, ptr::null_mut(), "sample")?;
        let Some(latest) = receiving
            .events
            .latest(pointers::text(input, "input's name")?)?
        else {
            return Ok(Status::None);
        };
        pointers::put(sample, recycled(Sample(latest)), "sample")?;
        Ok(Status::Ok)
    })
}

/// Sends a request to a service, and waits for its answer: for `timeout` nanoseconds, without end if it is negative. Samples
/// of other inputs stay in their queues meanwhile. Free the answer with `nervure_sample_free`.
///
/// # Safety
/// As `nervure_next`, and the value is as `nervure_value` describes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_call(
    node: *mut Node,
    client: *const c_char,
    value: *const Value,
    timeout: i64,
    answer: *mut *mut Sample,
) -> Status {
    // SAFETY: the caller's promise: nothing else uses the cell.
    guarded("nervure_call", || unsafe {
        let receiving = &mut *pointers::shared(node, "node")?.receiving.get();
        pointers::put(answer, ptr::null_mut(), "answer")?;
        let client = pointers::text(client, "client's name")?;
        let timeout = u64::try_from(timeout).ok().map(Duration::from_nanos);
        let value = Value::checked(value)?;
        let answered =
            value.decode(|value| Ok(receiving.events.call(client, value, timeout)?))?;
        pointers::put(answer, recycled(Sample(answered)), "answer")?;
        Ok(Status::Ok)
    })
}

/// For event loops (epoll, poll): returns a descriptor that becomes readable at the next news, after `nervure_arm` returned
/// true. It belongs to the node. Returns -1 if `node` is NULL.
///
/// # Safety
/// As `nervure_next`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_fd(node: *mut Node) -> c_int {
    // SAFETY: the caller's promise: nothing else uses the cell.
    let receiving = unsafe { node.as_ref().map(|node| &*node.receiving.get()) };
    receiving.map_or(-1, |receiving| receiving.events.eventfd().as_raw_fd())
}

/// For event loops: prepares the descriptor of `nervure_fd`. Returns false if there is news already; then take the events
/// with `nervure_next` and a timeout of 0 before you sleep. Sleep at most until `until`, in nanoseconds of CLOCK_MONOTONIC,
/// when a timer is due or the keeper wants a sign of life; then take events, too.
///
/// # Safety
/// As `nervure_next`; `until` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_arm(node: *mut Node, until: *mut u64) -> bool {
    // SAFETY: the caller's promise: nothing else uses the cell.
    let receiving = unsafe { node.as_ref().map(|node| &*node.receiving.get()) };
    let Some(receiving) = receiving else {
        return false;
    };
    if !until.is_null() {
        // SAFETY: not null, so it may be written to.
        unsafe { until.write(receiving.events.next_deadline()) };
    }
    receiving.events.arm()
}

/// For event loops: ends what `nervure_arm` began. Call it when the sleep ends.
///
/// # Safety
/// As `nervure_next`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_disarm(node: *mut Node) {
    // SAFETY: the caller's promise: nothing else uses the cell.
    if let Some(node) = unsafe { node.as_ref() } {
        // SAFETY: as above.
        unsafe { &*node.receiving.get() }.events.disarm();
    }
}
