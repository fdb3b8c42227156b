//! Hints from a dataflow file alone.

use std::collections::BTreeSet;

use nervure_dataflow::{Dataflow, Diagnostic, Source};

use super::hint::{Hint, Place, unread};
use crate::losses::Remedy;

/// Queue depth from which a queue of images is probably a mistake.
const DEEP_QUEUE_SAMPLES: u32 = 100;

/// Types with large samples.
const LARGE_TYPES: [&str; 4] = [
    "std/Image",
    "std/CompressedImage",
    "std/PointCloud",
    "std/LaserScan",
];

/// The warnings of the file, deep queues and unread outputs.
pub fn hints(dataflow: &Dataflow, warnings: &[Diagnostic]) -> Vec<Hint> {
    let warnings = warnings.iter().map(|warning| Hint {
        code: warning.code.as_str(),
        about: warning.file.clone(),
        what: warning.message.clone(),
        remedy: Remedy::action(warning.hint.clone().unwrap_or_default()),
        place: Place::Line(
            warning
                .location
                .as_ref()
                .map_or(0, |location| location.line),
        ),
    });
    warnings
        .chain(deep_queues(dataflow))
        .chain(unread_outputs(dataflow))
        .collect()
}

fn deep_queues(dataflow: &Dataflow) -> impl Iterator<Item = Hint> {
    dataflow.edges.iter().filter_map(|edge| {
        let node = &dataflow.nodes[edge.to.node];
        let input = dataflow.input(edge);
        let output = &dataflow.nodes[edge.from.node].outputs[edge.from.output];
        let type_name = output
            .type_name
            .as_ref()
            .or(input.type_name.as_ref())?
            .name()
            .to_owned();
        let is_deep = input.queue.depth >= DEEP_QUEUE_SAMPLES;
        (is_deep && LARGE_TYPES.contains(&type_name.as_str())).then(|| Hint {
            code: "deep-queue",
            about: format!("{}/{}", node.id, input.name),
            what: format!(
                "up to {} samples of type `{type_name}` may wait here, and each takes memory",
                input.queue.depth
            ),
            remedy: Remedy::for_deep_queue(input.queue.depth),
            place: Place::Input {
                node: node.id.clone(),
                input: input.name.clone(),
            },
        })
    })
}

fn unread_outputs(dataflow: &Dataflow) -> impl Iterator<Item = Hint> {
    let read: BTreeSet<(usize, usize)> = dataflow
        .nodes
        .iter()
        .flat_map(|node| &node.inputs)
        .filter_map(|input| match input.source {
            Source::Output { node, output } => Some((node, output)),
            Source::Timer { .. } => None,
        })
        .collect();
    let outputs = dataflow.nodes.iter().enumerate().flat_map(|(node, spec)| {
        spec.outputs
            .iter()
            .enumerate()
            .map(move |(output, of)| ((node, output), &spec.id, &of.name))
    });
    outputs
        .filter(move |(index, _, name)| !read.contains(index) && !name.contains('~'))
        .map(|(_, node, output)| unread(node, output))
}
