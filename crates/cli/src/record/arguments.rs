//! The command lines of `record`, `replay` and the player.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use clap_complete::ArgValueCandidates;

use crate::{complete, option_values::parse_size, overrides::Overrides, run_options::RunOptions};

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

#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// A recording, or a bag of ROS 2: its folder or one of its files.
    pub recording: PathBuf,
    /// A dataflow file whose recorded sources the recording replaces.
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub overrides: Overrides,
    /// Replace this node too, even if it has inputs. May be given several times.
    #[arg(long, value_name = "NODE", requires = "file", add = ArgValueCandidates::new(complete::nodes_of_file))]
    pub replace: Vec<String>,
    /// Keep the queue policies of the file: samples may be lost, as on the robot.
    #[arg(long, requires = "file")]
    pub lossy: bool,
    #[command(flatten)]
    pub playing: Playing,
    #[command(flatten)]
    pub options: RunOptions,
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
}

#[derive(Debug, Args)]
pub struct PlayerArguments {
    /// A recording.
    pub recording: PathBuf,
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
