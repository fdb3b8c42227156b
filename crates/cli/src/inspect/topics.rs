//! Which topics are meant.

use nervure_node::running::Connection;
use nervure_protocol::{
    did_you_mean,
    wiring::{self, OutputSpec},
};

use super::{connect, split_name, state::State};
use crate::failure::Failure;

/// A dataflow, and some of its topics, in the order of its file.
pub struct Chosen {
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

/// Looks the patterns up in the dataflow that they, or `-d`, name. No pattern means every topic.
pub fn choose(
    patterns: &[String],
    dataflow: Option<&str>,
    program: &str,
) -> Result<Chosen, Failure> {
    let (dataflow, patterns) = common_dataflow(patterns, dataflow)?;
    let state = State::open(connect(dataflow, program)?, false)?;
    let all = all(&state);
    let topics = select(all, &patterns)?;
    Ok(Chosen { state, topics })
}

/// As [`choose`], for those who want to observe: the names, and the connection.
pub fn choose_to_observe(
    patterns: &[String],
    dataflow: Option<&str>,
    program: &str,
) -> Result<(Vec<String>, Connection), Failure> {
    let chosen = choose(patterns, dataflow, program)?;
    let names = chosen.topics.into_iter().map(|topic| topic.name).collect();
    Ok((names, chosen.state.into_connection()))
}

/// The dataflow that all of them name, or none does.
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
    let nodes = state.nodes.values().filter(|node| !node.declared.observer);
    let of_node = nodes.flat_map(|node| {
        node.declared.outputs.iter().map(|output| Topic {
            name: wiring::topic(&node.declared.id, &output.name),
            node: node.declared.node,
            output: output.clone(),
        })
    });
    of_node.collect()
}

/// Those whose names fit one of the patterns, and all of them without patterns. A pattern that none fits is a mistake.
fn select(all: Vec<Topic>, patterns: &[&str]) -> Result<Vec<Topic>, Failure> {
    if let Some(pattern) = patterns
        .iter()
        .find(|pattern| !all.iter().any(|one| fits(pattern, &one.name)))
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
    let is_meant = |one: &Topic| {
        patterns.is_empty() || patterns.iter().any(|pattern| fits(pattern, &one.name))
    };
    Ok(all.into_iter().filter(is_meant).collect())
}

/// Whether a name is what the pattern says, in which `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(tail) = name.strip_prefix(begin) else {
        return false;
    };
    (0..=tail.len())
        .filter(|at| tail.is_char_boundary(*at))
        .any(|at| fits(rest, &tail[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
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
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn topics_may_name_one_dataflow_together() {
        let patterns = ["drive:a/b".to_owned(), "c/d".to_owned()];
        assert_eq!(
            common_dataflow(&patterns, None).unwrap(),
            (Some("drive"), vec!["a/b", "c/d"])
        );
        let patterns = ["drive:a/b".to_owned(), "arm:c/d".to_owned()];
        assert!(common_dataflow(&patterns, None).is_err());
    }
}
