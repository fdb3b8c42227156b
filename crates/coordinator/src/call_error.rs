//! Errors of calls to the coordinator.

use std::net::SocketAddr;

/// Why a call had no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There is no connection, or it was lost.
    #[error("the coordinator at {address} cannot be reached: {reason}")]
    Unreachable {
        /// Its address.
        address: SocketAddr,
        /// The reason.
        reason: String,
    },
    /// The coordinator refused the call.
    #[error("the coordinator at {address} refuses this machine: {reason}")]
    Refused {
        /// Its address.
        address: SocketAddr,
        /// The reason.
        reason: String,
    },
    /// The answer is none of this protocol.
    #[error("the coordinator at {address} gave an unexpected answer: {reason}")]
    Unexpected {
        /// Its address.
        address: SocketAddr,
        /// The reason.
        reason: String,
    },
}
