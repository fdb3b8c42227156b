//! Checks the roles of machines that nodes name, and keys that work on one machine only.

use nervure_protocol::graph::Program;
use nervure_protocol::nearest;

use crate::diagnostic::{Code, Finding, Findings};
use crate::parsed::{ParsedDataflow, ParsedNode};
use crate::quote::{listed, quoted};

pub(crate) fn check_machines(parsed: &ParsedDataflow, findings: &mut Findings<'_>) {
    for node in &parsed.nodes {
        check_role(parsed, node, findings);
        check_log_outputs(parsed, node, findings);
    }
}

/// Role of the machine of a node, as in [`crate::Node::machine`].
pub(crate) fn role_of<'p>(parsed: &'p ParsedDataflow, node: &'p ParsedNode) -> Option<&'p str> {
    let role = node.machine.as_ref().or(parsed.machines.first())?;
    Some(&role.text)
}

fn check_role(parsed: &ParsedDataflow, node: &ParsedNode, findings: &mut Findings<'_>) {
    let Some(role) = &node.machine else { return };
    let is_known = parsed.machines.iter().any(|known| known.text == role.text);
    if is_known || !parsed.machines_complete {
        return;
    }
    let names = || parsed.machines.iter().map(|known| known.text.as_str());
    let message = format!("there is no machine {}", quoted(&role.text));
    let finding = Finding::error(Code::UnknownMachine, role.span, message);
    findings.push(finding.nearest(nearest(&role.text, names()), || {
        Some(match parsed.machines.is_empty() {
            true => format!("add `machines: {{{}: {{}}}}` to the dataflow", role.text),
            false => format!("the machines are {}", listed(names())),
        })
    }));
}

/// The lines of nodes on other machines do not arrive.
fn check_log_outputs(parsed: &ParsedDataflow, node: &ParsedNode, findings: &mut Findings<'_>) {
    let program = node.program.as_ref().map(|located| &located.program);
    if parsed.machines.len() > 1 && matches!(program, Some(Program::LogOutputs(_))) {
        let message = "logs as samples are of one machine, and this dataflow has several";
        let finding = Finding::error(Code::MachineBoundary, node.span, message);
        findings.push(finding.hint("until a later version, send them as outputs of the node"));
    }
}
