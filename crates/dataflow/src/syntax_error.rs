//! Explains syntax errors of YAML by their place in the file. The parser has values for the place alone; its
//! text is shown where the place explains nothing.

use std::iter::Peekable;
use std::str::Chars;

use crate::diagnostic::{Code, Finding};
use crate::quote::shown;
use crate::source::Span;

/// Meaning of an error, and a hint.
type Meaning = (&'static str, &'static str);

/// The finding for the parser's `message` at the byte `at`. `open` are the places of open brackets there, and
/// `block` is the kind of the innermost list or map without brackets.
pub(crate) fn explain(
    message: &str,
    text: &str,
    at: usize,
    open: &[usize],
    block: Option<Block>,
) -> Finding {
    let (before, rest) = text.split_at(at);
    let span = Span { start: at, end: at };
    let syntax =
        |(meaning, hint): Meaning| Finding::error(Code::YamlSyntax, span, meaning).hint(hint);
    match quoted_bytes(rest) {
        Err(mistake) => return syntax(mistake),
        // It ends at the quote of another text, further down.
        Ok(bytes) if rest[..bytes].contains('\n') => return syntax(OPEN_QUOTE),
        Ok(_) => {}
    }
    if let Some(open) = open.last() {
        return unclosed(text, span, *open);
    }
    if let Some(meaning) = meaning(before, rest, block) {
        return syntax(meaning);
    }
    let message = shown(message);
    if rest.trim().is_empty() {
        let text = format!("the file ends too early: {message}");
        return Finding::error(Code::YamlSyntax, span, text)
            .hint("a quote, `[` or `{` may be open further up");
    }
    let text = format!("this is not valid YAML: {message}");
    Finding::error(Code::YamlSyntax, span, text).hint("the mistake may be on the line before")
}

/// Kinds of collections without brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    List,
    Map,
}

fn unclosed(text: &str, span: Span, open: usize) -> Finding {
    let (what, closing) = match text[open..].starts_with('[') {
        true => ("list in `[..]`", "]"),
        false => ("map in `{..}`", "}"),
    };
    let opening = Span {
        start: open,
        end: open + 1,
    };
    let message = format!("a {what} is not closed, or a `,` is missing");
    Finding::error(Code::YamlSyntax, span, message)
        .expected(format!("`,` or `{closing}`"))
        .related(opening, "opened here")
}

/// The meaning of an error between `before` and `rest`, outside of quotes and brackets.
fn meaning(before: &str, rest: &str, block: Option<Block>) -> Option<Meaning> {
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = &before[line_start..];
    let begins_line = line.trim_matches([' ', '\t', '-']).is_empty();
    let above = before[..line_start].lines().next_back().unwrap_or_default();
    let Some(first) = rest.trim_end().chars().next() else {
        return lacks_colon(before).then_some(NO_COLON);
    };
    let name = &rest[first.len_utf8()..];
    let name = &name[..name.find(ends_name).unwrap_or(name.len())];
    Some(match first {
        '@' | '`' => NO_VALUE,
        '%' if line.is_empty() => DIRECTIVE,
        '%' => NO_VALUE,
        '*' | '&' if name.is_empty() => NO_NAME,
        '*' if !before.contains(&format!("&{name}")) => UNKNOWN_ANCHOR,
        '!' => TAG,
        ':' => NO_KEY_BEFORE_COLON,
        '?' if name.is_empty() => MISPLACED_KEY,
        '-' if name.is_empty() && !begins_line => MISPLACED_ITEM,
        '|' | '>' => BLOCK_TEXT,
        '#' => COMMENT,
        ']' | '}' => NO_OPENING,
        '\u{feff}' => BYTE_ORDER_MARK,
        '\t' => TAB,
        _ if first.is_control() && !first.is_whitespace() => CONTROL_CHARACTER,
        _ if line.trim_end_matches(' ').ends_with('\t') => TAB,
        _ if line.trim_end().ends_with(['"', '\'']) => AFTER_QUOTE,
        _ if !begins_line => return None,
        _ if above.starts_with('%') => DIRECTIVE,
        _ if lacks_colon(&before[..line_start]) => NO_COLON,
        _ => match block? {
            Block::List => NO_ITEM,
            Block::Map => NO_KEY,
        },
    })
}

/// Whether a character ends the name of an anchor.
fn ends_name(character: char) -> bool {
    character.is_whitespace() || "[]{},".contains(character)
}

/// Whether the last line of a text is a key without its colon. A line that continues a text is indented
/// deeper than the key of that text.
fn lacks_colon(text: &str) -> bool {
    let is_content = |line: &&str| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with('#')
    };
    let column = |line: &str| line.len() - line.trim_start_matches([' ', '-']).len();
    let mut lines = text.lines().rev().filter(is_content);
    let Some(last) = lines.next() else {
        return false;
    };
    let above = lines.map(column).find(|above| *above <= column(last));
    !last.contains(':') && above == Some(column(last))
}

/// Places of the brackets that are open at the end of a text.
pub(crate) fn open_brackets(text: &str) -> Vec<usize> {
    let mut open = Vec::new();
    let mut begins_value = true;
    let mut at = 0;
    while let Some(character) = text[at..].chars().next() {
        let is_comment = character == '#' && !text[..at].ends_with(|it: char| !it.is_whitespace());
        let until = |ends: fn(char) -> bool| text[at..].find(ends).unwrap_or(text.len() - at);
        let bytes = match character {
            '#' if is_comment => until(|it| it == '\n'),
            '"' | '\'' if begins_value => quoted_bytes(&text[at..]).unwrap_or(1),
            '&' | '!' if begins_value => until(ends_name),
            _ => character.len_utf8(),
        };
        match character {
            '[' | '{' if begins_value || !open.is_empty() => open.push(at),
            ']' | '}' => drop(open.pop()),
            _ => {}
        }
        begins_value = match character {
            '[' | '{' | ':' | '-' | '\n' => true,
            ',' => !open.is_empty(),
            '&' | '!' => begins_value,
            '#' => begins_value && is_comment,
            other => begins_value && other.is_whitespace(),
        };
        at += bytes;
    }
    open
}

/// Length of the quoted text that begins here, 0 if none does.
fn quoted_bytes(text: &str) -> Result<usize, Meaning> {
    let mut characters = text.chars().peekable();
    let Some(quote) = characters.next_if(|it| matches!(it, '"' | '\'')) else {
        return Ok(0);
    };
    let rest = |characters: Peekable<Chars<'_>>| characters.map(char::len_utf8).sum::<usize>();
    while let Some(character) = characters.next() {
        if character == '\\' && quote == '"' {
            if !takes_escape(&mut characters) {
                return Err(ESCAPE);
            }
        } else if character == quote {
            let is_doubled = quote == '\'' && characters.next_if_eq(&quote).is_some();
            if !is_doubled {
                return Ok(text.len() - rest(characters));
            }
        }
    }
    Err(OPEN_QUOTE)
}

/// Whether an escape follows a backslash (YAML 1.2, section 5.7).
fn takes_escape(characters: &mut Peekable<Chars<'_>>) -> bool {
    let digits = match characters.next() {
        Some('x') => 2,
        Some('u') => 4,
        Some('U') => 8,
        next => return next.is_some_and(|it| "0abt\tnvfre \"/\\N_LP\r\n".contains(it)),
    };
    let mut code = 0;
    for _ in 0..digits {
        let digit = characters.next_if(char::is_ascii_hexdigit);
        match digit.and_then(|digit| digit.to_digit(16)) {
            Some(digit) => code = code << 4 | digit,
            None => return false,
        }
    }
    char::from_u32(code).is_some()
}

const NO_KEY_BEFORE_COLON: Meaning = (
    "a `:` stands where no key can be",
    "is the indentation of this line that of its neighbours? Text that contains `: ` needs quotes",
);
const MISPLACED_KEY: Meaning = (
    "a key stands where none can be",
    "keys of one map need the same indentation",
);
const NO_KEY: Meaning = (
    "this line fits neither the map above it nor a new one",
    "keys of one map need the same indentation, and list items a `-`",
);
const NO_ITEM: Meaning = (
    "this line is not an item of the list above it",
    "every item of a list begins with `- ` in the same column",
);
const MISPLACED_ITEM: Meaning = (
    "a list item (`-`) stands where none can be",
    "begin the list on a line of its own, below its key",
);
const ESCAPE: Meaning = (
    "a backslash in double quotes begins an escape that does not exist",
    "write `\\\\` for a backslash, or use single quotes",
);
const AFTER_QUOTE: Meaning = (
    "text follows after a closing quote",
    "put all of it into the quotes, or none",
);
const OPEN_QUOTE: Meaning = (
    "a quote is opened here and not closed",
    "close the quote; text with a quote in it can stand in the other kind of quotes",
);
const NO_COLON: Meaning = ("a key has no `:`", "write `key: value`");
const NO_OPENING: Meaning = (
    "a bracket is closed that was not opened",
    "open it, or quote text that begins with it",
);
const UNKNOWN_ANCHOR: Meaning = (
    "an alias (`*name`) names an anchor that does not exist",
    "define it above with `&name`; text that begins with `*` needs quotes",
);
const NO_NAME: Meaning = (
    "`&` and `*` begin an anchor or an alias, which needs a name",
    "text that begins with `&` or `*` needs quotes",
);
const CONTROL_CHARACTER: Meaning = (
    "an invisible control character stands here",
    "delete it; the file may be binary or damaged",
);
const BYTE_ORDER_MARK: Meaning = (
    "a byte order mark stands in the middle of the file",
    "delete it; two files may have been joined",
);
const TAG: Meaning = (
    "`!` begins a YAML tag, which dataflow files do not use",
    "text that begins with `!` needs quotes",
);
const DIRECTIVE: Meaning = (
    "`%` begins a YAML directive, which dataflow files do not use",
    "text that begins with `%` needs quotes",
);
const NO_VALUE: Meaning = (
    "this character cannot begin a value",
    "text that begins with `@`, `%` or a backquote needs quotes",
);
const BLOCK_TEXT: Meaning = (
    "a block of text (`|` or `>`) is malformed",
    "indent its lines by the same number of spaces, more than its key",
);
const TAB: Meaning = (
    "a tab stands where only spaces are allowed",
    "replace it by spaces",
);
const COMMENT: Meaning = (
    "a comment stands in the middle of a text",
    "move the comment to its own line before the key",
);
