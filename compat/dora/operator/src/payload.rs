//! Arrays between dora's version of Arrow and the interface to the host.
#![expect(unsafe_code, reason = "the interface to the host is C")]

use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::ffi::FFI_ArrowSchema;
use dora_arrow_convert::DoraArray;
use dora_arrow_convert::arrow::array::{Array, make_array};
use dora_arrow_convert::arrow::ffi;
use dora_operator_api_c::{Input, Output, SendOutput};

/// Takes the payload of an input.
///
/// # Safety
/// The input has a valid array.
pub unsafe fn taken(input: &mut Input) -> Result<DoraArray, String> {
    // SAFETY: both are the structures of the C data interface, whose layout does not depend on Arrow's
    // version. `from_raw` takes the content, and leaves a released one; the caller passes a valid array.
    let data = unsafe {
        let array = ffi::FFI_ArrowArray::from_raw((&raw mut input.array).cast());
        let schema = ffi::FFI_ArrowSchema::from_raw((&raw mut input.schema).cast());
        ffi::from_ffi(array, &schema)
    };
    data.map(|data| DoraArray(make_array(data)))
        .map_err(|error| error.to_string())
}

/// Sends an output of the event that is handled.
pub fn send(send_output: &SendOutput, id: &str, data: &DoraArray) -> Result<(), String> {
    let (mut array, mut schema) =
        ffi::to_ffi(&data.0.to_data()).map_err(|error| error.to_string())?;
    // SAFETY: as in `taken`: the content of valid structures is taken over.
    let output = unsafe {
        Output::new(
            id,
            FFI_ArrowArray::from_raw((&raw mut array).cast()),
            FFI_ArrowSchema::from_raw((&raw mut schema).cast()),
        )
    };
    // SAFETY: a `DoraOutputSender` exists during its event alone; the array is valid.
    unsafe { send_output.send(output) }
}
