//! From the bytes of a file to its text.

use crate::diagnostic::{Code, Finding};
use crate::source::{MAX_FILE_BYTES, SourceText, Span};

/// The text of `bytes`, with the reason if it cannot be used.
pub(crate) fn decode(name: &str, bytes: &[u8]) -> (SourceText, Option<Finding>) {
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
