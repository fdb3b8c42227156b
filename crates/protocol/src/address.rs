//! The address of a keeper's public socket.
//!
//! It is in the abstract namespace, so that a keeper that is killed leaves no file behind, and
//! /proc/net/unix lists it. The name is not authenticated: both ends check the user of the other
//! (`SO_PEERCRED`).

use std::fmt;

/// The address of a running dataflow: `nervure/<user id>/<dataflow>/<process id of its keeper>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeeperAddress {
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
        if protocol != "nervure" || dataflow.is_empty() || parts.next().is_some() {
            return None;
        }
        Some(Self {
            dataflow: dataflow.to_owned(),
            keeper: keeper.parse().ok()?,
            uid: uid.parse().ok()?,
        })
    }
}

impl fmt::Display for KeeperAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nervure/{}/{}/{}", self.uid, self.dataflow, self.keeper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_a_round_trip_and_other_names_are_refused() {
        let address = KeeperAddress {
            dataflow: "drive".to_owned(),
            keeper: 4711,
            uid: 1000,
        };
        assert_eq!(address.to_string(), "nervure/1000/drive/4711");
        assert_eq!(KeeperAddress::parse(&address.to_string()), Some(address));
        for other in [
            "",
            "/tmp/x",
            "nervure/1000/drive",
            "nervure/me/drive/1",
            "nervure/1/a/2/b",
            "nervure/1//2",
        ] {
            assert_eq!(KeeperAddress::parse(other), None, "{other}");
        }
    }
}
