//! Forged input from a peer of the daemon: a message of a link, a frame with an answer to a
//! command, and a bundle of programs. A message is refused, or becomes a value that can be
//! published; a frame survives encoding; a bundle writes nothing outside of its folder.

use nervure_daemon::lossless::{Confirmation, Place};
use nervure_daemon::{bundle, node_changes::NodeChange};
use nervure_message::{Encode, Metadata, encode_head};
use nervure_node::remote::{self, Arrival};
use nervure_protocol::{
    ProtocolError,
    daemon_to_daemon::{Frame, decode_frame},
};

/// Runs the target. The first byte chooses the parser.
pub fn run(bytes: &[u8]) {
    match bytes.split_first() {
        Some((b'f', rest)) => frame(rest),
        Some((b'n', rest)) => change(rest),
        Some((b'p', rest)) => place(rest),
        Some((byte, rest)) if byte % 2 == 0 => message(rest),
        Some((_, rest)) => archive(rest),
        None => {}
    }
}

fn message(bytes: &[u8]) {
    let Ok(Arrival::Sample(sample)) = remote::decode(bytes) else {
        return;
    };
    let mut payload = vec![0; sample.payload_bytes()];
    sample.write(&mut payload);
    assert!(payload.len() < bytes.len(), "nothing is made larger");
    encode_head(&*sample, &Metadata::new()).expect("a decoded layout can be encoded");
    let _ = sample.envelope();
}

fn frame(bytes: &[u8]) {
    let Ok(frame) = decode_frame(bytes) else {
        return;
    };
    match frame {
        Frame::Lines(_, lines) => {
            let total: usize = lines.iter().map(|(_, line)| line.len()).sum();
            assert!(total < bytes.len(), "nothing is made larger");
        }
        Frame::Sample(info, sample) => {
            // As a command on this machine takes it.
            if let Ok(Arrival::Sample(sample)) = remote::decode(sample) {
                let _ = sample.to_sample(info.incarnation, info.sequence, info.latency_nanos);
            }
        }
        frame => match frame.encode() {
            Ok(again) => {
                let copy = decode_frame(&again).expect("an encoded frame must be decodable");
                assert_eq!(format!("{copy:?}"), format!("{frame:?}"));
            }
            Err(ProtocolError::TooLarge { .. }) => {}
            Err(error) => panic!("{error}"),
        },
    }
}

fn change(bytes: &[u8]) {
    if let Some(change) = NodeChange::decode(bytes) {
        assert_eq!(NodeChange::decode(&change.encode()), Some(change));
    }
}

fn place(bytes: &[u8]) {
    if let Some((place, sample)) = Place::split(bytes) {
        let again = [&place.encode()[..], sample].concat();
        assert_eq!(Place::split(&again), Some((place, sample)));
    }
    if let Some(confirmation) = Confirmation::decode(bytes) {
        let again = confirmation.encode();
        assert_eq!(Confirmation::decode(&again), Some(confirmation));
    }
}

fn archive(bytes: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder for a test");
    let _ = bundle::unpack(bytes, &folder.path().join("in"));
    let beside = std::fs::read_dir(folder.path()).expect("it is still there");
    assert!(
        beside.count() <= 1,
        "the archive has written outside of its folder"
    );
}
