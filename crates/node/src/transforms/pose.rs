//! The result of a lookup, and the time that it is for.

use ::transforms::Transform as Found;
use ::transforms::geometry::{Quaternion, Vector3};

/// The pose of the source frame in the target frame. It takes the coordinates of a point in the source
/// frame to those in the target frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transform {
    /// In metres.
    pub translation: [f64; 3],
    /// A unit quaternion: x, y, z, w.
    pub rotation: [f64; 4],
    /// The time that it holds at, in nanoseconds since the Unix epoch; `None` for any time: all
    /// transforms between the frames are static.
    pub stamp: Option<i64>,
}

/// The time of a lookup.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LookupTime {
    /// The newest time that every transform between the frames covers.
    Latest,
    /// Nanoseconds since the Unix epoch, such as [`Sample::stamp`](crate::Sample::stamp).
    At(i64),
    /// Seconds since the Unix epoch, which a `f64` has to 0.5 us: within that, a sample beside the time
    /// counts as at the time.
    Seconds(f64),
}

impl From<i64> for LookupTime {
    fn from(nanos: i64) -> Self {
        Self::At(nanos)
    }
}

impl From<Option<i64>> for LookupTime {
    /// `None` is [`LookupTime::Latest`].
    fn from(nanos: Option<i64>) -> Self {
        nanos.map_or(Self::Latest, Self::At)
    }
}

impl Transform {
    pub(super) fn new<T: ::transforms::time::TimePoint>(found: &Found<T>, stamp: i64) -> Self {
        let Vector3 { x, y, z, .. } = found.translation();
        let rotation = found.rotation();
        Self {
            translation: [x, y, z],
            rotation: [rotation.x, rotation.y, rotation.z, rotation.w],
            stamp: Some(stamp),
        }
    }

    /// The coordinates in the target frame of a point in the source frame.
    pub fn apply(&self, point: [f64; 3]) -> [f64; 3] {
        let [x, y, z] = point;
        let rotated = quaternion(self.rotation).rotate_vector(Vector3 { x, y, z });
        let [dx, dy, dz] = self.translation;
        [rotated.x + dx, rotated.y + dy, rotated.z + dz]
    }

    /// The homogeneous matrix, by rows.
    pub fn matrix(&self) -> [[f64; 4]; 4] {
        let origin = Self {
            translation: [0.0; 3],
            ..*self
        };
        let mut matrix = [[0.0, 0.0, 0.0, 1.0]; 4];
        for (column, axis) in [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
            .into_iter()
            .enumerate()
        {
            for (row, value) in origin.apply(axis).into_iter().enumerate() {
                matrix[row][column] = value;
            }
        }
        for (row, value) in self.translation.into_iter().enumerate() {
            matrix[row][3] = value;
        }
        matrix
    }
}

/// A quaternion of the library from x, y, z, w.
pub(super) fn quaternion([x, y, z, w]: [f64; 4]) -> Quaternion {
    Quaternion::from_wxyz(w, x, y, z)
}
