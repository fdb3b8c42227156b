//! A component for tests with real processes; its parameter `role` selects its behaviour.

use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use nervure_node::{Event, Node};

nervure_node::component!(run);

fn run(node: Node) -> Result<(), Box<dyn Error>> {
    let role = node.param("role")?;
    match role.as_str().unwrap_or_default() {
        "source" => source(&node),
        "sink" => sink(node),
        "panic" => wait_for_first(node, || panic!("as requested")),
        "fail" => wait_for_first(node, || Err("it has failed as requested".into())),
        "exit" => wait_for_first(node, || std::process::exit(7)),
        // The first signal only ends Rust's handler for stack overflows.
        "segfault" => wait_for_first(node, || {
            loop {
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::SEGV)?;
            }
        }),
        "deaf" => loop {
            sleep(Duration::from_secs(1000));
        },
        other => Err(format!("what is a {other:?}?").into()),
    }
}

/// Sends the numbers from 0 to `count`, then ends.
fn source(node: &Node) -> Result<(), Box<dyn Error>> {
    println!("process {}", std::process::id());
    let count = node.param("count")?.as_u64().unwrap_or(u64::MAX);
    for number in 0..count {
        if node.is_stopping() {
            return Ok(());
        }
        node.send("out", &[number][..])?;
        sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Counts samples, and fails if a number is missing.
fn sink(mut node: Node) -> Result<(), Box<dyn Error>> {
    let mut expected = 0u64;
    while let Some(event) = node.next() {
        match event {
            Event::Input { sample, .. } => {
                let number = u64::from_le_bytes(sample.bytes().try_into()?);
                if number == 0 {
                    println!("{} began", node.id());
                }
                // The input of `sink` is lossless; others are not.
                if node.id() == "sink" && number != expected && number != 0 {
                    return Err(format!("expected {expected}, got {number}").into());
                }
                expected = number + 1;
                if expected.is_multiple_of(100) {
                    println!("{} has {expected}", node.id());
                }
            }
            Event::NodeFailed {
                node: failed,
                reason,
                ..
            } => {
                println!("{} heard of {failed}: {reason}", node.id());
            }
            _ => {}
        }
    }
    println!("{} received {expected}", node.id());
    Ok(())
}

fn wait_for_first(
    mut node: Node,
    act: impl FnOnce() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let restarted = node.incarnation() > 0;
    while let Some(event) = node.next() {
        if let Event::Input { .. } = event
            && !restarted
        {
            return act();
        }
    }
    Ok(())
}
