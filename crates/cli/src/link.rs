//! `nervure link`: generates keys, and measures the link between two hosts.

mod arguments;
mod figures;
mod send;
mod serve;

use std::process::ExitCode;

use crate::{failure::Failure, output};

pub use arguments::LinkCommand;
use arguments::{BenchCommand, load_key};

/// Runs a subcommand of `nervure link`.
pub fn link(command: &LinkCommand) -> Result<ExitCode, Failure> {
    match command {
        LinkCommand::Key { file } => {
            let key = load_key(file)?;
            output::write(&format!("{}\n", key.public()))?;
            Ok(ExitCode::SUCCESS)
        }
        LinkCommand::Bench(BenchCommand::Serve(arguments)) => serve::serve(arguments),
        LinkCommand::Bench(BenchCommand::Send(arguments)) => send::send(arguments),
    }
}
