//! The I/O of [`crate::lease`]: renewals over the link, and what the coordinator's machine notes of
//! the others in the store. Renewals and confirmations carry the times for [`crate::clock`].

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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
use nervure_node::monotonic_nanos;
use nervure_store::{Entry, Expected, LeaseId, Store, StoreError};

use crate::bridge::{Bridge, Publishing};
use crate::clock::{ClockOffset, Exchange, day_ahead};
use crate::lease::{Confirmation, Grants, Holder, LIFETIME, Renewal};
use crate::state::Alive;

/// Names of the streams, which no stream of a dataflow has: those begin with the id of a run.
const RENEWALS: &str = "lease/renewals";
const CONFIRMATIONS: &str = "lease/confirmations";

/// How long entries of reachable machines outlive the daemon that has written them.
const NOTED: Duration = Duration::from_secs(5);

/// The change of a clock's offset that is written.
const CLOCK_STEP_NANOS: u64 = 1_000_000;

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
    let begin = monotonic_nanos();
    let elapsed = || Duration::from_nanos(monotonic_nanos() - begin);
    let waker = Unpark::this_thread();
    // A peer that has restarted opens another stream.
    let _unparked = Publishing::begin(bridge);
    let mut holder = Holder::new(id);
    let mut day_ahead_there = 0;
    let (mut renewals, mut confirmations) = (None, None);
    let mut was_held = None;
    loop {
        let now = elapsed();
        if let Some(number) = holder.renewal(now) {
            let clock = ahead(bridge, day_ahead_there);
            let renewal = Renewal { number, clock }.encode();
            send(bridge, coordinator, RENEWALS, &mut renewals, &renewal);
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
        match confirmed.map(|sample| sample.map(|sample| Confirmation::decode(&sample.payload))) {
            Some(Some(Some(confirmation))) => {
                let now = elapsed();
                if let Some(sent) = holder.confirm(confirmation.number, now) {
                    let at = |time: Duration| begin + time.as_nanos() as u64;
                    day_ahead_there = confirmation.day_ahead;
                    bridge.clock().add(Exchange {
                        sent: at(sent),
                        received: confirmation.received,
                        answered: confirmation.answered,
                        arrived: at(now),
                    });
                }
            }
            Some(None) => confirmations = None,
            Some(Some(None)) | None => {}
        }
    }
}

/// How far this machine's clock of the day is ahead of the coordinator's.
fn ahead(bridge: &Bridge, day_ahead_there: i64) -> Option<ClockOffset> {
    let there = bridge.clock().offset(monotonic_nanos())?;
    let offset =
        i128::from(day_ahead()) - i128::from(day_ahead_there) - i128::from(there.offset_nanos);
    Some(ClockOffset {
        offset_nanos: i64::try_from(offset).ok()?,
        ..there
    })
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
            noted.change(|machines| {
                machines.remove(&machine);
            });
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
        let received = monotonic_nanos();
        if let Some(Renewal { number, clock }) = Renewal::decode(&sample.payload) {
            if grants.renewed(&machine, begin.elapsed()) {
                tracing::info!("{machine} can be reached");
                noted.change(|machines| {
                    machines.insert(machine, Alive { clock });
                });
            } else {
                noted.lock().insert(machine, Alive { clock });
            }
            let stream = confirmations.entry(peer).or_default();
            let confirmation = Confirmation {
                number,
                received,
                answered: monotonic_nanos(),
                day_ahead: day_ahead(),
            };
            send(bridge, peer, CONFIRMATIONS, stream, &confirmation.encode());
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

/// Sends a message; a stream of a session that is gone is opened again. One that cannot be sent is
/// lost, as on the link.
fn send(
    bridge: &Bridge,
    peer: PublicKey,
    name: &str,
    stream: &mut Option<OutgoingStream>,
    message: &[u8],
) {
    let qos = Qos {
        traffic_class: TrafficClass::Control,
        lifespan: Some(LIFETIME),
        ..Qos::new(Delivery::best_effort(1))
    };
    if stream.is_none() {
        *stream = bridge.open_stream(peer, name, qos);
    }
    if let Some(open) = stream
        && open.try_send(message.to_vec()).is_err()
    {
        *stream = None;
    }
}

/// Whether what was written of a machine is not true any more. Each write costs one of the
/// coordinator's disk, so that a drift is written after [`CLOCK_STEP_NANOS`].
fn is_outdated(written: Alive, alive: Alive) -> bool {
    match (written.clock, alive.clock) {
        (Some(written), Some(clock)) => {
            let moved = clock.offset_nanos.abs_diff(written.offset_nanos);
            let error = clock.error_nanos.max(written.error_nanos);
            moved > error.max(CLOCK_STEP_NANOS) || clock.error_nanos < written.error_nanos / 2
        }
        (written, clock) => written.is_none() && clock.is_some(),
    }
}

/// The machines that can be reached, to be noted in the store.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    machines: Mutex<BTreeMap<String, Alive>>,
    changed: Condvar,
}

impl Noted {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Alive>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Alive>)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Writes them, now and whenever one comes or goes; their clocks when the lease is renewed. The
    /// entries have a lease of this process, so that none outlives it for long; to renew it costs no
    /// write.
    pub fn write(self: Arc<Self>, store: &dyn Store, own: &str) {
        self.change(|machines| {
            machines.insert(own.to_owned(), Alive::default());
        });
        let mut lease: Option<LeaseId> = None;
        let mut written = BTreeMap::new();
        loop {
            let wanted = {
                let same =
                    |machines: &mut BTreeMap<String, Alive>| machines.keys().eq(written.keys());
                let waited = self
                    .changed
                    .wait_timeout_while(self.lock(), NOTED / 3, same);
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
    wanted: &BTreeMap<String, Alive>,
) -> Result<(), StoreError> {
    let id = store.lease(*lease, NOTED)?;
    *lease = Some(id);
    let entries = store.list(ALIVE)?.entries;
    let name_of = |entry: &Entry| entry.key.strip_prefix(ALIVE).map(str::to_owned);
    let mut there: BTreeMap<String, &Entry> = BTreeMap::new();
    there.extend(
        entries
            .iter()
            .filter_map(|entry| Some((name_of(entry)?, entry))),
    );
    for machine in there
        .keys()
        .filter(|machine| !wanted.contains_key(*machine))
    {
        set(store, machine, None)?;
    }
    for (machine, alive) in wanted {
        let entry = there.get(machine).filter(|entry| entry.lease == Some(id));
        let written = entry.and_then(|entry| serde_json::from_slice(&entry.value).ok());
        if written.is_none_or(|written| is_outdated(written, *alive)) {
            set(store, machine, Some((id, alive)))?;
        }
    }
    Ok(())
}

/// Sets or removes an entry.
fn set(
    store: &dyn Store,
    machine: &str,
    alive: Option<(LeaseId, &Alive)>,
) -> Result<(), StoreError> {
    let key = format!("{ALIVE}{machine}");
    let lease = alive.map(|(lease, _)| lease);
    let value =
        alive.map(|(_, alive)| serde_json::to_vec(alive).expect("it can be written as JSON"));
    loop {
        let found = store.get(&key)?;
        if found.is_none() && value.is_none() {
            return Ok(());
        }
        let expected = found.map_or(Expected::Absent, |entry| Expected::Revision(entry.revision));
        match store.compare_and_set(&key, expected, value.as_deref(), lease) {
            Err(StoreError::Conflict { .. }) => {}
            done => return done.map(drop),
        }
    }
}
