//! Shows text of the user inside messages.

/// Longest text of the user inside a message, in characters.
const MAX_CHARACTERS: usize = 60;

/// `text` in backticks, safe for a terminal. Control and invisible characters are escaped, because
/// a file could otherwise move the cursor or reverse the text. Long text is cut.
pub(crate) fn quoted(text: &str) -> String {
    format!("`{}`", shown(text))
}

/// [`quoted`] without the backticks.
pub(crate) fn shown(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARACTERS) {
        Some((cut, _)) => format!("{}...", visible(&text[..cut])),
        None => visible(text),
    }
}

/// `text` with control and invisible characters escaped.
pub(crate) fn visible(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for character in text.chars() {
        if is_invisible(character) {
            result.extend(character.escape_default());
        } else {
            result.push(character);
        }
    }
    result
}

/// `` `a`, `b` and `c` ``; names after the twelfth are only counted.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let limit = 12;
    let shown: Vec<String> = names.iter().take(limit).map(|name| quoted(name)).collect();
    match (shown.as_slice(), names.len().saturating_sub(limit)) {
        ([], _) => String::new(),
        ([only], 0) => only.clone(),
        ([first @ .., last], 0) => format!("{} and {last}", first.join(", ")),
        (shown, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Whether the character is a control character, shows nothing, or changes the order of the text.
pub(crate) fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_codes_and_reordering_are_escaped_and_long_text_is_cut() {
        assert_eq!(quoted("a\u{1b}[2Jb"), r"`a\u{1b}[2Jb`");
        assert_eq!(quoted("a\u{202e}b"), r"`a\u{202e}b`");
        assert_eq!(quoted("bär"), "`bär`");
        assert_eq!(quoted(&"x".repeat(99)).len(), 60 + 2 + 3);
    }

    #[test]
    fn lists_read_as_sentences() {
        assert_eq!(listed(["a"]), "`a`");
        assert_eq!(listed(["a", "b", "c"]), "`a`, `b` and `c`");
        assert!(listed(["x"; 14]).ends_with(" and 2 more"));
    }
}
