//! Carries out the actions of the machine: one thread, one epoll loop.

mod accept;
mod apply;
mod clients;
mod composed;
mod crash;
mod descriptors;
mod error;
mod event_loop;
mod handover;
mod hosts;
mod inspect;
mod lines;
mod log_files;
mod log_writer;
mod outbox;
mod outputs;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod python_path;
mod receive;
mod refusals;
mod report_link;
mod retry;
mod slot;
mod token;

use nervure_shm::Seqpacket;
use rustix::{
    fd::OwnedFd,
    process::{Resource, Rlimit},
};

use crate::{descendants, plan::Plan};
use descriptors::Descriptors;
pub use error::KeeperError;
use error::system;
use event_loop::Shell;
use handover::receive_plan;
pub use handover::send_plan;

/// Runs the dataflow whose plan `run` sends over `connection`, until every node has ended. `run` is a
/// client on that connection.
///
/// # Errors
/// [`KeeperError`]. No process of the dataflow is left in that case either.
pub fn serve(connection: OwnedFd) -> Result<(), KeeperError> {
    let connection = Seqpacket::from(connection);
    let plan = receive_plan(&connection)?;
    descendants::adopt_orphans().map_err(system("cannot become a subreaper"))?;
    if plan.detached {
        // Signals of the terminal on which it was started must not reach it.
        rustix::process::setsid().map_err(system("cannot leave the session of `run`"))?;
    }
    let files = raise_file_limit(&plan)?;
    let result = Shell::new(plan, connection, files).and_then(|mut shell| shell.serve());
    // After an error, processes of nodes may be left.
    match (result, descendants::kill_all()) {
        (result, Ok(_)) => result,
        (Ok(()), Err(leftovers)) => Err(system("processes are left")(leftovers)),
        (Err(error), Err(leftovers)) => Err(KeeperError::Leftovers {
            error: Box::new(error),
            leftovers,
        }),
    }
}

/// Raises the soft limit on open files to the hard one. Returns the original, which nodes get:
/// programs that use `select` fail with a high one.
fn raise_file_limit(plan: &Plan) -> Result<Rlimit, KeeperError> {
    let original = rustix::process::getrlimit(Resource::Nofile);
    let (needed, terms) = Descriptors::needed(plan);
    if let Some(limit) = original.maximum.filter(|&limit| limit < needed) {
        return Err(KeeperError::Descriptors {
            needed,
            terms,
            limit,
        });
    }
    let raised = Rlimit {
        current: original.maximum,
        maximum: original.maximum,
    };
    rustix::process::setrlimit(Resource::Nofile, raised)
        .map_err(system("cannot raise the limit on open files"))?;
    Ok(original)
}
