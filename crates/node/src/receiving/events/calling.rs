//! Requests of a node, and the wait for their answers.

use super::Events;
use crate::receiving::calls::{CallError, Ticket};
use crate::receiving::wait::WaitPlan;
use crate::sample::Sample;
use crate::sending::Publisher;
use nervure_message::Encode;
use nervure_shm::{Receipt, SendError, Wait, monotonic_nanos};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Events {
    /// Sends a request to a service, and waits for the answer: see [`crate::Node::call`].
    ///
    /// # Errors
    /// As [`crate::Node::call`].
    pub fn call<V: Encode + ?Sized>(
        &mut self,
        client: &str,
        value: &V,
        timeout: Option<Duration>,
    ) -> Result<Sample, CallError> {
        let nanos = timeout.map(|timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let deadline = nanos.map(|nanos| monotonic_nanos().saturating_add(nanos));
        let ticket = self.begin_call(client, value)?;
        loop {
            if let Some(answer) = self.take_answer(ticket) {
                return answer;
            }
            if deadline.is_some_and(|deadline| monotonic_nanos() >= deadline) {
                self.forget_call(ticket);
                return Err(CallError::TimedOut {
                    service: self.service_of(ticket).to_owned(),
                    timeout: timeout.unwrap_or_default(),
                });
            }
            WaitPlan::new(deadline, self.is_woken()).run(|until| self.inbox.wait(until));
        }
    }

    /// Sends a request to a service, without waiting for the answer: see
    /// [`crate::Node::begin_call`].
    ///
    /// # Errors
    /// As [`crate::Node::begin_call`].
    pub fn begin_call<V: Encode + ?Sized>(
        &mut self,
        client: &str,
        value: &V,
    ) -> Result<Ticket, CallError> {
        let (ticket, publisher) = self.prepare_call(client)?;
        let sent = publisher.send_with(value, &ticket.envelope(), Wait::Never);
        self.finish_call(ticket, sent)
    }

    /// Takes the answer to a request, if it has arrived: see [`crate::Node::take_answer`].
    pub fn take_answer(&mut self, ticket: Ticket) -> Option<Result<Sample, CallError>> {
        self.core.producer.counters.beat();
        self.collect_answers(ticket.client);
        let mut answer = self.calls.take(ticket);
        if answer.is_none() && (self.stop.is_some() || self.progress.has_stopped()) {
            self.forget_call(ticket);
            answer = Some(Err(CallError::Stopped));
        }
        answer.map(|answer| self.note_if_cut_short(answer))
    }

    /// Abandons a request: its answer is dropped when it arrives.
    pub fn forget_call(&mut self, ticket: Ticket) {
        self.calls.forget(ticket);
    }

    pub(crate) fn prepare_call(&mut self, client: &str) -> Result<(Ticket, Publisher), CallError> {
        let client = self.calls.find(&self.core, client)?;
        // First, so that the end of the service's process fails earlier requests, and not this one.
        self.collect_answers(client);
        // The stand-in of a service on another machine leaves when that has ended; requests would still
        // be sent there.
        let begun = match self.inbox.is_over(self.calls.input(client)) {
            true => Err(self.calls.not_running(client)),
            false => self.calls.begin(&self.core, client),
        };
        self.note_if_cut_short(begun)
    }

    pub(crate) fn finish_call(
        &mut self,
        ticket: Ticket,
        sent: Result<Receipt, SendError>,
    ) -> Result<Ticket, CallError> {
        let finished = self.calls.finish_send(ticket, sent);
        self.note_if_cut_short(finished)
    }

    /// Notes a request that fails while the dataflow stops: the program may end with that error,
    /// which is no failure of the node.
    fn note_if_cut_short<T>(&self, result: Result<T, CallError>) -> Result<T, CallError> {
        let producer = &self.core.producer;
        let is_stopping = producer.stopping.load(Ordering::SeqCst) || self.stop.is_some();
        if result.is_err() && (is_stopping || self.progress.has_stopped()) {
            producer.cut_short.store(true, Ordering::SeqCst);
        }
        result
    }

    pub(crate) fn service_of(&self, ticket: Ticket) -> &str {
        self.calls.service(ticket.client)
    }

    #[cfg(feature = "async")]
    pub(crate) fn next_deadline_for_answer(&self, deadline: Option<u64>) -> u64 {
        self.inbox.sleep_deadline(deadline)
    }

    /// Takes in the answers to a client. The queues of all other inputs stay as they are.
    pub(super) fn collect_answers(&mut self, client: usize) {
        // A ring of the doorbell from here on ends the wait that follows.
        self.inbox.collect();
        if self.inbox.take_commands() {
            self.absorb_notices();
        }
        let input = self.calls.input(client);
        while let Some(arrival) = self.inbox.next_of(input) {
            self.handle_arrival(arrival);
        }
        // After the results: feedback that was sent before one of them is there by now.
        let feedback = self.calls.feedback_input(client);
        while let Some(arrival) = feedback.and_then(|input| self.inbox.next_of(input)) {
            self.handle_arrival(arrival);
        }
    }
}
