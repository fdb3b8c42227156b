//! Nervure as a peer of the declared experiments: nodes under `nervure run`, written with the public Rust API.

use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nervure_lab_endpoint::peer::{self, Peer, PublishBytes, ReceiveBytes, Wiring};
use nervure_node::{Event, Node, Publisher};

fn main() -> Result<(), Box<dyn Error>> {
    let node = Node::connect()?;
    Ok(peer::run(Nervure(Mutex::new(Some(node))))?)
}

/// The node, until it receives.
struct Nervure(Mutex<Option<Node>>);

impl Peer for Nervure {
    type Publisher = Output;
    type Receiver = Inputs;

    fn publisher(&self, _: &Wiring, topic: &str) -> Result<Output, String> {
        let node = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let node = node
            .as_ref()
            .ok_or("an output is opened before the inputs")?;
        let output = node.output(topic).map_err(|error| error.to_string())?;
        Ok(Output(output))
    }

    fn receiver(&self, _: &Wiring, _: &str) -> Result<Inputs, String> {
        let node = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(Inputs(node.ok_or("one end receives")?))
    }
}

struct Output(Publisher);

impl PublishBytes for Output {
    fn publish(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), String> {
        let loan = self.0.loan(&[bytes]);
        let mut message = loan.map_err(|error| format!("loan: {error}"))?;
        fill(&mut message);
        message.send().map_err(|error| format!("send: {error}"))?;
        Ok(())
    }
}

struct Inputs(Node);

impl ReceiveBytes for Inputs {
    fn receive(
        &mut self,
        timeout: Duration,
        mut on_message: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        match self.0.next_timeout(timeout) {
            Some(Event::Input { sample, .. }) => on_message(sample.bytes()),
            _ => Ok(()),
        }
    }
}
