//! Looks up names: the node and output that each input reads from.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::path::Path;

use nervure_protocol::nearest;
use nervure_types::{ComparedField, Difference, compare, side_by_side};

use crate::diagnostic::{Code, Definitions, Finding, Findings};
use crate::graph::{Dataflow, Edge, Input, InputIndex, Node, Output, OutputIndex, Source};
use crate::keys::Shape;
use crate::name::{check_name, repair_name};
use crate::parsed::{
    LocatedProgram, ParsedDataflow, ParsedInput, ParsedNode, ParsedOutput, ParsedSource,
};
use crate::quote::{listed, quoted};
use crate::resolve_services::{self, FoundClient, Servers};
use crate::resolve_transforms;
use crate::source::Span;
use crate::tree::Text;

/// The source of each input of each node; `None` if it was not found, which is reported.
pub(crate) type Sources = Vec<Vec<Option<Source>>>;

/// Finds the source of every input.
pub(crate) fn resolve(parsed: &ParsedDataflow, findings: &mut Findings<'_>) -> Sources {
    let mut by_id: HashMap<&str, usize> = HashMap::new();
    for (index, node) in parsed.nodes.iter().enumerate() {
        let Some(id) = &node.id else { continue };
        if let Some(first) = by_id
            .get(id.text.as_str())
            .and_then(|&first| parsed.nodes[first].id.as_ref())
        {
            let finding = Finding::error(
                Code::DuplicateNode,
                id.span,
                format!("two nodes have the id {}", quoted(&id.text)),
            )
            .hint("give one of them another id")
            .related(first.span, "first here");
            findings.push(finding);
            continue;
        }
        by_id.insert(&id.text, index);
    }
    let mut by_output = HashMap::new();
    for (index, node) in parsed.nodes.iter().enumerate() {
        for (output_index, output) in node.outputs.iter().enumerate() {
            by_output
                .entry((index, output.name.text.as_str()))
                .or_insert(output_index);
        }
    }
    let resolver = Resolver {
        parsed,
        by_id,
        by_output,
    };
    let nodes = parsed.nodes.iter();
    nodes
        .map(|node| {
            node.inputs
                .iter()
                .map(|input| resolver.source(input, findings))
                .collect()
        })
        .collect()
}

struct Resolver<'p> {
    parsed: &'p ParsedDataflow,
    by_id: HashMap<&'p str, usize>,
    /// Outputs by node and name.
    by_output: HashMap<(usize, &'p str), usize>,
}

impl Resolver<'_> {
    fn source(&self, input: &ParsedInput, findings: &mut Findings<'_>) -> Option<Source> {
        let (node, output) = match &input.source {
            // Logs have become outputs of a node.
            ParsedSource::Invalid | ParsedSource::Logs { .. } => return None,
            ParsedSource::Timer { period_nanos } => {
                return Some(Source::Timer {
                    period_nanos: *period_nanos,
                });
            }
            ParsedSource::Node { node } => {
                findings.push_error_with(|| self.missing_output(node));
                return None;
            }
            ParsedSource::Output { node, output } => (node, output),
        };
        let Some(&node_index) = self.by_id.get(node.text.as_str()) else {
            findings.push_error_with(|| self.unknown_node(node, output));
            return None;
        };
        let producer = &self.parsed.nodes[node_index];
        let by_name = |name: &str| self.by_output.get(&(node_index, name)).copied();
        let of_operator = || {
            let operator = producer.single_operator.as_ref()?;
            by_name(&format!("{operator}/{}", output.text))
        };
        let Some(output_index) = by_name(&output.text).or_else(of_operator) else {
            // An output that could not be read may be this one.
            if producer.outputs_complete {
                findings.push_error_with(|| self.unknown_output(producer, node, output));
            }
            return None;
        };
        let source = Source::Output {
            node: node_index,
            output: output_index,
        };
        self.check_types(input, producer, output_index, findings);
        Some(source)
    }

    /// The finding for `camera` instead of `camera/image`.
    fn missing_output(&self, source: &Text) -> Finding {
        let finding = Finding::error(
            Code::InvalidSource,
            source.span,
            "the source names no output",
        )
        .expected(Shape::Source.describe());
        // `camera.image` is a common mistake.
        let (node, output) = source
            .text
            .split_once(['.', ':'])
            .unwrap_or((&source.text, ""));
        let index = self
            .by_id
            .get(source.text.as_str())
            .or_else(|| self.by_id.get(node));
        let producer = index.map(|&index| &self.parsed.nodes[index]);
        let names: Vec<&str> = producer.map_or_else(Vec::new, |producer| {
            let outputs = producer.outputs.iter();
            outputs.map(|known| producer.source_name(known)).collect()
        });
        let written = names.iter().find(|name| **name == output);
        match (written, names.as_slice()) {
            (Some(name), _) | (None, [name]) => {
                let suggestion = format!("{node}/{name}");
                finding.nearest(Some(&suggestion), || None)
            }
            (None, []) => finding,
            (None, names) => finding.hint(format!(
                "the outputs of {} are {}",
                quoted(node),
                listed(names.iter().copied())
            )),
        }
    }

    fn unknown_node(&self, node: &Text, output: &Text) -> Finding {
        let ids = || {
            self.parsed
                .nodes
                .iter()
                .filter_map(|node| node.id.as_ref())
                .map(|id| id.text.as_str())
        };
        let finding = Finding::error(
            Code::UnknownNode,
            node.span,
            format!("there is no node {}", quoted(&node.text)),
        );
        finding.nearest(nearest(&node.text, ids()), || {
            let owner = self.parsed.nodes.iter().find(|node| {
                node.outputs
                    .iter()
                    .any(|known| known.name.text == output.text)
            });
            match owner.and_then(|owner| owner.id.as_ref()) {
                Some(owner) => Some(format!("`{}` has an output `{}`", owner.text, output.text)),
                None => Some(format!("the nodes are {}", listed(ids()))),
            }
        })
    }

    fn unknown_output(&self, producer: &ParsedNode, node: &Text, output: &Text) -> Finding {
        let names = || {
            producer
                .outputs
                .iter()
                .map(|known| producer.source_name(known))
        };
        let message = format!(
            "the node {} has no output {}",
            quoted(&node.text),
            quoted(&output.text)
        );
        let mut finding = Finding::error(Code::UnknownOutput, output.span, message);
        if let Some(id) = &producer.id {
            finding = finding.related(id.span, "this node");
        }
        finding.nearest(nearest(&output.text, names()), || {
            if producer.outputs.is_empty() {
                return Some(format!(
                    "the node has no outputs: add `outputs: [{}]` to it",
                    output.text
                ));
            }
            Some(format!("its outputs are {}", listed(names())))
        })
    }

    fn check_types(
        &self,
        input: &ParsedInput,
        producer: &ParsedNode,
        output_index: usize,
        findings: &mut Findings<'_>,
    ) {
        let output = &producer.outputs[output_index];
        let (Some(expected), Some(sent)) = (&input.type_name, &output.type_name) else {
            return;
        };
        if expected.value == sent.value {
            return check_definitions(input, output, findings);
        }
        let message = format!(
            "the input {} expects `{}`, and the output {} sends `{}`",
            quoted(&input.name.text),
            expected.value,
            quoted(&output.name.text),
            sent.value
        );
        let hint = if expected.value.name() != sent.value.name() {
            "declare the same type on both sides, or read from another output"
        } else if expected.value.version().is_none() || sent.value.version().is_none() {
            "only one of them has a version: write it on both sides"
        } else {
            "these are two versions of one type: bring both nodes to the same"
        };
        let is_strict = self.parsed.strict_types || expected.is_strict || sent.is_strict;
        let finding = match is_strict {
            true => Finding::error(Code::TypeMismatch, expected.span, message),
            false => Finding::warning(Code::TypeMismatch, expected.span, message),
        };
        let finding = finding
            .expected(format!("`{}`", sent.value))
            .hint(hint)
            .related(sent.span, "the output's type");
        findings.push(finding);
    }
}

/// Reports an edge whose ends have different definitions of one type: those of two modules.
fn check_definitions(input: &ParsedInput, output: &ParsedOutput, findings: &mut Findings<'_>) {
    let (Some(expected), Some(sent)) = (&input.type_name, &output.type_name) else {
        return;
    };
    let (Some(of_input), Some(of_output)) = (&expected.defined, &sent.defined) else {
        return;
    };
    // Either end may be the older one.
    let differences = compare(&of_input.definition, &of_output.definition);
    let reverse = compare(&of_output.definition, &of_input.definition);
    let is_compatible = |found: &[Difference]| found.iter().all(Difference::is_compatible);
    if is_compatible(&differences) || is_compatible(&reverse) {
        return;
    }
    let fields = side_by_side(&of_input.definition, &of_output.definition);
    let differing = fields.iter().filter(|field| field.differs);
    let differing = listed(differing.map(ComparedField::name));
    let message = format!(
        "the input {} and the output {} have different definitions of `{}`",
        quoted(&input.name.text),
        quoted(&output.name.text),
        sent.value
    );
    let finding = Finding::error(Code::TypeMismatch, expected.span, message)
        .expected(format!("the definition in {}", of_output.file))
        .definitions(Definitions {
            files: [&of_input.file, &of_output.file].map(|file| file.to_string()),
            fields,
        })
        .hint(format!(
            "they differ in {differing}: make them equal, or give one of them another version"
        ))
        .related(sent.span, "the output's type");
    findings.push(finding);
}

/// The dataflow, if every name and every program was found.
pub(crate) fn assemble(
    parsed: ParsedDataflow,
    sources: Sources,
    servers: Servers,
    directory: &Path,
    file_name: &str,
    line_of: impl Fn(Span) -> usize,
) -> Option<Dataflow> {
    let ParsedDataflow {
        name,
        env,
        nodes,
        machines,
        labels,
        resources,
        static_transforms,
        ..
    } = parsed;
    let machines: Vec<String> = machines.into_iter().map(|role| role.text).collect();
    let mut assembled = Vec::with_capacity(nodes.len());
    let mut clients = Vec::with_capacity(nodes.len());
    let looked_up = sources.into_iter().zip(servers);
    for (mut node, (sources, servers)) in nodes.into_iter().zip(looked_up) {
        let of_node: Option<Vec<_>> = mem::take(&mut node.clients)
            .into_iter()
            .zip(servers)
            .map(|(client, found)| {
                found.map(|(server, service)| FoundClient {
                    name: client.name.text,
                    server,
                    service,
                })
            })
            .collect();
        clients.push(of_node?);
        let mut node = assemble_node(node, sources, &env, &line_of)?;
        node.machine = node.machine.or_else(|| machines.first().cloned());
        assembled.push(node);
    }
    let mut edges = edges(&assembled);
    resolve_transforms::connect(&mut assembled, &mut edges, &static_transforms);
    resolve_services::connect(&mut assembled, &mut edges, clients);
    Some(Dataflow {
        name: name.map_or_else(|| default_name(directory, file_name), |name| name.text),
        directory: directory.to_owned(),
        env,
        nodes: assembled,
        edges,
        machines,
        labels,
        resources,
        static_transforms,
    })
}

/// A node without its clients; `env` is the environment of the dataflow.
fn assemble_node(
    node: ParsedNode,
    sources: Vec<Option<Source>>,
    env: &BTreeMap<String, String>,
    line_of: impl Fn(Span) -> usize,
) -> Option<Node> {
    let mut settings = node.settings;
    let own = mem::replace(&mut settings.env, env.clone());
    settings.env.extend(own);
    let inputs = node.inputs.into_iter().zip(sources).map(|(input, source)| {
        Some(Input {
            line: line_of(input.name.span),
            name: input.name.text,
            source: source?,
            queue: input.queue,
            type_name: input.type_name.map(|type_name| type_name.value),
            expect_every: input.expect_every,
            qos: input.qos,
        })
    });
    let declared = node
        .outputs
        .iter()
        .filter_map(|output| output.type_name.as_ref());
    let types = declared.filter_map(|declared| {
        let defined = declared.defined.as_ref()?;
        Some((declared.value.to_string(), defined.definition.clone()))
    });
    let types = types.collect();
    let outputs = node.outputs.into_iter().map(|output| Output {
        line: line_of(output.name.span),
        name: output.name.text,
        history: output.history,
        type_name: output.type_name.map(|type_name| type_name.value),
    });
    let services = node.services.into_iter();
    let LocatedProgram { program, is_built } = node.program?;
    Some(Node {
        id: node.id?.text,
        machine: node.machine.map(|role| role.text),
        stops_on_partition: node.stops_on_partition,
        name: node.name,
        description: node.description,
        program,
        is_built,
        settings,
        build: node.build,
        git: node.git,
        inputs: inputs.collect::<Option<_>>()?,
        outputs: outputs.collect(),
        types,
        services: services
            .map(|service| resolve_services::service(service.name.text, service.action))
            .collect(),
        clients: Vec::new(),
        shared_memory: node.shared_memory,
        line: line_of(node.span),
    })
}

/// The edges to the inputs of `nodes`, in the order of the file.
fn edges(nodes: &[Node]) -> Vec<Edge> {
    let mut edges = Vec::new();
    for (consumer, node) in nodes.iter().enumerate() {
        for (input, declared) in node.inputs.iter().enumerate() {
            if let Source::Output { node, output } = declared.source {
                edges.push(Edge {
                    from: OutputIndex { node, output },
                    to: InputIndex {
                        node: consumer,
                        input,
                    },
                });
            }
        }
    }
    edges
}

/// The name of the file without its extension, or of its folder if the file has the generic name
/// `dataflow.yml`.
fn default_name(directory: &Path, file_name: &str) -> String {
    let stem = Path::new(file_name)
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    let folder = directory
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let candidates = if stem == "dataflow" {
        [folder, stem]
    } else {
        [stem, folder]
    };
    let names = candidates.iter().filter_map(|name| match check_name(name) {
        Ok(()) => Some((*name).to_owned()),
        Err(_) => repair_name(name),
    });
    names
        .into_iter()
        .next()
        .unwrap_or_else(|| "dataflow".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataflow_without_a_name_takes_that_of_its_file_or_folder() {
        assert_eq!(
            default_name(Path::new("/robots/drive"), "dataflow.yml"),
            "drive"
        );
        assert_eq!(
            default_name(Path::new("/robots/drive"), "night run.yaml"),
            "night_run"
        );
        assert_eq!(default_name(Path::new("/"), "dataflow.yml"), "dataflow");
        assert_eq!(default_name(Path::new("/ドライブ"), "流れ.yml"), "dataflow");
    }
}
