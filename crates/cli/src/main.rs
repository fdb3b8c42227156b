//! The `nervure` command.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[macro_use]
mod output;

mod arguments;
mod build;
mod complete;
mod doctor;
mod domain;
#[cfg(feature = "fleet")]
mod export;
mod failure;
#[cfg(feature = "fleet")]
mod fleet;
#[cfg(not(feature = "fleet"))]
#[path = "fleet/none.rs"]
mod fleet;
#[cfg(feature = "record")]
mod info;
mod inspect;
#[cfg(feature = "fleet")]
mod link;
mod log_outputs;
mod new;
mod option_values;
mod overrides;
mod pause;
#[cfg(feature = "record")]
mod player;
#[cfg(feature = "record")]
mod record;
#[cfg(feature = "record")]
mod replay;
mod repositories;
mod run;
mod run_help;
mod run_options;
#[cfg(feature = "api")]
mod serve;
mod source;
mod stop;
mod table;
#[cfg(feature = "opentelemetry")]
mod telemetry;
mod times;
mod types;
mod usage;
mod uv;
mod validate;

use std::{io::Write, process::ExitCode};

use clap::{
    ArgMatches, CommandFactory, FromArgMatches,
    error::{ContextKind, ContextValue},
};
use rustix::fd::OwnedFd;

use arguments::{Arguments, Command};
use failure::Failure;

fn main() -> ExitCode {
    complete::complete_if_asked(Arguments::command);
    survive_file_size_limit();
    #[cfg(feature = "api")]
    nervure_api::end_with_server();
    let command = run_help::add_arguments_of_file(Arguments::command());
    let parsed = command.try_get_matches().and_then(|matches| {
        let as_json = wants_json(&matches);
        Arguments::from_arg_matches(&matches).map(|arguments| (arguments, as_json))
    });
    let (arguments, as_json) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            return match not_built(&error) {
                Some(failure) => failure.report(asks_for_json()),
                None => report_usage(&usage::with_tips(error)),
            };
        }
    };
    if let Err(failure) = domain::enter(arguments.domain.as_ref()) {
        return failure.report(as_json);
    }
    if let Err(error) = nervure_node::diagnostics::install() {
        return Failure::invalid(error.to_string()).report(as_json);
    }
    let result = match arguments.command {
        Command::Run(arguments) => run::run(&arguments),
        #[cfg(feature = "record")]
        Command::Record(arguments) => record::record(&arguments),
        #[cfg(feature = "record")]
        Command::Replay(arguments) => replay::replay(&arguments),
        #[cfg(feature = "record")]
        Command::Info(arguments) => info::info(&arguments),
        Command::Validate { files, json } => validate::validate(&files, json),
        Command::Graph { file, json } => validate::graph(&file, json),
        Command::Build { file, uv, json } => build::build(&file, uv, json),
        Command::Clean { file } => build::clean(&file),
        Command::Completions { shell } => complete::print_script(shell).map(|()| ExitCode::SUCCESS),
        Command::Doctor { file: None, json } => doctor::doctor(json),
        Command::Doctor {
            file: Some(file),
            json,
        } => doctor::project::check(&file, json),
        Command::New(arguments) => new::new(&arguments),
        Command::Schema => validate::schema(),
        Command::Types(arguments) => types::types(&arguments),
        #[cfg(feature = "fleet")]
        Command::Link(command) => link::link(&command),
        Command::List(arguments) => inspect::list::list(&arguments),
        Command::Status(arguments) => inspect::status::status(&arguments),
        Command::Topic(arguments) => inspect::topic::topic(&arguments),
        Command::Action(arguments) => inspect::action::action(&arguments),
        Command::Service(arguments) => inspect::service::service(&arguments),
        Command::Tf(arguments) => inspect::tf::tf(&arguments),
        Command::Holders(arguments) => inspect::holders::holders(&arguments),
        Command::Explain(arguments) => inspect::explain::explain(&arguments),
        Command::Logs(arguments) => inspect::logs::logs(&arguments),
        Command::Stop(arguments) => stop::stop(&arguments),
        Command::Pause(target) => pause::set_paused(&target, true),
        Command::Resume(target) => pause::set_paused(&target, false),
        Command::Top(arguments) => inspect::top::top(&arguments),
        Command::Node(arguments) => inspect::node::node(&arguments),
        Command::Lint(arguments) => inspect::lint::lint(&arguments),
        Command::Attach(arguments) => inspect::attach::attach(&arguments),
        Command::Param(arguments) => inspect::param::param(&arguments),
        #[cfg(feature = "fleet")]
        Command::Up(arguments) => fleet::up(&arguments),
        #[cfg(feature = "fleet")]
        Command::Join(arguments) => fleet::join(&arguments),
        #[cfg(feature = "fleet")]
        Command::Down(arguments) => fleet::down(&arguments),
        #[cfg(feature = "fleet")]
        Command::Start(arguments) => fleet::start(&arguments),
        #[cfg(feature = "fleet")]
        Command::Machine(command) => fleet::machine(&command),
        #[cfg(feature = "fleet")]
        Command::Export(command) => export::export(&command),
        #[cfg(feature = "api")]
        Command::Serve(arguments) => serve::serve(&arguments),
        #[cfg(feature = "opentelemetry")]
        Command::Telemetry(arguments) => telemetry::telemetry(&arguments),
        #[cfg(feature = "fleet")]
        Command::Part => fleet::run_part(),
        Command::Keeper => keep(),
        Command::Operators => nervure_dora_operators::host()
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| Failure::internal(error.to_string())),
        Command::Host => nervure_host::host()
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| Failure::internal(error.to_string())),
        Command::LogOutputs => log_outputs::send(),
        #[cfg(feature = "record")]
        Command::Player(arguments) => player::play(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(failure) => failure.report(as_json),
    }
}

/// Whether the command has `--json`.
fn wants_json(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, matches)) => wants_json(matches),
        None => matches!(matches.try_get_one("json"), Ok(Some(true))),
    }
}

/// Prints help and version, which are data, to stdout, and errors of the command line to stderr:
/// with `--json` among the arguments as JSON to stdout too.
fn report_usage(error: &clap::Error) -> ExitCode {
    let is_error = error.use_stderr();
    if is_error && asks_for_json() {
        usage_failure(error).write_json();
    }
    let code = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(failure::INVALID));
    match error.print().and_then(|()| std::io::stdout().flush()) {
        Err(failed) if !is_error && failed.kind() != std::io::ErrorKind::BrokenPipe => {
            output::unwritable(failed).report(false)
        }
        _ => code,
    }
}

/// Whether the arguments that cannot be parsed have `--json`.
fn asks_for_json() -> bool {
    let mut arguments = std::env::args_os().take_while(|argument| argument != "--");
    arguments.any(|argument| argument == "--json")
}

/// The commands that a build can be without, each with the feature that it needs.
const OPTIONAL_COMMANDS: [(&str, &str); 12] = [
    ("down", "fleet"),
    ("export", "fleet"),
    ("info", "record"),
    ("join", "fleet"),
    ("link", "fleet"),
    ("machine", "fleet"),
    ("record", "record"),
    ("replay", "record"),
    ("serve", "api"),
    ("start", "fleet"),
    ("telemetry", "opentelemetry"),
    ("up", "fleet"),
];

/// The failure of a command that this build is without.
fn not_built(error: &clap::Error) -> Option<Failure> {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let (_, feature) = OPTIONAL_COMMANDS.iter().find(|(known, _)| known == name)?;
    Some(Failure::invalid(format!(
        "this `nervure` was built without the feature `{feature}`, which `nervure {name}` needs"
    )))
}

/// The failure for programs. The text of clap is `error: ..`, and paragraphs with tips and the
/// usage; only a missing subcommand gives the help instead.
fn usage_failure(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(str::trim);
    let message = match paragraphs
        .next()
        .and_then(|text| text.strip_prefix("error: "))
    {
        Some(message) => message,
        None => {
            return Failure::invalid("the command line has no subcommand")
                .hint("`nervure --help` lists the commands");
        }
    };
    let hint = paragraphs.find_map(|text| {
        text.strip_prefix("tip: ")
            .or_else(|| text.strip_prefix("Usage: "))
    });
    let failure = Failure::invalid(message);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Installs a handler for SIGXFSZ, so that a write beyond RLIMIT_FSIZE fails with EFBIG and does
/// not kill the process. Child processes do not inherit the handler.
fn survive_file_size_limit() {
    let flag = std::sync::Arc::default();
    // Fails only for signals that cannot be handled, such as SIGKILL.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, flag);
}

/// Runs as a keeper. `run` passes one end of a socket pair as standard input.
fn keep() -> Result<ExitCode, Failure> {
    let control = || -> std::io::Result<OwnedFd> {
        let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        Ok(control)
    };
    let control = control().map_err(|error| {
        Failure::internal("cannot take over the socket to `run`").because(error)
    })?;
    nervure_keeper::serve(control).map_err(|error| Failure::internal(error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_commands_are_in_this_build_or_named_with_their_feature() {
        for (name, feature) in OPTIONAL_COMMANDS {
            let error = Arguments::command()
                .try_get_matches_from(["nervure", name, "--unknown-option"])
                .unwrap_err();
            let is_built = match feature {
                "api" => cfg!(feature = "api"),
                "fleet" => cfg!(feature = "fleet"),
                "opentelemetry" => cfg!(feature = "opentelemetry"),
                _ => cfg!(feature = "record"),
            };
            let failure = not_built(&error).map(|failure| failure.to_string());
            assert_eq!(failure.is_none(), is_built, "{name}: {failure:?}");
        }
    }
}
