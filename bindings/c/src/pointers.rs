//! What callers pass.

use std::ffi::{CStr, c_char, c_void};

use crate::status::Failure;

/// # Safety
/// `pointer` is null, or points to a value that lives as long as the result is used, and is not changed meanwhile.
pub(crate) unsafe fn shared<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::argument(format!("the {what} is NULL")))
}

/// # Safety
/// `pointer` is null, or points to a place that nothing else uses while the result is used.
pub(crate) unsafe fn exclusive<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or_else(|| Failure::argument(format!("the {what} is NULL")))
}

/// Writes a result.
///
/// # Safety
/// `to` is null, or points to a place for a value, which may be uninitialized.
pub(crate) unsafe fn put<T>(to: *mut T, value: T, what: &str) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::argument(format!(
            "the place for the {what} is NULL"
        )));
    }
    // SAFETY: not null, so it may be written to.
    unsafe { to.write(value) };
    Ok(())
}

/// # Safety
/// `start` is null, or points to text that ends with a NUL and lives as long as the result is used.
pub(crate) unsafe fn text<'a>(start: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if start.is_null() {
        return Err(Failure::argument(format!("the {what} is NULL")));
    }
    // SAFETY: not null, so it is a text of C.
    let text = unsafe { CStr::from_ptr(start) };
    text.to_str()
        .map_err(|error| Failure::argument(format!("the {what} is not UTF-8: {error}")))
}

/// # Safety
/// `start` is null, or points to `length` bytes that live as long as the result is used, and do not change meanwhile.
pub(crate) unsafe fn bytes<'a>(
    start: *const c_void,
    length: usize,
    what: &str,
) -> Result<&'a [u8], Failure> {
    match length {
        0 => Ok(&[]),
        _ if start.is_null() => Err(Failure::argument(format!(
            "the {what} is NULL, and has {length} bytes"
        ))),
        _ if isize::try_from(length).is_err() => Err(Failure::argument(format!(
            "the {what} cannot have {length} bytes"
        ))),
        // SAFETY: not null, so it points to that many bytes.
        _ => Ok(unsafe { std::slice::from_raw_parts(start.cast(), length) }),
    }
}

/// A handle that C owns.
pub(crate) fn owned<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Frees a handle.
///
/// # Safety
/// `handle` is null or from [`owned`], and not freed yet.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(handle) });
    }
}
