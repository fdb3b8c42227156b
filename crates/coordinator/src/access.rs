//! The permissions of each role: one table, one function.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{ACTUAL, ALIVE, BUNDLES, DESIRED, INVITATIONS, LINKS, MACHINES};

/// The role of a machine in the fleet, which its invitation decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Starts, stops and changes dataflows on all machines; invites, approves and revokes machines.
    Operator,
    /// Runs the parts of dataflows that operators give it, and reports about itself.
    #[default]
    Robot,
    /// Looks at all, changes nothing, and runs nothing.
    Observer,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Operator, Self::Robot, Self::Observer];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Robot => "robot",
            Self::Observer => "observer",
        }
    }

    /// Its name with its article: `a robot`.
    pub fn with_article(self) -> &'static str {
        match self {
            Self::Operator => "an operator",
            Self::Robot => "a robot",
            Self::Observer => "an observer",
        }
    }

    /// Whether a machine in this role may make a request to the daemon of another machine, about dataflows
    /// there. Samples of a common dataflow are no request.
    pub fn may_ask(self, ask: Ask) -> bool {
        match (self, ask) {
            (Self::Operator, _) | (Self::Observer, Ask::Look) => true,
            (Self::Observer, Ask::Change) | (Self::Robot, _) => false,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that is no role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `operator`, `robot` or `observer`")]
pub struct ParseRoleError;

impl FromStr for Role {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let role = Self::ALL.into_iter().find(|role| role.name() == text);
        role.ok_or(ParseRoleError)
    }
}

/// A request of one machine to the daemon of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// State, samples, logs, parameters: nothing changes.
    Look,
    /// Everything else: parameters that are set, nodes that are stopped or replaced.
    Change,
}

/// A request of a machine to the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Get one entry.
    Get,
    /// List the entries below a prefix, without those that the machine may not get.
    List,
    /// Follow the entries below a prefix, without those that the machine may not get.
    Watch,
    /// Set or remove one entry.
    Set,
    /// Let the coordinator change an entry: invite, approve or revoke a machine.
    Manage,
    /// Hold a lease. Leases have no owner, so that one machine could end a lease of another.
    Lease,
}

impl Method {
    fn verb(self) -> &'static str {
        match self {
            Self::Get | Self::List | Self::Watch => "read",
            Self::Set => "write",
            Self::Manage => "manage",
            Self::Lease => "have a lease for",
        }
    }
}

/// Access below a prefix: to the entry of the machine itself, or to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    read: Reach,
    write: Reach,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    None,
    Own,
    All,
    /// All, and only by [`Method::Manage`].
    Managed,
}

const fn access(read: Reach, write: Reach) -> Access {
    Access { read, write }
}

/// By prefix, for operator, robot and observer. Other prefixes are forbidden.
#[rustfmt::skip]
const TABLE: [(&str, [Access; 3]); 7] = {
    use Reach::{All, Managed, None, Own};
    [
        //             operator                robot               observer
        (MACHINES,    [access(All, Managed),   access(All, None),  access(All, None)]),
        (LINKS,       [access(All, Own),       access(All, Own),   access(All, Own)]),
        (ACTUAL,      [access(All, Own),       access(Own, Own),   access(All, Own)]),
        (DESIRED,     [access(All, All),       access(Own, None),  access(All, None)]),
        (ALIVE,       [access(All, None),      access(None, None), access(All, None)]),
        (INVITATIONS, [access(None, Managed),  access(None, None), access(None, None)]),
        (BUNDLES,     [access(All, All),       access(All, None),  access(None, None)]),
    ]
};

/// A machine may not use a method on a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is {} of this fleet, and may not {} `{key}`", role.with_article(), method.verb())]
pub struct Forbidden {
    name: String,
    role: Role,
    method: Method,
    key: String,
}

/// Checks that a machine of this name and role may use a method on a key, or on the keys below a prefix.
///
/// # Errors
/// If it may not.
pub fn check(name: &str, role: Role, method: Method, key: &str) -> Result<(), Forbidden> {
    match is_allowed(name, role, method, key) {
        true => Ok(()),
        false => Err(Forbidden {
            name: name.to_owned(),
            role,
            method,
            key: key.to_owned(),
        }),
    }
}

fn is_allowed(name: &str, role: Role, method: Method, key: &str) -> bool {
    let of_key = TABLE
        .iter()
        .find_map(|(prefix, roles)| Some((key.strip_prefix(prefix)?, roles[role as usize])));
    let Some((of, access)) = of_key else {
        return false;
    };
    let reach = match method {
        Method::Get | Method::List | Method::Watch => access.read,
        Method::Set | Method::Manage => access.write,
        Method::Lease => Reach::None,
    };
    match reach {
        Reach::None => false,
        Reach::Own => method != Method::Manage && of == name,
        Reach::All => method != Method::Manage,
        Reach::Managed => method == Method::Manage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every role, method and prefix, for an entry of the machine's own (`r`), of another (`o`), and
    /// the prefix as a whole (`p`).
    #[test]
    fn each_role_may_do_what_its_column_says() {
        const READ: [Method; 3] = [Method::Get, Method::List, Method::Watch];
        // (prefix, role) -> (read, set); entries that operators manage are marked `m`.
        let expected = |prefix: &str, role: Role| match (prefix, role) {
            (MACHINES, Role::Operator) => ("rop", "m"),
            (MACHINES, _) => ("rop", ""),
            (LINKS, _) => ("rop", "r"),
            (ACTUAL, Role::Robot) => ("r", "r"),
            (ACTUAL, _) => ("rop", "r"),
            (DESIRED, Role::Operator) => ("rop", "rop"),
            (DESIRED, Role::Robot) => ("r", ""),
            (DESIRED, Role::Observer) => ("rop", ""),
            (ALIVE, Role::Robot) => ("", ""),
            (ALIVE, _) => ("rop", ""),
            (INVITATIONS, Role::Operator) => ("", "m"),
            (INVITATIONS, _) => ("", ""),
            (BUNDLES, Role::Operator) => ("rop", "rop"),
            (BUNDLES, Role::Robot) => ("rop", ""),
            (BUNDLES, Role::Observer) => ("", ""),
            _ => ("", ""),
        };
        let prefixes = [
            MACHINES,
            LINKS,
            ACTUAL,
            DESIRED,
            ALIVE,
            INVITATIONS,
            BUNDLES,
            "",
            "desired",
            "d",
            "other/",
            "/desired/",
            "DESIRED/",
        ];
        let mut pairs = 0;
        for prefix in prefixes {
            for role in Role::ALL {
                let (read, set) = expected(prefix, role);
                for (which, of) in [('r', "robot"), ('o', "robot2"), ('o', "robo"), ('p', "")] {
                    let key = format!("{prefix}{of}");
                    let may = |method| check("robot", role, method, &key).is_ok();
                    for method in READ {
                        assert_eq!(may(method), read.contains(which), "{role} {method:?} {key}");
                    }
                    assert_eq!(may(Method::Set), set.contains(which), "{role} sets {key}");
                    assert_eq!(may(Method::Manage), set == "m", "{role} manages {key}");
                    assert!(!may(Method::Lease), "{role} has a lease for {key}");
                    pairs += 6;
                }
            }
        }
        assert_eq!(pairs, 13 * 3 * 4 * 6);
    }

    #[test]
    fn a_refusal_is_one_line_that_names_machine_role_and_key() {
        let refusal = check("r07", Role::Robot, Method::Set, "desired/r08").unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "`r07` is a robot of this fleet, and may not write `desired/r08`"
        );
        let refusal = check("tv", Role::Observer, Method::Set, "machines/x").unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "`tv` is an observer of this fleet, and may not write `machines/x`"
        );
    }

    #[test]
    fn a_robot_asks_nothing_of_others_and_an_observer_only_looks() {
        for role in Role::ALL {
            assert_eq!(role.name().parse(), Ok(role));
            assert_eq!(role.may_ask(Ask::Look), role != Role::Robot);
            assert_eq!(role.may_ask(Ask::Change), role == Role::Operator);
        }
        assert!("root".parse::<Role>().is_err());
    }
}
