//! The I/O of [`crate::lease`]: renewals over the link, and what the coordinator's machine notes of
//! the others in the store.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use nervure_coordinator::ALIVE;
use nervure_identity::PublicKey;
use nervure_link::qos::{Delivery, Qos, TrafficClass};
use nervure_link::receiver::LinkSample;
use nervure_link::shell::{IncomingStream, OutgoingStream};
use nervure_store::{Entry, Expected, LeaseId, Store, StoreError};

use crate::bridge::{Bridge, Publishing};
use crate::lease::{Grants, Holder, LIFETIME, MESSAGE_BYTES, Number};

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
    let waker = Unpark::this_thread();
    // A peer that has restarted opens another stream.
    let _unparked = Publishing::begin(bridge);
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
        let confirmed = match &confirmations {
            Some(stream) => poll_or_park(stream.receive_async(), &waker, wait),
            None => {
                std::thread::park_timeout(wait);
                continue;
            }
        };
        match confirmed.map(|sample| sample.map(|sample| Number::decode(&sample.payload))) {
            Some(Some(Some(number))) => holder.confirm(number, begin.elapsed()),
            Some(None) => confirmations = None,
            Some(Some(None)) | None => {}
        }
    }
}

/// Grants leases to all other machines, and notes which of them can be reached.
pub(crate) fn grant(bridge: &Bridge, noted: &Noted) {
    let begin = Instant::now();
    let waker = Unpark::this_thread();
    let _unparked = Publishing::begin(bridge);
    let mut grants = Grants::default();
    let mut renewals = FuturesUnordered::new();
    let mut confirmations: HashMap<PublicKey, Option<OutgoingStream>> = HashMap::new();
    loop {
        let arrived = bridge.take_streams(RENEWALS).into_iter();
        renewals.extend(arrived.map(|(peer, stream)| renewal(peer, stream)));
        for machine in grants.take_ended(begin.elapsed()) {
            tracing::warn!("{machine} cannot be reached");
            noted.change(|machines| machines.remove(&machine));
        }
        let wait = grants.deadline().map_or(Duration::MAX, |deadline| {
            deadline.saturating_sub(begin.elapsed())
        });
        let Some(Some((peer, stream, sample))) = poll_or_park(renewals.next(), &waker, wait) else {
            if renewals.is_empty() {
                std::thread::park_timeout(wait);
            }
            continue;
        };
        // A machine that was revoked has no name any more.
        let Some((machine, _)) = bridge.machine_of(peer) else {
            confirmations.remove(&peer);
            continue;
        };
        let Some(sample) = sample else { continue };
        if let Some(number) = Number::decode(&sample.payload) {
            if grants.renewed(&machine, begin.elapsed()) {
                tracing::info!("{machine} can be reached");
                noted.change(|machines| machines.insert(machine));
            }
            let confirmation = confirmations.entry(peer).or_default();
            send(bridge, peer, CONFIRMATIONS, confirmation, number);
        }
        renewals.push(renewal(peer, stream));
    }
}

/// The next renewal on a stream; `None` if it has ended.
async fn renewal(
    peer: PublicKey,
    stream: IncomingStream,
) -> (PublicKey, IncomingStream, Option<LinkSample>) {
    let sample = stream.receive_async().await;
    (peer, stream, sample)
}

/// The result of a future, if it is ready. Otherwise this thread waits until it may be, is unparked
/// for another reason, or the timeout is over.
fn poll_or_park<T>(future: impl Future<Output = T>, waker: &Waker, timeout: Duration) -> Option<T> {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(waker)) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => {
            std::thread::park_timeout(timeout);
            None
        }
    }
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Unpark {
    fn this_thread() -> Waker {
        Waker::from(Arc::new(Self(std::thread::current())))
    }
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
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
