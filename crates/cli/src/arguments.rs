//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use clap_complete::ArgValueCandidates;

use crate::{
    complete,
    inspect::arguments::{
        AttachArguments, LintArguments, ListArguments, LogsArguments, NodeArguments,
        ParamArguments, StopArguments, Target, TopArguments, TopicArguments, TopicsArguments,
    },
    option_values::{
        LogLevel, Rate, Split, parse_duration, parse_rate, parse_rename, parse_size, parse_split,
    },
    overrides::Overrides,
};

/// Runs dataflows: programs that exchange images, point clouds and other samples through shared memory.
#[derive(Debug, Parser)]
#[command(name = "nervure", version, disable_help_subcommand = true, after_help = EXIT_CODES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    something in Nervure or in the system failed
  2    the command line or a dataflow file is wrong
  3    finished, but data was lost: a node failed, a lossless (`block`) edge lost samples, or a recording is damaged
  130  a second Ctrl-C killed the nodes";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a dataflow until its nodes have ended.
    ///
    /// The first Ctrl-C (or SIGTERM, SIGHUP) asks the nodes to stop, a second one kills them.
    #[command(after_help = EXIT_CODES)]
    Run(RunArguments),
    /// List the dataflows that run.
    List(ListArguments),
    /// Say how a running dataflow is, and what is wrong with it.
    Status(Target),
    /// Show what the nodes and edges of a running dataflow do.
    Top(TopArguments),
    /// List, show and measure what a running dataflow sends.
    Topic(TopicArguments),
    /// Say who keeps samples of a topic.
    Holders(TopicsArguments),
    /// Say where and why samples were lost, and which setting would change it.
    Explain(TopicsArguments),
    /// Give hints on a running dataflow, or on a file: consumers that are too slow, queues that are too deep, nodes that
    /// wait, outputs that nobody reads; with the setting that would change it.
    ///
    /// Exits with 3 when there are hints.
    Lint(LintArguments),
    /// Show the logs of a running dataflow, or of the last run.
    Logs(LogsArguments),
    /// Stop a running dataflow in order, and wait for its end.
    Stop(StopArguments),
    /// Stop, start or restart one node of a running dataflow.
    Node(NodeArguments),
    /// Run a program as a node of a running dataflow: a debugger, a shell, a notebook.
    ///
    /// The node's own program is stopped, and its edges stay. COMMAND runs in this terminal with the node's environment, so
    /// that `Node()` in it is the node. When it ends the node's own program is started again. Exits as COMMAND does.
    Attach(AttachArguments),
    /// List, read or change the parameters of the nodes of a running dataflow.
    Param(ParamArguments),
    /// Record topics of a running dataflow in an MCAP file, until it ends, or Ctrl-C.
    ///
    /// The dataflow is not held up: what the disk cannot take is lost to the recording, and counted. As a node of a
    /// dataflow (`path: nervure`, `args: record -o run.mcap`) it records its inputs, with the queues that these have.
    Record(RecordArguments),
    /// Play a recording: alone, or in the place of a dataflow's sources.
    #[command(after_help = EXIT_CODES)]
    Replay(ReplayArguments),
    /// Say what is in a recording, and what of it is damaged.
    ///
    /// Reads all of it. Exits with 3 when a part is damaged or missing.
    Info {
        /// A recording, or a bag of ROS 2: its folder or a file of it.
        file: PathBuf,
        /// Trust the index of the file, and do not look for damage.
        #[arg(long)]
        quick: bool,
        /// Write it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Check dataflow files.
    Validate {
        /// Dataflow files.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Write the findings as JSON, one object a file.
        #[arg(long)]
        json: bool,
    },
    /// Print the graph of a dataflow in Mermaid's language.
    Graph {
        /// A dataflow file.
        file: PathBuf,
        /// Write the resolved dataflow as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make a project that runs and is tested as it is, or a node for one.
    New(crate::new::NewArguments),
    /// Run the `build` commands of a dataflow's nodes, in the order of the file.
    Build {
        /// A dataflow file.
        file: PathBuf,
        /// Write which nodes were built as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Say what this machine lacks, and how it gets it: kernel, limits, rights, real-time, Python.
    ///
    /// Exits with 1 when dataflows cannot run here.
    Doctor {
        /// Write the findings as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script.
    ///
    /// For bash: `echo 'source <(nervure completions bash)' >> ~/.bashrc`. It completes dataflows, nodes and topics too.
    Completions {
        /// The shell that it is for.
        shell: clap_complete::Shell,
    },
    /// Keys of this host, and a benchmark of the link to another.
    #[command(subcommand)]
    Link(crate::link::LinkCommand),
    /// Print the JSON schema of dataflow files, for editors.
    Schema,
    /// Is started by `run`.
    #[command(name = "__keeper", hide = true)]
    Keeper,
    /// Is the node that plays, started by `replay`.
    #[command(name = "__player", hide = true)]
    Player(PlayerArguments),
}

#[derive(Debug, Args)]
pub struct RunArguments {
    /// A dataflow file.
    pub file: PathBuf,
    #[command(flatten)]
    pub overrides: Overrides,
    /// Run the `build` commands of the nodes first.
    #[arg(long)]
    pub build: bool,
    /// Let the dataflow run by itself once it is ready: `nervure stop` ends it.
    #[arg(long, conflicts_with = "stop_after")]
    pub detach: bool,
    /// Let this node drive the dataflow's clock, as a simulator does: what nodes get from `now()`, and their timers. The
    /// clock stands still until the node calls `drive_clock`.
    #[arg(long, value_name = "NODE", add = ArgValueCandidates::new(complete::nodes_of_file))]
    pub clock: Option<String>,
    #[command(flatten)]
    pub options: RunOptions,
}

/// What `run` and `replay` have in common.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// Stop the nodes after this time, such as `500us`, `15ms`, `2s`, `10min`, `1h`.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub stop_after: Option<Duration>,
    /// Show log lines of this level and above; the log files have all.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
    /// Write everything as JSON, one object a line, to stdout.
    #[arg(long)]
    pub json: bool,
    /// How long nodes may take to end after Stop, before they are terminated.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    pub grace: Duration,
    /// Call the dataflow by this name instead of its file's.
    #[arg(long)]
    pub name: Option<String>,
    /// Write no log files.
    #[arg(long)]
    pub no_logs: bool,
}

#[derive(Debug, Args)]
pub struct RecordArguments {
    /// Topics to record: `node/output`, or `dataflow:node/output`. `*` stands for anything. By default all.
    #[arg(add = ArgValueCandidates::new(complete::topics))]
    pub topics: Vec<String>,
    /// The dataflow: its name, or the process id of its keeper. Not needed when only one runs.
    #[arg(short, long, value_name = "NAME", add = ArgValueCandidates::new(complete::dataflows))]
    pub dataflow: Option<String>,
    /// The file to write. In its name `{time}` is the time of the beginning in UTC (20260131T235959Z), and `{name}` the
    /// dataflow. It must not be there; a node goes on with the next number.
    #[arg(short, long, value_name = "FILE", default_value = "{name}-{time}.mcap")]
    pub output: PathBuf,
    /// Begin a new file, with a number, before one grows larger (`1GB`) or when it is as old (`10min`).
    #[arg(long, value_name = "SIZE|DURATION", value_parser = parse_split)]
    pub split: Option<Split>,
    /// Delete the oldest files of this name, of whatever time and number, when all of them take more.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "split")]
    pub max_disk: Option<u64>,
    /// Write what was recorded as JSON at the end.
    #[arg(long)]
    pub json: bool,
    /// Compress with LZ4. Costs time, and is little use for raw images.
    #[arg(long)]
    pub compress: bool,
}

#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// A recording, or a bag of ROS 2: its folder or a file of it.
    pub recording: PathBuf,
    /// A dataflow file, whose sources are replaced by what the recording has of them.
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub overrides: Overrides,
    /// Replace this node too, whatever its inputs. May be given several times.
    #[arg(long, value_name = "NODE", requires = "file", add = ArgValueCandidates::new(complete::nodes_of_file))]
    pub replace: Vec<String>,
    /// Leave the queues as the file says: samples may be lost, as on the robot.
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
    /// Seconds of the recording a second, or `max` for as fast as the nodes allow.
    #[arg(long, value_name = "RATE", default_value = "1", value_parser = parse_rate)]
    pub rate: Rate,
    /// Begin anew at the end, until it is stopped.
    #[arg(long)]
    pub r#loop: bool,
    /// Let the dataflow's clock read the time of the recording: what nodes get from `now()`, and their timers.
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_consistent() {
        Arguments::command().debug_assert();
    }
}
