//! The command line: commands and options. Their doc comments are the help texts.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use nervure_protocol::domain::Domain;

use crate::{
    inspect::arguments::{
        ActionArguments, AttachArguments, LintArguments, ListArguments, LogsArguments,
        NodeArguments, ParamArguments, ServiceArguments, StopArguments, Target, TopArguments,
        TopicArguments, TopicsArguments, TransformArguments,
    },
    run_options::RunArguments,
};

/// Runs dataflows: programs that exchange images, point clouds and other samples through shared
/// memory.
#[derive(Debug, Parser)]
#[command(name = "nervure", version, disable_help_subcommand = true, after_help = EXIT_CODES)]
pub struct Arguments {
    /// Work in a domain: see and start its dataflows only. Default: NERVURE_DOMAIN.
    #[arg(long, global = true, value_name = "NAME")]
    pub domain: Option<Domain>,
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
    /// Run a dataflow until its nodes end.
    ///
    /// The first Ctrl-C (or SIGTERM, SIGHUP) asks the nodes to stop, a second one kills them.
    #[command(after_help = EXIT_CODES)]
    Run(RunArguments),
    /// List the running dataflows.
    List(ListArguments),
    /// Show the state of a running dataflow, and its problems.
    Status(Target),
    /// Show the load of nodes and the traffic on edges of a running dataflow.
    Top(TopArguments),
    /// List, show and measure the topics of a running dataflow.
    Topic(TopicArguments),
    /// List the services of a running dataflow, and send requests to them.
    Service(ServiceArguments),
    /// List the actions of a running dataflow, and send goals to them.
    Action(ActionArguments),
    /// Show the transforms between the frames of a running dataflow.
    Tf(TransformArguments),
    /// List the nodes that hold samples of a topic.
    Holders(TopicsArguments),
    /// Explain where and why samples were lost, and which setting prevents it.
    Explain(TopicsArguments),
    /// Suggest better settings for a running dataflow, or for a file.
    ///
    /// Finds slow consumers, deep queues, producers that wait, samples that are held for long, and
    /// outputs without a consumer. Exits with 3 if there are hints.
    Lint(LintArguments),
    /// Show the logs of a running dataflow, or of the last run.
    Logs(LogsArguments),
    /// Stop a running dataflow, and wait until it has ended.
    Stop(StopArguments),
    /// Pause a running dataflow: its clock, timers and watchdogs stand still.
    ///
    /// Nodes get the event PAUSE. Processes go on, and samples that nodes send are still delivered.
    Pause(Target),
    /// Let a paused dataflow go on.
    ///
    /// Nodes get the event RESUME. Ticks that would have been due meanwhile do not follow.
    Resume(Target),
    /// Stop, start, restart or replace one node of a running dataflow.
    Node(NodeArguments),
    /// Run a program, such as a debugger or a shell, in the place of a node.
    ///
    /// Stops the node's own program and keeps its edges. COMMAND runs in this terminal with the
    /// node's environment, so that `Node()` in it is the node. When COMMAND ends, the node's own
    /// program starts again. The exit code is that of COMMAND.
    Attach(AttachArguments),
    /// List, read or change the parameters of the nodes of a running dataflow.
    Param(ParamArguments),
    /// Record topics of a running dataflow in an MCAP file.
    ///
    /// Records until the dataflow ends, or Ctrl-C. Never slows the dataflow down: samples that the
    /// disk cannot take are missing in the recording, and counted. As a node of a dataflow (`path:
    /// nervure`, `args: record -o run.mcap`) it records its inputs, with their queues.
    #[cfg(feature = "record")]
    Record(crate::record::arguments::RecordArguments),
    /// Play recordings, alone or in the place of a dataflow's sources.
    #[cfg(feature = "record")]
    #[command(after_help = EXIT_CODES, override_usage = crate::record::arguments::REPLAY_USAGE)]
    Replay(crate::record::arguments::ReplayArguments),
    /// Show the contents of a recording, and its damage.
    ///
    /// Reads the whole recording. Exits with 3 if a part is damaged or missing.
    #[cfg(feature = "record")]
    Info(crate::record::arguments::InfoArguments),
    /// Check dataflow files.
    Validate {
        /// Dataflow files.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Write the findings as JSON to stdout, one object per file.
        #[arg(long)]
        json: bool,
    },
    /// Print the graph of a dataflow in Mermaid's language.
    Graph {
        /// A dataflow file.
        file: PathBuf,
        /// Print the resolved dataflow as JSON instead.
        #[arg(long)]
        json: bool,
    },
    /// Create a project that runs and has tests, or a node for one.
    New(crate::new::NewArguments),
    /// Run the `build` commands of a dataflow's nodes, in the order of the file.
    Build {
        /// A dataflow file.
        file: PathBuf,
        /// Install the Python packages of each node into an environment of its own, by `uv`.
        #[arg(long)]
        uv: bool,
        /// Write the built nodes as JSON to stdout.
        #[arg(long)]
        json: bool,
    },
    /// Remove what `build --uv` made for a dataflow: the Python environments of its nodes.
    Clean {
        /// A dataflow file.
        file: PathBuf,
    },
    /// Check this machine, or the requirements of a dataflow.
    ///
    /// Without a file: kernel, limits, permissions, real-time, Python. Exits with 1 if dataflows
    /// cannot run here.
    ///
    /// With a file: ignored and unsupported keys, missing programs and Python modules, and parts of
    /// dora's API that programs use and Nervure does not have. Exits with 2 if the file is wrong, and
    /// with 3 if something is missing.
    #[command(visible_alias = "check")]
    Doctor {
        /// A dataflow file.
        file: Option<PathBuf>,
        /// Write the findings as JSON to stdout.
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script for a shell.
    ///
    /// For bash: `echo 'source <(nervure completions bash)' >> ~/.bashrc`. It also completes the
    /// names of running dataflows, nodes and topics.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Generate keys, and measure the link between two hosts.
    #[cfg(feature = "fleet")]
    #[command(subcommand)]
    Link(crate::link::LinkCommand),
    /// Start a fleet on this machine: its coordinator, and the daemon of this machine.
    ///
    /// Prints the command line with which another machine joins. Runs in the foreground; its end
    /// ends no dataflow.
    #[cfg(feature = "fleet")]
    Up(crate::fleet::arguments::UpArguments),
    /// Join a fleet with this machine, and run its daemon.
    ///
    /// Runs in the foreground; its end ends no dataflow. Without an invitation, it runs the daemon of
    /// a machine that has joined before, also while the coordinator is away.
    #[cfg(feature = "fleet")]
    Join(crate::fleet::arguments::JoinArguments),
    /// End the daemon of this machine, and the coordinator if it is here.
    ///
    /// Dataflows go on, and the next daemon finds them. A supervisor, such as systemd, may start it
    /// again: stop its service instead.
    #[cfg(feature = "fleet")]
    #[command(visible_alias = "destroy")]
    Down(crate::fleet::arguments::DownArguments),
    /// Start a dataflow on several machines.
    ///
    /// Sends the folder of the file to the machines, and returns when all of them run it.
    #[cfg(feature = "fleet")]
    Start(crate::fleet::arguments::StartArguments),
    /// List, invite, approve and revoke the machines of the fleet.
    #[cfg(feature = "fleet")]
    #[command(subcommand)]
    Machine(crate::fleet::arguments::MachineCommand),
    /// Write manifests that run a dataflow, or the machines of a fleet.
    #[cfg(feature = "fleet")]
    #[command(subcommand)]
    Export(crate::export::ExportCommand),
    /// Serve an API over HTTP, and metrics for Prometheus.
    ///
    /// Runs in the foreground, beside the dataflows: its end ends none.
    #[cfg(feature = "api")]
    Serve(crate::serve::ServeArguments),
    /// Send metrics and traces to a receiver of OpenTelemetry, by OTLP over HTTP.
    ///
    /// Runs in the foreground, beside the dataflows: neither its end nor a slow receiver holds any up.
    #[cfg(feature = "opentelemetry")]
    Telemetry(crate::telemetry::TelemetryArguments),
    /// Print the JSON schema of dataflow files, for editors.
    Schema,
    /// Show the definitions of types.
    Types(crate::types::TypesArguments),
    /// Check or start a part of a dataflow. Started by a daemon.
    #[cfg(feature = "fleet")]
    #[command(name = "__part", hide = true)]
    Part,
    /// Run as a keeper. Started by `run`.
    #[command(name = "__keeper", hide = true)]
    Keeper,
    /// Run as the node that hosts operators in shared libraries. Started by a keeper.
    #[command(name = "__operators", hide = true)]
    Operators,
    /// Run as the process of composed nodes. Started by a keeper.
    #[command(name = "__host", hide = true)]
    Host,
    /// Run as the node that plays a recording. Started by `replay`.
    #[cfg(feature = "record")]
    #[command(name = "__player", hide = true)]
    Player(crate::record::arguments::PlayerArguments),
    /// Run as the node that sends what other nodes write to stdout and stderr. Started by a keeper.
    #[command(name = "__log-outputs", hide = true)]
    LogOutputs,
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
