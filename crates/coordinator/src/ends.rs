//! Daemons with one key, such as those of a machine whose disk was copied.
//!
//! Each daemon identifies the place where it runs by a number in its requests. The first one of a key holds
//! it. When another one asks, the holder's watches are answered at once: a live daemon asks again, and the
//! younger one is refused. A holder without a connection, or one that does not ask again, has ended or has
//! lost its network: the other one takes its place.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nervure_identity::PublicKey;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The time that the holder of a key has to ask again, and the pause between two looks.
const ANSWER: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(50);

/// Known daemons of one key. Of more, those not seen for longest are forgotten.
const MAX_OF_KEY: usize = 8;

/// The daemons of all keys.
#[derive(Debug, Default)]
pub(crate) struct Ends(Mutex<HashMap<PublicKey, OfKey>>);

#[derive(Debug, Default)]
struct OfKey {
    /// The oldest first.
    daemons: Vec<Daemon>,
    holder: u64,
    /// Notified when the watches of a key are to be answered.
    ask_again: Arc<Notify>,
}

#[derive(Debug)]
struct Daemon {
    number: u64,
    address: IpAddr,
    seen: Instant,
    connections: usize,
    /// Whether it was reported as a copy.
    is_reported: bool,
}

/// A daemon is refused: an older one with its key lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    /// The address of the older one.
    pub older: IpAddr,
    /// Whether this is the first time.
    pub is_first: bool,
}

/// A connection of a daemon, until this is dropped.
#[derive(Debug)]
pub(crate) struct Connected {
    ends: Arc<Ends>,
    key: PublicKey,
    number: u64,
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut all = self.ends.lock();
        let of_key = all.get_mut(&self.key);
        if let Some(daemon) = of_key.and_then(|it| it.daemon(self.number)) {
            daemon.connections -= 1;
        }
    }
}

impl Ends {
    /// Notes a connection of the daemon with this number.
    pub fn connect(self: &Arc<Self>, key: PublicKey, number: u64, address: IpAddr) -> Connected {
        let mut all = self.lock();
        all.entry(key)
            .or_default()
            .note(number, address)
            .connections += 1;
        Connected {
            ends: Arc::clone(self),
            key,
            number,
        }
    }

    /// Decides on a request of the connected daemon with this number.
    pub async fn claim(&self, key: PublicKey, number: u64, address: IpAddr) -> Result<(), Copied> {
        let now = Instant::now();
        let (holder, ask_again) = {
            let mut all = self.lock();
            let of_key = all.entry(key).or_default();
            of_key.note(number, address).seen = now;
            if of_key.is_held_by(number) {
                return Ok(());
            }
            (of_key.holder, Arc::clone(&of_key.ask_again))
        };
        ask_again.notify_waiters();
        while now.elapsed() < ANSWER && !self.was_seen_since(key, holder, now) {
            tokio::time::sleep(LOOK).await;
        }
        let mut all = self.lock();
        all.entry(key).or_default().decide(number, now)
    }

    /// Notified when watches of a key are to be answered.
    pub fn ask_again(&self, key: PublicKey) -> Arc<Notify> {
        Arc::clone(&self.lock().entry(key).or_default().ask_again)
    }

    fn was_seen_since(&self, key: PublicKey, number: u64, since: Instant) -> bool {
        let mut all = self.lock();
        let daemon = all.get_mut(&key).and_then(|it| it.daemon(number));
        daemon.is_some_and(|daemon| daemon.seen > since)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PublicKey, OfKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OfKey {
    fn daemon(&mut self, number: u64) -> Option<&mut Daemon> {
        self.daemons.iter_mut().find(|it| it.number == number)
    }

    fn note(&mut self, number: u64, address: IpAddr) -> &mut Daemon {
        let known = self.daemons.iter().position(|it| it.number == number);
        let at = known.unwrap_or_else(|| {
            self.forget_one();
            self.daemons.push(Daemon {
                number,
                address,
                seen: Instant::now(),
                connections: 0,
                is_reported: false,
            });
            self.daemons.len() - 1
        });
        self.daemons[at].address = address;
        &mut self.daemons[at]
    }

    /// Makes room for one more.
    fn forget_one(&mut self) {
        let holder = self.holder;
        let others = self.daemons.iter().enumerate();
        let idle = others.filter(|(_, it)| it.number != holder && it.connections == 0);
        if self.daemons.len() >= MAX_OF_KEY
            && let Some((at, _)) = idle.min_by_key(|(_, it)| it.seen)
        {
            self.daemons.remove(at);
        }
    }

    /// Whether this one holds the key. It does if the holder before it has no connection any more.
    fn is_held_by(&mut self, number: u64) -> bool {
        let holder = self.holder;
        if self.daemon(holder).is_none_or(|it| it.connections == 0) {
            self.holder = number;
        }
        self.holder == number
    }

    /// Whether a daemon holds the key, after the holder had the time to ask again.
    fn decide(&mut self, number: u64, since: Instant) -> Result<(), Copied> {
        let at = |number| self.daemons.iter().position(|it| it.number == number);
        let own = at(number);
        let older = at(self.holder).filter(|holder| {
            let lives = self.daemons[*holder].seen > since;
            lives && own.is_none_or(|own| *holder < own)
        });
        let Some(older) = older else {
            self.holder = number;
            return Ok(());
        };
        let older = self.daemons[older].address;
        let is_first = own.is_some_and(|own| {
            let is_reported = &mut self.daemons[own].is_reported;
            !std::mem::replace(is_reported, true)
        });
        Err(Copied { older, is_first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: PublicKey = PublicKey([1; 32]);

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(work)
    }

    /// Claims for one daemon, while another one lives: it asks again each time that it is to.
    async fn claim_beside(ends: &Arc<Ends>, number: u64, other: u64) -> Result<(), Copied> {
        let (watched, ask_again) = (Arc::clone(ends), ends.ask_again(KEY));
        let lives = tokio::spawn(async move {
            loop {
                ask_again.notified().await;
                tokio::time::sleep(Duration::from_millis(40)).await;
                let _ = watched.claim(KEY, other, address(1)).await;
            }
        });
        tokio::task::yield_now().await;
        let claimed = ends.claim(KEY, number, address(2)).await;
        lives.abort();
        claimed
    }

    #[test]
    fn the_younger_of_two_that_live_is_refused_and_reported_once() {
        run(async {
            let ends = Arc::<Ends>::default();
            let _connected = [1, 2].map(|number| ends.connect(KEY, number, address(1)));
            assert_eq!(ends.claim(KEY, 1, address(1)).await, Ok(()));
            let refused = |is_first| {
                let older = address(1);
                Err(Copied { older, is_first })
            };
            assert_eq!(claim_beside(&ends, 2, 1).await, refused(true));
            assert_eq!(claim_beside(&ends, 2, 1).await, refused(false));
            // The older one was away, and is back.
            assert_eq!(ends.claim(KEY, 2, address(2)).await, Ok(()));
            assert_eq!(claim_beside(&ends, 1, 2).await, Ok(()));
            assert_eq!(claim_beside(&ends, 2, 1).await, refused(false));
        });
    }

    #[test]
    fn a_daemon_that_was_restarted_takes_the_place_of_the_one_before() {
        run(async {
            let ends = Arc::<Ends>::default();
            for number in 1..100 {
                let connected = ends.connect(KEY, number, address(1));
                assert_eq!(ends.claim(KEY, number, address(1)).await, Ok(()));
                assert_eq!(ends.lock()[&KEY].holder, number);
                drop(connected);
            }
            assert_eq!(ends.lock()[&KEY].daemons.len(), MAX_OF_KEY);
        });
    }
}
