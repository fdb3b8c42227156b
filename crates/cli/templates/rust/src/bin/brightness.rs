//! A task: computes something from each picture.

use nervure_node::{Envelope, Event, Node, Wait};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut node = Node::connect()?;
    let output = node.output("brightness")?;
    while let Some(event) = node.next() {
        if let Event::Input { sample, .. } = event {
            let brightness = {{crate}}::brightness(sample.as_slice::<u8>()?);
            // `like` keeps the time at which the picture was taken.
            output.send_with(&brightness, &Envelope::new().like(&sample), Wait::Forever)?;
        }
    }
    Ok(())
}
