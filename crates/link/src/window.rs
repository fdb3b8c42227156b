//! A window of received packet numbers, in which duplicates count once.

/// Largest distance behind the highest number at which a packet still counts.
const WINDOW_PACKETS: u64 = 4096;

/// Bytes of the window.
pub(crate) const WINDOW_BYTES: u64 = WINDOW_PACKETS / 8;

#[derive(Debug)]
pub(crate) struct PacketWindow {
    /// The highest number received, 0: none.
    pub(crate) highest: u64,
    seen: Box<[u64]>,
}

impl PacketWindow {
    pub(crate) fn new() -> Self {
        Self {
            highest: 0,
            seen: vec![0; (WINDOW_PACKETS / 64) as usize].into(),
        }
    }

    /// Whether a packet number, from 1, was not seen before and is recent enough to be sure of
    /// that.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        let (word, bit) = Self::place(number);
        number > self.highest
            || number > 0 && number + WINDOW_PACKETS > self.highest && self.seen[word] & bit == 0
    }

    /// Notes a packet. Returns false if it is not [new](Self::is_new).
    pub(crate) fn insert(&mut self, number: u64) -> bool {
        if !self.is_new(number) {
            return false;
        }
        if number > self.highest {
            let passed = (number - self.highest).min(WINDOW_PACKETS);
            for skipped in number - passed + 1..=number {
                let (word, bit) = Self::place(skipped);
                self.seen[word] &= !bit;
            }
            self.highest = number;
        }
        let (word, bit) = Self::place(number);
        self.seen[word] |= bit;
        true
    }

    fn place(number: u64) -> (usize, u64) {
        let place = number % WINDOW_PACKETS;
        ((place / 64) as usize, 1 << (place % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn each_counts_once(numbers in prop::collection::vec(0u64..20_000, 1..300)) {
            let (mut window, mut seen) = (PacketWindow::new(), BTreeSet::new());
            for number in numbers {
                let recent = number > 0 && number + WINDOW_PACKETS > window.highest;
                prop_assert_eq!(window.is_new(number), recent && !seen.contains(&number));
                prop_assert_eq!(window.insert(number), recent && seen.insert(number));
            }
        }
    }
}
