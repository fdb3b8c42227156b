//! The quality of service of a stream.

use std::{num::NonZeroU32, time::Duration};

/// The quality of service of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qos {
    /// Treatment of samples that exceed the capacity of the link.
    pub delivery: Delivery,
    /// The priority among streams.
    pub traffic_class: TrafficClass,
    /// A sample delivered later than this after it was sent counts as late.
    pub deadline: Option<Duration>,
    /// A sample older than this is dropped, at either end.
    pub lifespan: Option<Duration>,
}

impl Qos {
    /// The default class, without deadline or lifespan.
    pub const fn new(delivery: Delivery) -> Self {
        Self {
            delivery,
            traffic_class: TrafficClass::Default,
            deadline: None,
            lifespan: None,
        }
    }
}

/// Treatment of samples that exceed the capacity of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Every sample is delivered, in order. The producer waits while `depth` samples are pending or
    /// in flight.
    KeepAll {
        /// The most samples pending or in flight.
        depth: NonZeroU32,
    },
    /// A sample in transmission is repaired until it is complete. The last `depth` samples are
    /// pending, older ones are dropped; a sample that completes after a newer one is dropped too.
    KeepLast {
        /// The most pending samples.
        depth: NonZeroU32,
    },
    /// As `KeepLast`, but without repair.
    BestEffort {
        /// The most pending samples.
        depth: NonZeroU32,
    },
    /// Only the newest sample counts: a newer one ends the repair of its predecessor.
    Latest,
}

impl Delivery {
    /// `KeepAll` with this depth, of at least 1.
    pub const fn keep_all(depth: u32) -> Self {
        Self::KeepAll {
            depth: at_least_one(depth),
        }
    }

    /// `KeepLast` with this depth, of at least 1.
    pub const fn keep_last(depth: u32) -> Self {
        Self::KeepLast {
            depth: at_least_one(depth),
        }
    }

    /// `BestEffort` with this depth, of at least 1.
    pub const fn best_effort(depth: u32) -> Self {
        Self::BestEffort {
            depth: at_least_one(depth),
        }
    }

    /// The most samples that wait at one end.
    pub const fn depth(self) -> usize {
        match self {
            Self::KeepAll { depth } | Self::KeepLast { depth } | Self::BestEffort { depth } => {
                depth.get() as usize
            }
            Self::Latest => 1,
        }
    }

    /// Whether every sample is delivered, in order.
    pub const fn keeps_all(self) -> bool {
        matches!(self, Self::KeepAll { .. })
    }

    /// Whether lost symbols are repaired.
    pub const fn repairs(self) -> bool {
        !matches!(self, Self::BestEffort { .. })
    }
}

const fn at_least_one(depth: u32) -> NonZeroU32 {
    match NonZeroU32::new(depth) {
        Some(depth) => depth,
        None => NonZeroU32::MIN,
    }
}

/// The priority of a stream: a higher class takes all that it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TrafficClass {
    /// Commands and small state.
    Control = 0,
    /// The default.
    #[default]
    Default = 1,
    /// Images, clouds, recordings.
    Bulk = 2,
}

impl TrafficClass {
    /// All classes, highest first.
    pub const ALL: [Self; 3] = [Self::Control, Self::Default, Self::Bulk];
}
