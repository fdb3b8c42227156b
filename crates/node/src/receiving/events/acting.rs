//! Goals of a node for the actions of others.

use super::Events;
use crate::receiving::calls::{CallError, Ticket};
use crate::receiving::goal_state::{GoalState, WITHIN_KEY, cancellation};
use crate::receiving::wait::WaitPlan;
use crate::sample::Sample;
use crate::sending::Publisher;
use nervure_message::{Encode, Metadata};
use nervure_shm::{Wait, monotonic_nanos};
use std::ops::ControlFlow;
use std::time::Duration;

/// The goals that a node sends to actions: `clients` of the dataflow file. See
/// [`Node::actions`](crate::Node::actions).
#[derive(Debug)]
pub struct Actions<'a>(&'a mut Events);

impl<'a> Actions<'a> {
    /// The goals of a node that was split.
    pub fn new(events: &'a mut Events) -> Self {
        Self(events)
    }

    /// Sends a goal, calls `on_feedback` for each feedback, and waits for the result, at most for `timeout`;
    /// then the goal is cancelled. If `on_feedback` breaks, the goal is cancelled, and the wait goes on until
    /// its node has ended it. Samples of other inputs stay in their queues meanwhile.
    ///
    /// # Errors
    /// [`CallError`], also [`CallError::Canceled`] for a goal that was cancelled.
    pub fn run<V: Encode + ?Sized>(
        &mut self,
        client: &str,
        goal: &V,
        timeout: Option<Duration>,
        mut on_feedback: impl FnMut(&Sample) -> ControlFlow<()>,
    ) -> Result<Sample, CallError> {
        let ticket = self.send(client, goal, timeout)?;
        let nanos = timeout.map(|timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let deadline = nanos.map(|nanos| monotonic_nanos().saturating_add(nanos));
        let mut was_cancelled = false;
        loop {
            while let Some(feedback) = self.take_feedback(ticket) {
                if on_feedback(&feedback).is_break() {
                    was_cancelled = true;
                    self.cancel(ticket)?;
                }
            }
            let result = self.0.take_answer(ticket);
            let is_late = deadline.is_some_and(|deadline| monotonic_nanos() >= deadline);
            match result {
                // The node knows the limit, and may have cancelled the goal before this looked.
                Some(Err(CallError::Canceled { .. })) if is_late && !was_cancelled => {}
                Some(result) => return result,
                None => {}
            }
            if is_late {
                self.cancel(ticket)?;
                self.0.forget_call(ticket);
                return Err(CallError::TimedOut {
                    service: self.0.service_of(ticket).to_owned(),
                    timeout: timeout.unwrap_or_default(),
                });
            }
            WaitPlan::new(deadline, self.0.is_woken()).run(|until| self.0.inbox.wait(until));
        }
    }

    /// Sends a goal without waiting. [`Actions::take_feedback`] returns its feedback, and
    /// [`Node::take_answer`](crate::Node::take_answer) its result. After `timeout` its node is asked to cancel
    /// it.
    ///
    /// # Errors
    /// As [`Actions::run`].
    pub fn send<V: Encode + ?Sized>(
        &mut self,
        client: &str,
        goal: &V,
        timeout: Option<Duration>,
    ) -> Result<Ticket, CallError> {
        let (ticket, publisher) = self.prepare(client)?;
        let mut metadata = Metadata::new();
        if let Some(timeout) = timeout {
            metadata.insert(WITHIN_KEY, timeout.as_secs_f64());
        }
        let envelope = ticket.envelope().metadata(&metadata);
        let sent = publisher.send_with(goal, &envelope, Wait::Never);
        self.0.finish_call(ticket, sent)
    }

    pub(crate) fn prepare(&mut self, client: &str) -> Result<(Ticket, Publisher), CallError> {
        let index = self.0.calls.find(&self.0.core, client)?;
        match self.0.calls.feedback_input(index) {
            Some(_) => self.0.prepare_call(client),
            None => Err(CallError::NoAction {
                service: self.0.calls.service(index).to_owned(),
            }),
        }
    }

    /// Takes the oldest feedback on a goal. All that was sent before the result can be taken until the result
    /// is.
    pub fn take_feedback(&mut self, ticket: Ticket) -> Option<Sample> {
        self.0.collect_answers(ticket.client);
        self.0.calls.take_update(ticket)
    }

    /// The state of a goal, until its result is taken.
    pub fn state(&mut self, ticket: Ticket) -> GoalState {
        self.0.collect_answers(ticket.client);
        self.0.calls.state(ticket)
    }

    /// Asks the node of an action to cancel a goal, and returns at once. The result says whether the goal was
    /// cancelled, or reached before. Without effect on a goal that has ended or was cancelled before.
    ///
    /// # Errors
    /// [`CallError::NoAction`] for a request to a service, [`CallError::Send`] if it cannot be sent.
    pub fn cancel(&mut self, ticket: Ticket) -> Result<(), CallError> {
        if let Some(publisher) = self.0.calls.begin_cancel(&self.0.core, ticket)? {
            let metadata = cancellation();
            let envelope = ticket.envelope().metadata(&metadata);
            publisher.send_with(&false, &envelope, Wait::Never)?;
        }
        Ok(())
    }
}
