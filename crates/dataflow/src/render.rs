//! Renders findings as text, in the style of rustc.

use std::ops::Range;

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::diagnostic::{Definitions, Diagnostic, Related, Severity};
use crate::quote::visible;
use crate::source::{Lines, Location, SourceText, Span};

/// Longest line that is shown. Longer ones are not part of a dataflow, and their layout takes
/// seconds.
const MAX_SHOWN_LINE_BYTES: usize = 4_096;
/// Limit on the fields of two definitions side by side. Of longer ones, only those that differ are shown.
const MAX_SHOWN_FIELDS: usize = 24;

/// `diagnostic` with its lines of `source`; ends with a line break.
pub(crate) fn render(diagnostic: &Diagnostic, source: &SourceText, colour: bool) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level
        .primary_title(&diagnostic.message)
        .id(diagnostic.code.as_str());
    let mut group = Group::with_title(title);
    let file = visible(&diagnostic.file);
    group = match &diagnostic.location {
        Some(location) if source.line_bytes(location.line) <= MAX_SHOWN_LINE_BYTES => {
            group.element(snippet(diagnostic, location, source).path(file))
        }
        Some(location) => group.element(
            Origin::path(file)
                .line(location.line)
                .char_column(location.column),
        ),
        None => group.element(Origin::path(file)),
    };
    let definitions = diagnostic
        .definitions
        .as_ref()
        .map(|definitions| Level::NOTE.message(side_by_side(definitions)));
    let hint = diagnostic
        .hint
        .as_ref()
        .map(|hint| Level::HELP.message(visible(hint)));
    let report = &[group.elements(definitions).elements(hint)];
    let renderer = if colour {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    // The renderer does not escape C1 control characters in excerpts, and some terminals interpret
    // them.
    let is_c1 = |character: char| ('\u{80}'..='\u{9f}').contains(&character);
    format!("{}\n", renderer.render(report).replace(is_c1, "\u{fffd}"))
}

/// A table with a line for each field.
fn side_by_side(definitions: &Definitions) -> String {
    let Definitions { files, fields } = definitions;
    let is_long = fields.len() > MAX_SHOWN_FIELDS;
    let shown = fields
        .iter()
        .filter(|field| field.differs || !is_long)
        .take(MAX_SHOWN_FIELDS);
    let cells = shown.map(|field| {
        let [first, second] = &field.types;
        let mark = if field.differs { "differs" } else { "" };
        [field.name(), first, second, mark].map(visible)
    });
    let [first, second] = files;
    let mut rows = vec![["FIELD", first, second, ""].map(visible)];
    rows.extend(cells);
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or_default()
    };
    let widths = [width(0), width(1), width(2)];
    let line = |[path, first, second, mark]: &[String; 4]| {
        let [of_path, of_first, of_second] = widths;
        let line = format!("{path:of_path$}  {first:of_first$}  {second:of_second$}  {mark}");
        line.trim_end().to_owned()
    };
    let lines: Vec<String> = rows.iter().map(line).collect();
    lines.join("\n")
}

/// The lines at `location` and at the related places, annotated.
fn snippet<'a>(
    diagnostic: &'a Diagnostic,
    location: &Location,
    source: &'a SourceText,
) -> Snippet<'a, Annotation<'a>> {
    let is_shown =
        |related: &&Related| source.line_bytes(related.location.line) <= MAX_SHOWN_LINE_BYTES;
    let related: Vec<&Related> = diagnostic.related.iter().filter(is_shown).collect();
    let starts = related
        .iter()
        .map(|related| related.location.span.start)
        .chain([location.span.start]);
    let (first, last) = starts.fold((usize::MAX, 0), |(first, last), start| {
        (first.min(start), last.max(start))
    });
    let lines = source.lines_around(first, last);
    let label = diagnostic
        .expected
        .as_ref()
        .map(|expected| format!("expected {expected}"));
    let primary = AnnotationKind::Primary
        .span(within_line(location.span, lines))
        .label(label);
    let context = related.into_iter().map(|related| {
        let range = within_line(related.location.span, lines);
        AnnotationKind::Context
            .span(range)
            .label(related.message.as_str())
    });
    Snippet::source(lines.text)
        .line_start(lines.first_line)
        .annotation(primary)
        .annotations(context)
}

/// `span` as a range of `lines`. Cut at the end of its first line, so that a map of fifty lines is pointed
/// at, not shown.
fn within_line(span: Span, lines: Lines<'_>) -> Range<usize> {
    let Lines {
        text: lines,
        offset,
        ..
    } = lines;
    let start = span.start.saturating_sub(offset).min(lines.len());
    let line_end = lines[start..]
        .find(['\n', '\r'])
        .map_or(lines.len(), |end| start + end);
    let end = span
        .end
        .saturating_sub(offset)
        .clamp(start, line_end.max(start));
    start..end
}
