//! Reads a sample of the type `std/Transform@1`.

use std::sync::Arc;

use nervure_message::Schema;
use nervure_protocol::graph::MAX_FRAME_BYTES;
use serde::Deserialize;

use super::error::Refused;
use crate::sample::Sample;

/// The frame's name is borrowed: that of a hostile sample may be long.
#[derive(Deserialize)]
struct Message<'m> {
    child_frame_id: &'m str,
    translation: Vector,
    rotation: Rotation,
}

#[derive(Deserialize)]
struct Vector {
    x: f64,
    y: f64,
    z: f64,
}

#[derive(Deserialize)]
struct Rotation {
    x: f64,
    y: f64,
    z: f64,
    w: f64,
}

/// A transform of a sample: the parent is the sample's frame.
pub(super) struct Received {
    pub parent: String,
    pub child: String,
    pub translation: [f64; 3],
    pub rotation: [f64; 4],
}

/// `known` keeps the schema of the samples, which takes the longest to decode.
pub(super) fn read(
    sample: &Sample,
    known: &mut Option<(Arc<[u8]>, Schema)>,
) -> Result<Received, Refused> {
    let unreadable = |reason: String| Refused::Unreadable { reason };
    let frame = sample.frame_bytes().ok_or(Refused::NoParent)?;
    let parent = std::str::from_utf8(checked(&frame)?)
        .map_err(|_| unreadable("the name of its frame is not UTF-8".to_owned()))?;
    let record = sample
        .record_with(known)
        .map_err(|error| unreadable(error.to_string()))?;
    let message: Message<'_> = record
        .deserialize()
        .map_err(|error| unreadable(error.to_string()))?;
    let child = message.child_frame_id;
    checked(child.as_bytes())?;
    let Vector { x, y, z } = message.translation;
    let rotation = message.rotation;
    Ok(Received {
        parent: parent.to_owned(),
        child: child.to_owned(),
        translation: [x, y, z],
        rotation: [rotation.x, rotation.y, rotation.z, rotation.w],
    })
}

fn checked(name: &[u8]) -> Result<&[u8], Refused> {
    match name.len() {
        0 => Err(Refused::NoParent),
        1..=MAX_FRAME_BYTES => Ok(name),
        bytes => Err(Refused::LongName { bytes }),
    }
}
