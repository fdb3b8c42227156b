//! What the public socket of a keeper is called.
//!
//! It lies in the abstract namespace, so that a keeper that is killed leaves no file behind, and is listed by
//! /proc/net/unix. A name proves nothing: both ends check the other's user (`SO_PEERCRED`).

use std::fmt;

/// The address of a running dataflow: `nervure/<user id>/<dataflow>/<process id of its keeper>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeeperAddress {
    /// The dataflow's name.
    pub dataflow: String,
    /// The keeper's process.
    pub keeper: u32,
    /// The user that it belongs to.
    pub uid: u32,
}

impl KeeperAddress {
    /// The address of that name in the abstract namespace, without its leading zero byte; `None` when it is another's.
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
    fn an_address_is_read_as_it_is_written_and_others_are_not() {
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
