//! The streams of one direction, by number.

use std::{collections::BTreeMap, ops::Index};

/// Streams by number. Tests count accesses, to show that idle streams cost nothing however many are
/// open.
#[derive(Debug)]
pub(crate) struct Streams<S> {
    streams: BTreeMap<u32, S>,
    #[cfg(test)]
    looked_at: std::cell::Cell<u64>,
}

impl<S> Default for Streams<S> {
    fn default() -> Self {
        Self {
            streams: BTreeMap::new(),
            #[cfg(test)]
            looked_at: Default::default(),
        }
    }
}

impl<S> Streams<S> {
    pub(crate) fn insert(&mut self, stream: u32, state: S) {
        self.streams.insert(stream, state);
    }

    pub(crate) fn remove(&mut self, stream: &u32) -> Option<S> {
        self.streams.remove(stream)
    }

    pub(crate) fn clear(&mut self) {
        self.streams.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    pub(crate) fn contains_key(&self, stream: &u32) -> bool {
        self.streams.contains_key(stream)
    }

    pub(crate) fn get(&self, stream: &u32) -> Option<&S> {
        self.look();
        self.streams.get(stream)
    }

    pub(crate) fn get_mut(&mut self, stream: &u32) -> Option<&mut S> {
        self.look();
        self.streams.get_mut(stream)
    }

    /// The first stream with this number or a higher one.
    pub(crate) fn next_from(&self, stream: u32) -> Option<u32> {
        self.streams.range(stream..).next().map(|(id, _)| *id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&u32, &S)> {
        self.streams.iter().inspect(|_| self.look())
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&u32, &mut S)> {
        #[cfg(test)]
        self.looked_at
            .update(|before| before + self.streams.len() as u64);
        self.streams.iter_mut()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &S> {
        self.iter().map(|(_, state)| state)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &u32> {
        self.iter().map(|(stream, _)| stream)
    }

    fn look(&self) {
        #[cfg(test)]
        self.looked_at.set(self.looked_at.get() + 1);
    }

    /// Number of accesses to a stream.
    #[cfg(test)]
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at.get()
    }
}

impl<S> Index<&u32> for Streams<S> {
    type Output = S;

    fn index(&self, stream: &u32) -> &S {
        self.get(stream).expect("there is such a stream")
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::{
        qos::{Delivery, Qos},
        receiver::ReceiverEvent,
        session::{Session, SessionConfig, SessionEvent},
    };

    const STEP: Duration = Duration::from_millis(1);

    /// Two sessions, over a path that is interrupted for a while.
    struct Pair {
        now: Instant,
        sender: Session,
        receiver: Session,
        opened: usize,
        delivered: u64,
    }

    impl Pair {
        fn new(streams: usize) -> Self {
            let now = Instant::now();
            let [mut sender, receiver] =
                [1, 2].map(|seed| Session::new(SessionConfig::default(), seed, now));
            for number in 0..streams {
                sender
                    .open(
                        now,
                        format!("stream {number}"),
                        Qos::new(Delivery::keep_last(1)),
                    )
                    .expect("the name is short");
            }
            let mut pair = Self {
                now,
                sender,
                receiver,
                opened: 0,
                delivered: 0,
            };
            for _ in 0..5000 {
                pair.step(true);
                if pair.opened == streams && pair.sender.sender().streams().is_idle() {
                    return pair;
                }
            }
            panic!("{} of {streams} streams are open", pair.opened);
        }

        fn step(&mut self, is_connected: bool) {
            self.now += STEP;
            let mut packet = Vec::new();
            let ends = [(&mut self.sender, &mut self.receiver)];
            for (sender, receiver) in ends {
                sender.handle_timeout(self.now);
                receiver.handle_timeout(self.now);
                while sender.next_datagram(self.now, 1200, &mut packet) {
                    if is_connected {
                        receiver.on_datagram(self.now, None, &packet);
                    }
                    packet.clear();
                }
                while receiver.next_datagram(self.now, 1200, &mut packet) {
                    if is_connected {
                        sender.on_datagram(self.now, None, &packet);
                    }
                    packet.clear();
                }
            }
            while let Some(event) = self.receiver.poll_event() {
                match event {
                    SessionEvent::Receiver(ReceiverEvent::Opened { .. }) => self.opened += 1,
                    SessionEvent::Receiver(ReceiverEvent::Readable(stream)) => {
                        self.delivered += u64::from(self.receiver.take(self.now, stream).is_some());
                    }
                    _ => {}
                }
            }
        }

        fn looked_at(&self) -> u64 {
            self.sender.sender().streams().looked_at()
                + self.receiver.receiver().streams_looked_at()
        }

        /// Five streams send now and then, and the path is interrupted for a while. Returns the
        /// number of accesses to streams.
        fn work(&mut self) -> u64 {
            let before = self.looked_at();
            for millis in 0..2000 {
                if millis % 20 == 0 {
                    (1..=5).for_each(|stream| {
                        self.sender
                            .send(self.now, stream, vec![7; 3000].into())
                            .expect("it keeps the last");
                    });
                }
                self.step(!(500..1500).contains(&millis));
            }
            self.looked_at() - before
        }
    }

    #[test]
    fn streams_that_are_only_open_cost_nothing() {
        let (mut few, mut many) = (Pair::new(5), Pair::new(5000));
        let (work_of_few, work_of_many) = (few.work(), many.work());
        assert!(
            few.delivered > 200 && many.delivered > 200,
            "{} and {}",
            few.delivered,
            many.delivered
        );
        // The sessions differ a little in their estimated rates.
        assert!(
            work_of_many < work_of_few * 2,
            "{work_of_few} streams looked at, and {work_of_many}"
        );
    }
}
