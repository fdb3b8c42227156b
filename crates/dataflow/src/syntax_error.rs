//! Translates messages of the YAML parser into findings.

use crate::diagnostic::{Code, Finding};
use crate::quote::shown;
use crate::source::Span;

/// The finding for the parser's `message` at `span` of `text`; `open` is the innermost open `[` or
/// `{`.
pub(crate) fn explain(message: &str, text: &str, span: Span, open: Option<Span>) -> Finding {
    if message.contains("recursion limit") {
        return Finding::error(
            Code::YamlTooDeep,
            span,
            "lists and maps are nested too deep",
        )
        .hint("a dataflow file needs five levels");
    }
    if let Some(open) = open.filter(|_| !message.contains("quoted scalar")) {
        let (what, closing) = if text[open.start..].starts_with('[') {
            ("list in `[..]`", "]")
        } else {
            ("map in `{..}`", "}")
        };
        let opening = Span {
            start: open.start,
            end: open.start + 1,
        };
        return Finding::error(
            Code::YamlSyntax,
            span,
            format!("a {what} is not closed, or a `,` is missing"),
        )
        .expected(format!("`,` or `{closing}`"))
        .related(opening, "opened here");
    }
    let at_end = text[span.start..].trim().is_empty();
    let known = EXPLANATIONS
        .iter()
        .find(|(part, ..)| message.contains(part));
    match known {
        Some((_, meaning, hint)) => Finding::error(Code::YamlSyntax, span, *meaning).hint(*hint),
        None if at_end => Finding::error(
            Code::YamlSyntax,
            span,
            format!("the file ends too early: {}", shown(message)),
        )
        .hint("a quote, `[` or `{` may be open further up"),
        None => Finding::error(
            Code::YamlSyntax,
            span,
            format!("this is not valid YAML: {}", shown(message)),
        )
        .hint("the mistake may be on the line before"),
    }
}

/// Part of the parser's message, its meaning, and a hint.
const EXPLANATIONS: &[(&str, &str, &str)] = &[
    (
        "mapping values are not allowed",
        "a `:` stands where no key can be",
        "is the indentation of this line that of its neighbours? Text that contains `: ` needs quotes",
    ),
    (
        "mapping keys are not allowed",
        "a key stands where none can be",
        "keys of one map need the same indentation",
    ),
    (
        "did not find expected key",
        "this line fits neither the map above it nor a new one",
        "keys of one map need the same indentation, and list items a `-`",
    ),
    (
        "did not find expected '-' indicator",
        "this line is not an item of the list above it",
        "every item of a list begins with `- ` in the same column",
    ),
    (
        "block sequence entries are not allowed",
        "a list item (`-`) stands where none can be",
        "begin the list on a line of its own, below its key",
    ),
    (
        "escape",
        "a backslash in double quotes begins an escape that does not exist",
        "write `\\\\` for a backslash, or use single quotes",
    ),
    (
        "hexadecimal",
        "a backslash in double quotes begins an escape that does not exist",
        "write `\\\\` for a backslash, or use single quotes",
    ),
    (
        "trailing content",
        "text follows after a closing quote",
        "put all of it into the quotes, or none",
    ),
    (
        "flow sequence",
        "a list in `[..]` is not closed, or a `,` is missing",
        "close it with `]`",
    ),
    (
        "flow mapping",
        "a map in `{..}` is not closed, or a `,` is missing",
        "close it with `}`",
    ),
    (
        "flow construct",
        "a list in `[..]` or a map in `{..}` is not closed",
        "close it with `]` or `}`",
    ),
    (
        "unexpected end of stream",
        "a quote is opened here and not closed",
        "close the quote",
    ),
    (
        "quoted scalar",
        "a quote is opened here and not closed",
        "close the quote; text with a quote in it can stand in the other kind of quotes",
    ),
    (
        "simple key expect",
        "a key has no `:`",
        "write `key: value`",
    ),
    (
        "unknown anchor",
        "an alias (`*name`) names an anchor that does not exist",
        "define it above with `&name`; text that begins with `*` needs quotes",
    ),
    (
        "anchor or alias",
        "`&` and `*` begin an anchor or an alias, which needs a name",
        "text that begins with `&` or `*` needs quotes",
    ),
    (
        "unprintable character",
        "an invisible control character stands here",
        "delete it; the file may be binary or damaged",
    ),
    (
        "byte order mark",
        "a byte order mark stands in the middle of the file",
        "delete it; two files may have been joined",
    ),
    (
        "tag",
        "`!` begins a YAML tag, which dataflow files do not use",
        "text that begins with `!` needs quotes",
    ),
    (
        "directive",
        "`%` begins a YAML directive, which dataflow files do not use",
        "text that begins with `%` needs quotes",
    ),
    (
        "unexpected character",
        "this character cannot begin a value",
        "text that begins with `@`, `%` or a backquote needs quotes",
    ),
    (
        "block scalar",
        "a block of text (`|` or `>`) is malformed",
        "indent its lines by the same number of spaces, more than its key",
    ),
    (
        "tab",
        "a tab stands where only spaces are allowed",
        "replace it by spaces",
    ),
    (
        "invalid indentation",
        "the indentation does not fit",
        "align this line with its neighbours",
    ),
    (
        "comment intercepting",
        "a comment stands in the middle of a text",
        "move the comment to its own line before the key",
    ),
];
