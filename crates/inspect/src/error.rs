//! The error of this crate.

use std::{error::Error as _, io, path::PathBuf, time::Duration};

use nervure_node::{ConnectError, ObserveError, message::SerdeError, running::ConnectionError};
use nervure_protocol::did_you_mean;
use nervure_types::Misfit;

/// A running dataflow cannot be found, shown or observed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A keeper or the daemon of this machine refused, or gave no answer.
    #[error("{0}")]
    Connection(ConnectionError),
    /// The keeper accepted an observer, but it could not be set up.
    #[error("cannot observe the dataflow")]
    Observe(#[source] ConnectError),
    /// The state folder of this machine cannot be used.
    #[error("the state of this machine cannot be used")]
    Folder(#[source] io::Error),
    /// The key of this machine cannot be used.
    #[cfg(feature = "fleet")]
    #[error("{0}")]
    Key(nervure_identity::IdentityError),
    /// The system refused a thread.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// No part of a dataflow can be reached.
    #[error("no part of `{dataflow}` can be reached")]
    NotReached {
        /// The dataflow.
        dataflow: String,
        /// Why each part cannot be reached.
        reasons: Vec<String>,
    },
    /// The machine of a node cannot be reached.
    #[error("{reason}")]
    NodeAway {
        /// The node.
        node: String,
        /// Its machine.
        machine: String,
        /// Why the machine cannot be reached.
        reason: String,
    },
    /// The keeper did not send the state of its dataflow.
    #[error("the keeper does not answer a request for the state of its dataflow")]
    NoState,
    /// The keeper named a node beyond the possible number.
    #[error("a keeper names node {node}, expected less than {limit}")]
    NodeIndex {
        /// The index of the keeper.
        node: u32,
        /// The number of possible nodes.
        limit: u32,
    },
    /// The system refused to wait.
    #[error("cannot wait for the keeper")]
    Wait(#[source] rustix::io::Errno),
    /// The dataflow ended during a measurement.
    #[error("the dataflow has ended")]
    Ended,
    /// A name and an option name different dataflows.
    #[error("`{text}` names dataflow `{named}`, but `-d` names `{other}`")]
    TwoDataflows {
        /// The name with a dataflow in it.
        text: String,
        /// The dataflow in it.
        named: String,
        /// The other dataflow.
        other: String,
    },
    /// No topic matches a pattern.
    #[error("there is no topic `{pattern}`")]
    NoTopic {
        /// The pattern.
        pattern: String,
        /// The topics of the dataflow.
        topics: Vec<String>,
        /// Why machines that may have it cannot be reached.
        unreachable: Vec<String>,
    },
    /// No node has this name.
    #[error("there is no node `{node}`")]
    NoNode {
        /// The name.
        node: String,
        /// The nodes of the dataflow.
        nodes: Vec<String>,
    },
    /// A node has no parameter of this name.
    #[error("node `{node}` has no parameter `{param}`")]
    NoParam {
        /// The node.
        node: String,
        /// The name.
        param: String,
        /// Its parameters.
        params: Vec<String>,
    },
    /// No node has a service of this name.
    #[error("there is no service `{service}`")]
    NoService {
        /// The name.
        service: String,
        /// The services of the dataflow.
        services: Vec<String>,
        /// Why machines that may have it cannot be reached.
        unreachable: Vec<String>,
    },
    /// No node has an action of this name.
    #[error("there is no action `{action}`")]
    NoAction {
        /// The name.
        action: String,
        /// The actions of the dataflow.
        actions: Vec<String>,
        /// Why machines that may have it cannot be reached.
        unreachable: Vec<String>,
    },
    /// The goal of an action was cancelled.
    #[error("the goal of `{service}` was cancelled")]
    GoalCanceled {
        /// `node/action`.
        service: String,
    },
    /// A value cannot be a sample.
    #[error("the value cannot be sent")]
    Value(#[source] SerdeError),
    /// A value does not fit its type.
    #[error("the value does not fit")]
    Misfit(#[source] Misfit),
    /// A service reported a failure.
    #[error("service `{service}` failed: {reason}")]
    ServiceFailed {
        /// `node/service`.
        service: String,
        /// The reason that the service gave.
        reason: String,
    },
    /// The process of a service ended.
    #[error("service `{service}` ended before it answered")]
    ServiceEnded {
        /// `node/service`.
        service: String,
    },
    /// A service has not answered in time.
    #[error("service `{service}` has not answered within {timeout:?}")]
    NoAnswer {
        /// `node/service`.
        service: String,
        /// Time of the wait.
        timeout: Duration,
    },
    /// The dataflow writes no log files.
    #[error("this dataflow writes no logs: it was started with `--no-logs`")]
    NoLogs,
    /// A log file or folder cannot be read.
    #[error("cannot read `{}`", path.display())]
    Logs {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A sample of another machine cannot be read.
    #[error("a sample of another machine cannot be read")]
    Sample(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<ConnectionError> for Error {
    fn from(error: ConnectionError) -> Self {
        Self::Connection(error)
    }
}

impl From<ObserveError> for Error {
    fn from(error: ObserveError) -> Self {
        match error {
            ObserveError::Connection(error) => Self::Connection(error),
            ObserveError::Connect(error) => Self::Observe(error),
        }
    }
}

/// The exit code when something in Nervure or in the system failed.
pub const INTERNAL: u8 = 1;

/// The exit code when the request or a dataflow file is wrong.
pub const INVALID: u8 = 2;

/// An error as surfaces show it.
pub trait Fault: std::error::Error {
    /// Whether the request is wrong, not Nervure or the system.
    fn is_invalid(&self) -> bool;

    /// Whether a named thing does not exist.
    fn is_missing(&self) -> bool {
        false
    }

    /// The causes, the nearest first.
    fn causes(&self) -> Vec<String> {
        self.source().iter().map(ToString::to_string).collect()
    }

    /// The likely fix.
    fn hint(&self) -> Option<String>;

    /// The exit code of a command that fails so.
    fn exit_code(&self) -> u8 {
        match self.is_invalid() {
            true => INVALID,
            false => INTERNAL,
        }
    }

    /// The text, followed by the causes.
    fn text_with_causes(&self) -> String {
        let mut parts = vec![self.to_string()];
        parts.extend(self.causes());
        parts.join(": ")
    }
}

impl Fault for Error {
    fn is_invalid(&self) -> bool {
        match self {
            Self::Connection(error) => matches!(
                error,
                ConnectionError::NotRunning { .. }
                    | ConnectionError::Several { .. }
                    | ConnectionError::Refused(_)
                    | ConnectionError::OtherUser { .. }
            ),
            Self::TwoDataflows { .. }
            | Self::NoTopic { .. }
            | Self::NoNode { .. }
            | Self::NoParam { .. }
            | Self::NoService { .. }
            | Self::NoAction { .. }
            | Self::Value(_)
            | Self::Misfit(_)
            | Self::NoLogs => true,
            _ => false,
        }
    }

    fn is_missing(&self) -> bool {
        matches!(
            self,
            Self::Connection(ConnectionError::NoneRuns(_) | ConnectionError::NotRunning { .. })
                | Self::NoNode { .. }
                | Self::NoParam { .. }
                | Self::NoService { .. }
                | Self::NoAction { .. }
        )
    }

    fn causes(&self) -> Vec<String> {
        match self {
            Self::NotReached { reasons, .. } => reasons.clone(),
            Self::NoTopic { unreachable, .. }
            | Self::NoService { unreachable, .. }
            | Self::NoAction { unreachable, .. } => unreachable.clone(),
            _ => self.source().iter().map(ToString::to_string).collect(),
        }
    }

    fn hint(&self) -> Option<String> {
        const NO_THREAD: &str = "`ulimit -u`, or `TasksMax` of a systemd unit, limits their number; `ulimit -v` their memory";
        const NO_FOLDER: &str =
            "NERVURE_STATE names its folder; the default is ~/.local/state/nervure";
        const DAMAGED_FOLDER: &str = "restore the file from a backup; or remove it, and run `nervure up` on the machine of the \
             coordinator, or `nervure join` with a new invitation on another";
        const NO_PARAMS: &str =
            "it has no parameters: declare them in `params` of the dataflow file";
        match self {
            Self::Connection(error) => error.hint(),
            Self::Thread(_) => Some(NO_THREAD.to_owned()),
            Self::Folder(error) if error.kind() == io::ErrorKind::InvalidData => {
                Some(DAMAGED_FOLDER.to_owned())
            }
            Self::Folder(_) => Some(NO_FOLDER.to_owned()),
            Self::NodeAway { node, machine, .. } => {
                Some(format!("node `{node}` was on {machine} last"))
            }
            Self::NoTopic { topics, .. } if topics.is_empty() => {
                Some("its nodes have no outputs".to_owned())
            }
            Self::NoTopic {
                pattern, topics, ..
            } => Some(nearest(pattern, "the topics are", topics)),
            Self::NoService { services, .. } if services.is_empty() => Some(
                "no node has services: declare them in `services` of the dataflow file".to_owned(),
            ),
            Self::NoService {
                service, services, ..
            } => Some(nearest(service, "the services are", services)),
            Self::NoAction { actions, .. } if actions.is_empty() => Some(
                "no node has actions: declare them in `actions` of the dataflow file".to_owned(),
            ),
            Self::NoAction {
                action, actions, ..
            } => Some(nearest(action, "the actions are", actions)),
            Self::ServiceEnded { service } => {
                let node = service.split('/').next().unwrap_or_default();
                Some(format!("`nervure logs --node {node}` shows why"))
            }
            Self::NoNode { node, nodes } => Some(nearest(node, "its nodes are", nodes)),
            Self::NoParam { params, .. } if params.is_empty() => Some(NO_PARAMS.to_owned()),
            Self::NoParam { param, params, .. } => {
                Some(nearest(param, "its parameters are", params))
            }
            _ => None,
        }
    }
}

fn nearest(name: &str, begin: &str, known: &[String]) -> String {
    did_you_mean(name, begin, known.iter().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use nervure_protocol::domain::Domain;

    use super::*;

    #[test]
    fn a_dataflow_that_does_not_run_is_missing_and_a_wrong_request_if_it_was_named() {
        let none = Error::from(ConnectionError::NoneRuns(Domain::default()));
        let other = Error::from(ConnectionError::NotRunning {
            name: "drvie".to_owned(),
            running: "drive".to_owned(),
            nearest: Some("drive".to_owned()),
        });
        assert!(none.is_missing() && other.is_missing());
        assert_eq!((none.exit_code(), other.exit_code()), (INTERNAL, INVALID));
        assert_eq!(other.hint().as_deref(), Some("did you mean `drive`?"));
        let silent = Error::from(ConnectionError::NoDaemon);
        assert_eq!((silent.is_missing(), silent.exit_code()), (false, INTERNAL));
    }

    #[test]
    fn causes_follow_the_text_and_are_not_in_it() {
        let away = Error::NoTopic {
            pattern: "camera/imgae".to_owned(),
            topics: vec!["camera/image".to_owned()],
            unreachable: vec!["edge is away".to_owned()],
        };
        assert_eq!(
            away.text_with_causes(),
            "there is no topic `camera/imgae`: edge is away"
        );
        assert!(
            away.hint()
                .is_some_and(|hint| hint.contains("camera/image"))
        );
        let refused = Error::Thread(io::Error::other("no memory"));
        assert_eq!(
            refused.text_with_causes(),
            "cannot start a thread: no memory"
        );
        // The text of a connection's error has its cause already.
        let broken = ConnectionError::System(io::Error::other("no route"));
        assert_eq!(Error::from(broken).causes(), [""; 0]);
    }
}
