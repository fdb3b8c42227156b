//! A source: a picture at each tick, filled in place in shared memory.

use nervure_node::{Envelope, Event, Node};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut node = Node::connect()?;
    let images = node.output("image")?;
    let mut grey = 0u8;
    while let Some(event) = node.next() {
        if let Event::Tick { due, .. } = event {
            let mut image = images.loan::<u8>(&[480, 640])?;
            image.fill(grey);
            image.send_with(&Envelope::new().stamp(due))?;
            grey = grey.wrapping_add(10);
        }
    }
    Ok(())
}
