//! Arrays of the Arrow C data interface, in and out.

use std::mem::zeroed;

use dora_node_api::DoraArray;
use dora_node_api::arrow::array::{Array, ArrayRef, make_array};
use dora_node_api::arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use eyre::{Context, Result, bail};

/// Writes an array and its schema.
///
/// # Safety
/// The pointers are null, or to structures that may be overwritten.
pub unsafe fn export(data: &DoraArray, array: *mut u8, schema: *mut u8) -> Result<()> {
    check(array, schema)?;
    let exported = to_ffi(&data.as_array().to_data())?;
    // SAFETY: the pointers are not null, so the structures may be overwritten.
    unsafe {
        array.cast::<FFI_ArrowArray>().write(exported.0);
        schema.cast::<FFI_ArrowSchema>().write(exported.1);
    }
    Ok(())
}

/// Takes an array, and leaves released structures.
///
/// # Safety
/// The pointers are null, or to a valid array and its schema.
pub unsafe fn import(array: *mut u8, schema: *mut u8) -> Result<ArrayRef> {
    check(array, schema)?;
    // SAFETY: the pointers are not null, so they are to valid structures; a released one is all zero.
    let data = unsafe {
        let array = array.cast::<FFI_ArrowArray>().replace(zeroed());
        let schema = schema.cast::<FFI_ArrowSchema>().replace(zeroed());
        from_ffi(array, &schema)
    };
    Ok(make_array(data.context("the array cannot be read")?))
}

fn check(array: *mut u8, schema: *mut u8) -> Result<()> {
    match array.is_null() || schema.is_null() {
        true => bail!("the pointer to the array or the schema is null"),
        false => Ok(()),
    }
}
