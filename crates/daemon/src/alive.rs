//! The I/O of [`crate::lease`]: renewals over the link, and the entries of reachable machines that each
//! coordinator's machine writes to the store. Renewals and confirmations carry the times for
//! [`crate::clock`].

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::pin::pin;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use nervure_coordinator::{ALIVE, Client};
use nervure_identity::PublicKey;
use nervure_link::qos::{Delivery, Qos, TrafficClass};
use nervure_link::receiver::LinkSample;
use nervure_link::shell::{IncomingStream, OutgoingStream};
use nervure_node::monotonic_nanos;
use nervure_store::{Entry, Expected, LeaseId, Store, StoreError};

use crate::bridge::{Bridge, Watching};
use crate::clock::{ClockOffset, Exchange, day_ahead};
use crate::lease::{Confirmation, Grants, Holder, LIFETIME, Renewal};
use crate::machine::Event;
use crate::state::{Alive, alive_key, random_number};
use crate::threads::{spawn, unpark_this_thread};

/// Names of the streams; those of dataflows begin with the id of a run.
const RENEWALS: &str = "lease/renewals";
const CONFIRMATIONS: &str = "lease/confirmations";

/// Lifetime of the entries of reachable machines after the death of the daemon that wrote them. An etcd
/// that has lost its leader needs a second or two for the next one.
const NOTED: Duration = Duration::from_secs(8);

/// The interval at which the entries' lease is renewed.
const NOTE_INTERVAL: Duration = Duration::from_millis(1600);

/// The shortest interval of checks whether it was renewed.
const NOTE_LOOK: Duration = Duration::from_millis(50);

/// The smallest change of a clock's offset that is written.
const CLOCK_STEP_NANOS: u64 = 1_000_000;

/// Pause before a failed write to a store is repeated, which announces its return to no writer.
const RETRY: Duration = Duration::from_millis(500);

/// The leases of this machine, one from each coordinator's machine. Any one of them suffices.
pub(crate) struct Leases {
    bridge: Arc<Bridge>,
    own: PublicKey,
    client: Arc<Client>,
    events: Sender<Event>,
    state: Mutex<LeasesState>,
}

#[derive(Default)]
struct LeasesState {
    /// Whether each is held; `None` before that is known.
    held: BTreeMap<PublicKey, Option<bool>>,
    is_held: Option<bool>,
    /// The machine with the clock that the others refer to.
    reference: Option<PublicKey>,
    /// How far its clock of the day is ahead of its monotonic one.
    day_ahead_there: i64,
}

impl Leases {
    pub fn new(
        bridge: &Arc<Bridge>,
        client: &Arc<Client>,
        own: PublicKey,
        events: Sender<Event>,
    ) -> Arc<Self> {
        Arc::new(Self {
            bridge: Arc::clone(bridge),
            own,
            client: Arc::clone(client),
            events,
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, LeasesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the machines with a coordinator, the oldest first.
    pub fn set_granters(self: &Arc<Self>, granters: &[PublicKey]) -> io::Result<()> {
        let added: Vec<PublicKey> = {
            let mut state = self.lock();
            if state.reference != granters.first().copied() {
                state.reference = granters.first().copied();
                self.bridge.clock().refer(state.reference == Some(self.own));
            }
            state.held.retain(|granter, _| granters.contains(granter));
            let new = granters.iter().filter(|it| !state.held.contains_key(it));
            let added: Vec<PublicKey> = new.copied().collect();
            // A single coordinator always grants, also to its own machine.
            let at_first = (granters == [self.own]).then_some(true);
            state
                .held
                .extend(added.iter().map(|granter| (*granter, at_first)));
            self.apply(&mut state);
            added
        };
        // This machine holds its own lease as long as it grants leases.
        for granter in added.into_iter().filter(|granter| *granter != self.own) {
            let (leases, id) = (Arc::clone(self), random_number()?);
            spawn("nervure-lease", move || hold(&leases, granter, id))?;
        }
        Ok(())
    }

    /// Notes that the lease from a coordinator's machine has begun or ended. Returns false if the machine
    /// is not known to have a coordinator.
    fn note(&self, granter: PublicKey, is_held: bool) -> bool {
        let mut state = self.lock();
        let known = state.held.get_mut(&granter);
        let is_granter = known.map(|known| *known = Some(is_held)).is_some();
        if is_granter {
            self.apply(&mut state);
        }
        drop(state);
        if !is_held {
            self.client.avoid(granter);
        }
        is_granter
    }

    fn apply(&self, state: &mut LeasesState) {
        let is_held = is_any_held(state.held.values().copied());
        if is_held.is_some() && state.is_held != is_held {
            state.is_held = is_held;
            // Under the lock, so that events are in the order of the changes.
            let _ = self.events.send(Event::Lease {
                is_held: is_held == Some(true),
            });
        }
    }

    /// Whether no other machine has a coordinator.
    fn is_alone(&self) -> bool {
        self.lock().held.keys().all(|granter| *granter == self.own)
    }

    fn has(&self, granter: PublicKey) -> bool {
        self.lock().held.contains_key(&granter)
    }

    /// How far this machine's clock of the day is ahead of the reference machine's.
    fn ahead(&self) -> Option<ClockOffset> {
        let clock = self.bridge.clock();
        if clock.is_own() {
            return None;
        }
        let there = clock.offset(monotonic_nanos())?;
        let day_ahead_there = self.lock().day_ahead_there;
        let offset =
            i128::from(day_ahead()) - i128::from(day_ahead_there) - i128::from(there.offset_nanos);
        Some(ClockOffset {
            offset_nanos: i64::try_from(offset).ok()?,
            ..there
        })
    }

    /// Handles a confirmation from a machine, which may have the reference clock.
    fn compare_clocks(&self, granter: PublicKey, exchange: Exchange, day_ahead: i64) {
        let mut state = self.lock();
        if state.reference == Some(granter) {
            state.day_ahead_there = day_ahead;
            self.bridge.clock().add(exchange);
        }
    }
}

/// Whether one of several leases is held; `None` while that is not known.
fn is_any_held(held: impl Iterator<Item = Option<bool>> + Clone) -> Option<bool> {
    match held.clone().any(|it| it == Some(true)) {
        true => Some(true),
        false if held.clone().next().is_none() || held.clone().any(|it| it.is_none()) => None,
        false => Some(false),
    }
}

/// Holds the lease from a coordinator's machine until that has no coordinator. Reports when it begins and
/// ends, and also if none has begun within [`LIFETIME`].
fn hold(leases: &Leases, granter: PublicKey, id: u64) {
    let bridge = &leases.bridge;
    let begin = monotonic_nanos();
    let elapsed = || Duration::from_nanos(monotonic_nanos() - begin);
    let waker = unpark_this_thread();
    // Unparked by changes: a peer that has restarted opens another stream.
    let _watching = Watching::begin(bridge, &waker);
    let mut holder = Holder::new(id);
    let (mut renewals, mut confirmations) = (None, None);
    let mut was_held = None;
    while leases.has(granter) {
        let now = elapsed();
        if let Some(number) = holder.renewal(now) {
            let clock = leases.ahead();
            let renewal = Renewal { number, clock }.encode();
            send(bridge, granter, RENEWALS, &mut renewals, &renewal);
        }
        if let Some(newer) = bridge.take_stream(granter, CONFIRMATIONS) {
            confirmations = Some(newer);
        }
        let is_held = holder.is_held(now);
        let is_known = is_held || was_held.is_some() || now > LIFETIME;
        if is_known && was_held != Some(is_held) {
            leases.note(granter, is_held);
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
                    let exchange = Exchange {
                        sent: at(sent),
                        received: confirmation.received,
                        answered: confirmation.answered,
                        arrived: at(now),
                    };
                    leases.compare_clocks(granter, exchange, confirmation.day_ahead);
                }
            }
            Some(None) => confirmations = None,
            Some(Some(None)) | None => {}
        }
    }
}

/// Grants leases to all other machines, and notes the reachable ones. One of several coordinators grants no
/// lease, and holds none itself, while its entries may expire: each machine's lease then ends before others
/// show it as unreachable, even if only this coordinator has lost the store. A single coordinator also
/// grants while its disk is full.
pub(crate) fn grant(bridge: &Bridge, noted: &Noted, leases: &Leases) {
    let begin = Instant::now();
    let mut was_valid = None;
    let waker = unpark_this_thread();
    let _watching = Watching::begin(bridge, &waker);
    let valid = || match leases.is_alone() {
        true => Duration::MAX,
        false => noted.valid(),
    };
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
        let left = valid();
        let is_known = !left.is_zero() || was_valid.is_some() || begin.elapsed() > LIFETIME;
        let is_valid = Some(!left.is_zero());
        if is_known && was_valid != is_valid && leases.note(leases.own, !left.is_zero()) {
            was_valid = is_valid;
        }
        let wait = grants.deadline().map_or(Duration::MAX, |deadline| {
            deadline.saturating_sub(begin.elapsed())
        });
        let wait = wait.min(left.max(NOTE_LOOK));
        let Some(Some((peer, stream, sample))) = poll_or_park(renewals.next(), &waker, wait) else {
            if renewals.is_empty() {
                std::thread::park_timeout(wait);
            }
            continue;
        };
        // A revoked machine has no name.
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
                noted.lock().machines.insert(machine, Alive { clock });
            }
            if valid().is_zero() {
                renewals.push(renewal(peer, stream));
                continue;
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

/// Sends a message, on a new stream if the session of the last one is gone. A message that cannot be sent
/// is lost, as on the link.
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

/// Whether an entry is outdated. Each write costs one on the coordinator's disk, so that a drift is written
/// after [`CLOCK_STEP_NANOS`].
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

/// The reachable machines, as entries for the store.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    state: Mutex<NotedState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct NotedState {
    machines: BTreeMap<String, Alive>,
    /// When the last confirmed renewal was sent.
    renewed: Option<Instant>,
}

impl Noted {
    fn lock(&self) -> MutexGuard<'_, NotedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Alive>)) {
        change(&mut self.lock().machines);
        self.changed.notify_all();
    }

    /// How long leases may still be granted, so that each ends before the entries expire; zero if not at
    /// all.
    fn valid(&self) -> Duration {
        let renewed = self.lock().renewed;
        let age = renewed.map_or(NOTED, |renewed| renewed.elapsed());
        (NOTED - LIFETIME).saturating_sub(age)
    }

    /// Writes the entries when a machine comes or goes, and their clocks when the lease is renewed. The
    /// entries have a lease of this process, so that none outlives it for long; a renewal of it costs no
    /// write.
    pub fn write(self: Arc<Self>, store: &dyn Store, own: &str) {
        self.change(|machines| {
            machines.insert(own.to_owned(), Alive::default());
        });
        let mut lease: Option<LeaseId> = None;
        let mut written = BTreeMap::new();
        loop {
            let wanted = {
                let same = |state: &mut NotedState| state.machines.keys().eq(written.keys());
                let waited = self
                    .changed
                    .wait_timeout_while(self.lock(), NOTE_INTERVAL, same);
                let state = waited.unwrap_or_else(PoisonError::into_inner).0;
                state.machines.clone()
            };
            let sent = Instant::now();
            match note(store, &mut lease, own, &wanted) {
                Ok(()) => {
                    written = wanted;
                    self.lock().renewed = Some(sent);
                }
                Err(StoreError::NoLease(_)) => lease = None,
                Err(error) => {
                    tracing::debug!("reachable machines are not noted: {error}");
                    std::thread::sleep(RETRY);
                }
            }
        }
    }
}

/// Brings the entries of this machine in line. Reads them each time: a coordinator removes those of a
/// revoked machine, and the last process of this daemon may have left some.
fn note(
    store: &dyn Store,
    lease: &mut Option<LeaseId>,
    own: &str,
    wanted: &BTreeMap<String, Alive>,
) -> Result<(), StoreError> {
    let id = store.lease(*lease, NOTED)?;
    *lease = Some(id);
    let entries = store.list(ALIVE)?.entries;
    let there: BTreeMap<&str, &Entry> = entries
        .iter()
        .map(|entry| (entry.key.as_str(), entry))
        .collect();
    let wanted: BTreeMap<String, Alive> = wanted
        .iter()
        .map(|(machine, alive)| (alive_key(machine, own), *alive))
        .collect();
    let by_own = alive_key("", own).split_off(ALIVE.len());
    for key in there.keys().filter(|key| key.ends_with(&by_own)) {
        if !wanted.contains_key(*key) {
            set(store, key, None)?;
        }
    }
    for (key, alive) in &wanted {
        let entry = there
            .get(key.as_str())
            .filter(|entry| entry.lease == Some(id));
        let written = entry.and_then(|entry| serde_json::from_slice(&entry.value).ok());
        if written.is_none_or(|written| is_outdated(written, *alive)) {
            set(store, key, Some((id, alive)))?;
        }
    }
    Ok(())
}

/// Sets or removes an entry.
fn set(store: &dyn Store, key: &str, alive: Option<(LeaseId, &Alive)>) -> Result<(), StoreError> {
    let lease = alive.map(|(lease, _)| lease);
    let value =
        alive.map(|(_, alive)| serde_json::to_vec(alive).expect("it can be written as JSON"));
    loop {
        let found = store.get(key)?;
        if found.is_none() && value.is_none() {
            return Ok(());
        }
        let expected = found.map_or(Expected::Absent, |entry| Expected::Revision(entry.revision));
        match store.compare_and_set(key, expected, value.as_deref(), lease) {
            Err(StoreError::Conflict { .. }) => {}
            done => return done.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_is_held_as_long_as_one_coordinator_confirms_it() {
        let held = |all: &[Option<bool>]| is_any_held(all.iter().copied());
        assert_eq!(held(&[]), None);
        assert_eq!(held(&[None]), None);
        assert_eq!(held(&[Some(false), Some(true), None]), Some(true));
        // The other one may still confirm the lease.
        assert_eq!(held(&[Some(false), None]), None);
        assert_eq!(held(&[Some(false), Some(false)]), Some(false));
    }

    #[test]
    fn a_coordinators_machine_changes_its_own_notes_alone_and_grants_while_they_are_there() {
        let store = nervure_store::memory();
        let of = |names: &[&str]| {
            let machines = names
                .iter()
                .map(|name| ((*name).to_owned(), Alive::default()));
            machines.collect::<BTreeMap<_, _>>()
        };
        let (mut one, mut other) = (None, None);
        note(&store, &mut one, "a", &of(&["a", "r"])).unwrap();
        note(&store, &mut other, "b", &of(&["b", "r", "s"])).unwrap();
        let reachable = || {
            let noted = store.list(ALIVE).unwrap().entries;
            let machines = crate::state::alive_machines(&noted).into_keys();
            machines.collect::<Vec<_>>()
        };
        assert_eq!(reachable(), ["a", "b", "r", "s"]);
        note(&store, &mut one, "a", &of(&["a"])).unwrap();
        assert_eq!(reachable(), ["a", "b", "r", "s"]);
        note(&store, &mut other, "b", &of(&["b"])).unwrap();
        assert_eq!(reachable(), ["a", "b"]);

        let noted = Noted::default();
        assert!(noted.valid().is_zero());
        noted.lock().renewed = Some(Instant::now());
        assert!(noted.valid() <= NOTED - LIFETIME && noted.valid() > LIFETIME);
        noted.lock().renewed = Instant::now().checked_sub(NOTED - LIFETIME);
        assert!(noted.valid().is_zero(), "a lease would outlive the note");
    }
}
