//! A few words of one writer, of which any reader gets a whole copy.
//!
//! Fields: `version`, how often the words were written; `copies`, two of them, of which the one at `version` modulo 2 is
//! the latest. The writer fills the other one and then moves `version` on, so that a writer that stops at any moment
//! leaves a whole copy behind. A reader copies the latest and looks at `version` again: where it has moved, the copy
//! may be torn, and the reader begins anew.

use super::sync::{AtomicU64, Ordering::*, fence};

/// Copies that a reader makes in vain before it takes what it has: a writer that is so busy has gone mad.
const MAX_READ_ATTEMPTS: u32 = 1000;

/// The words, wherever they lie.
pub(crate) struct DoubleBuffer<'a> {
    pub(crate) version: &'a AtomicU64,
    pub(crate) copies: [&'a [AtomicU64]; 2],
}

impl DoubleBuffer<'_> {
    /// Replaces the words. One thread at a time may write.
    pub(crate) fn write(&self, values: &[u64]) {
        let version = self.version.load(Relaxed).wrapping_add(1);
        // A reader that meets a new word here sees the version that made this copy an old one.
        fence(Release);
        for (word, value) in self.copies[(version & 1) as usize].iter().zip(values) {
            word.store(*value, Relaxed);
        }
        self.version.store(version, Release);
    }

    /// Copies the words.
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
