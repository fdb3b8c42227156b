//! The address of a keeper's public socket.
//!
//! It is in the abstract namespace, so that a keeper that is killed leaves no file behind, and
//! /proc/net/unix lists it. The name is not authenticated: both ends check the user of the other
//! (`SO_PEERCRED`).

use std::fmt;

use crate::domain::Domain;

/// The address of a running dataflow: `nervure/<user id>/<dataflow>/<process id of its keeper>`, or
/// `nervure@<domain>/..`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeeperAddress {
    /// The domain that the dataflow runs in.
    pub domain: Domain,
    /// The dataflow's name.
    pub dataflow: String,
    /// The process id of the keeper.
    pub keeper: u32,
    /// The id of the user that the keeper runs as.
    pub uid: u32,
}

impl KeeperAddress {
    /// Parses a name of the abstract namespace, without its leading zero byte. `None` when it is
    /// not a keeper's.
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('/');
        let (protocol, uid, dataflow, keeper) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let domain = match protocol.split_once('@') {
            Some((_, "")) => return None,
            Some(("nervure", name)) => name.parse().ok()?,
            None if protocol == "nervure" => Domain::default(),
            _ => return None,
        };
        if dataflow.is_empty() || parts.next().is_some() {
            return None;
        }
        Some(Self {
            domain,
            dataflow: dataflow.to_owned(),
            keeper: keeper.parse().ok()?,
            uid: uid.parse().ok()?,
        })
    }
}

impl fmt::Display for KeeperAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = if self.domain.name().is_some() {
            "@"
        } else {
            ""
        };
        write!(
            f,
            "nervure{at}{}/{}/{}/{}",
            self.domain, self.uid, self.dataflow, self.keeper
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::MAX_DOMAIN_BYTES;

    #[test]
    fn the_longest_address_fits_into_that_of_a_socket() {
        // sun_path without the leading zero byte.
        const MAX_BYTES: usize = 107;
        let longest = KeeperAddress {
            domain: "d".repeat(MAX_DOMAIN_BYTES).parse().unwrap(),
            dataflow: "f".repeat(64),
            // The limit of the kernel, PID_MAX_LIMIT.
            keeper: 1 << 22,
            uid: u32::MAX,
        };
        assert!(longest.to_string().len() <= MAX_BYTES);
    }

    #[test]
    fn an_address_survives_a_round_trip_and_other_names_are_refused() {
        let address = KeeperAddress {
            domain: Domain::default(),
            dataflow: "drive".to_owned(),
            keeper: 4711,
            uid: 1000,
        };
        assert_eq!(address.to_string(), "nervure/1000/drive/4711");
        assert_eq!(
            KeeperAddress::parse(&address.to_string()),
            Some(address.clone())
        );
        let red = KeeperAddress {
            domain: "red".parse().unwrap(),
            ..address
        };
        assert_eq!(red.to_string(), "nervure@red/1000/drive/4711");
        assert_eq!(KeeperAddress::parse(&red.to_string()), Some(red));
        for other in [
            "",
            "/tmp/x",
            "nervure/1000/drive",
            "nervure/me/drive/1",
            "nervure/1/a/2/b",
            "nervure/1//2",
            "nervure@/1/a/2",
            "nervure@a.b/1/a/2",
            "other@red/1/a/2",
        ] {
            assert_eq!(KeeperAddress::parse(other), None, "{other}");
        }
    }
}
