//! The text of a dataflow file, and places in it.

use serde::Serialize;

/// Largest dataflow file, in bytes. A file with a thousand nodes takes about 200 KB; a larger one
/// is hostile or no dataflow file.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// Longest excerpt of a line in a diagnostic, in characters.
const MAX_EXCERPT_CHARACTERS: usize = 240;

/// The text of a dataflow file, with the name that messages show.
#[derive(Debug, Clone)]
pub struct SourceText {
    name: String,
    text: String,
    line_starts: Vec<usize>,
}

/// A range of bytes in [`SourceText::text`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// The smallest span that covers both.
    #[must_use]
    pub fn to(self, other: Span) -> Span {
        Span {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }
}

/// Whole lines of a dataflow file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines<'t> {
    pub text: &'t str,
    /// Number of the first line, counted from 1.
    pub first_line: usize,
    /// Offset of the first byte in the file.
    pub offset: usize,
}

/// A place in a dataflow file, by line and column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Location {
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// The same place in bytes, counted without a byte order mark.
    pub span: Span,
    /// The text of the line; for a very long line the part around the column.
    pub source_line: String,
}

impl SourceText {
    /// Messages show `name`, usually the path as the user typed it. A byte order mark is removed.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> SourceText {
        let mut text = text.into();
        if text.starts_with('\u{feff}') {
            text.drain(..'\u{feff}'.len_utf8());
        }
        let line_starts = line_starts(&text);
        SourceText {
            name: name.into(),
            text,
            line_starts,
        }
    }

    /// The name that messages show.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text, without a byte order mark.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The place of the first byte of `span`. A span outside the text moves to its end.
    #[must_use]
    pub fn locate(&self, span: Span) -> Location {
        let start = self.character_boundary(span.start);
        let end = self.character_boundary(span.end).max(start);
        let line_index = self
            .line_starts
            .partition_point(|&line_start| line_start <= start)
            - 1;
        let line = self.line_text(line_index);
        let column_index = self.text[self.line_starts[line_index]..start]
            .chars()
            .count();
        Location {
            line: line_index + 1,
            column: column_index + 1,
            span: Span { start, end },
            source_line: excerpt(line, column_index),
        }
    }

    /// The lines from byte `start` to byte `end`.
    pub(crate) fn lines_around(&self, start: usize, end: usize) -> Lines<'_> {
        let first = self
            .line_starts
            .partition_point(|&line_start| line_start <= start)
            .max(1)
            - 1;
        let last = self
            .line_starts
            .partition_point(|&line_start| line_start <= end)
            .max(1)
            - 1;
        let begin = self.line_starts[first];
        let stop = self
            .line_starts
            .get(last + 1)
            .copied()
            .unwrap_or(self.text.len());
        Lines {
            text: &self.text[begin..stop],
            first_line: first + 1,
            offset: begin,
        }
    }

    /// Length of the line with that number, counted from 1.
    pub(crate) fn line_bytes(&self, line: usize) -> usize {
        self.line_text(line - 1).len()
    }

    fn line_text(&self, line_index: usize) -> &str {
        let start = self.line_starts[line_index];
        let end = self
            .line_starts
            .get(line_index + 1)
            .copied()
            .unwrap_or(self.text.len());
        self.text[start..end].trim_end_matches(['\n', '\r'])
    }

    fn character_boundary(&self, offset: usize) -> usize {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        offset
    }
}

/// Byte offsets at which lines begin; there is always at least one line.
fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0)
        .chain(text.match_indices('\n').map(|(index, _)| index + 1))
        .collect()
}

fn excerpt(line: &str, column_index: usize) -> String {
    if line.len() <= MAX_EXCERPT_CHARACTERS {
        return line.to_owned();
    }
    let skipped = column_index.saturating_sub(MAX_EXCERPT_CHARACTERS / 2);
    line.chars()
        .skip(skipped)
        .take(MAX_EXCERPT_CHARACTERS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_count_from_one() {
        let source = SourceText::new("f.yml", "a: 1\r\nbär: x\n");
        let location = source.locate(Span { start: 12, end: 13 });
        assert_eq!((location.line, location.column), (2, 6));
        assert_eq!(location.source_line, "bär: x");
    }

    #[test]
    fn a_span_past_the_end_is_at_the_end() {
        let source = SourceText::new("f.yml", "a: ä");
        let location = source.locate(Span { start: 4, end: 99 });
        assert_eq!(
            (location.line, location.column, location.span),
            (1, 4, Span { start: 3, end: 5 })
        );
        assert_eq!(
            SourceText::new("f.yml", "")
                .locate(Span { start: 7, end: 7 })
                .line,
            1
        );
    }

    #[test]
    fn excerpts_of_long_lines_surround_the_column() {
        let source = SourceText::new(
            "f.yml",
            format!("{}!{}", "a".repeat(5000), "b".repeat(5000)),
        );
        let location = source.locate(Span {
            start: 5000,
            end: 5001,
        });
        assert_eq!(location.column, 5001);
        assert!(
            location.source_line.contains("a!b"),
            "{}",
            location.source_line
        );
        assert_eq!(location.source_line.chars().count(), MAX_EXCERPT_CHARACTERS);
    }
}
