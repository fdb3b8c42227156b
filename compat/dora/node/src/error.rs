//! Errors of nodes.

use thiserror::Error;

/// Why a call of a node failed.
#[derive(Debug, Error)]
pub enum NodeError {
    /// The node could not be connected.
    #[error("initialization failed: {0}")]
    Init(String),
    /// An output could not be sent or closed.
    #[error("output error: {0}")]
    Output(String),
    /// Memory for data could not be borrowed.
    #[error("data error: {0}")]
    Data(String),
    /// Another error.
    #[error("internal error")]
    Internal(#[from] eyre::Report),
}

/// The result of a call of a node.
pub type NodeResult<T> = Result<T, NodeError>;

/// Why a response or result did not arrive.
#[derive(Debug, Error)]
pub enum PatternError {
    /// The time is over.
    #[error("pattern reply timed out")]
    Timeout,
    /// The server was restarted, and has forgotten the request.
    #[error("server `{0}` restarted while waiting for reply")]
    ServerRestarted(String),
    /// The node was stopped.
    #[error("event stream ended before pattern reply arrived")]
    StreamEnded,
    /// The stream of events failed.
    #[error("pattern wait failed: {0}")]
    StreamError(String),
}
