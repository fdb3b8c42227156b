//! Checks a dataflow against the limits of shared memory and of control messages, so that a dataflow
//! beyond them is refused with its line, and does not fail after the start of its nodes.

use nervure_dataflow::{Code, Dataflow, Diagnostic, Location, Report, Severity, Span};
use nervure_keeper::plan::{NodePlan, OBSERVERS_PER_OUTPUT};
use nervure_protocol::{
    MAX_MESSAGE_BYTES, ProtocolError, VERSIONS, encode,
    keeper_to_node::{Message, Welcome},
    params::Param,
    wiring::MAX_NODE_INPUTS,
};
use nervure_shm::{MAX_BLOCKS, MAX_COUNTER_ROWS};

use crate::plan::{NodePlans, plan_nodes};

/// Adds an error to the report for each limit that its dataflow exceeds.
pub fn check(report: &mut Report) {
    let Some(dataflow) = &report.dataflow else {
        return;
    };
    let plan = plan_nodes(dataflow, u64::MAX);
    let excesses: Vec<Excess> = (0..plan.nodes.len())
        .flat_map(|node| excesses(dataflow, &plan, node))
        .collect();
    if excesses.is_empty() {
        return;
    }
    for excess in excesses {
        report.diagnostics.push(Diagnostic {
            severity: Severity::Error,
            code: Code::OutOfRange,
            message: excess.message,
            file: report.source.name().to_owned(),
            location: location(report, excess.line),
            expected: Some(excess.expected),
            hint: Some(excess.hint.to_owned()),
            suggestion: None,
            related: Vec::new(),
            definitions: None,
        });
    }
    report.dataflow = None;
    report
        .diagnostics
        .sort_by_key(|found| found.location.as_ref().map_or(usize::MAX, |at| at.line));
}

/// A limit that a node exceeds.
struct Excess {
    /// The line of the node or output.
    line: usize,
    message: String,
    expected: String,
    hint: &'static str,
}

fn excesses(dataflow: &Dataflow, plan: &NodePlans, index: usize) -> Vec<Excess> {
    let (spec, node) = (&dataflow.nodes[index], &plan.nodes[index]);
    let (id, line) = (&spec.id, spec.line);
    let mut excesses = Vec::new();
    if node.inputs.len() > MAX_NODE_INPUTS as usize {
        excesses.push(Excess {
            line,
            message: format!(
                "node `{id}` has {} inputs, one for each client of its services included",
                node.inputs.len()
            ),
            expected: format!("at most {MAX_NODE_INPUTS} inputs"),
            hint: "divide the node, or let another node combine some of its inputs",
        });
    }
    let edges = plan.edges.iter().filter(|edge| edge.producer == index);
    let rows = edges.count() + OBSERVERS_PER_OUTPUT as usize * node.outputs.len();
    if rows > MAX_COUNTER_ROWS as usize {
        excesses.push(Excess {
            line,
            message: format!(
                "node `{id}` needs {rows} rows of counters: {OBSERVERS_PER_OUTPUT} for each of its {} \
                 outputs, and 1 for each input that reads one",
                node.outputs.len()
            ),
            expected: format!("at most {MAX_COUNTER_ROWS} rows"),
            hint: "divide the node, or combine some of its outputs",
        });
    }
    for (output, declared) in spec.outputs.iter().zip(&node.outputs) {
        if declared.blocks > MAX_BLOCKS {
            excesses.push(Excess {
                line: if output.line > 0 { output.line } else { line },
                message: format!(
                    "{} samples of `{id}/{}` may be in use at once",
                    declared.blocks, output.name
                ),
                expected: format!("at most {MAX_BLOCKS} samples"),
                hint: "lower `max_held` of the inputs that read this output",
            });
        }
    }
    if let Some(bytes) = oversized_welcome(&dataflow.name, node) {
        excesses.push(Excess {
            line,
            message: format!(
                "the declarations of node `{id}` take {bytes} bytes as a control message ({} inputs, \
                 {} outputs, {} parameters)",
                node.inputs.len(),
                node.outputs.len(),
                node.settings.params.len()
            ),
            expected: format!("at most {MAX_MESSAGE_BYTES} bytes"),
            hint: "divide the node, or use shorter names, or smaller definitions of types",
        });
    }
    excesses
}

/// The size in bytes of the message that welcomes a node, if it exceeds the limit.
fn oversized_welcome(dataflow: &str, node: &NodePlan) -> Option<usize> {
    let param = |spec: &nervure_protocol::params::ParamSpec| Param {
        name: spec.name.clone(),
        value: spec.value.clone(),
    };
    let welcome = Welcome {
        version: VERSIONS.max,
        dataflow: dataflow.to_owned(),
        node: node.id.clone(),
        incarnation: u32::MAX,
        manual_ready: false,
        shared_memory_bytes: node.shared_memory_bytes,
        outputs: node.outputs.clone(),
        types: node.types.clone(),
        inputs: node.inputs.clone(),
        services: node.services.clone(),
        clients: node.clients.clone(),
        params: node.settings.params.iter().map(param).collect(),
        loop_deadline: node.settings.loop_deadline,
        sync: node.settings.sync.clone(),
        transforms: node.settings.transforms.clone().map(Box::new),
        memory_lock: node.settings.memory_lock,
    };
    match encode(&Message::Welcome(Box::new(welcome))) {
        Err(ProtocolError::TooLarge { bytes }) => Some(bytes),
        _ => None,
    }
}

/// The text of a line, without its indentation.
fn location(report: &Report, line: usize) -> Option<Location> {
    let text = report.source.text();
    let before: usize = text
        .split_inclusive('\n')
        .take(line.checked_sub(1)?)
        .map(str::len)
        .sum();
    let line = text[before..].lines().next()?;
    let indent = line.len() - line.trim_start().len();
    Some(report.source.locate(Span {
        start: before + indent,
        end: before + line.trim_end().len(),
    }))
}
