//! Prints every greeting that arrives.

use nervure_node::{Event, Node};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut node = Node::connect()?;
    while let Some(event) = node.next() {
        if let Event::Input { sample, .. } = event {
            println!("Rust heard: {}", sample.text()?);
        }
    }
    Ok(())
}
