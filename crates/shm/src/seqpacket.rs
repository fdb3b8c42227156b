//! Packets with file descriptors over a unix socket.

use crate::shortage::Shortage;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// The most descriptors in one packet (the kernel's `SCM_MAX_FD`).
const MAX_FDS: usize = 253;
/// Room for descriptors where a packet has at most one.
const FEW_FDS: usize = 2;

/// One end of a pair of connected, non-blocking `SOCK_SEQPACKET` sockets.
#[derive(Debug)]
pub struct Seqpacket(OwnedFd);

/// Result of [`Seqpacket::receive`].
#[derive(Debug)]
pub enum Received {
    /// A packet, with its descriptors. Its bytes are in the buffer.
    Packet(Vec<OwnedFd>),
    /// The other end is closed.
    Closed,
}

impl Seqpacket {
    /// Makes a connected pair of close-on-exec sockets.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(a), Self(b)))
    }

    /// Sends one packet. Never waits.
    ///
    /// # Errors
    /// `WouldBlock` if the other end has not received enough of the earlier packets (try again when
    /// the socket is writable). `WouldBlock` with a [`Shortage`] in it if too many descriptors are
    /// in flight or memory is short (try again later). Others if the other end is closed.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "too many descriptors for one packet",
            ));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, flags) {
                Ok(_) => {
                    #[cfg(all(feature = "kill-points", debug_assertions))]
                    crate::kill_points::pass();
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(errno) => {
                    let error = errno.into();
                    let shortage = Shortage::of(&error);
                    return Err(shortage.map_or(error, |shortage| {
                        io::Error::new(io::ErrorKind::WouldBlock, shortage)
                    }));
                }
            }
        }
    }

    /// Receives one packet into `buffer`, whose length becomes that of the packet. Never waits.
    ///
    /// # Errors
    /// As [`Seqpacket::peek`].
    pub fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<Received> {
        let received = self.peek(buffer)?;
        if matches!(received, Received::Packet(_)) {
            self.consume();
        }
        Ok(received)
    }

    /// As [`Seqpacket::receive`], but the packet stays queued until [`Seqpacket::consume`]. The
    /// next peek finds it again, and makes new descriptors for it.
    ///
    /// A packet that is taken from the queue while the process is out of descriptors loses its own,
    /// and the sender does not learn of it. A peeked packet loses nothing, even if other threads
    /// open descriptors meanwhile.
    ///
    /// # Errors
    /// - `WouldBlock` if there is no packet.
    /// - `InvalidData` if the packet is longer than the buffer's capacity. The packet is consumed.
    /// - A [`Shortage`] if the packet or its descriptors cannot be received now. The packet stays
    ///   queued. If only its descriptors cannot be received, its bytes are in the buffer.
    pub fn peek(&self, buffer: &mut Vec<u8>) -> io::Result<Received> {
        let capacity = buffer.capacity();
        buffer.resize(capacity, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let peeked = self.peek_into(buffer, &mut space, MAX_FDS);
        buffer.truncate(peeked.as_ref().map_or(0, |(bytes, _)| *bytes));
        peeked?.1
    }

    /// Removes the peeked packet.
    pub fn consume(&self) {
        // There is no room for descriptors: the packet's own are closed with it.
        while let Err(Errno::INTR | Errno::CONNRESET) =
            rustix::net::recv(&self.0, &mut [0_u8; 1], RecvFlags::DONTWAIT)
        {}
    }

    /// As [`Seqpacket::peek`], for frequent calls: clearing a large buffer costs more than a small
    /// packet. `InvalidData` for a packet with more than [`FEW_FDS`] descriptors. Returns the
    /// packet's length, too.
    pub(crate) fn peek_few(&self, buffer: &mut [u8]) -> io::Result<(usize, io::Result<Received>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FEW_FDS))];
        self.peek_into(buffer, &mut space, FEW_FDS)
    }

    /// Receives a packet without its descriptors. Returns its length, at most that of the buffer; 0
    /// if the other end is closed.
    pub(crate) fn receive_bytes(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(&self.0, &mut *buffer, RecvFlags::DONTWAIT) {
                // As in `peek_into`.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                received => return Ok(received?.1),
            }
        }
    }

    /// The length of the next packet, and its descriptors.
    fn peek_into(
        &self,
        buffer: &mut [u8],
        space: &mut [MaybeUninit<u8>],
        max_fds: usize,
    ) -> io::Result<(usize, io::Result<Received>)> {
        let mut control = RecvAncillaryBuffer::new(space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let message = loop {
            match rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(buffer)], &mut control, flags)
            {
                // CONNRESET reports, once, that the other end closed without having received
                // everything. Its own packets are still in the socket, then the end.
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
        let is_short_of_fds = message.flags.contains(ReturnFlags::CTRUNC);
        if message.flags.contains(ReturnFlags::TRUNC) || is_short_of_fds && fds.len() >= max_fds {
            self.consume();
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a packet that is too long",
            ));
        }
        if is_short_of_fds {
            return Ok((message.bytes, Err(self.shortage_beside(&fds).into())));
        }
        // Neither side sends empty packets: one reads as the end of the stream.
        let is_end = message.bytes == 0 && fds.is_empty();
        Ok((
            message.bytes,
            Ok(if is_end {
                Received::Closed
            } else {
                Received::Packet(fds)
            }),
        ))
    }

    /// Why not all descriptors of a packet were received. While `_received` are open, one more
    /// descriptor fails for the same reason.
    fn shortage_beside(&self, _received: &[OwnedFd]) -> Shortage {
        let one_more = rustix::io::fcntl_dupfd_cloexec(&self.0, 0).err();
        let errno = one_more
            .filter(|&errno| errno == Errno::NFILE)
            .unwrap_or(Errno::MFILE);
        Shortage::of(&errno.into()).expect("both are shortages")
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
    fn packets_keep_their_boundaries_and_descriptors() {
        let (a, b) = Seqpacket::pair().unwrap();
        let file = crate::sys::memfd("test", 100).unwrap();
        a.send(b"one", &[file.as_fd(), file.as_fd()]).unwrap();
        a.send(b"two", &[]).unwrap();
        let mut buffer = Vec::with_capacity(16);
        let Received::Packet(fds) = b.receive(&mut buffer).unwrap() else {
            panic!()
        };
        assert_eq!((buffer.as_slice(), fds.len()), (b"one".as_slice(), 2));
        assert_eq!(rustix::fs::fstat(&fds[1]).unwrap().st_size, 100);
        let Received::Packet(fds) = b.receive(&mut buffer).unwrap() else {
            panic!()
        };
        assert_eq!((buffer.as_slice(), fds.len()), (b"two".as_slice(), 0));
        assert_eq!(
            b.receive(&mut buffer).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        a.send(&[0; 17], &[]).unwrap();
        assert_eq!(
            b.receive(&mut Vec::with_capacity(16)).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        drop(a);
        assert!(matches!(b.receive(&mut buffer).unwrap(), Received::Closed));
    }

    #[test]
    fn packets_of_an_end_that_closed_without_receiving_arrive() {
        let (a, b) = Seqpacket::pair().unwrap();
        a.send(b"unread", &[]).unwrap();
        b.send(b"last words", &[]).unwrap();
        drop(b);
        let mut buffer = Vec::with_capacity(16);
        assert!(matches!(
            a.receive(&mut buffer).unwrap(),
            Received::Packet(_)
        ));
        assert_eq!(buffer, b"last words");
        assert!(matches!(a.receive(&mut buffer).unwrap(), Received::Closed));
    }

    #[test]
    fn a_full_socket_would_block() {
        let (a, _b) = Seqpacket::pair().unwrap();
        let error = (0..100_000)
            .find_map(|_| a.send(&[1; 64], &[]).err())
            .unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
