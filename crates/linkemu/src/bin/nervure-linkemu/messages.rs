//! Messages between the emulator and the first process of a host, over a socket that lives as long
//! as both.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The longest message; a command line is the longest part.
const MAX_BYTES: usize = 128 * 1024;

/// From the emulator to a host.
#[derive(Debug, Deserialize, Serialize)]
pub enum ToHost {
    /// The first message: set up this host.
    Setup(Box<Setup>),
    /// Start the command.
    Start,
    /// Ask the command to end.
    Terminate,
}

/// The properties of a host.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Setup {
    pub host: usize,
    /// All names and addresses, in order; its own among them.
    pub hosts: Vec<(String, Ipv4Addr)>,
    pub mtu: u32,
    pub congestion_control: String,
    pub command: Vec<String>,
}

/// From a host to the emulator.
#[derive(Debug, Deserialize, Serialize)]
pub enum FromHost {
    /// The host is ready; its TUN device comes with this message.
    Ready,
    /// The host could not be set up, or its command not started.
    Failed {
        what: String,
        cause: String,
        hint: Option<String>,
    },
    /// The command has ended.
    Ended {
        exit_code: Option<i32>,
        signal: Option<i32>,
        unread_packets: u64,
    },
}

/// One end of the socket.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// A connected pair.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self(a), Self(b)))
    }

    /// Sends a message, and a descriptor with it.
    pub fn send(&self, message: &impl Serialize, descriptor: Option<BorrowedFd>) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > MAX_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the command line is too long",
            ));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<_> = descriptor.into_iter().collect();
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        rustix::net::sendmsg(
            &self.0,
            &[IoSlice::new(&bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }

    /// Waits for a message, and a descriptor if one came with it; `None` when the other end is
    /// gone.
    pub fn receive<M: DeserializeOwned>(&self) -> io::Result<Option<(M, Option<OwnedFd>)>> {
        let mut bytes = vec![0; MAX_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let length = rustix::io::retry_on_intr(|| {
            rustix::net::recvmsg(
                &self.0,
                &mut [IoSliceMut::new(&mut bytes)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            )
        });
        let length = match length {
            // The other end ended with unread messages.
            Err(rustix::io::Errno::CONNRESET) => 0,
            other => other?.bytes,
        };
        if length == 0 {
            return Ok(None);
        }
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        Ok(Some((
            serde_json::from_slice(&bytes[..length])?,
            descriptor,
        )))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Channel {
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.0
    }
}
