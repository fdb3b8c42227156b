//! Bounds and starting points of the rate.

use std::time::Duration;

use super::constants::Constants;

/// Bounds and starting points of a [`super::Rate`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Rate before anything is known, in bytes per second.
    pub initial_bytes_per_second: f64,
    /// Never less than this, in bytes per second.
    pub min_bytes_per_second: f64,
    /// Never more than this, in bytes per second.
    pub max_bytes_per_second: f64,
    /// Queue delay that is aimed at when the rate is 54 Mbit/s.
    pub target_queue_delay: Duration,
    /// Share of the bottleneck that is claimed beside a flow that fills the queue, such as TCP with Cubic.
    pub competing_share: f64,
    /// The constants of the law.
    pub constants: Constants,
    /// Time between two probes of a silent link.
    pub probe_interval: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            initial_bytes_per_second: 1_500_000.0,
            min_bytes_per_second: 6_000.0,
            max_bytes_per_second: 5e9,
            target_queue_delay: Duration::from_millis(8),
            competing_share: 0.5,
            constants: Constants::default(),
            probe_interval: Duration::from_millis(20),
        }
    }
}
