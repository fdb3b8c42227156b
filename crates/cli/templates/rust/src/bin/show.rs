//! A sink: prints its inputs.

use nervure_node::{Event, Node};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut node = Node::connect()?;
    while let Some(event) = node.next() {
        if let Event::Input { sample, .. } = event {
            println!("{:.0}", sample.view()?.scalar()?);
        }
    }
    Ok(())
}
