//! Handles of streams outlive the session with their peer.

use super::*;
use crate::shell::IncomingStream;

/// Opens a stream, which has the same number in each session.
fn open(receiving: &Link, peer: &Peer, name: &str) -> (OutgoingStream, IncomingStream) {
    let stream = peer
        .open(name, Qos::new(Delivery::keep_all(2)))
        .expect("the name is short");
    assert_eq!(stream.id(), 1);
    loop {
        let event = receiving.next_event(TIMEOUT).expect("it is opened");
        if let LinkEvent::Opened {
            stream: incoming,
            name: opened,
            ..
        } = event
        {
            assert_eq!(opened, name);
            return (stream, incoming);
        }
    }
}

#[test]
fn a_handle_of_a_former_session_does_not_act_on_the_stream_that_has_its_number_now() {
    let (receiving, sending, peer) = connected();
    let (old, old_incoming) = open(&receiving, &peer, "old");
    old.send("old").expect("there is room");
    assert!(old.flush(TIMEOUT));
    for (link, of) in [(&sending, &receiving), (&receiving, &sending)] {
        link.peer(of.public_key()).close();
    }
    sending
        .connect(receiving.local_address(), receiving.public_key())
        .expect("the address is good");
    let (new, incoming) = open(&receiving, &peer, "new");

    let is_closed = |error| matches!(error, StreamError::Closed(_));
    assert!(old.send("old").is_err_and(is_closed));
    assert!(old.try_send("old").is_err_and(is_closed));
    assert!(
        old.set_qos(Qos::new(Delivery::Latest))
            .is_err_and(is_closed)
    );
    assert!(old.wait_opened(TIMEOUT).is_err_and(is_closed));
    assert!(old.counters().is_none() && old.qos().is_none());
    assert!(old_incoming.has_ended() && old_incoming.try_receive().is_none());
    old_incoming.close(Refusal::because("old"));
    drop(old);

    new.send("new").expect("it is open");
    let sample = incoming.receive(TIMEOUT).expect("it was sent");
    assert_eq!(sample.payload[..], *b"new");
    assert!(new.flush(TIMEOUT));
    assert_eq!(new.counters().map(|it| it.delivered), Some(1));
}
