//! The fuzz targets: one for each parser of input from outside.
//!
//! Each module is one target, a function of bytes that panics if an invariant does not hold.
//! libFuzzer runs the targets for any length of time (`fuzz/`, `make fuzz`). `cargo test` runs each
//! for a few seconds, with the seeds in `fuzz/seeds` and mutations of them.

use arbitrary::{Arbitrary, Unstructured};

pub mod bag;
pub mod control;
pub mod crossing;
pub mod dataflow;
pub mod definition;
pub mod edge;
pub mod encrypted;
pub mod fleet;
pub mod link;
mod peer;
pub mod recording;
pub mod rosbag;
pub mod sample;

/// Builds a value from the bytes; `None` if there are too few.
fn read<'a, T: Arbitrary<'a>>(bytes: &'a [u8]) -> Option<T> {
    T::arbitrary_take_rest(Unstructured::new(bytes)).ok()
}
