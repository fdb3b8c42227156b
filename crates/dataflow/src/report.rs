//! From the bytes of a file to a graph or to findings.

use std::collections::BTreeMap;
use std::path::Path;

use nervure_protocol::params::ParamSpec;
use serde::Serialize;

use crate::check_graph::check_graph;
use crate::check_machines::check_machines;
use crate::check_processes::check_processes;
use crate::decode::decode;
use crate::diagnostic::{Code, Diagnostic, Finding, Findings, Severity};
use crate::graph::Dataflow;
use crate::read::args::Arguments;
use crate::read::dataflow::read_dataflow;
use crate::read::reader::Reader;
use crate::read::variables::Variables;
use crate::render::render;
use crate::resolve::{assemble, resolve};
use crate::source::SourceText;
use crate::surroundings::Surroundings;
use crate::tree::{self, Value};

/// The result of parsing a dataflow file.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The text of the file, for messages.
    #[serde(skip)]
    pub source: SourceText,
    /// Module files with findings, for messages.
    #[serde(skip)]
    pub modules: Vec<SourceText>,
    /// The arguments of the file, with their values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<ParamSpec>,
    /// The graph; `None` if and only if there is an error.
    pub dataflow: Option<Dataflow>,
    /// Errors and warnings, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
}

/// Parses, resolves and checks a dataflow file.
///
/// Messages show the file as `name`. `directory` is the folder of the file, to which its paths are
/// relative; it must be absolute if nodes are started.
#[must_use]
pub fn parse(
    name: &str,
    bytes: &[u8],
    directory: &Path,
    surroundings: &dyn Surroundings,
) -> Report {
    let (source, problem) = decode(name, bytes);
    let mut findings = Findings::new(&source);
    if let Some(problem) = problem {
        findings.push(problem);
        let diagnostics = findings.finish();
        return Report {
            source,
            modules: Vec::new(),
            args: Vec::new(),
            dataflow: None,
            diagnostics,
        };
    }
    let tree = tree::parse(&source, &mut findings);
    let mut reader = Reader::new(findings);
    let mut args = Vec::new();
    let parsed = tree
        .and_then(|tree| fill_arguments(&mut reader, tree, surroundings, &mut args))
        .and_then(|tree| read_dataflow(&mut reader, &tree, directory, surroundings));
    let mut findings = reader.into_findings();
    let dataflow = parsed.and_then(|parsed| {
        let sources = resolve(&parsed, &mut findings);
        let servers = crate::resolve_services::resolve(&parsed, &mut findings);
        check_graph(&parsed, &sources, &mut findings);
        check_machines(&parsed, &mut findings);
        check_processes(&parsed, &mut findings);
        crate::resolve_transforms::check(&parsed, &mut findings);
        let line_of = |span| source.locate(span).line;
        if findings.errors() == 0 {
            assemble(parsed, sources, servers, directory, name, line_of)
        } else {
            None
        }
    });
    let modules = findings.modules().to_vec();
    let diagnostics = findings.finish();
    Report {
        source,
        modules,
        args,
        dataflow,
        diagnostics,
    }
}

/// The file with the values of its arguments, which are added to `args`.
fn fill_arguments(
    reader: &mut Reader<'_>,
    file: Value,
    surroundings: &dyn Surroundings,
    args: &mut Vec<ParamSpec>,
) -> Option<Value> {
    let variables = Variables {
        surroundings,
        params: BTreeMap::new(),
    };
    let mut arguments = Arguments::read(reader, &variables, &file).unwrap_or_default();
    arguments.give_texts(reader, &file, |name| surroundings.argument(name));
    let filled = arguments.fill(reader, file);
    args.extend(arguments.into_specs());
    filled
}

impl Report {
    /// Whether the dataflow cannot run.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }

    /// Turns warnings about programs that are not there into errors: without them the dataflow
    /// cannot start.
    pub fn require_programs(&mut self) {
        if self
            .dataflow
            .as_ref()
            .is_none_or(|dataflow| dataflow.nodes.iter().all(|node| node.is_built))
        {
            return;
        }
        self.dataflow = None;
        for diagnostic in &mut self.diagnostics {
            match diagnostic.code {
                Code::MissingFile => diagnostic.severity = Severity::Error,
                Code::NotBuilt => {
                    diagnostic.severity = Severity::Error;
                    diagnostic.hint =
                        Some("build it: `nervure build`, or `nervure run --build`".to_owned());
                }
                // The finding may be one of those that are not listed.
                Code::TooManyFindings => diagnostic.severity = Severity::Error,
                _ => {}
            }
        }
    }

    /// All findings as text for people, with a blank line between them; empty without findings.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        let rendered: Vec<String> = self
            .diagnostics
            .iter()
            .map(|diagnostic| render(diagnostic, self.source_of(diagnostic), colour))
            .collect();
        rendered.join("\n")
    }

    /// "2 errors and 1 warning"; `None` without findings.
    #[must_use]
    pub fn summary(&self) -> Option<String> {
        let errors = self
            .diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.is_error())
            .count();
        let warnings = self.diagnostics.len() - errors;
        let plural =
            |count: usize, noun| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        match (errors, warnings) {
            (0, 0) => None,
            (0, warnings) => Some(plural(warnings, "warning")),
            (errors, 0) => Some(plural(errors, "error")),
            (errors, warnings) => Some(format!(
                "{} and {}",
                plural(errors, "error"),
                plural(warnings, "warning")
            )),
        }
    }

    /// The report on a file that could not be read.
    pub(crate) fn failure(name: &str, finding: Finding) -> Report {
        let source = SourceText::new(name, "");
        let mut findings = Findings::new(&source);
        findings.push(finding);
        let diagnostics = findings.finish();
        Report {
            source,
            modules: Vec::new(),
            args: Vec::new(),
            dataflow: None,
            diagnostics,
        }
    }

    /// The file that a finding is about.
    fn source_of(&self, diagnostic: &Diagnostic) -> &SourceText {
        let is_of = |source: &&SourceText| source.name() == diagnostic.file;
        let mut sources = std::iter::once(&self.source).chain(&self.modules);
        sources.find(is_of).unwrap_or(&self.source)
    }
}
