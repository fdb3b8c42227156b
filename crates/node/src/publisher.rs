//! Sending.

use crate::node::Core;
use crate::sample::Sample;
use nervure_message::{Element, Encode, Head, Header, Layout, Metadata, TensorLayout, encode_head};
use nervure_shm::{Mapped, Output, Receipt, SendError, Wait};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// What goes with a value: where and when it is from.
#[derive(Clone, Debug, Default)]
pub struct Envelope<'a> {
    stamp: Option<i64>,
    like: Option<&'a Sample>,
    metadata: Option<&'a Metadata>,
    frame: Option<&'a str>,
    correlation_id: u64,
    trace_id: u128,
}

impl<'a> Envelope<'a> {
    /// An empty one: stamped at publication.
    pub fn new() -> Self {
        Self::default()
    }

    /// When the world was as the value says, in nanoseconds since the Unix epoch.
    #[must_use]
    pub fn stamp(mut self, nanos: i64) -> Self {
        self.stamp = Some(nanos);
        self
    }

    /// Keeps stamp, frame and trace of the sample that the value was computed from.
    #[must_use]
    pub fn like(mut self, sample: &'a Sample) -> Self {
        self.like = Some(sample);
        self
    }

    /// Named values to go along.
    #[must_use]
    pub fn metadata(mut self, metadata: &'a Metadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// The coordinate frame.
    #[must_use]
    pub fn frame(mut self, name: &'a str) -> Self {
        self.frame = Some(name);
        self
    }

    /// Ties an answer to its question.
    #[must_use]
    pub fn correlation_id(mut self, id: u64) -> Self {
        self.correlation_id = id;
        self
    }

    /// The trace that the value belongs to (W3C trace context's trace-id).
    #[must_use]
    pub fn trace_id(mut self, id: u128) -> Self {
        self.trace_id = id;
        self
    }

    /// The header, and what must be announced before it.
    #[inline]
    fn header(&self, output: &Output, schema_id: u64) -> Result<Header, SendError> {
        let Self {
            correlation_id,
            trace_id,
            ..
        } = *self;
        let mut header = Header {
            correlation_id,
            trace_id,
            schema_id,
            ..Header::default()
        };
        header.stamp = self.stamp.unwrap_or(0);
        if let Some(name) = self.frame {
            header.frame_id = twox_hash::XxHash3_64::oneshot(name.as_bytes()).max(1);
            output.announce(header.frame_id, name.as_bytes())?;
        }
        if let Some(sample) = self.like {
            self.inherit(sample, &mut header, output)?;
        }
        Ok(header)
    }

    /// What was not set is as in `like`.
    #[inline(never)]
    fn inherit(
        &self,
        like: &Sample,
        header: &mut Header,
        output: &Output,
    ) -> Result<(), SendError> {
        let known = like.header();
        if self.stamp.is_none() {
            header.stamp = known.stamp;
        }
        if header.trace_id == 0 {
            header.trace_id = known.trace_id;
        }
        if header.correlation_id == 0 {
            header.correlation_id = known.correlation_id;
        }
        if self.frame.is_none() && known.frame_id != 0 {
            if let Some(name) = like.raw().announcement(known.frame_id) {
                output.announce(known.frame_id, &name)?;
            }
            header.frame_id = known.frame_id;
        }
        Ok(())
    }
}

/// One output of a node. Clones are the same output; any thread may use it.
#[derive(Clone, Debug)]
pub struct Publisher {
    pub(crate) output: Output,
    pub(crate) core: Arc<Core>,
}

static NO_METADATA: Metadata = Metadata::new();

impl Publisher {
    /// The output's name.
    pub fn name(&self) -> &str {
        self.output.name()
    }

    /// Sends a value, stamped now. Waits while a consumer whose `queue_policy` is `block` has no room.
    ///
    /// # Errors
    /// [`SendError::Stopped`] when the dataflow stops meanwhile, and what else keeps it from being sent. A sample that
    /// a consumer misses by its own policy is no error: it is counted on its edge, and in the receipt.
    pub fn send<V: Encode + ?Sized>(&self, value: &V) -> Result<Receipt, SendError> {
        self.send_with(value, &Envelope::new(), Wait::Forever)
    }

    /// Sends a value if no consumer makes it wait.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] when one does.
    pub fn try_send<V: Encode + ?Sized>(&self, value: &V) -> Result<Receipt, SendError> {
        self.send_with(value, &Envelope::new(), Wait::Never)
    }

    /// Sends a value with an envelope, waiting as `wait` says.
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

    /// As [`Publisher::send_with`], but returns [`SendError::Interrupted`] when a signal handler ran, for callers that
    /// must look at it (Python).
    ///
    /// # Errors
    /// As [`Publisher::send`], with the value where it needs no other copy to be sent.
    pub fn send_once<V: Encode + ?Sized>(
        &self,
        value: &V,
        envelope: &Envelope<'_>,
        wait: Wait,
    ) -> Result<Receipt, Unsent<'_>> {
        self.core.producer.counters.beat();
        if !self.output.has_readers() {
            return Ok(Receipt::default());
        }
        let head = encode_head(value, envelope.metadata.unwrap_or(&NO_METADATA))
            .map_err(metadata_error)?;
        let schema_id = match value.schema() {
            Some(schema) => {
                self.output.announce(schema.id(), schema.bytes())?;
                schema.id()
            }
            None => 0,
        };
        let header = envelope.header(&self.output, schema_id)?;
        let mut loan = match self.output.loan(value.payload_bytes(), head.len(), wait) {
            // Counted on the edges that miss it; the program goes on.
            Err(SendError::OutOfMemory { .. }) => return Ok(self.output.missed_by_all()),
            other => other?,
        };
        value.write(loan.payload_mut());
        match self.output.publish(&mut loan, header, &head, wait) {
            Ok(receipt) => Ok(receipt),
            Err(cause) => Err(Unsent {
                cause,
                written: Some(Box::new(Written {
                    publisher: self,
                    loan,
                    header,
                    head,
                })),
            }),
        }
    }

    /// Borrows memory for a tensor in C order, to be filled in place: no copy at all.
    ///
    /// # Errors
    /// [`SendError::OutOfMemory`] when the node's shared memory is used up by samples that consumers hold.
    ///
    /// # Panics
    /// When the shape's size overflows.
    pub fn loan<T: Element + nervure_message::AnyBitPattern>(
        &self,
        shape: &[usize],
    ) -> Result<LoanSlice<T>, SendError> {
        let layout = TensorLayout::contiguous(T::DTYPE, shape)
            .expect("the shape's size fits the address space");
        let bytes = layout.payload_bytes();
        let loan = self.loan_layout(Layout::Tensor(layout), bytes, Wait::Forever)?;
        Ok(LoanSlice {
            loan,
            element: PhantomData,
        })
    }

    /// Borrows memory for `bytes` of payload of any layout.
    ///
    /// # Errors
    /// As [`Publisher::loan`].
    pub fn loan_layout(&self, layout: Layout, bytes: usize, wait: Wait) -> Result<Loan, SendError> {
        self.core.producer.counters.beat();
        // Room for the layout and a few metadata; larger ones go into the block if it has room.
        let memory = self.output.loan(bytes, HEAD_RESERVE, wait)?;
        let mut head = Head::new();
        layout.write(&mut head);
        Ok(Loan {
            publisher: self.clone(),
            layout_bytes: head.len(),
            head,
            memory,
        })
    }
}

/// A value that was not sent.
#[derive(Debug)]
pub struct Unsent<'a> {
    /// Why.
    pub cause: SendError,
    /// The value, if it came as far as into shared memory.
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

/// A value that lies in shared memory and waits to be sent. Dropped, it is given up.
#[derive(Debug)]
pub struct Written<'a> {
    publisher: &'a Publisher,
    loan: nervure_shm::PayloadLoan,
    header: Header,
    head: Head,
}

impl<'a> Written<'a> {
    /// Sends it, as [`Publisher::send_once`] does, without another copy.
    ///
    /// # Errors
    /// As [`Publisher::send_once`].
    pub fn send_once(mut self: Box<Self>, wait: Wait) -> Result<Receipt, Unsent<'a>> {
        match self
            .publisher
            .output
            .publish(&mut self.loan, self.header, &self.head, wait)
        {
            Ok(receipt) => Ok(receipt),
            Err(cause) => Err(Unsent {
                cause,
                written: Some(self),
            }),
        }
    }
}

/// Bytes kept for the head of a loan, whose metadata is known only when it is sent.
const HEAD_RESERVE: usize = 192;

fn metadata_error(error: nervure_message::MetadataError) -> SendError {
    SendError::Announcement(error.to_string())
}

/// Memory for one payload, filled in place and then sent. Dropped without being sent, it returns.
#[derive(Debug)]
pub struct Loan {
    publisher: Publisher,
    /// Begins with the layout, so that there is less to do once the payload is there.
    head: Head,
    layout_bytes: usize,
    memory: nervure_shm::PayloadLoan,
}

impl Loan {
    /// The payload. What it reads before it is written is unspecified.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.memory.payload_mut()
    }

    /// Keeps the payload's memory mapped when the loan has ended, for bindings that hand out pointers to it.
    pub fn mapped(&self) -> Option<Mapped> {
        self.memory.mapped()
    }

    /// Sends it.
    ///
    /// # Errors
    /// As [`Publisher::send`].
    #[inline(never)] // It would be moved before it is sent.
    pub fn send(mut self, envelope: &Envelope<'_>) -> Result<Receipt, SendError> {
        let header = self.prepare(envelope)?;
        loop {
            match self
                .publisher
                .output
                .publish(&mut self.memory, header, &self.head, Wait::Forever)
            {
                Err(SendError::Interrupted) => {}
                result => return result,
            }
        }
    }

    /// Sends it, and gives it back when a signal handler ran meanwhile or there was no room.
    ///
    /// # Errors
    /// As [`Publisher::send`], with the loan where it can be tried again.
    pub fn send_once(
        mut self,
        envelope: &Envelope<'_>,
        wait: Wait,
    ) -> Result<Receipt, (Option<Box<Self>>, SendError)> {
        let header = self.prepare(envelope).map_err(|error| (None, error))?;
        match self
            .publisher
            .output
            .publish(&mut self.memory, header, &self.head, wait)
        {
            Ok(receipt) => Ok(receipt),
            Err(error) => Err((Some(Box::new(self)), error)),
        }
    }

    /// Completes the head.
    fn prepare(&mut self, envelope: &Envelope<'_>) -> Result<Header, SendError> {
        self.head.truncate(self.layout_bytes);
        envelope
            .metadata
            .unwrap_or(&NO_METADATA)
            .write(&mut self.head)
            .map_err(metadata_error)?;
        envelope.header(&self.publisher.output, 0)
    }
}

/// A [`Loan`] as a slice of its elements.
#[derive(Debug)]
pub struct LoanSlice<T> {
    loan: Loan,
    element: PhantomData<T>,
}

impl<T> LoanSlice<T> {
    /// Sends it, stamped now.
    ///
    /// # Errors
    /// As [`Publisher::send`].
    #[inline(never)] // It would be moved before it is sent.
    pub fn send(self) -> Result<Receipt, SendError> {
        self.loan.send(&Envelope::new())
    }

    /// Sends it with an envelope.
    ///
    /// # Errors
    /// As [`Publisher::send`].
    pub fn send_with(self, envelope: &Envelope<'_>) -> Result<Receipt, SendError> {
        self.loan.send(envelope)
    }
}

impl<T: Element + nervure_message::AnyBitPattern> Deref for LoanSlice<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        nervure_message::cast_slice(self.loan.memory.payload())
    }
}

impl<T: Element + nervure_message::AnyBitPattern> DerefMut for LoanSlice<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        nervure_message::cast_slice_mut(self.loan.memory.payload_mut())
    }
}
