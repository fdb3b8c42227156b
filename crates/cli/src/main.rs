//! The `nervure` command.

mod arguments;
mod build;
mod doctor;
mod failure;
mod graph;
mod info;
mod link;
mod look;
mod new;
mod output;
mod player;
mod record;
mod replay;
mod run;
mod schema;
mod source;
mod token;
mod validate;

use std::process::ExitCode;

use clap::{
    CommandFactory, Parser,
    error::{ContextKind, ContextValue, ErrorKind},
};
use rustix::fd::OwnedFd;

use arguments::{Arguments, Command};
use failure::Failure;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are data: clap prints them to stdout with exit code 0, everything else to stderr.
            let error = with_tip(error);
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(failure::INVALID));
        }
    };
    let result = match arguments.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Record(arguments) => record::record(&arguments),
        Command::Replay(arguments) => replay::replay(&arguments),
        Command::Info { file, json } => info::info(&file, json),
        Command::Validate { files } => validate::validate(&files),
        Command::Graph { file } => graph::graph(&file),
        Command::Build { file } => build::build(&file),
        Command::Completions { shell } => completions(shell),
        Command::Doctor { json } => doctor::doctor(json),
        Command::New(arguments) => new::new(&arguments),
        Command::Schema => schema::schema(),
        Command::Link(command) => link::link(&command),
        Command::List(arguments) => look::list::list(&arguments),
        Command::Status(arguments) => look::status::status(&arguments),
        Command::Topic(arguments) => look::topic::topic(&arguments),
        Command::Holders(arguments) => look::holders::holders(&arguments),
        Command::Explain(arguments) => look::explain::explain(&arguments),
        Command::Logs(arguments) => look::logs::logs(&arguments),
        Command::Stop(arguments) => look::stop::stop(&arguments),
        Command::Top(arguments) => look::top::top(&arguments),
        Command::Node(arguments) => look::node::node(&arguments),
        Command::Lint(arguments) => look::lint::lint(&arguments),
        Command::Attach(arguments) => look::attach::attach(&arguments),
        Command::Param(arguments) => look::param::param(&arguments),
        Command::Keeper => keep(),
        Command::Player(arguments) => player::play(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// What stands alone where `-d NAME` is expected was probably meant to be that name.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let arguments = Arguments::command();
    let command = std::env::args().nth(1).and_then(|name| arguments.find_subcommand(name));
    let takes_dataflow_alone = command.is_some_and(|command| {
        command.get_positionals().next().is_none()
            && command.get_arguments().any(|argument| argument.get_id() == "dataflow")
    });
    if let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidArg)
        && error.kind() == ErrorKind::UnknownArgument
        && takes_dataflow_alone
        && !name.starts_with('-')
    {
        let tip = format!("a dataflow is named by `-d {name}`");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Prints the completion script of a shell.
fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "nervure", &mut script);
    output::write(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Is a keeper, as `run` starts it: with one end of a socket to `run` as its standard input.
fn keep() -> Result<ExitCode, Failure> {
    let control = || -> std::io::Result<OwnedFd> {
        let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        Ok(control)
    };
    let control = control()
        .map_err(|error| Failure::internal("cannot take over the socket to `run`").because(error))?;
    nervure_keeper::serve(control).map_err(|error| Failure::internal(error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}
