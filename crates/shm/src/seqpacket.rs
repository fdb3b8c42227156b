//! Packets with file descriptors over a unix socket.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// The most descriptors in one packet (the kernel's `SCM_MAX_FD`).
const MAX_FDS: usize = 253;

/// One end of a pair of connected, non-blocking `SOCK_SEQPACKET` sockets.
#[derive(Debug)]
pub struct Seqpacket(OwnedFd);

/// What [`Seqpacket::receive`] found.
#[derive(Debug)]
pub enum Received {
    /// A packet: its bytes are in the buffer, these are its descriptors.
    Packet(Vec<OwnedFd>),
    /// The other end is closed.
    Closed,
}

impl Seqpacket {
    /// Makes a connected pair, close-on-exec.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(a), Self(b)))
    }

    /// Sends one packet. Never waits.
    ///
    /// # Errors
    /// `WouldBlock` when the other end has not received enough of what was sent before, or too many descriptors
    /// are in flight (try again when it is writable, or later); others when the other end is closed.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one packet"));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, flags) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::TOOMANYREFS | Errno::NOBUFS) => {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives one packet into `buffer`, whose length becomes that of the packet. Never waits.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; `InvalidData` when it is longer than the buffer's capacity, or its
    /// descriptors could not all be received.
    pub fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<Received> {
        let capacity = buffer.capacity();
        buffer.resize(capacity, 0);
        let (bytes, received) = self.receive_into(buffer)?;
        buffer.truncate(bytes);
        Ok(received)
    }

    /// As [`Seqpacket::receive`], for those who receive often: clearing a large buffer costs more than a small packet.
    /// Returns the packet's length too.
    pub(crate) fn receive_into(&self, buffer: &mut [u8]) -> io::Result<(usize, Received)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let message = loop {
            match rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
                // Reset says, once, that the other end closed without reading everything; what it had sent is still
                // there, and then the end.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                other => break other?,
            }
        };
        let mut fds = Vec::new();
        for ancillary in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = ancillary {
                fds.extend(rights);
            }
        }
        if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            let what = "truncated packet: it is too long, or this process is out of file descriptors";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        // Nobody sends empty packets: one reads as the end of the stream.
        let is_end = message.bytes == 0 && fds.is_empty();
        Ok((message.bytes, if is_end { Received::Closed } else { Received::Packet(fds) }))
    }
}

impl From<OwnedFd> for Seqpacket {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl From<Seqpacket> for OwnedFd {
    fn from(socket: Seqpacket) -> Self {
        socket.0
    }
}

impl AsFd for Seqpacket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_keep_their_bounds_and_their_descriptors() {
        let (a, b) = Seqpacket::pair().unwrap();
        let file = crate::sys::memfd("test", 100).unwrap();
        a.send(b"one", &[file.as_fd(), file.as_fd()]).unwrap();
        a.send(b"two", &[]).unwrap();
        let mut buffer = Vec::with_capacity(16);
        let Received::Packet(fds) = b.receive(&mut buffer).unwrap() else { panic!() };
        assert_eq!((buffer.as_slice(), fds.len()), (b"one".as_slice(), 2));
        assert_eq!(rustix::fs::fstat(&fds[1]).unwrap().st_size, 100);
        let Received::Packet(fds) = b.receive(&mut buffer).unwrap() else { panic!() };
        assert_eq!((buffer.as_slice(), fds.len()), (b"two".as_slice(), 0));
        assert_eq!(b.receive(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        a.send(&[0; 17], &[]).unwrap();
        assert_eq!(b.receive(&mut Vec::with_capacity(16)).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(a);
        assert!(matches!(b.receive(&mut buffer).unwrap(), Received::Closed));
    }

    #[test]
    fn the_last_words_of_an_end_that_did_not_listen_arrive() {
        let (a, b) = Seqpacket::pair().unwrap();
        a.send(b"unread", &[]).unwrap();
        b.send(b"last words", &[]).unwrap();
        drop(b);
        let mut buffer = Vec::with_capacity(16);
        assert!(matches!(a.receive(&mut buffer).unwrap(), Received::Packet(_)));
        assert_eq!(buffer, b"last words");
        assert!(matches!(a.receive(&mut buffer).unwrap(), Received::Closed));
    }

    #[test]
    fn a_full_socket_would_block() {
        let (a, _b) = Seqpacket::pair().unwrap();
        let error = (0..100_000).find_map(|_| a.send(&[1; 64], &[]).err()).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
