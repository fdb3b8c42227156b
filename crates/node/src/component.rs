//! Components: nodes in shared libraries, which share a process with others.

use std::fmt::Display;
use std::os::fd::OwnedFd;

#[doc(hidden)]
pub use nervure_shm::component::enter;

use crate::node::Node;

/// Runs a node over its control socket.
#[doc(hidden)]
pub fn run<E: Display>(
    control: OwnedFd,
    run: impl FnOnce(Node) -> Result<(), E>,
) -> Result<(), String> {
    let node = Node::connect_over(control, "rust").map_err(|error| error.to_string())?;
    run(node).map_err(|error| error.to_string())
}

/// Makes a shared library (`crate-type = ["cdylib"]`) a component: a node that shares a process with
/// the nodes that have the same `process` in the dataflow file, or runs alone.
///
/// The argument is a function that takes the [`Node`] and returns a `Result<(), E>`, where `E` has
/// `Display`. It runs on a thread of the node's own. When it returns, the node ends; an error is a
/// failure, and so is a panic.
///
/// ```
/// use nervure_node::{ConnectError, Event, Node, SendError};
///
/// fn double(mut node: Node) -> Result<(), SendError> {
///     while let Some(event) = node.next() {
///         if let Event::Input { sample, .. } = event {
///             node.send("twice", &(sample.bytes().len() as u64 * 2))?;
///         }
///     }
///     Ok(())
/// }
///
/// nervure_node::component!(double);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! component {
    ($run:expr) => {
        #[cfg(panic = "abort")]
        compile_error!(
            "a component needs `panic = \"unwind\"`: a panic ends its node, and must not end the others of its process"
        );

        /// Runs the node. A host calls it.
        ///
        /// # Safety
        /// As the interface between components and hosts demands.
        #[allow(unsafe_code, reason = "the interface between components and hosts is C")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn nervure_component_v1(
            control: ::std::ffi::c_int,
            reason: *mut ::std::ffi::c_char,
            capacity: usize,
        ) -> ::std::ffi::c_int {
            // SAFETY: the host's promise.
            unsafe {
                $crate::component::enter(control, reason, capacity, |control| {
                    $crate::component::run(control, $run)
                })
            }
        }
    };
}
