//! Options of the commands that run a dataflow.

use std::time::Duration;

use clap::Args;

use crate::option_values::{LogLevel, parse_duration};

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
