//! Findings as text for people, in the manner of rustc.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::diagnostic::{Diagnostic, Severity};
use crate::quote::visible;
use crate::source::{SourceText, Span};

/// `diagnostic` with the lines of `source` that it is about; ends with a line break.
pub(crate) fn render(diagnostic: &Diagnostic, source: &SourceText, colour: bool) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(&diagnostic.message).id(diagnostic.code.as_str());
    let mut group = Group::with_title(title);
    let file = visible(&diagnostic.file);
    if let Some(location) = &diagnostic.location {
        let spans: Vec<Span> = std::iter::once(location.span)
            .chain(diagnostic.related.iter().map(|related| related.location.span))
            .collect();
        let first = spans.iter().map(|span| span.start).min().unwrap_or_default();
        let last = spans.iter().map(|span| span.start).max().unwrap_or_default();
        let (lines, first_line, offset) = source.lines_around(first, last);
        let within = |span: Span| within_line(span, lines, offset);
        let label = diagnostic.expected.as_ref().map(|expected| format!("expected {expected}"));
        let mut snippet = Snippet::source(lines).line_start(first_line).path(file);
        snippet = snippet.annotation(AnnotationKind::Primary.span(within(location.span)).label(label));
        for related in &diagnostic.related {
            let range = within(related.location.span);
            snippet = snippet.annotation(AnnotationKind::Context.span(range).label(related.message.as_str()));
        }
        group = group.element(snippet);
    } else {
        group = group.element(Origin::path(file));
    }
    let hint = diagnostic.hint.as_ref().map(|hint| Level::HELP.message(visible(hint)));
    let report = &[group.elements(hint)];
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    format!("{}\n", renderer.render(report))
}

/// `span` as a range of `lines`, which begin at `offset`, cut at the end of its first line: a map of fifty lines is
/// pointed at, not shown.
fn within_line(span: Span, lines: &str, offset: usize) -> Range<usize> {
    let start = span.start.saturating_sub(offset).min(lines.len());
    let line_end = lines[start..].find(['\n', '\r']).map_or(lines.len(), |end| start + end);
    let end = span.end.saturating_sub(offset).clamp(start, line_end.max(start));
    start..end
}
