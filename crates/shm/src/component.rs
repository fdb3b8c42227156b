//! The interface between a component, a shared library with a node, and the host that runs it.
//!
//! The library exports one function, [`ENTRY`]. The host calls it on a thread of the node's own, once
//! for each start of the node. Each library has its own copy of Nervure's, so nothing else has to fit.

use std::any::Any;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use nervure_protocol::graph::Scheduling;
use nervure_protocol::host_to_keeper::PANIC_CODE;

use crate::{Processors, explain_scheduling, schedule_this_thread};

/// The name of the function, with the version of this interface.
pub const ENTRY: &CStr = c"nervure_component_v1";

/// Bytes for the reason of an end.
pub const REASON_BYTES: usize = 4096;

/// The function: runs the node with that control socket, which is now the function's, until it ends.
/// Returns the exit code. The reason of a failure goes into the second argument, with a NUL at the
/// end; the third is its size.
pub type Entry =
    unsafe extern "C" fn(control: c_int, reason: *mut c_char, capacity: usize) -> c_int;

/// Runs this thread, and those that it starts, on these processors (all if there are none), and
/// schedules them.
///
/// # Errors
/// A text for people with the refused setting.
pub fn prepare_thread(cpu_affinity: &[u32], scheduling: Scheduling) -> Result<(), String> {
    if let Some(processors) = Processors::new(cpu_affinity)? {
        processors
            .bind_this_thread()
            .map_err(|error| format!("`cpu_affinity: {cpu_affinity:?}` was refused: {error}"))?;
    }
    schedule_this_thread(scheduling).map_err(|error| explain_scheduling(scheduling, &error))
}

/// The body of [`Entry`] for a component in Rust. A panic is the end of the node.
///
/// # Safety
/// `control` is open, and the caller's no longer. `reason` is valid for `capacity` bytes.
pub unsafe fn enter(
    control: c_int,
    reason: *mut c_char,
    capacity: usize,
    run: impl FnOnce(OwnedFd) -> Result<(), String>,
) -> c_int {
    // SAFETY: the caller's promise.
    let control = unsafe { OwnedFd::from_raw_fd(control) };
    let (code, text) = match catch_unwind(AssertUnwindSafe(|| run(control))) {
        Ok(Ok(())) => return 0,
        Ok(Err(text)) => (1, text),
        Err(payload) => (
            PANIC_CODE,
            format!("it panicked: {}", panic_text(&*payload)),
        ),
    };
    let bytes = &text.as_bytes()[..text.len().min(capacity.saturating_sub(1))];
    if capacity > 0 {
        // SAFETY: `bytes` and the NUL fit into the capacity, which is the caller's promise.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), reason.cast(), bytes.len());
            reason.add(bytes.len()).write(0);
        }
    }
    code
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("the panic has no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(capacity: usize, run: impl FnOnce(OwnedFd) -> Result<(), String>) -> (c_int, String) {
        let fd = crate::eventfd().unwrap();
        let mut reason = [0x55u8; 16];
        // SAFETY: the descriptor is given away, and the capacity is at most that of `reason`.
        let code = unsafe {
            enter(
                std::os::fd::IntoRawFd::into_raw_fd(fd),
                reason.as_mut_ptr().cast(),
                capacity,
                run,
            )
        };
        assert!(reason[capacity..].iter().all(|&byte| byte == 0x55));
        let text = CStr::from_bytes_until_nul(&reason).map(|text| text.to_string_lossy());
        (code, text.map(String::from).unwrap_or_default())
    }

    #[test]
    fn the_reason_of_a_failure_is_cut_to_the_room_for_it() {
        assert_eq!(call(16, |_| Ok(())).0, 0);
        assert_eq!(
            call(8, |_| Err("0123456789".to_owned())),
            (1, "0123456".to_owned())
        );
        assert_eq!(call(0, |_| Err("0123456789".to_owned())).0, 1);
        let panicked = call(15, |_| panic!("{}", 7));
        assert_eq!(panicked, (PANIC_CODE, "it panicked: 7".to_owned()));
    }
}
