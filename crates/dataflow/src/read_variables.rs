//! Fills in the host's variables: in `env`, `args` and `params`.

use crate::diagnostic::{Code, Finding};
use crate::quote::{is_invisible, quoted};
use crate::reader::Reader;
use crate::source::Span;
use crate::tree::{Kind, Value, plain_scalar};

/// What text becomes when variables are filled into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filled {
    /// Without quotes what it looks like, so that `fps: ${FPS}` is a number; with quotes text.
    ByQuotes,
    /// Text.
    Text,
    /// What it looks like: `{value: "${FPS}", type: int}`, where YAML wants the quotes.
    Scalar,
}

impl Reader<'_> {
    /// `text` with `$NAME`, `${NAME}` and `${NAME:-default}` replaced, as dora does it; `$$` is a dollar.
    pub fn expanded(&mut self, text: &str, span: Span) -> Option<String> {
        if has_open_brace(text) {
            let finding = Finding::error(Code::InvalidValue, span, "`${` is never closed")
                .hint("write `${NAME}`, or `$$` for a dollar");
            self.findings.push(finding);
            return None;
        }
        let look_up = |name: &str| self.surroundings.variable(name).map(Some).ok_or(());
        match shellexpand::env_with_context(text, look_up) {
            Ok(expanded) => Some(expanded.into_owned()),
            Err(error) => {
                let name = error.var_name;
                let message = format!("the environment variable {} is not set", quoted(&name));
                let hint = if name.chars().any(is_invisible) {
                    "write `$$` for a dollar".to_owned()
                } else {
                    format!(
                        "set it, give a default with `${{{name}:-default}}`, or write `$$` for a dollar"
                    )
                };
                self.findings
                    .push(Finding::error(Code::UnsetVariable, span, message).hint(hint));
                None
            }
        }
    }

    /// `value` with variables filled into its texts.
    pub fn expanded_value(&mut self, value: &Value, filled: Filled) -> Option<Value> {
        let kind = match &value.kind {
            Kind::Text(text) if text.contains('$') => {
                let expanded = self.expanded(text, value.span)?;
                let is_text = match filled {
                    Filled::ByQuotes => !value.is_plain,
                    Filled::Text => true,
                    Filled::Scalar => false,
                };
                match plain_scalar(&expanded) {
                    _ if is_text => Kind::Text(expanded),
                    // An empty variable is empty text: the value is there.
                    Kind::Null => Kind::Text(expanded),
                    kind => kind,
                }
            }
            Kind::List(items) => {
                let items: Vec<_> = items
                    .iter()
                    .map(|item| self.expanded_value(item, filled))
                    .collect();
                Kind::List(items.into_iter().collect::<Option<_>>()?)
            }
            _ => return Some(value.clone()),
        };
        Some(Value { kind, ..*value })
    }
}

/// Whether a `${` has no `}` behind it; the `$$` of `$${` is a dollar.
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
    fn braces_that_are_open() {
        for open in ["${", "${A", "${A} ${B", "$$${A", "$a${"] {
            assert!(has_open_brace(open), "{open}");
        }
        for closed in ["", "$", "$${", "$$${A}", "${A}{", "$A {", "${A:-}"] {
            assert!(!has_open_brace(closed), "{closed}");
        }
    }
}
