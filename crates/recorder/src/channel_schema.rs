//! Schemas of channels, and those of Foxglove's messages.

/// The schema of a channel.
#[derive(Clone, Debug)]
pub(crate) struct ChannelSchema {
    /// The name of its messages.
    pub name: String,
    /// The encoding of the schema.
    pub encoding: &'static str,
    /// The schema.
    pub data: Vec<u8>,
}

/// The descriptors of a message of Foxglove and of all messages in it; `None` for an unknown one.
pub(crate) fn foxglove(message: &str) -> Option<&'static [u8]> {
    macro_rules! known {
        ($($name:literal)*) => {
            match message {
                $(concat!("foxglove.", $name) => {
                    Some(include_bytes!(concat!("../schemas/", $name, ".bin")))
                })*
                _ => None,
            }
        };
    }
    known! {
        "CameraCalibration" "CompressedImage" "FrameTransform" "Grid" "ImageAnnotations" "JointStates"
        "LaserScan" "LocationFix" "Log" "Odometry" "PointCloud" "PoseInFrame" "PosesInFrame" "RawImage"
        "SceneUpdate"
    }
}
