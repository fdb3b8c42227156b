//! Lookups of transforms between frames.

use std::ffi::c_char;
use std::time::Duration;

use nervure_node::LookupTime;

use crate::node::Node;
use crate::pointers;
use crate::status::{Status, guarded};

/// The pose of a source frame in a target frame.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Transform {
    /// Position of the source's origin in the target frame, in metres: x, y, z.
    pub translation: [f64; 3],
    /// Orientation of the source in the target frame, as a unit quaternion: x, y, z, w.
    pub rotation: [f64; 4],
    /// The time that it holds at, in nanoseconds since the Unix epoch; 0 for any time: every transform between the frames
    /// is static.
    pub stamp: i64,
}

/// Looks up the pose of the frame `source` in the frame `target`, at a time in nanoseconds since the Unix epoch, such as the
/// stamp of a sample; 0 for the newest time that all transforms between the frames cover. Waits for `timeout` nanoseconds
/// for a transform that has not come, without end if it is negative, not at all if it is 0; samples of other inputs stay in
/// their queues meanwhile. Returns `NERVURE_STATUS_TRANSFORM` if there is none, and `nervure_error` names the transform that
/// is missing or late. The node has `transforms: true` in the dataflow file.
///
/// # Safety
/// As `nervure_next`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_transform_lookup(
    node: *mut Node,
    target: *const c_char,
    source: *const c_char,
    time: i64,
    timeout: i64,
    transform: *mut Transform,
) -> Status {
    // SAFETY: the caller's promise: nothing else uses the cell.
    guarded("nervure_transform_lookup", || unsafe {
        let receiving = &mut *pointers::shared(node, "node")?.receiving.get();
        let target = pointers::text(target, "target's name")?;
        let source = pointers::text(source, "source's name")?;
        let time = match time {
            0 => LookupTime::Latest,
            nanos => LookupTime::At(nanos),
        };
        let timeout = u64::try_from(timeout).map_or(Duration::MAX, Duration::from_nanos);
        let mut transforms = receiving.events.transforms();
        let found = transforms.lookup(target, source, time, timeout)?;
        let found = Transform {
            translation: found.translation,
            rotation: found.rotation,
            stamp: found.stamp.unwrap_or(0),
        };
        pointers::put(transform, found, "transform")?;
        Ok(Status::Ok)
    })
}
