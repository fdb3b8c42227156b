//! Draws that depend on their place alone: a hash of key, number and purpose. Not `fastrand`: a
//! draw must not depend on the number of draws before it.

/// The purpose of a draw, so that no two decisions about a packet share one.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Loss = 1,
    Burst = 2,
    BurstStart = 3,
    BurstLength = 4,
    Jitter = 5,
    Reorder = 6,
}

/// The key of the draws of one direction.
pub(crate) fn key(seed: u64, direction: u64) -> u64 {
    mix(mix(seed).wrapping_add(direction))
}

/// Uniform in [0, 1).
pub(crate) fn unit(key: u64, number: u64, purpose: Purpose) -> f64 {
    let hash = mix(mix(key.wrapping_add(purpose as u64)).wrapping_add(number));
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

/// Exponential with the given mean.
pub(crate) fn exponential(key: u64, number: u64, purpose: Purpose, mean_nanos: u64) -> u64 {
    (-(1.0 - unit(key, number, purpose)).ln() * mean_nanos as f64) as u64
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
fn mix(value: u64) -> u64 {
    let mut bits = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}
