//! Non-cryptographic random numbers for simulations, and random bytes from the system or from such
//! a sequence.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014), seeded
/// by the caller.
///
/// Not `fastrand`: seeded simulations that tests and docs quote depend on this sequence.
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

/// A seed for one purpose. Numbers drawn from it reveal neither `seed` nor the seeds of other
/// purposes.
pub(crate) fn derive(seed: u64, purpose: &str) -> u64 {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    context.update(&seed.to_le_bytes());
    context.update(purpose.as_bytes());
    let digest = context.finish();
    u64::from_le_bytes(*digest.as_ref().first_chunk().expect("32 bytes"))
}

/// Random bytes, from the system unless a simulation is to repeat.
#[derive(Debug)]
pub(crate) enum RandomBytes {
    System,
    Seeded(Random),
}

impl RandomBytes {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        seed.map_or(Self::System, |seed| Self::Seeded(Random::new(seed)))
    }

    pub(crate) fn draw<const BYTES: usize>(&mut self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        match self {
            Self::System => getrandom::fill(&mut bytes).expect("the system gives random numbers"),
            Self::Seeded(random) => {
                for part in bytes.chunks_mut(8) {
                    part.copy_from_slice(&random.next_u64().to_le_bytes()[..part.len()]);
                }
            }
        }
        bytes
    }
}
