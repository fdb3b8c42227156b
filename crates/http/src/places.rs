//! Places for connections, with a share for each owner: an address, or a key.
//!
//! A new connection always gets a place. Where its owner has used up its share, or all places are taken,
//! another connection loses its own: of that owner, or of the owner with the most. So an owner that takes
//! as many as it can keeps no other owner out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::Notify;

/// A number of places.
#[derive(Debug)]
pub struct Places<O> {
    most: usize,
    of_owner: usize,
    taken: Mutex<Taken<O>>,
}

#[derive(Debug)]
struct Taken<O> {
    /// By the number of the place.
    all: BTreeMap<u64, Connection<O>>,
    /// Places and uses so far.
    count: u64,
}

#[derive(Debug)]
struct Connection<O> {
    owner: O,
    /// Requests that are being answered.
    requests: u32,
    /// The count at its last use.
    used: u64,
    lost: Arc<Notify>,
}

/// A place, which is free again when this is dropped.
#[derive(Debug)]
pub struct Place<O: Copy + Ord> {
    number: u64,
    places: Arc<Places<O>>,
}

/// A request on a connection, until this is dropped. Connections without one lose their place first.
#[derive(Debug)]
pub struct InUse<O: Copy + Ord>(Arc<Place<O>>);

impl<O: Copy + Ord> Places<O> {
    /// `most` places, of which an owner may have `of_owner`.
    pub fn new(most: usize, of_owner: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            of_owner,
            taken: Mutex::new(Taken {
                all: BTreeMap::new(),
                count: 0,
            }),
        })
    }

    /// Takes a place. `lost` is notified when it is lost to another connection.
    pub fn take(self: &Arc<Self>, owner: O, lost: &Arc<Notify>) -> Arc<Place<O>> {
        let mut taken = self.lock();
        let number = taken.next();
        let connection = Connection {
            owner,
            requests: 0,
            used: number,
            lost: Arc::clone(lost),
        };
        taken.all.insert(number, connection);
        let loser = match taken.number_of(owner) > self.of_owner {
            true => Some(owner),
            false if taken.all.len() > self.most => taken.largest_owner(),
            false => None,
        };
        if let Some(connection) = loser.and_then(|loser| taken.remove_least_used(loser, number)) {
            connection.lost.notify_one();
        }
        Arc::new(Place {
            number,
            places: Arc::clone(self),
        })
    }

    /// Takes all places of an owner from it.
    pub fn close(&self, owner: O) {
        self.lock().all.retain(|_, connection| {
            let is_other = connection.owner != owner;
            if !is_other {
                connection.lost.notify_one();
            }
            is_other
        });
    }

    fn lock(&self) -> MutexGuard<'_, Taken<O>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<O: Copy + Ord> Taken<O> {
    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn number_of(&self, owner: O) -> usize {
        let all = self.all.values();
        all.filter(|connection| connection.owner == owner).count()
    }

    fn largest_owner(&self) -> Option<O> {
        let mut numbers: BTreeMap<O, usize> = BTreeMap::new();
        for connection in self.all.values() {
            *numbers.entry(connection.owner).or_default() += 1;
        }
        let largest = numbers.into_iter().max_by_key(|(_, number)| *number);
        largest.map(|(owner, _)| owner)
    }

    /// Removes a connection of an owner: one without requests, and of these the one that was used last
    /// before all others. The newest one stays, unless it is alone.
    fn remove_least_used(&mut self, owner: O, newest: u64) -> Option<Connection<O>> {
        let of_owner = self.all.iter().filter(|(_, it)| it.owner == owner);
        let order =
            |(number, it): &(&u64, &Connection<O>)| (**number == newest, it.requests > 0, it.used);
        let number = *of_owner.min_by_key(order)?.0;
        self.all.remove(&number)
    }
}

impl<O: Copy + Ord> Place<O> {
    /// Notes that a request is being answered.
    pub fn begin_request(self: &Arc<Self>) -> InUse<O> {
        self.change(|connection| connection.requests += 1);
        InUse(Arc::clone(self))
    }

    fn change(&self, change: impl FnOnce(&mut Connection<O>)) {
        let mut taken = self.places.lock();
        let count = taken.next();
        if let Some(connection) = taken.all.get_mut(&self.number) {
            connection.used = count;
            change(connection);
        }
    }
}

impl<O: Copy + Ord> Drop for InUse<O> {
    fn drop(&mut self) {
        self.0.change(|connection| connection.requests -= 1);
    }
}

impl<O: Copy + Ord> Drop for Place<O> {
    fn drop(&mut self) {
        self.places.lock().all.remove(&self.number);
    }
}

/// Does the work of a connection, unless that loses its place.
pub async fn unless_lost<T>(lost: &Notify, work: impl Future<Output = T>) -> Option<T> {
    let (mut lost, mut work) = (pin!(lost.notified()), pin!(work));
    std::future::poll_fn(|context| match lost.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => work.as_mut().poll(context).map(Some),
    })
    .await
}

/// The owner of connections from an address: a host of IPv6 has 64 bits of addresses (RFC 4291).
pub fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(network.into())
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Held {
        place: Option<Arc<Place<u8>>>,
        lost: Arc<Notify>,
    }

    impl Held {
        fn take(places: &Arc<Places<u8>>, owner: u8) -> Self {
            let lost = Arc::default();
            Self {
                place: Some(places.take(owner, &lost)),
                lost,
            }
        }

        fn is_lost(&self) -> bool {
            let place = self.place.as_ref().unwrap();
            !place.places.lock().all.contains_key(&place.number)
        }
    }

    fn number(held: &[Held]) -> usize {
        held.iter().filter(|held| !held.is_lost()).count()
    }

    #[test]
    fn an_owner_that_takes_all_it_can_keeps_no_other_out() {
        let places = Places::new(8, 6);
        let greedy: Vec<_> = (0..100).map(|_| Held::take(&places, 0)).collect();
        assert_eq!(number(&greedy), 6, "its share");
        assert!(!greedy[99].is_lost(), "the newest stays");
        let others: Vec<_> = (1..=4).map(|owner| Held::take(&places, owner)).collect();
        assert_eq!((number(&others), number(&greedy)), (4, 4));
        let more: Vec<_> = (0..100).map(|_| Held::take(&places, 0)).collect();
        assert_eq!((number(&others), number(&greedy)), (4, 0));
        assert_eq!(number(&more), 4);
        drop(others);
        assert_eq!(
            places.lock().all.len(),
            4,
            "a place that is given back is free"
        );
    }

    #[test]
    fn a_connection_without_requests_loses_its_place_first() {
        let places = Places::new(8, 3);
        let held: Vec<_> = (0..3).map(|_| Held::take(&places, 0)).collect();
        let request = held[0].place.as_ref().unwrap().begin_request();
        drop(held[1].place.as_ref().unwrap().begin_request());
        let lost = |all: &[Held]| all.iter().map(Held::is_lost).collect::<Vec<_>>();
        let fourth = Held::take(&places, 0);
        assert_eq!(
            lost(&held),
            [false, false, true],
            "the one that was not used"
        );
        let fifth = Held::take(&places, 0);
        assert_eq!(lost(&held), [false, true, true]);
        let _requests = [&fourth, &fifth].map(|it| it.place.as_ref().unwrap().begin_request());
        let _sixth = Held::take(&places, 0);
        assert_eq!(lost(&held), [true, true, true], "all have requests");
        drop(request);
    }

    #[test]
    fn the_work_of_a_connection_ends_with_its_place() {
        let places = Places::new(4, 1);
        let held: Vec<_> = [0, 0, 1].map(|owner| Held::take(&places, owner)).into();
        places.close(1);
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        let is_over = |held: &Held| {
            let work = unless_lost(&held.lost, std::future::ready(()));
            runtime.block_on(work).is_none()
        };
        assert_eq!(
            held.iter().map(is_over).collect::<Vec<_>>(),
            [true, false, true]
        );
    }

    #[test]
    fn a_host_has_one_share() {
        let host = |text: &str| host(text.parse().unwrap()).to_string();
        assert_eq!(host("10.0.0.1"), "10.0.0.1");
        assert_eq!(host("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(host("fe80::1:2:3:4"), "fe80::");
    }
}
