//! Reads the nodes of a file and of its modules: files whose nodes take the place of one node.
//!
//! As in dora, the ids of a module's nodes begin with the id of the node, and sources are
//! rewritten, so that later steps see no modules.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use super::args::{Arguments, unknown_argument};
use super::environment::read_environment;
use super::json::read_json;
use super::map::{Keys, duplicate_name, read_entries, read_keys};
use super::node::{Host, read_node};
use super::program::{ProgramLocator, read_build};
use super::reader::{Reader, wrong_type};
use super::sync::renumber_inputs;
use super::type_folders::read_type_folders;
use super::variables::{FilledType, Variables};
use crate::decode::decode;
use crate::diagnostic::{Code, Finding, Findings};
use crate::graph::InputQueue;
use crate::keys::{MODULE, MODULE_FILE, NODE, Shape};
use crate::parsed::{ParsedInput, ParsedNode, ParsedSource};
use crate::quote::{listed, quoted};
use crate::source::Span;
use crate::tree::{self, Entry, Kind, Text, Value};

/// Deepest nesting of modules, as in dora.
const MAX_DEPTH: usize = 8;
/// Maximum number of nodes after all modules were read.
const MAX_NODES: usize = 4_096;
/// The node in sources of a module that stands for the module's own inputs.
const OWN_INPUTS: &str = "_mod";
/// Keys of a node with a module. The other keys belong to the nodes of the module.
const KEYS: [&str; 8] = [
    "id",
    "name",
    "description",
    "module",
    "inputs",
    "params",
    "env",
    "deploy",
];

/// The nodes of a file, with those of its modules.
#[derive(Default)]
pub(super) struct Nodes {
    pub nodes: Vec<ParsedNode>,
    /// The outputs of each module, by the id of its node: the node and output that each stands for.
    /// `None` if the module has errors.
    modules: HashMap<String, Option<Outputs>>,
}

type Outputs = HashMap<String, (String, String)>;

/// Reads a list of nodes. `depth` is the number of modules around it.
pub(super) fn read_nodes(
    reader: &mut Reader<'_>,
    host: &Host<'_>,
    values: &[Value],
    depth: usize,
) -> Nodes {
    let mut read = Nodes::default();
    for value in values {
        if module_of(value).is_none() {
            read.nodes.extend(read_node(reader, host, value));
            continue;
        }
        read_module(reader, host, value, depth, &mut read);
        if read.nodes.len() > MAX_NODES {
            let message = format!("with their modules, the file has more than {MAX_NODES} nodes");
            reader.report(Finding::error(Code::OutOfRange, value.span, message));
            break;
        }
    }
    let Nodes { nodes, modules } = &mut read;
    for input in nodes.iter_mut().flat_map(|node| &mut node.inputs) {
        read_from_modules(reader, input, modules);
    }
    read
}

/// The items of a list of nodes.
pub(super) fn node_list<'t>(reader: &mut Reader<'_>, value: &'t Value) -> &'t [Value] {
    let Kind::List(items) = &value.kind else {
        let finding = wrong_type(value, Shape::Nodes.describe());
        reader.report(match &value.kind {
            Kind::Map(_) => {
                finding.hint("write each node as `- id: camera`, followed by its other keys")
            }
            _ => finding,
        });
        return &[];
    };
    if items.is_empty() {
        let message = "the dataflow has no nodes";
        let finding = Finding::error(Code::InvalidValue, value.span, message);
        reader.report(finding.expected("at least one node"));
    }
    items
}

fn module_of(node: &Value) -> Option<&Value> {
    let Kind::Map(entries) = &node.kind else {
        return None;
    };
    let entry = entries.iter().find(|entry| entry.key.text == "module")?;
    Some(&entry.value)
}

/// Adds the nodes of a module.
fn read_module(
    reader: &mut Reader<'_>,
    host: &Host<'_>,
    value: &Value,
    depth: usize,
    read: &mut Nodes,
) {
    let Some(keys) = read_keys(reader, value, &NODE, None) else {
        return;
    };
    let Some(id) = keys
        .value("id")
        .and_then(|value| reader.name(value, "node id"))
    else {
        return;
    };
    if read.modules.contains_key(&id.text) {
        reader.report(duplicate_name(Code::DuplicateNode, "module", &id, id.span));
        return;
    }
    for key in NODE.usable().filter(|key| !KEYS.contains(&key.name)) {
        if let Some(entry) = keys.entry(key.name) {
            let message = format!("a node with `module` has no `{}`", entry.key.text);
            let finding = Finding::error(Code::ConflictingKeys, entry.key.span, message);
            reader.report(finding.hint("write it into the nodes of the module"));
        }
    }
    let outputs = include(reader, host, &keys, &id, depth, &mut read.nodes);
    read.modules.insert(id.text, outputs);
}

/// Reads the file of a module, adds its nodes, and returns its outputs.
fn include(
    reader: &mut Reader<'_>,
    host: &Host<'_>,
    keys: &Keys<'_>,
    id: &Text,
    depth: usize,
    nodes: &mut Vec<ParsedNode>,
) -> Option<Outputs> {
    let path = reader.text(keys.value("module")?, Shape::Path)?;
    if depth >= MAX_DEPTH {
        let message = format!("modules are nested deeper than {MAX_DEPTH}");
        let finding = Finding::error(Code::OutOfRange, path.span, message);
        reader.report(finding.hint("does a module contain itself?"));
        return None;
    }
    // The inputs of the node with the module are read like those of any node.
    let (inputs, _) = super::inputs::read_inputs(reader, keys);
    let env = keys
        .value_if_any("env")
        .map(|value| read_environment(reader, &host.variables, value))
        .unwrap_or_default();
    let (module, params) = read_module_file(reader, host, keys, &path, depth)?;
    let mut module = module?;
    let bound = bind_inputs(reader, &module, id, inputs);
    let ids: HashSet<String> = module.nodes.iter().filter_map(node_id).collect();
    let outputs = module.outputs(reader, id, path.span);
    for mut node in module.nodes.drain(..) {
        place(&mut node, path.span);
        let optional = &module.optional;
        let mut kept = Vec::new();
        let mut remaining = 0..;
        node.inputs.retain_mut(|input| {
            let is_kept = rewrite(reader, input, &id.text, &ids, &bound, optional);
            kept.push(is_kept.then(|| remaining.next()).flatten());
            is_kept
        });
        renumber_inputs(&mut node.settings, &kept);
        if let Some(own) = &mut node.id {
            own.text = format!("{}.{}", id.text, own.text);
        }
        let variables = &mut node.settings.env;
        for (name, value) in &env {
            variables
                .entry(name.clone())
                .or_insert_with(|| value.clone());
        }
        variables.extend(
            params
                .iter()
                .map(|(name, value)| (variable_of(name), value.clone())),
        );
        if let Some(build) = &module.build {
            let own = node.build.take().map(|own| format!("\n{own}"));
            node.build = Some(format!("{build}{}", own.unwrap_or_default()));
        }
        nodes.push(node);
    }
    outputs
}

/// Reads the file of a module. Returns the module, if it has no errors, and the parameters that its
/// nodes find in their environment.
fn read_module_file(
    reader: &mut Reader<'_>,
    host: &Host<'_>,
    keys: &Keys<'_>,
    path: &Text,
    depth: usize,
) -> Option<(Option<Module>, BTreeMap<String, String>)> {
    let file = host.programs.directory.join(&path.text);
    let bytes = match host.programs.surroundings.read(&file) {
        Ok(bytes) => bytes,
        Err(reason) => {
            let message = format!("the module {} cannot be read: {reason}", quoted(&path.text));
            reader.report(Finding::error(Code::MissingFile, path.span, message));
            return None;
        }
    };
    let shown = Path::new(reader.file_name()).with_file_name(&path.text);
    let (source, problem) = decode(&shown.display().to_string(), &bytes);
    let mut findings = Findings::new(&source);
    let tree = match problem {
        Some(problem) => {
            findings.push(problem);
            None
        }
        None => tree::parse(&source, &mut findings),
    };
    let mut own = Reader::new(findings);
    own.set_types(reader.types());
    let mut variables = Variables {
        surroundings: host.variables.surroundings,
        params: host.variables.params.clone(),
    };
    let given = keys.value_if_any("params");
    let mut arguments = tree
        .as_ref()
        .and_then(|tree| Arguments::read(&mut own, &variables, tree));
    let params = match (&mut arguments, given) {
        (_, None) => BTreeMap::new(),
        (Some(arguments), Some(given)) => {
            give_arguments(reader, &host.variables, arguments, given);
            BTreeMap::new()
        }
        // A module without declarations takes any parameter, as in dora.
        (None, Some(given)) => read_params(reader, &host.variables, given),
    };
    variables
        .params
        .extend(params.iter().flat_map(|(name, value)| {
            [format!("_param.{name}"), variable_of(name)].map(|name| (name, value.clone()))
        }));
    let inner = Host {
        variables,
        programs: ProgramLocator {
            directory: file.parent().unwrap_or(Path::new("/")).to_owned().into(),
            ..host.programs.clone()
        },
    };
    let module = tree
        .and_then(|tree| arguments.unwrap_or_default().fill(&mut own, tree))
        .and_then(|tree| read_file(&mut own, &inner, &tree, depth));
    let findings = own.into_findings();
    let errors = findings.errors();
    reader.absorb(findings.into_module());
    Some((module.filter(|_| errors == 0), params))
}

/// Gives a module the arguments that it declares.
fn give_arguments(
    reader: &mut Reader<'_>,
    variables: &Variables<'_>,
    arguments: &mut Arguments,
    given: &Value,
) {
    let (shape, code) = (Shape::Params, Code::DuplicateKey);
    let entries = read_entries(reader, given, shape, code, "parameter").unwrap_or_default();
    for Entry { key, value } in entries {
        let filled = variables.fill(reader, value, FilledType::ByQuotes);
        let Some(json) = filled.and_then(|value| read_json(reader, &value)) else {
            continue;
        };
        match arguments.give(&key.text, json) {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                let text = error.to_string();
                reader.report(Finding::error(Code::InvalidValue, value.span, text));
            }
            None => reader.report(unknown_argument("module", key, arguments)),
        }
    }
}

/// The environment variable of a parameter of a module.
fn variable_of(param: &str) -> String {
    format!("PARAM_{}", param.to_uppercase())
}

/// Parameters of a module: texts, numbers and booleans, all used as texts.
fn read_params(
    reader: &mut Reader<'_>,
    variables: &Variables<'_>,
    value: &Value,
) -> BTreeMap<String, String> {
    let (shape, code) = (Shape::Params, Code::DuplicateKey);
    let entries = read_entries(reader, value, shape, code, "parameter").unwrap_or_default();
    let mut params = BTreeMap::new();
    for entry in entries {
        let is_valid = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        if entry.key.text.is_empty() || !entry.key.text.chars().all(is_valid) {
            let message = format!(
                "{} cannot be a parameter of a module",
                quoted(&entry.key.text)
            );
            let finding = Finding::error(Code::InvalidName, entry.key.span, message);
            reader.report(finding.expected("letters (a-z, A-Z), digits and `_`"));
            continue;
        }
        let text = match &entry.value.kind {
            Kind::Text(text) => variables.fill_text(reader, text, entry.value.span),
            Kind::Boolean(_, text) | Kind::Integer(_, text) | Kind::Float(_, text) => {
                Some(text.clone())
            }
            _ => {
                reader.report(wrong_type(
                    &entry.value,
                    "text, a number, `true` or `false`",
                ));
                None
            }
        };
        params.extend(text.map(|text| (entry.key.text.clone(), text)));
    }
    params
}

/// A module file without errors.
struct Module {
    inputs: Vec<String>,
    optional: Vec<String>,
    declared: Vec<String>,
    build: Option<String>,
    nodes: Vec<ParsedNode>,
    /// Outputs of modules inside of this one.
    modules: HashMap<String, Option<Outputs>>,
}

fn read_file(
    reader: &mut Reader<'_>,
    host: &Host<'_>,
    tree: &Value,
    depth: usize,
) -> Option<Module> {
    let hint = "a module file has `module:` and `nodes:`";
    let keys = read_keys(reader, tree, &MODULE_FILE, Some(hint))?;
    let header = read_keys(reader, keys.value("module")?, &MODULE, None)?;
    if let Some(value) = keys.value("types") {
        let (folder, surroundings) = (&host.programs.directory, host.variables.surroundings);
        read_type_folders(reader, value, folder, surroundings);
    }
    let values = node_list(reader, keys.value("nodes")?);
    let read = read_nodes(reader, host, values, depth + 1);
    Some(Module {
        inputs: names(reader, &header, "inputs"),
        optional: names(reader, &header, "inputs_optional"),
        declared: names(reader, &header, "outputs"),
        build: keys
            .value_if_any("build")
            .and_then(|value| read_build(reader, value)),
        nodes: read.nodes,
        modules: read.modules,
    })
}

fn names(reader: &mut Reader<'_>, keys: &Keys<'_>, key: &str) -> Vec<String> {
    let Some(value) = keys.value_if_any(key) else {
        return Vec::new();
    };
    let Kind::List(items) = &value.kind else {
        reader.report(wrong_type(value, Shape::Names.describe()));
        return Vec::new();
    };
    let names = items
        .iter()
        .filter_map(|item| reader.port_name(item, "name"));
    names.map(|name| name.text).collect()
}

/// The inputs of a node with a module, by name. Reports those that the module lacks or needs.
fn bind_inputs(
    reader: &mut Reader<'_>,
    module: &Module,
    id: &Text,
    inputs: Vec<ParsedInput>,
) -> HashMap<String, ParsedInput> {
    let known = || module.inputs.iter().chain(&module.optional);
    for input in &inputs {
        if !known().any(|name| *name == input.name.text) {
            let message = format!("the module has no input {}", quoted(&input.name.text));
            let finding = Finding::error(Code::UnknownInput, input.name.span, message);
            reader.report(finding.hint(format!(
                "its inputs are {}",
                listed(known().map(String::as_str))
            )));
        }
    }
    for name in &module.inputs {
        if !inputs.iter().any(|input| input.name.text == *name) {
            let message = format!("the module needs the input {}", quoted(name));
            let finding = Finding::error(Code::MissingKey, id.span, message);
            reader.report(finding.hint(format!("add `{name}: node/output` to `inputs`")));
        }
    }
    inputs
        .into_iter()
        .map(|input| (input.name.text.clone(), input))
        .collect()
}

impl Module {
    /// The node and output that each output of the module stands for.
    fn outputs(&self, reader: &mut Reader<'_>, id: &Text, span: Span) -> Option<Outputs> {
        let mut outputs = Outputs::new();
        for name in &self.declared {
            let mut producers: Vec<(String, String)> = Vec::new();
            for node in &self.nodes {
                let Some(node_id) = node_id(node) else {
                    continue;
                };
                // Outputs of modules inside of this one count by the names that those declare.
                if self
                    .modules
                    .keys()
                    .any(|module| node_id.starts_with(&format!("{module}.")))
                {
                    continue;
                }
                let own = node.outputs.iter().map(|output| &output.name.text);
                let logs = node.log_outputs.iter().map(|log| &log.output.name.text);
                producers.extend(own.chain(logs).filter_map(|output| {
                    let is_meant = output == name
                        || output.split_once('/').is_some_and(|(_, own)| own == name);
                    is_meant.then(|| (node_id.clone(), output.clone()))
                }));
            }
            let nested = self.modules.values().flatten();
            producers.extend(nested.filter_map(|outputs| outputs.get(name).cloned()));
            let message = match producers.as_slice() {
                [(node, output)] => {
                    let node = format!("{}.{node}", id.text);
                    outputs.insert(name.clone(), (node, output.clone()));
                    continue;
                }
                [] => format!("no node of the module has its output {}", quoted(name)),
                _ => format!(
                    "several nodes of the module have its output {}",
                    quoted(name)
                ),
            };
            reader.report(Finding::error(Code::UnknownOutput, span, message));
            return None;
        }
        Some(outputs)
    }
}

/// Rewrites the source of an input of a module's node. False if it reads from an optional input of
/// the module that is not there.
fn rewrite(
    reader: &mut Reader<'_>,
    input: &mut ParsedInput,
    module: &str,
    ids: &HashSet<String>,
    bound: &HashMap<String, ParsedInput>,
    optional: &[String],
) -> bool {
    let ParsedSource::Output { node, output } = &mut input.source else {
        return true;
    };
    if node.text != OWN_INPUTS {
        if ids.contains(&node.text) {
            node.text = format!("{module}.{}", node.text);
        }
        return true;
    }
    let Some(given) = bound.get(&output.text) else {
        if !optional.contains(&output.text) {
            let message = format!("the module has no input {}", quoted(&output.text));
            reader.report(Finding::error(Code::UnknownInput, output.span, message));
        }
        return false;
    };
    if input.queue == InputQueue::DEFAULT || matches!(given.source, ParsedSource::Timer { .. }) {
        input.queue = given.queue;
    }
    input.expect_every = input.expect_every.or(given.expect_every);
    input.source = given.source.clone();
    true
}

/// Lets an input that reads from an output of a module read from the node that sends it.
fn read_from_modules(
    reader: &mut Reader<'_>,
    input: &mut ParsedInput,
    modules: &HashMap<String, Option<Outputs>>,
) {
    let ParsedSource::Output { node, output } = &mut input.source else {
        return;
    };
    let Some(outputs) = modules.get(&node.text) else {
        return;
    };
    match outputs.as_ref().map(|outputs| outputs.get(&output.text)) {
        Some(Some((inner, name))) => {
            node.text.clone_from(inner);
            output.text.clone_from(name);
            return;
        }
        Some(None) => {
            let message = format!(
                "the module {} has no output {}",
                quoted(&node.text),
                quoted(&output.text)
            );
            reader.report(Finding::error(Code::UnknownOutput, output.span, message));
        }
        // The module has errors, which are reported.
        None => {}
    }
    input.source = ParsedSource::Invalid;
}

/// Moves a node to the place in the including file that names its module, for later findings.
fn place(node: &mut ParsedNode, span: Span) {
    node.span = span;
    node.id.iter_mut().for_each(|id| id.span = span);
    for input in &mut node.inputs {
        input.name.span = span;
        input.policy_span = span;
        input
            .type_name
            .iter_mut()
            .for_each(|declared| declared.span = span);
        match &mut input.source {
            ParsedSource::Output { node, output } => (node.span, output.span) = (span, span),
            ParsedSource::Node { node }
            | ParsedSource::Logs {
                node: Some(node), ..
            } => node.span = span,
            ParsedSource::Timer { .. } | ParsedSource::Logs { .. } | ParsedSource::Invalid => {}
        }
    }
    let logs = node.log_outputs.iter_mut().map(|log| &mut log.output);
    for output in node.outputs.iter_mut().chain(logs) {
        output.name.span = span;
        output
            .type_name
            .iter_mut()
            .for_each(|declared| declared.span = span);
    }
    node.services
        .iter_mut()
        .for_each(|service| service.name.span = span);
    for client in &mut node.clients {
        client.name.span = span;
        client.server.span = span;
        client.service.span = span;
    }
}

fn node_id(node: &ParsedNode) -> Option<String> {
    node.id.as_ref().map(|id| id.text.clone())
}
