//! Lookups of transforms between frames.

use super::Events;
use crate::receiving::wait::WaitPlan;
use crate::transforms::{LookupError, LookupFailure, LookupTime, Transform, TransformTree};
use nervure_shm::monotonic_nanos;
use std::time::Duration;

/// The transforms of the dataflow, for lookups: see [`Node::transforms`](crate::Node::transforms).
#[derive(Debug)]
pub struct Transforms<'e>(&'e mut Events);

impl Events {
    /// The transforms of the dataflow: see [`Node::transforms`](crate::Node::transforms).
    pub fn transforms(&mut self) -> Transforms<'_> {
        Transforms(self)
    }
}

impl Transforms<'_> {
    /// The pose of the frame `source` in the frame `target`. It takes the coordinates of a point in
    /// `source` to those in `target`.
    ///
    /// While a transform between the frames has not come, this waits for `timeout` at most. Samples of
    /// other inputs stay in their queues meanwhile.
    ///
    /// # Errors
    /// [`LookupError`], whose reason is a [`LookupFailure`]. A time before the samples that are kept fails
    /// at once.
    pub fn lookup(
        &mut self,
        target: &str,
        source: &str,
        time: impl Into<LookupTime>,
        timeout: Duration,
    ) -> Result<Transform, LookupError> {
        let time = time.into();
        let began = monotonic_nanos();
        let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let deadline = began.saturating_add(nanos);
        let mut waited = Duration::ZERO;
        loop {
            let error = match self.try_lookup(target, source, time) {
                Ok(found) => return Ok(found),
                Err(error) => LookupError { waited, ..error },
            };
            if !error.reason.may_pass() || monotonic_nanos() >= deadline {
                return Err(error);
            }
            if self.has_stopped() {
                return Err(error.stopped());
            }
            let Self(events) = self;
            WaitPlan::new(Some(deadline), events.is_woken()).run(|until| events.inbox.wait(until));
            waited = Duration::from_nanos(monotonic_nanos() - began);
        }
    }

    /// As [`Transforms::lookup`], without waiting.
    ///
    /// # Errors
    /// As [`Transforms::lookup`].
    pub fn try_lookup(
        &mut self,
        target: &str,
        source: &str,
        time: impl Into<LookupTime>,
    ) -> Result<Transform, LookupError> {
        match self.tree() {
            Ok(tree) => tree.lookup(target, source, time),
            Err(reason) => Err(LookupError::new(target, source, reason)),
        }
    }

    /// The tree of all transforms that have come.
    ///
    /// # Errors
    /// [`LookupFailure::NotDeclared`] without `transforms: true` in the dataflow file.
    pub fn tree(&mut self) -> Result<&TransformTree, LookupFailure> {
        let Self(events) = self;
        events.core.producer.counters.beat();
        // A ring of the doorbell from here on ends the wait that follows.
        events.inbox.collect();
        if events.inbox.take_commands() {
            events.absorb_notices();
        }
        let inputs = events.transforms.as_ref().map(|known| known.inputs.clone());
        for &input in inputs.iter().flat_map(|inputs| &**inputs) {
            let queue = events.core.welcome.inputs[input as usize].queue;
            // At most those of a full queue: a producer that sends all the time must not keep it here.
            for _ in 0..=queue.map_or(1, |queue| queue.depth) {
                let Some(arrival) = events.inbox.next_of(input) else {
                    break;
                };
                events.handle_arrival(arrival);
            }
        }
        match &events.transforms {
            Some(known) => Ok(&known.tree),
            None => Err(LookupFailure::NotDeclared {
                node: events.core.welcome.node.clone(),
            }),
        }
    }

    /// Whether the node has to end, so that a lookup does not wait.
    pub fn has_stopped(&self) -> bool {
        self.0.stop.is_some() || self.0.progress.has_stopped()
    }
}
