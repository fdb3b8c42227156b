//! Runs a command with one fault: the n-th system call of a kind, in one of its processes, fails, is cut short,
//! or is the last that the process makes. `make test-faults` runs this program once for each case.
//!
//! Every process below the command has a seccomp filter that sends the chosen calls to this program, which counts
//! them and lets all but one pass. The processes are otherwise unchanged: no library is preloaded, and no process is
//! traced. So it works for calls that bypass libc, and for every thread.
//!
//! Processes have roles: `run` and `keeper` by their command line; others by the variable `INJECT_ROLE` and a number,
//! so that `sink.1` is the second process of the node `sink`. `starting.0` is the first fork of the keeper, until it
//! executes its program.

mod fault;
mod report;
mod roles;
mod seccomp;
mod supervise;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;

use fault::Action;
use supervise::Failure;

/// Run a command, and let one system call of one of its processes fail
#[derive(Debug, Parser)]
struct Arguments {
    /// Write the counts and the faults to this file, as JSON
    #[arg(long)]
    report: PathBuf,
    /// System calls to count: names, separated by commas; or `all`
    #[arg(long)]
    calls: String,
    /// Do not count calls that open, read or write files in this folder
    #[arg(long)]
    except: Option<String>,
    /// The process in which to act: `run`, `keeper`, `starting.N`, or the value of INJECT_ROLE with `.N`
    #[arg(long, requires = "call")]
    role: Option<String>,
    /// The system call on which to act; `all` counts every one of `--calls`
    #[arg(long, requires = "action")]
    call: Option<String>,
    /// The first of these calls on which to act, counted from 1
    #[arg(long, default_value_t = 1)]
    nth: u64,
    /// The number of consecutive calls on which to act
    #[arg(long, default_value_t = 1)]
    times: u64,
    /// `errno:N`, `no-descriptors`, `short`, `delay:MILLIS`, `kill` (before the call) or `kill-after` (before the thread's next call)
    #[arg(long, value_parser = Action::parse)]
    action: Option<Action>,
    /// Kill everything that is left after this time, and report it
    #[arg(long, default_value_t = 60)]
    patience_seconds: u64,
    /// The command
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    match supervise::run(Arguments::parse()) {
        Ok(code) => code,
        Err(Failure::Unsupported(error)) => {
            eprintln!("error: cannot filter system calls (Linux 5.19 is needed): {error}");
            ExitCode::from(77)
        }
        Err(Failure::Other(error)) => {
            eprintln!("error: {error}");
            ExitCode::from(125)
        }
    }
}
