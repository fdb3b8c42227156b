//! The hand-over of a plan. `run` starts a keeper with one end of a socket pair as standard input,
//! and sends the plan over it. From then on it is a client on that connection.

use std::{
    fs::File,
    io::{self, Read, Write},
};

use nervure_protocol::MAX_MESSAGE_BYTES;
use nervure_shm::{Received, Seqpacket};
use rustix::{
    event::{PollFd, PollFlags},
    fd::AsFd,
    fs::MemfdFlags,
};

use super::error::{KeeperError, system};
use crate::plan::Plan;

/// The packet whose descriptor is a memfd with the plan as JSON. A plan may be too long for a
/// message.
const PLAN: &[u8] = b"plan";

/// Sends the plan to a keeper that was just started.
///
/// # Errors
/// When memory or descriptors run out, or the keeper is gone.
pub fn send_plan(socket: &Seqpacket, plan: &Plan) -> io::Result<()> {
    let mut text = File::from(rustix::fs::memfd_create(
        "nervure-plan",
        MemfdFlags::CLOEXEC,
    )?);
    text.write_all(&serde_json::to_vec(plan)?)?;
    socket.send(PLAN, &[text.as_fd()])
}

/// Waits for the plan.
pub(super) fn receive_plan(socket: &Seqpacket) -> Result<Plan, KeeperError> {
    let mut buffer = Vec::with_capacity(MAX_MESSAGE_BYTES);
    let mut poll = [PollFd::new(socket, PollFlags::IN)];
    rustix::event::poll(&mut poll, None).map_err(system("cannot wait for the plan"))?;
    let not_launched = |why: &str| KeeperError::NotLaunched(why.to_owned());
    let descriptors = match socket
        .receive(&mut buffer)
        .map_err(|error| not_launched(&error.to_string()))?
    {
        Received::Packet(descriptors) => descriptors,
        Received::Closed => return Err(not_launched("the other end of its socket is closed")),
    };
    let plan = descriptors.into_iter().next();
    let Some(plan) = plan.filter(|_| buffer == PLAN) else {
        return Err(not_launched("its first packet is not a plan"));
    };
    let mut text = Vec::new();
    let mut plan = File::from(plan);
    io::Seek::rewind(&mut plan)
        .and_then(|()| plan.read_to_end(&mut text))
        .map_err(system("cannot read the plan"))?;
    Ok(serde_json::from_slice(&text)?)
}
