//! Gives nodes with `transforms: true` the transforms of the whole dataflow: an input for each output
//! that sends some, and those of the file.
//!
//! The names of these inputs contain a `~`, as those of requests do.

use nervure_protocol::graph::{StaticTransform, TRANSFORM_TYPE};
use nervure_protocol::wiring::{Policy, topic};

use crate::diagnostic::{Code, Finding, Findings};
use crate::graph::{Edge, Input, InputIndex, InputQueue, Node, OutputIndex, Source};
use crate::name::TypeName;
use crate::parsed::ParsedDataflow;

/// Transforms of an output that wait while the node computes: a second at 100 Hz. Beyond it the oldest
/// are dropped, and lookups interpolate across the gap.
const QUEUE_SIZE: u32 = 100;

/// Warns of nodes that can look up nothing.
pub(crate) fn check(parsed: &ParsedDataflow, findings: &mut Findings<'_>) {
    let outputs = || parsed.nodes.iter().flat_map(|node| &node.outputs);
    let is_sent = outputs().any(|output| {
        let declared = output.type_name.as_ref();
        declared.is_some_and(|declared| is_transform(&declared.value))
    });
    let is_complete = parsed.nodes.iter().all(|node| node.outputs_complete);
    if is_sent || !is_complete || !parsed.static_transforms.is_empty() {
        return;
    }
    for node in &parsed.nodes {
        if let (Some(_), Some(id)) = (&node.settings.transforms, &node.id) {
            let message = format!("`{}` looks up transforms, and the file has none", id.text);
            let finding = Finding::warning(Code::UselessKey, id.span, message).hint(format!(
                "declare the outputs that send them, `outputs: {{pose: {{type: {TRANSFORM_TYPE}}}}}`, or add `static_transforms`"
            ));
            findings.push(finding);
        }
    }
}

/// Adds the inputs to a graph without them.
pub(crate) fn connect(nodes: &mut [Node], edges: &mut Vec<Edge>, fixed: &[StaticTransform]) {
    let mut senders = Vec::new();
    for (node, spec) in nodes.iter().enumerate() {
        for (output, spec) in spec.outputs.iter().enumerate() {
            if spec.type_name.as_ref().is_some_and(is_transform) {
                senders.push(OutputIndex { node, output });
            }
        }
    }
    for node in 0..nodes.len() {
        if nodes[node].settings.transforms.is_none() {
            continue;
        }
        let mut inputs = Vec::new();
        for &from in &senders {
            let input = input(nodes, from);
            inputs.push(nodes[node].inputs.len());
            edges.push(Edge {
                from,
                to: InputIndex {
                    node,
                    input: nodes[node].inputs.len(),
                },
            });
            nodes[node].inputs.push(input);
        }
        if let Some(transforms) = &mut nodes[node].settings.transforms {
            transforms.inputs = inputs;
            transforms.fixed = fixed.to_vec();
        }
    }
}

fn is_transform(declared: &TypeName) -> bool {
    TRANSFORM_TYPE
        .parse()
        .is_ok_and(|known: TypeName| *declared == known)
}

fn input(nodes: &[Node], from: OutputIndex) -> Input {
    let OutputIndex { node, output } = from;
    let sender = &nodes[node].outputs[output];
    Input {
        name: format!("transforms~{}", topic(&nodes[node].id, &sender.name)),
        source: Source::Output { node, output },
        queue: InputQueue::new(Policy::DropOldest, QUEUE_SIZE),
        type_name: sender.type_name.clone(),
        expect_every: None,
        qos: Default::default(),
        line: 0,
    }
}
