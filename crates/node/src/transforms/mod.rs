//! Transforms between coordinate frames: the tree of frames, and lookups in it by the rules of ROS 2's
//! tf2.
//!
//! A transform is the pose of a child frame in its parent. Between two samples of a frame the
//! translation is interpolated linearly and the rotation along the shortest arc; beyond its samples
//! nothing is extrapolated. A static transform holds at any time.

mod error;
mod message;
mod pose;
mod tree;

pub use error::{Edge, LookupError, LookupFailure, Refused};
pub use pose::{LookupTime, Transform};
pub use tree::{FrameState, TransformTree};

#[cfg(test)]
mod tests;
