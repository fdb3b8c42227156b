//! The interface between operators and their host: the types of dora's C interface, and the functions
//! that operators in C call. `include/operator_types.h` describes them.
//!
//! The layout of the types that operators in C see is dora's. [`Input`] and [`Output`] are opaque to
//! them; their layout is this crate's. Therefore a library that was linked with dora's own
//! `dora_operator_api_c` has to be linked again with this one.
//!
//! Payloads are arrays of the Arrow C data interface, which carry the function that frees them. All other
//! memory that passes from one to the other is of `malloc`, also when a program has another allocator.
#![expect(unsafe_code, reason = "C passes pointers")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::DataType;
use arrow_schema::ffi::FFI_ArrowSchema;

/// Bytes in memory of `malloc`.
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

    /// Copies bytes. [`Bytes::free`] frees them.
    pub fn new(bytes: &[u8]) -> Self {
        let capacity = bytes.len().max(1);
        let start = allocated(Layout::array::<u8>(capacity).expect("a slice has this length"));
        // SAFETY: the new memory has at least that many bytes.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
        Self {
            start,
            length: bytes.len(),
            capacity,
        }
    }

    /// Whether there are bytes, maybe of length 0.
    pub fn is_some(&self) -> bool {
        !self.start.is_null()
    }

    /// The bytes.
    ///
    /// # Safety
    /// The bytes are from [`Bytes::new`], here or in an operator, or in memory of `malloc`, and not
    /// freed.
    pub unsafe fn as_slice(&self) -> &[u8] {
        match self.start.is_null() {
            true => &[],
            // SAFETY: the caller passes valid bytes.
            false => unsafe { std::slice::from_raw_parts(self.start, self.length) },
        }
    }

    /// Frees the bytes, and leaves none.
    ///
    /// # Safety
    /// As [`Bytes::as_slice`].
    pub unsafe fn free(&mut self) {
        let bytes = std::mem::replace(self, Self::NONE);
        // SAFETY: the memory is of `malloc`, and nothing else owns it.
        unsafe { freed(bytes.start) };
    }
}

/// Memory of `malloc`.
fn allocated(layout: Layout) -> *mut u8 {
    // SAFETY: the layouts of this crate are not empty.
    let start = unsafe { System.alloc(layout) };
    match start.is_null() {
        true => std::alloc::handle_alloc_error(layout),
        false => start,
    }
}

/// Frees memory of `malloc`, or nothing.
///
/// # Safety
/// `start` is null, or memory of `malloc` that is not used any more.
unsafe fn freed<T>(start: *mut T) {
    if !start.is_null() {
        // SAFETY: on Unix the system's allocator passes the pointer to `free`, for any layout.
        unsafe { System.dealloc(start.cast(), Layout::new::<T>()) };
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
    pub fn error(text: &str) -> Self {
        let error: *mut Bytes = allocated(Layout::new::<Bytes>()).cast();
        // SAFETY: the new memory has the layout of `Bytes`.
        unsafe { error.write(Bytes::new(text.as_bytes())) };
        Self { error }
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
        // SAFETY: a pointer that is not null is to bytes, both in memory of `malloc`.
        unsafe {
            let mut bytes = self.error.read();
            freed(self.error);
            let text = String::from_utf8_lossy(bytes.as_slice()).into_owned();
            bytes.free();
            Err(text)
        }
    }
}

impl From<Result<(), String>> for DoraResult {
    fn from(result: Result<(), String>) -> Self {
        result.map_or_else(|error| Self::error(&error), |()| Self::SUCCESS)
    }
}

/// What `dora_init_operator` returns.
#[repr(C)]
#[derive(Debug)]
pub struct InitResult {
    /// Whether the operator has begun.
    pub result: DoraResult,
    /// The context that the other functions get.
    pub operator_context: *mut c_void,
}

/// What happens after an event. Other numbers are possible, since an operator may return any.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u8);

impl Status {
    /// The operator continues.
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

/// A named array: an input of an operator, or an output.
#[repr(C)]
#[derive(Debug)]
pub struct Port {
    id: Bytes,
    /// The payload. An operator may take it, and leaves a released one.
    pub array: FFI_ArrowArray,
    /// The type of the payload.
    pub schema: FFI_ArrowSchema,
}

/// An input of an operator.
pub type Input = Port;
/// An output of an operator.
pub type Output = Port;

impl Port {
    /// An input or output with its name and payload.
    pub fn new(id: &str, array: FFI_ArrowArray, schema: FFI_ArrowSchema) -> Self {
        Self {
            id: Bytes::new(id.as_bytes()),
            array,
            schema,
        }
    }

    /// An input or output with an array.
    ///
    /// # Errors
    /// If the type cannot be expressed in C.
    pub fn of_array(id: &str, array: &ArrayData) -> Result<Self, arrow_schema::ArrowError> {
        let schema = FFI_ArrowSchema::try_from(array.data_type())?;
        Ok(Self::new(id, FFI_ArrowArray::new(array), schema))
    }

    /// The name.
    pub fn id(&self) -> Cow<'_, str> {
        // SAFETY: the name is of `Bytes::new`, until this is dropped.
        String::from_utf8_lossy(unsafe { self.id.as_slice() })
    }

    /// The payload as bytes: of an array of `UInt8`, of one text, or of nothing.
    fn bytes(&self) -> Result<&[u8], String> {
        if self.array.is_released() {
            return Err("the data was taken".to_owned());
        }
        let format = self.schema.format();
        let (first, length) = (self.array.offset(), self.array.len());
        let is_null = || self.array.null_count_opt() != Some(0);
        match format {
            "n" => Ok(&[]),
            "C" | "u" if length == 0 => Ok(&[]),
            "C" | "u" if is_null() => Err("the data has nulls".to_owned()),
            "C" => {
                // SAFETY: the array is valid: the second buffer of this type has a byte an element.
                Ok(unsafe { std::slice::from_raw_parts(self.array.buffer(1).add(first), length) })
            }
            "u" if length == 1 => {
                // SAFETY: the array is valid: the second buffer of this type has an offset more than
                // elements, and the third has the bytes up to the last one.
                let text = unsafe {
                    let offsets = self.array.buffer(1).cast::<i32>().add(first);
                    let (start, end) = (*offsets as usize, *offsets.add(1) as usize);
                    match end - start {
                        0 => &[],
                        length => {
                            std::slice::from_raw_parts(self.array.buffer(2).add(start), length)
                        }
                    }
                };
                Ok(text)
            }
            _ => Err(format!(
                "the data has the Arrow format `{format}` and {length} elements: C reads bytes, text and arrays of UInt8"
            )),
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // SAFETY: the name is of `Bytes::new`, which nothing else frees.
        unsafe { self.id.free() };
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

/// Sends outputs: the parts of a reference-counted function. The host keeps it alive during a call.
#[repr(C)]
#[derive(Debug)]
pub struct SendOutput {
    /// The state of the function.
    pub environment: *mut c_void,
    /// The function. It may take the payload out of the output, which remains the caller's.
    pub call: unsafe extern "C" fn(*mut c_void, *mut Output) -> DoraResult,
    /// Gives up a reference.
    pub release: unsafe extern "C" fn(*mut c_void),
    /// Takes a reference.
    pub retain: unsafe extern "C" fn(*mut c_void),
}

impl SendOutput {
    /// Sends an output.
    ///
    /// # Errors
    /// The error of the host.
    ///
    /// # Safety
    /// The function belongs to the event that is handled; the payload is a valid array.
    pub unsafe fn send(&self, mut output: Output) -> Result<(), String> {
        // SAFETY: the caller passes the host's function during its event, so its state is alive; the
        // result is taken once.
        unsafe { (self.call)(self.environment, &raw mut output).into_result() }
    }
}

/// Returns the name of an input; null without an input.
///
/// # Safety
/// `input` is null, or belongs to the event that is handled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dora_read_input_id(input: *const Input) -> *mut c_char {
    // SAFETY: the caller passes a valid input, or null.
    let Some(input) = (unsafe { input.as_ref() }) else {
        return ptr::null_mut();
    };
    let mut terminated = input.id().into_owned().into_bytes();
    terminated.push(0);
    Bytes::new(&terminated).start.cast()
}

/// Frees the name of an input.
///
/// # Safety
/// `id` is null, or from [`dora_read_input_id`] and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dora_free_input_id(id: *mut c_char) {
    // SAFETY: the caller passes the pointer of `dora_read_input_id`, once.
    unsafe { freed(id) };
}

/// Returns a copy of the data of an input.
///
/// # Safety
/// As [`dora_read_input_id`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dora_read_data(input: *mut Input) -> Bytes {
    // SAFETY: the caller passes a valid input, or null.
    let Some(input) = (unsafe { input.as_ref() }) else {
        return Bytes::NONE;
    };
    match input.bytes() {
        Ok([]) => Bytes::NONE,
        Ok(data) => Bytes::new(data),
        Err(error) => {
            eprintln!("ERROR dora_read_data: input {}: {error}", input.id());
            Bytes::NONE
        }
    }
}

/// Frees data.
///
/// # Safety
/// `data` is from [`dora_read_data`] and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dora_free_data(mut data: Bytes) {
    // SAFETY: the caller passes what `dora_read_data` returned, once.
    unsafe { data.free() };
}

/// Sends bytes to an output of the operator.
///
/// # Safety
/// `send_output` is null, or belongs to the event that is handled; `id` is null, or terminated; `data` is
/// null, or points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dora_send_operator_output(
    send_output: *const SendOutput,
    id: *const c_char,
    data: *const u8,
    length: usize,
) -> DoraResult {
    let failed = |error: &str| DoraResult::error(&format!("dora_send_operator_output: {error}"));
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
    match output(id, data) {
        // SAFETY: the function is the host's, during its event; the array is valid.
        Ok(output) => unsafe { send_output.send(output) }.into(),
        Err(error) => failed(&error.to_string()),
    }
}

/// An output with a copy of bytes.
fn output(id: &str, data: &[u8]) -> Result<Output, arrow_schema::ArrowError> {
    let array = ArrayData::builder(DataType::UInt8).len(data.len());
    let array = array.add_buffer(Buffer::from(data)).build()?;
    Output::of_array(id, &array)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(array: &ArrayData) -> Input {
        Input::of_array("image", array).unwrap()
    }

    fn array(data_type: DataType, buffers: &[&[u8]], length: usize) -> ArrayData {
        let buffers = buffers.iter().copied().map(Buffer::from).collect();
        let array = ArrayData::builder(data_type).len(length).buffers(buffers);
        array.align_buffers(true).build().unwrap()
    }

    /// The bytes that C reads.
    fn read(array: &ArrayData) -> Option<Vec<u8>> {
        let mut input = input(array);
        // SAFETY: the input is valid, and each result is freed once.
        unsafe {
            let data = dora_read_data(&mut input);
            let bytes = data.is_some().then(|| data.as_slice().to_vec());
            dora_free_data(data);
            bytes
        }
    }

    #[test]
    fn bytes_and_text_are_read() {
        let bytes = array(DataType::UInt8, &[&[1, 2, 3]], 3);
        assert_eq!(read(&bytes), Some(vec![1, 2, 3]));
        assert_eq!(read(&bytes.slice(1, 1)), Some(vec![2]));
        assert_eq!(read(&bytes.slice(1, 0)), None);
        let offsets: Vec<u8> = [0_i32, 2, 5]
            .into_iter()
            .flat_map(i32::to_le_bytes)
            .collect();
        let texts = array(DataType::Utf8, &[&offsets, b"abcde"], 2);
        assert_eq!(read(&texts.slice(1, 1)), Some(b"cde".to_vec()));
        assert_eq!(read(&texts), None);
        assert_eq!(read(&array(DataType::Null, &[], 0)), None);
        assert_eq!(read(&array(DataType::Float32, &[&[0; 4]], 1)), None);
        let nulls = ArrayData::new_null(&DataType::UInt8, 2);
        assert_eq!(read(&nulls), None);
    }

    #[test]
    fn an_input_without_data_is_refused() {
        let bytes = array(DataType::UInt8, &[&[1]], 1);
        let mut input = input(&bytes);
        // SAFETY: the input is valid, and each result is freed once; all functions accept null.
        unsafe {
            let id = dora_read_input_id(&input);
            assert_eq!(CStr::from_ptr(id), c"image");
            dora_free_input_id(id);
            input.array = FFI_ArrowArray::empty();
            assert!(!dora_read_data(&mut input).is_some());
            assert!(dora_read_input_id(ptr::null()).is_null());
            assert!(!dora_read_data(ptr::null_mut()).is_some());
            dora_free_input_id(ptr::null_mut());
            dora_free_data(Bytes::NONE);
        }
    }

    unsafe extern "C" fn record(sent: *mut c_void, output: *mut Output) -> DoraResult {
        // SAFETY: the test passes its vector, and a valid output.
        let (sent, output) = unsafe { (&mut *sent.cast::<Vec<(String, Vec<u8>)>>(), &*output) };
        sent.push((output.id().into_owned(), output.bytes().unwrap().to_vec()));
        match sent.len() {
            3 => DoraResult::error("full"),
            _ => DoraResult::SUCCESS,
        }
    }

    unsafe extern "C" fn nothing(_: *mut c_void) {}

    #[test]
    fn an_output_is_sent_or_refused() {
        let mut sent = Vec::<(String, Vec<u8>)>::new();
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
            assert_eq!(send(&function, id, ptr::null(), 0), Err("full".to_owned()));
            let error = send(&function, id, ptr::null(), 3).unwrap_err();
            assert!(
                error.ends_with("the data is NULL, and has a length of 3"),
                "{error}"
            );
            assert!(send(ptr::null(), id, ptr::null(), 0).is_err());
            assert!(send(&function, ptr::null(), ptr::null(), 0).is_err());
            assert!(send(&function, c"\xff".as_ptr(), ptr::null(), 0).is_err());
        }
        let empty = ("out".to_owned(), Vec::new());
        assert_eq!(
            sent,
            [("out".to_owned(), b"ab".to_vec()), empty.clone(), empty]
        );
    }
}
