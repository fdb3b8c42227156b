//! Nervure: nodes under `nervure run`, written with the public Rust API alone.

use std::collections::HashSet;
use std::error::Error;

use nervure_lab_endpoint::{
    Consumer, Endpoint, FIRST_UNREAD_WORD, Mode, Publish, Role, now_nanos, produce,
};
use nervure_node::{Event, Node, Publisher};

fn main() -> Result<(), Box<dyn Error>> {
    let mut endpoint = Endpoint::from_environment()?;
    let mut node = Node::connect()?;
    if endpoint.case().mode == Mode::Mesh {
        return mesh(&mut endpoint, node);
    }
    match endpoint.case().role {
        Role::Producer => produce(&mut endpoint, &mut Output(node.output("out")?))?,
        Role::Consumer => {
            let mut consumer = Consumer::start(&mut endpoint)?;
            while !consumer.is_finished() {
                let event = node.next();
                let received_at_nanos = now_nanos();
                match event {
                    Some(Event::Input { sample, .. }) => {
                        consumer.observe(received_at_nanos, sample.as_slice()?)
                    }
                    Some(Event::Stop { .. }) | None => break,
                    Some(_) => {}
                }
            }
            consumer.report()?;
        }
    }
    Ok(())
}

/// A node of a large graph: sends one message, and exits when each input has received one.
fn mesh(endpoint: &mut Endpoint, mut node: Node) -> Result<(), Box<dyn Error>> {
    let mut waiting: HashSet<String> = node.inputs().map(str::to_owned).collect();
    let inputs = waiting.len();
    let mut consumer = Consumer::start(endpoint)?;
    consumer.expect(inputs as u64);
    node.output("out")?
        .loan::<u64>(&[FIRST_UNREAD_WORD])?
        .send()?;
    while !consumer.is_finished() {
        match node.next() {
            // Messages arrive in any order; numbering them by arrival keeps the count of reordered ones at 0.
            Some(Event::Input { id, .. }) if waiting.remove(&*id) => {
                let sequence = (inputs - waiting.len() - 1) as u64;
                consumer.observe(now_nanos(), &[sequence; FIRST_UNREAD_WORD]);
            }
            Some(Event::Stop { .. }) | None => break,
            Some(_) => {}
        }
    }
    Ok(consumer.report()?)
}

struct Output(Publisher);

impl Publish for Output {
    fn publish(&mut self, words: usize, fill: impl FnOnce(&mut [u64])) -> Result<(), String> {
        let mut message = self
            .0
            .loan(&[words])
            .map_err(|error| format!("loan: {error}"))?;
        fill(&mut message);
        message.send().map_err(|error| format!("send: {error}"))?;
        Ok(())
    }
}
