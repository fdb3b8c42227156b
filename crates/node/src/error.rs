//! What can go wrong besides sending.

use crate::running::ConnectionError;
use nervure_protocol::{ProtocolError, nearest};
use std::io;
use std::path::PathBuf;

/// Why a node could not connect to its keeper.
///
/// Its debug form is its message: that is what a `main` that returns it prints.
#[derive(thiserror::Error)]
pub enum ConnectError {
    /// The program was not started as a node.
    #[error(
        "this program is a Nervure node and was started on its own: there is no {variable} in its environment. \
         Start it from a dataflow file: nervure run dataflow.yml; or let it join a node with `path: dynamic` by its id"
    )]
    NotStartedAsNode {
        /// The variable that a keeper sets.
        variable: &'static str,
    },
    /// The program was started as another node.
    #[error("this program was started as node {is:?}, and asks to be node {asked:?}")]
    OtherNode {
        /// The node that it asks to be.
        asked: String,
        /// The node that it is.
        is: String,
    },
    /// There is no dataflow to join, or its keeper refused.
    #[error("{cause}{hint}", cause = .0, hint = hint(.0))]
    Join(#[from] ConnectionError),
    /// What shows that this user may join cannot be read.
    #[error("the token of the dataflow, {path}, cannot be read: {cause}", path = .path.display())]
    Token {
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The control socket is not there.
    #[error(
        "the control socket {number} named by {variable} cannot be used: {reason}. A process has one node: \
         was another made before, or is this a child process of a node?"
    )]
    NoControlSocket {
        /// The variable that a keeper sets.
        variable: &'static str,
        /// What it says.
        number: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The keeper is gone, or hung up.
    #[error("the keeper closed the connection before the node was wired")]
    KeeperGone,
    /// The keeper refused the node.
    #[error("the keeper refused this node: {0}")]
    Refused(String),
    /// The keeper said something unexpected.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The keeper's first message was another.
    #[error("expected the keeper's welcome with {expected} descriptors, got {got}")]
    Unexpected {
        /// Descriptors of a welcome.
        expected: usize,
        /// What came.
        got: String,
    },
    /// The caller asked to give up.
    #[error("interrupted by a signal")]
    Interrupted,
    /// The system refused something.
    #[error("cannot set the node up: {0}")]
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

/// A name that the node has not declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {node} has no {kind} {name:?}; {}", described(.kind, .name, .known))]
pub struct UnknownName {
    /// The node's id.
    pub node: String,
    /// `input`, `output`, `parameter` or `client`.
    pub kind: &'static str,
    /// The name that was asked for.
    pub name: String,
    /// The names that there are.
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
