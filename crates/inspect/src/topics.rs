//! The topics of a dataflow, and those that a request names.

use nervure_protocol::wiring::{self, OutputSpec};

use crate::{
    Error, State,
    answers::{ListedTopic, Producer, TopicInfo, TopicInfos, Topics},
    edges::Edge,
    places::split_name,
};

/// A dataflow and the selected topics, in the order of its file.
pub struct SelectedTopics {
    /// The state of the dataflow.
    pub state: State,
    /// The selected topics.
    pub topics: Vec<Topic>,
}

/// An output of a node.
#[derive(Clone, Debug)]
pub struct Topic {
    /// `node/output`.
    pub name: String,
    /// Index of its node.
    pub node: u32,
    /// Its declaration.
    pub output: OutputSpec,
}

/// Finds the topics that match the patterns, in the dataflow that the patterns or `-d` name.
/// Without patterns, every topic.
pub fn select_topics(
    patterns: &[String],
    dataflow: Option<&str>,
    program: &str,
) -> Result<SelectedTopics, Error> {
    let (dataflow, patterns) = common_dataflow(patterns, dataflow)?;
    let state = State::find(dataflow, program, false)?;
    let all = all(&state);
    // The topic may belong to a machine that cannot be reached.
    let topics = select(all, &patterns).map_err(|pattern| {
        let unreachable = state.unreachable.iter();
        Error::NoTopic {
            pattern: pattern.to_owned(),
            topics: self::all(&state).into_iter().map(|one| one.name).collect(),
            unreachable: unreachable.map(|one| one.reason.clone()).collect(),
        }
    })?;
    Ok(SelectedTopics { state, topics })
}

/// The dataflow that the patterns and `-d` name, if any, and the patterns without it.
fn common_dataflow<'a>(
    patterns: &'a [String],
    dataflow: Option<&'a str>,
) -> Result<(Option<&'a str>, Vec<&'a str>), Error> {
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
    let of_node = state.own_nodes().flat_map(|node| {
        node.declared.outputs.iter().map(|output| Topic {
            name: wiring::topic(&node.declared.id, &output.name),
            node: node.declared.node,
            output: output.clone(),
        })
    });
    of_node.collect()
}

/// The topics that match a pattern; all topics without patterns. The error is a pattern without a
/// match.
fn select<'p>(all: Vec<Topic>, patterns: &[&'p str]) -> Result<Vec<Topic>, &'p str> {
    if let Some(pattern) = patterns
        .iter()
        .find(|pattern| !all.iter().any(|one| matches_pattern(pattern, &one.name)))
    {
        return Err(pattern);
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

/// The edges of a topic.
pub fn edges_of<'a>(state: &'a State, topic: &'a Topic) -> impl Iterator<Item = &'a Edge> {
    state.edges.iter().filter(|edge| edge.topic == topic.name)
}

/// The topics of a dataflow.
///
/// # Errors
/// If the dataflow cannot be found or reached.
pub fn topics(dataflow: &str) -> Result<Topics, Error> {
    let SelectedTopics { state, topics } = select_topics(&[], Some(dataflow), "topic-list")?;
    Ok(Topics::of(&state, &topics))
}

/// The topics that match, with their edges.
///
/// # Errors
/// If the dataflow cannot be found or reached, and for a pattern without a match.
pub fn infos(dataflow: &str, patterns: &[String]) -> Result<TopicInfos, Error> {
    let SelectedTopics { mut state, topics } =
        select_topics(patterns, Some(dataflow), "topic-info")?;
    state.sample();
    Ok(TopicInfos {
        dataflow: state.welcome().dataflow.clone(),
        topics: topics
            .iter()
            .map(|topic| TopicInfo::of(&state, topic))
            .collect(),
        unreachable: state.unreachable_machines(),
    })
}

impl Topics {
    /// Some topics of a dataflow.
    pub fn of(state: &State, topics: &[Topic]) -> Self {
        let count = |topic: &Topic, observer| {
            edges_of(state, topic)
                .filter(|edge: &&Edge| edge.observer == observer)
                .count()
        };
        let topic = |topic: &Topic| ListedTopic {
            topic: topic.name.clone(),
            r#type: topic.output.type_name.clone(),
            history: topic.output.history,
            consumers: count(topic, false),
            observers: count(topic, true),
        };
        Self {
            dataflow: state.welcome().dataflow.clone(),
            topics: topics.iter().map(topic).collect(),
        }
    }
}

impl TopicInfo {
    /// A topic of a state whose counters were read.
    pub fn of(state: &State, topic: &Topic) -> Self {
        let producer = &state.nodes[&topic.node];
        Self {
            topic: topic.name.clone(),
            r#type: topic.output.type_name.clone(),
            history: topic.output.history,
            producer: Producer {
                id: producer.declared.id.clone(),
                state: producer.state(),
                pid: producer.pid(),
            },
            edges: edges_of(state, topic).map(Into::into).collect(),
        }
    }
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
