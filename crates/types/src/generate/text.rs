//! Comments in generated code.

use crate::definition::{Definition, Field};

/// The sentence on a type whose samples are one of its fields.
pub(super) fn payload_note(definition: &Definition) -> Option<String> {
    let payload = definition.payload()?;
    Some(format!(
        "A sample of this type is `{}` alone; the other fields are metadata.",
        payload.name
    ))
}

/// The comment of a field: its unit, its description, and the tensors that it may be.
pub(super) fn field_comment(field: &Field) -> String {
    let tensors = field.tensors.iter().map(|rule| format!("Tensor: {rule}."));
    let mut parts = vec![sentence(&field.comment)];
    parts.extend(tensors);
    parts.retain(|part| !part.is_empty());
    parts.join(" ")
}

/// A comment in one line, with a full stop after a sentence.
pub(super) fn sentence(comment: &str) -> String {
    let mut line = comment.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.ends_with(|last: char| last.is_alphanumeric() || last == ')') {
        line.push('.');
    }
    line
}

/// Breaks a text into lines with at most `width` characters, unless one word is longer.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
