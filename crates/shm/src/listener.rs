//! Sockets with a name in the abstract namespace, and the identity of their peers.

use crate::seqpacket::Seqpacket;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;

/// Connections that wait to be accepted. Further ones wait in `connect`, or are refused.
const BACKLOG: i32 = 32;

/// A socket that other processes connect to by its name. The name vanishes with its process.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// The process at the other end of a socket: for the accepting end the one that connected, for the
/// connecting end the one that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id; 0 for a process in another pid namespace.
    pub pid: u32,
    /// User id.
    pub uid: u32,
}

impl Listener {
    /// Listens under `name` in the abstract namespace. The socket is close-on-exec and never waits.
    ///
    /// # Errors
    /// `AddrInUse` if another process has that name; `InvalidInput` if it is too long (107 bytes).
    pub fn bind(name: &str) -> io::Result<Self> {
        let socket = socket()?;
        rustix::net::bind(
            &socket,
            &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        )?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self(socket))
    }

    /// Accepts a connection, if one waits. Never waits itself.
    ///
    /// # Errors
    /// If the process is out of descriptors: the connection keeps waiting.
    pub fn accept(&self) -> io::Result<Option<Seqpacket>> {
        loop {
            match rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => return Ok(Some(socket.into())),
                Err(Errno::AGAIN) => return Ok(None),
                // The client gave up before it was accepted.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Seqpacket {
    /// Connects to a [`Listener`].
    ///
    /// # Errors
    /// `ConnectionRefused` if no process has that name; `WouldBlock` if too many connections wait.
    pub fn connect(name: &str) -> io::Result<Self> {
        let socket = socket()?;
        rustix::net::connect(
            &socket,
            &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        )?;
        Ok(socket.into())
    }

    /// The process at the other end, according to the kernel: it cannot be forged.
    ///
    /// # Errors
    /// If the socket is no unix socket.
    pub fn peer(&self) -> io::Result<Peer> {
        let mut peer = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: `peer` has the size in `length`, and any bytes are a valid `ucred`.
        let result = unsafe {
            libc::getsockopt(
                self.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Peer {
            pid: peer.pid.cast_unsigned(),
            uid: peer.uid,
        })
    }
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seqpacket::Received;

    #[test]
    fn both_ends_know_their_peer_and_a_name_becomes_free_again() {
        let name = format!("nervure-test/{}/listener", std::process::id());
        let own = Peer {
            pid: std::process::id(),
            uid: rustix::process::getuid().as_raw(),
        };
        for _ in 0..2 {
            assert_eq!(
                Seqpacket::connect(&name).unwrap_err().kind(),
                io::ErrorKind::ConnectionRefused
            );
            let listener = Listener::bind(&name).unwrap();
            assert_eq!(
                Listener::bind(&name).unwrap_err().kind(),
                io::ErrorKind::AddrInUse
            );
            assert!(listener.accept().unwrap().is_none());
            let client = Seqpacket::connect(&name).unwrap();
            let server = listener.accept().unwrap().unwrap();
            assert_eq!((client.peer().unwrap(), server.peer().unwrap()), (own, own));
            client.send(b"hello", &[]).unwrap();
            let mut buffer = Vec::with_capacity(16);
            assert!(matches!(
                server.receive(&mut buffer).unwrap(),
                Received::Packet(_)
            ));
            assert_eq!(buffer, b"hello");
        }
    }
}
