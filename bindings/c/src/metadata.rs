//! Named values that are sent along with a value.

use std::ffi::{CString, c_char};

use nervure_node::message::{DType, Scalar, TensorLayout};
use nervure_node::{Metadata as Entries, Value as Entry};

use crate::pointers::{self, owned};
use crate::status::{Failure, Status, c_text, guarded};
use crate::value::{Kind, Value};

/// Named values that are sent along with a value: labels and parameters, not data. At most 256, and 64 KiB.
#[derive(Debug, Default)]
pub struct Metadata {
    pub(crate) entries: Entries,
    /// What C sees of each entry.
    seen: Vec<Seen>,
}

/// What C sees of an entry, beside the value itself.
#[derive(Debug)]
struct Seen {
    name: CString,
    /// The layout of a list of numbers.
    list: Option<TensorLayout>,
}

impl Metadata {
    pub(crate) fn new(entries: Entries) -> Self {
        let seen = |(name, entry): (&str, &Entry)| Seen {
            name: c_text(name),
            list: match entry {
                Entry::Integers(list) => TensorLayout::contiguous(DType::I64, &[list.len()]).ok(),
                Entry::Floats(list) => TensorLayout::contiguous(DType::F64, &[list.len()]).ok(),
                _ => None,
            },
        };
        let seen = entries.iter().map(seen).collect();
        Self { entries, seen }
    }

    fn value(&self, at: usize) -> Result<Value, Failure> {
        let (entry, seen) = self
            .entries
            .iter()
            .nth(at)
            .zip(self.seen.get(at))
            .ok_or_else(|| {
                let count = self.entries.len();
                Failure::new(
                    Status::None,
                    format!("there are {count} entries, and no number {at}"),
                )
            })?;
        let list = |data: &[u8]| match &seen.list {
            Some(layout) => Value::tensor(layout, data),
            None => Value::bytes(Kind::Bytes, data),
        };
        Ok(match entry.1 {
            Entry::Bool(value) => Value::scalar(Scalar::Bool(*value)),
            Entry::Integer(value) => Value::scalar(Scalar::Integer(*value)),
            Entry::Float(value) => Value::scalar(Scalar::Float(*value)),
            Entry::Text(text) => Value::bytes(Kind::Text, text.as_bytes()),
            Entry::Bytes(bytes) => Value::bytes(Kind::Bytes, bytes),
            Entry::Integers(values) => list(raw(values)),
            Entry::Floats(values) => list(raw(values)),
            Entry::Texts(_) => {
                return Err(Failure::new(
                    Status::Kind,
                    format!("`{}` is a list of texts, which C cannot read", entry.0),
                ));
            }
        })
    }

    fn set(&mut self, key: &str, entry: Entry) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.insert(key, entry);
        *self = Self::new(entries);
    }
}

/// Numbers as bytes.
fn raw<T: nervure_node::message::Element>(numbers: &[T]) -> &[u8] {
    nervure_node::message::cast_slice(numbers)
}

/// Makes empty metadata. Free it with `nervure_metadata_free`.
#[unsafe(no_mangle)]
pub extern "C" fn nervure_metadata_new() -> *mut Metadata {
    owned(Metadata::default())
}

/// Frees metadata.
///
/// # Safety
/// `metadata` is null, or from this library and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_metadata_free(metadata: *mut Metadata) {
    // SAFETY: the caller's promise.
    unsafe { pointers::free(metadata) }
}

/// Sets an entry: a boolean, an integer, a number, a text, bytes, or a tensor of one dimension of `NERVURE_DTYPE_I64` or
/// `NERVURE_DTYPE_F64`. The value is copied.
///
/// # Safety
/// The pointers are null or valid, and the value is as `nervure_value` describes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_metadata_set(
    metadata: *mut Metadata,
    key: *const c_char,
    value: *const Value,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_metadata_set", || unsafe {
        let metadata = pointers::exclusive(metadata, "metadata")?;
        let key = pointers::text(key, "key")?;
        let value = Value::checked(value)?;
        metadata.set(key, entry(value)?);
        Ok(Status::Ok)
    })
}

/// # Safety
/// As [`Value::decode`].
unsafe fn entry(value: &Value) -> Result<Entry, Failure> {
    let refused = || {
        Failure::argument(
            "metadata has booleans, integers, numbers, texts, bytes, and lists of 64-bit integers or floats; \
         send data as the value",
        )
    };
    // SAFETY: the kind names the member.
    unsafe {
        Ok(match value.kind {
            Kind::Bool => Entry::Bool(value.r#as.boolean),
            Kind::Integer => Entry::Integer(value.r#as.integer),
            Kind::Float => Entry::Float(value.r#as.number),
            Kind::Text => Entry::Text(value.as_text()?.to_owned()),
            Kind::Bytes => Entry::Bytes(value.as_bytes()?.to_vec()),
            Kind::Tensor => {
                let (layout, data) = value.as_tensor()?;
                if layout.shape().len() != 1 || !layout.is_contiguous() {
                    return Err(refused());
                }
                let words = data.as_chunks().0.iter().copied();
                match layout.dtype() {
                    DType::I64 => Entry::Integers(words.map(i64::from_le_bytes).collect()),
                    DType::F64 => Entry::Floats(words.map(f64::from_le_bytes).collect()),
                    _ => return Err(refused()),
                }
            }
            Kind::Unsigned | Kind::Arrow | Kind::Struct | Kind::Builder => return Err(refused()),
        })
    }
}

/// Returns the number of entries.
///
/// # Safety
/// `metadata` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_metadata_count(metadata: *const Metadata) -> usize {
    // SAFETY: the caller's promise.
    unsafe { metadata.as_ref() }.map_or(0, |metadata| metadata.entries.len())
}

/// Reads the entry with a number, in order of insertion. Name and value are valid as long as the metadata is not changed or
/// freed. `key` may be NULL.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_metadata_at(
    metadata: *const Metadata,
    at: usize,
    key: *mut *const c_char,
    value: *mut Value,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_metadata_at", || unsafe {
        let metadata = pointers::shared(metadata, "metadata")?;
        let found = metadata.value(at)?;
        if !key.is_null() {
            key.write(metadata.seen[at].name.as_ptr());
        }
        pointers::put(value, found, "value")?;
        Ok(Status::Ok)
    })
}

/// Reads the entry with a name: `NERVURE_STATUS_NONE` if there is none. The value is valid as long as the metadata is not
/// changed or freed.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nervure_metadata_get(
    metadata: *const Metadata,
    key: *const c_char,
    value: *mut Value,
) -> Status {
    // SAFETY: the caller's promise.
    guarded("nervure_metadata_get", || unsafe {
        let metadata = pointers::shared(metadata, "metadata")?;
        let key = pointers::text(key, "key")?;
        let at = metadata.entries.iter().position(|(name, _)| name == key);
        let at = at.ok_or_else(|| Failure::new(Status::None, format!("there is no `{key}`")))?;
        pointers::put(value, metadata.value(at)?, "value")?;
        Ok(Status::Ok)
    })
}
