//! A node that hosts operators: shared libraries with the functions of dora's C interface.
//!
//! The keeper starts the host with the operators as JSON in [`OPERATORS_VARIABLE`]. The node's inputs
//! and outputs are named `operator/input` and `operator/output`. One thread calls all operators of a
//! node, each event after the other.

mod host;
mod library;

pub use host::host;

/// The environment variable with the operators, as JSON:
/// `[{"id": "detect", "shared_library": "/a/libdetect.so", "inputs": ["image"], "outputs": ["boxes"]}]`.
pub const OPERATORS_VARIABLE: &str = "NERVURE_OPERATORS";

/// Why a host of operators has ended.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The program was not started by a keeper.
    #[error(
        "{OPERATORS_VARIABLE} does not name operators: {0}. A keeper starts this program, for a node with `operators`"
    )]
    Operators(String),
    /// The node could not be connected.
    #[error(transparent)]
    Connect(#[from] nervure_node::ConnectError),
    /// A library cannot be used.
    #[error(
        "operator {operator}: the library {path} cannot be loaded: {cause}. Link it with `-ldora_operator_api_c`, \
         and let it define `dora_init_operator`, `dora_on_event` and `dora_drop_operator`"
    )]
    Library {
        /// The operator's id.
        operator: String,
        /// The library.
        path: String,
        /// The error of the loader.
        cause: libloading::Error,
    },
    /// A function of an operator has failed.
    #[error("operator {operator}: {function} failed: {message}")]
    Operator {
        /// The operator's id.
        operator: String,
        /// The function.
        function: &'static str,
        /// The operator's error.
        message: String,
    },
    /// An operator tried to stop the dataflow.
    #[error(
        "operator {operator} returned DORA_STATUS_STOP_ALL: an operator cannot stop the dataflow. \
         Return DORA_STATUS_STOP, and let the nodes behind it end when their inputs are closed"
    )]
    StopAll {
        /// The operator's id.
        operator: String,
    },
}
