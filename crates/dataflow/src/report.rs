//! From the bytes of a file to a graph or to findings.

use std::path::Path;

use serde::Serialize;

use crate::check_graph::check_graph;
use crate::diagnostic::{Code, Diagnostic, Finding, Findings, Severity};
use crate::graph::Dataflow;
use crate::read::dataflow::read_dataflow;
use crate::read::reader::Reader;
use crate::render::render;
use crate::resolve::{assemble, resolve};
use crate::source::{MAX_FILE_BYTES, SourceText, Span};
use crate::surroundings::Surroundings;
use crate::tree;

/// The result of parsing a dataflow file.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The text of the file, for messages.
    #[serde(skip)]
    pub source: SourceText,
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
            dataflow: None,
            diagnostics,
        };
    }
    let tree = tree::parse(&source, &mut findings);
    let mut reader = Reader::new(findings);
    let parsed = tree.and_then(|tree| read_dataflow(&mut reader, &tree, directory, surroundings));
    let mut findings = reader.into_findings();
    let dataflow = parsed.and_then(|parsed| {
        let sources = resolve(&parsed, &mut findings);
        let servers = crate::resolve_services::resolve(&parsed, &mut findings);
        check_graph(&parsed, &sources, &mut findings);
        let line_of = |span| source.locate(span).line;
        if findings.errors() == 0 {
            assemble(parsed, sources, servers, directory, name, line_of)
        } else {
            None
        }
    });
    let diagnostics = findings.finish();
    Report {
        source,
        dataflow,
        diagnostics,
    }
}

impl Report {
    /// Whether the dataflow cannot run.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }

    /// Turns warnings about programs that are not built yet into errors: without them the dataflow
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
            .map(|diagnostic| render(diagnostic, &self.source, colour))
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
            dataflow: None,
            diagnostics,
        }
    }
}

/// The text of `bytes`, with the reason if it cannot be used.
fn decode(name: &str, bytes: &[u8]) -> (SourceText, Option<Finding>) {
    if bytes.len() > MAX_FILE_BYTES {
        let finding = Finding::without_span(
            Code::FileTooLarge,
            format!("the file is larger than {} MiB", MAX_FILE_BYTES >> 20),
        )
        .hint("a dataflow of a thousand nodes has some 200 KB: is this the right file?");
        return (SourceText::new(name, ""), Some(finding));
    }
    let error = match std::str::from_utf8(bytes) {
        Ok(text) => return (SourceText::new(name, text), None),
        Err(error) => error,
    };
    let hint = match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "the file looks like UTF-16: save it as UTF-8",
        _ if bytes.contains(&0) => "the file looks binary: is this the right file?",
        _ => "save the file as UTF-8; it may be in Latin-1 or another old encoding",
    };
    let source = SourceText::new(name, String::from_utf8_lossy(bytes));
    // Up to the error, the lossy text has the same bytes.
    let start = error.valid_up_to();
    let span = Span {
        start,
        end: start + char::REPLACEMENT_CHARACTER.len_utf8(),
    };
    let finding = Finding::error(Code::NotUtf8, span, "the file is not UTF-8 text").hint(hint);
    (source, Some(finding))
}
