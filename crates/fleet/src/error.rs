//! The error of this crate.

use std::{error::Error as _, io};

use nervure_coordinator::CallError;
use nervure_inspect::Fault;
use nervure_store::StoreError;

use crate::stopped::Roll;

/// A fleet cannot be asked, or does not carry out an order.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A keeper, the daemon or the state folder of this machine.
    #[error("{0}")]
    Inspect(nervure_inspect::Error),
    /// This machine has not joined one.
    #[error("this machine belongs to no fleet")]
    NoFleet,
    /// A client of the coordinator cannot be started.
    #[error("cannot start a client")]
    Client(#[source] io::Error),
    /// The address of a coordinator has no host.
    #[error("the address {address} cannot be found")]
    Address {
        /// The address.
        address: String,
        /// The error of the resolver.
        source: io::Error,
    },
    /// The store of the fleet refused, or cannot be reached.
    #[error("{0}")]
    Store(StoreError),
    /// The coordinator refused a call, or cannot be reached.
    #[error("{0}")]
    Call(CallError),
    /// There are no random numbers.
    #[error("cannot make an id for the run")]
    Id(#[source] io::Error),
    /// Machines did not carry out an order in time.
    #[error("{machines} did not {what} within {limit}")]
    Late {
        /// Their names.
        machines: String,
        /// The order.
        what: String,
        /// The time limit.
        limit: String,
    },
    /// The listener failed to show progress.
    #[error("the progress cannot be shown")]
    Listener(#[source] io::Error),
    /// Roles cannot be placed on machines.
    #[error("the dataflow cannot be placed, and nothing was started")]
    Placement {
        /// Each role, and why.
        problems: Vec<String>,
    },
    /// A binding is wrong.
    #[error("{text}")]
    Binding {
        /// The binding, and why.
        text: String,
        /// The likely fix.
        hint: Option<String>,
    },
    /// The program of a node cannot be replaced.
    #[error("{text}")]
    Node {
        /// The node, and why.
        text: String,
        /// The likely fix.
        hint: Option<String>,
    },
    /// A roll has stopped at an instance.
    #[error("{} was not replaced: {}", .0.what, .0.stop.why)]
    Roll(Box<Roll>),
}

impl From<nervure_inspect::Error> for Error {
    fn from(error: nervure_inspect::Error) -> Self {
        Self::Inspect(error)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl Fault for Error {
    fn is_invalid(&self) -> bool {
        match self {
            Self::Inspect(error) => error.is_invalid(),
            Self::Store(error) => matches!(error, StoreError::Refused(_)),
            Self::Call(error) => matches!(error, CallError::Refused { .. }),
            Self::NoFleet
            | Self::Placement { .. }
            | Self::Binding { .. }
            | Self::Node { .. }
            | Self::Roll(_) => true,
            Self::Client(_)
            | Self::Address { .. }
            | Self::Id(_)
            | Self::Late { .. }
            | Self::Listener(_) => false,
        }
    }

    fn is_missing(&self) -> bool {
        match self {
            Self::Inspect(error) => error.is_missing(),
            _ => false,
        }
    }

    fn causes(&self) -> Vec<String> {
        match self {
            Self::Inspect(error) => error.causes(),
            Self::Placement { problems } => problems.clone(),
            Self::Roll(roll) => roll.causes(),
            _ => self.source().iter().map(ToString::to_string).collect(),
        }
    }

    fn hint(&self) -> Option<String> {
        const NO_FLEET: &str =
            "`nervure up` makes one, and prints the `nervure join ..` for other machines";
        const REFUSED: &str = "`nervure machine list` on an operator's machine shows the role of each; \
                               `nervure machine invite --role ROLE` there makes an invitation";
        const BIND: &str =
            "bind each role with `--bind ROLE=MACHINE`; `nervure machine list` lists the machines";
        let text = match self {
            Self::Inspect(error) => return error.hint(),
            Self::Binding { hint, .. } | Self::Node { hint, .. } => return hint.clone(),
            Self::NoFleet => NO_FLEET,
            Self::Store(StoreError::Refused(_)) | Self::Call(CallError::Refused { .. }) => REFUSED,
            Self::Store(_) => "does `nervure up` run?",
            Self::Call(CallError::Unreachable { .. }) => {
                "does `nervure up` run, and can this machine reach it?"
            }
            Self::Placement { .. } => BIND,
            Self::Call(CallError::Unexpected { .. })
            | Self::Client(_)
            | Self::Address { .. }
            | Self::Id(_)
            | Self::Late { .. }
            | Self::Listener(_)
            | Self::Roll(_) => return None,
        };
        Some(text.to_owned())
    }
}
