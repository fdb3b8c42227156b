//! The command lines of `record`, `replay` and the player.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use clap_complete::ArgValueCandidates;

use crate::{
    complete,
    failure::Failure,
    option_values::parse_size,
    overrides::{Assignment, Overrides, parse_param, parse_variable},
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
    /// Write a summary as JSON to stdout at the end.
    #[arg(long)]
    pub json: bool,
    /// Compress with LZ4. Costs time, and gains little for raw images.
    #[arg(long)]
    pub compress: bool,
}

/// How `replay` is called.
pub const REPLAY_USAGE: &str =
    "nervure replay [OPTIONS] <RECORDING>... [FILE] [NODE.PARAMETER=VALUE]...";

#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// Recordings or bags of ROS 2, as folders or files; a dataflow file whose recorded sources they
    /// replace; and parameters of the other nodes.
    #[arg(required = true, value_name = "RECORDING|FILE|NODE.PARAMETER=VALUE", add = ArgValueCandidates::new(complete::params_of_file))]
    words: Vec<PathBuf>,
    /// Set an environment variable of all nodes and for `${NAME}` in the file. May be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_variable)]
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
    /// Play a topic of the recording under another name. May be given several times.
    #[arg(long, value_name = "TOPIC=NODE/OUTPUT", value_parser = parse_rename)]
    pub rename: Vec<(String, String)>,
    /// Take definitions of ROS messages from the .msg, .srv and .action files in this folder first.
    #[arg(long, value_name = "FOLDER")]
    pub definitions: Vec<PathBuf>,
}

/// What the words of a `replay` name.
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
            let param = word.to_str().and_then(|text| parse_param(text).ok());
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
            ("NODE.PARAMETER=VALUE", !params.is_empty()),
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
    /// Recordings.
    #[arg(required = true)]
    pub recordings: Vec<PathBuf>,
    #[command(flatten)]
    pub playing: Playing,
}

/// When a recording continues in a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Before the file would exceed this size, in bytes.
    Bytes(u64),
    /// When the file has this age.
    Period(Duration),
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

pub fn parse_rename(text: &str) -> Result<(String, String), String> {
    let parts = text
        .split_once('=')
        .filter(|(topic, name)| !topic.is_empty() && name.contains('/'));
    let (topic, name) =
        parts.ok_or("expected `TOPIC=NODE/OUTPUT`, such as `/front/image_raw=camera/image`")?;
    Ok((topic.to_owned(), name.to_owned()))
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
    fn what_belongs_to_a_dataflow_needs_one() {
        for (words, expected) in [
            (
                "a.mcap one.yml two.yml",
                "two dataflow files are given: `one.yml` and `two.yml`",
            ),
            ("a.mcap --lossy", "`--lossy` needs a dataflow file"),
            ("a.mcap --replace x", "`--replace` needs a dataflow file"),
            ("a.mcap --env A=1", "`--env` needs a dataflow file"),
            (
                "a.mcap cam.fps=1",
                "`NODE.PARAMETER=VALUE` needs a dataflow file",
            ),
        ] {
            assert_eq!(played(words).unwrap_err(), expected);
        }
    }
}
