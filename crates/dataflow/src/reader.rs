//! Reads typed values out of the tree, and reports those that are none.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use nervure_protocol::nearest;

use crate::diagnostic::{Code, Finding, Findings};
use crate::keys::{Key, Level, OTHER_KINDS_OF_NODES, Shape, Status};
use crate::name::{NAME_GRAMMAR, check_name, repair_name};
use crate::quote::quoted;
use crate::source::Span;
use crate::surroundings::Surroundings;
use crate::tree::{Entry, Kind, Text, Value};
use crate::unit::{self, UnitError};

/// What reading needs: where findings go, and the host.
pub(crate) struct Reader<'a> {
    pub findings: Findings<'a>,
    pub directory: &'a Path,
    pub surroundings: &'a dyn Surroundings,
    /// The id of the first node that has a `build`.
    pub builder: Option<String>,
}

/// The keys that a map has, all of them usable.
pub(crate) struct Keys<'t> {
    found: Vec<(&'static Key, &'t Entry)>,
    /// Keys that were refused, and those that misspelt ones were probably meant to be.
    refused: Vec<&'static str>,
    /// The map.
    pub span: Span,
}

impl<'t> Keys<'t> {
    /// The entry of the key `name`, which must be in the table.
    pub fn get(&self, name: &str) -> Option<&'t Entry> {
        self.found
            .iter()
            .find(|(key, _)| key.name == name)
            .map(|(_, entry)| *entry)
    }

    /// Whether the map has the key `name`, refused or misspelt.
    pub fn is_refused(&self, name: &str) -> bool {
        self.refused.contains(&name)
    }

    /// As [`Keys::get`]; a value of nothing (`inputs:` and no more) counts as absent.
    pub fn get_some(&self, name: &str) -> Option<&'t Entry> {
        self.get(name)
            .filter(|entry| !matches!(entry.value.kind, Kind::Null))
    }
}

impl Reader<'_> {
    /// The usable keys of `value`; everything else in it is reported.
    pub fn keys<'t>(
        &mut self,
        value: &'t Value,
        level: &'static Level,
        hint: Option<&str>,
    ) -> Option<Keys<'t>> {
        let Kind::Map(entries) = &value.kind else {
            let finding = self.wrong_type(value, &format!("{} as a map of keys", level.noun));
            self.findings.push(match hint {
                Some(hint) => finding.hint(hint),
                None => finding,
            });
            return None;
        };
        let mut found: Vec<(&'static Key, &'t Entry)> = Vec::new();
        let mut refused = Vec::new();
        for entry in entries {
            let Some(key) = level.find(&entry.key.text) else {
                refused.extend(self.unknown_key(&entry.key, level));
                continue;
            };
            if !key.is_usable() {
                refused.push(key.name);
            }
            match key.status {
                Status::Later(hint) => self.refused_key(
                    Code::LaterKey,
                    "is reserved for a later version",
                    entry,
                    hint,
                ),
                Status::Unsupported(hint) => {
                    self.refused_key(Code::UnsupportedKey, "is not supported", entry, hint)
                }
                Status::Required | Status::Optional => {
                    match found.iter().find(|(other, _)| other.name == key.name) {
                        Some((_, first)) => self.duplicate_key(&entry.key, &first.key),
                        None => found.push((key, entry)),
                    }
                }
            }
        }
        for key in level
            .keys
            .iter()
            .filter(|key| matches!(key.status, Status::Required))
        {
            let is_elsewhere = key.name == "path"
                && refused
                    .iter()
                    .any(|name| OTHER_KINDS_OF_NODES.contains(name));
            if !found.iter().any(|(other, _)| other.name == key.name)
                && !refused.contains(&key.name)
                && !is_elsewhere
            {
                self.missing_key(value.span, key, level, entries);
            }
        }
        Some(Keys {
            found,
            refused,
            span: value.span,
        })
    }

    /// The entries of a map with free keys (`inputs`, `env`); `what` names one of them. Keys that are there twice
    /// are reported, and returned twice, so that both values are checked.
    pub fn entries<'t>(
        &mut self,
        value: &'t Value,
        shape: Shape,
        code: Code,
        what: &str,
    ) -> Option<&'t [Entry]> {
        let Kind::Map(entries) = &value.kind else {
            let finding = self.wrong_type(value, &shape.describe());
            self.findings.push(finding);
            return None;
        };
        let mut first: HashMap<&str, &Entry> = HashMap::new();
        for entry in entries {
            if let Some(first) = first.get(entry.key.text.as_str()) {
                let message = format!("the {what} {} is there twice", quoted(&entry.key.text));
                let finding = Finding::error(code, entry.key.span, message)
                    .hint("remove or rename one of them")
                    .related(first.key.span, "first here");
                self.findings.push(finding);
            } else {
                first.insert(&entry.key.text, entry);
            }
        }
        Some(entries)
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
                let finding = Finding::error(Code::InvalidValue, value.span, "the text is empty")
                    .expected(shape.describe());
                self.findings.push(finding);
                return None;
            }
            Kind::Boolean(_, text) | Kind::Integer(_, text) | Kind::Float(_, text) => Some(text),
            Kind::Null | Kind::List(_) | Kind::Map(_) => None,
        };
        let finding = self.wrong_type(value, &shape.describe());
        let quotes_help = matches!(shape, Shape::Words | Shape::Name | Shape::Path);
        self.findings.push(match text {
            Some(text) if quotes_help => finding.hint(format!(
                "to use it as text, put it into quotes: `\"{text}\"`"
            )),
            _ => finding,
        });
        None
    }

    /// A name, checked; one that is not allowed is reported and `None`.
    pub fn name(&mut self, value: &Value, what: &str) -> Option<Text> {
        let text = match &value.kind {
            // "the text is empty" is reported better below.
            Kind::Text(text) => Text {
                span: value.span,
                text: text.clone(),
            },
            _ => self.text(value, Shape::Name)?,
        };
        self.check_name(&text, what).then_some(text)
    }

    pub fn check_name(&mut self, name: &Text, what: &str) -> bool {
        let Err(reason) = check_name(&name.text) else {
            return true;
        };
        let message = match name.text.as_str() {
            "" => format!("the {what} {reason}"),
            text => format!("the {what} {} {reason}", quoted(text)),
        };
        let mut finding =
            Finding::error(Code::InvalidName, name.span, message).expected(NAME_GRAMMAR);
        if let Some(repaired) = repair_name(&name.text) {
            finding = finding.nearest(Some(&repaired), || None);
        }
        self.findings.push(finding);
        false
    }

    /// One of the words, in which `-` and `_` are the same.
    pub fn one_of(
        &mut self,
        value: &Value,
        words: &'static [&'static str],
    ) -> Option<&'static str> {
        let text = self.text(value, Shape::OneOf(words))?;
        let word = words.iter().find(|word| is_same_word(word, &text.text));
        if word.is_none() {
            let finding = Finding::error(
                Code::InvalidValue,
                value.span,
                format!("{} is not possible here", quoted(&text.text)),
            )
            .expected(Shape::OneOf(words).describe())
            .nearest(nearest(&text.text, words.iter().copied()), || None);
            self.findings.push(finding);
        }
        word.copied()
    }

    pub fn integer(
        &mut self,
        value: &Value,
        range: &'static std::ops::RangeInclusive<i64>,
    ) -> Option<i64> {
        let expected = Shape::Integer(range).describe();
        let Kind::Integer(number, _) = value.kind else {
            let mut finding = self.wrong_type(value, &expected);
            if let Kind::Text(text) = &value.kind
                && text.parse::<i64>().is_ok()
            {
                finding = finding.hint("remove the quotes");
            }
            self.findings.push(finding);
            return None;
        };
        if !range.contains(&number) {
            let finding = Finding::error(
                Code::OutOfRange,
                value.span,
                format!("{number} is out of range"),
            )
            .expected(expected);
            self.findings.push(finding);
            return None;
        }
        Some(number)
    }

    pub fn truth(&mut self, value: &Value) -> Option<bool> {
        let Kind::Boolean(truth, _) = value.kind else {
            let finding = self.wrong_type(value, &Shape::Truth.describe());
            self.findings.push(finding);
            return None;
        };
        Some(truth)
    }

    /// As [`Reader::integer`], for ranges within `u32`.
    pub fn unsigned(
        &mut self,
        value: &Value,
        range: &'static std::ops::RangeInclusive<i64>,
    ) -> Option<u32> {
        self.integer(value, range)
            .and_then(|number| u32::try_from(number).ok())
    }

    /// A duration with a unit, or seconds as in dora.
    pub fn duration(&mut self, value: &Value) -> Option<Duration> {
        let result = match &value.kind {
            Kind::Integer(number, _) => unit::seconds(*number as f64),
            Kind::Float(number, _) => unit::seconds(*number),
            Kind::Text(text) => unit::parse_duration(text),
            _ => {
                let finding = self.wrong_type(value, &Shape::Duration.describe());
                self.findings.push(finding);
                return None;
            }
        };
        self.amount(value, result, Shape::Duration)
    }

    /// A duration with a unit, long enough for something to happen within it.
    pub fn interval(&mut self, value: &Value) -> Option<Duration> {
        /// A wake-up costs some 20 microseconds.
        const SHORTEST: Duration = Duration::from_micros(100);
        let result = match &value.kind {
            Kind::Integer(_, text) | Kind::Float(_, text) | Kind::Text(text) => {
                unit::parse_duration(text)
            }
            _ => {
                let finding = self.wrong_type(value, &Shape::Interval.describe());
                self.findings.push(finding);
                return None;
            }
        };
        let interval = self.amount(value, result, Shape::Interval)?;
        if interval < SHORTEST {
            let finding = Finding::error(
                Code::OutOfRange,
                value.span,
                format!("{interval:?} is too short"),
            )
            .expected("at least 100us");
            self.findings.push(finding);
            return None;
        }
        Some(interval)
    }

    /// A size with a unit; `bare_bytes` allows dora's number of bytes.
    pub fn size(&mut self, value: &Value, bare_bytes: bool) -> Option<u64> {
        let result = match &value.kind {
            Kind::Integer(number, _) if bare_bytes => {
                u64::try_from(*number).map_err(|_| UnitError::Negative)
            }
            Kind::Integer(_, text) | Kind::Float(_, text) | Kind::Text(text) => {
                unit::parse_size(text)
            }
            _ => {
                let finding = self.wrong_type(value, &Shape::Size.describe());
                self.findings.push(finding);
                return None;
            }
        };
        self.amount(value, result, Shape::Size)
    }

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
        let finding = Finding::error(
            Code::InvalidValue,
            value.span,
            format!("{} {reason}", quoted(text)),
        )
        .expected(shape.describe());
        self.findings.push(finding);
        None
    }

    pub fn wrong_type(&self, value: &Value, expected: &str) -> Finding {
        let message = match value.kind {
            Kind::Null => "the value is missing".to_owned(),
            _ => format!("{} does not belong here", value.describe()),
        };
        Finding::error(Code::WrongType, value.span, message).expected(expected)
    }

    /// Returns the key that was probably meant.
    fn unknown_key(&mut self, key: &Text, level: &'static Level) -> Option<&'static str> {
        let usable = level.usable().map(|key| key.name);
        let near = nearest(&key.text, usable);
        let elsewhere = || {
            let other = crate::keys::LEVELS
                .iter()
                .find(|other| other.find(&key.text).is_some_and(Key::is_usable))?;
            Some(format!("it is a key of {}", other.noun))
        };
        let message = format!("{} is not a key of {}", quoted(&key.text), level.noun);
        let finding = Finding::error(Code::UnknownKey, key.span, message);
        // `restart` may begin any of several, and the shortest is not the likeliest; `max_restart` lacks a letter.
        let begun: Vec<String> = level
            .usable()
            .filter(|known| known.name.starts_with(&key.text))
            .map(|key| quoted(key.name))
            .collect();
        let finding = match begun.as_slice() {
            [_, .., _] if near.is_some_and(|near| near.len() > key.text.len() + 3) => {
                finding.hint(format!("did you mean one of {}?", begun.join(", ")))
            }
            _ => finding.nearest(near, || {
                let names: Vec<&str> = level.usable().map(|key| key.name).collect();
                elsewhere().or_else(|| {
                    Some(format!(
                        "the keys of {} are {}",
                        level.noun,
                        names.join(", ")
                    ))
                })
            }),
        };
        self.findings.push(finding);
        near
    }

    fn refused_key(&mut self, code: Code, why: &str, entry: &Entry, hint: &str) {
        let finding = Finding::error(
            code,
            entry.key.span,
            format!("{} {why}", quoted(&entry.key.text)),
        )
        .hint(hint);
        self.findings.push(finding);
    }

    fn duplicate_key(&mut self, key: &Text, first: &Text) {
        let message = if key.text == first.text {
            format!("the key {} is there twice", quoted(&key.text))
        } else {
            format!(
                "{} and {} are the same key",
                quoted(&first.text),
                quoted(&key.text)
            )
        };
        let finding = Finding::error(Code::DuplicateKey, key.span, message)
            .hint("remove one of them")
            .related(first.span, "first here");
        self.findings.push(finding);
    }

    fn missing_key(&mut self, map: Span, key: &Key, level: &Level, entries: &[Entry]) {
        let id = entries
            .iter()
            .find(|entry| entry.key.text == "id")
            .map(|entry| &entry.value);
        let (subject, span) = match id {
            Some(Value {
                kind: Kind::Text(id),
                span,
                ..
            }) => (format!("the node {}", quoted(id)), *span),
            _ => (
                level.noun.to_owned(),
                entries.first().map_or(map, |entry| entry.key.span),
            ),
        };
        let finding = Finding::error(
            Code::MissingKey,
            span,
            format!("{subject} has no `{}`", key.name),
        )
        .hint(format!("add `{}:` with {}", key.name, key.shape.describe()));
        self.findings.push(finding);
    }
}

/// Whether two words differ in nothing but `-` for `_`.
fn is_same_word(one: &str, other: &str) -> bool {
    let folded = |byte: u8| if byte == b'-' { b'_' } else { byte };
    one.bytes().map(folded).eq(other.bytes().map(folded))
}
