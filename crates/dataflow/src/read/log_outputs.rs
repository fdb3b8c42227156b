//! Outputs and inputs for what nodes write to stdout and stderr: dora's `send_stdout_as`,
//! `send_logs_as` and `dora/logs`.
//!
//! A separate node sends these samples, because the nodes that write the lines cannot. Its outputs
//! have the topics that the file names.

use std::collections::HashSet;

use nervure_protocol::graph::{LogForm, LogOutputSpec, NodeSettings, Program};
use nervure_protocol::{nearest, wiring};

use super::map::Keys;
use super::outputs::plain_output;
use super::reader::Reader;
use crate::diagnostic::{Code, Finding};
use crate::keys::LOG_LEVELS;
use crate::parsed::{LocatedProgram, ParsedLogOutput, ParsedNode, ParsedOutput, ParsedSource};
use crate::quote::quoted;
use crate::tree::Text;

/// Id of the node that sends the lines of others.
const SENDER: &str = "nervure-logs";

/// The outputs for lines of a node or operator. Takes them out of `outputs`: the node itself does
/// not send on them.
pub(super) fn read_log_outputs(
    reader: &mut Reader<'_>,
    keys: &Keys<'_>,
    outputs: &mut Vec<ParsedOutput>,
) -> Vec<ParsedLogOutput> {
    let min_level = keys
        .value("min_log_level")
        .and_then(|value| reader.one_of(value, LOG_LEVELS));
    let forms = [
        ("send_stdout_as", LogForm::Line),
        ("send_logs_as", LogForm::Record),
    ];
    let mut found: Vec<ParsedLogOutput> = Vec::new();
    for (key, form) in forms {
        let Some(name) = keys
            .value(key)
            .and_then(|value| reader.port_name(value, "output"))
        else {
            continue;
        };
        if let Some(other) = found
            .iter()
            .find(|other| other.output.name.text == name.text)
        {
            let message = "`send_stdout_as` and `send_logs_as` name the same output";
            let finding = Finding::error(Code::ConflictingKeys, name.span, message);
            reader.report(finding.related(other.output.name.span, "first here"));
            continue;
        }
        let declared = outputs
            .iter()
            .position(|output| output.name.text == name.text);
        found.push(ParsedLogOutput {
            output: declared.map_or_else(|| plain_output(name), |index| outputs.remove(index)),
            form,
            // dora sends every line of stdout, at any level.
            min_level: min_level.filter(|_| form == LogForm::Record),
        });
    }
    found
}

/// Adds the node that sends lines, and lets inputs read from it.
pub(super) fn add_log_outputs(reader: &mut Reader<'_>, nodes: &mut Vec<ParsedNode>) {
    let taken = |id: &str| nodes.iter().any(|node| node_id(node) == Some(id));
    let numbered = (2..).map(|number| format!("{SENDER}-{number}"));
    let Some(sender) = std::iter::once(SENDER.to_owned())
        .chain(numbered)
        .find(|id| !taken(id))
    else {
        return;
    };
    let mut sending = Sending::default();
    for node in nodes.iter_mut() {
        let Some(id) = node.id.as_ref().map(|id| id.text.clone()) else {
            continue;
        };
        for log in std::mem::take(&mut node.log_outputs) {
            let topic = format!("{id}/{}", log.output.name.text);
            let spec = LogOutputSpec {
                output: wiring::absolute_output(&topic),
                form: log.form,
                node: Some(id.clone()),
                except: None,
                min_level: log.min_level.map(str::to_owned),
            };
            sending.add(spec, log.output);
        }
    }
    check_filters(reader, nodes);
    for node in nodes.iter_mut() {
        read_from_sender(node, &sender, &mut sending);
    }
    if let Some(node) = sending.into_node(sender) {
        nodes.push(node);
    }
}

/// The outputs of the node that sends lines.
#[derive(Default)]
struct Sending {
    specs: Vec<LogOutputSpec>,
    outputs: Vec<ParsedOutput>,
    names: HashSet<String>,
}

impl Sending {
    fn add(&mut self, spec: LogOutputSpec, output: ParsedOutput) {
        self.names.insert(spec.output.clone());
        let name = Text {
            text: spec.output.clone(),
            ..output.name
        };
        self.outputs.push(ParsedOutput { name, ..output });
        self.specs.push(spec);
    }

    fn into_node(self, id: String) -> Option<ParsedNode> {
        let span = self.outputs.first()?.name.span;
        Some(ParsedNode {
            id: Some(Text { span, text: id }),
            span,
            machine: None,
            process: None,
            args_span: None,
            stops_on_partition: false,
            name: None,
            description: Some("Sends what other nodes write to stdout and stderr".to_owned()),
            program: Some(LocatedProgram::built(Program::LogOutputs(self.specs))),
            settings: NodeSettings::default(),
            build: None,
            git: None,
            inputs: Vec::new(),
            inputs_complete: true,
            outputs: self.outputs,
            log_outputs: Vec::new(),
            outputs_complete: true,
            services: Vec::new(),
            services_complete: true,
            clients: Vec::new(),
            shared_memory: None,
            single_operator: None,
        })
    }
}

/// Reports filters on nodes that do not exist.
fn check_filters(reader: &mut Reader<'_>, nodes: &[ParsedNode]) {
    let ids: HashSet<&str> = nodes.iter().filter_map(node_id).collect();
    for input in nodes.iter().flat_map(|node| &node.inputs) {
        if let ParsedSource::Logs {
            node: Some(node), ..
        } = &input.source
            && !ids.contains(node.text.as_str())
        {
            reader.report_with(|| {
                let message = format!("there is no node {}", quoted(&node.text));
                let near = nearest(&node.text, ids.iter().copied());
                Finding::error(Code::UnknownNode, node.span, message).nearest(near, || None)
            });
        }
    }
}

/// Lets the inputs of a node that read lines read from the node that sends them.
fn read_from_sender(node: &mut ParsedNode, sender: &str, sending: &mut Sending) {
    let Some(reader) = node.id.as_ref().map(|id| id.text.clone()) else {
        return;
    };
    for input in &mut node.inputs {
        let (span, output) = match &input.source {
            ParsedSource::Output {
                node: producer,
                output,
            } => {
                // An operator's output may be named without its id.
                let exact = wiring::absolute_output(&format!("{}/{}", producer.text, output.text));
                let ending = format!("/{}", output.text);
                let begin = format!("/{}/", producer.text);
                let found = sending.names.contains(&exact).then_some(exact).or_else(|| {
                    let mut names = sending.names.iter();
                    let is_meant =
                        |name: &&String| name.starts_with(&begin) && name.ends_with(&ending);
                    names.find(is_meant).cloned()
                });
                match found {
                    Some(name) => (producer.span, name),
                    None => continue,
                }
            }
            ParsedSource::Logs { min_level, node } => {
                let span = input.name.span;
                let spec = LogOutputSpec {
                    output: format!("logs/{reader}/{}", input.name.text),
                    form: LogForm::Record,
                    node: node.as_ref().map(|node| node.text.clone()),
                    except: Some(reader.clone()),
                    min_level: min_level.map(str::to_owned),
                };
                let name = spec.output.clone();
                let output = plain_output(Text {
                    span,
                    text: name.clone(),
                });
                sending.add(spec, output);
                (span, name)
            }
            _ => continue,
        };
        let text = |text: String| Text { span, text };
        input.source = ParsedSource::Output {
            node: text(sender.to_owned()),
            output: text(output),
        };
    }
}

fn node_id(node: &ParsedNode) -> Option<&str> {
    node.id.as_ref().map(|id| id.text.as_str())
}
