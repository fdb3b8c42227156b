use super::envelope::Envelope;
use crate::trace::{Traced, Traces, metadata_of, report_sent};
use nervure_message::{AnyBitPattern, Element, Head, Header, Layout};
use nervure_shm::{Mapped, Output, Receipt, SendError, Wait};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Bytes reserved for the head of a loan, whose metadata is known only when it is sent.
const HEAD_RESERVE_BYTES: usize = 192;

/// Shared memory for one payload, filled in place and then sent. Dropped without being sent, the
/// memory returns to the output.
#[derive(Debug)]
pub struct Loan {
    output: Output,
    /// Begins with the layout, so that less work is left once the payload is complete.
    head: Head,
    layout_bytes: usize,
    memory: nervure_shm::PayloadLoan,
    /// The node's traces, if it takes part in any.
    traces: Option<Arc<Traces>>,
}

impl Loan {
    pub(super) fn new(
        output: Output,
        layout: &Layout,
        payload_bytes: usize,
        wait: Wait,
    ) -> Result<Self, SendError> {
        // Room for the layout and a few metadata; a larger head goes into the block if it fits.
        let memory = output.loan(payload_bytes, HEAD_RESERVE_BYTES, wait)?;
        let mut head = Head::new();
        layout.write(&mut head);
        Ok(Self {
            output,
            layout_bytes: head.len(),
            head,
            memory,
            traces: None,
        })
    }

    #[cold]
    pub(super) fn with_traces(self, traces: &Arc<Traces>) -> Self {
        let traces = Some(Arc::clone(traces));
        Self { traces, ..self }
    }

    /// The payload. Its contents before the first write are unspecified.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.memory.payload_mut()
    }

    pub(crate) fn mapped(&self) -> Option<Mapped> {
        self.memory.mapped()
    }

    /// Sends the payload.
    ///
    /// # Errors
    /// As [`Publisher::send`](crate::Publisher::send).
    #[inline(never)] // Inlined, the loan would be moved before it is sent.
    pub fn send(mut self, envelope: &Envelope<'_>) -> Result<Receipt, SendError> {
        let (header, traced) = self.prepare(envelope)?;
        loop {
            match self.publish(header, Wait::Forever) {
                Err(SendError::Interrupted) => {}
                Ok(receipt) => {
                    report_sent(traced, receipt);
                    return Ok(receipt);
                }
                error => return error,
            }
        }
    }

    pub(crate) fn send_once(
        mut self,
        envelope: &Envelope<'_>,
        wait: Wait,
    ) -> Result<Receipt, (Option<Box<Self>>, SendError)> {
        let (header, traced) = self.prepare(envelope).map_err(|error| (None, error))?;
        match self.publish(header, wait) {
            Ok(receipt) => {
                report_sent(traced, receipt);
                Ok(receipt)
            }
            Err(error) => Err((Some(Box::new(self)), error)),
        }
    }

    fn publish(&mut self, header: Header, wait: Wait) -> Result<Receipt, SendError> {
        self.output
            .publish(&mut self.memory, header, &self.head, wait)
    }

    /// Completes the head with the metadata, and makes the header.
    fn prepare(
        &mut self,
        envelope: &Envelope<'_>,
    ) -> Result<(Header, Option<Box<Traced>>), SendError> {
        let traces = self.traces.as_ref();
        let traced =
            traces.and_then(|traces| traces.of_sample(self.output.name(), envelope.declared()));
        self.head.truncate(self.layout_bytes);
        metadata_of(traced.as_deref(), envelope.declared())
            .write(&mut self.head)
            .map_err(metadata_error)?;
        let mut header = envelope.header(&self.output, 0)?;
        if let Some(traced) = &traced {
            header.trace_id = traced.trace_id();
        }
        Ok((header, traced))
    }
}

pub(super) fn metadata_error(error: nervure_message::MetadataError) -> SendError {
    SendError::Announcement(error.to_string())
}

/// A [`Loan`] as a slice of the tensor's elements, in C order.
#[derive(Debug)]
pub struct LoanSlice<T> {
    loan: Loan,
    element: PhantomData<T>,
}

impl<T> LoanSlice<T> {
    pub(super) fn new(loan: Loan) -> Self {
        Self {
            loan,
            element: PhantomData,
        }
    }

    /// Sends the tensor, stamped with the time of publication.
    ///
    /// # Errors
    /// As [`Publisher::send`](crate::Publisher::send).
    #[inline(never)] // Inlined, the loan would be moved before it is sent.
    pub fn send(self) -> Result<Receipt, SendError> {
        self.loan.send(&Envelope::new())
    }

    /// Sends the tensor with an envelope.
    ///
    /// # Errors
    /// As [`Publisher::send`](crate::Publisher::send).
    pub fn send_with(self, envelope: &Envelope<'_>) -> Result<Receipt, SendError> {
        self.loan.send(envelope)
    }
}

impl<T: Element + AnyBitPattern> Deref for LoanSlice<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        nervure_message::cast_slice(self.loan.memory.payload())
    }
}

impl<T: Element + AnyBitPattern> DerefMut for LoanSlice<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        nervure_message::cast_slice_mut(self.loan.memory.payload_mut())
    }
}
