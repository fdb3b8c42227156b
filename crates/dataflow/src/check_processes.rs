//! Checks nodes that share a process, and nodes that are components.

use std::collections::BTreeMap;

use nervure_protocol::graph::Program;

use crate::check_machines::role_of;
use crate::diagnostic::{Code, Finding, Findings};
use crate::parsed::{ParsedDataflow, ParsedNode};
use crate::quote::quoted;
use crate::tree::Text;

pub(crate) fn check_processes(parsed: &ParsedDataflow, findings: &mut Findings<'_>) {
    let mut first_of_process: BTreeMap<&str, &ParsedNode> = BTreeMap::new();
    for node in &parsed.nodes {
        check_arguments(node, findings);
        let Some(process) = &node.process else {
            continue;
        };
        if let Some(finding) = check_kind(node, process).or_else(|| check_name(parsed, process)) {
            findings.push(finding);
            continue;
        }
        match first_of_process.get(process.text.as_str()) {
            None => {
                first_of_process.insert(&process.text, node);
            }
            Some(first) => match check_one_kind(first, node, process) {
                Some(finding) => findings.push(finding),
                None => check_pair(parsed, first, node, process, findings),
            },
        }
    }
}

fn is_component(node: &ParsedNode) -> bool {
    let program = node.program.as_ref().map(|located| &located.program);
    matches!(program, Some(Program::Component(_)))
}

fn id(node: &ParsedNode) -> &str {
    node.id.as_ref().map_or("?", |id| &id.text)
}

/// A component shares the arguments of its process, which it has no access to.
fn check_arguments(node: &ParsedNode, findings: &mut Findings<'_>) {
    let Some(span) = node.args_span.filter(|_| is_component(node)) else {
        return;
    };
    let message = "a component has no arguments: it is a part of a process";
    let finding = Finding::error(Code::ConflictingKeys, span, message);
    findings.push(finding.hint("give it `params` instead, which it reads by name"));
}

/// Components share a process with components, and Python with Python.
fn check_one_kind(first: &ParsedNode, node: &ParsedNode, process: &Text) -> Option<Finding> {
    let kind = |node: &ParsedNode| match &node.program.as_ref()?.program {
        Program::Component(_) => Some("a component"),
        program if program.is_python() => Some("Python"),
        _ => None,
    };
    let (first_kind, kind) = (kind(first)?, kind(node)?);
    if first_kind == kind {
        return None;
    }
    let message = format!(
        "the process {} would be of two kinds: `{}` is {first_kind}, `{}` is {kind}",
        quoted(&process.text),
        id(first),
        id(node)
    );
    let finding = Finding::error(Code::ConflictingKeys, process.span, message);
    Some(finding.hint("put components into one process and nodes in Python into another"))
}

/// Only components and Python can share a process.
fn check_kind(node: &ParsedNode, process: &Text) -> Option<Finding> {
    // A program that could not be read may be a component.
    let program = &node.program.as_ref()?.program;
    let (what, hint) = match program {
        Program::Component(_) | Program::Python(_) | Program::Function(_) => return None,
        Program::Dynamic => return None,
        Program::Executable(_) | Program::Command(_) => (
            "a program with a process of its own",
            "make it a component, a shared library with `nervure_node::component!` or `NERVURE_COMPONENT`, or write it in Python, and name that in `path`; or remove `process`",
        ),
        Program::Operators(_) => (
            "a host of operators",
            "remove `process`: the operators of a node share its process already",
        ),
        Program::LogOutputs(_) | Program::Remote { .. } => {
            ("a part of Nervure", "remove `process`")
        }
    };
    let message = format!(
        "`process` is for components and Python, and `{}` is {what}",
        id(node)
    );
    Some(Finding::error(Code::ConflictingKeys, process.span, message).hint(hint))
}

/// Logs have the name of the process or of the node.
fn check_name(parsed: &ParsedDataflow, process: &Text) -> Option<Finding> {
    let mut ids = parsed.nodes.iter().filter_map(|node| node.id.as_ref());
    ids.find(|id| id.text == process.text)?;
    let message = format!(
        "a node has the name of the process {}",
        quoted(&process.text)
    );
    let finding = Finding::error(Code::InvalidName, process.span, message);
    Some(finding.hint("choose another name: logs are found by the name of a node or a process"))
}

/// Nodes of a process must agree on its machine, its working directory and its environment.
fn check_pair(
    parsed: &ParsedDataflow,
    first: &ParsedNode,
    node: &ParsedNode,
    process: &Text,
    findings: &mut Findings<'_>,
) {
    let (here, there) = (role_of(parsed, node), role_of(parsed, first));
    if here != there {
        let on = |role: Option<&str>| role.map_or_else(|| "no machine".to_owned(), quoted);
        let message = format!(
            "the process {} would be on two machines: `{}` is on {}, `{}` on {}",
            quoted(&process.text),
            id(first),
            on(there),
            id(node),
            on(here),
        );
        let finding = Finding::error(Code::MachineBoundary, process.span, message);
        findings.push(finding.hint("put its nodes on one machine, or into two processes"));
    }
    if first.settings.folder != node.settings.folder {
        let message = format!(
            "the process {} would have two working directories: those of `{}` and `{}`",
            quoted(&process.text),
            id(first),
            id(node)
        );
        let finding = Finding::error(Code::ConflictingKeys, process.span, message);
        findings
            .push(finding.hint("build its nodes in one folder, or put them into two processes"));
    }
    let theirs = &first.settings.env;
    let differs =
        |(name, value): &(&String, &String)| theirs.get(*name).is_none_or(|other| other != *value);
    let own = &node.settings.env;
    let missing = || theirs.keys().find(|name| !own.contains_key(*name));
    if let Some(name) = own
        .iter()
        .find(differs)
        .map(|(name, _)| name)
        .or_else(missing)
    {
        let message = format!(
            "the variable {} is not the same for `{}` and `{}`, which share the process {}",
            quoted(name),
            id(first),
            id(node),
            quoted(&process.text)
        );
        let finding = Finding::error(Code::ConflictingKeys, process.span, message);
        findings.push(finding.hint(
            "a process has one environment: set the variable for the dataflow or for each of its nodes, or use `params`",
        ));
    }
}
