//! Requests of the `nervure` command to the daemon of its machine, on the daemon's socket.
//!
//! The first message is `Hello`, answered by `Welcome` or `Refused`. A connection is for one
//! further request. After [`Request::Reach`] it carries the messages of a client of the keeper,
//! [`cli_to_keeper`](crate::cli_to_keeper).

use serde::{Deserialize, Serialize};

use crate::{cli_to_keeper::Hello, daemon_to_daemon::Request};

/// A message from the command to a daemon. None carries descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// The first message.
    Hello(Hello),
    /// List the machines of the fleet and their dataflows. Answered by `Machine` for each, and
    /// `Answer` with `Done`.
    Machines,
    /// Pass a request on to the daemon of another machine. Answered by `Answer`s, and after `Reach`
    /// as by a keeper.
    Ask {
        /// Name of the machine.
        machine: String,
        /// The request.
        request: Request,
    },
    /// The user of this machine has ordered something of a run here: the order is in the run's folder.
    /// Answered by `Answer` with `Done`.
    ByHand {
        /// The id of the run.
        run: String,
    },
    /// Ask for the next sample of the observed topics.
    Next,
    /// A message of a later version.
    #[serde(other)]
    Unknown,
}
