use super::envelope::Envelope;
use super::loan::{Loan, LoanSlice, metadata_error};
use crate::core::Core;
use crate::trace::{Traced, metadata_of, report_sent};
use nervure_message::{
    AnyBitPattern, Element, Encode, Head, Header, Layout, Schema, TensorLayout, encode_head,
};
use nervure_shm::{Output, Receipt, SendError, Wait};
use nervure_types::{Definition, Misfit, SampleCheck};
use std::sync::Arc;

/// An output of a node. Clones are the same output; any thread may use it.
#[derive(Clone, Debug)]
pub struct Publisher {
    output: Output,
    core: Arc<Core>,
    /// The check of its samples, if its type is known.
    check: Option<Arc<SampleCheck>>,
}

impl Publisher {
    pub(crate) fn new(output: Output, core: Arc<Core>, check: Option<Arc<SampleCheck>>) -> Self {
        Self {
            output,
            core,
            check,
        }
    }

    /// The output's name.
    pub fn name(&self) -> &str {
        self.output.name()
    }

    /// Sends a value, stamped with the time of publication. Waits while the queue of a consumer
    /// with `queue_policy: block` is full, and in a node without inputs while the dataflow is paused.
    ///
    /// # Errors
    /// [`SendError::Stopped`] if the dataflow stops while the call waits, [`SendError::Misfit`] if the
    /// value does not fit the output's type, such as `std/Imu@1`, and every other variant for its
    /// cause. A sample that a consumer misses by its own policy is no error: it is counted
    /// on its edge, and in the receipt.
    pub fn send<V: Encode + ?Sized>(&self, value: &V) -> Result<Receipt, SendError> {
        self.send_with(value, &Envelope::new(), Wait::Forever)
    }

    /// Sends a value, without waiting for consumers.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] while the queue of a consumer with `queue_policy: block` is full:
    /// then the value is sent to no consumer. [`SendError::Paused`] in a node without inputs while
    /// the dataflow is paused. Otherwise as [`Publisher::send`].
    pub fn try_send<V: Encode + ?Sized>(&self, value: &V) -> Result<Receipt, SendError> {
        self.send_with(value, &Envelope::new(), Wait::Never)
    }

    /// Sends a value with an envelope. `wait` limits how long the call waits for a full queue.
    ///
    /// # Errors
    /// As [`Publisher::send`].
    pub fn send_with<V: Encode + ?Sized>(
        &self,
        value: &V,
        envelope: &Envelope<'_>,
        wait: Wait,
    ) -> Result<Receipt, SendError> {
        loop {
            match self.send_once(value, envelope, wait) {
                Err(Unsent {
                    cause: SendError::Interrupted,
                    ..
                }) => {}
                result => return result.map_err(|unsent| unsent.cause),
            }
        }
    }

    pub(crate) fn send_once<V: Encode + ?Sized>(
        &self,
        value: &V,
        envelope: &Envelope<'_>,
        wait: Wait,
    ) -> Result<Receipt, Unsent<'_>> {
        self.core.producer.counters.beat();
        // A sample from another machine was checked there.
        if let Some(check) = self.check.as_deref()
            && envelope.known_origin().is_none()
        {
            self.fit(check, &value.layout(), value.schema())?;
        }
        if !self.output.has_readers() {
            return Ok(Receipt::default());
        }
        let traced = self.core.traces.of_sample(self.name(), envelope.declared());
        let metadata = metadata_of(traced.as_deref(), envelope.declared());
        let head = encode_head(value, metadata).map_err(metadata_error)?;
        let schema_id = match value.schema() {
            Some(schema) => {
                self.output.announce(schema.id(), schema.bytes())?;
                schema.id()
            }
            None => 0,
        };
        let mut header = envelope.header(&self.output, schema_id)?;
        if let Some(traced) = &traced {
            header.trace_id = traced.trace_id();
        }
        let mut loan = match self.output.loan(value.payload_bytes(), head.len(), wait) {
            // Counted on the edges that miss the sample. No error, so that the program continues.
            Err(SendError::OutOfMemory { missed, .. }) => {
                return Ok(Receipt { queued: 0, missed });
            }
            other => other?,
        };
        value.write(loan.payload_mut());
        loan.set_origin(envelope.known_origin());
        match self.output.publish(&mut loan, header, &head, wait) {
            Ok(receipt) => {
                report_sent(traced, receipt);
                Ok(receipt)
            }
            Err(cause) => Err(Unsent {
                cause,
                written: Some(Box::new(Written {
                    publisher: self,
                    loan,
                    header,
                    head,
                    traced,
                })),
            }),
        }
    }

    /// Borrows shared memory for a tensor in C order, to be filled in place and sent without a
    /// copy.
    ///
    /// # Errors
    /// [`SendError::OutOfMemory`] if samples that consumers hold use up the node's shared memory, and
    /// [`SendError::Misfit`] if the tensor does not fit the output's type.
    ///
    /// # Panics
    /// If the size of the shape overflows `usize`.
    pub fn loan<T: Element + AnyBitPattern>(
        &self,
        shape: &[usize],
    ) -> Result<LoanSlice<T>, SendError> {
        let layout = TensorLayout::contiguous(T::DTYPE, shape)
            .expect("the shape's size fits the address space");
        let bytes = layout.payload_bytes();
        let loan = self.loan_layout(&Layout::Tensor(layout), bytes, Wait::Forever)?;
        Ok(LoanSlice::new(loan))
    }

    pub(crate) fn loan_layout(
        &self,
        layout: &Layout,
        payload_bytes: usize,
        wait: Wait,
    ) -> Result<Loan, SendError> {
        self.core.producer.counters.beat();
        if let Some(check) = self.check.as_deref() {
            self.fit(check, layout, None)?;
        }
        let loan = Loan::new(self.output.clone(), layout, payload_bytes, wait)?;
        Ok(match self.core.traces.is_active() {
            false => loan,
            true => loan.with_traces(&self.core.traces),
        })
    }

    fn fit(
        &self,
        check: &SampleCheck,
        layout: &Layout,
        schema: Option<&Schema>,
    ) -> Result<(), SendError> {
        // The check has a lock, which another thread may have held at a fork.
        nervure_shm::check_fork(self.core.fork_generation)?;
        let misfit = |misfit: Misfit| SendError::Misfit {
            output: self.name().to_owned(),
            misfit: misfit.into(),
        };
        check.check(layout, schema).map_err(misfit)
    }

    /// The name and definition of its type, if it is known.
    pub(crate) fn definition(&self) -> Option<(&str, &Arc<Definition>)> {
        let check = self.check.as_deref()?;
        Some((check.type_name(), check.definition()))
    }

    /// Whether the node was inherited by fork.
    pub(crate) fn is_forked(&self) -> bool {
        nervure_shm::check_fork(self.core.fork_generation).is_err()
    }
}

/// A value that could not be sent yet.
#[derive(Debug)]
pub struct Unsent<'a> {
    /// Why it was not sent.
    pub cause: SendError,
    /// The value in shared memory, if it was written there.
    pub written: Option<Box<Written<'a>>>,
}

impl From<SendError> for Unsent<'_> {
    fn from(cause: SendError) -> Self {
        Self {
            cause,
            written: None,
        }
    }
}

/// A value in shared memory that waits to be sent. Dropped without being sent, its memory returns
/// to the output.
#[derive(Debug)]
pub struct Written<'a> {
    publisher: &'a Publisher,
    loan: nervure_shm::PayloadLoan,
    header: Header,
    head: Head,
    traced: Option<Box<Traced>>,
}

impl<'a> Written<'a> {
    /// Sends the value without copying it again.
    ///
    /// # Errors
    /// As [`send_once`](crate::binding::send_once).
    pub fn send_once(mut self: Box<Self>, wait: Wait) -> Result<Receipt, Unsent<'a>> {
        let publisher = self.publisher;
        match publisher
            .output
            .publish(&mut self.loan, self.header, &self.head, wait)
        {
            Ok(receipt) => {
                report_sent(self.traced.take(), receipt);
                Ok(receipt)
            }
            Err(cause) => Err(Unsent {
                cause,
                written: Some(self),
            }),
        }
    }
}
