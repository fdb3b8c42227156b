//! Addresses of a coordinator, as people write them, and those of this machine.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The port of a coordinator where none is named.
pub const PORT: u16 = 7700;

/// An address: `laptop`, `laptop.local:7700`, `192.168.1.10`, `192.168.1.10:7700` or `[fd00::1]:7700`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address {
    host: String,
    port: u16,
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no address: expected `HOST` or `HOST:PORT`, such as `laptop.local` or `192.168.1.10:7700`"
)]
pub struct ParseAddressError(String);

impl Address {
    /// Its IP address, if it is no name.
    pub fn ip(&self) -> Option<SocketAddr> {
        let ip: IpAddr = self.host.parse().ok()?;
        Some(SocketAddr::new(ip, self.port))
    }

    /// The addresses that it stands for. Asks the resolver of the system, which may take seconds.
    ///
    /// # Errors
    /// If the name is not known.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseAddressError(text.to_owned());
        let port = |digits: &str| digits.parse().map_err(|_| wrong());
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
                let port = match rest {
                    "" => PORT,
                    rest => port(rest.strip_prefix(':').ok_or_else(wrong)?)?,
                };
                let host: std::net::Ipv6Addr = host.parse().map_err(|_| wrong())?;
                (host.to_string(), port)
            }
            // An IPv6 address without brackets has no port.
            None if text.parse::<std::net::Ipv6Addr>().is_ok() => (text.to_owned(), PORT),
            None => match text.split_once(':') {
                Some((host, digits)) => (host.to_owned(), port(digits)?),
                None => (text.to_owned(), PORT),
            },
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || ".-:_".contains(c);
        match !host.is_empty() && host.len() <= 253 && host.chars().all(fits) {
            true => Ok(Self { host, port }),
            false => Err(wrong()),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = ParseAddressError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

/// The addresses under which others can reach this machine: first the one towards the default route, if
/// there is one, then those of other interfaces, and its host names. The loopback address if there is no
/// other.
pub fn own_addresses(port: u16) -> Vec<Address> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let ips = interfaces.iter().map(|interface| interface.ip());
    let mut ips: Vec<IpAddr> = ips.filter(is_reachable).collect();
    let towards_default = default_source();
    ips.sort_by_key(|ip| (Some(*ip) != towards_default, ip.is_ipv6(), *ip));
    ips.dedup();
    if ips.is_empty() {
        return vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()];
    }
    let ips = ips.into_iter();
    let mut all: Vec<Address> = ips.map(|ip| SocketAddr::new(ip, port).into()).collect();
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    for host in [name.to_owned(), format!("{name}.local")] {
        let is_name = !host.starts_with('.') && !host.starts_with("localhost");
        all.extend(format!("{host}:{port}").parse().ok().filter(|_| is_name));
    }
    all
}

/// Whether other machines can have a route to it.
fn is_reachable(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local() && !ip.is_unspecified(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    }
}

/// The address of this machine towards the default route. Nothing is sent.
fn default_source() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // An address for documentation (RFC 5737), which no network has.
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_as_people_write_them() {
        for (text, written) in [
            ("laptop", "laptop:7700"),
            ("laptop.local:80", "laptop.local:80"),
            ("192.168.1.10", "192.168.1.10:7700"),
            ("192.168.1.10:7701", "192.168.1.10:7701"),
            ("[fd00::1]:7701", "[fd00::1]:7701"),
            ("[fd00::1]", "[fd00::1]:7700"),
            ("fd00::1", "[fd00::1]:7700"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), written);
            assert_eq!(written.parse(), Ok(address));
        }
        for text in [
            "",
            ":7700",
            "laptop:",
            "laptop:x",
            "a b",
            "[laptop]:1",
            "[fd00::1]x",
            "a#b",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn own_addresses_are_no_loopback_unless_there_is_no_other() {
        let all = own_addresses(7700);
        let ips: Vec<_> = all.iter().filter_map(Address::ip).collect();
        assert!(!ips.is_empty());
        assert!(ips.len() == 1 || ips.iter().all(|ip| !ip.ip().is_loopback()));
        assert!(ips.iter().all(|ip| !ip.ip().is_unspecified()));
    }
}
