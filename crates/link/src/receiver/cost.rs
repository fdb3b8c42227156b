//! The cost of state, in bytes: structures and their allocations. `tests/held` compares it with the
//! count of an allocator.

/// Overhead of the allocator per allocation: its size.
const ALLOCATION: u64 = 8;

/// An entry of a `BTreeMap`: ascending insertion leaves nodes of eleven places little more than half
/// full.
pub(super) const fn entry(bytes: usize) -> u64 {
    bytes as u64 * 15 / 8 + 4
}

/// An allocation.
pub(super) const fn allocation(bytes: usize) -> u64 {
    bytes as u64 + ALLOCATION
}

/// The buffer of a sample of this length.
pub(super) const fn payload(bytes: usize) -> u64 {
    // A `Vec<u8>` behind a `Box<dyn SampleBuffer>`.
    let own = allocation(size_of::<Vec<u8>>());
    match bytes {
        0 => own,
        _ => own + allocation(bytes),
    }
}
