//! Completion of command lines in shells: commands, options, and the names of running dataflows,
//! nodes, topics and parameters.
//!
//! The shell runs this program for each completion, with [`VARIABLE`] set and the words so far
//! after `--`. A lookup that fails gives no candidates; the command reports the error when it runs.

use std::path::Path;

use clap::Command;
use clap_complete::{
    CompleteEnv, CompletionCandidate, Shell,
    env::{EnvCompleter, Shells},
};
use nervure_dataflow::{Anywhere, Report, load_for};
use nervure_inspect::{
    State, params,
    services::{self, Kind},
    state::NodeState,
    topics,
};
use nervure_node::running::{self, Connection};

use crate::{
    failure::Failure,
    output::{self, steers},
};

/// The variable that the completion scripts set, to the name of the shell.
const VARIABLE: &str = "NERVURE_COMPLETE";
const PROGRAM: &str = "nervure";

/// Completes a command line and exits, if a shell asks for a completion.
pub fn complete_if_asked(all: fn() -> Command) {
    CompleteEnv::with_factory(|| without_hidden(all()))
        .var(VARIABLE)
        .bin(PROGRAM)
        .completer(PROGRAM)
        .complete();
}

/// Prints the completion script of a shell.
pub fn print_script(shell: Shell) -> Result<(), Failure> {
    let shells = Shells::builtins();
    let completer: &dyn EnvCompleter = shells
        .completer(&shell.to_string())
        .ok_or_else(|| Failure::internal(format!("there is no completion for {shell}")))?;
    let mut script = Vec::new();
    completer
        .write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)
        .map_err(|error| Failure::internal("the script cannot be made").because(error))?;
    output::write_styled(&String::from_utf8_lossy(&script))
}

/// The command line without the hidden subcommands, which only Nervure starts.
fn without_hidden(all: Command) -> Command {
    let shown = all
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .cloned();
    Command::new(PROGRAM)
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .subcommands(shown)
}

/// Running dataflows.
pub fn dataflows() -> Vec<CompletionCandidate> {
    candidates(
        running::dataflows()
            .unwrap_or_default()
            .into_iter()
            .map(|address| address.dataflow),
    )
}

/// Topics of running dataflows.
pub fn topics() -> Vec<CompletionCandidate> {
    let of_one = |(prefix, state): (String, State)| {
        topics::all(&state)
            .into_iter()
            .map(move |topic| format!("{prefix}{}", topic.name))
    };
    candidates(states().into_iter().flat_map(of_one))
}

/// Services of running dataflows.
pub fn services() -> Vec<CompletionCandidate> {
    of_kind(Kind::Service)
}

/// Actions of running dataflows.
pub fn actions() -> Vec<CompletionCandidate> {
    of_kind(Kind::Action)
}

fn of_kind(kind: Kind) -> Vec<CompletionCandidate> {
    let of_one = |(prefix, state): (String, State)| {
        services::all(&state, kind)
            .into_iter()
            .map(move |known| format!("{prefix}{}", known.service))
    };
    candidates(states().into_iter().flat_map(of_one))
}

/// Nodes of running dataflows.
pub fn nodes() -> Vec<CompletionCandidate> {
    let of_one = |(prefix, state): (String, State)| {
        let own = |node: &NodeState| !node.declared.observer;
        let name = move |node: NodeState| format!("{prefix}{}", node.declared.id);
        state.nodes.into_values().filter(own).map(name)
    };
    candidates(states().into_iter().flat_map(of_one))
}

/// Parameters of the nodes that the command line names.
pub fn params() -> Vec<CompletionCandidate> {
    let words = words();
    let of_one = |mut connection: Connection| {
        let dataflow = connection.welcome().dataflow.clone();
        let is_named = |node: &str| {
            words
                .iter()
                .any(|word| *word == node || *word == format!("{dataflow}:{node}"))
        };
        let nodes = params::ask(&mut connection, None).unwrap_or_default();
        let named: Vec<_> = nodes
            .into_iter()
            .filter(|(node, _)| is_named(node))
            .collect();
        named
            .into_iter()
            .flat_map(|(_, params)| params)
            .map(|param| param.spec.name)
    };
    candidates(
        connections()
            .into_iter()
            .map(|(_, connection)| connection)
            .flat_map(of_one),
    )
}

/// Nodes of the dataflow file on the command line.
pub fn nodes_of_file() -> Vec<CompletionCandidate> {
    let nodes = file()
        .and_then(|report| report.dataflow)
        .map_or_else(Vec::new, |it| it.nodes);
    candidates(nodes.into_iter().map(|node| node.id))
}

/// `argument=` and `node.parameter=` of the dataflow file on the command line.
pub fn params_of_file() -> Vec<CompletionCandidate> {
    let Some(report) = file() else {
        return Vec::new();
    };
    let arguments = report
        .args
        .into_iter()
        .map(|spec| format!("{}=", spec.name));
    let nodes = report
        .dataflow
        .into_iter()
        .flat_map(|dataflow| dataflow.nodes);
    let params = nodes.flat_map(|node| {
        let name = move |param: &str| format!("{}.{param}=", node.id);
        node.settings
            .params
            .into_iter()
            .map(move |param| name(&param.name))
    });
    candidates(arguments.chain(params))
}

fn candidates(names: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    // Any user can create a socket with any name.
    let harmless = names.into_iter().filter(|name| !name.contains(steers));
    harmless.map(CompletionCandidate::new).collect()
}

/// The command line so far.
fn words() -> Vec<String> {
    let arguments = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    arguments.skip_while(|word| word != "--").skip(1).collect()
}

/// The dataflow that the command line names.
fn named_dataflow() -> Option<String> {
    let words = words();
    let joined = words
        .iter()
        .find_map(|word| word.strip_prefix("--dataflow="));
    let apart = || {
        let option = words
            .iter()
            .position(|word| matches!(word.as_str(), "-d" | "--dataflow"))?;
        words.get(option + 1).map(String::as_str)
    };
    joined
        .or_else(apart)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
}

/// Connections to the dataflows that the command line may refer to, each with the prefix of its
/// names.
fn connections() -> Vec<(String, Connection)> {
    if let Ok(address) = running::find(named_dataflow().as_deref()) {
        return Connection::open(&address, "complete")
            .map(|one| (String::new(), one))
            .into_iter()
            .collect();
    }
    let all = running::dataflows().unwrap_or_default();
    let open = |address| Connection::open(&address, "complete").ok();
    all.into_iter()
        .filter_map(open)
        .map(|one| (format!("{}:", one.welcome().dataflow), one))
        .collect()
}

fn states() -> Vec<(String, State)> {
    let open = |(prefix, connection)| Some((prefix, State::open_one(connection, false).ok()?));
    connections().into_iter().filter_map(open).collect()
}

/// The first dataflow file of the command line, read without the variables and programs of this
/// host.
fn file() -> Option<Report> {
    let is_file = |word: &&String| [".yml", ".yaml"].iter().any(|end| word.ends_with(end));
    Some(load_for(
        Path::new(words().iter().find(is_file)?),
        &Anywhere,
    ))
}
