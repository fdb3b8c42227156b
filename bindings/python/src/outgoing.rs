//! From a Python object to a value that can be written into shared memory.

use crate::array::{self, ForeignArray, PythonTensor};
use crate::arrow;
use crate::error::{exception, text};
use crate::objects;
use arrow_data::ArrayData;
use nervure_node::message::{Layout, Record, Scalar, Schema, TensorLayout};
use nervure_node::{Encode, Metadata};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyCapsule, PyFloat, PyInt, PyMemoryView, PyString,
};

/// A value that is ready to be sent.
pub(crate) struct Outgoing<'py> {
    pub(crate) content: Content,
    /// Metadata that is part of the value.
    pub(crate) metadata: Option<Metadata>,
    /// The owners of the memory that `content` points to.
    _owner: Bound<'py, PyAny>,
    _memory: Option<Bound<'py, PyCapsule>>,
}

/// See [`Outgoing`].
pub(crate) enum Content {
    Raw(RawBuffer),
    Arrow { array: ArrayData, schema: Schema },
    Record(Record<PythonTensor>),
}

/// A value that is one contiguous buffer, or a scalar without one.
pub(crate) struct RawBuffer {
    layout: Layout,
    data: *const u8,
    bytes: usize,
}

// SAFETY: the memory belongs to a Python object that the sender keeps alive, and is only read.
// Other Python threads may write to it meanwhile, as with every extension that releases the
// interpreter: see `Encode::write`.
unsafe impl Send for RawBuffer {}
// SAFETY: as above.
unsafe impl Sync for RawBuffer {}

impl<'py> Outgoing<'py> {
    /// Finds out how to send an object.
    ///
    /// Exact types of Python come first. Subclasses of them may be more specific: NumPy has scalars
    /// that are subclasses of float, bytes and str.
    pub(crate) fn new(value: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Some(outgoing) = Self::builtin(value)? {
            return Ok(outgoing);
        }
        if let Some(array) = ForeignArray::read(value)? {
            return Self::array(value, array);
        }
        let content = if let Some(record) = objects::to_record(value)? {
            Content::Record(record)
        } else if let Some((array, schema)) = arrow::import(value)? {
            Content::Arrow { array, schema }
        } else if let Some((payload, metadata)) = objects::payload(value)? {
            return Ok(Self {
                metadata: Some(metadata),
                ..Self::new(&payload)?
            });
        } else if let Some(record) = objects::dataclass_to_record(value)? {
            Content::Record(record)
        } else {
            return Self::converted(value);
        };
        Ok(Self {
            content,
            metadata: None,
            _owner: value.clone(),
            _memory: None,
        })
    }

    /// Bytes, in place.
    pub(crate) fn bytes(bytes: &Bound<'py, PyBytes>) -> Self {
        let buffer = RawBuffer::memory(Layout::Bytes, bytes.as_bytes());
        Self::of(Content::Raw(buffer), bytes.as_any())
    }

    /// Content whose memory belongs to `owner`, or to itself.
    pub(crate) fn of(content: Content, owner: &Bound<'py, PyAny>) -> Self {
        Self {
            content,
            metadata: None,
            _owner: owner.clone(),
            _memory: None,
        }
    }

    fn builtin(value: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let buffer = if let Ok(bytes) = value.cast_exact::<PyBytes>() {
            RawBuffer::memory(Layout::Bytes, bytes.as_bytes())
        } else if let Ok(given) = value.cast_exact::<PyString>() {
            RawBuffer::memory(Layout::Text, text(given)?.as_bytes())
        } else if let Ok(number) = value.cast_exact::<PyFloat>() {
            RawBuffer::scalar(Scalar::Float(number.value()))
        } else if let Ok(truth) = value.cast_exact::<PyBool>() {
            RawBuffer::scalar(Scalar::Bool(truth.is_true()))
        } else if let Ok(number) = value.cast_exact::<PyInt>() {
            RawBuffer::scalar(integer(number)?)
        } else if let Ok(bytes) = value.cast_exact::<PyByteArray>() {
            // Copied, because another thread may resize a bytearray while it is sent.
            let owner = PyBytes::new(value.py(), &bytes.to_vec());
            let buffer = RawBuffer::memory(Layout::Bytes, owner.as_bytes());
            return Ok(Some(Self {
                content: Content::Raw(buffer),
                metadata: None,
                _owner: owner.into_any(),
                _memory: None,
            }));
        } else {
            return Ok(None);
        };
        Ok(Some(Self {
            content: Content::Raw(buffer),
            metadata: None,
            _owner: value.clone(),
            _memory: None,
        }))
    }

    fn array(value: &Bound<'py, PyAny>, array: ForeignArray<'py>) -> PyResult<Self> {
        let refused = |reason| exception(value.py(), "NotSendable", reason);
        if let Some(layout) = array.layout_in_place().map_err(refused)? {
            return Ok(Self::tensor(value.clone(), array, layout));
        }
        // One more pass over the elements, in the order that they have in memory.
        let packed = value.call_method1("copy", ("K",))?;
        let Some(array) = ForeignArray::read(&packed)? else {
            return Err(refused(
                "NumPy's copy of the array is not an array".to_owned(),
            ));
        };
        match array.layout_in_place().map_err(refused)? {
            Some(layout) => Ok(Self::tensor(packed, array, layout)),
            None => Err(refused(
                "NumPy's copy of the array is not contiguous".to_owned(),
            )),
        }
    }

    fn tensor(owner: Bound<'py, PyAny>, array: ForeignArray<'py>, layout: TensorLayout) -> Self {
        let bytes = layout.payload_bytes();
        let buffer = RawBuffer {
            layout: Layout::Tensor(layout),
            data: array.data,
            bytes,
        };
        Self {
            content: Content::Raw(buffer),
            metadata: None,
            _owner: owner,
            _memory: Some(array.memory),
        }
    }

    /// For objects that NumPy can convert to an array: the buffer protocol, DLPack and `__array__`.
    fn converted(value: &Bound<'py, PyAny>) -> PyResult<Self> {
        let is_bytes = value.cast::<PyMemoryView>().is_ok_and(array::is_of_bytes);
        let array = py_call(value, "nervure._numpy", "to_array")?;
        let Some(foreign) = ForeignArray::read(&array)? else {
            return Err(exception(
                value.py(),
                "NotSendable",
                "NumPy could not convert the value to an array",
            ));
        };
        let mut outgoing = Self::array(&array, foreign)?;
        if is_bytes && let Content::Raw(buffer) = &mut outgoing.content {
            buffer.layout = Layout::Bytes;
        }
        Ok(outgoing)
    }
}

impl RawBuffer {
    fn memory(layout: Layout, bytes: &[u8]) -> Self {
        Self {
            layout,
            data: bytes.as_ptr(),
            bytes: bytes.len(),
        }
    }

    fn scalar(scalar: Scalar) -> Self {
        Self {
            layout: Layout::Scalar(scalar),
            data: std::ptr::null(),
            bytes: 0,
        }
    }
}

impl Encode for RawBuffer {
    fn layout(&self) -> Layout {
        self.layout.clone()
    }

    fn payload_bytes(&self) -> usize {
        self.bytes
    }

    fn write(&self, payload: &mut [u8]) {
        assert_eq!(
            payload.len(),
            self.bytes,
            "the payload has the requested size"
        );
        if self.bytes > 0 {
            // SAFETY: both sides have `self.bytes` bytes, and do not overlap: one belongs to
            // Python, the other to a loan. No reference to Python's side is made, because another
            // thread may write to it; the receiver may then see a torn value.
            unsafe { std::ptr::copy_nonoverlapping(self.data, payload.as_mut_ptr(), self.bytes) };
        }
    }
}

fn integer(number: &Bound<'_, PyInt>) -> PyResult<Scalar> {
    if let Ok(value) = number.extract() {
        return Ok(Scalar::Integer(value));
    }
    number.extract().map(Scalar::Unsigned).map_err(|_| {
        let text = format!(
            "the integer {number} does not fit 64 bits; send it as str, or as an array of words"
        );
        exception(number.py(), "NotSendable", text)
    })
}

fn py_call<'py>(
    value: &Bound<'py, PyAny>,
    module: &str,
    function: &str,
) -> PyResult<Bound<'py, PyAny>> {
    value
        .py()
        .import(module)?
        .getattr(function)?
        .call1((value,))
}
