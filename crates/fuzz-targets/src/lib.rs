//! Hostile input for all that takes input from outside.
//!
//! Each module is one target: a function of some bytes that panics when an invariant does not hold. libFuzzer runs them for
//! as long as one likes (`fuzz/`, `make fuzz`); `cargo test` runs them for some seconds, over the seeds in `fuzz/seeds` and
//! what they become when they are changed.

use arbitrary::{Arbitrary, Unstructured};

pub mod bag;
pub mod control;
pub mod dataflow;
pub mod edge;
pub mod link;
mod peer;
pub mod recording;
pub mod rosbag;
pub mod sample;
pub mod sealed;

/// The bytes as a story of this type; `None` when they are too few.
fn read<'a, T: Arbitrary<'a>>(bytes: &'a [u8]) -> Option<T> {
    T::arbitrary_take_rest(Unstructured::new(bytes)).ok()
}
