//! Forged input from a machine of a fleet, or from an end that is not paired: calls to the
//! coordinator, invitations, reports and addresses, renewals of leases. It is refused, or is the
//! same after it is encoded and decoded again; no key is allowed to a role that the table does not
//! name.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use nervure_coordinator::access::{self, Method};
use nervure_coordinator::api::{
    Approve, Call, Get, Invite, Join, Lease, List, Refusal, Revoke, Set, Watch,
};
use nervure_coordinator::{Invitation, Machine, Role};
use nervure_daemon::lease::{Confirmation, Renewal};
use nervure_daemon::machine::Kept;
use nervure_daemon::peers::{Known, Peers};
use nervure_daemon::state::{Actual, Desired};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Runs the target. The first byte chooses the parser.
pub fn run(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    match kind {
        b'0' | b'1' => calls(rest),
        b'2' => same::<Actual>(rest),
        b'3' => same::<Desired>(rest),
        b'4' => same::<Kept>(rest),
        b'5' => machines(rest),
        b'6' => invitation(rest),
        b'7' => key(rest),
        _ => {
            if let Some(renewal) = Renewal::decode(rest) {
                assert_eq!(renewal.encode(), rest);
            }
            if let Some(confirmation) = Confirmation::decode(rest) {
                assert_eq!(confirmation.encode(), rest);
            }
        }
    }
}

fn calls(bytes: &[u8]) {
    call::<Join>(bytes);
    call::<Invite>(bytes);
    call::<Approve>(bytes);
    call::<Revoke>(bytes);
    call::<Get>(bytes);
    call::<Set>(bytes);
    call::<List>(bytes);
    call::<Watch>(bytes);
    call::<Lease>(bytes);
}

fn call<C: Call>(bytes: &[u8]) {
    same::<C>(bytes);
    same::<Result<C::Answer, Refusal>>(bytes);
}

fn same<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<T>(bytes) else {
        return;
    };
    let once = serde_json::to_vec(&value).expect("what was read can be written");
    let again: T = serde_json::from_slice(&once).expect("and read again");
    let twice = serde_json::to_vec(&again).expect("and written again");
    assert_eq!(once, twice);
}

/// Entries of machines: only those that are paired are peers, each with the key of its entry.
fn machines(bytes: &[u8]) {
    let Ok(entries) = serde_json::from_slice::<BTreeMap<String, Machine>>(bytes) else {
        return;
    };
    let own = nervure_identity::PublicKey([1; 32]);
    let mut peers = Peers::new(own, own, Known::default());
    for (name, machine) in entries {
        peers.link(&name, SocketAddr::from((machine.address, 7700)));
        let key = machine.key.clone();
        if let Some((of, Some(peer))) = peers.machine(&name, Some(machine)) {
            assert_eq!((of, peer.key.to_string()), (name, key));
        }
    }
}

fn invitation(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(invitation) = text.parse::<Invitation>() {
        assert_eq!(invitation.to_string().parse(), Ok(invitation));
    }
}

/// Any key of the store: robots and observers write only the entries of their own machine.
fn key(bytes: &[u8]) {
    let key = String::from_utf8_lossy(bytes);
    let may = |role, method| access::check("r", role, method, &key).is_ok();
    for role in [Role::Robot, Role::Observer] {
        assert!(!may(role, Method::Manage) && !may(role, Method::Lease));
        assert!(!may(role, Method::Set) || matches!(&*key, "links/r" | "actual/r"));
    }
    let is_known = |prefix: &str| key.starts_with(prefix);
    let read = [
        "machines/",
        "links/",
        "actual/",
        "desired/",
        "alive/",
        "bundles/",
    ];
    assert!(!may(Role::Operator, Method::List) || read.into_iter().any(is_known));
}
