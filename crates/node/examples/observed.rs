//! The nodes of the lab's experiments `observers` and `fleet`: a source of samples, a sink that prints
//! their latencies, and one that writes a line for everything that happens to it, when it happens.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nervure_node::{Event, Node};

/// The interval at which the sink prints.
const WINDOW: Duration = Duration::from_millis(200);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["source", bytes] => source(bytes.parse()?),
        ["sink"] => sink(),
        ["log", file] => log(File::create(file)?),
        _ => Err("expected: source BYTES, sink, or log FILE".into()),
    }
}

/// Sends a sample at each tick.
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

/// Prints the median and the 99th percentile of each window of each input, in nanoseconds.
fn sink() -> Result<(), Box<dyn std::error::Error>> {
    let mut node = Node::connect()?;
    let mut latencies: BTreeMap<_, Vec<u128>> = BTreeMap::new();
    let mut begin = Instant::now();
    while let Some(event) = node.next() {
        if let Event::Input { id, sample } = event {
            latencies
                .entry(id)
                .or_default()
                .push(sample.latency().as_nanos());
        }
        if begin.elapsed() >= WINDOW {
            for (id, mut latencies) in std::mem::take(&mut latencies) {
                latencies.sort_unstable();
                let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
                println!("{id} {} {}", at(0.5), at(0.99));
            }
            begin = Instant::now();
        }
    }
    Ok(())
}

/// Writes lines of: what, input, time, and for a sample its stamp. Times are in nanoseconds since
/// 1970.
fn log(mut file: File) -> Result<(), Box<dyn std::error::Error>> {
    let mut node = Node::connect()?;
    while let Some(event) = node.next() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
        let line = match event {
            Event::Input { id, sample } => format!("sample {id} {now} {}\n", sample.header().stamp),
            Event::InputClosed { id } => format!("closed {id} {now}\n"),
            Event::NodeFailed { .. } => format!("failed - {now}\n"),
            _ => continue,
        };
        file.write_all(line.as_bytes())?;
    }
    Ok(())
}
