//! Why a keeper or a daemon is not connected.

use super::environment::named_by_environment;
use nervure_protocol::DATAFLOW_VARIABLE;
use nervure_protocol::ProtocolError;
use nervure_protocol::domain::{DOMAIN_VARIABLE, Domain, DomainError};
use nervure_protocol::keeper_to_cli::Refused;
use std::io;
use std::time::Duration;

/// Time limit for an answer of a keeper. A keeper never blocks, so one that exceeds it is stopped.
pub const KEEPER_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Why there is no connection, or no answer.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The list of sockets cannot be read.
    #[error("cannot list the running dataflows: {0}")]
    List(io::Error),
    /// The environment names no valid domain.
    #[error("{DOMAIN_VARIABLE}: {0}")]
    Domain(#[from] DomainError),
    /// No dataflow runs in the domain.
    #[error("no dataflow runs{}", .0.phrase())]
    NoneRuns(Domain),
    /// No dataflow with that name runs.
    #[error("no dataflow `{name}` runs; these do: {running}")]
    NotRunning {
        /// The requested name.
        name: String,
        /// The dataflows that run.
        running: String,
        /// The dataflow that was probably meant.
        nearest: Option<String>,
    },
    /// Several dataflows run, and none was named.
    #[error("several dataflows run: {running}")]
    Several {
        /// The dataflows that run.
        running: String,
    },
    /// The keeper runs as another user.
    #[error("dataflow `{dataflow}` belongs to user {theirs}, and this is user {ours}")]
    OtherUser {
        /// The dataflow's name.
        dataflow: String,
        /// The user ID of the keeper.
        theirs: u32,
        /// The user ID of this process.
        ours: u32,
    },
    /// The keeper ended, or closed the connection.
    #[error("the keeper of dataflow `{0}` is gone")]
    Gone(String),
    /// The keeper did not answer in time: it is probably stopped.
    #[error(
        "the keeper of dataflow `{dataflow}` (process {keeper}) has not answered within {KEEPER_ANSWER_TIMEOUT:?}"
    )]
    NoAnswer {
        /// The dataflow's name.
        dataflow: String,
        /// The keeper's process ID.
        keeper: u32,
    },
    /// The keeper refused the request.
    #[error("{}", .0.reason)]
    Refused(Refused),
    /// The daemon of this machine is needed, and does not run.
    #[error("the daemon of this machine does not run")]
    NoDaemon,
    /// The daemon of this machine gives no answer.
    #[error("the daemon of this machine has not answered within {0:?}")]
    DaemonSilent(Duration),
    /// The keeper's message could not be decoded.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The keeper answered with a message that does not fit the request.
    #[error("the keeper gave an unexpected answer: {0}")]
    Unexpected(String),
    /// A system call failed.
    #[error("cannot talk to the keeper: {0}")]
    System(#[from] io::Error),
}

impl ConnectionError {
    /// The likely fix.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoneRuns(_) => Some("start one with `nervure run FILE`".to_owned()),
            Self::Several { .. } => {
                let text = "select one with `-d NAME`, or with `-d PID` where names are the same; in a program with \
                            `dataflow=`; or with NERVURE_DATAFLOW in the environment";
                Some(text.to_owned())
            }
            Self::NotRunning { name, .. } if named_by_environment().as_ref() == Some(name) => Some(
                format!("{DATAFLOW_VARIABLE} is `{name}` in the environment"),
            ),
            Self::NotRunning { nearest, .. } => nearest
                .as_ref()
                .map(|near| format!("did you mean `{near}`?")),
            Self::OtherUser { theirs, .. } => {
                Some(format!("run this as user {theirs}, or as root"))
            }
            Self::NoAnswer { keeper, .. } => {
                Some(format!("is it stopped? `kill -CONT {keeper}` continues it"))
            }
            Self::Refused(refused) => refused.hint.clone(),
            Self::NoDaemon => Some("`nervure up` or `nervure join` starts it".to_owned()),
            _ => None,
        }
    }
}
