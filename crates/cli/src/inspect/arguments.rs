//! The command lines of what looks into dataflows and changes them.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use regex_lite::Regex;

use crate::{
    complete,
    option_values::{LogLevel, parse_duration},
};

/// Which dataflow, and how to answer.
#[derive(Debug, Args)]
pub struct Target {
    /// The dataflow: its name, or the process id of its keeper. Not needed when only one runs.
    #[arg(short, long, value_name = "NAME", add = ArgValueCandidates::new(complete::dataflows))]
    pub dataflow: Option<String>,
    /// Write JSON to stdout.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ListArguments {
    /// Write JSON to stdout.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TopArguments {
    #[command(flatten)]
    pub target: Target,
    /// How often to look.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub interval: Duration,
    /// End after so many looks; where stdout is no terminal, after one.
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub count: Option<u64>,
}

#[derive(Debug, Args)]
pub struct StopArguments {
    #[command(flatten)]
    pub target: Target,
    /// Kill the nodes at once.
    #[arg(long)]
    pub kill: bool,
}

#[derive(Debug, Args)]
pub struct NodeArguments {
    #[command(subcommand)]
    pub order: NodeOrder,
}

#[derive(Debug, Subcommand)]
pub enum NodeOrder {
    /// Stop a node in order. Its neighbours keep their inputs open, and wait for it.
    Stop(OneNode),
    /// Start a node that was stopped, or has ended.
    Start(OneNode),
    /// Stop a node in order and start it again, with what its program is now.
    Restart(OneNode),
    /// Give a node another program. Its edges stay, and what runs now comes back when the new program is not ready within
    /// its `startup_timeout` (30s where the file has none).
    Replace {
        /// A node, `node` or `dataflow:node`.
        #[arg(add = ArgValueCandidates::new(complete::nodes))]
        node: String,
        /// The program: a Python script (`.py`), an executable, or a command on the PATH.
        program: String,
        #[command(flatten)]
        target: Target,
        /// Arguments of the new program, after `--`. Without any it gets those of the old one.
        #[arg(last = true, value_name = "ARGS")]
        args: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub struct LintArguments {
    /// A dataflow file: hints from the file alone. Without it a running dataflow is looked at.
    #[arg(conflicts_with = "dataflow")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub target: Target,
    /// How long a running dataflow is looked at.
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = parse_duration)]
    pub window: Duration,
}

#[derive(Debug, Args)]
pub struct AttachArguments {
    /// A node, `node` or `dataflow:node`.
    #[arg(add = ArgValueCandidates::new(complete::nodes))]
    pub node: String,
    /// What to run, after `--`: `{}` stands for the node's own program with its arguments, which is also what runs
    /// without a command.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// The dataflow: its name, or the process id of its keeper. Not needed when only one runs.
    #[arg(short, long, value_name = "NAME", add = ArgValueCandidates::new(complete::dataflows))]
    pub dataflow: Option<String>,
    /// Leave the node stopped afterwards: `nervure node start` starts it.
    #[arg(long)]
    pub leave_stopped: bool,
    /// Write how COMMAND ended as JSON, behind what it has written itself.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ParamArguments {
    #[command(subcommand)]
    pub order: ParamOrder,
}

#[derive(Debug, Subcommand)]
pub enum ParamOrder {
    /// List the parameters of all nodes, or of one.
    List {
        /// A node, `node` or `dataflow:node`.
        #[arg(add = ArgValueCandidates::new(complete::nodes))]
        node: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Print the value of a parameter.
    Get {
        /// A node, `node` or `dataflow:node`.
        #[arg(add = ArgValueCandidates::new(complete::nodes))]
        node: String,
        /// The parameter.
        #[arg(add = ArgValueCandidates::new(complete::params))]
        name: String,
        #[command(flatten)]
        target: Target,
    },
    /// Change a parameter. The node is told if it takes the value.
    Set {
        /// A node, `node` or `dataflow:node`.
        #[arg(add = ArgValueCandidates::new(complete::nodes))]
        node: String,
        /// The parameter.
        #[arg(add = ArgValueCandidates::new(complete::params))]
        name: String,
        /// The value: `30`, `0.5`, `true`, `fast`, `[1, 2]`.
        #[arg(allow_hyphen_values = true)]
        value: String,
        #[command(flatten)]
        target: Target,
    },
}

#[derive(Debug, Args)]
pub struct OneNode {
    /// A node, `node` or `dataflow:node`.
    #[arg(add = ArgValueCandidates::new(complete::nodes))]
    pub node: String,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct TopicArguments {
    #[command(subcommand)]
    pub action: TopicAction,
}

#[derive(Debug, Subcommand)]
pub enum TopicAction {
    /// List the topics, with their types and how many receive them.
    List(TopicsArguments),
    /// Say who sends a topic and who receives it, with every queue.
    Info(TopicsArguments),
    /// Show samples as they come.
    Echo(EchoArguments),
    /// Measure how often samples come, and how evenly.
    Hz(MeasureArguments),
    /// Measure how many bytes a second come.
    Bw(MeasureArguments),
    /// Measure how old samples are when they come, and how long they were on the way.
    Delay(MeasureArguments),
}

/// Topics of a dataflow, or all of them.
#[derive(Debug, Args)]
pub struct TopicsArguments {
    /// Topics: `node/output`, or `dataflow:node/output`. `*` stands for anything. By default all.
    #[arg(value_name = "TOPIC", add = ArgValueCandidates::new(complete::topics))]
    pub topics: Vec<String>,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct EchoArguments {
    /// Topics: `node/output`, or `dataflow:node/output`. `*` stands for anything.
    #[arg(value_name = "TOPIC", required = true, add = ArgValueCandidates::new(complete::topics))]
    pub topics: Vec<String>,
    #[command(flatten)]
    pub target: Target,
    /// End after so many samples.
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub count: Option<u64>,
    /// Show texts and lists whole.
    #[arg(long)]
    pub full: bool,
    /// Write each sample into this folder: images as PNG, other tensors as NPY, everything else as JSON.
    #[arg(long, value_name = "FOLDER")]
    pub save: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct MeasureArguments {
    /// Topics: `node/output`, or `dataflow:node/output`. `*` stands for anything.
    #[arg(value_name = "TOPIC", required = true, add = ArgValueCandidates::new(complete::topics))]
    pub topics: Vec<String>,
    #[command(flatten)]
    pub target: Target,
    /// End after so many reports.
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub count: Option<u64>,
    /// Time from report to report.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub interval: Duration,
}

#[derive(Debug, Args)]
pub struct LogsArguments {
    #[command(flatten)]
    pub target: Target,
    /// Go on with what is written from now on.
    #[arg(short, long)]
    pub follow: bool,
    /// Only lines of this node; may be given several times. `nervure` is the keeper.
    #[arg(long, value_name = "NODE", add = ArgValueCandidates::new(complete::nodes))]
    pub node: Vec<String>,
    /// Only lines of this level and above.
    #[arg(long, value_name = "LEVEL", default_value = "trace")]
    pub level: LogLevel,
    /// Only lines that this regular expression matches, such as `fail|late`, `(?i)error`, `^[0-9]+ ms`.
    #[arg(long, value_name = "PATTERN")]
    pub grep: Option<Regex>,
    /// Only lines of the last time, such as `10s`, `5min`.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub since: Option<Duration>,
}
