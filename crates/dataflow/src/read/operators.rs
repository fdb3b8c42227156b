//! Reads operators of dora: parts of a node that share its process.

use std::collections::HashMap;

use nervure_protocol::graph::{OperatorSource, OperatorSpec, Program};

use super::inputs::read_inputs;
use super::log_outputs::read_log_outputs;
use super::map::{Keys, duplicate_name, read_keys};
use super::outputs::read_outputs;
use super::program::{ProgramLocator, read_build};
use super::reader::{Reader, wrong_type};
use crate::diagnostic::{Code, Finding};
use crate::keys::{OPERATOR, PYTHON_SOURCE, Shape};
use crate::parsed::{LocatedProgram, ParsedInput, ParsedLogOutput, ParsedOutput};
use crate::quote::quoted;
use crate::source::Span;
use crate::tree::{Kind, Text, Value};

/// The id of an `operator` that has none.
const DEFAULT_ID: &str = "op";

/// Keys of a node that have no meaning beside operators: each operator has its own, or none.
const KEYS_OF_OTHER_NODES: [&str; 9] = [
    "path",
    "args",
    "build",
    "inputs",
    "outputs",
    "input_types",
    "output_types",
    "services",
    "clients",
];

/// The program of a node with its inputs and outputs. Those of operators are named
/// `operator/input` and `operator/output`.
pub(super) struct ProgramAndPorts {
    pub program: Option<LocatedProgram>,
    /// The build commands of all operators.
    pub build: Option<String>,
    pub inputs: Vec<ParsedInput>,
    pub outputs: Vec<ParsedOutput>,
    pub log_outputs: Vec<ParsedLogOutput>,
    /// Whether all of the inputs could be read.
    pub inputs_complete: bool,
    /// Whether all of the outputs could be read.
    pub outputs_complete: bool,
    /// The id of the operator in `operator`.
    pub single: Option<String>,
}

/// The operators of a node, or `None` if it has neither `operators` nor `operator`.
pub(super) fn read_operators(
    reader: &mut Reader<'_>,
    programs: &ProgramLocator<'_>,
    keys: &Keys<'_>,
) -> Option<ProgramAndPorts> {
    let (list, single) = (keys.entry("operators"), keys.entry("operator"));
    let first = list.or(single)?;
    report_conflicts(reader, keys, &first.key);
    if let (Some(list), Some(single)) = (list, single) {
        let message = "a node has either `operators` or `operator`";
        let finding = Finding::error(Code::ConflictingKeys, single.key.span, message);
        reader.report(
            finding
                .hint("move the operator into the list of `operators`")
                .related(list.key.span, "the list"),
        );
    }
    let values = match &first.value.kind {
        _ if list.is_none() => std::slice::from_ref(&first.value),
        Kind::List(items) if !items.is_empty() => items,
        _ => {
            let finding = wrong_type(&first.value, Shape::Operators.describe());
            reader.report(
                finding.hint("write each operator as `- id: detect`, and below it its other keys"),
            );
            &[]
        }
    };
    let mut operators = ProgramAndPorts {
        program: None,
        build: None,
        inputs: Vec::new(),
        outputs: Vec::new(),
        log_outputs: Vec::new(),
        inputs_complete: !values.is_empty(),
        outputs_complete: !values.is_empty(),
        single: None,
    };
    let mut located = Vec::new();
    let mut ids: HashMap<String, Span> = HashMap::new();
    for value in values {
        let Some(operator) = read_operator(reader, programs, value, list.is_none(), &mut operators)
        else {
            operators.inputs_complete = false;
            operators.outputs_complete = false;
            continue;
        };
        if let Some(&first) = ids.get(&operator.id.text) {
            let code = Code::DuplicateKey;
            reader.report(duplicate_name(code, "operator", &operator.id, first));
        }
        ids.insert(operator.id.text.clone(), operator.id.span);
        located.push(operator);
    }
    if located.len() == values.len() && !values.is_empty() {
        operators.program = combine(reader, located);
    }
    Some(operators)
}

/// Reports keys that belong to a node with a `path`.
fn report_conflicts(reader: &mut Reader<'_>, keys: &Keys<'_>, operators: &Text) {
    for name in KEYS_OF_OTHER_NODES {
        let Some(entry) = keys.entry(name) else {
            continue;
        };
        let message = format!("a node with `{}` has no `{name}`", operators.text);
        let finding = Finding::error(Code::ConflictingKeys, entry.key.span, message);
        reader.report(match OPERATOR.find(name) {
            Some(_) => finding.hint("move it into the operator"),
            None => finding.hint("remove it, or make a node of its own with it"),
        });
    }
}

/// An operator whose code exists, or will be built.
struct LocatedOperator {
    id: Text,
    /// `None` if the code was not found, which is reported.
    source: Option<(OperatorSource, bool)>,
    conda_env: Option<String>,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

fn read_operator(
    reader: &mut Reader<'_>,
    programs: &ProgramLocator<'_>,
    value: &Value,
    is_single: bool,
    all: &mut ProgramAndPorts,
) -> Option<LocatedOperator> {
    let hint = "write each operator as `- id: detect`, and below it its other keys";
    let keys = read_keys(reader, value, &OPERATOR, Some(hint))?;
    let id = match keys.value("id") {
        Some(id) => reader.name(id, "operator")?,
        None if is_single => Text {
            span: value.span,
            text: DEFAULT_ID.to_owned(),
        },
        None => {
            let finding = Finding::error(Code::MissingKey, keys.span, "an operator has no `id`");
            reader.report(finding.hint("add `id:` with a name"));
            return None;
        }
    };
    if is_single {
        all.single = Some(id.text.clone());
    }
    let (inputs, inputs_complete) = read_inputs(reader, &keys);
    let (mut outputs, outputs_complete) = read_outputs(reader, &keys);
    let log_outputs = read_log_outputs(reader, &keys, &mut outputs);
    all.inputs_complete &= inputs_complete;
    all.outputs_complete &= outputs_complete;
    let build = keys
        .value_if_any("build")
        .and_then(|value| read_build(reader, value));
    let (source, conda_env) = read_source(reader, programs, &keys, build.is_some());
    if let Some(build) = build {
        let before = all.build.take().map(|before| before + "\n");
        all.build = Some(before.unwrap_or_default() + &build);
    }
    let operator = LocatedOperator {
        source,
        conda_env,
        inputs: inputs.iter().map(|input| input.name.text.clone()).collect(),
        outputs: outputs
            .iter()
            .map(|output| output.name.text.clone())
            .collect(),
        id,
    };
    let of_node = |name: Text| Text {
        text: format!("{}/{}", operator.id.text, name.text),
        ..name
    };
    all.inputs
        .extend(inputs.into_iter().map(|input| ParsedInput {
            name: of_node(input.name),
            ..input
        }));
    all.outputs
        .extend(outputs.into_iter().map(|output| ParsedOutput {
            name: of_node(output.name),
            ..output
        }));
    all.log_outputs
        .extend(log_outputs.into_iter().map(|log| ParsedLogOutput {
            output: ParsedOutput {
                name: of_node(log.output.name),
                ..log.output
            },
            ..log
        }));
    Some(operator)
}

/// The code of an operator and whether it exists yet, with the name of a conda environment.
fn read_source(
    reader: &mut Reader<'_>,
    programs: &ProgramLocator<'_>,
    keys: &Keys<'_>,
    has_build: bool,
) -> (Option<(OperatorSource, bool)>, Option<String>) {
    if let (Some(python), Some(library)) = (keys.entry("python"), keys.entry("shared-library")) {
        let message = "an operator is either a Python script or a shared library";
        let finding = Finding::error(Code::ConflictingKeys, library.key.span, message);
        reader.report(finding.related(python.key.span, "the script"));
        return (None, None);
    }
    if let Some(value) = keys.value("shared-library") {
        let library = reader
            .text(value, Shape::Path)
            .and_then(|path| programs.locate_library(reader, &path, has_build));
        let source =
            library.map(|(file, is_built)| (OperatorSource::SharedLibrary(file), is_built));
        return (source, None);
    }
    let (path, conda_env) = match keys.value("python") {
        Some(value) if matches!(value.kind, Kind::Map(_)) => {
            let Some(keys) = read_keys(reader, value, &PYTHON_SOURCE, None) else {
                return (None, None);
            };
            let mut text = |name, shape| reader.text(keys.value(name)?, shape);
            let environment = text("conda_env", Shape::Words);
            (
                text("source", Shape::Path),
                environment.map(|environment| environment.text),
            )
        }
        Some(value) => (reader.text(value, Shape::PythonSource), None),
        None => (None, None),
    };
    let script = path.and_then(|path| programs.locate_script(reader, &path, has_build));
    let source = script.map(|(file, is_built)| (OperatorSource::Python(file), is_built));
    (source, conda_env)
}

/// The program that hosts all operators. One process runs either scripts or shared libraries.
fn combine(reader: &mut Reader<'_>, operators: Vec<LocatedOperator>) -> Option<LocatedProgram> {
    let mut specs: Vec<OperatorSpec> = Vec::new();
    let mut is_built = true;
    for operator in operators {
        let (source, is_there) = operator.source?;
        is_built &= is_there;
        let is_of_other_kind = |spec: &OperatorSpec| {
            std::mem::discriminant(&spec.source) != std::mem::discriminant(&source)
        };
        if let Some(other) = specs.iter().find(|spec| is_of_other_kind(spec)) {
            let message = format!(
                "the operators {} and {} cannot share a process: one is a Python script, the other a shared library",
                quoted(&other.id),
                quoted(&operator.id.text)
            );
            let finding = Finding::error(Code::ConflictingKeys, operator.id.span, message);
            reader.report(finding.hint("give each kind a node of its own"));
            return None;
        }
        let other_environment = specs.first().map(|spec| &spec.conda_env);
        if other_environment.is_some_and(|other| *other != operator.conda_env) {
            let message = "the operators of a node have the same `conda_env`";
            let finding = Finding::error(Code::ConflictingKeys, operator.id.span, message);
            reader.report(finding.hint("give each environment a node of its own"));
            return None;
        }
        specs.push(OperatorSpec {
            id: operator.id.text,
            source,
            conda_env: operator.conda_env,
            inputs: operator.inputs,
            outputs: operator.outputs,
        });
    }
    Some(LocatedProgram {
        program: Program::Operators(specs),
        is_built,
    })
}
