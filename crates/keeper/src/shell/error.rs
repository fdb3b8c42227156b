//! Errors that end a keeper before its dataflow.

use std::io;

use nervure_shm::Shortage;

/// An error that ends a keeper before its dataflow.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The other end of its socket sent no dataflow.
    #[error("the keeper is started by `nervure run`, not by hand: {0}")]
    NotLaunched(String),
    /// The plan is not valid JSON, or has unknown values.
    #[error("the plan of the dataflow cannot be read: {0}")]
    Plan(#[from] serde_json::Error),
    /// The limit on open files is too low.
    #[error(
        "this dataflow needs {needed} file descriptors in its keeper ({terms}), and the hard limit is {limit}: \
         raise it with `ulimit -Hn {needed}` or `nofile` in /etc/security/limits.conf"
    )]
    Descriptors {
        /// Descriptors for this plan.
        needed: u64,
        /// The sum that leads to it, for people.
        terms: String,
        /// The hard limit.
        limit: u64,
    },
    /// A resource of the system was short for longer than the keeper retries.
    #[error("the keeper {what}: {shortage}")]
    Shortage {
        /// The operation.
        what: &'static str,
        /// The resource.
        shortage: Shortage,
    },
    /// Another error, after which processes of nodes were left that do not end.
    #[error("{error}; {leftovers}")]
    Leftovers {
        /// The first error.
        error: Box<Self>,
        /// The processes that are left.
        leftovers: io::Error,
    },
    /// A system call failed.
    #[error("{what}: {cause}")]
    System {
        /// The operation.
        what: &'static str,
        /// The error of the system call.
        cause: io::Error,
    },
}

/// Maps the error of a system call.
pub fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> KeeperError {
    move |cause| KeeperError::System {
        what,
        cause: cause.into(),
    }
}

/// As [`system`], for an operation that has changed nothing when it fails, so that it can be
/// retried when a resource is short.
pub fn retryable(what: &'static str) -> impl FnOnce(io::Error) -> KeeperError {
    move |cause| match Shortage::of(&cause) {
        Some(shortage) => KeeperError::Shortage { what, shortage },
        None => KeeperError::System { what, cause },
    }
}
