//! A few words with one writer, of which every reader gets a consistent copy.
//!
//! Fields: `version`, the number of writes; `copies`, two of them, of which the one at `version`
//! modulo 2 is current. The writer fills the other one and then increments `version`, so a writer
//! that stops at any moment leaves a consistent copy behind. A reader copies the current words and
//! loads `version` again. If it has changed, the copy may be torn, and the reader starts again.

use super::sync::{AtomicU64, Ordering::*, fence};

/// Attempts after which a reader returns a copy that may be torn. An honest writer makes a few
/// attempts fail.
const MAX_READ_ATTEMPTS: u32 = 1000;

/// A view of the buffer, whose words lie in shared memory.
pub(crate) struct DoubleBuffer<'a> {
    pub(crate) version: &'a AtomicU64,
    pub(crate) copies: [&'a [AtomicU64]; 2],
}

impl DoubleBuffer<'_> {
    /// Replaces the words. Only one thread at a time may write.
    pub(crate) fn write(&self, values: &[u64]) {
        let version = self.version.load(Relaxed).wrapping_add(1);
        // A reader that sees a word stored below also sees that this copy's version is outdated.
        fence(Release);
        for (word, value) in self.copies[(version & 1) as usize].iter().zip(values) {
            word.store(*value, Relaxed);
        }
        self.version.store(version, Release);
    }

    /// Copies the current words.
    pub(crate) fn read<const WORDS: usize>(&self) -> [u64; WORDS] {
        let mut values = [0; WORDS];
        for _ in 0..MAX_READ_ATTEMPTS {
            let version = self.version.load(Acquire);
            for (value, word) in values.iter_mut().zip(self.copies[(version & 1) as usize]) {
                *value = word.load(Relaxed);
            }
            fence(Acquire);
            if self.version.load(Relaxed) == version {
                break;
            }
            super::sync::spin_loop();
        }
        values
    }
}
