//! Errors of connecting, and unknown names.

use crate::running::ConnectionError;
use nervure_protocol::{ProtocolError, nearest};
use std::io;
use std::path::PathBuf;

/// Why a node could not connect to its keeper.
///
/// Its debug form is its message, because a `main` that returns the error prints that form.
#[derive(thiserror::Error)]
pub enum ConnectError {
    /// The program was started on its own, and not as a node.
    #[error(
        "this program is a Nervure node and was started on its own: there is no {variable} in its environment. \
         Start it from a dataflow file: nervure run dataflow.yml; or let it join a node with `path: dynamic` by its id"
    )]
    NotStartedAsNode {
        /// The environment variable that a keeper sets.
        variable: &'static str,
    },
    /// The program was started as one node, and tried to join as another.
    #[error("this program was started as node {is:?}, and asks to be node {asked:?}")]
    OtherNode {
        /// The id with which it tried to join.
        asked: String,
        /// The id that the program was started with.
        is: String,
    },
    /// There is no dataflow to join, or its keeper refused the program.
    #[error("{cause}{hint}", cause = .0, hint = hint(.0))]
    Join(#[from] ConnectionError),
    /// The token that allows this user to join cannot be read.
    #[error("the token of the dataflow, {path}, cannot be read: {cause}", path = .path.display())]
    Token {
        /// The token's file.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// The control socket cannot be used.
    #[error(
        "the control socket {number} named by {variable} cannot be used: {reason}. A process has one node: \
         was another made before, or is this a child process of a node?"
    )]
    NoControlSocket {
        /// The environment variable that a keeper sets.
        variable: &'static str,
        /// Its value.
        number: String,
        /// Why the socket cannot be used.
        reason: String,
    },
    /// The dataflow file requires locked memory, which this user may not have.
    #[error(transparent)]
    MemoryLock(#[from] nervure_shm::NotLocked),
    /// The keeper ended, or closed the connection.
    #[error("the keeper closed the connection before the node was wired")]
    KeeperGone,
    /// The keeper refused the node.
    #[error("the keeper refused this node: {0}")]
    Refused(String),
    /// The keeper's message could not be decoded.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The keeper's first message was not a welcome.
    #[error("expected the keeper's welcome with {expected} descriptors, got {got}")]
    Unexpected {
        /// The number of descriptors that a welcome carries.
        expected: usize,
        /// The message or number of descriptors that arrived.
        got: String,
    },
    /// The definition of a type cannot be used.
    #[error("the keeper's definition of {name} cannot be used: {cause}")]
    Type {
        /// The type.
        name: String,
        /// The defect.
        cause: nervure_types::PortableError,
    },
    /// The caller ended the wait.
    #[error("interrupted by a signal")]
    Interrupted,
    /// A system call failed.
    #[error("cannot set up the node: {0}")]
    System(#[from] io::Error),
}

fn hint(error: &ConnectionError) -> String {
    error
        .hint()
        .map(|hint| format!(" (hint: {hint})"))
        .unwrap_or_default()
}

impl std::fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// A name that the dataflow file does not declare for the node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {node} has no {kind} {name:?}; {}", described(.kind, .name, .known))]
pub struct UnknownName {
    /// The node's id.
    pub node: String,
    /// `input`, `output`, `parameter` or `client`.
    pub kind: &'static str,
    /// The unknown name.
    pub name: String,
    /// The names that are declared.
    pub known: Vec<String>,
}

fn described(kind: &str, name: &str, known: &[String]) -> String {
    if known.is_empty() {
        return format!("it has no {kind}s: declare it in the dataflow file");
    }
    let listed = format!("its {kind}s are: {}", known.join(", "));
    match nearest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("{listed}; did you mean {near:?}?"),
        None => listed,
    }
}
