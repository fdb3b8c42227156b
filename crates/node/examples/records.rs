//! A source of records for `tests/test_records.py`: a standard type, and a struct that no type describes.

use nervure_node::types::{Imu, Quaternion, Vector3};
use nervure_node::{Node, SerdeSample, Tensor};
use serde::Serialize;

#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
    count: u64,
    is_valid: bool,
    score: Option<f64>,
    points: Vec<Point>,
    ranges: Vec<f64>,
    image: Tensor<'a>,
    transposed: Tensor<'a>,
    tags: Vec<&'a str>,
    flags: Vec<bool>,
}

#[derive(Serialize)]
struct Point {
    x: f64,
    labels: Vec<String>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::connect()?;
    let imu = Imu {
        orientation: Some(Quaternion::default()),
        orientation_covariance: Some([0.5; 9]),
        angular_velocity: Vector3 {
            x: 1.0,
            y: 2.0,
            z: 3.0,
        },
        ..Imu::default()
    };
    node.send("imu", &SerdeSample::new(&imu)?)?;
    let pixels: Vec<u8> = (0..12).collect();
    let layout = nervure_node::message::TensorLayout::strided(
        nervure_node::message::DType::U8,
        &[3, 4],
        &[1, 3],
    )?;
    let frame = Frame {
        name: "grüß",
        count: u64::MAX,
        is_valid: true,
        score: None,
        points: vec![
            Point {
                x: 0.5,
                labels: vec![],
            },
            Point {
                x: 1.5,
                labels: vec!["a".to_owned(), "bc".to_owned()],
            },
        ],
        ranges: vec![0.25, 0.5, 0.75],
        image: Tensor::new(&pixels, &[2, 2, 3])?,
        transposed: Tensor::from_bytes(layout, &pixels)?,
        tags: vec!["first", "second"],
        flags: vec![true, false],
    };
    node.send("frame", &SerdeSample::new(&frame)?)?;
    Ok(())
}
