//! The contract of a data plane as a trait, and the one conformance suite for all planes.
//!
//! A plane implements [`Plane`] in its tests and calls [`conformance!`](crate::conformance), which
//! makes one test of each case in [`suite`]. [`model::Model`] is a plane that is easy to verify:
//! one mutex, one queue per edge. It passes the same suite, and other planes are compared with it
//! under random operations.

pub mod content;
pub mod model;
mod plane;
pub mod random;
pub mod shared_memory;
pub mod stress;
pub mod suite;

pub use self::plane::{
    Arrival, Edge, Facts, Limits, Plane, PlaneInbox, PlaneLoan, PlaneOutput, PlaneSample, Receipt,
    Received, Refusal, SampleOf, Sent, Wait,
};
