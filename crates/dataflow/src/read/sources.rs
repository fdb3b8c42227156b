//! Reads the source of an input: `node/output`, or a timer.

use nervure_protocol::nearest;

use super::reader::Reader;
use crate::diagnostic::{Code, Finding};
use crate::keys::{LOG_LEVELS, Shape};
use crate::parsed::ParsedSource;
use crate::quote::{quoted, shown};
use crate::source::Span;
use crate::timer::parse_timer;
use crate::tree::Text;

pub(super) fn read_source(reader: &mut Reader<'_>, text: &Text) -> ParsedSource {
    let (node, output) = text.text.split_once('/').unwrap_or((&text.text, ""));
    match (node, output) {
        ("nervure" | "dora", rest) if rest == "logs" || rest.starts_with("logs/") => {
            read_logs(reader, text, rest.strip_prefix("logs/").unwrap_or(""))
        }
        ("nervure" | "dora", rest) => {
            let rest: Vec<&str> = rest.splitn(2, '/').collect();
            match parse_built_in(text, &rest) {
                Ok(period_nanos) => ParsedSource::Timer { period_nanos },
                Err(finding) => invalid(reader, *finding),
            }
        }
        ("", _) => invalid(reader, invalid_source(text, "the source names no node")),
        (node, "") => ParsedSource::Node {
            node: Text {
                span: text.span,
                text: node.to_owned(),
            },
        },
        ("timer", rest) if parse_timer(rest).is_ok() => {
            let suggestion = format!("nervure/{}", shown(&text.text));
            let message = "timers are sources of `nervure`";
            invalid(reader, invalid_timer(text, message, Some(&suggestion)))
        }
        (node, output) => read_output_source(reader, text, node, output),
    }
}

/// The source `nervure/logs`; `filter` is `LEVEL` or `LEVEL/NODE`, if anything follows.
fn read_logs(reader: &mut Reader<'_>, text: &Text, filter: &str) -> ParsedSource {
    let (level, node) = filter.split_once('/').unwrap_or((filter, ""));
    let min_level = LOG_LEVELS
        .iter()
        .copied()
        .find(|known| known.eq_ignore_ascii_case(level));
    if min_level.is_none() && !level.is_empty() {
        let message = format!("{} is not a level of logs", quoted(level));
        let finding = invalid_source(text, &message);
        let near = nearest(level, LOG_LEVELS.iter().copied());
        let suggestion = near.map(|near| text.text.replacen(level, near, 1));
        return invalid(
            reader,
            finding.nearest(suggestion.as_deref(), || {
                Some(format!("the levels are {}", LOG_LEVELS.join(", ")))
            }),
        );
    }
    let node = (!node.is_empty()).then(|| Text {
        span: text.span,
        text: node.to_owned(),
    });
    ParsedSource::Logs { min_level, node }
}

fn invalid(reader: &mut Reader<'_>, finding: Finding) -> ParsedSource {
    reader.report(finding);
    ParsedSource::Invalid
}

fn read_output_source(
    reader: &mut Reader<'_>,
    text: &Text,
    node: &str,
    output: &str,
) -> ParsedSource {
    if node.contains(':') {
        let message = "outputs of other dataflows are reserved for a later version";
        let finding = Finding::error(Code::LaterKey, text.span, message)
            .expected("`node/output`")
            .hint("until then, put the nodes into one dataflow");
        return invalid(reader, finding);
    }
    let node_text = Text {
        span: part_span(text, 0, node.len()),
        text: node.to_owned(),
    };
    let output_text = Text {
        span: part_span(text, node.len() + 1, text.text.len()),
        text: output.to_owned(),
    };
    // Without short-circuit: both names are checked.
    if reader.check_name(&node_text, "node id") & reader.check_port_name(&output_text, "output") {
        ParsedSource::Output {
            node: node_text,
            output: output_text,
        }
    } else {
        ParsedSource::Invalid
    }
}

/// The period of the timer in nanoseconds; `rest` follows `nervure/` or `dora/`.
fn parse_built_in(text: &Text, rest: &[&str]) -> Result<u64, Box<Finding>> {
    let timer = match rest {
        ["timer", timer] => timer,
        ["timer"] => "",
        _ => {
            let finding = invalid_source(text, "there is no such source");
            return Err(Box::new(
                finding.hint("timers are written `nervure/timer/hz/30`"),
            ));
        }
    };
    parse_timer(timer).map_err(|error| {
        let prefix = if text.text.starts_with("dora") {
            "dora"
        } else {
            "nervure"
        };
        let suggestion = error
            .suggestion
            .map(|timer| format!("{prefix}/timer/{}", shown(&timer)));
        Box::new(invalid_timer(text, &error.message, suggestion.as_deref()))
    })
}

fn invalid_timer(text: &Text, message: &str, suggestion: Option<&str>) -> Finding {
    Finding::error(Code::InvalidTimer, text.span, message)
        .expected(
            "a timer such as `nervure/timer/hz/30`, `nervure/timer/millis/20` or `nervure/timer/secs/1`",
        )
        .nearest(suggestion, || None)
}

fn invalid_source(text: &Text, message: &str) -> Finding {
    Finding::error(Code::InvalidSource, text.span, message).expected(Shape::Source.describe())
}

/// The span of bytes `start` to `end` of `text`, or of all of `text` if it is quoted or folded: its
/// bytes then differ from the file's.
fn part_span(text: &Text, start: usize, end: usize) -> Span {
    if text.span.end - text.span.start != text.text.len() {
        return text.span;
    }
    Span {
        start: text.span.start + start,
        end: text.span.start + end,
    }
}
