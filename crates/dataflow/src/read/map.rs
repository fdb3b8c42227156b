//! Reads maps: those with keys from the table, and those with names that the user chooses.

use std::collections::HashMap;

use nervure_protocol::nearest;

use super::reader::{Reader, wrong_type};
use crate::diagnostic::{Code, Finding};
use crate::keys::{Key, LEVELS, Level, OTHER_KINDS_OF_NODES, Shape, Status};
use crate::quote::quoted;
use crate::source::Span;
use crate::tree::{Entry, Kind, Text, Value};

/// The usable keys of a map.
pub(crate) struct Keys<'t> {
    found: Vec<(&'static Key, &'t Entry)>,
    /// Refused keys, and the nearest usable key of each misspelt one.
    refused: Vec<&'static str>,
    /// The whole map.
    pub span: Span,
}

impl<'t> Keys<'t> {
    /// The entry of the key `name`, which must be in the table.
    pub fn entry(&self, name: &str) -> Option<&'t Entry> {
        self.found
            .iter()
            .find(|(key, _)| key.name == name)
            .map(|(_, entry)| *entry)
    }

    /// The value of the key `name`.
    pub fn value(&self, name: &str) -> Option<&'t Value> {
        self.entry(name).map(|entry| &entry.value)
    }

    /// As [`Keys::value`]; an empty value (`inputs:` alone) counts as absent.
    pub fn value_if_any(&self, name: &str) -> Option<&'t Value> {
        self.value(name)
            .filter(|value| !matches!(value.kind, Kind::Null))
    }

    /// Whether the map has the key `name`, refused or misspelt.
    pub fn is_refused(&self, name: &str) -> bool {
        self.refused.contains(&name)
    }
}

/// The usable keys of `value`; reports every other key in it. `hint` is for a value that is not a
/// map.
pub(crate) fn read_keys<'t>(
    reader: &mut Reader<'_>,
    value: &'t Value,
    level: &'static Level,
    hint: Option<&str>,
) -> Option<Keys<'t>> {
    let Kind::Map(entries) = &value.kind else {
        let finding = wrong_type(value, format!("{} as a map of keys", level.noun));
        reader.report(match hint {
            Some(hint) => finding.hint(hint),
            None => finding,
        });
        return None;
    };
    let mut keys = Keys {
        found: Vec::new(),
        refused: Vec::new(),
        span: value.span,
    };
    for entry in entries {
        let Some(key) = level.find(&entry.key.text) else {
            let near = nearest(&entry.key.text, level.usable().map(|key| key.name));
            reader.report(unknown_key(&entry.key, level, near));
            keys.refused.extend(near);
            continue;
        };
        match key.status {
            Status::Later(hint) => {
                let reason = "is reserved for a later version";
                reader.report(refused_key(Code::LaterKey, reason, &entry.key, hint));
                keys.refused.push(key.name);
            }
            Status::Ignored(reason) => {
                if reader.is_first_use(key) {
                    let message = format!("{} is ignored: {reason}", quoted(&entry.key.text));
                    reader.report(Finding::warning(Code::IgnoredKey, entry.key.span, message));
                }
            }
            Status::Unsupported(hint) => {
                let reason = "is not supported";
                reader.report(refused_key(Code::UnsupportedKey, reason, &entry.key, hint));
                keys.refused.push(key.name);
            }
            Status::Required | Status::Optional | Status::RequiredUnless(_) => {
                match keys.entry(key.name) {
                    Some(first) => reader.report(duplicate_key(&entry.key, &first.key)),
                    None => keys.found.push((key, entry)),
                }
            }
        }
    }
    for key in level.keys {
        if is_missing(key, &keys) {
            reader.report(missing_key(value.span, key, level, entries));
        }
    }
    Some(keys)
}

/// The entries of a map with free names (`inputs`, `env`); `what` is the noun for one of them.
/// Reports names that appear twice, and returns both entries, so that both values are checked.
pub(crate) fn read_entries<'t>(
    reader: &mut Reader<'_>,
    value: &'t Value,
    shape: Shape,
    code: Code,
    what: &str,
) -> Option<&'t [Entry]> {
    let Kind::Map(entries) = &value.kind else {
        reader.report(wrong_type(value, shape.describe()));
        return None;
    };
    let mut first: HashMap<&str, &Entry> = HashMap::new();
    for entry in entries {
        if let Some(first) = first.get(entry.key.text.as_str()) {
            reader.report(duplicate_name(code, what, &entry.key, first.key.span));
        } else {
            first.insert(&entry.key.text, entry);
        }
    }
    Some(entries)
}

/// The finding that another thing of the same kind already has `name`.
pub(crate) fn duplicate_name(code: Code, what: &str, name: &Text, first: Span) -> Finding {
    let message = format!("the {what} {} appears twice", quoted(&name.text));
    Finding::error(code, name.span, message)
        .hint("remove or rename one of them")
        .related(first, "first here")
}

/// Whether a required key is absent. A node of another kind, which is refused, has no `path` in the
/// first place.
fn is_missing(key: &Key, keys: &Keys<'_>) -> bool {
    let is_there = |name: &str| keys.entry(name).is_some() || keys.is_refused(name);
    let others: &[&str] = match key.status {
        Status::Required => &[],
        Status::RequiredUnless(others) => others,
        _ => return false,
    };
    let is_of_another_kind = || {
        key.name == "path"
            && OTHER_KINDS_OF_NODES
                .iter()
                .any(|name| keys.is_refused(name))
    };
    !is_there(key.name) && !others.iter().any(|other| is_there(other)) && !is_of_another_kind()
}

/// `near` is the key that was probably meant.
fn unknown_key(key: &Text, level: &'static Level, near: Option<&str>) -> Finding {
    let message = format!("{} is not a key of {}", quoted(&key.text), level.noun);
    let finding = Finding::error(Code::UnknownKey, key.span, message);
    // `restart` begins several keys, and the shortest is not the likeliest. `max_restart` lacks one
    // letter.
    let begun: Vec<String> = level
        .usable()
        .filter(|known| known.name.starts_with(&key.text))
        .map(|key| quoted(key.name))
        .collect();
    match begun.as_slice() {
        [_, .., _] if near.is_some_and(|near| near.len() > key.text.len() + 3) => {
            finding.hint(format!("did you mean one of {}?", begun.join(", ")))
        }
        _ => finding.nearest(near, || {
            let other_level = LEVELS
                .iter()
                .find(|other| other.find(&key.text).is_some_and(Key::is_usable));
            if let Some(other) = other_level {
                return Some(format!("it is a key of {}", other.noun));
            }
            let names: Vec<&str> = level.usable().map(|key| key.name).collect();
            let names = names.join(", ");
            Some(format!("the keys of {} are {names}", level.noun))
        }),
    }
}

fn refused_key(code: Code, reason: &str, key: &Text, hint: &str) -> Finding {
    Finding::error(code, key.span, format!("{} {reason}", quoted(&key.text))).hint(hint)
}

fn duplicate_key(key: &Text, first: &Text) -> Finding {
    let (written, first_written) = (quoted(&key.text), quoted(&first.text));
    let message = if key.text == first.text {
        format!("the key {written} appears twice")
    } else {
        format!("{first_written} and {written} are the same key")
    };
    Finding::error(Code::DuplicateKey, key.span, message)
        .hint("remove one of them")
        .related(first.span, "first here")
}

fn missing_key(map: Span, key: &Key, level: &Level, entries: &[Entry]) -> Finding {
    let id = entries
        .iter()
        .find(|entry| entry.key.text == "id")
        .map(|entry| &entry.value);
    let (subject, span) = match id {
        Some(Value {
            kind: Kind::Text(id),
            span,
            ..
        }) => {
            let noun = level
                .noun
                .split_once(' ')
                .map_or(level.noun, |(_, noun)| noun);
            (format!("the {noun} {}", quoted(id)), *span)
        }
        _ => (
            level.noun.to_owned(),
            entries.first().map_or(map, |entry| entry.key.span),
        ),
    };
    let message = format!("{subject} has no `{}`", key.name);
    let hint = format!("add `{}:` with {}", key.name, key.shape.describe());
    Finding::error(Code::MissingKey, span, message).hint(hint)
}
