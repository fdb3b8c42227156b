//! Functions that read fields of records.

use std::ffi::{c_char, c_void};

use crate::layout::{Shape, TypeLayout};
use crate::pointers::{self, owned};
use crate::record::{Record, wrong};
use crate::sample::Sample;
use crate::schemas;
use crate::status::{Failure, Status, guarded};
use crate::value::{Bytes, Kind, Tensor, Value};

/// Opens the record in a sample. Free it with `nervure_record_free`. To read all fields into a struct,
/// `nervure_sample_read` needs no record.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_record_open(
    sample: *const Sample,
    record: *mut *mut Record,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_record_open", || unsafe {
        let sample = &pointers::shared(sample, "sample")?.0;
        pointers::put(record, std::ptr::null_mut(), "record")?;
        let opened = Record::open(sample)?;
        pointers::put(record, owned(opened), "record")?;
        Ok(Status::Ok)
    })
}

/// Frees a record.
///
/// # Safety
/// `record` is null, or from `nervure_record_open` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_record_free(record: *mut Record) {
    // SAFETY: the caller's promise.
    unsafe { pointers::free(record) }
}

/// Reads the value at a path in place: a number, a text, bytes, or a tensor, also of a list of numbers. It is valid until the
/// record is freed. Lists and records have no value: read their items and fields.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_record_get(
    record: *mut Record,
    path: *const c_char,
    value: *mut Value,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_record_get", || unsafe {
        let record = pointers::exclusive(record, "record")?;
        let found = record.get(pointers::text(path, "path")?)?;
        pointers::put(value, found, "value")?;
        Ok(Status::Ok)
    })
}

/// Reads the text at a path in place: its bytes, without a NUL at the end. They are valid until the record is freed.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_record_text(
    record: *mut Record,
    path: *const c_char,
    text: *mut Bytes,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_record_text", || unsafe {
        let found = of_kind(record, path, Kind::Text, "text")?;
        pointers::put(text, found.r#as.bytes, "text")?;
        Ok(Status::Ok)
    })
}

/// Reads the bytes at a path in place. They are valid until the record is freed.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_record_bytes(
    record: *mut Record,
    path: *const c_char,
    bytes: *mut Bytes,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_record_bytes", || unsafe {
        let found = of_kind(record, path, Kind::Bytes, "bytes")?;
        pointers::put(bytes, found.r#as.bytes, "bytes")?;
        Ok(Status::Ok)
    })
}

/// Reads the tensor, or the list of numbers, at a path in place. It is valid until the record is freed.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_record_tensor(
    record: *mut Record,
    path: *const c_char,
    tensor: *mut Tensor,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_record_tensor", || unsafe {
        let found = of_kind(record, path, Kind::Tensor, "a tensor or a list of numbers")?;
        pointers::put(tensor, found.r#as.tensor, "tensor")?;
        Ok(Status::Ok)
    })
}

/// # Safety
/// The pointers are null or valid.
unsafe fn of_kind(
    record: *mut Record,
    path: *const c_char,
    kind: Kind,
    expected: &str,
) -> Result<Value, Failure> {
    // SAFETY: the caller's promise.
    let (record, path) = unsafe {
        (
            pointers::exclusive(record, "record")?,
            pointers::text(path, "path")?,
        )
    };
    let value = record.get(path)?;
    match value.kind == kind {
        true => Ok(value),
        false => Err(wrong(path, expected, value.kind.name())),
    }
}

/// Reads the number at a path. It may also be an integer.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_record_number(
    record: *const Record,
    path: *const c_char,
    number: *mut f64,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_record_number", || unsafe {
        read(record, path, Shape::NUMBER, number.cast())
    })
}

/// Reads the integer at a path.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_record_integer(
    record: *const Record,
    path: *const c_char,
    integer: *mut i64,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_record_integer", || unsafe {
        read(record, path, Shape::INTEGER, integer.cast())
    })
}

/// Reads the truth value at a path.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_record_bool(
    record: *const Record,
    path: *const c_char,
    boolean: *mut bool,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_record_bool", || unsafe {
        read(record, path, Shape::BOOLEAN, boolean.cast())
    })
}

/// Counts the items of the list at a path, or the elements of a tensor.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_record_count(
    record: *const Record,
    path: *const c_char,
    count: *mut usize,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_record_count", || unsafe {
        let record = pointers::shared(record, "record")?;
        let found = record.count(pointers::text(path, "path")?)?;
        pointers::put(count, found, "count")?;
        Ok(Status::Ok)
    })
}

/// Reads the value at a path into a value of a type of the program, which must be initialized. Integers become numbers of
/// smaller types if they fit; fields that the type does not have are ignored. After a failure it is initialized, and may be
/// read in part.
///
/// # Safety
/// The pointers are null or valid, and the layout lives as long as the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_record_read(
    record: *const Record,
    path: *const c_char,
    layout: *const TypeLayout,
    value: *mut c_void,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_record_read", || unsafe {
        let shape = Shape(pointers::shared(layout, "layout")?);
        read(record, path, shape, value)
    })
}

/// # Safety
/// As [`nervure_record_read`].
unsafe fn read(
    record: *const Record,
    path: *const c_char,
    shape: Shape,
    value: *mut c_void,
) -> Result<Status, Failure> {
    // SAFETY: the caller's promise.
    unsafe {
        let record = pointers::shared(record, "record")?;
        let path = pointers::text(path, "path")?;
        let value: *mut u8 = pointers::exclusive(value.cast::<u8>(), "place for the value")?;
        record.read(path, shape, value)?;
        Ok(Status::Ok)
    }
}

/// Reads a sample, which is one record, into a value of a type of the program: as `nervure_record_read` with the empty path,
/// but a schema is compared with the type once only, and no memory is allocated for fields of fixed size.
///
/// # Safety
/// As [`nervure_record_read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_sample_read(
    sample: *const Sample,
    layout: *const TypeLayout,
    value: *mut c_void,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_sample_read", || unsafe {
        let sample = &pointers::shared(sample, "sample")?.0;
        let shape = Shape(pointers::shared(layout, "layout")?);
        let value: *mut u8 = pointers::exclusive(value.cast::<u8>(), "place for the value")?;
        schemas::read(sample, shape, value)?;
        Ok(Status::Ok)
    })
}
