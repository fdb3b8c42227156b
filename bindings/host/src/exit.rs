//! A node that calls `exit` ends, and not its process.
//!
//! The program defines `exit`, which the loader finds before that of the C library. On the thread of
//! a node it reports the end of the node and never returns. No stack is unwound, since the frames of a
//! function that does not return need not allow it: memory of the node stays until the process ends. On
//! any other thread it is the C library's. `_exit`, `quick_exit` and `abort` end the process.
#![expect(
    unsafe_code,
    reason = "it takes the place of a function of the C library"
)]

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::Arc;

use nervure_protocol::host_to_keeper::{Ended, Message};

use crate::report::Keeper;
use crate::stdio::flush;

/// The node of a thread, and where its end is reported.
type Current = (String, Arc<Keeper>);

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// Makes this thread a node's.
pub fn set_node(node: Option<Current>) {
    CURRENT.set(node);
}

#[unsafe(no_mangle)]
extern "C" fn exit(code: c_int) -> ! {
    // A forked child has the thread of the node, and is no node.
    let is_own_process = nervure_shm::fork_generation() == 0;
    let current = CURRENT.try_with(RefCell::take).ok().flatten();
    if let Some((node, keeper)) = current.filter(|_| is_own_process) {
        flush();
        let reason = "it called `exit`".to_owned();
        keeper.report(&Message::Ended(Ended { node, code, reason }));
        loop {
            std::thread::park();
        }
    }
    exit_process(code)
}

fn exit_process(code: c_int) -> ! {
    type Exit = unsafe extern "C" fn(c_int) -> !;
    // SAFETY: the name is a C string, and the next `exit` is the C library's.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"exit".as_ptr()) };
    if next.is_null() {
        // SAFETY: it ends the process.
        unsafe { libc::_exit(code) }
    }
    // SAFETY: `exit` of the C library has this type.
    let next: Exit = unsafe { std::mem::transmute(next) };
    // SAFETY: as any call of `exit`.
    unsafe { next(code) }
}
