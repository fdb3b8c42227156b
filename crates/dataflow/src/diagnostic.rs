//! Findings: errors and warnings about a dataflow file, as data.

use nervure_types::ComparedField;
use serde::Serialize;

use crate::source::{Location, SourceText, Span};

/// Maximum number of findings in a list; further ones are only counted.
pub const MAX_DIAGNOSTICS: usize = 100;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The dataflow cannot run.
    Error,
    /// The dataflow runs, but probably not as intended.
    Warning,
}

/// One finding about a dataflow file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Whether the dataflow can run.
    pub severity: Severity,
    /// The kind of finding, for programs: stable across versions.
    pub code: Code,
    /// The finding as a sentence, for people.
    pub message: String,
    /// The file, as the user named it.
    pub file: String,
    /// The place in the file; `None` if the finding has none.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub location: Option<Location>,
    /// The value that was expected there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// The likely fix, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The nearest match for the text at `location`, ready to replace it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// Other places that are part of the finding.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<Related>,
    /// The two definitions of a type that differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definitions: Option<Box<Definitions>>,
}

/// Two definitions of a type, side by side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Definitions {
    /// The files with the definitions.
    pub files: [String; 2],
    /// Their fields.
    pub fields: Vec<ComparedField>,
}

/// Another place that is part of a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Related {
    /// The place.
    #[serde(flatten)]
    pub location: Location,
    /// Label of the place.
    pub message: String,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $text:literal,)+) => {
        /// The kind of a finding. The text form is stable and kebab-case: `unknown-key`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $variant,)+
        }

        impl Code {
            /// Every code, for the reference page.
            pub const ALL: &[Code] = &[$(Code::$variant,)+];

            /// The stable text form.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text,)+ }
            }

            /// The meaning, in one line.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$variant => concat!($($doc,)+).trim_ascii_start(),)+ }
            }
        }
    };
}

codes! {
    /// The file cannot be read.
    UnreadableFile = "unreadable-file",
    /// The file is larger than a dataflow file can be.
    FileTooLarge = "file-too-large",
    /// The file is not UTF-8 text.
    NotUtf8 = "not-utf8",
    /// The file has no content.
    EmptyFile = "empty-file",
    /// The file has more than one YAML document.
    MultipleDocuments = "multiple-documents",
    /// The file is not YAML.
    YamlSyntax = "yaml-syntax",
    /// A line is indented with a tab.
    TabIndentation = "tab-indentation",
    /// The YAML is nested too deep for a dataflow file.
    YamlTooDeep = "yaml-too-deep",
    /// The YAML, with its aliases expanded, has too many values for a dataflow file.
    YamlTooLarge = "yaml-too-large",
    /// A YAML alias that names no anchor, or contains itself.
    YamlAlias = "yaml-alias",
    /// A YAML feature that dataflow files do not use: tags, merge keys, keys that are not text.
    YamlFeature = "yaml-feature",
    /// A key that does not exist.
    UnknownKey = "unknown-key",
    /// A key that is reserved for a later version of Nervure.
    LaterKey = "later-key",
    /// A key of dora that Nervure does not support.
    UnsupportedKey = "unsupported-key",
    /// A key of dora that has no effect in Nervure.
    IgnoredKey = "ignored-key",
    /// A key that is given twice.
    DuplicateKey = "duplicate-key",
    /// A required key is missing.
    MissingKey = "missing-key",
    /// A key that has no effect together with the other keys.
    UselessKey = "useless-key",
    /// Keys that exclude each other.
    ConflictingKeys = "conflicting-keys",
    /// A value of the wrong type: a list where text belongs.
    WrongType = "wrong-type",
    /// A number outside of its range.
    OutOfRange = "out-of-range",
    /// A value that is malformed, or not one of the possible ones.
    InvalidValue = "invalid-value",
    /// An argument that the file does not declare.
    UnknownArgument = "unknown-argument",
    /// The file asks for another version of the format.
    UnsupportedVersion = "unsupported-version",
    /// A name with characters that are not allowed, or too long.
    InvalidName = "invalid-name",
    /// A path that cannot be that of a program.
    InvalidPath = "invalid-path",
    /// Two nodes have the same id.
    DuplicateNode = "duplicate-node",
    /// A node has two outputs of the same name.
    DuplicateOutput = "duplicate-output",
    /// A node has two inputs of the same name.
    DuplicateInput = "duplicate-input",
    /// Two machines have the same role.
    DuplicateMachine = "duplicate-machine",
    /// A node is on a machine that does not exist.
    UnknownMachine = "unknown-machine",
    /// Something that does not cross machines in this version.
    MachineBoundary = "machine-boundary",
    /// The source of an input is malformed.
    InvalidSource = "invalid-source",
    /// A timer is malformed, or its rate is out of range.
    InvalidTimer = "invalid-timer",
    /// An input reads from a node that does not exist.
    UnknownNode = "unknown-node",
    /// An input reads from an output that does not exist.
    UnknownOutput = "unknown-output",
    /// A type or a deadline is declared for an input that does not exist.
    UnknownInput = "unknown-input",
    /// An input and its output have different types.
    TypeMismatch = "type-mismatch",
    /// A type that does not exist.
    UnknownType = "unknown-type",
    /// The definition of a type cannot be used.
    InvalidType = "invalid-type",
    /// An environment variable that the file uses is not set.
    UnsetVariable = "unset-variable",
    /// The program of a node does not exist.
    MissingFile = "missing-file",
    /// The program of a node does not exist yet, and the node has a `build`.
    NotBuilt = "not-built",
    /// The program of a node is a file that cannot be executed.
    NotExecutable = "not-executable",
    /// A node would wait for itself because of `block`.
    SelfLoop = "self-loop",
    /// Nodes can wait for each other forever because of `block`.
    Deadlock = "deadlock",
    /// A `block` input can delay inputs that do not block.
    Stall = "stall",
    /// Static transforms that form no tree: a frame has two parents, or is its own ancestor.
    FrameTree = "frame-tree",
    /// A node has neither inputs nor outputs.
    IsolatedNode = "isolated-node",
    /// There are more findings than are listed.
    TooManyFindings = "too-many-findings",
}

impl Diagnostic {
    /// Whether the dataflow cannot run.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// A finding under construction, with spans instead of lines and columns.
pub(crate) struct Finding {
    pub severity: Severity,
    pub code: Code,
    pub span: Option<Span>,
    pub message: String,
    pub expected: Option<String>,
    pub hint: Option<String>,
    pub suggestion: Option<String>,
    pub related: Vec<(Span, String)>,
    pub definitions: Option<Box<Definitions>>,
}

impl Finding {
    pub fn error(code: Code, span: Span, message: impl Into<String>) -> Finding {
        Finding::new(Severity::Error, code, Some(span), message.into())
    }

    pub fn warning(code: Code, span: Span, message: impl Into<String>) -> Finding {
        Finding::new(Severity::Warning, code, Some(span), message.into())
    }

    pub fn without_span(code: Code, message: impl Into<String>) -> Finding {
        Finding::new(Severity::Error, code, None, message.into())
    }

    fn new(severity: Severity, code: Code, span: Option<Span>, message: String) -> Finding {
        Finding {
            severity,
            code,
            span,
            message,
            expected: None,
            hint: None,
            suggestion: None,
            related: Vec::new(),
            definitions: None,
        }
    }

    /// The noun after "expected".
    pub fn expected(mut self, expected: impl Into<String>) -> Finding {
        self.expected = Some(expected.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Finding {
        self.hint = Some(hint.into());
        self
    }

    /// Adds "did you mean .." for a near match, `otherwise` as the hint without one.
    pub fn nearest(
        mut self,
        nearest: Option<&str>,
        otherwise: impl FnOnce() -> Option<String>,
    ) -> Finding {
        self.hint = match nearest {
            Some(nearest) => Some(format!("did you mean `{nearest}`?")),
            None => otherwise(),
        };
        self.suggestion = nearest.map(str::to_owned);
        self
    }

    pub fn related(mut self, span: Span, message: impl Into<String>) -> Finding {
        self.related.push((span, message.into()));
        self
    }

    pub fn definitions(mut self, definitions: Definitions) -> Finding {
        self.definitions = Some(Box::new(definitions));
        self
    }
}

/// Collects findings and places them in their file.
pub(crate) struct Findings<'a> {
    source: &'a SourceText,
    list: Vec<Diagnostic>,
    /// Module files with findings.
    modules: Vec<SourceText>,
    unlisted: usize,
    errors: usize,
}

/// Findings about a module file.
pub(crate) struct ModuleFindings {
    list: Vec<Diagnostic>,
    modules: Vec<SourceText>,
    unlisted: usize,
    errors: usize,
}

impl<'a> Findings<'a> {
    pub fn new(source: &'a SourceText) -> Findings<'a> {
        Findings {
            source,
            list: Vec::new(),
            modules: Vec::new(),
            unlisted: 0,
            errors: 0,
        }
    }

    /// The name of the file, as the user wrote it.
    pub fn file_name(&self) -> &'a str {
        self.source.name()
    }

    /// The findings, for the file that includes this one.
    pub fn into_module(self) -> ModuleFindings {
        let mut modules = self.modules;
        if !self.list.is_empty() {
            modules.push(self.source.clone());
        }
        ModuleFindings {
            list: self.list,
            modules,
            unlisted: self.unlisted,
            errors: self.errors,
        }
    }

    /// Adds the findings about a module file.
    pub fn absorb(&mut self, module: ModuleFindings) {
        let room = MAX_DIAGNOSTICS.saturating_sub(self.list.len());
        self.unlisted += module.unlisted + module.list.len().saturating_sub(room);
        self.errors += module.errors;
        self.list.extend(module.list.into_iter().take(room));
        self.modules.extend(module.modules);
    }

    /// The module files with findings.
    pub fn modules(&self) -> &[SourceText] {
        &self.modules
    }

    pub fn push(&mut self, finding: Finding) {
        self.errors += usize::from(finding.severity == Severity::Error);
        if self.list.len() >= MAX_DIAGNOSTICS {
            self.unlisted += 1;
            return;
        }
        let related = finding.related.into_iter();
        self.list.push(Diagnostic {
            severity: finding.severity,
            code: finding.code,
            message: finding.message,
            file: self.source.name().to_owned(),
            location: finding.span.map(|span| self.source.locate(span)),
            expected: finding.expected,
            hint: finding.hint,
            suggestion: finding.suggestion,
            related: related
                .map(|(span, message)| Related {
                    location: self.source.locate(span),
                    message,
                })
                .collect(),
            definitions: finding.definitions,
        });
    }

    /// Pushes an error whose hint needs a search through the file. Beyond the limit, errors are
    /// only counted and skip the search: a hostile file would otherwise cost time quadratic in its
    /// size.
    pub fn push_error_with(&mut self, error: impl FnOnce() -> Finding) {
        if self.is_full() {
            self.errors += 1;
            self.unlisted += 1;
        } else {
            self.push(error());
        }
    }

    /// Whether further findings are only counted.
    pub fn is_full(&self) -> bool {
        self.list.len() >= MAX_DIAGNOSTICS
    }

    /// Number of errors so far.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// The findings in the order of the file.
    pub fn finish(mut self) -> Vec<Diagnostic> {
        if self.unlisted > 0 {
            let message = format!("{} more findings are not listed", self.unlisted);
            let severity = if self.errors > 0 {
                Severity::Error
            } else {
                Severity::Warning
            };
            self.list.push(Diagnostic {
                severity,
                code: Code::TooManyFindings,
                message,
                file: self.source.name().to_owned(),
                location: None,
                expected: None,
                hint: Some("fix those above first".to_owned()),
                suggestion: None,
                related: Vec::new(),
                definitions: None,
            });
        }
        let place =
            |diagnostic: &Diagnostic| diagnostic.location.as_ref().map(|at| (at.line, at.column));
        // Findings about modules follow, file by file.
        let name = self.source.name();
        self.list.sort_by(|one, other| {
            let key =
                |found: &Diagnostic| (found.file != name, place(found).unwrap_or((usize::MAX, 0)));
            let by_file = match one.file == name || other.file == name {
                true => std::cmp::Ordering::Equal,
                false => one.file.cmp(&other.file),
            };
            by_file.then_with(|| key(one).cmp(&key(other)))
        });
        self.list
    }
}
