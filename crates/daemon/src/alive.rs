//! The I/O of [`crate::lease`]: renewals over the link, and what the coordinator's machine notes of
//! the others in the store.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nervure_coordinator::ALIVE;
use nervure_identity::PublicKey;
use nervure_link::qos::{Delivery, Qos, TrafficClass};
use nervure_link::shell::{IncomingStream, OutgoingStream};
use nervure_store::{Entry, Expected, LeaseId, Store, StoreError};

use crate::bridge::Bridge;
use crate::lease::{Grants, Holder, LIFETIME, MESSAGE_BYTES, Number, REPEAT};

/// Names of the streams, which no stream of a dataflow has: those begin with the id of a run.
const RENEWALS: &str = "lease/renewals";
const CONFIRMATIONS: &str = "lease/confirmations";

/// How long entries of reachable machines outlive the daemon that has written them.
const NOTED: Duration = Duration::from_secs(5);

/// The pause before a store is written again that could not be.
const RETRY: Duration = Duration::from_millis(500);

/// Holds the lease of this machine. Calls `changed` when it begins and when it ends; also if it has
/// not begun in the time that it would have ended in.
pub(crate) fn hold(
    bridge: &Bridge,
    coordinator: PublicKey,
    id: u64,
    mut changed: impl FnMut(bool),
) {
    let begin = Instant::now();
    let mut holder = Holder::new(id);
    let (mut renewals, mut confirmations) = (None, None);
    let mut was_held = None;
    loop {
        let now = begin.elapsed();
        if let Some(number) = holder.renewal(now) {
            send(bridge, coordinator, RENEWALS, &mut renewals, number);
        }
        if let Some(newer) = bridge.take_stream(coordinator, CONFIRMATIONS) {
            confirmations = Some(newer);
        }
        let is_held = holder.is_held(now);
        let is_known = is_held || was_held.is_some() || now > LIFETIME;
        if is_known && was_held != Some(is_held) {
            changed(is_held);
            was_held = Some(is_held);
        }
        let wait = holder.deadline(now).saturating_sub(now);
        match &confirmations {
            // A peer that has restarted opens another stream: the wait is short.
            Some(stream) => {
                if let Some(number) = receive(stream, wait.min(2 * REPEAT)) {
                    holder.confirm(number, begin.elapsed());
                } else if stream.has_ended() {
                    confirmations = None;
                }
            }
            None => std::thread::sleep(wait.min(REPEAT)),
        }
    }
}

/// Grants leases to all other machines, and notes which of them can be reached.
pub(crate) fn grant(bridge: &Bridge, noted: &Noted) {
    let begin = Instant::now();
    let mut grants = Grants::default();
    let mut renewals: HashMap<PublicKey, IncomingStream> = HashMap::new();
    let mut confirmations: HashMap<PublicKey, Option<OutgoingStream>> = HashMap::new();
    loop {
        renewals.extend(bridge.take_streams(RENEWALS));
        renewals.retain(|peer, stream| {
            // A machine that was revoked has no name any more.
            let Some((machine, _)) = bridge.machine_of(*peer) else {
                confirmations.remove(peer);
                return false;
            };
            let mut last = None;
            while let Some(sample) = stream.try_receive() {
                last = Number::decode(&sample.payload).or(last);
            }
            if let Some(number) = last {
                if grants.renewed(&machine, begin.elapsed()) {
                    tracing::info!("{machine} can be reached");
                    noted.change(|machines| machines.insert(machine));
                }
                let stream = confirmations.entry(*peer).or_default();
                send(bridge, *peer, CONFIRMATIONS, stream, number);
            }
            true
        });
        for machine in grants.take_ended(begin.elapsed()) {
            tracing::warn!("{machine} cannot be reached");
            noted.change(|machines| machines.remove(&machine));
        }
        std::thread::sleep(REPEAT);
    }
}

/// Sends a number; a stream of a session that is gone is opened again. One that cannot be sent is
/// lost, as on the link.
fn send(
    bridge: &Bridge,
    peer: PublicKey,
    name: &str,
    stream: &mut Option<OutgoingStream>,
    number: Number,
) {
    let qos = Qos {
        traffic_class: TrafficClass::Control,
        lifespan: Some(LIFETIME),
        ..Qos::new(Delivery::best_effort(1))
    };
    if stream.is_none() {
        *stream = bridge.open_stream(peer, name, qos);
    }
    let bytes: [u8; MESSAGE_BYTES] = number.encode();
    if let Some(open) = stream
        && open.try_send(bytes.to_vec()).is_err()
    {
        *stream = None;
    }
}

fn receive(stream: &IncomingStream, timeout: Duration) -> Option<Number> {
    Number::decode(&stream.receive(timeout)?.payload)
}

/// The machines that can be reached, to be noted in the store.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    machines: Mutex<BTreeSet<String>>,
    changed: Condvar,
}

impl Noted {
    fn change(&self, change: impl FnOnce(&mut BTreeSet<String>) -> bool) {
        change(&mut self.machines.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Writes them, now and whenever they change. The entries have a lease of this process, so that
    /// none outlives it for long; to renew it costs no write.
    pub fn write(self: Arc<Self>, store: &dyn Store, own: &str) {
        self.change(|machines| machines.insert(own.to_owned()));
        let mut lease: Option<LeaseId> = None;
        let mut written = BTreeSet::new();
        loop {
            let wanted = {
                let machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
                let same = |machines: &mut BTreeSet<String>| *machines == written;
                let waited = self.changed.wait_timeout_while(machines, NOTED / 3, same);
                waited.unwrap_or_else(PoisonError::into_inner).0.clone()
            };
            match note(store, &mut lease, &wanted) {
                Ok(()) => written = wanted,
                Err(StoreError::NoLease(_)) => lease = None,
                Err(error) => {
                    tracing::debug!("reachable machines are not noted: {error}");
                    std::thread::sleep(RETRY);
                }
            }
        }
    }
}

/// Brings the entries in line. They are read each time: the coordinator removes that of a machine
/// that is revoked, and the last process of this daemon may have left some.
fn note(
    store: &dyn Store,
    lease: &mut Option<LeaseId>,
    wanted: &BTreeSet<String>,
) -> Result<(), StoreError> {
    let id = store.lease(*lease, NOTED)?;
    *lease = Some(id);
    let entries = store.list(ALIVE)?.entries;
    let name_of = |entry: &Entry| entry.key.strip_prefix(ALIVE).map(str::to_owned);
    let own = entries.iter().filter(|entry| entry.lease == Some(id));
    let own: BTreeSet<String> = own.filter_map(name_of).collect();
    let there: BTreeSet<String> = entries.iter().filter_map(name_of).collect();
    for machine in there.difference(wanted) {
        set(store, machine, None)?;
    }
    for machine in wanted.difference(&own) {
        set(store, machine, Some(id))?;
    }
    Ok(())
}

/// Sets or removes an entry.
fn set(store: &dyn Store, machine: &str, lease: Option<LeaseId>) -> Result<(), StoreError> {
    let key = format!("{ALIVE}{machine}");
    loop {
        let found = store.get(&key)?;
        if found.is_none() && lease.is_none() {
            return Ok(());
        }
        let expected = found.map_or(Expected::Absent, |entry| Expected::Revision(entry.revision));
        let value = lease.map(|_| &b"{}"[..]);
        match store.compare_and_set(&key, expected, value, lease) {
            Err(StoreError::Conflict { .. }) => {}
            done => return done.map(drop),
        }
    }
}
