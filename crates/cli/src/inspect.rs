//! Commands on running dataflows: they show, measure and change them.

pub mod action;
pub mod arguments;
pub mod attach;
mod echo;
pub mod explain;
mod field;
pub mod holders;
pub mod keeper_end;
pub mod lint;
pub mod list;
pub mod logs;
mod measure;
pub mod node;
pub mod param;
mod publish;
mod replace;
pub mod service;
pub mod status;
mod streams;
mod tensor;
pub mod tf;
pub mod top;
pub mod topic;
mod value;

use std::process::ExitCode;

use nervure_inspect::State;

use crate::failure::INTERNAL;

/// Lowers the CPU priority of this process below that of the nodes. An error is ignored.
fn lower_priority() {
    const NICENESS: i32 = 10;
    let _ = rustix::process::nice(NICENESS);
}

/// Warns of machines that cannot be reached. The result is not complete then.
fn exit_code(state: &State) -> ExitCode {
    for unreachable in &state.unreachable {
        note!("warning: {}", unreachable.reason);
    }
    match state.unreachable.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(INTERNAL),
    }
}
