//! The two nodes of `scripts/measure_observers.py`: a source of samples, and a sink that tells how long they took.

use std::time::{Duration, Instant};

use nervure_node::{Event, Node};

/// How often the sink tells.
const WINDOW: Duration = Duration::from_millis(200);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["source", bytes] => source(bytes.parse()?),
        ["sink"] => sink(),
        _ => Err("expected: source BYTES, or sink".into()),
    }
}

fn source(bytes: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut node = Node::connect()?;
    let payload = vec![1u8; bytes];
    while let Some(event) = node.next() {
        if matches!(event, Event::Tick { .. }) {
            node.send("out", &payload[..])?;
        }
    }
    Ok(())
}

/// Prints the median and the 99th percentile of each window, in nanoseconds.
fn sink() -> Result<(), Box<dyn std::error::Error>> {
    let mut node = Node::connect()?;
    let mut latencies = Vec::new();
    let mut begin = Instant::now();
    while let Some(event) = node.next() {
        if let Event::Input { sample, .. } = event {
            latencies.push(sample.latency().as_nanos());
        }
        if begin.elapsed() >= WINDOW && !latencies.is_empty() {
            latencies.sort_unstable();
            let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
            println!("{} {}", at(0.5), at(0.99));
            latencies.clear();
            begin = Instant::now();
        }
    }
    Ok(())
}
