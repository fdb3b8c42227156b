//! A loaded operator, and the calls of its functions.
#![expect(unsafe_code, reason = "the functions of an operator are C")]

use std::ffi::c_void;
use std::path::Path;
use std::ptr;

use arrow_data::ArrayData;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::DataType;
use dora_operator_api_c::{
    Bytes, DoraResult, InitResult, Input, OnEventResult, Output, RawEvent, SendOutput, Status,
};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use nervure_arrow_import::import_array;

type Init = unsafe extern "C" fn() -> InitResult;
type OnEvent = unsafe extern "C" fn(*mut RawEvent, *const SendOutput, *mut c_void) -> OnEventResult;
type End = unsafe extern "C" fn(*mut c_void) -> DoraResult;

/// The functions of an operator, and the context that they share.
#[derive(Debug)]
pub struct Operator {
    on_event: OnEvent,
    end: End,
    context: *mut c_void,
}

/// An event for an operator.
#[derive(Debug)]
pub enum OperatorEvent {
    /// Data has arrived, or a timer is due.
    Input(Input),
    /// The producer of an input has ended.
    InputClosed(String),
    /// The operator has to end.
    Stop,
    /// Data could not be read.
    Error(String),
}

impl Operator {
    /// Loads a library. It stays loaded until the process ends: an operator may have threads.
    pub fn load(path: &Path) -> Result<Loaded, libloading::Error> {
        // SAFETY: the user names the library in the dataflow file, to have its code run. All symbols
        // are bound now, so that a missing one is an error here.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }?;
        // SAFETY: the functions have the types of dora's C interface, which the library implements.
        let loaded = unsafe {
            Loaded {
                init: *library.get::<Init>(b"dora_init_operator\0")?,
                on_event: *library.get::<OnEvent>(b"dora_on_event\0")?,
                end: *library.get::<End>(b"dora_drop_operator\0")?,
            }
        };
        std::mem::forget(library);
        Ok(loaded)
    }

    /// Lets the operator handle an event. `send` gets its outputs meanwhile.
    pub fn handle<F>(&mut self, event: OperatorEvent, send: &mut F) -> Result<Status, String>
    where
        F: FnMut(&str, ArrayData) -> Result<(), String>,
    {
        let mut raw = raw_event(event);
        let send_output = SendOutput {
            environment: ptr::from_mut(send).cast(),
            call: call::<F>,
            release: ignore,
            retain: ignore,
        };
        // SAFETY: the library is loaded, its context is from its own `dora_init_operator`, and the
        // event and the function live until the call returns.
        let OnEventResult { result, status } =
            unsafe { (self.on_event)(&mut raw, &send_output, self.context) };
        // SAFETY: the parts of the event were made by `raw_event`, and belong to the caller; the result is the
        // operator's, and taken once.
        unsafe {
            if !raw.input.is_null() {
                drop(Box::from_raw(raw.input));
            }
            raw.input_closed.free();
            raw.error.free();
            result.into_result().map(|()| status)
        }
    }

    /// Ends the operator.
    pub fn end(self) -> Result<(), String> {
        // SAFETY: as in `handle`; the context is not used afterwards.
        unsafe { (self.end)(self.context).into_result() }
    }
}

/// The functions of an operator that has not begun.
#[derive(Debug)]
pub struct Loaded {
    init: Init,
    on_event: OnEvent,
    end: End,
}

impl Loaded {
    /// Begins the operator.
    pub fn begin(self) -> Result<Operator, String> {
        // SAFETY: the library is loaded; its result is taken once.
        let context = unsafe {
            let InitResult {
                result,
                operator_context,
            } = (self.init)();
            result.into_result().map(|()| operator_context)
        }?;
        Ok(Operator {
            on_event: self.on_event,
            end: self.end,
            context,
        })
    }
}

fn raw_event(event: OperatorEvent) -> RawEvent {
    let mut raw = RawEvent {
        input: ptr::null_mut(),
        input_closed: Bytes::NONE,
        stop: false,
        error: Bytes::NONE,
    };
    match event {
        OperatorEvent::Input(input) => raw.input = Box::into_raw(Box::new(input)),
        OperatorEvent::InputClosed(id) => raw.input_closed = Bytes::new(id.as_bytes()),
        OperatorEvent::Stop => raw.stop = true,
        OperatorEvent::Error(error) => raw.error = Bytes::new(error.as_bytes()),
    }
    raw
}

/// # Safety
/// `environment` is the function of the [`SendOutput`], during the call that got it; `output` has a valid
/// array, and is not used by another thread.
unsafe extern "C" fn call<F>(environment: *mut c_void, output: *mut Output) -> DoraResult
where
    F: FnMut(&str, ArrayData) -> Result<(), String>,
{
    // SAFETY: `handle` passes the function, and waits for the operator; the operator passes a valid
    // output, whose array is taken once, and a released one left.
    let (send, id, array) = unsafe {
        let output = &mut *output;
        let array = FFI_ArrowArray::from_raw(&raw mut output.array);
        let data_type = DataType::try_from(&output.schema);
        let array = data_type.and_then(|data_type| import_array(array, &data_type));
        (&mut *environment.cast::<F>(), output.id(), array)
    };
    match array {
        Ok(array) => send(&id, array).into(),
        Err(error) => {
            DoraResult::error(&format!("the data of output {id} cannot be read: {error}"))
        }
    }
}

/// The function lives as long as the call: references are not counted.
unsafe extern "C" fn ignore(_: *mut c_void) {}
