//! Checks the roles of machines that nodes name, and what cannot cross a link.

use nervure_protocol::graph::Program;
use nervure_protocol::nearest;

use crate::diagnostic::{Code, Finding, Findings};
use crate::parsed::{ParsedDataflow, ParsedNode};
use crate::quote::{listed, quoted};
use crate::resolve_services::Servers;

pub(crate) fn check_machines(
    parsed: &ParsedDataflow,
    servers: &Servers,
    findings: &mut Findings<'_>,
) {
    for node in &parsed.nodes {
        check_role(parsed, node, findings);
        check_log_outputs(parsed, node, findings);
    }
    for (node, servers) in parsed.nodes.iter().zip(servers) {
        for (client, found) in node.clients.iter().zip(servers) {
            let Some(server) = found.map(|(server, _)| &parsed.nodes[server]) else {
                continue;
            };
            let (here, there) = (role_of(parsed, node), role_of(parsed, server));
            if here != there {
                let message = format!(
                    "the service {} is on another machine than its client",
                    quoted(&client.service.text)
                );
                let finding = Finding::error(Code::MachineBoundary, client.service.span, message);
                findings.push(finding.hint(
                    "requests do not cross machines in this version: put both nodes on one machine, or use an output for each direction",
                ));
            }
        }
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
