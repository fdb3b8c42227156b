//! The interface between operators in C and their host: the types of dora's C interface, and the
//! functions that operators call. `include/operator_types.h` describes them.
//!
//! The layout of the types that operators see is dora's. [`Input`] and [`Output`] are opaque to
//! operators: their layout is this crate's, which is linked into the operator and into the host, maybe
//! by different compilers. Therefore a library that was linked with dora's own `dora_operator_api_c` has
//! to be linked again with this one.
//!
//! Memory that passes from one to the other is of the system's allocator in both.
#![expect(unsafe_code, reason = "C passes pointers")]

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

/// Bytes of a vector.
#[repr(C)]
#[derive(Debug)]
pub struct Bytes {
    start: *mut u8,
    length: usize,
    capacity: usize,
}

impl Bytes {
    /// No bytes, and no memory.
    pub const NONE: Self = Self {
        start: ptr::null_mut(),
        length: 0,
        capacity: 0,
    };

    /// Takes the vector. [`Bytes::into_vec`] frees it.
    pub fn new(bytes: Vec<u8>) -> Self {
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        Self {
            start: bytes.as_mut_ptr(),
            length: bytes.len(),
            capacity: bytes.capacity(),
        }
    }

    /// Takes the bytes; `None` for [`Bytes::NONE`].
    ///
    /// # Safety
    /// The bytes are from [`Bytes::new`], here or in an operator, or in memory of `malloc`, and not
    /// taken yet.
    pub unsafe fn into_vec(self) -> Option<Vec<u8>> {
        // SAFETY: the parts are those of a vector, which nothing else owns; memory of `malloc` is that
        // of the system's allocator, which does not need the capacity to free it.
        (!self.start.is_null())
            .then(|| unsafe { Vec::from_raw_parts(self.start, self.length, self.capacity) })
    }
}

impl Bytes {
    /// The bytes of an input or output.
    fn as_slice(&self) -> &[u8] {
        match self.start.is_null() {
            true => &[],
            // SAFETY: inputs and outputs have bytes of `Bytes::new`, until they are dropped.
            false => unsafe { std::slice::from_raw_parts(self.start, self.length) },
        }
    }

    /// Frees the bytes of an input or output.
    fn free(&mut self) {
        let bytes = std::mem::replace(self, Self::NONE);
        // SAFETY: inputs and outputs have bytes of `Bytes::new`, which nothing else takes.
        drop(unsafe { bytes.into_vec() });
    }
}

/// Success, or an error as text.
#[repr(C)]
#[derive(Debug)]
pub struct DoraResult {
    error: *mut Bytes,
}

impl DoraResult {
    /// Success.
    pub const SUCCESS: Self = Self {
        error: ptr::null_mut(),
    };

    /// An error.
    pub fn error(text: String) -> Self {
        Self {
            error: Box::into_raw(Box::new(Bytes::new(text.into_bytes()))),
        }
    }

    /// Takes the error.
    ///
    /// # Errors
    /// The text.
    ///
    /// # Safety
    /// The result is of an operator or of this crate, and not taken yet.
    pub unsafe fn into_result(self) -> Result<(), String> {
        if self.error.is_null() {
            return Ok(());
        }
        // SAFETY: a pointer that is not null is of `DoraResult::error`, or to memory of `malloc`.
        let text = unsafe { Box::from_raw(self.error).into_vec() };
        Err(String::from_utf8_lossy(&text.unwrap_or_default()).into_owned())
    }
}

/// What `dora_init_operator` returns.
#[repr(C)]
#[derive(Debug)]
pub struct InitResult {
    /// Whether the operator has begun.
    pub result: DoraResult,
    /// What the other functions get.
    pub operator_context: *mut c_void,
}

/// What happens after an event. Other numbers are possible, since an operator may return any.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u8);

impl Status {
    /// The operator goes on.
    pub const CONTINUE: Self = Self(0);
    /// The operator has ended.
    pub const STOP: Self = Self(1);
    /// The dataflow should end.
    pub const STOP_ALL: Self = Self(2);
}

/// What `dora_on_event` returns.
#[repr(C)]
#[derive(Debug)]
pub struct OnEventResult {
    /// Whether the event was handled.
    pub result: DoraResult,
    /// What happens next.
    pub status: Status,
}

/// An input of an operator.
#[repr(C)]
#[derive(Debug)]
pub struct Input {
    id: Bytes,
    data: Bytes,
}

impl Input {
    /// An input with its name, and its bytes; `None` for data that C cannot read.
    pub fn new(id: String, data: Option<Vec<u8>>) -> Self {
        Self {
            id: Bytes::new(id.into_bytes()),
            data: data.map_or(Bytes::NONE, Bytes::new),
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.id.free();
        self.data.free();
    }
}

/// An event of an operator.
#[repr(C)]
#[derive(Debug)]
pub struct RawEvent {
    /// Data has arrived.
    pub input: *mut Input,
    /// The name of an input that is closed.
    pub input_closed: Bytes,
    /// The operator has to end.
    pub stop: bool,
    /// Data could not be read.
    pub error: Bytes,
}

/// An output of an operator.
#[repr(C)]
#[derive(Debug)]
pub struct Output {
    id: Bytes,
    data: Bytes,
}

impl Output {
    /// An output with its name and bytes.
    pub fn new(id: &str, data: &[u8]) -> Self {
        Self {
            id: Bytes::new(id.as_bytes().to_vec()),
            data: Bytes::new(data.to_vec()),
        }
    }

    /// The name.
    pub fn id(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.id.as_slice())
    }

    /// The bytes.
    pub fn data(&self) -> &[u8] {
        self.data.as_slice()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.id.free();
        self.data.free();
    }
}

/// Sends outputs: the parts of a reference-counted function. The host keeps it alive during a call.
#[repr(C)]
#[derive(Debug)]
pub struct SendOutput {
    /// The state of the function.
    pub environment: *mut c_void,
    /// The function, which takes the output.
    pub call: unsafe extern "C" fn(*mut c_void, *mut Output) -> DoraResult,
    /// Gives up a reference.
    pub release: unsafe extern "C" fn(*mut c_void),
    /// Takes a reference.
    pub retain: unsafe extern "C" fn(*mut c_void),
}

/// Returns the name of an input; null without an input.
///
/// # Safety
/// `input` is null, or that of the event that is handled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dora_read_input_id(input: *const Input) -> *mut c_char {
    // SAFETY: the caller passes a valid input, or null.
    let id = unsafe { input.as_ref() }.and_then(|input| CString::new(input.id.as_slice()).ok());
    id.map_or(ptr::null_mut(), CString::into_raw)
}

/// Frees the name of an input.
///
/// # Safety
/// `id` is null, or from [`dora_read_input_id`] and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dora_free_input_id(id: *mut c_char) {
    if !id.is_null() {
        // SAFETY: the caller passes the pointer of `CString::into_raw`, once.
        drop(unsafe { CString::from_raw(id) });
    }
}

/// Returns a copy of the data of an input.
///
/// # Safety
/// As [`dora_read_input_id`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dora_read_data(input: *mut Input) -> Bytes {
    // SAFETY: the caller passes a valid input, or null.
    let data = unsafe { input.as_ref() }.map(|input| input.data.as_slice().to_vec());
    let data = data.filter(|data| !data.is_empty());
    data.map_or(Bytes::NONE, Bytes::new)
}

/// Frees data.
///
/// # Safety
/// `data` is from [`dora_read_data`] and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dora_free_data(data: Bytes) {
    // SAFETY: the caller passes what `dora_read_data` returned, once.
    drop(unsafe { data.into_vec() });
}

/// Sends bytes to an output of the operator.
///
/// # Safety
/// `send_output` is null, or that of the event that is handled; `id` is null, or terminated; `data` is
/// null, or points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dora_send_operator_output(
    send_output: *const SendOutput,
    id: *const c_char,
    data: *const u8,
    length: usize,
) -> DoraResult {
    let failed = |error: &str| DoraResult::error(format!("dora_send_operator_output: {error}"));
    // SAFETY: the caller passes a valid function, or null.
    let Some(send_output) = (unsafe { send_output.as_ref() }) else {
        return failed("the function that sends is NULL");
    };
    if id.is_null() {
        return failed("the output's name is NULL");
    }
    // SAFETY: the name is terminated.
    let Ok(id) = unsafe { CStr::from_ptr(id) }.to_str() else {
        return failed("the output's name is not UTF-8");
    };
    let data: &[u8] = match length {
        0 => &[],
        _ if data.is_null() => {
            return failed(&format!("the data is NULL, and has a length of {length}"));
        }
        // SAFETY: the pointer is not null, so it points to that many bytes.
        _ => unsafe { std::slice::from_raw_parts(data, length) },
    };
    let output = Box::new(Output::new(id, data));
    // SAFETY: the function is the host's, and takes the output.
    unsafe { (send_output.call)(send_output.environment, Box::into_raw(output)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_read() {
        let mut input = Input::new("image".to_owned(), Some(vec![1, 2]));
        // SAFETY: the input is valid, and what is returned is freed once.
        unsafe {
            let id = dora_read_input_id(&input);
            assert_eq!(CStr::from_ptr(id), c"image");
            dora_free_input_id(id);
            let data = dora_read_data(&mut input);
            assert_eq!(data.into_vec(), Some(vec![1, 2]));
            for nothing in [None, Some(Vec::new())] {
                input = Input::new("image".to_owned(), nothing);
                let data = dora_read_data(&mut input);
                assert!(data.start.is_null());
                dora_free_data(data);
            }
            assert!(dora_read_input_id(ptr::null()).is_null());
            assert!(dora_read_data(ptr::null_mut()).start.is_null());
            dora_free_input_id(ptr::null_mut());
        }
    }

    unsafe extern "C" fn record(sent: *mut c_void, output: *mut Output) -> DoraResult {
        // SAFETY: the test passes its vector, and the output is owned.
        unsafe { (*sent.cast::<Vec<Output>>()).push(*Box::from_raw(output)) };
        DoraResult::SUCCESS
    }

    unsafe extern "C" fn nothing(_: *mut c_void) {}

    #[test]
    fn an_output_is_sent_or_refused() {
        let mut sent = Vec::<Output>::new();
        let function = SendOutput {
            environment: (&raw mut sent).cast(),
            call: record,
            release: nothing,
            retain: nothing,
        };
        let id = c"out".as_ptr();
        // SAFETY: the pointers are null, or valid.
        unsafe {
            let send = |function, id, data, length| {
                dora_send_operator_output(function, id, data, length).into_result()
            };
            assert_eq!(send(&function, id, b"ab".as_ptr(), 2), Ok(()));
            assert_eq!(send(&function, id, ptr::null(), 0), Ok(()));
            let error = send(&function, id, ptr::null(), 3).unwrap_err();
            assert!(
                error.ends_with("the data is NULL, and has a length of 3"),
                "{error}"
            );
            assert!(send(ptr::null(), id, ptr::null(), 0).is_err());
            assert!(send(&function, ptr::null(), ptr::null(), 0).is_err());
            assert!(send(&function, c"\xff".as_ptr(), ptr::null(), 0).is_err());
        }
        let sent: Vec<_> = sent
            .iter()
            .map(|output| (output.id(), output.data()))
            .collect();
        assert_eq!(sent, [("out".into(), &b"ab"[..]), ("out".into(), &b""[..])]);
    }
}
