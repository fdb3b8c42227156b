//! Random words.

use crate::rig::DEPTH;
use fastrand::Rng;

/// A word that is likely to do harm: near a limit, or any other.
pub fn harmful_word(random: &mut Rng) -> u64 {
    let near = random.u64(..5);
    match random.u64(..6) {
        0 => near,
        1 => u64::MAX - near,
        2 => u64::from(u32::MAX) - 2 + near,
        3 => (1 << random.u64(..64)) + near,
        4 => u64::from(DEPTH) + near,
        _ => random.u64(..),
    }
}
