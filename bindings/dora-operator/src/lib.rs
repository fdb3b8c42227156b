//! dora's API for Rust operators, over Nervure: operators that were written for dora compile and run
//! unchanged.
//!
//! An operator is a shared library (`crate-type = ["cdylib"]`), which a node with `operators` loads.
//!
//! ```
//! use dora_operator_api::{
//!     DoraOperator, DoraOutputSender, DoraStatus, Event, IntoArrow, register_operator,
//! };
//!
//! register_operator!(Sum);
//!
//! #[derive(Default)]
//! struct Sum(u64);
//!
//! impl DoraOperator for Sum {
//!     fn on_event(&mut self, event: &Event, outputs: &mut DoraOutputSender) -> Result<DoraStatus, String> {
//!         if let Event::Input { data, .. } = event {
//!             self.0 += u64::try_from(data).map_err(|error| error.to_string())?;
//!             outputs.send("sum", self.0.into_arrow())?;
//!         }
//!         Ok(DoraStatus::Continue)
//!     }
//! }
//! ```
//!
//! The names are those of dora 1.x. Where dora 0.5 had other ones (`ArrowData`, names of outputs as
//! `String`), both are here.

pub mod raw;

pub use dora_arrow_convert::arrow as arrow_v59;
pub use dora_arrow_convert::{ArrowData, DoraArray, IntoArrow, into_vec};
pub use types::DoraStatus;

use dora_operator_api_c::SendOutput;

/// Types of the interface.
pub mod types {
    pub use dora_arrow_convert::arrow;

    /// What is known about an input.
    #[derive(Debug)]
    pub struct Metadata {
        /// Always empty: traces end at operators.
        pub open_telemetry_context: String,
    }

    /// What happens after an event.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum DoraStatus {
        /// The operator goes on.
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
        /// What is wrong with the data.
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
pub struct DoraOutputSender<'a>(&'a SendOutput);

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
        raw::send(self.0, id.as_ref(), &data.into_arrow())
    }
}

/// Makes a type the operator of this library. It has to implement [`DoraOperator`].
#[macro_export]
macro_rules! register_operator {
    ($operator:ty $(,)?) => {
        // The functions of dora's C interface, which the host of operators calls.
        const _: () = {
            #[unsafe(no_mangle)]
            extern "C" fn dora_init_operator() -> $crate::raw::InitResult {
                $crate::raw::init::<$operator>()
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn dora_drop_operator(
                operator: *mut ::std::ffi::c_void,
            ) -> $crate::raw::DoraResult {
                // SAFETY: the host passes what `dora_init_operator` returned, once, at the end.
                unsafe { $crate::raw::end::<$operator>(operator) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn dora_on_event(
                event: *mut $crate::raw::RawEvent,
                send_output: *const $crate::raw::SendOutput,
                operator: *mut ::std::ffi::c_void,
            ) -> $crate::raw::OnEventResult {
                // SAFETY: the host passes what `dora_init_operator` returned, and an event and a
                // function that live until the call returns, all from one thread.
                unsafe { $crate::raw::on_event::<$operator>(event, send_output, operator) }
            }
        };
    };
}
