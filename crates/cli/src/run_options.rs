//! Options of the commands that run a dataflow.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use clap_complete::ArgValueCandidates;

use crate::{
    complete,
    option_values::{LogLevel, parse_duration},
    overrides::OverrideArguments,
};

/// Options of both `run` and `replay`.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// Stop the nodes after this time, such as `500us`, `15ms`, `2s`, `10min`, `1h`.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub stop_after: Option<Duration>,
    /// Show log lines of this level and above; the log files have all levels.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
    /// Write everything as JSON to stdout, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Grace period: send SIGTERM to nodes that have not ended this long after Stop.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    pub grace: Duration,
    /// Name the dataflow, instead of the name in its file.
    #[arg(long)]
    pub name: Option<String>,
    /// Write no log files.
    #[arg(long)]
    pub no_logs: bool,
}

/// Arguments of `nervure run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// A dataflow file.
    pub file: PathBuf,
    #[command(flatten)]
    pub overrides: OverrideArguments,
    /// Run the `build` commands of the nodes first.
    #[arg(long)]
    pub build: bool,
    /// Run each node with the Python environment that `nervure build --uv` made for it.
    #[arg(long)]
    pub uv: bool,
    /// Load operators in Python again when their files change, with their attributes.
    #[arg(long)]
    pub hot_reload: bool,
    /// Return when the dataflow is ready, and let it run until `nervure stop`.
    #[arg(long, conflicts_with = "stop_after")]
    pub detach: bool,
    /// Let this node drive the dataflow's clock and timers, as a simulator does with `drive_clock`.
    #[arg(long, value_name = "NODE", add = ArgValueCandidates::new(complete::nodes_of_file))]
    pub clock: Option<String>,
    #[command(flatten)]
    pub options: RunOptions,
}
