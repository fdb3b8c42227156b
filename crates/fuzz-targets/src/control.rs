//! Messages from a malicious process on a control socket, or from another machine. They are
//! refused, or decoded to a message that survives encoding.
//!
//! The first byte selects the kind of message.

use std::fmt::Debug;

use nervure_protocol::{
    ProtocolError, VERSIONS, cli_to_daemon, cli_to_keeper, daemon_to_cli, daemon_to_daemon, decode,
    encode, host_to_keeper, keeper_to_cli, keeper_to_host, keeper_to_node, node_to_keeper,
    node_to_telemetry, report::Report,
};
use serde::{Serialize, de::DeserializeOwned};

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let Some((arrow, packet)) = bytes.split_first() else {
        return;
    };
    match arrow {
        b'0' => check::<keeper_to_node::Message>(packet),
        b'1' => check::<node_to_keeper::Message>(packet),
        b'2' => check::<Report>(packet),
        b'3' => check::<cli_to_keeper::Message>(packet),
        b'4' => check::<keeper_to_cli::Message>(packet),
        b'5' => check::<daemon_to_daemon::Ask>(packet),
        b'6' => check::<cli_to_daemon::Message>(packet),
        b'7' => check::<daemon_to_cli::Message>(packet),
        b'8' => check::<host_to_keeper::Message>(packet),
        b'9' => check::<keeper_to_host::Message>(packet),
        b'a' => check::<node_to_telemetry::Span>(packet),
        _ => {}
    }
    if let (b'1', Ok(node_to_keeper::Message::Hello(hello))) = (arrow, decode(packet)) {
        let agreed = VERSIONS.negotiate(hello.versions);
        assert!(agreed.is_err() || agreed.is_ok_and(|version| version <= VERSIONS.max));
    }
}

/// A decoded message is the same after it is encoded and decoded again.
fn check<M: Serialize + DeserializeOwned + Debug>(packet: &[u8]) {
    let Ok(message) = decode::<M>(packet) else {
        return;
    };
    match encode(&message) {
        Ok(again) => {
            let copy = decode::<M>(&again).expect("an encoded message must be decodable");
            assert_eq!(format!("{copy:?}"), format!("{message:?}"));
        }
        Err(ProtocolError::TooLarge { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}
