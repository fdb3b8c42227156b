//! Arrays of the Arrow C data interface, in and out.

use std::ffi::c_char;
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
    let (array, format, schema) = unsafe {
        (
            array.cast::<FFI_ArrowArray>().replace(zeroed()),
            // The first member of a schema is the pointer to its format.
            schema.cast::<*const c_char>().read(),
            schema.cast::<FFI_ArrowSchema>().replace(zeroed()),
        )
    };
    if array.is_released() || format.is_null() {
        bail!("the array or the schema is released: an array can be sent once");
    }
    // SAFETY: the caller passes a valid array and its schema.
    let data = unsafe { from_ffi(array, &schema) };
    Ok(make_array(data.context("the array cannot be read")?))
}

fn check(array: *mut u8, schema: *mut u8) -> Result<()> {
    match array.is_null() || schema.is_null() {
        true => bail!("the pointer to the array or the schema is null"),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::ptr::null_mut;

    use dora_node_api::IntoArrow;

    use super::*;

    #[test]
    fn an_array_survives_the_way_there_and_back() {
        let mut array = MaybeUninit::<FFI_ArrowArray>::uninit();
        let mut schema = MaybeUninit::<FFI_ArrowSchema>::uninit();
        let (array, schema) = (array.as_mut_ptr().cast(), schema.as_mut_ptr().cast());
        let data = vec![1_i32, 2].into_arrow();
        // SAFETY: the structures may be overwritten, and are valid afterwards: released at last.
        unsafe {
            export(&data, array, schema).unwrap();
            let imported = import(array, schema).unwrap();
            assert_eq!(&imported, data.as_array());
            assert!((*array.cast::<FFI_ArrowArray>()).is_released());
            assert!(import(array, schema).is_err());
            assert!(export(&data, null_mut(), schema).is_err());
            assert!(import(array, null_mut()).is_err());
        }
    }
}
