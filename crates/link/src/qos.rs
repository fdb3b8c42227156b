//! How a stream is delivered.

use std::{num::NonZeroU32, time::Duration};

/// The quality of service of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qos {
    /// What happens to samples that cannot all be carried.
    pub delivery: Delivery,
    /// Which streams go first.
    pub traffic_class: TrafficClass,
    /// A sample delivered later than this after it was sent counts as late.
    pub deadline: Option<Duration>,
    /// A sample older than this is dropped, wherever it is.
    pub lifespan: Option<Duration>,
}

impl Qos {
    /// Of the default class, without deadline or lifespan.
    pub const fn new(delivery: Delivery) -> Self {
        Self {
            delivery,
            traffic_class: TrafficClass::Default,
            deadline: None,
            lifespan: None,
        }
    }
}

/// What happens to samples that cannot all be carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Every sample is delivered, in order. The producer waits while `depth` samples are under way.
    KeepAll {
        /// Samples under way, at most.
        depth: NonZeroU32,
    },
    /// What is sent is repaired until it is complete. The last `depth` samples wait for their turn, older ones are
    /// dropped; a sample that completes after a newer one is dropped too.
    KeepLast {
        /// Samples that wait, at most.
        depth: NonZeroU32,
    },
    /// As `KeepLast`, but nothing is repaired.
    BestEffort {
        /// Samples that wait, at most.
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

    /// Samples that wait on one side, at most.
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

    /// Whether lost symbols are made good.
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

/// Which streams go first: a higher class takes all that it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TrafficClass {
    /// Commands and small state.
    Control = 0,
    /// What is not said.
    #[default]
    Default = 1,
    /// Images, clouds, recordings.
    Bulk = 2,
}

impl TrafficClass {
    /// All classes, the first to go first.
    pub const ALL: [Self; 3] = [Self::Control, Self::Default, Self::Bulk];
}
