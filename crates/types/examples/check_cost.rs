//! Measures the cost of the check of a sample: `cargo run --profile dist -p nervure-types --example check_cost`.
//!
//! The rows with lists have another number of items in each sample, so nothing but the schema stays.

use std::hint::black_box;
use std::time::Instant;

use nervure_message::{Encode, JsonSample, Layout, Schema, Tensor};
use nervure_types::{SampleCheck, standard_type};
use serde_json::{Value, json};

/// Samples of a batch, and batches.
const SAMPLES: usize = 1000;
const BATCHES: usize = 201;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let vector = json!({"x": 0.5, "y": 0.5, "z": 9.81});
    let pose = json!({"position": vector, "orientation": {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0}});
    let twist = json!({"linear": vector, "angular": vector});
    let detection = |score: f64| {
        let hypothesis = json!({"hypothesis": {"class_id": "cup", "score": score}});
        let bbox =
            json!({"center": {"position": {"x": 1.5, "y": 2.5}}, "size_x": 3.5, "size_y": 4.5});
        json!({"results": [hypothesis], "bbox": bbox})
    };
    let odometry = json!({
        "child_frame_id": "base", "pose": {"pose": pose, "covariance": vec![0.5; 36]},
        "twist": {"twist": twist, "covariance": vec![0.5; 36]},
    });
    let detections: Vec<Value> = (1..=4)
        .map(|count| json!({"detections": vec![detection(0.5); count]}))
        .collect();
    println!("{:24} {:>12} {:>12}", "type", "first (ns)", "next (ns)");
    report(
        "std/Twist@1",
        &[json!({"linear": vector, "angular": vector})],
    )?;
    report(
        "std/Imu@1",
        &[json!({"angular_velocity": vector, "linear_acceleration": vector})],
    )?;
    report("std/Odometry@1", &[odometry])?;
    report("std/Detections2D@1", &detections)?;
    let pixels = vec![0_u8; 540 * 960 * 3];
    let image = Tensor::new(&pixels, &[540, 960, 3])?;
    measure("std/Image@1", &[(Encode::layout(&image), None)])
}

fn report(name: &str, values: &[Value]) -> Result<(), Box<dyn std::error::Error>> {
    let samples = values
        .iter()
        .map(JsonSample::new)
        .collect::<Result<Vec<_>, _>>()?;
    let parts = samples
        .iter()
        .map(|sample| (sample.layout(), sample.schema().cloned()));
    measure(name, &parts.collect::<Vec<_>>())
}

fn measure(
    name: &str,
    samples: &[(Layout, Option<Schema>)],
) -> Result<(), Box<dyn std::error::Error>> {
    let definition = standard_type(&name.parse()?).ok_or("no standard type")?;
    let fresh = || SampleCheck::new(name, definition.clone());
    let (layout, schema) = &samples[0];
    let mut first = Vec::new();
    for _ in 0..BATCHES {
        let check = fresh();
        let begin = Instant::now();
        check.check(black_box(layout), schema.as_ref())?;
        first.push(begin.elapsed().as_nanos() as f64);
    }
    let check = fresh();
    let mut next = Vec::new();
    for _ in 0..BATCHES {
        let begin = Instant::now();
        for (layout, schema) in samples.iter().cycle().take(SAMPLES) {
            check.check(black_box(layout), schema.as_ref())?;
        }
        next.push(begin.elapsed().as_nanos() as f64 / SAMPLES as f64);
    }
    println!("{name:24} {:12.0} {:12.1}", median(first), median(next));
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
