//! Reads the arguments of a file, and puts their values in the place of `${args.NAME}`.
//!
//! This happens in the tree, before anything else is read: an argument may stand for any value, and
//! all checks see the value itself.

use nervure_protocol::nearest;
use nervure_protocol::params::{ParamError, ParamSpec};
use serde_json::Value as Json;

use super::param_value::param_value;
use super::params::read_params;
use super::reader::Reader;
use super::variables::Variables;
use crate::diagnostic::{Code, Finding};
use crate::quote::{listed, quoted};
use crate::source::{MAX_FILE_BYTES, Span};
use crate::tree::{Entry, Kind, Text, Value};

const KEY: &str = "args";
const OPENING: &str = "${args.";

/// The arguments of a file, with the values of this reading.
#[derive(Default)]
pub(crate) struct Arguments {
    specs: Vec<ParamSpec>,
}

impl Arguments {
    /// Reads the declarations of a file, if it has any. The values are those of the file.
    pub fn read(reader: &mut Reader<'_>, variables: &Variables<'_>, file: &Value) -> Option<Self> {
        let declared = declarations(file)?;
        let specs = read_params(reader, variables, declared);
        for Entry { key, value } in entries(declared) {
            if key.text.contains('.') {
                let message = format!("the argument {} has a dot", quoted(&key.text));
                let finding = Finding::error(Code::InvalidName, key.span, message);
                reader.report(finding.hint("`NODE.PARAMETER` is a parameter on a command line"));
            }
            if let Some(key) = entries(value).iter().find(|it| it.key.text == "read_only") {
                let message = "no argument changes while the dataflow runs";
                let finding = Finding::warning(Code::UselessKey, key.key.span, message);
                reader.report(finding.hint("remove `read_only`"));
            }
        }
        Some(Self { specs })
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.specs.iter().map(|spec| spec.name.as_str())
    }

    pub fn into_specs(self) -> Vec<ParamSpec> {
        self.specs
    }

    /// Takes values from a command line. An error is reported at the declaration.
    pub fn give_texts(
        &mut self,
        reader: &mut Reader<'_>,
        file: &Value,
        text_of: impl Fn(&str) -> Option<String>,
    ) {
        for spec in &mut self.specs {
            let Some(text) = text_of(&spec.name) else {
                continue;
            };
            if let Err(error) = give(spec, param_value(&text, spec.kind)) {
                let declared = declarations(file).map(entries).unwrap_or_default();
                let of_spec = declared.iter().find(|it| it.key.text == spec.name);
                let span = of_spec.map_or(file.span, |it| it.key.span);
                let given = format!("{}={text}", spec.name);
                let message = format!("{} was given: {error}", quoted(&given));
                reader.report(Finding::error(Code::InvalidValue, span, message));
            }
        }
    }

    /// Takes a value. `None` if there is no such argument.
    pub fn give(&mut self, name: &str, value: Json) -> Option<Result<(), ParamError>> {
        let spec = self.specs.iter_mut().find(|spec| spec.name == name)?;
        Some(give(spec, value))
    }

    /// The file with the values. `None` if it has errors.
    pub fn fill(&self, reader: &mut Reader<'_>, mut file: Value) -> Option<Value> {
        let errors = reader.errors();
        let mut filler = Filler {
            arguments: self,
            room: MAX_FILE_BYTES,
        };
        filler.fill(reader, &mut file);
        (reader.errors() == errors).then_some(file)
    }
}

fn give(spec: &mut ParamSpec, value: Json) -> Result<(), ParamError> {
    spec.value = spec.accept(value)?;
    Ok(())
}

fn declarations(file: &Value) -> Option<&Value> {
    let entry = entries(file).iter().find(|entry| entry.key.text == KEY)?;
    (!matches!(entry.value.kind, Kind::Null)).then_some(&entry.value)
}

fn entries(value: &Value) -> &[Entry] {
    match &value.kind {
        Kind::Map(entries) => entries,
        _ => &[],
    }
}

struct Filler<'a> {
    arguments: &'a Arguments,
    /// Bytes of values that may still be filled in: many uses of a long list are more than a file can be.
    room: usize,
}

impl Filler<'_> {
    fn fill(&mut self, reader: &mut Reader<'_>, value: &mut Value) {
        match &mut value.kind {
            Kind::Text(text) if text.contains(OPENING) => {
                if let Some(kind) = self.filled(reader, text, value.span) {
                    value.kind = kind;
                }
            }
            Kind::List(items) => items.iter_mut().for_each(|item| self.fill(reader, item)),
            Kind::Map(entries) => {
                let values = entries.iter_mut().map(|entry| &mut entry.value);
                values.for_each(|value| self.fill(reader, value));
            }
            _ => {}
        }
    }

    /// The value in the place of a text. `None` if the text stays as it is.
    fn filled(&mut self, reader: &mut Reader<'_>, text: &str, span: Span) -> Option<Kind> {
        let whole = text
            .strip_prefix(OPENING)
            .and_then(|rest| rest.strip_suffix('}'));
        if let Some(name) = whole.filter(|name| !name.contains('}')) {
            let value = self.value(reader, name, span)?;
            return kind_of(value, span);
        }
        let (mut filled, mut rest) = (String::new(), text);
        while let Some((before, behind)) = rest.split_once(OPENING) {
            filled.push_str(before);
            let dollars = before.len() - before.trim_end_matches('$').len();
            let Some((name, after)) = behind.split_once('}').filter(|_| dollars % 2 == 0) else {
                // A `$` is escaped, or the brace is not closed: left to those who read the text.
                filled.push_str(OPENING);
                rest = behind;
                continue;
            };
            match self.value(reader, name, span)? {
                Json::String(text) => filled.push_str(text),
                Json::Array(_) => {
                    let message = format!("the list {} cannot be a part of a text", quoted(name));
                    let finding = Finding::error(Code::WrongType, span, message);
                    reader.report(finding.hint(format!("write `${{args.{name}}}` alone")));
                    return None;
                }
                other => filled.push_str(&other.to_string()),
            }
            rest = after;
        }
        Some(Kind::Text(filled + rest))
    }

    fn value(&mut self, reader: &mut Reader<'_>, name: &str, span: Span) -> Option<&Json> {
        let Some(spec) = self.arguments.specs.iter().find(|spec| spec.name == name) else {
            let name = Text {
                span,
                text: name.to_owned(),
            };
            reader.report(unknown_argument("file", &name, self.arguments));
            return None;
        };
        let Some(room) = self.room.checked_sub(spec.value.to_string().len()) else {
            let message = "with the values of its arguments, the file is too large";
            let finding = Finding::error(Code::OutOfRange, span, message);
            reader.report(finding.expected(format!("at most {MAX_FILE_BYTES} bytes of values")));
            return None;
        };
        self.room = room;
        Some(&spec.value)
    }
}

/// The finding that a file or module does not declare an argument.
pub(super) fn unknown_argument(what: &str, name: &Text, arguments: &Arguments) -> Finding {
    let names = || arguments.names();
    let message = format!("the {what} has no argument {}", quoted(&name.text));
    let finding = Finding::error(Code::UnknownArgument, name.span, message);
    finding.nearest(nearest(&name.text, names()), || {
        Some(match names().next() {
            Some(_) => format!("its arguments are {}", listed(names())),
            None => format!(
                "declare it at the top of the file: `args: {{{}: ..}}`",
                name.text
            ),
        })
    })
}

/// A value as it stands in a file.
fn kind_of(value: &Json, span: Span) -> Option<Kind> {
    let text = value.to_string();
    Some(match value {
        Json::Bool(value) => Kind::Boolean(*value, text),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Kind::Integer(integer, text),
            None => Kind::Float(number.as_f64()?, text),
        },
        Json::String(text) => Kind::Text(text.clone()),
        Json::Array(items) => {
            let items = items.iter().map(|item| {
                Some(Value {
                    span,
                    kind: kind_of(item, span)?,
                    is_plain: false,
                })
            });
            Kind::List(items.collect::<Option<_>>()?)
        }
        Json::Null | Json::Object(_) => return None,
    })
}
