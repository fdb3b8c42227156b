//! Measures how long an observer takes to attach: from the search for the dataflow until it is
//! wired, and until its first sample.
//!
//! `cargo run --release -p nervure-node --example attach -- DATAFLOW TOPIC [COUNT]`

use std::time::{Duration, Instant};

use nervure_node::{Event, Observer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dataflow, topic, ..] = arguments.as_slice() else {
        return Err("expected: DATAFLOW TOPIC [COUNT]".into());
    };
    let count = arguments.get(2).map_or(Ok(1000), |count| count.parse())?;
    let (mut wired, mut received) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let begin = Instant::now();
        let mut observer = Observer::open(Some(dataflow), &[topic], 4, "attach")?;
        wired.push(begin.elapsed());
        while !matches!(
            observer.next_timeout(Duration::from_secs(10)),
            Some(Event::Input { .. }) | None
        ) {}
        received.push(begin.elapsed());
    }
    for (what, mut times) in [("wired", wired), ("first sample", received)] {
        times.sort();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        println!(
            "{what}: p50 {:?}, p99 {:?}, max {:?}",
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
    Ok(())
}
