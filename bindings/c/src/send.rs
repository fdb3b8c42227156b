//! Sending.

use std::ffi::{c_char, c_void};
use std::thread::LocalKey;

use nervure_node::{Envelope as Sent, Loan as Borrowed, Publisher, SendError, Wait, binding};

use crate::metadata::Metadata;
use crate::pointers::{self, Recycled, Spares, recycled};
use crate::sample::Sample;
use crate::status::{Failure, Status, guarded};
use crate::value::Value;

/// An output of a node. It belongs to the node.
#[derive(Debug)]
pub struct Output {
    pub(crate) publisher: Publisher,
}

impl Output {
    pub(crate) fn new(publisher: Publisher) -> Self {
        Self { publisher }
    }
}

/// Shared memory for a value, which is filled in place, and then sent without a copy.
#[derive(Debug)]
pub struct Loan {
    loan: Borrowed,
}

thread_local! {
    static SPARES: Spares<Loan> = const { Spares::new(Vec::new()) };
}

impl Recycled for Loan {
    fn spares() -> &'static LocalKey<Spares<Self>> {
        &SPARES
    }
}

/// Time, frame, trace and metadata of a sent value. Members that are 0 or NULL are not sent.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Envelope {
    /// Time at which the value was true, in nanoseconds since the Unix epoch; 0 for the time of publication.
    pub stamp: i64,
    /// The sample that the value was computed from: gives stamp, frame and trace, where they are not set here.
    pub like: *const Sample,
    /// Named values.
    pub metadata: *const Metadata,
    /// Name of the coordinate frame.
    pub frame: *const c_char,
}

/// # Safety
/// The pointer is null or valid, and so are those in it.
unsafe fn envelope<'a>(envelope: *const Envelope) -> Result<Sent<'a>, Failure> {
    let mut sent = Sent::new();
    // SAFETY: the caller's promise.
    unsafe {
        let Some(envelope) = envelope.as_ref() else {
            return Ok(sent);
        };
        if envelope.stamp != 0 {
            sent = sent.stamp(envelope.stamp);
        }
        if let Some(like) = envelope.like.as_ref() {
            sent = sent.like(&like.0);
        }
        if let Some(metadata) = envelope.metadata.as_ref() {
            sent = sent.metadata(&metadata.entries);
        }
        if !envelope.frame.is_null() {
            sent = sent.frame(pointers::text(envelope.frame, "frame's name")?);
        }
    }
    Ok(sent)
}

/// Sends a value: it is copied once, into shared memory. While the queue of a `block` edge is full this waits, until there is
/// room or the dataflow stops (`NERVURE_STATUS_STOPPED`). Any thread may send. `envelope` may be NULL.
///
/// # Safety
/// The pointers are null or valid, and the value is as `nervure_value` describes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_send(
    output: *const Output,
    value: *const Value,
    envelope: *const Envelope,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_send", || unsafe {
        send(output, value, envelope, Wait::Forever)
    })
}

/// As `nervure_send`, and returns `NERVURE_STATUS_TIMEOUT` if the queue of a `block` edge is full: then nothing was sent.
///
/// # Safety
/// As `nervure_send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_try_send(
    output: *const Output,
    value: *const Value,
    envelope: *const Envelope,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_try_send", || unsafe {
        send(output, value, envelope, Wait::Never)
    })
}

/// # Safety
/// As `nervure_send`.
unsafe fn send(
    output: *const Output,
    value: *const Value,
    sent: *const Envelope,
    wait: Wait,
) -> Result<Status, Failure> {
    // SAFETY: the caller's promise.
    unsafe {
        let publisher = &pointers::shared(output, "output")?.publisher;
        let envelope = envelope(sent)?;
        let value = Value::checked(value)?;
        value.decode(|value| Ok(publisher.send_with(value, &envelope, wait)?))?;
        Ok(Status::Ok)
    }
}

/// Borrows shared memory for bytes, a text or a tensor like `value`, whose data are not read. Write the data to `memory`,
/// whose initial contents are unspecified. Send it with `nervure_loan_send`, or give it back with `nervure_loan_free`.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_borrow(
    output: *const Output,
    value: *const Value,
    memory: *mut *mut c_void,
    loan: *mut *mut Loan,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_borrow", || unsafe {
        let publisher = &pointers::shared(output, "output")?.publisher;
        let (layout, bytes) = Value::checked(value)?.layout()?;
        if memory.is_null() || loan.is_null() {
            return Err(Failure::argument(
                "the place for the memory or the loan is NULL",
            ));
        }
        let borrowed = loop {
            match binding::loan_layout(publisher, &layout, bytes, Wait::Forever) {
                Err(SendError::Interrupted) => {}
                result => break result?,
            }
        };
        let borrowed = recycled(Loan { loan: borrowed });
        // The memory of a small payload is in the loan, so its address is taken where the loan stays.
        memory.write((*borrowed).loan.payload_mut().as_mut_ptr().cast());
        loan.write(borrowed);
        Ok(Status::Ok)
    })
}

/// Sends the filled memory without a copy, and frees the loan, also if it fails. It waits as `nervure_send` does.
///
/// # Safety
/// The pointers are null or valid; the loan is not used later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_loan_send(
    loan: *mut Loan,
    envelope_of: *const Envelope,
) -> Status {
    // SAFETY: the caller's promise: the loan is from `recycled`, and not used later.
    guarded("nervure_loan_send", || unsafe {
        if loan.is_null() {
            return Err(Failure::argument("the loan is NULL"));
        }
        let loan = pointers::take(loan).loan;
        loan.send(&envelope(envelope_of)?)?;
        Ok(Status::Ok)
    })
}

/// Gives memory back without sending it.
///
/// # Safety
/// `loan` is null, or from `nervure_borrow` and neither sent nor freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_loan_free(loan: *mut Loan) {
    if !loan.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { pointers::take(loan) });
    }
}
