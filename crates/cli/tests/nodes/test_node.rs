//! A node that does what its first argument says, for tests with real processes.

use std::{error::Error, thread::sleep, time::Duration};

use nervure_node::{Envelope, Event, Metadata, Node, Tensor, message::Scalar};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).map_or(Ok(0), |text| text.parse::<u64>());
    match arguments.first().map(String::as_str) {
        Some("source") => source(number(1)?, number(2)?),
        Some("values") => values(),
        Some("sink") => sink(number(1)?),
        Some("doomed-sink") => doomed_sink(number(1)?, || std::process::abort()),
        Some("failing-sink") => doomed_sink(number(1)?, || Err("as it was told".into())),
        Some("relay") => relay(),
        Some("clock") => clock(),
        Some("idle") => idle(),
        Some("deaf") => deaf(),
        Some("hang") => hang(),
        other => Err(format!("what is a {other:?}?").into()),
    }
}

/// Sends the numbers from 0 on, with a pause after each.
fn source(count: u64, pause_millis: u64) -> Result<(), Box<dyn Error>> {
    let node = Node::connect()?;
    for number in 0..count {
        node.send("out", &[number][..])?;
        if pause_millis > 0 {
            sleep(Duration::from_millis(pause_millis));
        }
    }
    Ok(())
}

/// Sends a value of each kind, again and again.
fn values() -> Result<(), Box<dyn Error>> {
    let node = Node::connect()?;
    let mut image = [10u8; 20 * 30 * 3];
    image[0] = 250;
    let metadata: Metadata = [("encoding", "bgr8")].into_iter().collect();
    while !node.is_stopping() {
        let envelope = Envelope::new().metadata(&metadata).frame("camera_optical");
        node.send_with("image", &Tensor::new(&image[..], &[20, 30, 3])?, &envelope)?;
        node.send("text", "caf\u{e9}")?;
        node.send("number", &1.5)?;
        node.send("bytes", &b"\x01\x02\x03"[..])?;
        node.send("vector", &[0.5f32, -1.0, 2.0][..])?;
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Tells every event, until the end of its inputs.
fn sink(pause_millis: u64) -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    while let Some(event) = node.next() {
        tell(&event)?;
        sleep(Duration::from_millis(pause_millis));
    }
    Ok(())
}

/// As a sink, but its first process ends after some samples.
fn doomed_sink(count: u64, end: fn() -> Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    let mut left = if node.incarnation() == 0 { count } else { u64::MAX };
    while let Some(event) = node.next() {
        tell(&event)?;
        left -= u64::from(matches!(event, Event::Input { .. }));
        if left == 0 {
            return end();
        }
    }
    Ok(())
}

/// Tells the dataflow's clock at every event.
fn clock() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    while let Some(event) = node.next() {
        if !matches!(event, Event::Stop { .. }) {
            println!("now {}", node.now());
        }
    }
    Ok(())
}

/// Sends on what it receives.
fn relay() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    while let Some(event) = node.next() {
        if let Event::Input { sample, .. } = event {
            node.send("out", &sample.as_slice::<u64>()?[..1])?;
        }
    }
    Ok(())
}

/// Waits for Stop.
fn idle() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    for (name, value) in node.params() {
        println!("{name} is {value}");
    }
    println!("ready {}", node.incarnation());
    while let Some(event) = node.next() {
        match &event {
            Event::Param { name, value } if node.param(name)? == *value => {
                println!("PARAM {name} {value}, and so it is");
            }
            event => tell(event)?,
        }
        if matches!(event, Event::Stop { .. }) {
            break;
        }
    }
    Ok(())
}

/// Does not look at its events.
fn deaf() -> Result<(), Box<dyn Error>> {
    let _node = Node::connect()?;
    println!("ready");
    loop {
        sleep(Duration::from_secs(1000));
    }
}

/// Its first process never comes back from its first sample.
fn hang() -> Result<(), Box<dyn Error>> {
    let mut node = Node::connect()?;
    println!("ready {}", node.incarnation());
    while let Some(event) = node.next() {
        if matches!(event, Event::Input { .. }) && node.incarnation() == 0 {
            sleep(Duration::from_secs(1000));
        }
        tell(&event)?;
    }
    Ok(())
}

fn tell(event: &Event) -> Result<(), Box<dyn Error>> {
    match event {
        Event::Input { id, sample } => match sample.view()?.scalar() {
            Ok(Scalar::Integer(number)) => println!("{id} {number}"),
            _ => println!("{id} {}", sample.as_slice::<u64>()?[0]),
        },
        Event::InputClosed { id } => println!("INPUT_CLOSED {id}"),
        Event::Stale { id, age, count } => println!("STALE {id} {count} {}", age.as_millis()),
        Event::DeadlineMissed { id, overrun, count } => {
            println!("DEADLINE_MISSED {id} {count} {}", overrun.as_millis());
        }
        Event::NodeFailed { node, inputs, reason } => println!("NODE_FAILED {node} {inputs:?} {reason}"),
        Event::NodeRestarted { node, inputs } => println!("NODE_RESTARTED {node} {inputs:?}"),
        Event::Stop { reason } => println!("STOP {reason}"),
        other => println!("{}", other.kind()),
    }
    Ok(())
}
