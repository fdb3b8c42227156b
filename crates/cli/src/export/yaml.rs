//! JSON as YAML.

use serde_json::Value;

/// The text of a document in block style. Scalars and keys are those of JSON, which YAML 1.2 contains,
/// so that no text is read as a number, a date or `no`; a key of letters, digits, `.`, `/` and `-` has
/// no quotes.
pub fn text(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, &mut text);
    text
}

/// Writes a value at the end of a line that begins with its key or dash.
fn write(value: &Value, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (number, (key, value)) in map.iter().enumerate() {
                // The first entry stands behind the dash of its list.
                if number > 0 || !text.ends_with("- ") {
                    text.push_str(&indent);
                }
                text.push_str(&key_of(key));
                text.push(':');
                write_after_key(value, depth, text);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for value in list {
                text.push_str(&indent);
                text.push_str("- ");
                match is_block(value) {
                    true if value.is_array() => {
                        text.push('\n');
                        write(value, depth + 1, text);
                    }
                    true => write(value, depth + 1, text),
                    false => text.push_str(&format!("{value}\n")),
                }
            }
        }
        scalar => text.push_str(&format!("{indent}{scalar}\n")),
    }
}

fn write_after_key(value: &Value, depth: usize, text: &mut String) {
    if is_block(value) {
        text.push('\n');
        write(value, depth + 1, text);
    } else {
        text.push_str(&format!(" {value}\n"));
    }
}

/// Whether a value takes lines of its own.
fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

fn key_of(key: &str) -> String {
    let is_plain = key.starts_with(|first: char| first.is_ascii_alphabetic())
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "./-".contains(c))
        && !["null", "true", "false", "yes", "no", "on", "off", "y", "n"]
            .contains(&key.to_ascii_lowercase().as_str());
    match is_plain {
        true => key.to_owned(),
        false => Value::from(key).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for value in [
            json!({"a": {"b": [1, "1", "no", true, null, "x: y # z", "\u{1b}\"\\\n"]}, "on": {}}),
            json!({"list": [{"a": 1, "b": [[1, [2, []]], {}]}, {"c": {"d": "2014-12-31"}}]}),
            json!([[{"a": []}], "- b"]),
            json!("text"),
        ] {
            let text = text(&value);
            let read: Value = serde_yaml_ng::from_str(&text).unwrap();
            assert_eq!(read, value, "{text}");
        }
    }
}
