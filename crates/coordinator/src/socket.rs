//! Options of both ends of a connection.

use std::io;

use socket2::SockRef;
use tokio::net::TcpStream;

/// Sets up a connection for small messages over a link that loses packets: each is sent at once, and
/// repeated losses do not double the time to the next retransmission. The kernel retransmits at regular
/// intervals only while fewer than four packets are in flight, so that a bundle of programs backs off as
/// usual.
pub(crate) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_tcp_thin_linear_timeouts(true)
}
