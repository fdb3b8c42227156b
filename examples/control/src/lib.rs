//! Prints the largest lean of the pendulum and the age of its commands, once a second.

use std::error::Error;
use std::time::Duration;

use nervure_node::{Event, Node};

nervure_node::component!(run);

/// Measurements of one second.
#[derive(Default)]
struct Second {
    largest_angle: f64,
    ages: Vec<Duration>,
}

fn run(mut node: Node) -> Result<(), Box<dyn Error>> {
    let mut second = Second::default();
    while let Some(event) = node.next() {
        let Event::Input { id, sample } = event else {
            continue;
        };
        if &*id == "state" {
            let angle = sample.as_slice::<f64>()?[2];
            second.largest_angle = second.largest_angle.max(angle.abs());
        } else {
            // From the measurement that the command was computed from.
            second.ages.push(sample.age(node.now()));
        }
        if second.ages.len() == 500 {
            second.ages.sort();
            println!(
                "500 commands, angle within {:.0} mrad, age of a command p50 {:?}, p99 {:?}",
                second.largest_angle * 1000.0,
                second.ages[250],
                second.ages[495]
            );
            second = Second::default();
        }
    }
    Ok(())
}
