//! The nodes of the lab's experiment `fleet`: a source of samples, and a sink that writes a line for
//! everything that happens to it, when it happens.

use std::fs::File;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use nervure_node::{Event, Node};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["source", bytes] => source(bytes.parse()?),
        ["sink", file] => sink(File::create(file)?),
        _ => Err("expected: source BYTES, or sink FILE".into()),
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

/// Writes lines of: what, input, time, and for a sample its stamp. Times are in nanoseconds since
/// 1970.
fn sink(mut file: File) -> Result<(), Box<dyn std::error::Error>> {
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
