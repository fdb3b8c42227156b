//! Clocks.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`, which all processes of a host share, whatever their namespaces.
pub fn monotonic() -> Duration {
    read(ClockId::Monotonic)
}

/// The time that the processors spent on this process.
pub fn cpu() -> Duration {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}
