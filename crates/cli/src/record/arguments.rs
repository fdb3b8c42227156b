//! The command lines of `record`, `replay` and the player.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use clap_complete::ArgValueCandidates;
use nervure_launch::{Assignment, Overrides};

use crate::{
    complete,
    failure::Failure,
    option_values::{parse_duration, parse_size},
    run_options::RunOptions,
};

#[derive(Debug, Args)]
pub struct RecordArguments {
    /// Topics to record: `node/output` or `dataflow:node/output`. `*` matches anything. Default:
    /// all.
    #[arg(add = ArgValueCandidates::new(complete::topics))]
    pub topics: Vec<String>,
    /// Select the dataflow by name, or by the process id of its keeper. Not needed if only one
    /// runs.
    #[arg(short, long, value_name = "NAME", add = ArgValueCandidates::new(complete::dataflows))]
    pub dataflow: Option<String>,
    /// Write to this file, which must not exist; `{time}` is the start in UTC, `{name}` the
    /// dataflow.
    #[arg(short, long, value_name = "FILE", default_value = "{name}-{time}.mcap")]
    pub output: PathBuf,
    /// Start a new numbered file before one exceeds this size (`1GB`) or age (`10min`).
    #[arg(long, value_name = "SIZE|DURATION", value_parser = parse_split)]
    pub split: Option<Split>,
    /// Delete the oldest files of this name when all of them together exceed this size.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "split")]
    pub max_disk: Option<u64>,
    /// Leave out these topics. May be given several times.
    #[arg(long, value_name = "TOPIC")]
    pub exclude: Vec<String>,
    /// Record a topic under another name; `*` in both stands for the same. May be given several
    /// times.
    #[arg(long, value_name = "TOPIC=NODE/OUTPUT", value_parser = parse_rename)]
    pub rename: Vec<Rename>,
    /// Record at most HZ samples a second of a topic. May be given several times.
    #[arg(long, value_name = "TOPIC=HZ", value_parser = parse_throttle)]
    pub throttle: Vec<Throttle>,
    /// Write a summary as JSON to stdout at the end.
    #[arg(long)]
    pub json: bool,
    /// Compress with LZ4. Costs time, and gains little for raw images.
    #[arg(long)]
    pub compress: bool,
}

/// Usage of `replay`.
pub const REPLAY_USAGE: &str =
    "nervure replay [OPTIONS] <RECORDING>... [FILE] [ARGUMENT=VALUE|NODE.PARAMETER=VALUE]...";

#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// Recordings or bags of ROS 2, as folders or files; a dataflow file whose recorded sources they
    /// replace; and parameters of the other nodes.
    #[arg(required = true, value_name = "RECORDING|FILE|ARGUMENT=VALUE|NODE.PARAMETER=VALUE", add = ArgValueCandidates::new(complete::params_of_file))]
    words: Vec<PathBuf>,
    /// Set an environment variable of all nodes and for `${NAME}` in the file. May be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = Assignment::variable)]
    variables: Vec<Assignment>,
    /// Replace this node too, even if it has inputs. May be given several times.
    #[arg(long, value_name = "NODE", add = ArgValueCandidates::new(complete::nodes_of_file))]
    pub replace: Vec<String>,
    /// Keep the queue policies of the file: samples may be lost, as on the robot.
    #[arg(long)]
    pub lossy: bool,
    #[command(flatten)]
    pub playing: Playing,
    #[command(flatten)]
    pub options: RunOptions,
}

#[derive(Debug, Args)]
pub struct InfoArguments {
    /// A recording, or a bag of ROS 2: its folder or one of its files. Several are shown as one.
    #[arg(required = true, value_name = "RECORDING")]
    pub files: Vec<PathBuf>,
    /// Take definitions of ROS messages from the .msg, .srv and .action files in this folder first.
    #[arg(long, value_name = "FOLDER")]
    pub definitions: Vec<PathBuf>,
    /// Trust the index of the file, without a search for damage.
    #[arg(long)]
    pub quick: bool,
    /// Write JSON to stdout.
    #[arg(long)]
    pub json: bool,
}

/// How a recording is played.
#[derive(Clone, Debug, Args)]
pub struct Playing {
    /// Play at this multiple of the recorded speed; `max` is as fast as the nodes allow.
    #[arg(long, value_name = "RATE", default_value = "1", value_parser = parse_rate)]
    pub rate: Rate,
    /// Start again at the end of the recording, until stopped.
    #[arg(long)]
    pub r#loop: bool,
    /// Let the dataflow's clock and timers follow the time of the recording.
    #[arg(long)]
    pub clock: bool,
    /// Begin there: this long after the beginning (`90s`), or at a time (`2026-01-31T12:00:00Z`).
    #[arg(long, value_name = "DURATION|TIME", value_parser = parse_moment)]
    pub start: Option<Moment>,
    /// End there, in the same forms.
    #[arg(long, value_name = "DURATION|TIME", value_parser = parse_moment, conflicts_with = "duration")]
    pub until: Option<Moment>,
    /// End this long after the start.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Play only these topics; `*` matches anything. May be given several times.
    #[arg(long, value_name = "TOPIC")]
    pub topic: Vec<String>,
    /// Leave out these topics. May be given several times.
    #[arg(long, value_name = "TOPIC")]
    pub exclude: Vec<String>,
    /// Play a topic of the recording under another name; `*` in both stands for the same. May be
    /// given several times.
    #[arg(long, value_name = "TOPIC=NODE/OUTPUT", value_parser = parse_rename)]
    pub rename: Vec<Rename>,
    /// Play at most HZ samples of a topic per recorded second. May be given several times.
    #[arg(long, value_name = "TOPIC=HZ", value_parser = parse_throttle)]
    pub throttle: Vec<Throttle>,
    /// Take definitions of ROS messages from the .msg, .srv and .action files in this folder first.
    #[arg(long, value_name = "FOLDER")]
    pub definitions: Vec<PathBuf>,
}

/// The words of a `replay`, by meaning.
#[derive(Debug, PartialEq)]
pub struct Played {
    pub recordings: Vec<PathBuf>,
    /// The dataflow file, with what overrides its parameters.
    pub dataflow: Option<(PathBuf, Overrides)>,
}

impl ReplayArguments {
    /// Sorts the words: folders and files with the name of a recording, one dataflow file, and
    /// parameters.
    ///
    /// # Errors
    /// For two dataflow files, and for options of a dataflow without one.
    pub fn played(&self) -> Result<Played, Failure> {
        let (mut recordings, mut file, mut params) = (Vec::new(), None, Vec::new());
        for word in &self.words {
            let param = word.to_str().and_then(|text| Assignment::param(text).ok());
            if recordings.is_empty() || is_recording(word) {
                recordings.push(word.clone());
            } else if let Some(param) = param.filter(|_| !word.exists()) {
                params.push(param);
            } else if let Some(other) = file.replace(word.clone()) {
                return Err(Failure::invalid(format!(
                    "two dataflow files are given: `{}` and `{}`",
                    other.display(),
                    word.display()
                ))
                .hint("recordings are folders, or end with .mcap, .db3 or .zstd"));
            }
        }
        let needing = [
            ("--replace", !self.replace.is_empty()),
            ("--lossy", self.lossy),
            ("--env", !self.variables.is_empty()),
            ("NAME=VALUE", !params.is_empty()),
        ];
        let needing = needing.iter().find(|(_, is_given)| *is_given);
        let overrides = Overrides {
            params,
            variables: self.variables.clone(),
        };
        match (file, needing) {
            (None, Some((name, _))) => {
                Err(Failure::invalid(format!("`{name}` needs a dataflow file"))
                    .hint("name the file after the recording"))
            }
            (file, _) => Ok(Played {
                recordings,
                dataflow: file.map(|file| (file, overrides)),
            }),
        }
    }
}

fn is_recording(path: &Path) -> bool {
    let is_known = |end| ["mcap", "db3", "zstd"].iter().any(|known| end == *known);
    path.is_dir() || path.extension().is_some_and(is_known)
}

#[derive(Debug, Args)]
pub struct PlayerArguments {
    /// Settings of the player, as JSON.
    pub settings: String,
}

/// When a recording continues in a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Before the file would exceed this size, in bytes.
    Bytes(u64),
    /// When the file has this age.
    Period(Duration),
}

/// A new name for the topics that match a pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct Rename {
    pub topic: String,
    pub name: String,
}

/// The most samples per second of the topics that match a pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct Throttle {
    pub topic: String,
    pub hz: f64,
}

/// A time in a recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Moment {
    /// After its beginning.
    After(Duration),
    /// In nanoseconds since the Unix epoch.
    At(u64),
}

impl Moment {
    /// In nanoseconds since the Unix epoch, for a recording with this first time.
    pub fn time(self, first: u64) -> u64 {
        match self {
            Self::After(duration) => first.saturating_add(nanos(duration)),
            Self::At(time) => time,
        }
    }
}

pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Rename {
    /// The new name of a topic; `None` if the pattern does not match.
    pub fn apply(&self, topic: &str) -> Option<String> {
        let Some((begin, end)) = self.topic.split_once('*') else {
            return (self.topic == topic).then(|| self.name.clone());
        };
        let middle = topic.strip_prefix(begin)?.strip_suffix(end)?;
        Some(self.name.replacen('*', middle, 1))
    }
}

/// The speed of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Multiple of the recorded speed.
    Times(f64),
    /// As fast as possible.
    Max,
}

pub fn parse_rate(text: &str) -> Result<Rate, String> {
    match text.parse() {
        _ if text == "max" => Ok(Rate::Max),
        Ok(times) if (0.001..=1000.0).contains(&times) => Ok(Rate::Times(times)),
        _ => Err("expected a number from 0.001 to 1000, or `max`".to_owned()),
    }
}

pub fn parse_rename(text: &str) -> Result<Rename, String> {
    let stars = |text: &str| text.matches('*').count();
    let is_valid = |(topic, name): &(&str, &str)| {
        !topic.is_empty() && name.contains('/') && stars(topic) < 2 && stars(topic) == stars(name)
    };
    let (topic, name) = text.split_once('=').filter(is_valid).ok_or(
        "expected `TOPIC=NODE/OUTPUT`, such as `/front/image_raw=camera/image` or `/front/*=camera/*`",
    )?;
    Ok(Rename {
        topic: topic.to_owned(),
        name: name.to_owned(),
    })
}

pub fn parse_throttle(text: &str) -> Result<Throttle, String> {
    let parsed = text.rsplit_once('=').and_then(|(topic, hz)| {
        let hz = hz.parse().ok().filter(|hz| (1e-6..=1e6).contains(hz))?;
        Some(Throttle {
            topic: topic.to_owned(),
            hz,
        })
    });
    parsed.ok_or_else(|| "expected `TOPIC=HZ`, such as `camera/image=5`".to_owned())
}

pub fn parse_moment(text: &str) -> Result<Moment, String> {
    if let Ok(duration) = nervure_dataflow::parse_duration(text) {
        return Ok(Moment::After(duration));
    }
    let time = text.parse::<jiff::Timestamp>().ok();
    let time = time.and_then(|time| u64::try_from(time.as_nanosecond()).ok());
    time.map(Moment::At).ok_or_else(|| {
        "expected a duration from the beginning, such as `90s`, or a time, such as `2026-01-31T12:00:00Z`".to_owned()
    })
}

/// Parses a size of at least 1 MB or a duration of at least 1 s, with its unit.
pub fn parse_split(text: &str) -> Result<Split, String> {
    const SMALLEST: u64 = 1_000_000;
    match (
        nervure_dataflow::parse_size(text),
        nervure_dataflow::parse_duration(text),
    ) {
        (Ok(bytes), _) if bytes < SMALLEST => Err("expected at least `1MB`".to_owned()),
        (_, Ok(period)) if period < Duration::from_secs(1) => {
            Err("expected at least `1s`".to_owned())
        }
        (Ok(bytes), _) => Ok(Split::Bytes(bytes)),
        (_, Ok(period)) => Ok(Split::Period(period)),
        _ => Err("expected a size such as `1GB`, or a duration such as `10min`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        replay: ReplayArguments,
    }

    fn played(words: &str) -> Result<Played, String> {
        let words = ["replay"].into_iter().chain(words.split(' '));
        let line = Line::try_parse_from(words).unwrap();
        line.replay.played().map_err(|error| error.to_string())
    }

    #[test]
    fn recordings_come_before_the_dataflow_and_its_parameters() {
        let found = played("odd-name a.mcap /tmp b.db3.zstd flow.yml cam.fps=60 --lossy").unwrap();
        let expected = ["odd-name", "a.mcap", "/tmp", "b.db3.zstd"].map(PathBuf::from);
        assert_eq!(found.recordings, expected);
        let (file, overrides) = found.dataflow.unwrap();
        assert_eq!(file, Path::new("flow.yml"));
        assert_eq!(overrides.params[0].name, "cam.fps");
        assert_eq!(played("a.mcap").unwrap().dataflow, None);
    }

    #[test]
    fn options_have_the_forms_that_people_write() {
        let renamed = |text: &str, topic: &str| parse_rename(text).unwrap().apply(topic);
        assert_eq!(renamed("/a=b/c", "/a").as_deref(), Some("b/c"));
        assert_eq!(
            renamed("/front/*=cam/*", "/front/raw").as_deref(),
            Some("cam/raw")
        );
        assert_eq!(renamed("/front/*=cam/*", "/rear/raw"), None);
        for text in ["/a", "/a=b", "/*=b/c", "/*/*=b/*/*", "=a/b"] {
            assert!(parse_rename(text).is_err(), "{text}");
        }
        let throttle = parse_throttle("camera/*=0.5").unwrap();
        assert_eq!((throttle.topic.as_str(), throttle.hz), ("camera/*", 0.5));
        for text in ["camera", "a=0", "a=-1", "a=x", "a=inf"] {
            assert!(parse_throttle(text).is_err(), "{text}");
        }
        let time = |text: &str| parse_moment(text).map(|moment| moment.time(1_000));
        assert_eq!(time("5us"), Ok(6_000));
        assert_eq!(time("2023-11-14T22:13:20Z"), Ok(1_700_000_000_000_000_000));
        for text in ["5", "tomorrow", "1960-01-01T00:00:00Z"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_belongs_to_a_dataflow_needs_one() {
        for (words, expected) in [
            (
                "a.mcap one.yml two.yml",
                "two dataflow files are given: `one.yml` and `two.yml`",
            ),
            ("a.mcap --lossy", "`--lossy` needs a dataflow file"),
            ("a.mcap --replace x", "`--replace` needs a dataflow file"),
            ("a.mcap --env A=1", "`--env` needs a dataflow file"),
            ("a.mcap cam.fps=1", "`NAME=VALUE` needs a dataflow file"),
        ] {
            assert_eq!(played(words).unwrap_err(), expected);
        }
    }
}
