//! Results of the functions, and the message of the last failure.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use nervure_node::transforms::LookupFailure;
use nervure_node::{
    CallError, ConnectError, LookupError, NodeForked, ReplyError, SampleError, SendError,
    UnknownName,
};

/// Result of a function. `nervure_error` returns the message of a failure.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// Nothing happened before the timeout.
    Timeout = 1,
    /// The node has ended: there are no more events.
    End = 2,
    /// There is no such thing here, for example no coordinate frame.
    None = 3,
    /// An argument is not valid: a null pointer, text that is not UTF-8, a shape that does not fit its data.
    Argument = -1,
    /// The dataflow file declares no such name for the node.
    UnknownName = -2,
    /// The node cannot connect to its dataflow.
    Connect = -3,
    /// The dataflow stops.
    Stopped = -4,
    /// The node's shared memory is used up, or the sample is larger than all of it.
    Memory = -5,
    /// The sample is of another kind, or damaged.
    Kind = -6,
    /// The service did not answer, or reported a failure.
    Call = -7,
    /// A system call failed.
    System = -8,
    /// The node belongs to the process that this one was forked from.
    Forked = -9,
    /// A defect of Nervure. Please report it with its message.
    Defect = -10,
    /// There is no transform between two frames at that time.
    Transform = -11,
}

/// A failure.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) message: Cow<'static, str>,
}

impl Failure {
    pub(crate) fn new(status: Status, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    pub(crate) fn argument(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Status::Argument, message)
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        let status = match &error {
            SendError::WouldBlock { .. } | SendError::TimedOut { .. } | SendError::Paused => {
                Status::Timeout
            }
            SendError::Stopped => Status::Stopped,
            SendError::OutOfMemory { .. } | SendError::TooLarge { .. } => Status::Memory,
            SendError::UnknownOutput(_) => Status::UnknownName,
            SendError::Misfit { .. } => Status::Kind,
            SendError::Forked(_) => Status::Forked,
            SendError::Announcement(_) => Status::Argument,
            _ => Status::System,
        };
        Self::new(status, error.to_string())
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Unknown(unknown) => unknown.into(),
            CallError::Send(error) => error.into(),
            CallError::TimedOut { .. } => Self::new(Status::Timeout, error.to_string()),
            CallError::Stopped => Self::new(Status::Stopped, error.to_string()),
            other => Self::new(Status::Call, other.to_string()),
        }
    }
}

impl From<LookupError> for Failure {
    fn from(error: LookupError) -> Self {
        let status = match *error.reason {
            LookupFailure::Stopped => Status::Stopped,
            _ => Status::Transform,
        };
        Self::new(status, error.to_string())
    }
}

impl From<ReplyError> for Failure {
    fn from(error: ReplyError) -> Self {
        match error {
            ReplyError::Send(error) => error.into(),
            wrong @ (ReplyError::Twice { .. } | ReplyError::NoGoal { .. }) => {
                Self::argument(wrong.to_string())
            }
        }
    }
}

impl From<UnknownName> for Failure {
    fn from(error: UnknownName) -> Self {
        Self::new(Status::UnknownName, error.to_string())
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::new(Status::Connect, error.to_string())
    }
}

impl From<SampleError> for Failure {
    fn from(error: SampleError) -> Self {
        Self::new(Status::Kind, error.to_string())
    }
}

impl From<NodeForked> for Failure {
    fn from(error: NodeForked) -> Self {
        Self::new(Status::Forked, error.to_string())
    }
}

/// The last failure of a thread.
#[derive(Default)]
struct Last {
    function: &'static str,
    message: Cow<'static, str>,
    /// Both as a text of C, made on demand: a timeout, which is not a failure of the program, allocates nothing.
    text: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Runs a function of the interface. A panic does not reach the caller's frames, which cannot unwind.
pub(crate) fn guarded(
    function: &'static str,
    run: impl FnOnce() -> Result<Status, Failure>,
) -> Status {
    let failure = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(status)) => return status,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let text = text.unwrap_or("a panic without a text").to_owned();
            Failure::new(Status::Defect, text)
        }
    };
    let Failure { status, message } = failure;
    LAST.with_borrow_mut(|last| {
        *last = Last {
            function,
            message,
            text: None,
        }
    });
    status
}

/// A text for C, which ends at its first NUL.
pub(crate) fn c_text(text: &str) -> CString {
    let until = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..until]).unwrap_or_default()
}

/// The message of the last function that failed in this thread; empty if none has. It is valid until the next one fails
/// in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn nervure_error() -> *const c_char {
    LAST.with_borrow_mut(|last| {
        let Last {
            function,
            message,
            text,
        } = last;
        if function.is_empty() {
            return c"".as_ptr();
        }
        text.get_or_insert_with(|| c_text(&format!("{function}: {message}")))
            .as_ptr()
    })
}
