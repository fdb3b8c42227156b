//! The command lines of the commands on running dataflows.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use nervure_node::message::record::RecordPath;
use regex_lite::Regex;

use super::field::parse_field;
use crate::{
    complete,
    option_values::{LogLevel, parse_duration, parse_rate},
};

/// Selects a running dataflow and the output format.
#[derive(Debug, Args)]
pub struct Target {
    /// Select the dataflow by name, or by the process id of its keeper. Not needed if only one
    /// runs.
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
    /// Refresh at this interval.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub interval: Duration,
    /// Print this number of tables, then end. Default without a terminal: 1.
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub count: Option<u64>,
}

#[derive(Debug, Args)]
pub struct StopArguments {
    #[command(flatten)]
    pub target: Target,
    /// Kill the nodes at once, without a grace period: of a dataflow on several machines, those on this
    /// machine.
    #[arg(long)]
    pub kill: bool,
    /// Stop sources first, and let consumers finish queued samples.
    ///
    /// An ordinary stop follows after this time, by default the grace period of the dataflow.
    #[arg(
        long,
        value_name = "LIMIT",
        num_args = 0..=1,
        require_equals = true,
        value_parser = parse_duration,
        conflicts_with = "kill"
    )]
    pub drain: Option<Option<Duration>>,
}

#[derive(Debug, Args)]
pub struct NodeArguments {
    #[command(subcommand)]
    pub order: NodeOrder,
}

#[derive(Debug, Subcommand)]
pub enum NodeOrder {
    /// Stop a node. The inputs of its neighbours stay open.
    Stop(OneNode),
    /// Start a node that was stopped, or has ended.
    Start(OneNode),
    /// Restart a node, with the program file as it is now.
    Restart(OneNode),
    /// Unload a component from its process, which goes on.
    ///
    /// The node ends in order, and its edges close as if it had ended by itself: its consumers go on
    /// without it, and no producer waits for it. Nodes of other kinds are stopped by `stop`.
    Unload(OneNode),
    /// Load a component into its process, with its library as it is now, and open its edges.
    Load(OneNode),
    /// Replace the program of a node, and keep its edges.
    ///
    /// The old program comes back if the new one is not ready within the node's `startup_timeout`
    /// (30s if the file has none).
    Replace {
        /// A node, `node` or `dataflow:node`.
        #[arg(add = ArgValueCandidates::new(complete::nodes))]
        node: String,
        /// The new program: a Python script (`.py`), an executable, or a command on the PATH.
        program: String,
        #[command(flatten)]
        target: Target,
        /// Arguments of the new program, after `--`. Default: those of the old one.
        #[arg(last = true, value_name = "ARGS")]
        args: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub struct LintArguments {
    /// A dataflow file to examine. Default: a running dataflow.
    #[arg(conflicts_with = "dataflow")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub target: Target,
    /// Measure a running dataflow for this long.
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = parse_duration)]
    pub window: Duration,
}

#[derive(Debug, Args)]
pub struct AttachArguments {
    /// A node, `node` or `dataflow:node`.
    #[arg(add = ArgValueCandidates::new(complete::nodes))]
    pub node: String,
    /// The command, after `--`. `{}` is the node's own program with its arguments, and the default.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Select the dataflow by name, or by the process id of its keeper. Not needed if only one
    /// runs.
    #[arg(short, long, value_name = "NAME", add = ArgValueCandidates::new(complete::dataflows))]
    pub dataflow: Option<String>,
    /// Leave the node stopped when COMMAND ends; `nervure node start` starts it.
    #[arg(long)]
    pub leave_stopped: bool,
    /// Write the exit code of COMMAND as JSON to stdout, after its own output.
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
    /// Change a parameter, if the value fits its declaration.
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
    /// List the topics with their types and numbers of consumers.
    List(TopicsArguments),
    /// Show the producer, the consumers and the queues of a topic.
    Info(TopicsArguments),
    /// Show samples as they arrive.
    Echo(EchoArguments),
    /// Publish a sample on a topic, as its node would, or deliver it to one input.
    Pub(PublishArguments),
    /// Measure the rate and the jitter of samples.
    Hz(MeasureArguments),
    /// Measure the bandwidth of samples.
    Bw(MeasureArguments),
    /// Measure the age of samples on arrival, and their latency.
    Delay(MeasureArguments),
}

#[derive(Debug, Args)]
pub struct ServiceArguments {
    #[command(subcommand)]
    pub action: ServiceAction,
}

#[derive(Debug, Subcommand)]
pub enum ServiceAction {
    /// List the services with their nodes and clients.
    List(Target),
    /// Send a request to a service, and show the answer.
    Call {
        /// The service: `node/service` or `dataflow:node/service`.
        #[arg(add = ArgValueCandidates::new(complete::services))]
        service: String,
        /// The value, in YAML or JSON: `6`, `cup`, `[1, 2]`, `{x: 1.5}`. Default: null.
        #[arg(allow_hyphen_values = true)]
        value: Option<String>,
        #[command(flatten)]
        target: Target,
        /// End with an error if there is no answer within this time.
        #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
        timeout: Duration,
    },
}

#[derive(Debug, Args)]
pub struct ActionArguments {
    #[command(subcommand)]
    pub order: ActionOrder,
}

#[derive(Debug, Subcommand)]
pub enum ActionOrder {
    /// List the actions with their nodes and clients.
    List(Target),
    /// Send a goal to an action, and show its feedback and its result.
    ///
    /// Ctrl-C cancels the goal; a second Ctrl-C ends the command.
    Send {
        /// The action: `node/action` or `dataflow:node/action`.
        #[arg(add = ArgValueCandidates::new(complete::actions))]
        action: String,
        /// The goal, in YAML or JSON: `6`, `kitchen`, `[1, 2]`, `{x: 1.5}`. Default: null.
        #[arg(allow_hyphen_values = true)]
        goal: Option<String>,
        #[command(flatten)]
        target: Target,
        /// Cancel the goal after this time. Default: never.
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        timeout: Option<Duration>,
    },
}

/// Topics of a dataflow, or all of them.
#[derive(Debug, Args)]
pub struct TopicsArguments {
    /// Topics: `node/output` or `dataflow:node/output`. `*` matches anything. Default: all.
    #[arg(value_name = "TOPIC", add = ArgValueCandidates::new(complete::topics))]
    pub topics: Vec<String>,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct EchoArguments {
    /// Topics: `node/output` or `dataflow:node/output`. `*` matches anything.
    #[arg(value_name = "TOPIC", required = true, add = ArgValueCandidates::new(complete::topics))]
    pub topics: Vec<String>,
    #[command(flatten)]
    pub target: Target,
    /// End after this number of samples.
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub count: Option<u64>,
    /// Show complete texts and lists.
    #[arg(long)]
    pub full: bool,
    /// Show one value of each sample, a line each: `pose.position.x` or `ranges[0]`.
    #[arg(long, value_name = "PATH", value_parser = parse_field, conflicts_with = "save")]
    pub field: Option<RecordPath>,
    /// Save each sample in this folder: images as PNG, other tensors as NPY, the rest as JSON.
    #[arg(long, value_name = "FOLDER")]
    pub save: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PublishArguments {
    /// An output, `node/output` or `dataflow:node/output`: all its consumers get the sample. Or an input:
    /// its node alone gets it.
    #[arg(add = ArgValueCandidates::new(complete::topics))]
    pub topic: String,
    /// The value, in YAML or JSON: `6`, `cup`, `[1, 2]`, `{linear: {x: 0.5}}`. Fields of a standard type
    /// that are left out are 0, false or empty.
    #[arg(allow_hyphen_values = true)]
    pub value: String,
    #[command(flatten)]
    pub target: Target,
    /// Publish at this rate, until Ctrl-C or `--count`. Default: once.
    #[arg(long, value_name = "HZ", value_parser = parse_rate)]
    pub rate: Option<f64>,
    /// End after this number of samples.
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub count: Option<u64>,
}

#[derive(Debug, Args)]
pub struct MeasureArguments {
    /// Topics: `node/output` or `dataflow:node/output`. `*` matches anything. Default: all.
    #[arg(value_name = "TOPIC", add = ArgValueCandidates::new(complete::topics))]
    pub topics: Vec<String>,
    #[command(flatten)]
    pub target: Target,
    /// End after this number of reports.
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub count: Option<u64>,
    /// Report at this interval.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub interval: Duration,
}

#[derive(Debug, Args)]
pub struct TransformArguments {
    #[command(subcommand)]
    pub action: TransformAction,
}

#[derive(Debug, Subcommand)]
pub enum TransformAction {
    /// Show the tree of frames, with the rate and age of each, and transforms that are not valid.
    ///
    /// Exits with 3 if there are such transforms.
    Tree {
        #[command(flatten)]
        target: Target,
        /// Watch for this long.
        #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
        window: Duration,
    },
    /// Show the pose of one frame in another, as it changes.
    Echo {
        /// The frame in which the pose is given.
        target_frame: String,
        /// The frame whose pose it is.
        source_frame: String,
        #[command(flatten)]
        target: Target,
        /// End after this number of poses.
        #[arg(short = 'n', long, value_name = "COUNT")]
        count: Option<u64>,
        /// Show it at this interval.
        #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
        interval: Duration,
    },
    /// List the static transforms.
    Static(Target),
}

#[derive(Debug, Args)]
pub struct LogsArguments {
    #[command(flatten)]
    pub target: Target,
    /// Follow the logs: show new lines as they are written.
    #[arg(short, long)]
    pub follow: bool,
    /// Show only lines of this node; `nervure` is the keeper. May be given several times.
    #[arg(long, value_name = "NODE", add = ArgValueCandidates::new(complete::nodes))]
    pub node: Vec<String>,
    /// Show only lines of this level and above.
    #[arg(long, value_name = "LEVEL", default_value = "trace")]
    pub level: LogLevel,
    /// Show only lines that match this regular expression, such as `fail|late` or `(?i)error`.
    #[arg(long, value_name = "PATTERN")]
    pub grep: Option<Regex>,
    /// Show only lines not older than this, such as `10s` or `5min`.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub since: Option<Duration>,
}
