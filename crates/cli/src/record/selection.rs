//! Which topics of a recording are played, when, and under which names.

use std::collections::{BTreeMap, BTreeSet};

use nervure_inspect::topics::matches_pattern;
use nervure_protocol::did_you_mean;
use nervure_recorder::{Overview, PlayOptions};

use super::arguments::{Playing, Rate, nanos};
use crate::failure::Failure;

/// The options with which a recording is played: patterns become the topics that match.
///
/// # Errors
/// For a pattern that matches no topic, and for a start after the end.
pub fn options(playing: &Playing, overview: &Overview) -> Result<PlayOptions, Failure> {
    let known: Vec<&str> = overview
        .topics
        .iter()
        .map(|topic| topic.topic.as_str())
        .collect();
    let matching = |option: &str, pattern: &str| matching(option, pattern, &known);
    let mut topics: BTreeSet<&str> = match playing.topic.is_empty() {
        true => known.iter().copied().collect(),
        false => BTreeSet::new(),
    };
    for pattern in &playing.topic {
        topics.extend(matching("--topic", pattern)?);
    }
    for pattern in &playing.exclude {
        for topic in matching("--exclude", pattern)? {
            topics.remove(topic);
        }
    }
    if topics.is_empty() && !known.is_empty() {
        return Err(Failure::invalid("`--exclude` leaves no topic")
            .hint(format!("the topics are {}", known.join(", "))));
    }
    let mut renamed = BTreeMap::new();
    for rename in &playing.rename {
        for topic in matching("--rename", &rename.topic)? {
            let name = rename.apply(topic).unwrap_or_else(|| topic.to_owned());
            renamed.insert(topic.to_owned(), name);
        }
    }
    let mut most_hz = BTreeMap::new();
    for throttle in &playing.throttle {
        for topic in matching("--throttle", &throttle.topic)? {
            most_hz.insert(topic.to_owned(), throttle.hz);
        }
    }
    let (first, _) = overview.times.unwrap_or_default();
    let start = playing.start.map_or(0, |start| start.time(first));
    let end = match (playing.until, playing.duration) {
        (Some(until), _) => until.time(first),
        (None, Some(duration)) => start.max(first).saturating_add(nanos(duration)),
        (None, None) => u64::MAX,
    };
    if start > end {
        return Err(Failure::invalid("`--start` is after `--until`"));
    }
    Ok(PlayOptions {
        rate: match playing.rate {
            Rate::Times(times) => Some(times),
            Rate::Max => None,
        },
        repeat: playing.r#loop,
        drives_clock: playing.clock,
        renamed,
        topics: Some(topics.into_iter().map(str::to_owned).collect()),
        window: start..=end,
        most_hz,
    })
}

/// The topics that match a pattern, with or without the first slash of ROS.
fn matching<'a>(option: &str, pattern: &str, known: &[&'a str]) -> Result<Vec<&'a str>, Failure> {
    let is_match = |topic: &&&str| {
        let short = topic.strip_prefix('/').unwrap_or(topic);
        matches_pattern(pattern, topic) || matches_pattern(pattern, short)
    };
    let found: Vec<&str> = known.iter().filter(is_match).copied().collect();
    if found.is_empty() {
        let text = format!("`{option}`: the recording has no topic `{pattern}`");
        let topics = known.iter().copied();
        return Err(Failure::invalid(text).hint(did_you_mean(pattern, "its topics are", topics)));
    }
    Ok(found)
}
