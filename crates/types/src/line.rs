//! Lines of `.msg` files: fields and constants, with their positions.

use std::sync::Arc;

use nervure_protocol::nearest;

use crate::definition::{Literal, Number, plain_name};
use crate::error::{Place, SyntaxError, shortened};

/// A line with its comment.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The lines of comment above it and the comment after it.
    pub(crate) comment: String,
    pub(crate) item: Result<Item, SyntaxError>,
}

#[derive(Clone, Debug)]
pub(crate) enum Item {
    Field(FieldLine),
    Constant(ConstantLine),
}

#[derive(Clone, Debug)]
pub(crate) struct FieldLine {
    /// The position of its type.
    pub(crate) place: Place,
    pub(crate) kind: TypeText,
    pub(crate) name: String,
    pub(crate) name_column: usize,
    /// An error does not matter to the encoding of messages.
    pub(crate) default: Result<Option<Literal>, SyntaxError>,
}

#[derive(Clone, Debug)]
pub(crate) struct ConstantLine {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// An error does not matter to the encoding of messages.
    pub(crate) value: Result<Literal, SyntaxError>,
}

/// A type as written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TypeText {
    /// Name of a primitive type or a message.
    pub(crate) base: String,
    /// Longest text, in bytes.
    pub(crate) most_bytes: Option<usize>,
    /// The innermost first.
    pub(crate) lists: Vec<ListText>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ListText {
    Exactly(usize),
    AtMost(usize),
    Any,
}

/// Limit on lists in each other, which only IDL has.
const MAX_LISTS: usize = 8;
/// Types of numbers by the names that other languages give them.
const FOREIGN: [(&str, &str); 9] = [
    ("boolean", "`bool`"),
    ("double", "`float64`"),
    ("float", "`float32` or `float64`"),
    ("int", "`int32`"),
    ("long", "`int64`"),
    ("short", "`int16`"),
    ("str", "`string`"),
    ("text", "`string`"),
    ("uint", "`uint32`"),
];

impl Line {
    /// Reads a line; `None` for one without content. `above` is the comment in the lines above.
    pub(crate) fn read(source: &Arc<str>, number: usize, text: &str, above: &str) -> Option<Self> {
        let bare = without_comment(text);
        if bare.is_empty() {
            return None;
        }
        let comment = match (above, comment_of(text)) {
            (above, None) => above.to_owned(),
            ("", Some(own)) => own.to_owned(),
            (above, Some(own)) => format!("{above}\n{own}"),
        };
        let start = text.len() - text.trim_start().len();
        let item = Cursor {
            source,
            line: number,
            text,
            start,
            bare,
        }
        .item();
        Some(Self { comment, item })
    }

    /// The part of the line that is equal in all definitions of one type: type and name of a field;
    /// nothing for a constant.
    pub(crate) fn signature(&self) -> Option<String> {
        match &self.item {
            Ok(Item::Field(field)) => Some(format!("{} {}", field.kind, field.name)),
            Ok(Item::Constant(_)) => None,
            Err(error) => Some(error.found.clone()),
        }
    }

    /// All errors, including those that do not matter to the encoding of messages.
    pub(crate) fn error(&self) -> Option<&SyntaxError> {
        match &self.item {
            Ok(Item::Field(field)) => field.default.as_ref().err(),
            Ok(Item::Constant(constant)) => constant.value.as_ref().err(),
            Err(error) => Some(error),
        }
    }
}

impl std::fmt::Display for TypeText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.base)?;
        if let Some(most) = self.most_bytes {
            write!(f, "<={most}")?;
        }
        for list in &self.lists {
            match list {
                ListText::Exactly(count) => write!(f, "[{count}]")?,
                ListText::AtMost(count) => write!(f, "[<={count}]")?,
                ListText::Any => f.write_str("[]")?,
            }
        }
        Ok(())
    }
}

/// The text before a comment, without spaces around it.
pub(crate) fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

/// The text of a comment.
pub(crate) fn comment_of(line: &str) -> Option<&str> {
    let (_, comment) = line.split_once('#')?;
    Some(comment.trim_start_matches('#').trim())
}

/// A line while it is read.
struct Cursor<'a> {
    source: &'a Arc<str>,
    line: usize,
    text: &'a str,
    /// Offset of `bare` in `text`.
    start: usize,
    /// The line without its comment and the spaces around it.
    bare: &'a str,
}

impl Cursor<'_> {
    fn item(&self) -> Result<Item, SyntaxError> {
        let type_bytes = self
            .bare
            .find(char::is_whitespace)
            .unwrap_or(self.bare.len());
        let (kind, rest) = self.bare.split_at(type_bytes);
        let name_at = type_bytes + (rest.len() - rest.trim_start().len());
        let rest = &self.bare[name_at..];
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name_bytes = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(name_bytes);
        let after_at = name_at + name_bytes;
        if let Some(value) = after.trim_start().strip_prefix('=') {
            let value_at = self.bare.len() - value.trim_start().len();
            return Ok(Item::Constant(ConstantLine {
                name: name.to_owned(),
                kind: kind.to_owned(),
                value: self.constant(kind, name, value_at),
            }));
        }
        if name.is_empty() {
            return Err(self.error(name_at, rest, "the name of a field after its type", None));
        }
        if !after.is_empty() && !after.starts_with(char::is_whitespace) {
            let hint = after
                .starts_with([';', ','])
                .then(|| "remove it: a line ends a field".to_owned());
            let expected = "a name of letters, digits and `_`";
            return Err(self.error(after_at, after, expected, hint));
        }
        let kind = self.kind(kind)?;
        let default_at = self.bare.len() - after.trim_start().len();
        let default = match after.trim_start() {
            "" => Ok(None),
            value => self.value(&kind, value, default_at).map(Some),
        };
        Ok(Item::Field(FieldLine {
            place: self.place(0),
            kind,
            name: name.to_owned(),
            name_column: self.place(name_at).column,
            default,
        }))
    }

    fn kind(&self, text: &str) -> Result<TypeText, SyntaxError> {
        let (mut base, mut lists) = (text, Vec::new());
        while let Some((item, count)) = base
            .strip_suffix(']')
            .and_then(|rest| rest.rsplit_once('['))
        {
            let at = item.len() + 1;
            let is_bound = count.starts_with("<=");
            let digits = count.strip_prefix("<=").unwrap_or(count);
            lists.push(match digits.parse() {
                Ok(most @ 1..) if is_bound => ListText::AtMost(most),
                Ok(count @ 1..) => ListText::Exactly(count),
                Err(_) if count.is_empty() => ListText::Any,
                _ => {
                    let hint = "`[3]` is 3 items, `[<=3]` at most 3, `[]` any number";
                    let expected = "a number of items from 1";
                    return Err(self.error(at, count, expected, Some(hint.to_owned())));
                }
            });
            if lists.len() > MAX_LISTS {
                return Err(self.error(at, text, "fewer lists in each other", None));
            }
            base = item;
        }
        lists.reverse();
        let mut most_bytes = None;
        if let Some((name, digits)) = base.split_once("<=") {
            let most = digits.parse().ok().filter(|&most| most > 0);
            if !matches!(name, "string" | "wstring") || most.is_none() {
                let expected = "`string<=N` with the largest number of bytes N";
                return Err(self.error(0, text, expected, None));
            }
            (base, most_bytes) = (name, most);
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '/';
        if base.is_empty() || !base.chars().all(is_name) {
            let hint = match text.ends_with(':') {
                true => "write the type first, as in `float64 x`",
                false => "such as `float64` or `geometry_msgs/Point[]`",
            };
            return Err(self.error(0, text, "a type", Some(hint.to_owned())));
        }
        Ok(TypeText {
            base: plain_name(base),
            most_bytes,
            lists,
        })
    }

    fn constant(&self, kind: &str, name: &str, value_at: usize) -> Result<Literal, SyntaxError> {
        let text = self.kind(kind)?;
        if name.is_empty() {
            return Err(self.error(value_at, &self.bare[value_at..], "a name before `=`", None));
        }
        if !text.lists.is_empty() || !is_primitive(&text.base) {
            return Err(self.error(0, kind, "a number, `bool` or `string` for a constant", None));
        }
        self.value(&text, &self.bare[value_at..], value_at)
    }

    /// The value of a constant or a default.
    fn value(&self, kind: &TypeText, text: &str, at: usize) -> Result<Literal, SyntaxError> {
        let refused = |expected: &str| self.error(at, text, expected, None);
        if kind.lists.is_empty() {
            return literal(&kind.base, text)
                .ok_or_else(|| refused(&format!("a value of type `{}`", kind.base)));
        }
        let expected = format!("a list of `{}`, as in `[1, 2]`", kind.base);
        let items = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let items = items.ok_or_else(|| refused(&expected))?;
        let items = items
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty());
        let items = items.map(|item| literal(&kind.base, item));
        let items: Option<Vec<Literal>> = items.collect();
        items.map(Literal::List).ok_or_else(|| refused(&expected))
    }

    fn place(&self, at: usize) -> Place {
        Place {
            source: self.source.clone(),
            line: self.line,
            column: self.text[..self.start + at].chars().count() + 1,
        }
    }

    fn error(&self, at: usize, found: &str, expected: &str, hint: Option<String>) -> SyntaxError {
        let found = match found {
            "" => "the end of the line",
            found => found,
        };
        SyntaxError {
            place: self.place(at),
            found: shortened(found),
            expected: expected.to_owned(),
            hint,
        }
    }
}

/// The likely type behind an unknown name.
pub(crate) fn hint_for_type<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> Option<String> {
    if let Some((_, meant)) = FOREIGN.iter().find(|(foreign, _)| *foreign == name) {
        return Some(format!("did you mean {meant}?"));
    }
    let near = nearest(name, PRIMITIVES.into_iter().chain(known))?;
    Some(format!("did you mean `{near}`?"))
}

const PRIMITIVES: [&str; 15] = [
    "bool", "byte", "char", "float32", "float64", "int16", "int32", "int64", "int8", "string",
    "uint16", "uint32", "uint64", "uint8", "wstring",
];

pub(crate) fn is_primitive(name: &str) -> bool {
    PRIMITIVES.contains(&name)
}

/// A value as `rosidl` reads it: numbers as in Python, texts with or without quotes.
fn literal(kind: &str, text: &str) -> Option<Literal> {
    match kind {
        "bool" => match text {
            "true" | "True" | "1" => Some(Literal::Bool(true)),
            "false" | "False" | "0" => Some(Literal::Bool(false)),
            _ => None,
        },
        "string" | "wstring" => {
            let quoted = ['"', '\'']
                .into_iter()
                .find(|&quote| text.starts_with(quote));
            let Some(quote) = quoted else {
                return Some(Literal::Text(text.to_owned()));
            };
            let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
            Some(Literal::Text(
                inner.replace(&format!("\\{quote}"), &quote.to_string()),
            ))
        }
        "float32" | "float64" => text.parse().ok().map(Literal::Float),
        _ => {
            let (low, high) = Number::named(kind)?.range()?;
            integer(text)
                .filter(|value| (low..=high).contains(value))
                .map(Literal::Integer)
        }
    }
}

/// A decimal, hexadecimal, octal or binary number.
fn integer(text: &str) -> Option<i128> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => (16, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        _ => (10, digits),
    };
    let is_digits = digits.chars().all(|c| c.is_digit(radix));
    let value = i128::from_str_radix(digits, radix)
        .ok()
        .filter(|_| is_digits)?;
    Some(if is_negative { -value } else { value })
}
