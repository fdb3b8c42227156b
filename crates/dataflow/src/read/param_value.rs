//! Values of parameters on the command line.

use nervure_protocol::params::ParamKind;
use serde_json::Value as Json;

use super::json::read_json;
use super::reader::Reader;
use crate::diagnostic::Findings;
use crate::source::SourceText;
use crate::tree::{self, Kind};

/// Reads the value of a parameter as a dataflow file would: `30`, `0.5`, `true`, `fast`, `[1, 2]`.
///
/// Variables are not filled in. For a parameter of type `str` the value is the text itself, without
/// its quotes if it has any. Text that is not valid YAML is text for the other types too.
///
/// ```
/// use nervure_dataflow::{ParamKind, param_value};
/// assert_eq!(param_value("[1, 2]", ParamKind::List), serde_json::json!([1, 2]));
/// assert_eq!(param_value("60", ParamKind::Str), serde_json::json!("60"));
/// ```
#[must_use]
pub fn param_value(text: &str, kind: ParamKind) -> Json {
    let source = SourceText::new("", text);
    let mut findings = Findings::new(&source);
    let tree = tree::parse(&source, &mut findings);
    let as_text = || Json::String(text.to_owned());
    match (kind, tree) {
        (
            ParamKind::Str,
            Some(tree::Value {
                kind: Kind::Text(inner),
                is_plain: false,
                ..
            }),
        ) => Json::String(inner),
        (ParamKind::Str, _) | (_, None) => as_text(),
        (_, Some(tree)) => read_json(&mut Reader::new(findings), &tree).unwrap_or_else(as_text),
    }
}

/// Reads a value as a dataflow file would: `30`, `cup`, `[1, 2]`, `{x: 1.5, label: cup}`. JSON is YAML.
/// `None` if the text is not valid YAML.
///
/// ```
/// use nervure_dataflow::plain_value;
/// assert_eq!(plain_value("{x: 1.5}"), Some(serde_json::json!({"x": 1.5})));
/// assert_eq!(plain_value("{x: 1.5"), None);
/// ```
#[must_use]
pub fn plain_value(text: &str) -> Option<Json> {
    let source = SourceText::new("", text);
    let mut findings = Findings::new(&source);
    let tree = tree::parse(&source, &mut findings)?;
    read_json(&mut Reader::new(findings), &tree)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_read_as_in_a_file_and_texts_stay_texts() {
        for (text, kind, expected) in [
            ("30", ParamKind::Int, json!(30)),
            ("0x10", ParamKind::Int, json!(16)),
            ("-1.5e3", ParamKind::Float, json!(-1500.0)),
            ("True", ParamKind::Bool, json!(true)),
            ("[a, 'b c']", ParamKind::List, json!(["a", "b c"])),
            ("[1, 2.5]", ParamKind::List, json!([1, 2.5])),
            ("fast", ParamKind::Int, json!("fast")),
            ("[1, ", ParamKind::List, json!("[1, ")),
            ("", ParamKind::Int, json!("")),
            ("60", ParamKind::Str, json!("60")),
            ("\"60\"", ParamKind::Str, json!("60")),
            ("a: b # c", ParamKind::Str, json!("a: b # c")),
            ("", ParamKind::Str, json!("")),
            ("*x", ParamKind::Str, json!("*x")),
            (".inf", ParamKind::Float, json!(".inf")),
        ] {
            assert_eq!(param_value(text, kind), expected, "{text}");
        }
    }
}
