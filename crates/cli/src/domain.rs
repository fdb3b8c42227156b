//! The domain of a command: the environment of its process, which all that it starts inherits.

use std::{env, os::unix::process::CommandExt as _, path::PathBuf, process::Command};

use nervure_protocol::domain::{DOMAIN_VARIABLE, Domain};

use crate::failure::Failure;

/// Enters a domain. If the environment names another one, this process starts its program again with
/// the right environment, and does not return.
pub fn enter(asked: Option<&Domain>) -> Result<(), Failure> {
    let current = Domain::of_environment();
    let Some(asked) = asked else {
        current?;
        return Ok(());
    };
    if current.as_ref() == Ok(asked) {
        return Ok(());
    }
    let mut arguments = env::args_os();
    let program = env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command
        .args(arguments)
        .env(DOMAIN_VARIABLE, asked.to_string());
    Err(Failure::internal("cannot enter the domain").because(command.exec()))
}

/// ` --domain red`, for command lines in messages; empty in the default domain.
pub fn option() -> String {
    Domain::of_environment().unwrap_or_default().option()
}
