//! Parses YAML into a tree of values with spans, within limits.
//!
//! Parsing and building are not recursive and stop at the limits below: a deeply nested file and a
//! "billion laughs" of aliases both end in a clear error.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Tag};

use crate::diagnostic::{Code, Finding, Findings};
use crate::quote::quoted;
use crate::source::{SourceText, Span};
use crate::syntax_error::{self, Block};

/// Deepest nesting of lists and maps. A dataflow file needs five levels.
pub(crate) const MAX_DEPTH: usize = 32;
/// Maximum number of values in a file, with aliases expanded.
pub(crate) const MAX_VALUES: usize = 100_000;

/// A value and its place.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    pub span: Span,
    pub kind: Kind,
    /// Whether it is a scalar without quotes and tags.
    pub is_plain: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Null,
    /// Booleans and numbers keep their text: `1.10` as an environment variable stays `1.10`.
    Boolean(bool, String),
    Integer(i64, String),
    Float(f64, String),
    Text(String),
    List(Vec<Value>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub key: Text,
    pub value: Value,
}

/// A text and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub span: Span,
    pub text: String,
}

impl Value {
    /// The value as a noun, for messages.
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Null => "nothing".to_owned(),
            Kind::Boolean(value, _) => format!("the value `{value}`"),
            Kind::Integer(_, text) | Kind::Float(_, text) => format!("the number {}", quoted(text)),
            Kind::Text(text) => format!("the text {}", quoted(text)),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a map".to_owned(),
        }
    }
}

/// The tree of `source`; reports the error if there is none.
pub(crate) fn parse(source: &SourceText, findings: &mut Findings<'_>) -> Option<Value> {
    match Builder::new(source).build() {
        Ok(tree) => Some(tree),
        Err(finding) => {
            findings.push(*finding);
            None
        }
    }
}

type Result<T> = std::result::Result<T, Box<Finding>>;

/// Builds a tree from parser events.
struct Builder<'a> {
    offsets: Offsets<'a>,
    /// Lists and maps that are not closed yet, outermost first.
    open: Vec<Open>,
    root: Option<Value>,
    documents: usize,
    values: usize,
    anchors: HashMap<usize, Anchored>,
}

struct Open {
    span: Span,
    anchor: usize,
    content: Content,
    /// Number of values, itself included, and of levels below: the cost of an alias to it.
    values: usize,
    height: usize,
}

enum Content {
    List(Vec<Value>),
    Map(Vec<Entry>, Option<Text>),
}

struct Anchored {
    value: Value,
    values: usize,
    height: usize,
}

impl<'a> Builder<'a> {
    fn new(source: &'a SourceText) -> Builder<'a> {
        Builder {
            offsets: Offsets::new(source.text()),
            open: Vec::new(),
            root: None,
            documents: 0,
            values: 0,
            anchors: HashMap::new(),
        }
    }

    fn build(mut self) -> Result<Value> {
        let text = self.offsets.text;
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| self.syntax_error(&error))?;
            let span = self.offsets.span(span);
            match event {
                Event::DocumentStart(_) => self.start_document(span)?,
                Event::Scalar(text, style, anchor, tag) => {
                    let span = if style == ScalarStyle::Plain {
                        span
                    } else {
                        self.offsets.quoted(span, style)
                    };
                    let kind = scalar(&text, style, tag.as_deref(), span)?;
                    let value = Value {
                        span,
                        kind,
                        is_plain: style == ScalarStyle::Plain && tag.is_none(),
                    };
                    self.add(value, anchor, 1, 0)?;
                }
                Event::Alias(anchor) => self.add_alias(anchor, span)?,
                Event::SequenceStart(anchor, tag) => {
                    self.start(span, anchor, tag.as_deref(), Content::List(Vec::new()))?;
                }
                Event::MappingStart(anchor, tag) => {
                    self.start(span, anchor, tag.as_deref(), Content::Map(Vec::new(), None))?;
                }
                Event::SequenceEnd | Event::MappingEnd => self.end(span)?,
                Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            }
        }
        match self.root {
            Some(Value {
                kind: Kind::Null, ..
            })
            | None => Err(Box::new(empty_file())),
            Some(root) => Ok(root),
        }
    }

    fn start_document(&mut self, span: Span) -> Result<()> {
        self.documents += 1;
        if self.documents == 1 {
            return Ok(());
        }
        let finding = Finding::error(
            Code::MultipleDocuments,
            span,
            "a second YAML document begins here",
        )
        .expected("one document in a dataflow file")
        .hint("remove the `---` line, or move what follows to a file of its own");
        Err(Box::new(finding))
    }

    fn start(
        &mut self,
        span: Span,
        anchor: usize,
        tag: Option<&Tag>,
        content: Content,
    ) -> Result<()> {
        if let Some(tag) = tag {
            return Err(Box::new(unsupported_tag(tag, span)));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(Box::new(too_deep(span)));
        }
        self.open.push(Open {
            span,
            anchor,
            content,
            values: 1,
            height: 0,
        });
        self.count(1, span)
    }

    fn end(&mut self, end: Span) -> Result<()> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let (kind, last) = match open.content {
            Content::List(items) => {
                let last = items.last().map(|item| item.span);
                (Kind::List(items), last)
            }
            Content::Map(entries, _) => {
                let last = entries
                    .last()
                    .map(|entry| entry.key.span.to(entry.value.span));
                (Kind::Map(entries), last)
            }
        };
        // The parser ends a block collection where the next token begins, lines below. The span
        // covers its content.
        let is_flow = self.offsets.text[open.span.start..].starts_with(['[', '{']);
        let span = if is_flow {
            open.span.to(end)
        } else {
            last.map_or(open.span, |last| open.span.to(last))
        };
        let value = Value {
            span,
            kind,
            is_plain: false,
        };
        self.values -= open.values;
        self.add(value, open.anchor, open.values, open.height)
    }

    /// Adds a finished value, which contains `values` values and has `height` levels below it.
    fn add(&mut self, value: Value, anchor: usize, values: usize, height: usize) -> Result<()> {
        self.count(values, value.span)?;
        if anchor > 0 {
            self.anchors.insert(
                anchor,
                Anchored {
                    value: value.clone(),
                    values,
                    height,
                },
            );
        }
        let depth = self.open.len();
        if depth + height > MAX_DEPTH {
            return Err(Box::new(too_deep(value.span)));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(value);
            return Ok(());
        };
        open.values += values;
        open.height = open.height.max(height + 1);
        match &mut open.content {
            Content::List(items) => items.push(value),
            Content::Map(entries, pending) => match pending.take() {
                Some(key) => entries.push(Entry { key, value }),
                None => *pending = Some(key(value)?),
            },
        }
        Ok(())
    }

    fn add_alias(&mut self, anchor: usize, span: Span) -> Result<()> {
        let Some(anchored) = self.anchors.get(&anchor) else {
            let finding = Finding::error(
                Code::YamlAlias,
                span,
                "this alias is inside the value that it names",
            )
            .hint("write the value out");
            return Err(Box::new(finding));
        };
        let (values, height) = (anchored.values, anchored.height);
        // Checked before the copy: the limit exists to prevent large copies.
        self.count(values, span)?;
        self.values -= values;
        let value = self.anchors[&anchor].value.clone();
        self.add(value, 0, values, height)
    }

    fn count(&mut self, values: usize, span: Span) -> Result<()> {
        self.values += values;
        if self.values <= MAX_VALUES {
            return Ok(());
        }
        let finding = Finding::error(
            Code::YamlTooLarge,
            span,
            format!("the file stands for more than {MAX_VALUES} values"),
        )
        .hint("aliases (`*name`) count with everything that they stand for");
        Err(Box::new(finding))
    }

    fn syntax_error(&self, error: &ScanError) -> Box<Finding> {
        let text = self.offsets.text;
        let at = self.offsets.byte(error.marker().index());
        if let Some(tab) = self.tab_indentation_near(at) {
            let finding = Finding::error(Code::TabIndentation, tab, "a tab indents this line")
                .expected("spaces")
                .hint("YAML allows only spaces for indentation: set your editor to insert spaces");
            return Box::new(finding);
        }
        let open = syntax_error::open_brackets(&text[..at]);
        if open.len() >= MAX_DEPTH {
            return Box::new(too_deep(Span { start: at, end: at }));
        }
        let block = self.open.last().map(|open| match open.content {
            Content::List(_) => Block::List,
            Content::Map(..) => Block::Map,
        });
        let message = error.info();
        Box::new(syntax_error::explain(message, text, at, &open, block))
    }

    /// The first tab in the indentation of the line at `at`, of the line before it, because the parser may
    /// fail late, or of the line after it, where a text that begins at `at` continues; a quoted text may
    /// continue after a tab.
    fn tab_indentation_near(&self, at: usize) -> Option<Span> {
        let text = self.offsets.text;
        let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let before = text[..line_start.saturating_sub(1)]
            .rfind('\n')
            .map_or(0, |newline| newline + 1);
        let after = text[at..]
            .find('\n')
            .filter(|_| !text[at..].starts_with(['"', '\'']))
            .map(|newline| at + newline + 1);
        [Some(line_start), Some(before), after]
            .into_iter()
            .flatten()
            .find_map(|start| {
                let indentation = text[start..]
                    .find(|character| !matches!(character, ' ' | '\t'))
                    .unwrap_or_default();
                let tab = start + text[start..start + indentation].find('\t')?;
                Some(Span {
                    start: tab,
                    end: tab + 1,
                })
            })
    }
}

fn empty_file() -> Finding {
    Finding::error(
        Code::EmptyFile,
        Span { start: 0, end: 0 },
        "the file has no content",
    )
    .expected("a dataflow")
    .hint("the smallest dataflow is `nodes: [{id: camera, path: camera.py}]`")
}

fn too_deep(span: Span) -> Finding {
    Finding::error(
        Code::YamlTooDeep,
        span,
        format!("lists and maps are nested more than {MAX_DEPTH} deep"),
    )
    .hint("a dataflow file needs five levels")
}

fn unsupported_tag(tag: &Tag, span: Span) -> Finding {
    let text = if tag.is_yaml_core_schema() {
        format!("!!{}", tag.suffix)
    } else {
        tag.to_string()
    };
    Finding::error(
        Code::YamlFeature,
        span,
        format!("the YAML tag {} is not used here", quoted(&text)),
    )
    .hint("remove the tag; for text that looks like a number, use quotes")
}

/// The value as the key of a map.
fn key(value: Value) -> Result<Text> {
    let text = match value.kind {
        Kind::Text(text)
        | Kind::Boolean(_, text)
        | Kind::Integer(_, text)
        | Kind::Float(_, text) => text,
        Kind::Null => "null".to_owned(),
        Kind::List(_) | Kind::Map(_) => {
            let finding = Finding::error(
                Code::YamlFeature,
                value.span,
                "a list or a map stands where a key belongs",
            )
            .expected("a name, followed by `:`")
            .hint("text that begins with `{` or `[` needs quotes");
            return Err(Box::new(finding));
        }
    };
    if text == "<<" {
        let finding = Finding::error(
            Code::YamlFeature,
            value.span,
            "merge keys (`<<`) are not supported",
        )
        .hint("write the keys out; an alias for a whole value (`env: *common`) works");
        return Err(Box::new(finding));
    }
    Ok(Text {
        span: value.span,
        text,
    })
}

/// A scalar as YAML 1.2's core schema reads it.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> Result<Kind> {
    let is_text_tag = |tag: &Tag| tag.is_yaml_core_schema() && tag.suffix == "str";
    match tag {
        Some(tag) if is_text_tag(tag) => return Ok(Kind::Text(text.to_owned())),
        Some(tag) => return Err(Box::new(unsupported_tag(tag, span))),
        None => {}
    }
    if style != ScalarStyle::Plain {
        return Ok(Kind::Text(text.to_owned()));
    }
    Ok(plain_scalar(text))
}

/// Text without quotes and tags as YAML 1.2's core schema reads it.
pub(crate) fn plain_scalar(text: &str) -> Kind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Kind::Null,
        "true" | "True" | "TRUE" => Kind::Boolean(true, text.to_owned()),
        "false" | "False" | "FALSE" => Kind::Boolean(false, text.to_owned()),
        _ => number(text).unwrap_or_else(|| Kind::Text(text.to_owned())),
    }
}

fn number(text: &str) -> Option<Kind> {
    let radix = |prefix, radix| {
        let digits = text.strip_prefix(prefix)?;
        // Rust also reads a sign after the prefix; YAML does not.
        digits
            .chars()
            .all(|digit| digit.is_digit(radix))
            .then(|| i64::from_str_radix(digits, radix).ok())?
    };
    let integer = radix("0x", 16)
        .or_else(|| radix("0o", 8))
        .or_else(|| text.parse().ok());
    if let Some(integer) = integer {
        return Some(Kind::Integer(integer, text.to_owned()));
    }
    // Rust also reads "inf", "infinity" and "nan" as floats; YAML does not.
    if !text.starts_with(['+', '-', '.']) && !text.starts_with(|first: char| first.is_ascii_digit())
    {
        return None;
    }
    let float = match text {
        ".inf" | ".Inf" | ".INF" | "+.inf" => f64::INFINITY,
        "-.inf" | "-.Inf" | "-.INF" => f64::NEG_INFINITY,
        ".nan" | ".NaN" | ".NAN" => f64::NAN,
        _ if text
            .chars()
            .all(|character| matches!(character, '0'..='9' | '.' | '+' | '-' | 'e' | 'E')) =>
        {
            text.parse().ok()?
        }
        _ => return None,
    };
    Some(Kind::Float(float, text.to_owned()))
}

/// Converts the parser's offsets, which count characters, to bytes.
struct Offsets<'a> {
    text: &'a str,
    /// Byte offset of each character; empty for ASCII text.
    bytes: Vec<usize>,
}

impl Offsets<'_> {
    fn new(text: &str) -> Offsets<'_> {
        let bytes = if text.is_ascii() {
            Vec::new()
        } else {
            text.char_indices().map(|(byte, _)| byte).collect()
        };
        Offsets { text, bytes }
    }

    fn byte(&self, character: usize) -> usize {
        if self.bytes.is_empty() {
            return character.min(self.text.len());
        }
        self.bytes
            .get(character)
            .copied()
            .unwrap_or(self.text.len())
    }

    fn span(&self, span: saphyr_parser::Span) -> Span {
        let start = self.byte(span.start.index());
        let end = self.byte(span.end.index()).max(start);
        let trimmed = self.text[start..end].trim_end().len();
        Span {
            start,
            end: start + trimmed,
        }
    }

    /// `span` cut at the closing quote: the parser's span of quoted text ends at the next token,
    /// after comments.
    fn quoted(&self, span: Span, style: ScalarStyle) -> Span {
        let quote = match style {
            ScalarStyle::DoubleQuoted => '"',
            ScalarStyle::SingleQuoted => '\'',
            _ => return span,
        };
        let text = &self.text[span.start..span.end];
        let mut characters = text.char_indices().peekable();
        if characters.next().is_none_or(|(_, first)| first != quote) {
            return span;
        }
        while let Some((index, character)) = characters.next() {
            let next_is_quote = characters.peek().is_some_and(|(_, next)| *next == quote);
            if character == '\\' && quote == '"'
                || character == quote && quote == '\'' && next_is_quote
            {
                characters.next();
            } else if character == quote {
                return Span {
                    start: span.start,
                    end: span.start + index + 1,
                };
            }
        }
        span
    }
}
