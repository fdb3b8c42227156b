use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{Field as ArrowField, Fields};
use nervure_message::{ArraySample, DType, Encode, JsonSample, SerdeSample, Tensor, TensorLayout};
use serde::Serialize;

use super::*;
use crate::example::Example;
use crate::{standard_names, standard_type};

fn check_of(name: &str) -> SampleCheck {
    SampleCheck::new(name, standard_type(&name.parse().unwrap()).unwrap())
}

fn sent(check: &SampleCheck, value: &(impl Encode + ?Sized)) -> Result<(), String> {
    let result = check.check(&value.layout(), value.schema());
    result.map_err(|misfit| misfit.to_string())
}

fn sent_struct(check: &SampleCheck, value: &impl Serialize) -> Result<(), String> {
    sent(check, &SerdeSample::new(value).unwrap())
}

/// A value of a standard type after a change.
fn changed(name: &str, change: impl FnOnce(&mut Example)) -> Result<(), String> {
    let mut value = Example::of(&standard_type(&name.parse().unwrap()).unwrap(), true);
    change(&mut value);
    sent_struct(&check_of(name), &value)
}

#[test]
fn samples_of_every_record_type_fit_it_and_no_other() {
    let records = || {
        let all = standard_names().map(|name| (name.to_string(), standard_type(&name).unwrap()));
        all.filter(|(_, definition)| definition.facts.payload.is_none())
    };
    // Types with the same fields.
    const ALIKE: [&[&str]; 3] = [
        &["std/PoseArray@1", "std/Path@1"],
        &["std/Vector3@1", "std/Point@1"],
        &["std/Image@1"],
    ];
    let (mut fits, mut misfits) = (0, 0);
    for (name, definition) in records() {
        for with_optional in [true, false] {
            let value = Example::of(&definition, with_optional);
            for (other, _) in records() {
                let result = sent_struct(&check_of(&other), &value);
                let is_alike = name == other
                    || ALIKE
                        .iter()
                        .any(|names| names.contains(&&*name) && names.contains(&&*other));
                // All their fields that are not optional are the same.
                assert_eq!(result.is_ok(), is_alike, "{name} as {other}: {result:?}");
                if is_alike { fits += 1 } else { misfits += 1 }
            }
        }
    }
    assert!(fits > 70 && misfits > 1000, "{fits}, {misfits}");
}

#[test]
fn a_misfit_names_type_field_expected_and_found() {
    let replaced = |path: &'static str, with: Example| {
        changed("std/Odometry@1", move |value| *value.at(path) = with)
    };
    for (result, expected) in [
        (
            replaced("twist.twist.linear.x", Example::Text),
            "std/Odometry@1, field `twist.twist.linear.x`: expected `float64`, found text",
        ),
        (
            replaced("pose.pose", Example::Float),
            "std/Odometry@1, field `pose.pose`: expected `std/Pose`, found a floating-point number",
        ),
        (
            replaced("child_frame_id", Example::Null),
            "std/Odometry@1, field `child_frame_id`: expected `string`, found null",
        ),
        (
            replaced("pose.covariance", Example::List(vec![Example::Float; 35])),
            "std/Odometry@1, field `pose.covariance`: expected 36 items (`float64[36]`), found 35",
        ),
        (
            replaced("pose.covariance", Example::List(Vec::new())),
            "std/Odometry@1, field `pose.covariance`: expected 36 items (`float64[36]`), found 0",
        ),
        (
            changed("std/Odometry@1", |value| {
                drop(value.fields("pose.pose.position").remove(1))
            }),
            "std/Odometry@1, field `pose.pose.position.y`: expected `float64`, found no such field",
        ),
        (
            changed("std/Odometry@1", |value| {
                value.fields("pose")[0].0 = "psoe".to_owned()
            }),
            "std/Odometry@1, field `pose`: expected its fields: pose, covariance, found `psoe` (did you mean `pose`?)",
        ),
        (
            changed("std/Joy@1", |value| {
                *value.at("buttons") = Example::List(vec![Example::Float])
            }),
            "std/Joy@1, field `buttons[]`: expected `int32`, found a floating-point number",
        ),
        (
            changed("std/Joy@1", |value| {
                *value.at("axes") = Example::List(vec![Example::Null])
            }),
            "std/Joy@1, field `axes`: expected `float32[]`, found a list of nulls",
        ),
        (
            changed("std/Joy@1", |value| *value.at("axes.1") = Example::Null),
            "std/Joy@1, field `axes[]`: expected `float32`, found null",
        ),
        (
            changed("std/Detections2D@1", |value| {
                *value.at("detections.0.results.1.hypothesis.score") = Example::Null
            }),
            "std/Detections2D@1, field `detections[].results[].hypothesis.score`: expected `float64`, found null",
        ),
    ] {
        assert_eq!(result, Err(expected.to_owned()));
    }
}

#[test]
fn numbers_of_records_are_not_told_apart_by_their_width() {
    // A whole number in a list of floats, and optional fields that are null, as in Python.
    let fits = |name: &str, path: &'static str, with: Example| {
        changed(name, move |value| *value.at(path) = with)
    };
    fits("std/Vector3@1", "x", Example::Integer(0)).unwrap();
    fits("std/Odometry@1", "pose.covariance", Example::Null).unwrap();
    fits("std/Imu@1", "orientation", Example::Null).unwrap();
    fits(
        "std/Detections2D@1",
        "detections",
        Example::List(Vec::new()),
    )
    .unwrap();
    fits(
        "std/Detections2D@1",
        "detections.0.results.0.pose",
        Example::Null,
    )
    .unwrap();
    fits(
        "std/Detections2D@1",
        "detections.0.results",
        Example::List(Vec::new()),
    )
    .unwrap();
    assert!(fits("std/Joy@1", "buttons", Example::List(vec![Example::Bool])).is_err());
}

#[derive(Serialize)]
struct Scan<'a> {
    angle_min: f32,
    angle_max: f32,
    angle_increment: f32,
    range_min: f32,
    range_max: f32,
    ranges: Tensor<'a>,
}

#[test]
fn tensors_in_records_have_the_type_of_the_field() {
    let scan = |ranges| Scan {
        angle_min: 0.0,
        angle_max: 1.0,
        angle_increment: 0.1,
        range_min: 0.0,
        range_max: 9.0,
        ranges,
    };
    let check = check_of("std/LaserScan@1");
    sent_struct(&check, &scan(Tensor::new(&[1.0_f32; 6], &[6]).unwrap())).unwrap();
    sent_struct(&check, &scan(Tensor::new(&[1.0_f32; 0], &[0]).unwrap())).unwrap();
    assert_eq!(
        sent_struct(&check, &scan(Tensor::new(&[1.0_f64; 6], &[6]).unwrap())).unwrap_err(),
        "std/LaserScan@1, field `ranges`: expected `float32[]`, found a tensor of f8 with 1 dimension \
         (`array.astype(\"f4\")` converts it)"
    );
    assert_eq!(
        sent_struct(&check, &scan(Tensor::new(&[1.0_f32; 6], &[2, 3]).unwrap())).unwrap_err(),
        "std/LaserScan@1, field `ranges`: expected `float32[]`, found a tensor of f4 with 2 dimensions"
    );
}

#[derive(Serialize)]
struct Pose<'a> {
    pose: Example,
    covariance: Tensor<'a>,
}

#[test]
fn tensors_in_the_place_of_arrays_have_their_number_of_elements() {
    let check = check_of("std/PoseWithCovariance@1");
    let mut pose = Example::of(
        &standard_type(&"std/PoseWithCovariance@1".parse().unwrap()).unwrap(),
        true,
    );
    let pose = pose.at("pose").clone();
    let send = |elements: &[f64], shape: &[usize]| {
        let covariance = Tensor::new(elements, shape).unwrap();
        sent_struct(
            &check,
            &Pose {
                pose: pose.clone(),
                covariance,
            },
        )
    };
    send(&[0.0; 36], &[6, 6]).unwrap();
    send(&[0.0; 36], &[36]).unwrap();
    let error = send(&[0.0; 30], &[5, 6]).unwrap_err();
    assert!(
        error.ends_with("`covariance`: expected 36 items (`float64[36]`), found 30"),
        "{error}"
    );
    assert!(send(&[0.0; 36], &[3, 3, 4]).is_err());
}

#[test]
fn images_clouds_text_and_files_are_sent_as_they_are() {
    let image = check_of("std/Image@1");
    sent(&image, &Tensor::new(&[0_u8; 60], &[4, 5, 3]).unwrap()).unwrap();
    sent(&image, &Tensor::new(&[0_u16; 20], &[4, 5]).unwrap()).unwrap();
    assert_eq!(
        sent(&image, "text").unwrap_err(),
        "std/Image@1: expected a tensor: u1, i1, u2, i2, i4, f4, f8: height x width or height x width x channels, \
         found text"
    );
    let error = sent(&image, &Tensor::new(&[0_u8; 60], &[60]).unwrap()).unwrap_err();
    assert!(error.ends_with("found a tensor of u1, 60"), "{error}");
    let cloud = check_of("std/PointCloud@1");
    sent(&cloud, &Tensor::new(&[0_f32; 40], &[10, 4]).unwrap()).unwrap();
    let points = DType::Custom {
        name: "[('x', '<f4'), ('i', '<u2')]".into(),
        item_bytes: 6,
    };
    let points = TensorLayout::contiguous(points, &[3]).unwrap();
    cloud.check(&Layout::Tensor(points), None).unwrap();
    let times = DType::Custom {
        name: "<M8[ns]".into(),
        item_bytes: 8,
    };
    let times = TensorLayout::contiguous(times, &[3]).unwrap();
    assert!(cloud.check(&Layout::Tensor(times), None).is_err());
    sent(&check_of("std/Text@1"), "text").unwrap();
    sent(
        &check_of("std/CompressedImage@1"),
        &vec![0xff_u8, 0xd8, 0xff],
    )
    .unwrap();
    assert_eq!(
        sent(&check_of("std/CompressedImage@1"), &1.5).unwrap_err(),
        "std/CompressedImage@1: expected bytes, found a scalar"
    );
}

#[test]
fn a_record_is_one_and_no_list() {
    let check = check_of("std/Joy@1");
    let joy = serde_json::json!({"axes": [0.5], "buttons": [1]});
    sent(&check, &JsonSample::new(&joy).unwrap()).unwrap();
    for (value, found) in [
        (serde_json::json!([joy]), "a list"),
        (serde_json::json!([joy, joy]), "an array of 2 elements"),
        (serde_json::json!([1, 2]), "an array of 2 elements"),
        (serde_json::json!(1), "a scalar"),
        (serde_json::json!(null), "null"),
    ] {
        let error = sent(&check, &JsonSample::new(&value).unwrap()).unwrap_err();
        let expected = "std/Joy@1: expected one record: a dict, dataclass or struct, found ";
        assert_eq!(error, format!("{expected}{found}"));
    }
}

#[test]
fn arrays_of_arrow_fit_in_all_their_widths() {
    let list = |item: DataType, size: Option<i32>| {
        let item = Arc::new(ArrowField::new_list_field(item, true));
        match size {
            Some(size) => DataType::FixedSizeList(item, size),
            None => DataType::List(item),
        }
    };
    let floats = |count: usize| {
        ArrayData::builder(DataType::Float32)
            .len(count)
            .add_buffer(Buffer::from_vec(vec![0.5_f32; count]))
            .build()
            .unwrap()
    };
    let field = |size: i32| {
        ArrayData::builder(list(DataType::Float32, Some(size)))
            .len(1)
            .add_child_data(floats(size as usize))
            .build()
            .unwrap()
    };
    let vector = || {
        let number = || {
            ArrayData::builder(DataType::Float32)
                .len(1)
                .add_buffer(Buffer::from_vec(vec![1.0_f32]))
                .build()
                .unwrap()
        };
        let fields = ["x", "y", "z"].map(|name| ArrowField::new(name, DataType::Float32, false));
        ArrayData::builder(DataType::Struct(Fields::from(fields.to_vec())))
            .len(1)
            .add_child_data(number())
            .add_child_data(number())
            .add_child_data(number())
            .build()
            .unwrap()
    };
    let check = check_of("std/MagneticField@1");
    for (size, fits) in [(9, true), (8, false)] {
        let (vector, covariance) = (vector(), field(size));
        let fields = vec![
            ArrowField::new(
                "magnetic_field_covariance",
                covariance.data_type().clone(),
                false,
            ),
            ArrowField::new("magnetic_field", vector.data_type().clone(), false),
        ];
        let array = ArrayData::builder(DataType::Struct(Fields::from(fields))).len(1);
        let array = array
            .add_child_data(covariance)
            .add_child_data(vector)
            .build()
            .unwrap();
        let schema = Schema::of_type(array.data_type().clone()).unwrap();
        let result = sent(&check, &ArraySample::new(&array, &schema).unwrap());
        assert_eq!(result.is_ok(), fits, "{result:?}");
    }
}

#[test]
fn a_schema_is_planned_once_and_plans_are_bounded() {
    let check = check_of("std/Odometry@1");
    let value = Example::of(
        &standard_type(&"std/Odometry@1".parse().unwrap()).unwrap(),
        true,
    );
    for _ in 0..3 {
        sent_struct(&check, &value).unwrap();
    }
    assert_eq!(check.plans.read().unwrap().len(), 1);
    // Each order of fields is a schema of its own.
    for turns in 0..3 * MAX_PLANS {
        let mut turned = value.clone();
        turned.fields("").rotate_left(turns % 3);
        turned
            .fields("pose.pose.position")
            .rotate_left(turns / 3 % 3);
        turned
            .fields("pose.pose.orientation")
            .rotate_left(turns / 9 % 4);
        sent_struct(&check, &turned).unwrap();
    }
    assert!(check.plans.read().unwrap().len() <= MAX_PLANS);
}
