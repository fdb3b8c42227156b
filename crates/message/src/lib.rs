//! How a sample lies in memory. No I/O, and no knowledge of what carries it.
//!
//! A sample is a fixed [`Header`], a few `head` bytes that say how its payload is laid out, and the payload.

mod header;

pub use header::{Header, MemoryKind};
