//! A bad wireless link on one machine.
//!
//! [`Air`] is the model: it decides the fate of a packet that is offered at a time. It is pure (no
//! clock, no I/O), its arithmetic is exact, and every draw is a hash of the seed, the direction and
//! the packet's number, so a run repeats exactly and the same packets are lost whatever the timing.
//!
//! Two programs carry packets through the same model:
//!
//! - [`network::Network`], endpoints on a virtual clock, for tests over thousands of seeds;
//! - the command `nervure-linkemu`, TUN devices between network namespaces, for whole programs.
//!
//! ```
//! use std::time::Duration;
//! use nervure_linkemu::{Air, Duplex, Settings, Verdict};
//!
//! // Both directions: 12 Mbit/s, 10 ms. A packet of 1500 bytes takes 1 ms to send.
//! let settings = Settings { rate_bits_per_second: Some(12_000_000), delay: Duration::from_millis(10), ..Settings::default() };
//! let mut air = Air::new(Duplex::Full, 1, [settings, settings]);
//!
//! assert_eq!(air.offer(Duration::ZERO, 0, 1500, "hello"), Verdict::Queued);
//! let at = Duration::from_millis(11);
//! assert!(air.deliver(at - Duration::from_nanos(1)).is_none());
//! assert_eq!(air.deliver(at).unwrap().packet, "hello");
//! ```

mod air;
pub mod bbr;
mod bursts;
pub mod capacity;
mod codel;
mod counters;
pub mod cubic;
mod header;
mod link_options;
pub mod namespaces;
pub mod network;
mod policer;
pub mod population;
mod queue;
mod random;
mod scenario;
mod scenario_arguments;
mod schedule;
mod serialiser;
mod settings;
pub mod tcp;
mod trace;
mod units;

pub use air::{Air, Delivery, Duplex, Verdict};
pub use counters::{Cause, Count, Counters};
pub use header::{Ecn, Header};
pub use link_options::LinkOptions;
pub use scenario::{Host, Scenario, ScenarioError};
pub use scenario_arguments::ScenarioArguments;
pub use schedule::Schedule;
pub use settings::{Aggregation, Aqm, Bursts, LossPlace, Outage, Policer, Queue, Settings};
pub use trace::replay_trace;

use std::time::Duration;

/// Nanoseconds since the start; saturates after 584 years.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
