//! The generated structs are sent and received, and their samples fit the standard types.

use nervure_types::{SampleCheck, standard_names, standard_type};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Sample;
use crate::message::{Encode, Header, Metadata, SerdeSample, Tensor};
use crate::types::*;

fn sample<V: Serialize>(value: &V, type_name: &str) -> Sample {
    let encoded = SerdeSample::new(value).unwrap();
    let definition = standard_type(&type_name.parse().unwrap()).unwrap();
    let check = SampleCheck::new(type_name, definition);
    check.check(&encoded.layout(), encoded.schema()).unwrap();
    Sample::local(&encoded, &Metadata::new(), Header::default(), None).unwrap()
}

fn round_trip<V: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    value: &V,
    type_name: &str,
) {
    let sample = sample(value, type_name);
    let received: V = sample.record().unwrap().deserialize().unwrap();
    assert_eq!(&received, value);
}

macro_rules! round_trips {
    ($($name:ident)*) => {{
        $(round_trip(&$name::default(), $name::NERVURE_TYPE);)*
        [$($name::NERVURE_TYPE),*]
    }};
}

#[test]
fn every_standard_type_round_trips() {
    let mut tried = round_trips![
        BatteryState BoundingBox2D BoundingBox3D CameraInfo Detection2D Detection3D Detections2D Detections3D
        DiagnosticStatus Diagnostics Imu JointState Joy KeyValue LaserScan Log MagneticField MapMetaData NavSatFix
        NavSatStatus ObjectHypothesis ObjectHypothesisWithPose OccupancyGrid Odometry Path Point Point2D Pose Pose2D
        PoseArray PoseWithCovariance Quaternion Range RegionOfInterest Transform Twist TwistWithCovariance Vector3
    ]
    .map(str::to_owned);
    tried.sort_unstable();
    // The others are not records.
    let records = standard_names().filter(|name| {
        let definition = standard_type(name);
        definition.is_some_and(|definition| definition.payload().is_none())
    });
    let mut records: Vec<String> = records.map(|name| name.to_string()).collect();
    records.sort_unstable();
    assert_eq!(records, tried);
}

#[test]
fn optional_fields_and_lists_round_trip() {
    let pose = PoseWithCovariance {
        pose: Pose::default(),
        covariance: Some((0..36).map(f64::from).collect()),
    };
    let imu = Imu {
        orientation: Some(Quaternion::default()),
        angular_velocity_covariance: Some([0.5; 9]),
        ..Imu::default()
    };
    round_trip(&pose, PoseWithCovariance::NERVURE_TYPE);
    round_trip(&imu, Imu::NERVURE_TYPE);
    let path = Path {
        poses: vec![pose.pose; 3],
    };
    round_trip(&path, Path::NERVURE_TYPE);
    let grid = OccupancyGrid {
        data: vec![-1, 0, 100],
        ..OccupancyGrid::default()
    };
    round_trip(&grid, OccupancyGrid::NERVURE_TYPE);
}

#[test]
fn tensors_and_fields_of_a_newer_version_are_received() {
    #[derive(Serialize)]
    struct Newer<'a> {
        magnetic_field: Vector3,
        magnetic_field_covariance: Tensor<'a>,
        added: &'a str,
    }
    let covariance = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let newer = Newer {
        magnetic_field: Vector3::default(),
        magnetic_field_covariance: Tensor::new(&covariance, &[3, 3]).unwrap(),
        added: "later",
    };
    let newer = SerdeSample::new(&newer).unwrap();
    let sample = Sample::local(&newer, &Metadata::new(), Header::default(), None);
    let record = sample.unwrap().record().unwrap();
    let field: MagneticField = record.deserialize().unwrap();
    assert_eq!(field.magnetic_field_covariance, Some(covariance));
}
