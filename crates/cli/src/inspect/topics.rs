//! Finds the topics that a command line names.

use nervure_protocol::{
    did_you_mean,
    wiring::{self, OutputSpec},
};

use super::{split_name, state::State};
use crate::failure::Failure;

/// A dataflow and the selected topics, in the order of its file.
pub struct SelectedTopics {
    pub state: State,
    pub topics: Vec<Topic>,
}

/// An output of a node.
#[derive(Clone, Debug)]
pub struct Topic {
    /// `node/output`.
    pub name: String,
    /// Index of its node.
    pub node: u32,
    pub output: OutputSpec,
}

/// Finds the topics that match the patterns, in the dataflow that the patterns or `-d` name.
/// Without patterns, every topic.
pub fn select_topics(
    patterns: &[String],
    dataflow: Option<&str>,
    program: &str,
) -> Result<SelectedTopics, Failure> {
    let (dataflow, patterns) = common_dataflow(patterns, dataflow)?;
    let state = State::find(dataflow, program, false)?;
    let all = all(&state);
    // The topic may belong to a machine that cannot be reached.
    let topics = select(all, &patterns).map_err(|failure| {
        let unreachable = state.unreachable.iter();
        unreachable.fold(failure, |failure, one| failure.because(&one.reason))
    })?;
    Ok(SelectedTopics { state, topics })
}

/// The dataflow that the patterns and `-d` name, if any, and the patterns without it.
fn common_dataflow<'a>(
    patterns: &'a [String],
    dataflow: Option<&'a str>,
) -> Result<(Option<&'a str>, Vec<&'a str>), Failure> {
    let mut common = dataflow;
    let mut names = Vec::new();
    for pattern in patterns {
        let (named, name) = split_name(pattern, common)?;
        common = named;
        names.push(name);
    }
    Ok((common, names))
}

/// Every topic of a dataflow.
pub fn all(state: &State) -> Vec<Topic> {
    let nodes = state
        .nodes
        .values()
        .filter(|node| !node.declared.observer && state.is_shown(node));
    let of_node = nodes.flat_map(|node| {
        node.declared.outputs.iter().map(|output| Topic {
            name: wiring::topic(&node.declared.id, &output.name),
            node: node.declared.node,
            output: output.clone(),
        })
    });
    of_node.collect()
}

/// The topics that match a pattern; all topics without patterns. Fails for a pattern without a
/// match.
fn select(all: Vec<Topic>, patterns: &[&str]) -> Result<Vec<Topic>, Failure> {
    if let Some(pattern) = patterns
        .iter()
        .find(|pattern| !all.iter().any(|one| matches_pattern(pattern, &one.name)))
    {
        let hint = match all.is_empty() {
            true => "its nodes have no outputs".to_owned(),
            false => did_you_mean(
                pattern,
                "the topics are",
                all.iter().map(|one| one.name.as_str()),
            ),
        };
        return Err(Failure::invalid(format!("there is no topic `{pattern}`")).hint(hint));
    }
    let is_selected = |one: &Topic| {
        patterns.is_empty()
            || patterns
                .iter()
                .any(|pattern| matches_pattern(pattern, &one.name))
    };
    Ok(all.into_iter().filter(is_selected).collect())
}

/// Whether a name matches a pattern, in which `*` matches anything.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(tail) = name.strip_prefix(begin) else {
        return false;
    };
    (0..=tail.len())
        .filter(|at| tail.is_char_boundary(*at))
        .any(|at| matches_pattern(rest, &tail[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_anything() {
        for (pattern, name, expected) in [
            ("camera/image", "camera/image", true),
            ("camera/*", "camera/image", true),
            ("*/image", "camera/image", true),
            ("cam*/im*e", "camera/image", true),
            ("*", "camera/image", true),
            ("cam*", "camera/image", true),
            ("a*", "a", true),
            ("*a*b*", "xaxbx", true),
            ("*/image", "camera/images", false),
            ("", "a", false),
            ("*/*", "camera/image", true),
            ("camera/image*", "camera/image", true),
            ("camera/*x", "camera/image", false),
            ("camera", "camera/image", false),
        ] {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn all_topics_must_name_the_same_dataflow() {
        let patterns = ["drive:a/b".to_owned(), "c/d".to_owned()];
        assert_eq!(
            common_dataflow(&patterns, None).unwrap(),
            (Some("drive"), vec!["a/b", "c/d"])
        );
        let patterns = ["drive:a/b".to_owned(), "arm:c/d".to_owned()];
        assert!(common_dataflow(&patterns, None).is_err());
    }
}
