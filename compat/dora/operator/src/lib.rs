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

mod operator;
mod payload;
pub mod raw;

pub use dora_arrow_convert::arrow as arrow_v59;
pub use dora_arrow_convert::{ArrowData, DoraArray, IntoArrow, into_vec};
pub use operator::{DoraOperator, DoraOutputSender, Event, types, types::DoraStatus};

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
