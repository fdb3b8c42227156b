//! Nodes that send transforms between frames, and look them up.

use std::{error::Error, time::Duration};

use nervure_node::{Envelope, Event, Node, SerdeSample, Wait};
use serde::Serialize;

const SECOND: i64 = 1_000_000_000;

#[derive(Serialize)]
struct Pose<'a> {
    child_frame_id: &'a str,
    translation: Vector,
    rotation: Rotation,
}

#[derive(Serialize)]
struct Vector {
    x: f64,
    y: f64,
    z: f64,
}

#[derive(Serialize)]
struct Rotation {
    x: f64,
    y: f64,
    z: f64,
    w: f64,
}

/// Sends the pose of a child in its parent: at `first` metres at 1 s, at `last` metres at 2 s.
fn send(
    node: &Node,
    parent: &str,
    child: &str,
    [first, last]: [f64; 2],
) -> Result<(), Box<dyn Error>> {
    for (second, x) in [(1, first), (2, last)] {
        let pose = Pose {
            child_frame_id: child,
            translation: Vector { x, y: 0.0, z: 0.0 },
            rotation: Rotation {
                x: 0.0,
                y: 0.0,
                z: 0.0,
                w: 1.0,
            },
        };
        let envelope = Envelope::new().stamp(second * SECOND).frame(parent);
        node.output("pose")?
            .send_with(&SerdeSample::new(&pose)?, &envelope, Wait::Forever)?;
    }
    Ok(())
}

/// `PARENT CHILD FIRST LAST`: sends a transform.
pub fn pose(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [parent, child, first, last] = arguments else {
        return Err("which transform?".into());
    };
    send(
        &Node::connect()?,
        parent,
        child,
        [first.parse()?, last.parse()?],
    )
}

/// `TARGET SOURCE`: prints the number of each sample, and the pose at 1.5 s.
pub fn look_up(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [target, source] = arguments else {
        return Err("which frames?".into());
    };
    let mut node = Node::connect()?;
    while let Some(event) = node.next() {
        if let Event::Input { sample, .. } = event {
            let wait = Duration::from_secs(30);
            let found = node
                .transforms()
                .lookup(target, source, 3 * SECOND / 2, wait)?;
            println!("{} {:?}", sample.as_slice::<u64>()?[0], found.translation);
        }
    }
    Ok(())
}

/// `PARENT CHILD TARGET`: sends a transform, passes samples on, and prints the pose of the target at its
/// end.
pub fn pose_relay(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [parent, child, target] = arguments else {
        return Err("which transform?".into());
    };
    let mut node = Node::connect()?;
    send(&node, parent, child, [1.0, 1.0])?;
    println!("sent");
    let mut passed = 0;
    while let Some(event) = node.next() {
        if let Event::Input { sample, .. } = event {
            node.send("out", &sample.as_slice::<u64>()?[..1])?;
            passed += 1;
        }
    }
    let found = node.transforms().try_lookup(target, child, None)?;
    println!("passed {passed}, {:?}", found.translation);
    Ok(())
}
