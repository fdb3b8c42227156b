//! dora's API for Rust nodes, over Nervure: programs that were written for dora compile and run unchanged.
//!
//! ```no_run
//! use dora_node_api::{DoraNode, Event, IntoArrow, dora_core::config::DataId};
//!
//! let (mut node, mut events) = DoraNode::init_from_env()?;
//! let output = DataId::from("sum".to_owned());
//! let mut sum = 0_u64;
//! while let Some(event) = events.recv() {
//!     if let Event::Input { metadata, data, .. } = event {
//!         sum += u64::try_from(&data)?;
//!         node.send_output(output.clone(), metadata.parameters, sum.into_arrow())?;
//!     }
//! }
//! # Ok::<(), eyre::Report>(())
//! ```
//!
//! The names are those of dora 1.x. Where dora 0.5 had other ones (`ArrowData`, `arrow`), both are here.
//! A program takes this crate in the place of dora's by `[patch.crates-io]`, or by the path of its
//! dependency; the guide *Coming from dora* has the lines.
//!
//! # Differences
//! - Samples that wait in a queue when their producer ends come before [`Event::InputClosed`], in dora after it.
//! - [`EventStream`] is one queue for all ways to receive. Its order is Nervure's: timers first, then
//!   the inputs in turn. Samples of one input keep their order.
//! - There is neither `init_testing` nor `init_interactive`, and no access to encoded samples
//!   (`allocate_data_sample`, `send_output_sample`).

mod bridge;
mod error;
pub mod event_stream;
mod id;
pub mod metadata;
mod node;
mod segment;
#[cfg(feature = "tracing")]
mod trace;

pub use arrow;
/// Arrow 59, the major version of dora 1.x.
pub use arrow as arrow_v59;
pub use futures;
pub use serde_json;
pub use uhlc;
pub use uuid;

pub use dora_arrow_convert::{ArrowData, DoraArray, IntoArrow, into_vec};
pub use error::{NodeError, NodeResult, PatternError};
/// An older name of [`Event`].
pub use event_stream::Event as DoraEvent;
pub use event_stream::{
    Event, EventStream, InputState, InputTracker, StopCause, TryRecvError, merged,
};
pub use metadata::{
    FIN, FLUSH, GOAL_ID, GOAL_STATUS, GOAL_STATUS_ABORTED, GOAL_STATUS_CANCELED,
    GOAL_STATUS_SUCCEEDED, Metadata, MetadataParameters, OPEN_TELEMETRY_CONTEXT, Parameter,
    REQUEST_ID, SEGMENT_ID, SEQ, SESSION_ID, get_bool_param, get_integer_param, get_string_param,
};
pub use node::{DoraNode, DoraNodeBuilder, NodeRunConfig};
pub use segment::StreamSegment;
#[cfg(feature = "tracing")]
pub use trace::init_tracing;

/// The identifier of a dataflow.
pub type DataflowId = uuid::Uuid;

/// The parts of dora's core crate that nodes use.
pub mod dora_core {
    /// Identifiers.
    pub mod config {
        pub use crate::id::{DataId, InvalidId, NodeId, OperatorId};
    }
    pub use uhlc;
}
