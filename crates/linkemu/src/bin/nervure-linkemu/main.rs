//! The `nervure-linkemu` command: programs in network namespaces with a bad wireless link between
//! them.

mod arguments;
mod capture;
mod failure;
mod forward;
mod host;
mod messages;
mod netlink;
mod report;
mod run;
mod sys;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are data: clap prints them to stdout with exit code 0, everything
            // else to stderr.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(failure::INVALID));
        }
    };
    match arguments.command {
        Command::Run(arguments) => run::run(&arguments).unwrap_or_else(|failure| failure.report()),
        Command::Namespaces => host::enter_namespaces(),
        Command::Host => host::serve(),
    }
}
