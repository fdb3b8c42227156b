//! Numbers that nobody needs to be unable to guess, or that a simulation repeats.

use ring::rand::{SecureRandom, SystemRandom};

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014), seeded by the caller.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub(crate) fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }
}

/// Random bytes, from the system unless a simulation is to repeat.
#[derive(Debug)]
pub(crate) enum RandomBytes {
    System(SystemRandom),
    Seeded(Random),
}

impl RandomBytes {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        match seed {
            Some(seed) => Self::Seeded(Random::new(seed)),
            None => Self::System(SystemRandom::new()),
        }
    }

    pub(crate) fn draw<const BYTES: usize>(&mut self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        match self {
            Self::System(system) => system
                .fill(&mut bytes)
                .expect("the system gives random numbers"),
            Self::Seeded(random) => {
                for part in bytes.chunks_mut(8) {
                    part.copy_from_slice(&random.next_u64().to_le_bytes()[..part.len()]);
                }
            }
        }
        bytes
    }
}
