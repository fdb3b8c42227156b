//! What a data plane is, as a trait, and the one conformance suite that every plane passes.
//!
//! A plane binds itself to [`Plane`] in its own tests and calls [`conformance!`](crate::conformance), which makes one
//! test of each case of [`suite`]. [`model::Model`] is the plane that is obviously correct (one mutex, one queue an edge):
//! it passes the same suite, and planes are compared with it under random operations.

pub mod content;
pub mod model;
mod plane;
pub mod random;
pub mod shared_memory;
pub mod stress;
pub mod suite;

pub use self::plane::{
    Arrival, Edge, Facts, Inbox, Limits, Loan, Output, Plane, Receipt, Received, Refusal, Sample,
    SampleOf, Sent, Wait,
};
