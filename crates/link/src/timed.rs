//! A map whose values have timeouts. Work on it grows with the values that were changed or are due,
//! not with all.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

/// A value with a timeout.
pub(crate) trait Timed {
    /// When it is due, if ever.
    fn timeout(&mut self) -> Option<Instant>;
}

/// Values by key, their timeouts in order, and the keys of values that may have work.
#[derive(Debug)]
pub(crate) struct TimedMap<K, V> {
    values: BTreeMap<K, Entry<V>>,
    timeouts: BTreeSet<(Instant, K)>,
    /// Values whose timeout may have changed, each once.
    changed: Vec<K>,
    /// Values that may have work, until [`rest`](TimedMap::rest).
    awake: BTreeSet<K>,
    /// Number of times that a value was woken.
    wakes: u64,
    /// Number of values that were looked at.
    #[cfg(test)]
    looked_at: std::cell::Cell<u64>,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    timeout: Option<Instant>,
    is_changed: bool,
    is_awake: bool,
}

impl<K: Ord + Copy, V: Timed> TimedMap<K, V> {
    pub(crate) fn new() -> Self {
        Self {
            values: BTreeMap::new(),
            timeouts: BTreeSet::new(),
            changed: Vec::new(),
            awake: BTreeSet::new(),
            wakes: 0,
            #[cfg(test)]
            looked_at: std::cell::Cell::new(0),
        }
    }

    #[cfg(test)]
    fn look(&self, values: usize) {
        self.looked_at.set(self.looked_at.get() + values as u64);
    }

    /// Number of values that were looked at so far.
    #[cfg(test)]
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at.get()
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key).map(|entry| &entry.value)
    }

    /// The value, which may have work from now on.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.wake(key);
        self.get_asleep(key)
    }

    /// The value, for changes that give it no work, except perhaps a timeout.
    pub(crate) fn get_asleep(&mut self, key: &K) -> Option<&mut V> {
        #[cfg(test)]
        self.look(1);
        let entry = self.values.get_mut(key)?;
        if !std::mem::replace(&mut entry.is_changed, true) {
            self.changed.push(*key);
        }
        Some(&mut entry.value)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.remove(&key);
        let entry = Entry {
            value,
            timeout: None,
            is_changed: false,
            is_awake: false,
        };
        self.values.insert(key, entry);
        self.get_mut(&key);
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.values.remove(key)?;
        if let Some(at) = entry.timeout {
            self.timeouts.remove(&(at, *key));
        }
        self.awake.remove(key);
        Some(entry.value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        #[cfg(test)]
        self.look(self.values.len());
        self.values.iter().map(|(key, entry)| (key, &entry.value))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        #[cfg(test)]
        self.look(self.values.len());
        self.values.values().map(|entry| &entry.value)
    }

    pub(crate) fn keys(&self) -> Vec<K> {
        #[cfg(test)]
        self.look(self.values.len());
        self.values.keys().copied().collect()
    }

    /// The keys of the values that fulfil the condition.
    pub(crate) fn keys_where(&self, condition: impl Fn(&V) -> bool) -> Vec<K> {
        let found = self.iter().filter(|(_, value)| condition(value));
        found.map(|(key, _)| *key).collect()
    }

    /// The earliest timeout.
    pub(crate) fn first_timeout(&mut self) -> Option<Instant> {
        while let Some(key) = self.changed.pop() {
            #[cfg(test)]
            self.look(1);
            let Some(entry) = self.values.get_mut(&key) else {
                continue;
            };
            entry.is_changed = false;
            let timeout = entry.value.timeout();
            if timeout == entry.timeout {
                continue;
            }
            if let Some(before) = entry.timeout {
                self.timeouts.remove(&(before, key));
            }
            entry.timeout = timeout;
            self.timeouts.extend(timeout.map(|at| (at, key)));
        }
        self.timeouts.first().map(|(at, _)| *at)
    }

    /// The keys of the values that are due.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<K> {
        self.first_timeout();
        let due = self.timeouts.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, key)| *key).collect()
    }

    /// The first key at `from` or later of a value that may have work; then the first of all.
    pub(crate) fn next_awake(&self, from: &K) -> Option<K> {
        let mut later = self.awake.range(from..);
        later.next().or_else(|| self.awake.first()).copied()
    }

    /// Notes that a value may have work.
    pub(crate) fn wake(&mut self, key: &K) {
        let Some(entry) = self.values.get_mut(key) else {
            return;
        };
        self.wakes += 1;
        if !std::mem::replace(&mut entry.is_awake, true) {
            self.awake.insert(*key);
        }
    }

    /// Number of times that a value was woken.
    pub(crate) fn wakes(&self) -> u64 {
        self.wakes
    }

    /// Notes that a value has no work left.
    pub(crate) fn rest(&mut self, key: &K) {
        if let Some(entry) = self.values.get_mut(key) {
            entry.is_awake = false;
        }
        self.awake.remove(key);
    }

    /// Returns the keys of the values that may have work, which are taken to have none then.
    pub(crate) fn take_awake(&mut self) -> BTreeSet<K> {
        let awake = std::mem::take(&mut self.awake);
        for key in &awake {
            if let Some(entry) = self.values.get_mut(key) {
                entry.is_awake = false;
            }
        }
        awake
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    struct At(Option<Instant>, u32);

    impl Timed for At {
        fn timeout(&mut self) -> Option<Instant> {
            self.1 += 1;
            self.0
        }
    }

    #[test]
    fn only_what_was_changed_is_asked_again() {
        let now = Instant::now();
        let later = |millis| now + Duration::from_millis(millis);
        let mut map = TimedMap::new();
        for key in 0..100_u64 {
            map.insert(key, At(Some(later(100 + key)), 0));
        }
        assert_eq!(map.first_timeout(), Some(later(100)));
        assert_eq!(map.due(later(102)), [0, 1, 2]);
        map.get_mut(&1).unwrap().0 = None;
        map.get_asleep(&2).unwrap().0 = Some(later(500));
        map.remove(&0);
        assert_eq!(map.first_timeout(), Some(later(103)));
        assert!(map.due(later(102)).is_empty());
        assert_eq!(map.due(later(600)).last(), Some(&2));
        let asked: u32 = map.values().map(|value| value.1).sum();
        assert_eq!(asked, 99 + 2);
    }

    #[test]
    fn values_take_turns_until_they_rest() {
        let mut map = TimedMap::new();
        (0..3_u32).for_each(|key| map.insert(key, At(None, 0)));
        assert_eq!(
            [0, 1, 2, 3].map(|from| map.next_awake(&from)),
            [Some(0), Some(1), Some(2), Some(0)]
        );
        map.rest(&1);
        map.get_asleep(&1);
        assert_eq!(map.next_awake(&1), Some(2));
        map.get_mut(&1);
        assert_eq!(map.next_awake(&1), Some(1));
        assert_eq!(map.take_awake().len(), 3);
        assert_eq!(map.next_awake(&0), None);
    }
}
