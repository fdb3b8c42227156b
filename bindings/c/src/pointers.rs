//! What callers pass.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::thread::LocalKey;

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

/// Freed handles of a kind whose memory a thread keeps for later ones.
const SPARES_PER_THREAD: usize = 8;

/// The memory of handles that this thread has freed.
pub(crate) type Spares<T> = RefCell<Vec<Box<MaybeUninit<T>>>>;

/// A handle that a data path makes and frees with each sample: without a call of the allocator, after the first ones.
pub(crate) trait Recycled: Sized + 'static {
    fn spares() -> &'static LocalKey<Spares<Self>>;
}

/// As [`owned`].
pub(crate) fn recycled<T: Recycled>(value: T) -> *mut T {
    let spare = T::spares().try_with(|spares| spares.borrow_mut().pop());
    let memory = spare.ok().flatten().unwrap_or_else(Box::new_uninit);
    Box::into_raw(Box::write(memory, value))
}

/// Takes the value of a handle, and frees the handle.
///
/// # Safety
/// `handle` is from [`recycled`], and not freed yet.
pub(crate) unsafe fn take<T: Recycled>(handle: *mut T) -> T {
    // SAFETY: the caller's promise: the box is from `recycled`, and its value is read once.
    let (memory, value) = unsafe {
        let memory = Box::from_raw(handle.cast::<MaybeUninit<T>>());
        let value = memory.assume_init_read();
        (memory, value)
    };
    // Not while the thread ends.
    let _ = T::spares().try_with(|spares| {
        let mut spares = spares.borrow_mut();
        if spares.len() < SPARES_PER_THREAD {
            if spares.capacity() == 0 {
                spares.reserve_exact(SPARES_PER_THREAD);
            }
            spares.push(memory);
        }
    });
    value
}
