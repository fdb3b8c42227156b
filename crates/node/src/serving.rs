//! The socket of a program that serves the commands of its user, as a daemon does.

use crate::packets::Packets;
use nervure_shm::Listener;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::AsFd;
use std::io;

/// Listens in the abstract namespace, for programs of the same user and of root.
#[derive(Debug)]
pub struct Server(Listener);

impl Server {
    /// Listens under this name.
    ///
    /// # Errors
    /// If another process has the name, or it is too long.
    pub fn bind(name: &str) -> io::Result<Self> {
        Listener::bind(name).map(Self)
    }

    /// Waits for the next connection of a program of this user or of root. The kernel names the user;
    /// connections of others are closed.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub fn accept(&self) -> io::Result<Packets> {
        loop {
            let mut polled = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
            match rustix::event::poll(&mut polled, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let Some(socket) = self.0.accept()? else {
                continue;
            };
            let (own, peer) = (rustix::process::geteuid().as_raw(), socket.peer()?.uid);
            if peer == own || peer == 0 {
                return Ok(Packets::new(socket));
            }
        }
    }
}
