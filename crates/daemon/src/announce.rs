//! Addresses of the coordinator. Its machine announces them over the links, and dials a machine that is
//! silent: so each machine follows a coordinator that has moved.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nervure_coordinator::Address;
use nervure_identity::PublicKey;
use nervure_link::qos::{Delivery, Qos, TrafficClass};
use nervure_link::shell::{IncomingStream, OutgoingStream};

use crate::bridge::Bridge;
use crate::sync::Followed;

/// Name of the stream of the addresses; those of dataflows begin with the id of a run.
const ADDRESSES: &str = "coordinator/addresses";

/// Interval of checks of the links. Silence has no event, and a check at each change of a link would cost the
/// coordinator's machine the square of the number of machines when all join.
const LOOK: Duration = Duration::from_secs(2);

/// How long a machine may be silent before it is dialled: more than twice the lifetime of its lease.
const SILENCE: Duration = Duration::from_secs(3);

/// The pause before a machine is dialled again.
const REDIAL: Duration = Duration::from_secs(6);

/// The most addresses that are taken from a coordinator.
const MAX_ADDRESSES: usize = 16;

/// Announces the addresses of the coordinator on this machine.
pub(crate) fn announce(bridge: &Arc<Bridge>, followed: &Followed) {
    let mut sent: HashMap<PublicKey, (OutgoingStream, Vec<Address>)> = HashMap::new();
    let mut dialled: HashMap<PublicKey, Instant> = HashMap::new();
    loop {
        let addresses = followed.own_addresses();
        for (machine, peer) in bridge.peers() {
            if bridge.silence(&machine).is_none_or(|it| it > SILENCE) {
                sent.remove(&peer.key);
                let last = dialled.get(&peer.key);
                if last.is_none_or(|last| last.elapsed() > REDIAL) {
                    dialled.insert(peer.key, Instant::now());
                    bridge.dial(peer);
                }
            } else if sent
                .get(&peer.key)
                .is_none_or(|(_, known)| *known != addresses)
            {
                let stream = sent.remove(&peer.key).map(|(stream, _)| stream);
                if let Some(stream) = send(bridge, peer.key, stream, &addresses) {
                    sent.insert(peer.key, (stream, addresses.clone()));
                }
            }
        }
        std::thread::sleep(LOOK);
    }
}

/// Sends the addresses, repeated until they have arrived or the peer is silent.
fn send(
    bridge: &Bridge,
    peer: PublicKey,
    stream: Option<OutgoingStream>,
    addresses: &[Address],
) -> Option<OutgoingStream> {
    let json = serde_json::to_vec(addresses).expect("addresses can be written as JSON");
    let is_sent = |stream: &OutgoingStream| stream.try_send(json.clone()).is_ok();
    let qos = Qos {
        traffic_class: TrafficClass::Control,
        ..Qos::new(Delivery::keep_all(4))
    };
    stream.filter(is_sent).or_else(|| {
        let opened = bridge.open_stream(peer, ADDRESSES, qos);
        opened.filter(is_sent)
    })
}

/// Takes the addresses that coordinators announce.
pub(crate) fn follow(bridge: &Arc<Bridge>, followed: &Followed) {
    let mut streams: Vec<(PublicKey, IncomingStream)> = Vec::new();
    loop {
        let seen = bridge.changes();
        streams.extend(bridge.take_streams(ADDRESSES));
        streams.retain(|(peer, stream)| {
            while let Some(sample) = stream.try_receive() {
                if let Ok(mut addresses) = serde_json::from_slice::<Vec<Address>>(&sample.payload) {
                    addresses.truncate(MAX_ADDRESSES);
                    followed.announced(*peer, addresses);
                }
            }
            !stream.has_ended()
        });
        let timeout = (!streams.is_empty()).then_some(LOOK);
        bridge.wait_for_change(seen, timeout);
    }
}
