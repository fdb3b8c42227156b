//! Reads the transforms that a node looks up, and those that never change.

use std::collections::HashMap;

use nervure_protocol::graph::{MAX_FRAME_BYTES, Program, StaticTransform, TransformsSpec};

use super::map::{Keys, read_keys};
use super::reader::{Reader, wrong_type};
use crate::diagnostic::{Code, Finding};
use crate::keys::{STATIC_TRANSFORM, Shape};
use crate::parsed::{LocatedProgram, ParsedNode};
use crate::quote::quoted;
use crate::tree::{Kind, Text, Value};

/// Largest error of the norm of a quaternion, which is then normalised: that of four decimals.
const NORM_TOLERANCE: f64 = 1e-3;

/// `transforms` of a node; its inputs follow when the outputs of all nodes are known.
pub(super) fn read_transforms(
    reader: &mut Reader<'_>,
    value: &Value,
    node: &ParsedNode,
) -> Option<TransformsSpec> {
    let is_on = reader.boolean(value)?;
    if let (
        true,
        Some(LocatedProgram {
            program: Program::Operators(_),
            ..
        }),
    ) = (is_on, &node.program)
    {
        let message = "operators cannot look up transforms";
        let finding = Finding::error(Code::ConflictingKeys, value.span, message);
        reader.report(finding.hint("write the operator as a node of its own to use `transforms`"));
        return None;
    }
    is_on.then(TransformsSpec::default)
}

pub(super) fn read_static_transforms(
    reader: &mut Reader<'_>,
    value: &Value,
) -> Vec<StaticTransform> {
    let Kind::List(items) = &value.kind else {
        reader.report(wrong_type(value, Shape::StaticTransforms.describe()));
        return Vec::new();
    };
    let mut tree = FrameTree::default();
    let read = |item| read_static_transform(reader, item, &mut tree);
    items.iter().filter_map(read).collect()
}

fn read_static_transform(
    reader: &mut Reader<'_>,
    value: &Value,
    tree: &mut FrameTree,
) -> Option<StaticTransform> {
    let hint = "write `{parent: base_link, child: camera, translation: [0.1, 0, 0.3], rpy: [0, 0, 0]}`, for example";
    let keys = read_keys(reader, value, &STATIC_TRANSFORM, Some(hint))?;
    let (parent, child) = (
        read_frame(reader, &keys, "parent"),
        read_frame(reader, &keys, "child"),
    );
    let translation = match keys.value("translation") {
        Some(value) => read_numbers(reader, value),
        None => Some([0.0; 3]),
    };
    let rotation = read_rotation(reader, &keys);
    let (parent, child) = (parent?, child?);
    if !tree.add(reader, &parent, &child) {
        return None;
    }
    Some(StaticTransform {
        parent: parent.text,
        child: child.text,
        translation: translation?,
        rotation: rotation?,
    })
}

fn read_frame(reader: &mut Reader<'_>, keys: &Keys<'_>, key: &str) -> Option<Text> {
    let frame = reader.text(keys.value(key)?, Shape::Words)?;
    if frame.text.len() > MAX_FRAME_BYTES {
        let message = format!("the name of a frame is {} bytes long", frame.text.len());
        let finding = Finding::error(Code::InvalidName, frame.span, message);
        reader.report(finding.expected(format!("at most {MAX_FRAME_BYTES} bytes")));
        return None;
    }
    Some(frame)
}

fn read_rotation(reader: &mut Reader<'_>, keys: &Keys<'_>) -> Option<[f64; 4]> {
    match (keys.entry("rotation"), keys.entry("rpy")) {
        (Some(_), Some(rpy)) => {
            let message = "`rotation` and `rpy` both give the orientation";
            let finding = Finding::error(Code::ConflictingKeys, rpy.key.span, message);
            reader.report(finding.hint("remove one of them"));
            None
        }
        (Some(rotation), None) => read_quaternion(reader, &rotation.value),
        (None, Some(rpy)) => read_numbers(reader, &rpy.value).map(quaternion),
        (None, None) => Some([0.0, 0.0, 0.0, 1.0]),
    }
}

fn read_quaternion(reader: &mut Reader<'_>, value: &Value) -> Option<[f64; 4]> {
    let numbers: [f64; 4] = read_numbers(reader, value)?;
    let norm = numbers
        .iter()
        .map(|number| number * number)
        .sum::<f64>()
        .sqrt();
    if (norm - 1.0).abs() > NORM_TOLERANCE {
        let message = format!("the norm of this quaternion is {norm:.4}");
        let finding = Finding::error(Code::OutOfRange, value.span, message)
            .expected("a unit quaternion `[x, y, z, w]`, with the norm 1");
        reader.report(finding.hint("write `[0, 0, 0, 1]` for no rotation, or angles as `rpy`"));
        return None;
    }
    Some(numbers.map(|number| number / norm))
}

/// The quaternion of rotations about the fixed axes x, y and z, in this order.
fn quaternion(angles: [f64; 3]) -> [f64; 4] {
    let [(sr, cr), (sp, cp), (sy, cy)] = angles.map(|angle| (angle / 2.0).sin_cos());
    [
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
        cr * cp * cy + sr * sp * sy,
    ]
}

fn read_numbers<const N: usize>(reader: &mut Reader<'_>, value: &Value) -> Option<[f64; N]> {
    let expected = || Shape::Numbers(N).describe();
    let Kind::List(items) = &value.kind else {
        reader.report(wrong_type(value, expected()));
        return None;
    };
    let numbers: Option<Vec<f64>> = items
        .iter()
        .map(|item| {
            let number = match item.kind {
                Kind::Integer(number, _) => Some(number as f64),
                Kind::Float(number, _) => Some(number),
                _ => None,
            };
            let finite = number.filter(|number| number.is_finite());
            if finite.is_none() {
                reader.report(wrong_type(item, "a finite number"));
            }
            finite
        })
        .collect();
    let numbers = numbers?;
    let found = numbers.len();
    let converted = numbers.try_into().ok();
    if converted.is_none() {
        let message = format!("a list of {found} numbers does not belong here");
        let finding = Finding::error(Code::WrongType, value.span, message);
        reader.report(finding.expected(expected()));
    }
    converted
}

/// The static transforms that were read.
#[derive(Default)]
struct FrameTree {
    /// The parent of each frame, and the frame's place in the file.
    parents: HashMap<String, (String, Text)>,
}

impl FrameTree {
    /// Adds a frame. Reports a second parent, and a frame that would be its own ancestor.
    fn add(&mut self, reader: &mut Reader<'_>, parent: &Text, child: &Text) -> bool {
        if let Some((first, known)) = self.parents.get(&child.text) {
            let message = format!(
                "the frame {} has two parents, {} and {}",
                quoted(&child.text),
                quoted(first),
                quoted(&parent.text)
            );
            let finding = Finding::error(Code::FrameTree, child.span, message)
                .hint("a frame has one parent: remove one of them")
                .related(known.span, "first here");
            reader.report(finding);
            return false;
        }
        let mut path = vec![child.text.as_str()];
        let mut ancestor = Some(parent.text.as_str());
        while let Some(frame) = ancestor {
            path.push(frame);
            if frame == child.text {
                path.reverse();
                let message = format!("the frame is its own ancestor: {}", path.join(" -> "));
                let finding = Finding::error(Code::FrameTree, child.span, message);
                reader.report(finding.hint("remove one of these static transforms"));
                return false;
            }
            ancestor = self.parents.get(frame).map(|(parent, _)| parent.as_str());
        }
        self.parents
            .insert(child.text.clone(), (parent.text.clone(), child.clone()));
        true
    }
}
