//! Write Nervure nodes in Rust.
//!
//! A node is a program that `nervure run` starts. It connects, takes events from its inputs, and
//! sends to its outputs. The dataflow file declares its inputs and outputs.
//!
//! ```no_run
//! use nervure_node::{Event, Node};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let mut node = Node::connect()?;
//!     while let Some(event) = node.next() {
//!         if let Event::Input { id, sample } = event {
//!             println!("{id}: {} bytes, {:?} old", sample.bytes().len(), sample.age(node.now()));
//!             node.send("answer", &sample.text()?.to_uppercase())?;
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! Received samples are views of their producer's memory. Nothing is copied, and the producer gets
//! a sample's block back when the last clone of the sample is dropped. Keep few samples; copy data
//! that you need for longer.

pub mod binding;
#[doc(hidden)]
pub mod component;
mod connect;
mod control;
mod core;
pub mod diagnostics;
mod error;
mod gaps;
mod handle;
pub mod meter;
mod node;
mod observer;
pub mod packets;
mod receiving;
pub mod remote;
pub mod running;
mod sample;
mod sending;
pub mod serving;
mod silence;
#[cfg(feature = "async")]
mod stream;
mod trace;
pub mod transforms;
/// Structs of the standard types, such as [`Imu`](types::Imu), to be sent as a [`SerdeSample`] and
/// received by [`ReceivedRecord::deserialize`](message::ReceivedRecord::deserialize).
///
/// ```no_run
/// use nervure_node::types::{Twist, Vector3};
/// use nervure_node::{Event, Node, SerdeSample};
///
/// let mut node = Node::connect()?;
/// while let Some(event) = node.next() {
///     if let Event::Input { sample, .. } = event {
///         let twist: Twist = sample.record()?.deserialize()?;
///         let half = Vector3 { x: twist.linear.x / 2.0, ..twist.linear };
///         node.send("slow", &SerdeSample::new(&Twist { linear: half, ..twist })?)?;
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "types")]
#[expect(
    missing_docs,
    reason = "the definitions have a comment where a name does not suffice"
)]
pub mod types;
#[cfg(all(test, feature = "types"))]
mod types_tests;

#[cfg(feature = "async")]
pub use self::stream::EventStream;
pub use self::{
    error::{ConnectError, UnknownName},
    handle::Handle,
    node::Node,
    observer::{ObserveError, Observer},
    receiving::{
        Actions, CallError, CancelCause, Event, Events, GoalState, Next, ReplyError, Request,
        SyncedSamples, Ticket, Transforms,
    },
    sample::{Sample, SampleError},
    sending::{Envelope, Loan, LoanSlice, Publisher},
    transforms::{LookupError, LookupTime, Transform},
};

/// The value of a parameter: a boolean, a number, text, or a list of those.
pub use serde_json::Value as ParamValue;

pub use nervure_message as message;
pub use nervure_message::{Encode, Metadata, SerdeSample, Tensor, Value};
pub use nervure_protocol::{CONTROL_FD_VARIABLE, STACKS_SIGNAL, wiring::absolute_output};
pub use nervure_shm::{NodeForked, Receipt, SendError, Wait, Waited, monotonic_nanos, utc_nanos};
