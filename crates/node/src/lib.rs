//! Write Nervure nodes in Rust.
//!
//! A node is a program that `nervure run` starts. It connects, takes events from its inputs, and sends to its outputs;
//! which inputs and outputs it has is said by the dataflow file.
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
//! Received samples are views of their producer's memory: nothing is copied, and a sample's block is given back when
//! its last clone is dropped. Keep few of them, or copy what you keep.

mod calls;
mod connect;
mod control;
mod doze;
mod error;
mod event;
mod events;
mod node;
mod observer;
mod publisher;
pub mod running;
mod sample;
mod shortfall;
#[cfg(feature = "async")]
mod stream;
mod timer;
mod watch;

pub use self::{
    calls::{CallError, ReplyError, Request, Ticket},
    error::{ConnectError, UnknownName},
    event::Event,
    events::{Events, Next, Rest, Waiter},
    node::{Handle, Node},
    observer::{Gaps, ObserveError, Observer},
    publisher::{Envelope, Loan, LoanSlice, Publisher, Unsent, Written},
    sample::{Sample, SampleError},
};
#[cfg(feature = "async")]
pub use stream::EventStream;

/// The value of a parameter: a truth value, a number, text, or a list of those.
pub use serde_json::Value as ParamValue;

pub use nervure_message as message;
pub use nervure_message::{Encode, Metadata, SerdeSample, Tensor, Value};
pub use nervure_protocol::{CONTROL_FD_VARIABLE, STACKS_SIGNAL};
pub use nervure_shm::{Mapped, NodeForked, Receipt, SendError, Wait, Waited, monotonic_nanos};
