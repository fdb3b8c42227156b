//! The code that all Rust endpoints of the lab share.
//!
//! An endpoint is one producer or one consumer, in a process of its own. It reads its case from the environment,
//! notifies the driver when it is ready, waits for the start, measures, and reports. Only publishing and receiving
//! depend on the peer; timestamps, pacing, counting and reading are the same code for all:
//!
//! ```no_run
//! use nervure_lab_endpoint::{Consumer, Endpoint, Publish, Role, produce};
//! # struct Peer;
//! # impl Peer { fn receive(&mut self) -> Vec<u64> { vec![] } }
//! # impl Publish for Peer {
//! #     fn publish(&mut self, words: usize, fill: impl FnOnce(&mut [u64])) -> Result<(), String> { Ok(()) }
//! # }
//! # let mut peer = Peer;
//! let mut endpoint = Endpoint::from_environment()?;
//! match endpoint.case().role {
//!     Role::Producer => produce(&mut endpoint, &mut peer)?,
//!     Role::Consumer => {
//!         let mut consumer = Consumer::start(&mut endpoint)?;
//!         while !consumer.is_finished() {
//!             let message = peer.receive();
//!             let received_at_nanos = nervure_lab_endpoint::now_nanos();
//!             consumer.observe(received_at_nanos, &message);
//!         }
//!         consumer.report()?;
//!     }
//! }
//! # Ok::<(), String>(())
//! ```
//!
//! The same convention in Python: `nervure_lab.experiments.local.endpoint`.

mod case;
mod consumer;
mod driver;
pub mod peer;
mod process;
mod producer;

pub use case::{Case, Mode, Role};
pub use consumer::Consumer;
pub use driver::Endpoint;
pub use process::{Usage, now_nanos, sleep_until_nanos};
pub use producer::{Publish, produce};

/// Words of the header: sequence, time before the copy, time after the fill.
pub const HEADER_WORDS: usize = 3;
/// First word that touching a payload reads: the words before it share the header's cache line.
pub const FIRST_UNREAD_WORD: usize = 8;
/// The sequence of the message that ends a stream; its second word is the number of messages sent.
pub const END_OF_STREAM: u64 = u64::MAX;
