//! The standard set: types that programs, recordings and viewers share.

use std::sync::{Arc, LazyLock};

use nervure_message::TypeName;

use crate::definition::Definition;
use crate::library::Library;
use crate::sections::{Format, Sections};

/// The namespace of the standard types.
pub const STANDARD_NAMESPACE: &str = "std";
/// The version of all of them.
const VERSION: u32 = 1;

macro_rules! standard_types {
    ($($name:literal)*) => {
        /// Names, definitions and the files beside them.
        const FILES: &[(&str, &str, &str)] = &[$((
            concat!("std/", $name),
            include_str!(concat!("../std/", $name, ".msg")),
            include_str!(concat!("../std/", $name, ".toml")),
        )),*];
    };
}

standard_types! {
    "BatteryState" "BoundingBox2D" "BoundingBox3D" "CameraInfo" "CompressedImage" "Detection2D" "Detection3D"
    "Detections2D" "Detections3D" "DiagnosticStatus" "Diagnostics" "Image" "Imu" "JointState" "Joy" "KeyValue"
    "LaserScan" "Log" "MagneticField" "MapMetaData" "NavSatFix" "NavSatStatus" "ObjectHypothesis"
    "ObjectHypothesisWithPose" "OccupancyGrid" "Odometry" "Path" "Point" "Point2D" "PointCloud" "Pose" "Pose2D"
    "PoseArray" "PoseWithCovariance" "Quaternion" "Range" "RegionOfInterest" "Text" "Transform" "Twist"
    "TwistWithCovariance" "Vector3"
}

/// A type of the standard set by its name, such as `std/Imu@1`.
///
/// ```
/// let imu: nervure_message::TypeName = "std/Imu@1".parse()?;
/// let definition = nervure_types::standard_type(&imu).expect("it is in the set");
/// assert_eq!(definition.fields[2].name, "angular_velocity");
/// # Ok::<(), nervure_message::TypeNameError>(())
/// ```
pub fn standard_type(name: &TypeName) -> Option<Arc<Definition>> {
    let is_in_set = name.namespace() == STANDARD_NAMESPACE && name.version() == VERSION;
    let plain = format!("{STANDARD_NAMESPACE}/{}", name.name());
    if !is_in_set || !standard().has(&plain) {
        return None;
    }
    let definition = Library::new(&[standard()]).definition(&plain);
    Some(definition.expect("a test resolves every type"))
}

/// The names of the standard types, such as `std/Imu@1`, in alphabetical order.
pub fn standard_names() -> impl ExactSizeIterator<Item = TypeName> {
    FILES.iter().map(|(name, ..)| {
        let name = format!("{name}@{VERSION}");
        name.parse().expect("a test parses every name")
    })
}

/// The definitions of the standard types.
pub fn standard() -> &'static Sections {
    static SECTIONS: LazyLock<Sections> = LazyLock::new(|| {
        let mut sections = Sections::default();
        for (name, definition, sidecar) in FILES {
            let source = format!("{name}.msg");
            let added = sections.add_file(Format::Message, name, &source, definition.as_bytes());
            added.expect("a test reads every file");
            let added = sections.add_sidecar(name, &format!("{name}.toml"), sidecar);
            added.expect("a test reads every file");
        }
        sections
    });
    &SECTIONS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, humble};

    fn definition(name: &str) -> Arc<Definition> {
        standard_type(&name.parse().unwrap()).unwrap()
    }

    #[test]
    fn every_type_of_the_set_is_defined() {
        let mut count = 0;
        for name in standard_names() {
            let definition = standard_type(&name).unwrap();
            assert!(!definition.comment.is_empty(), "{name} has no description");
            assert_eq!(standard().errors(&definition.name).next(), None);
            count += 1;
        }
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/std")).unwrap();
        assert_eq!(
            2 * count,
            files.count(),
            "a file is not in the list of the set"
        );
        assert!(FILES.is_sorted());
        for unknown in ["std/Imu@2", "my/Imu@1", "std/Image2@1"] {
            assert_eq!(standard_type(&unknown.parse().unwrap()), None);
        }
    }

    #[test]
    fn constants_stand_for_the_values_of_enumerations() {
        let mut found = 0;
        for name in standard_names() {
            let definition = standard_type(&name).unwrap();
            for field in &definition.fields {
                let Some(prefix) = &field.enumeration else {
                    continue;
                };
                let mut constants = definition.constants.iter();
                assert!(
                    constants.any(|constant| constant.name.starts_with(prefix)),
                    "{name}"
                );
                found += 1;
            }
        }
        assert_eq!(found, 5);
    }

    #[test]
    fn types_that_ros_has_have_its_fields() {
        // Fields that are in Nervure's header, in the shape of the tensor, or one level higher.
        let elsewhere = |name: &str| {
            const IN_HEADER: [&str; 3] = ["header", "stamp", "map_load_time"];
            const IN_SHAPE: [&str; 9] = [
                "height",
                "width",
                "step",
                "is_bigendian",
                "fields",
                "point_step",
                "row_step",
                "is_dense",
                "transform",
            ];
            IN_HEADER.contains(&name) || IN_SHAPE.contains(&name)
        };
        let mut compared = 0;
        for name in standard_names() {
            let own = standard_type(&name).unwrap();
            let Some(ros) = own.facts.ros.as_deref().filter(|ros| humble().has(ros)) else {
                assert!(
                    own.facts
                        .ros
                        .as_deref()
                        .is_some_and(|ros| ros.starts_with("vision_msgs/")),
                    "{name}"
                );
                continue;
            };
            let ros = Library::new(&[humble()]).definition(ros).unwrap();
            for field in ros.fields.iter().filter(|field| !elsewhere(&field.name)) {
                let found = own.fields.iter().find(|known| known.name == field.name);
                let found = found.unwrap_or_else(|| panic!("{name} has no {}", field.name));
                let is_renamed = |kind: &str| kind.contains('/');
                let (found, expected) = (found.kind.to_string(), field.kind.to_string());
                assert!(
                    found == expected || is_renamed(&expected),
                    "{name}.{}: {found}, {expected}",
                    field.name
                );
            }
            compared += 1;
        }
        assert_eq!(compared, 32);
    }

    #[test]
    fn images_and_clouds_are_what_nodes_send() {
        let image = definition("std/Image@1");
        assert_eq!(image.facts.payload.as_deref(), Some("data"));
        assert!(image.fields[1].tensors[0].has_shape(&[540, 960, 3]));
        let cloud = definition("std/PointCloud@1");
        assert!(cloud.fields[0].tensors[0].has_shape(&[100_000, 4]));
        assert!(matches!(
            definition("std/Imu@1").fields[1].kind,
            Kind::Array(_, 9)
        ));
    }
}
