//! Operators and their events.

use dora_arrow_convert::{DoraArray, IntoArrow};
use dora_operator_api_c::SendOutput;

use crate::payload;
use types::DoraStatus;

/// Types of the interface.
pub mod types {
    pub use dora_arrow_convert::arrow;

    /// Metadata of an input.
    #[derive(Debug)]
    pub struct Metadata {
        /// Always empty: traces end at operators.
        pub open_telemetry_context: String,
    }

    /// What happens after an event.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum DoraStatus {
        /// The operator continues.
        Continue,
        /// The operator has ended.
        Stop,
        /// As in dora, this is an error: a dataflow cannot be stopped by an operator.
        StopAll,
    }
}

/// An event of an operator. Ignore the kinds that are of no interest.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Data arrived at an input, or a timer is due: then the data is an empty null array.
    Input {
        /// The input's name.
        id: &'a str,
        /// Metadata of the sample.
        metadata: &'a types::Metadata,
        /// The data, in place in its producer's memory where Arrow allows it.
        data: DoraArray,
    },
    /// Data could not be read.
    InputParseError {
        /// The input's name; empty if the host could not read the data, which the error then names.
        id: &'a str,
        /// The reason.
        error: String,
    },
    /// The producer of an input has ended.
    InputClosed {
        /// The input's name.
        id: &'a str,
    },
    /// The operator has to end.
    Stop,
}

/// An operator. The host makes it by its `Default` before the first event, and drops it after the last.
pub trait DoraOperator: Default {
    /// Handles an event. An error ends the operator's node, which has then failed; so does a panic.
    fn on_event(
        &mut self,
        event: &Event,
        output_sender: &mut DoraOutputSender,
    ) -> Result<DoraStatus, String>;
}

/// Sends outputs, while an event is handled.
#[derive(Debug)]
pub struct DoraOutputSender<'a>(pub(crate) &'a SendOutput);

impl DoraOutputSender<'_> {
    /// Sends a value to the output of that name. Waits while the queue of a consumer with
    /// `queue_policy: block` is full.
    ///
    /// An output that the file does not declare is reported once on standard error, and the value is
    /// dropped.
    ///
    /// # Errors
    /// If the value cannot be sent.
    pub fn send(&mut self, id: impl AsRef<str>, data: impl IntoArrow) -> Result<(), String> {
        payload::send(self.0, id.as_ref(), &data.into_arrow())
    }
}
