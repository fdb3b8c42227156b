//! Whether a request of another machine is allowed. Every request passes here.

use nervure_coordinator::{Ask, Role};
use nervure_protocol::cli_to_keeper;
use nervure_protocol::daemon_to_daemon::Request;
use nervure_protocol::keeper_to_cli::Refused;

/// The machine that asks.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub machine: String,
    pub role: Role,
}

/// A request of another machine.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked<'a> {
    /// A request to this daemon, which changes nothing.
    Request(&'a Request),
    /// A message to a keeper that was reached.
    Keeper(&'a cli_to_keeper::Message),
}

/// Decides on a request of a machine: its role has to allow it, and it has to be possible from another
/// machine.
pub(super) fn check(asker: &Asker, asked: Asked<'_>) -> Result<(), Refused> {
    let Asker { machine, role } = asker;
    let ask = match asked {
        Asked::Request(
            Request::List
            | Request::Reach { .. }
            | Request::Observe { .. }
            | Request::Measure { .. }
            | Request::Logs { .. },
        ) => Ask::Look,
        Asked::Keeper(message) => ask_of(message)?,
    };
    if role.may_ask(ask) {
        return Ok(());
    }
    let (may_not, who) = match ask {
        Ask::Look => ("does not see dataflows of others", "operator or observer"),
        Ask::Change => ("changes nothing on others", "operator"),
    };
    Err(Refused::new(
        format!("{machine} is {}, and {may_not}", role.with_article()),
        Some(&format!(
            "run the command on a machine that is {who}: `nervure machine list`"
        )),
    ))
}

/// Classifies a message to a keeper. Refuses one that would need descriptors, or a process on the machine.
fn ask_of(message: &cli_to_keeper::Message) -> Result<Ask, Refused> {
    use cli_to_keeper::Message;
    match message {
        Message::Watch(_) | Message::Params { .. } => Ok(Ask::Look),
        Message::SetParam(_)
        | Message::Call(_)
        | Message::Publish(_)
        | Message::Node { .. }
        | Message::Stop { .. }
        | Message::Drain { .. }
        | Message::Kill
        | Message::Pause
        | Message::Resume => Ok(Ask::Change),
        Message::Replace(_) | Message::Attach(_) | Message::Join(_) => Err(Refused::new(
            "a program runs in the place of a node on the node's own machine only",
            Some("run the command there"),
        )),
        Message::Hello(_) | Message::Observe(_) | Message::Unknown => Err(Refused::new(
            "this request does not cross machines",
            Some("do both machines have the same version of nervure?"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(role: Role, asked: Asked<'_>) -> Result<(), String> {
        let machine = "spot".to_owned();
        check(&Asker { machine, role }, asked).map_err(|refused| refused.reason)
    }

    #[test]
    fn what_needs_descriptors_does_not_cross_machines() {
        use cli_to_keeper::{Message, Observe};
        let check = |message| checked(Role::Operator, Asked::Keeper(&message)).is_ok();
        assert!(check(Message::Kill));
        assert!(!check(Message::Unknown));
        assert!(!check(Message::Observe(Observe {
            topics: Vec::new(),
            depth: 1
        })));
    }

    #[test]
    fn a_role_that_may_not_ask_is_named() {
        let look = Asked::Request(&Request::List);
        let stop = cli_to_keeper::Message::Kill;
        let change = Asked::Keeper(&stop);
        assert_eq!(checked(Role::Operator, change), Ok(()));
        assert_eq!(checked(Role::Observer, look), Ok(()));
        let refused = |role, asked| checked(role, asked).unwrap_err();
        assert_eq!(
            refused(Role::Observer, change),
            "spot is an observer, and changes nothing on others"
        );
        assert_eq!(
            refused(Role::Robot, look),
            "spot is a robot, and does not see dataflows of others"
        );
        assert_eq!(
            refused(Role::Robot, change),
            "spot is a robot, and changes nothing on others"
        );
    }
}
