//! Addresses and routes of a namespace, over rtnetlink (`man 7 rtnetlink`).

use std::io;
use std::net::Ipv4Addr;

use rustix::fd::OwnedFd;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const NLM_F_REQUEST: u16 = 0x001;
const NLM_F_ACK: u16 = 0x004;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const AF_INET: u8 = 2;
const IFF_UP: u32 = 0x1;
const IFF_MULTICAST: u32 = 0x1000;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// No automatic route: ours names the congestion control.
const IFA_F_NOPREFIXROUTE: u32 = 0x200;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTAX_CC_ALGO: u16 = 16;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;
/// All hosts of a scenario lie in one network.
const PREFIX_BITS: u8 = 24;

/// A socket to the kernel's routing.
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

/// The interface of a host.
#[derive(Clone, Copy)]
pub struct Interface<'a> {
    pub name: &'a str,
    pub mtu: u32,
    /// Packets that wait until the emulator reads them.
    pub queue_packets: u32,
}

impl Netlink {
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        // Protocol 0 is NETLINK_ROUTE.
        let socket =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Brings the loopback interface up.
    pub fn raise_loopback(&mut self) -> io::Result<()> {
        let index = name_to_index(&self.socket, "lo")?;
        self.request(RTM_NEWLINK, 0, &link_header(index, IFF_UP))
    }

    /// Brings an interface up.
    pub fn raise(&mut self, interface: &Interface) -> io::Result<()> {
        let index = name_to_index(&self.socket, interface.name)?;
        let mut body = link_header(index, IFF_UP | IFF_MULTICAST);
        attribute(&mut body, IFLA_MTU, &interface.mtu.to_ne_bytes());
        attribute(
            &mut body,
            IFLA_TXQLEN,
            &interface.queue_packets.to_ne_bytes(),
        );
        self.request(RTM_NEWLINK, 0, &body)
    }

    /// Gives an interface its address.
    pub fn add_address(&mut self, interface: &str, address: Ipv4Addr) -> io::Result<()> {
        let index = name_to_index(&self.socket, interface)?;
        // struct ifaddrmsg
        let mut body = vec![AF_INET, PREFIX_BITS, 0, 0];
        body.extend(index.to_ne_bytes());
        attribute(&mut body, IFA_LOCAL, &address.octets());
        attribute(&mut body, IFA_ADDRESS, &address.octets());
        attribute(&mut body, IFA_FLAGS, &IFA_F_NOPREFIXROUTE.to_ne_bytes());
        self.request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &body)
    }

    /// Routes everything through an interface, multicast too, with a TCP congestion control. A
    /// route may name one where the namespace's own setting may not: the administrator limits that
    /// setting for all users.
    pub fn add_routes(
        &mut self,
        interface: &str,
        source: Ipv4Addr,
        congestion_control: &str,
    ) -> io::Result<()> {
        let index = name_to_index(&self.socket, interface)?;
        let [a, b, c, _] = source.octets();
        for (destination, bits) in [([a, b, c, 0], PREFIX_BITS), ([0; 4], 0)] {
            // struct rtmsg
            let mut body = vec![
                AF_INET,
                bits,
                0,
                0,
                RT_TABLE_MAIN,
                RTPROT_STATIC,
                RT_SCOPE_LINK,
                RTN_UNICAST,
            ];
            body.extend(0_u32.to_ne_bytes());
            if bits > 0 {
                attribute(&mut body, RTA_DST, &destination);
            }
            attribute(&mut body, RTA_OIF, &index.to_ne_bytes());
            attribute(&mut body, RTA_PREFSRC, &source.octets());
            let mut metrics = Vec::new();
            attribute(
                &mut metrics,
                RTAX_CC_ALGO,
                &[congestion_control.as_bytes(), &[0]].concat(),
            );
            attribute(&mut body, RTA_METRICS, &metrics);
            self.request(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &body)?;
        }
        Ok(())
    }

    /// Sends one request and waits for its acknowledgement.
    fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence += 1;
        // struct nlmsghdr
        let length = u32::try_from(16 + body.len()).map_err(io::Error::other)?;
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(0_u32.to_ne_bytes());
        message.extend(body);
        rustix::net::send(&self.socket, &message, SendFlags::empty())?;
        let mut answer = [0_u8; 4096];
        let (length, _) = rustix::net::recv(&self.socket, &mut answer, RecvFlags::empty())?;
        let answer = &answer[..length.min(4096)];
        // struct nlmsghdr, then the error number, negative, or 0.
        if answer.len() < 20 || answer[4..6] != NLMSG_ERROR.to_ne_bytes() {
            return Err(io::Error::other(
                "the kernel's answer is no acknowledgement",
            ));
        }
        match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
            0 => Ok(()),
            number => Err(io::Error::from_raw_os_error(-number)),
        }
    }
}

/// `struct ifinfomsg`: sets `flags`, and changes no other.
fn link_header(index: u32, flags: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body
}

/// Appends a `struct rtattr`, padded to four bytes.
fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}
