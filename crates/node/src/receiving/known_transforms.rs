//! The transforms that a node has received: `transforms: true` in the dataflow file.

use crate::diagnostics::emit;
use crate::sample::Sample;
use crate::transforms::{Refused, TransformTree};
use nervure_protocol::keeper_to_node::Welcome;
use nervure_shm::{CountersPage, monotonic_nanos};
use std::sync::Arc;

/// Shortest time between two warnings of refused transforms.
const WARNING_INTERVAL_NANOS: u64 = 1_000_000_000;

/// The tree of transforms, and the inputs that fill it.
#[derive(Debug)]
pub(crate) struct KnownTransforms {
    pub inputs: Arc<[u32]>,
    pub tree: TransformTree,
    /// Refused since the last warning, which was at this time of CLOCK_MONOTONIC.
    refused: u64,
    warned_at: Option<u64>,
}

impl KnownTransforms {
    /// `None` for a node without transforms.
    pub fn new(welcome: &Welcome) -> Option<Self> {
        let spec = welcome.transforms.as_ref()?;
        let inputs = (0..welcome.inputs.len()).filter(|input| spec.inputs.contains(input));
        let mut known = Self {
            inputs: inputs
                .filter_map(|input| u32::try_from(input).ok())
                .collect(),
            tree: TransformTree::default(),
            refused: 0,
            warned_at: None,
        };
        for transform in &spec.fixed {
            if let Err(refused) = known.tree.add_static(transform) {
                known.warn("static_transforms", &refused);
            }
        }
        Some(known)
    }

    /// Takes in a transform, or counts it as unused.
    pub fn take(&mut self, input: usize, name: &str, sample: &Sample, counters: &CountersPage) {
        if let Err(refused) = self.tree.add_sample(sample) {
            counters.count_unused(input as u32, 1);
            self.warn(name, &refused);
        }
    }

    /// Warns once a second at most.
    fn warn(&mut self, input: &str, refused: &Refused) {
        self.refused += 1;
        let now = monotonic_nanos();
        let is_due = |last: u64| now.saturating_sub(last) >= WARNING_INTERVAL_NANOS;
        if self.warned_at.is_none_or(is_due) {
            let count = std::mem::take(&mut self.refused);
            self.warned_at = Some(now);
            emit!(warn, %input, count, "a transform is refused: {refused}");
        }
    }
}
