//! Purpose of this node, in one sentence.

use nervure_node::{Envelope, Event, Node, Wait};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut node = Node::connect()?;
    let output = node.output("output")?;
    while let Some(event) = node.next() {
        if let Event::Input { sample, .. } = event {
            output.send_with(sample.bytes(), &Envelope::new().like(&sample), Wait::Forever)?;
        }
    }
    Ok(())
}
