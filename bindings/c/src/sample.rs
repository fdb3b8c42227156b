//! Received samples.

use std::ffi::c_char;
use std::thread::LocalKey;

use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::ffi::FFI_ArrowSchema;
use nervure_node::Sample as Received;
use nervure_node::message::{Header, Layout};

use crate::metadata::Metadata;
use crate::pointers::{self, Recycled, Spares, owned, recycled};
use crate::status::{Failure, Status, c_text, guarded};
use crate::value::{Bytes, Kind, Value};

/// A received sample: a view of its producer's memory, which the producer gets back when the sample is freed. Keep few
/// samples; copy data that you need for longer.
#[derive(Debug)]
pub struct Sample(pub(crate) Received);

thread_local! {
    static SPARES: Spares<Sample> = const { Spares::new(Vec::new()) };
}

impl Recycled for Sample {
    fn spares() -> &'static LocalKey<Spares<Self>> {
        &SPARES
    }
}

/// Times and numbers of a sample.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Time at which the value was true, in nanoseconds since the Unix epoch. The source sets it.
    pub stamp: i64,
    /// Time of publication, in nanoseconds since the Unix epoch.
    pub published: i64,
    /// Time from publication until this node took the sample, in nanoseconds.
    pub latency: u64,
    /// Sequence number within the output and incarnation, from 0; UINT64_MAX if the sample has none.
    pub sequence: u64,
    /// Number of restarts of its producer.
    pub incarnation: u32,
}

/// Reads the value in place. It is valid as long as the sample is. A text is as the producer wrote it, without a NUL:
/// check that it is UTF-8 if you do not trust the producer. Of an Arrow array `nervure_sample_arrow` returns the array;
/// here its pointers are NULL.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_sample_value(sample: *const Sample, value: *mut Value) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_sample_value", || unsafe {
        let sample = &pointers::shared(sample, "sample")?.0;
        let view = sample.view()?;
        let read = match view.layout() {
            Layout::Bytes => Value::bytes(Kind::Bytes, view.bytes()),
            Layout::Text => Value::bytes(Kind::Text, view.bytes()),
            Layout::Scalar(scalar) => Value::scalar(*scalar),
            Layout::Tensor(layout) => {
                let tensor = view.tensor().map_err(nervure_node::SampleError::from)?;
                Value::tensor(layout, tensor.bytes())
            }
            Layout::Array(_) => Value::arrow(),
        };
        pointers::put(value, read, "value")?;
        Ok(Status::Ok)
    })
}

/// Returns the payload's bytes, for any value. They are valid as long as the sample is.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_sample_bytes(sample: *const Sample, value: *mut Bytes) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_sample_bytes", || unsafe {
        let bytes = pointers::shared(sample, "sample")?.0.bytes();
        let bytes = Bytes {
            data: bytes.as_ptr().cast(),
            size: bytes.len(),
        };
        pointers::put(value, bytes, "bytes")?;
        Ok(Status::Ok)
    })
}

/// Exports the value as an Arrow array, in place where Arrow allows it. The array keeps the sample's memory until it is
/// released; the sample may be freed before.
///
/// # Safety
/// The pointers are null or valid; the structs are released or uninitialized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_sample_arrow(
    sample: *const Sample,
    array: *mut FFI_ArrowArray,
    schema: *mut FFI_ArrowSchema,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_sample_arrow", || unsafe {
        let sample = &pointers::shared(sample, "sample")?.0;
        if array.is_null() || schema.is_null() {
            return Err(Failure::argument(
                "the place for the array or schema is NULL",
            ));
        }
        let data = sample.array()?;
        let known = sample.schema()?;
        let exported = match &known {
            Some(known) => FFI_ArrowSchema::try_from(known.root()),
            None => FFI_ArrowSchema::try_from(data.data_type()),
        };
        let exported = exported.map_err(|error| Failure::new(Status::Kind, error.to_string()))?;
        pointers::put(array, FFI_ArrowArray::new(&data), "array")?;
        pointers::put(schema, exported, "schema")?;
        Ok(Status::Ok)
    })
}

/// Reads times and numbers.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_sample_info(sample: *const Sample, info: *mut Info) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_sample_info", || unsafe {
        let sample = &pointers::shared(sample, "sample")?.0;
        let header: &Header = sample.header();
        let read = Info {
            stamp: header.stamp,
            published: header.publish_utc,
            latency: u64::try_from(sample.latency().as_nanos()).unwrap_or(u64::MAX),
            sequence: header.sequence,
            incarnation: header.incarnation,
        };
        pointers::put(info, read, "info")?;
        Ok(Status::Ok)
    })
}

/// Reads the metadata. Free them with `nervure_metadata_free`.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_sample_metadata(
    sample: *const Sample,
    metadata: *mut *mut Metadata,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_sample_metadata", || unsafe {
        let sample = &pointers::shared(sample, "sample")?.0;
        pointers::put(metadata, std::ptr::null_mut(), "metadata")?;
        let read = Metadata::new(sample.metadata()?);
        pointers::put(metadata, owned(read), "metadata")?;
        Ok(Status::Ok)
    })
}

/// Writes the name of the coordinate frame with a NUL at its end: `NERVURE_STATUS_NONE` if none was sent,
/// `NERVURE_STATUS_ARGUMENT` if `size` bytes are too few.
///
/// # Safety
/// The pointers are null or valid; `name` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_sample_frame(
    sample: *const Sample,
    name: *mut c_char,
    size: usize,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_sample_frame", || unsafe {
        let frame = pointers::shared(sample, "sample")?.0.frame();
        let frame = frame.ok_or_else(|| Failure::new(Status::None, "the sample has no frame"))?;
        let frame = c_text(&frame);
        let bytes = frame.as_bytes_with_nul();
        if name.is_null() || bytes.len() > size {
            return Err(Failure::argument(format!(
                "the frame's name takes {} bytes, there is room for {size}",
                bytes.len()
            )));
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), name, bytes.len());
        Ok(Status::Ok)
    })
}

/// Returns a sample that outlives its event: a view of the same memory. Free it with `nervure_sample_free`. NULL if `sample`
/// is.
///
/// # Safety
/// `sample` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_sample_keep(sample: *const Sample) -> *mut Sample {
    // SAFETY: the caller's promise.
    unsafe { sample.as_ref() }.map_or(std::ptr::null_mut(), |sample| {
        recycled(Sample(sample.0.clone()))
    })
}

/// As `nervure_sample_keep`, with the value copied to private memory, so that it holds no memory of its producer.
///
/// # Safety
/// `sample` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_sample_copy(sample: *const Sample) -> *mut Sample {
    // SAFETY: the caller's promise.
    unsafe { sample.as_ref() }.map_or(std::ptr::null_mut(), |sample| {
        recycled(Sample(sample.0.copied()))
    })
}

/// Frees a sample that `nervure_sample_keep`, `nervure_sample_copy`, `nervure_latest` or `nervure_call` returned, but no
/// sample of an event.
///
/// # Safety
/// `sample` is null, or a sample as above and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_sample_free(sample: *mut Sample) {
    if !sample.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { pointers::take(sample) });
    }
}
