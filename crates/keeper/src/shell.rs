//! Carries out what the machine decides: one thread, one epoll loop.

mod accept;
mod apply;
mod clients;
mod descriptors;
mod error;
mod event_loop;
mod inspect;
mod lines;
mod log_files;
mod log_writer;
mod outbox;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod python_path;
mod receive;
mod report_link;
mod retry;
mod slot;
mod token;

use std::{
    fs::File,
    io::{self, Read},
};

use nervure_protocol::{MAX_MESSAGE_BYTES, decode, run_to_keeper};
use nervure_shm::{Received, Seqpacket};
use rustix::{
    fd::OwnedFd,
    process::{Resource, Rlimit},
};

use crate::{descendants, plan::Plan};
use descriptors::Descriptors;
pub use error::KeeperError;
use error::system;
use event_loop::Shell;

/// Runs the dataflow that `run` sends over `control`, until every node has ended.
///
/// # Errors
/// [`KeeperError`]. No process of the dataflow is left in that case either.
pub fn serve(control: OwnedFd) -> Result<(), KeeperError> {
    let control = Seqpacket::from(control);
    let plan = receive_plan(&control)?;
    descendants::adopt_orphans().map_err(system("cannot become a subreaper"))?;
    if plan.detached {
        // Signals of the terminal on which it was started must not reach it.
        rustix::process::setsid().map_err(system("cannot leave the session of `run`"))?;
    }
    let files = raise_file_limit(&plan)?;
    let result = Shell::new(plan, control, files).and_then(|mut shell| shell.serve());
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

fn receive_plan(control: &Seqpacket) -> Result<Plan, KeeperError> {
    let mut buffer = Vec::with_capacity(MAX_MESSAGE_BYTES);
    let mut poll = [rustix::event::PollFd::new(
        control,
        rustix::event::PollFlags::IN,
    )];
    rustix::event::poll(&mut poll, None).map_err(system("cannot wait for the plan"))?;
    let not_launched = |why: String| KeeperError::NotLaunched(why);
    let descriptors = match control
        .receive(&mut buffer)
        .map_err(|error| not_launched(error.to_string()))?
    {
        Received::Packet(descriptors) => descriptors,
        Received::Closed => {
            return Err(not_launched(
                "the other end of its socket is closed".to_owned(),
            ));
        }
    };
    match decode(&buffer).map_err(|error| not_launched(error.to_string()))? {
        run_to_keeper::Message::Launch => {}
        other => return Err(not_launched(format!("its first message is {other:?}"))),
    }
    let Some(plan) = descriptors.into_iter().next() else {
        return Err(not_launched("Launch came without a plan".to_owned()));
    };
    let mut text = Vec::new();
    let mut plan = File::from(plan);
    io::Seek::rewind(&mut plan)
        .and_then(|()| plan.read_to_end(&mut text))
        .map_err(system("cannot read the plan"))?;
    Ok(serde_json::from_slice(&text)?)
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
