//! `nervure link`: keys, and a benchmark between two hosts.

mod arguments;
mod clock;
mod figures;
mod send;
mod serve;

use std::process::ExitCode;

use nervure_link::{
    carrier::KeyPair,
    shell::{Link, LinkConfig, LinkError},
};

use crate::{failure::Failure, output};

pub use arguments::LinkCommand;
use arguments::{BenchCommand, EndArguments};

/// Runs a subcommand of `nervure link`.
pub fn link(command: &LinkCommand) -> Result<ExitCode, Failure> {
    match command {
        LinkCommand::Key { file } => {
            let key = key(file)?;
            output::write(&format!("{}\n", key.public()))?;
            Ok(ExitCode::SUCCESS)
        }
        LinkCommand::Bench(BenchCommand::Serve(arguments)) => serve::serve(arguments),
        LinkCommand::Bench(BenchCommand::Send(arguments)) => send::send(arguments),
    }
}

fn key(file: &std::path::Path) -> Result<KeyPair, Failure> {
    KeyPair::load_or_generate(file).map_err(|error| {
        let text = error.to_string();
        match text.split_once("\nhint: ") {
            Some((text, hint)) => Failure::invalid(text).hint(hint),
            None => Failure::invalid(text),
        }
    })
}

fn bind(
    address: std::net::SocketAddr,
    arguments: &EndArguments,
    allow: Vec<nervure_link::carrier::PublicKey>,
) -> Result<Link, Failure> {
    let config = LinkConfig {
        allow,
        ..LinkConfig::new(address, key(&arguments.key)?)
    };
    Link::bind(config).map_err(|error| match &error {
        LinkError::Bind { .. } => Failure::invalid(error.to_string())
            .hint("the address must be one of this host (or 0.0.0.0), and its port free"),
        _ => Failure::internal(error.to_string()),
    })
}
