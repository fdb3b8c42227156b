//! Measures lookups of transforms: `cargo run --release -p nervure-node --example lookup_cost`.
//!
//! Each frame has ten seconds of samples at 100 Hz. The medians of batches are printed.

use std::hint::black_box;
use std::time::Instant;

use nervure_node::message::{Header, JsonSample, Metadata};
use nervure_node::transforms::TransformTree;
use nervure_node::{LookupTime, Sample};
use serde_json::json;

/// Lookups of a batch, and batches.
const LOOKUPS: usize = 1000;
const BATCHES: usize = 201;
/// Samples of each frame, 10 ms apart.
const SAMPLES: i64 = 1000;
const PERIOD: i64 = 10_000_000;
const NONE: [f64; 4] = [0.0, 0.0, 0.0, 1.0];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:34} {:>10}", "operation", "time (ns)");
    for links in [1, 5, 10] {
        let tree = chain(links)?;
        let (last, newest) = (links.to_string(), (SAMPLES - 1) * PERIOD);
        let mut at = 0;
        measure(&format!("lookup, chain of {links}"), || {
            // Between two samples, never the same ones in a row.
            at = (at + 7 * PERIOD + 1_234) % newest;
            black_box(tree.lookup("0", &last, at)).is_ok()
        });
        measure(&format!("lookup of the newest, chain of {links}"), || {
            black_box(tree.lookup("0", &last, LookupTime::Latest)).is_ok()
        });
    }
    let mut tree = chain(1)?;
    // The stamps of a batch are those of the one before, whose samples they replace.
    let samples = (0..LOOKUPS as i64).map(|number| sample(number * PERIOD));
    let samples = samples.collect::<Result<Vec<_>, _>>()?;
    let mut next = samples.iter().cycle();
    measure("a sample taken in", || {
        next.next()
            .is_some_and(|sample| tree.add_sample(sample).is_ok())
    });
    Ok(())
}

/// Frames from `0` on, each the child of the one before.
fn chain(links: usize) -> Result<TransformTree, Box<dyn std::error::Error>> {
    let mut tree = TransformTree::default();
    for link in 0..links {
        let (parent, child) = (link.to_string(), (link + 1).to_string());
        for number in 0..SAMPLES {
            let half = number as f64 * 1e-3;
            let rotation = [0.0, 0.0, half.sin(), half.cos()];
            let stamp = Some(number * PERIOD);
            tree.add(&parent, &child, stamp, [half, 0.5, 0.0], rotation)?;
        }
        tree.add(&parent, &format!("mount{link}"), None, [0.0; 3], NONE)?;
    }
    Ok(tree)
}

fn sample(stamp: i64) -> Result<Sample, Box<dyn std::error::Error>> {
    let value = json!({
        "child_frame_id": "1",
        "translation": {"x": 0.5, "y": 0.5, "z": 0.0},
        "rotation": {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0},
    });
    let header = Header {
        stamp,
        frame_id: 1,
        ..Header::default()
    };
    let value = JsonSample::new(&value)?;
    Ok(Sample::local(&value, &Metadata::new(), header, Some("0"))?)
}

fn measure(name: &str, mut operation: impl FnMut() -> bool) {
    let mut batches: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..LOOKUPS {
                assert!(operation(), "{name} failed");
            }
            begin.elapsed().as_nanos() as f64 / LOOKUPS as f64
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    println!("{name:34} {:>10.0}", batches[BATCHES / 2]);
}
