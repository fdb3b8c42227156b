//! "Did you mean ..".

/// The candidate that is most similar to `word`, if one is similar enough.
///
/// Case is ignored, and so is the difference of `-` and `_`. A candidate may differ by one edit per
/// three characters, where a transposition is one edit; or one of both is a prefix of the other,
/// which counts as one edit, as abbreviations are common.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The cost of the distance is the product of both lengths.
    const MAX_WORD_BYTES: usize = 100;
    if word.len() > MAX_WORD_BYTES {
        return None;
    }
    let folded = fold(word);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= MAX_WORD_BYTES)
        .filter_map(|candidate| {
            let other = fold(candidate);
            let distance = strsim::damerau_levenshtein(&folded, &other);
            let length = folded.chars().count().max(other.chars().count());
            let is_prefix = folded.len().min(other.len()) >= 3
                && (folded.starts_with(&other) || other.starts_with(&folded));
            let allowed = if length < 3 { 0 } else { length / 3 };
            let edits = if is_prefix { distance.min(1) } else { distance };
            (distance <= allowed || is_prefix).then_some((edits, distance, candidate))
        })
        .min_by_key(|&(edits, distance, _)| (edits, distance))
        .map(|(_, _, candidate)| candidate)
}

/// The hint for a `word` that is none of `names`: the most similar name, or else a list of them
/// after `they_are`, as in `its nodes are`.
pub fn did_you_mean<'a>(
    word: &str,
    they_are: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> String {
    const MAX_LISTED: usize = 20;
    let names: Vec<_> = names.into_iter().collect();
    if let Some(near) = nearest(word, names.iter().copied()) {
        return format!("did you mean `{near}`?");
    }
    let listed = names[..names.len().min(MAX_LISTED)].join(", ");
    match names.len().saturating_sub(MAX_LISTED) {
        0 => format!("{they_are} {listed}"),
        more => format!("{they_are} {listed} and {more} more"),
    }
}

fn fold(word: &str) -> String {
    word.chars()
        .map(|character| {
            if character == '-' {
                '_'
            } else {
                character.to_ascii_lowercase()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_typos_other_spellings_and_prefixes() {
        let keys = ["queue_size", "queue_policy", "source", "max_held"];
        assert_eq!(nearest("queue-size", keys), Some("queue_size"));
        assert_eq!(nearest("queuePolicy", keys), Some("queue_policy"));
        assert_eq!(nearest("soruce", keys), Some("source"));
        assert_eq!(nearest("queue", ["queue_size"]), Some("queue_size"));
        assert_eq!(nearest("prio", ["period", "priority"]), Some("priority"));
        assert_eq!(nearest("frequency", keys), None);
        assert_eq!(nearest(&"s".repeat(5000), keys), None);
    }

    #[test]
    fn a_word_without_a_similar_name_gets_a_list_of_limited_length() {
        assert_eq!(
            did_you_mean("sorce", "its nodes are", ["sink", "source"]),
            "did you mean `source`?"
        );
        assert_eq!(
            did_you_mean("sun", "its nodes are", ["sink", "source"]),
            "its nodes are sink, source"
        );
        let many: Vec<_> = (0..23).map(|number| format!("camera-{number}")).collect();
        let hint = did_you_mean("sun", "its nodes are", many.iter().map(String::as_str));
        assert!(hint.ends_with(", camera-19 and 3 more"), "{hint}");
    }
}
