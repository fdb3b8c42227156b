//! Reads values of one type out of the tree, and reports values of another.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use nervure_protocol::nearest;

use crate::diagnostic::{Code, Finding, Findings, ModuleFindings};
use crate::keys::{Key, Shape};
use crate::name::{
    NAME_GRAMMAR, NameError, PORT_NAME_GRAMMAR, check_name, check_port_name, repair_name,
    repair_port_name,
};
use crate::quote::quoted;
use crate::tree::{Kind, Text, Value};
use crate::type_folders::TypeFolders;
use crate::unit::{self, UnitError};

/// Shortest interval within which a node can act: a wake-up costs about 20 microseconds.
pub(super) const MIN_INTERVAL: Duration = Duration::from_micros(100);

/// Reads values; each defect of a value becomes a finding.
pub(crate) struct Reader<'a> {
    findings: Findings<'a>,
    /// Keys with a reported warning.
    warned: HashSet<*const Key>,
    /// Definitions of types for this file.
    types: Rc<TypeFolders>,
}

impl<'a> Reader<'a> {
    pub fn new(findings: Findings<'a>) -> Self {
        Self {
            findings,
            warned: HashSet::new(),
            types: Rc::default(),
        }
    }

    /// The findings so far, for the steps that follow.
    pub fn into_findings(self) -> Findings<'a> {
        self.findings
    }

    /// Definitions of types for this file.
    pub(super) fn types(&self) -> Rc<TypeFolders> {
        self.types.clone()
    }

    pub(super) fn set_types(&mut self, types: Rc<TypeFolders>) {
        self.types = types;
    }

    /// Adds the findings about a module file or a definition.
    pub fn absorb(&mut self, module: ModuleFindings) {
        self.findings.absorb(module);
    }

    /// The name of the file, as the user wrote it.
    pub fn file_name(&self) -> &'a str {
        self.findings.file_name()
    }

    pub fn report(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Reports an error whose hint is costly to find; see [`Findings::push_error_with`].
    pub fn report_with(&mut self, error: impl FnOnce() -> Finding) {
        self.findings.push_error_with(error);
    }

    /// Whether this is the first call with `key`: a file has one warning for each key, not for each
    /// use.
    pub fn is_first_use(&mut self, key: &'static Key) -> bool {
        self.warned.insert(std::ptr::from_ref(key))
    }

    /// Whether further findings are only counted.
    pub fn is_full(&self) -> bool {
        self.findings.is_full()
    }

    /// Number of errors so far.
    pub fn errors(&self) -> usize {
        self.findings.errors()
    }

    /// Text that is not empty.
    pub fn text(&mut self, value: &Value, shape: Shape) -> Option<Text> {
        let text = match &value.kind {
            Kind::Text(text) if !text.trim().is_empty() => {
                return Some(Text {
                    span: value.span,
                    text: text.clone(),
                });
            }
            Kind::Text(_) => {
                let finding = Finding::error(Code::InvalidValue, value.span, "the text is empty");
                self.report(finding.expected(shape.describe()));
                return None;
            }
            Kind::Boolean(_, text) | Kind::Integer(_, text) | Kind::Float(_, text) => Some(text),
            Kind::Null | Kind::List(_) | Kind::Map(_) => None,
        };
        let finding = wrong_type(value, shape.describe());
        let quotes_help = matches!(shape, Shape::Words | Shape::Name | Shape::Path);
        self.report(match text {
            Some(text) if quotes_help => finding.hint(format!(
                "to use it as text, put it into quotes: `\"{text}\"`"
            )),
            _ => finding,
        });
        None
    }

    /// A name that follows the grammar; `what` is the thing that it names.
    pub fn name(&mut self, value: &Value, what: &str) -> Option<Text> {
        let text = self.name_text(value)?;
        self.check_name(&text, what).then_some(text)
    }

    /// As [`Reader::name`], for an input or output, whose name may have slashes.
    pub fn port_name(&mut self, value: &Value, what: &str) -> Option<Text> {
        let text = self.name_text(value)?;
        self.check_port_name(&text, what).then_some(text)
    }

    fn name_text(&mut self, value: &Value) -> Option<Text> {
        match &value.kind {
            // For empty text the message about the name is better than that of `text`.
            Kind::Text(text) => Some(Text {
                span: value.span,
                text: text.clone(),
            }),
            _ => self.text(value, Shape::Name),
        }
    }

    /// Whether `name` follows the grammar; reports it if not.
    pub fn check_name(&mut self, name: &Text, what: &str) -> bool {
        let Err(reason) = check_name(&name.text) else {
            return true;
        };
        let repaired = repair_name(&name.text);
        self.report(invalid_name(name, what, reason, NAME_GRAMMAR, repaired));
        false
    }

    /// As [`Reader::check_name`], for an input or output.
    pub fn check_port_name(&mut self, name: &Text, what: &str) -> bool {
        let Err(reason) = check_port_name(&name.text) else {
            return true;
        };
        let repaired = repair_port_name(&name.text);
        self.report(invalid_name(
            name,
            what,
            reason,
            PORT_NAME_GRAMMAR,
            repaired,
        ));
        false
    }

    /// One of `words`, with `-` and `_` as the same.
    pub fn one_of(
        &mut self,
        value: &Value,
        words: &'static [&'static str],
    ) -> Option<&'static str> {
        let text = self.text(value, Shape::OneOf(words))?;
        let word = words.iter().find(|word| is_same_word(word, &text.text));
        if word.is_none() {
            let message = format!("{} is not possible here", quoted(&text.text));
            let finding = Finding::error(Code::InvalidValue, value.span, message)
                .expected(Shape::OneOf(words).describe())
                .nearest(nearest(&text.text, words.iter().copied()), || None);
            self.report(finding);
        }
        word.copied()
    }

    pub fn integer(&mut self, value: &Value, range: &'static RangeInclusive<i64>) -> Option<i64> {
        let expected = Shape::Integer(range).describe();
        let Kind::Integer(number, _) = value.kind else {
            let mut finding = wrong_type(value, expected);
            if let Kind::Text(text) = &value.kind
                && text.parse::<i64>().is_ok()
            {
                finding = finding.hint("remove the quotes");
            }
            self.report(finding);
            return None;
        };
        if !range.contains(&number) {
            let message = format!("{number} is out of range");
            let finding = Finding::error(Code::OutOfRange, value.span, message);
            self.report(finding.expected(expected));
            return None;
        }
        Some(number)
    }

    /// As [`Reader::integer`], for ranges within `u32`.
    pub fn unsigned(&mut self, value: &Value, range: &'static RangeInclusive<i64>) -> Option<u32> {
        self.integer(value, range)
            .and_then(|number| u32::try_from(number).ok())
    }

    pub fn boolean(&mut self, value: &Value) -> Option<bool> {
        let Kind::Boolean(boolean, _) = value.kind else {
            self.report(wrong_type(value, Shape::Boolean.describe()));
            return None;
        };
        Some(boolean)
    }

    /// A duration with a unit, or in bare seconds as in dora.
    pub fn duration(&mut self, value: &Value) -> Option<Duration> {
        let result = match &value.kind {
            Kind::Integer(number, _) => unit::seconds(*number as f64),
            Kind::Float(number, _) => unit::seconds(*number),
            Kind::Text(text) => unit::parse_duration(text),
            _ => {
                self.report(wrong_type(value, Shape::Duration.describe()));
                return None;
            }
        };
        self.amount(value, result, Shape::Duration)
    }

    /// A duration with a unit, at least [`MIN_INTERVAL`].
    pub fn interval(&mut self, value: &Value) -> Option<Duration> {
        let result = match &value.kind {
            Kind::Integer(_, text) | Kind::Float(_, text) | Kind::Text(text) => {
                unit::parse_duration(text)
            }
            _ => {
                self.report(wrong_type(value, Shape::Interval.describe()));
                return None;
            }
        };
        let interval = self.amount(value, result, Shape::Interval)?;
        if interval < MIN_INTERVAL {
            let message = format!("{interval:?} is too short");
            let finding = Finding::error(Code::OutOfRange, value.span, message);
            self.report(finding.expected("at least 100us"));
            return None;
        }
        Some(interval)
    }

    /// A size with a unit, in bytes; `bare_bytes` allows a number without a unit, as in dora.
    pub fn size(&mut self, value: &Value, bare_bytes: bool) -> Option<u64> {
        let result = match &value.kind {
            Kind::Integer(number, _) if bare_bytes => {
                u64::try_from(*number).map_err(|_| UnitError::Negative)
            }
            Kind::Integer(_, text) | Kind::Float(_, text) | Kind::Text(text) => {
                unit::parse_size(text)
            }
            _ => {
                self.report(wrong_type(value, Shape::Size.describe()));
                return None;
            }
        };
        self.amount(value, result, Shape::Size)
    }

    /// Reports the error of `result`, the conversion of `value`.
    fn amount<T>(
        &mut self,
        value: &Value,
        result: Result<T, UnitError>,
        shape: Shape,
    ) -> Option<T> {
        let reason = match result {
            Ok(amount) => return Some(amount),
            Err(reason) => reason,
        };
        let (Kind::Text(text) | Kind::Integer(_, text) | Kind::Float(_, text)) = &value.kind else {
            return None;
        };
        let message = format!("{} {reason}", quoted(text));
        let finding = Finding::error(Code::InvalidValue, value.span, message);
        self.report(finding.expected(shape.describe()));
        None
    }
}

fn invalid_name(
    name: &Text,
    what: &str,
    reason: NameError,
    grammar: &str,
    repaired: Option<String>,
) -> Finding {
    let message = match name.text.as_str() {
        "" => format!("the {what} {reason}"),
        text => format!("the {what} {} {reason}", quoted(text)),
    };
    let finding = Finding::error(Code::InvalidName, name.span, message).expected(grammar);
    match repaired {
        Some(repaired) => finding.nearest(Some(&repaired), || None),
        None => finding,
    }
}

/// The finding that `value` has the wrong type.
pub(crate) fn wrong_type(value: &Value, expected: impl Into<String>) -> Finding {
    let message = match value.kind {
        Kind::Null => "the value is missing".to_owned(),
        _ => format!("{} does not belong here", value.describe()),
    };
    Finding::error(Code::WrongType, value.span, message).expected(expected)
}

/// Whether two words are the same but for `-` and `_`.
fn is_same_word(one: &str, other: &str) -> bool {
    let folded = |byte: u8| if byte == b'-' { b'_' } else { byte };
    one.bytes().map(folded).eq(other.bytes().map(folded))
}
