//! Control messages between Nervure's processes, one file per arrow, and their parts: [`graph`] has
//! the declarations of a dataflow file, [`wiring`] a node's view of its edges, [`report`] the
//! events of a dataflow, [`loss`] the causes of losses between machines.
//!
//! A message is one JSON object in one packet of a `SOCK_SEQPACKET` socket, with its file
//! descriptors as `SCM_RIGHTS` of the same packet, in the order that the message documents. The
//! format is JSON because control messages are rare, people read them when debugging, and an older
//! peer can ignore fields that it does not know. Payloads never travel here.
//!
//! Versions: the first message of a node carries the range that it speaks, [`VERSIONS`]; the keeper
//! answers with the highest that both speak, or refuses with both ranges named. This build speaks N
//! and N-1, where N-1 exists.

pub mod address;
pub mod cli_to_daemon;
pub mod cli_to_keeper;
pub mod daemon_to_cli;
pub mod daemon_to_daemon;
pub mod domain;
pub mod graph;
pub mod host_to_keeper;
pub mod keeper_to_cli;
pub mod keeper_to_host;
pub mod keeper_to_node;
pub mod loss;
pub mod nanos;
mod nearest;
pub mod node_to_keeper;
pub mod node_to_telemetry;
pub mod params;
pub mod report;
pub mod wiring;

pub use nearest::{did_you_mean, nearest};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The environment variable with the number of the control socket's descriptor, for nodes that the
/// keeper starts.
pub const CONTROL_FD_VARIABLE: &str = "NERVURE_CONTROL_FD";

/// The environment variable with the number of the descriptor of a host's connection to its keeper.
pub const HOST_FD_VARIABLE: &str = "NERVURE_HOST_FD";

/// The environment variable with the name of a dataflow, used where the command line has no `-d`.
pub const DATAFLOW_VARIABLE: &str = "NERVURE_DATAFLOW";

/// The environment variable with the path of the dataflow file, for nodes that the keeper starts.
pub const DATAFLOW_FILE_VARIABLE: &str = "NERVURE_DATAFLOW_FILE";

/// The environment variable with the id of the node that a process joins as.
pub const NODE_VARIABLE: &str = "NERVURE_NODE";

/// The environment variable with the token for joining as a node.
pub const TOKEN_VARIABLE: &str = "NERVURE_TOKEN";

/// The environment variable with the name of the machine in its fleet, for nodes that a daemon starts.
pub const MACHINE_VARIABLE: &str = "NERVURE_MACHINE";

/// The environment variable with the number of traces a second that each output of a source begins.
pub const TRACES_VARIABLE: &str = "NERVURE_TRACES_PER_SECOND";

/// The file in the log folder of a run, readable by its user only, with the token for nodes with
/// `path: dynamic`.
pub const TOKEN_FILE: &str = "join.token";

/// The signal on which a node with a handler for it writes the stacks of its threads to stderr. It
/// is a real-time signal from the middle of their range: libraries that use some take them from the
/// ends.
pub const STACKS_SIGNAL: i32 = 50;

/// Control protocol versions that this build speaks.
pub const VERSIONS: VersionRange = VersionRange { min: 1, max: 1 };

/// Maximum size of a control message in bytes. The receiver refuses larger packets.
pub const MAX_MESSAGE_BYTES: usize = 160 * 1024;

/// Maximum size of a value of `on_failure` as JSON, in bytes.
pub const MAX_LAST_VALUE_BYTES: usize = 16 * 1024;

/// Maximum number of descriptors in a packet (the kernel's `SCM_MAX_FD`).
pub const MAX_MESSAGE_FDS: usize = 253;

/// An inclusive range of protocol versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRange {
    /// The oldest version supported.
    pub min: u32,
    /// The newest version supported.
    pub max: u32,
}

impl VersionRange {
    /// The highest version in both ranges.
    ///
    /// # Errors
    /// [`ProtocolError::Version`] with both ranges if they do not overlap.
    pub fn negotiate(self, peer: Self) -> Result<u32, ProtocolError> {
        let version = self.max.min(peer.max);
        if version >= self.min.max(peer.min) {
            Ok(version)
        } else {
            Err(ProtocolError::Version {
                ours: self,
                theirs: peer,
            })
        }
    }
}

impl std::fmt::Display for VersionRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.min == self.max {
            write!(f, "{}", self.max)
        } else {
            write!(f, "{} to {}", self.min, self.max)
        }
    }
}

/// Why a control message was refused.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// Both ends have no version in common.
    #[error(
        "control protocol version mismatch: this end speaks {ours}, the other end speaks {theirs}"
    )]
    Version {
        /// The versions that this build supports.
        ours: VersionRange,
        /// The versions that the other end announced.
        theirs: VersionRange,
    },
    /// The packet is not a valid message of this direction.
    #[error("malformed control message: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The packet is longer than [`MAX_MESSAGE_BYTES`].
    #[error("control message of {bytes} bytes, expected at most {MAX_MESSAGE_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

/// Encodes one message.
///
/// # Errors
/// [`ProtocolError::TooLarge`] above [`MAX_MESSAGE_BYTES`].
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, ProtocolError> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(ProtocolError::TooLarge { bytes: bytes.len() });
    }
    Ok(bytes)
}

/// Decodes one packet.
///
/// # Errors
/// [`ProtocolError`] when the packet is too large or not a valid message of this direction.
pub fn decode<M: DeserializeOwned>(packet: &[u8]) -> Result<M, ProtocolError> {
    if packet.len() > MAX_MESSAGE_BYTES {
        return Err(ProtocolError::TooLarge {
            bytes: packet.len(),
        });
    }
    Ok(serde_json::from_slice(packet)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_common_version_is_chosen_and_a_gap_is_named() {
        let range = |min, max| VersionRange { min, max };
        assert_eq!(range(1, 2).negotiate(range(2, 3)).unwrap(), 2);
        assert_eq!(range(2, 3).negotiate(range(1, 9)).unwrap(), 3);
        let error = range(3, 4).negotiate(range(1, 2)).unwrap_err().to_string();
        assert!(
            error.contains("version") && error.contains("3 to 4") && error.contains("1 to 2"),
            "{error}"
        );
    }

    #[test]
    fn an_unknown_event_of_a_newer_keeper_is_ignored() {
        let message: keeper_to_node::Message =
            decode(br#"{"message":"event","kind":"SUNRISE","node":"x","colour":3}"#).unwrap();
        assert!(matches!(message, keeper_to_node::Message::Event(_)));
        let message: keeper_to_node::Message =
            decode(br#"{"message":"from_the_future","a":1}"#).unwrap();
        assert!(matches!(message, keeper_to_node::Message::Unknown));
    }

    #[test]
    fn malformed_packets_are_errors() {
        assert!(decode::<keeper_to_node::Message>(b"\xff\xfe").is_err());
        assert!(matches!(
            decode::<keeper_to_node::Message>(&vec![b' '; MAX_MESSAGE_BYTES + 1]),
            Err(ProtocolError::TooLarge { .. })
        ));
    }
}
