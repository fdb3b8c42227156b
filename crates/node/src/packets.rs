//! Messages over a socket, one in a packet.

use nervure_protocol::{MAX_MESSAGE_BYTES, ProtocolError};
use nervure_shm::{Received, Seqpacket};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use serde::{Serialize, de::DeserializeOwned};
use std::io;
use std::time::{Duration, Instant};

/// One end of a socket with messages.
#[derive(Debug)]
pub struct Packets {
    socket: Seqpacket,
    buffer: Vec<u8>,
}

/// Why a message was not sent or received.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The other end is closed.
    #[error("the other end has closed the connection")]
    Closed,
    /// The other end does not take its messages.
    #[error("the other end does not read its messages")]
    Full,
    /// The message is not valid.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// A system call failed.
    #[error(transparent)]
    System(io::Error),
}

impl Packets {
    /// Takes over a socket.
    pub fn new(socket: Seqpacket) -> Self {
        Self {
            socket,
            buffer: Vec::with_capacity(MAX_MESSAGE_BYTES),
        }
    }

    /// Another handle of the same socket, for another thread.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        let socket = self.socket.as_fd().try_clone_to_owned()?;
        Ok(Self::new(socket.into()))
    }

    /// Sends a message with at most one descriptor. Never waits.
    ///
    /// # Errors
    /// [`PacketError`].
    pub fn send<M: Serialize>(
        &self,
        message: &M,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), PacketError> {
        let bytes = nervure_protocol::encode(message)?;
        let descriptors = descriptor.as_slice();
        self.socket
            .send(&bytes, descriptors)
            .map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => PacketError::Full,
                _ => PacketError::Closed,
            })
    }

    /// As [`Packets::send`], and waits for room until the deadline.
    ///
    /// # Errors
    /// [`PacketError`].
    pub fn send_until<M: Serialize>(
        &self,
        message: &M,
        descriptor: Option<BorrowedFd<'_>>,
        deadline: Instant,
    ) -> Result<(), PacketError> {
        loop {
            match self.send(message, descriptor) {
                Err(PacketError::Full) if self.wait(PollFlags::OUT, deadline)? => {}
                other => return other,
            }
        }
    }

    /// Returns the next message with its descriptor, if there is a message, without waiting.
    ///
    /// # Errors
    /// [`PacketError`].
    pub fn try_receive<M: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<(M, Option<OwnedFd>)>, PacketError> {
        match self.socket.receive(&mut self.buffer) {
            Ok(Received::Packet(fds)) => Ok(Some((
                nervure_protocol::decode(&self.buffer)?,
                fds.into_iter().next(),
            ))),
            Ok(Received::Closed) => Err(PacketError::Closed),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(PacketError::System(error)),
        }
    }

    /// Waits for the next message. Returns `None` if none arrived before `deadline`.
    ///
    /// # Errors
    /// [`PacketError`].
    pub fn receive_until<M: DeserializeOwned>(
        &mut self,
        deadline: Instant,
    ) -> Result<Option<(M, Option<OwnedFd>)>, PacketError> {
        loop {
            if let Some(message) = self.try_receive()? {
                return Ok(Some(message));
            }
            if !self.wait(PollFlags::IN, deadline)? {
                return Ok(None);
            }
        }
    }

    /// Waits; returns false at the deadline.
    fn wait(&self, what: PollFlags, deadline: Instant) -> Result<bool, PacketError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let mut polled = [PollFd::new(&self.socket, what)];
        match rustix::event::poll(&mut polled, Some(&timespec(left))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(PacketError::System(error.into())),
        }
    }

    /// Ends both directions, also for other handles of the socket.
    pub fn shut_down(&self) {
        // Fails if the other end is closed already.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    pub(crate) fn into_socket(self) -> Seqpacket {
        self.socket
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn timespec(duration: Duration) -> Timespec {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec {
        tv_sec: seconds,
        tv_nsec: duration.subsec_nanos().into(),
    }
}
