//! A UDP socket that sends and receives many packets with one call.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSocketState};

use crate::carrier::{Addresses, Ecn};

/// Kernel buffer for packets that arrive while the thread is busy.
const BUFFER_BYTES: usize = 8 << 20;
/// The most bytes sent with one call: below the 64 KiB of an IP packet.
const BATCH_BYTES: usize = 65_000;
/// The largest packet that can be received.
const PACKET_BYTES: usize = 2048;

pub(super) struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
    /// Receives at all addresses of the host, and answers from the one that received the packet.
    has_all_addresses: bool,
    buffers: Vec<Vec<u8>>,
    meta: Vec<RecvMeta>,
}

impl Socket {
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        let state = UdpSocketState::new((&socket).into())?;
        // The kernel grants up to its configured limit; a smaller buffer only loses packets in a
        // burst.
        let _ = state.set_recv_buffer_size((&socket).into(), BUFFER_BYTES);
        let _ = state.set_send_buffer_size((&socket).into(), BUFFER_BYTES);
        let buffers = (0..BATCH_SIZE)
            .map(|_| vec![0; PACKET_BYTES * state.gro_segments()])
            .collect();
        let has_all_addresses = address.ip().is_unspecified();
        Ok(Self {
            has_all_addresses,
            socket,
            state,
            buffers,
            meta: vec![RecvMeta::default(); BATCH_SIZE],
        })
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Number of packets of this length that go with one call.
    pub(super) fn segments(&self, segment_bytes: usize) -> usize {
        self.state
            .max_gso_segments()
            .min(BATCH_BYTES / segment_bytes.max(1))
    }

    /// Sends packets to one destination: each of `segment_bytes`, the last one may be shorter.
    /// Packets that the network does not take are lost, as in transit. Returns false when the
    /// socket's buffer is full.
    pub(super) fn send(
        &self,
        to: SocketAddr,
        source: Option<IpAddr>,
        ecn: Option<Ecn>,
        packets: &[u8],
        segment_bytes: usize,
    ) -> bool {
        let transmit = Transmit {
            destination: to,
            ecn: ecn.map(|ecn| match ecn {
                Ecn::Ect0 => EcnCodepoint::Ect0,
                Ecn::Ect1 => EcnCodepoint::Ect1,
                Ecn::CongestionExperienced => EcnCodepoint::Ce,
            }),
            contents: packets,
            segment_size: (packets.len() > segment_bytes).then_some(segment_bytes),
            src_ip: source,
        };
        let sent = self.state.try_send((&self.socket).into(), &transmit);
        !sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Passes received packets to `each`, with a time of arrival, and returns whether there may be
    /// more. The time is read after the call. If the thread is preempted before it, packets seem
    /// later than they were, never earlier: packets that seem faster than the path would make each
    /// later one seem queued.
    ///
    /// # Errors
    /// When the socket fails.
    pub(super) fn receive(
        &mut self,
        mut each: impl FnMut(Instant, Addresses, Option<Ecn>, &mut [u8]),
    ) -> io::Result<bool> {
        let mut slices: Vec<_> = self
            .buffers
            .iter_mut()
            .map(|buffer| IoSliceMut::new(buffer))
            .collect();
        let count = match self
            .state
            .recv((&self.socket).into(), &mut slices, &mut self.meta)
        {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            // A router or the peer's host reported that the peer is unreachable: it may come back.
            Err(error) if is_passing(&error) => return Ok(true),
            Err(error) => return Err(error),
        };
        let now = Instant::now();
        for (meta, buffer) in self.meta[..count].iter().zip(&mut self.buffers) {
            let ecn = meta.ecn.map(|ecn| match ecn {
                EcnCodepoint::Ect0 => Ecn::Ect0,
                EcnCodepoint::Ect1 => Ecn::Ect1,
                EcnCodepoint::Ce => Ecn::CongestionExperienced,
            });
            let from = Addresses {
                remote: meta.addr,
                local: meta.dst_ip.filter(|_| self.has_all_addresses),
            };
            for packet in buffer[..meta.len].chunks_mut(meta.stride.max(1)) {
                each(now, from, ecn, packet);
            }
        }
        Ok(count == self.meta.len())
    }
}

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::Interrupted
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_arrive_with_their_mark() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let bind = || Socket::bind(local.parse().expect("an address"));
            let (Ok(sender), Ok(mut receiver)) = (bind(), bind()) else {
                // A host without IPv6.
                assert!(local.starts_with('['), "loopback can be bound");
                continue;
            };
            let to = receiver.local_address().expect("it is bound");
            for mark in [None, Some(Ecn::Ect0), Some(Ecn::CongestionExperienced)] {
                assert!(sender.send(to, None, mark, b"packet", 6));
                let mut arrived = Vec::new();
                while arrived.is_empty() {
                    rustix::event::poll(
                        &mut [rustix::event::PollFd::new(
                            &receiver.as_fd(),
                            rustix::event::PollFlags::IN,
                        )],
                        None,
                    )
                    .expect("the socket can be polled");
                    let each = |_, _, ecn, packet: &mut [u8]| arrived.push((ecn, packet.to_vec()));
                    receiver.receive(each).expect("the socket works");
                }
                assert_eq!(arrived, [(mark, b"packet".to_vec())]);
            }
        }
    }
}
