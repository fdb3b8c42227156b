//! Fills the host's environment variables into `env`, `args` and `params`.

use std::collections::BTreeMap;

use super::reader::Reader;
use crate::diagnostic::{Code, Finding};
use crate::quote::{is_invisible, quoted};
use crate::source::Span;
use crate::surroundings::Surroundings;
use crate::tree::{Kind, Value, plain_scalar};

/// The type of a text after variables are filled into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilledType {
    /// Without quotes, YAML's type of the text: `fps: ${FPS}` is a number. With quotes, text.
    ByQuotes,
    Text,
    /// YAML's type of the text despite quotes: `{value: "${FPS}", type: int}` requires them.
    Scalar,
}

/// The host's environment variables.
#[derive(Clone)]
pub(crate) struct Variables<'h> {
    pub surroundings: &'h dyn Surroundings,
    /// Parameters of the module that a node belongs to: `${_param.name}`, or `$PARAM_NAME`.
    pub params: BTreeMap<String, String>,
}

impl Variables<'_> {
    /// `text` with `$NAME`, `${NAME}` and `${NAME:-default}` replaced, as dora does it; `$$` is a
    /// dollar.
    pub fn fill_text(&self, reader: &mut Reader<'_>, text: &str, span: Span) -> Option<String> {
        if has_open_brace(text) {
            let finding = Finding::error(Code::InvalidValue, span, "`${` is never closed");
            reader.report(finding.hint("write `${NAME}`, or `$$` for a dollar"));
            return None;
        }
        let look_up = |name: &str| {
            let param = self.params.get(name).cloned();
            param
                .or_else(|| self.surroundings.variable(name))
                .map(Some)
                .ok_or(())
        };
        match shellexpand::env_with_context(text, look_up) {
            Ok(filled) => Some(filled.into_owned()),
            Err(error) => {
                reader.report(unset_variable(&error.var_name, span));
                None
            }
        }
    }

    /// `value` with variables filled into its texts.
    pub fn fill(
        &self,
        reader: &mut Reader<'_>,
        value: &Value,
        filled_type: FilledType,
    ) -> Option<Value> {
        let kind = match &value.kind {
            Kind::Text(text) if text.contains('$') => {
                let filled = self.fill_text(reader, text, value.span)?;
                let is_text = match filled_type {
                    FilledType::ByQuotes => !value.is_plain,
                    FilledType::Text => true,
                    FilledType::Scalar => false,
                };
                match plain_scalar(&filled) {
                    _ if is_text => Kind::Text(filled),
                    // An empty variable is empty text, not an absent value.
                    Kind::Null => Kind::Text(filled),
                    kind => kind,
                }
            }
            Kind::List(items) => {
                let items: Vec<_> = items
                    .iter()
                    .map(|item| self.fill(reader, item, filled_type))
                    .collect();
                Kind::List(items.into_iter().collect::<Option<_>>()?)
            }
            _ => return Some(value.clone()),
        };
        Some(Value { kind, ..*value })
    }
}

fn unset_variable(name: &str, span: Span) -> Finding {
    let message = format!("the environment variable {} is not set", quoted(name));
    let hint = if name.chars().any(is_invisible) {
        "write `$$` for a dollar".to_owned()
    } else {
        format!("set it, give a default with `${{{name}:-default}}`, or write `$$` for a dollar")
    };
    Finding::error(Code::UnsetVariable, span, message).hint(hint)
}

/// Whether a `${` has no `}` behind it. The `$$` of `$${` is a dollar.
fn has_open_brace(text: &str) -> bool {
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once('$') {
        rest = match behind.strip_prefix('{') {
            Some(name) => match name.split_once('}') {
                Some((_, behind)) => behind,
                None => return true,
            },
            None => behind.strip_prefix('$').unwrap_or(behind),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::has_open_brace;

    #[test]
    fn finds_open_braces() {
        for open in ["${", "${A", "${A} ${B", "$$${A", "$a${"] {
            assert!(has_open_brace(open), "{open}");
        }
        for closed in ["", "$", "$${", "$$${A}", "${A}{", "$A {", "${A:-}"] {
            assert!(!has_open_brace(closed), "{closed}");
        }
    }
}
