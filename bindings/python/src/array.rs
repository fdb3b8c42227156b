//! NumPy arrays in, through NumPy's array interface (`__array_struct__`), for which NumPy is neither
//! linked nor imported, and out, through its C API. Nothing is copied.
//!
//! The buffer protocol would also work, but is part of Python's stable ABI only since 3.11.
//! <https://numpy.org/doc/stable/reference/arrays.interface.html#c-struct-access>

use crate::error::exception;
use crate::numpy_api::{self, type_number};
use arrow_buffer::Buffer;
use nervure_node::message::record::Elements;
use nervure_node::message::{DType, TensorLayout};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyMemoryView, PyString};
use std::ffi::{c_char, c_int, c_void};

/// Whether Python may write to exported memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    ReadOnly,
    ReadWrite,
}

/// An array of another library: where its elements are, in its owner's memory.
pub(crate) struct ForeignArray<'py> {
    /// Keeps the memory alive, beside the array's owner: a NumPy scalar makes an array that lives
    /// as long as this capsule.
    pub(crate) memory: Bound<'py, PyCapsule>,
    pub(crate) data: *const u8,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// In bytes; `None` for an array in C order.
    pub(crate) strides: Option<Vec<isize>>,
}

impl<'py> ForeignArray<'py> {
    /// Reads NumPy arrays, NumPy scalars and other objects with the interface; `None` for objects
    /// without it. The memory is valid as long as the object and [`Self::memory`] live.
    pub(crate) fn read(value: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let py = value.py();
        let Some(capsule) = value.getattr_opt(pyo3::intern!(py, "__array_struct__"))? else {
            return Ok(None);
        };
        let Ok(capsule) = capsule.cast::<PyCapsule>() else {
            return Ok(None);
        };
        let interface = capsule.pointer_checked(None)?.cast::<ArrayStruct>();
        // SAFETY: an unnamed capsule in `__array_struct__` holds NumPy's `PyArrayInterface`, which
        // lives as long as the capsule. Its first field is checked below.
        let interface = unsafe { interface.as_ref() };
        if interface.two != 2 || interface.dimensions < 0 {
            return Err(exception(
                py,
                "NotSendable",
                "the object's __array_struct__ is not of version 2",
            ));
        }
        let numbers = |start: *const isize| match interface.dimensions as usize {
            0 => Vec::new(),
            // SAFETY: by the interface, shape and strides have one number per dimension.
            count => unsafe { std::slice::from_raw_parts(start, count) }.to_vec(),
        };
        let shape = numbers(interface.shape)
            .into_iter()
            .map(|length| length as usize)
            .collect();
        let strides = (interface.flags & C_CONTIGUOUS == 0).then(|| numbers(interface.strides));
        let (data, dtype) = (interface.data.cast_const().cast(), dtype(value, interface)?);
        Ok(Some(Self {
            memory: capsule.clone(),
            data,
            dtype,
            shape,
            strides,
        }))
    }

    /// The layout of the elements without gaps, with the axes in their order in memory.
    pub(crate) fn packed_layout(&self) -> Result<TensorLayout, String> {
        let layout = match &self.strides {
            Some(strides) => TensorLayout::packed_like(self.dtype.clone(), &self.shape, strides),
            None => TensorLayout::contiguous(self.dtype.clone(), &self.shape),
        };
        layout.map_err(|error| error.to_string())
    }

    /// The layout under which the memory can be sent as it is; `None` if it has gaps, repeats
    /// elements or has negative strides.
    pub(crate) fn layout_in_place(&self) -> Result<Option<TensorLayout>, String> {
        let layout = self.packed_layout()?;
        let Some(strides) = &self.strides else {
            return Ok(Some(layout));
        };
        let packed = layout.strides();
        let is_packed = layout.is_empty()
            || (0..self.shape.len())
                .all(|axis| self.shape[axis] == 1 || packed[axis] as isize == strides[axis]);
        drop(packed);
        Ok(is_packed.then_some(layout))
    }
}

/// A tensor that is sent as part of a value, straight from the memory of its array.
pub(crate) struct PythonTensor {
    data: *const u8,
    item_bytes: usize,
    shape: Vec<usize>,
    /// In bytes; `None` for an array in C order.
    strides: Option<Vec<isize>>,
    /// Both keep the memory alive, even if another thread removes the array from its list
    /// meanwhile.
    _owner: Py<PyAny>,
    _memory: Py<PyCapsule>,
}

// SAFETY: the memory belongs to `_owner`, and is only read. Other Python threads may write to it
// meanwhile, as with every extension that releases the interpreter; the receiver may then see torn
// values.
unsafe impl Send for PythonTensor {}
// SAFETY: as above.
unsafe impl Sync for PythonTensor {}

impl PythonTensor {
    /// The array that was read from `owner`.
    pub(crate) fn new(array: &ForeignArray<'_>, owner: &Bound<'_, PyAny>) -> Self {
        Self {
            data: array.data,
            item_bytes: array.dtype.item_bytes(),
            shape: array.shape.clone(),
            strides: array.strides.clone(),
            _owner: owner.clone().unbind(),
            _memory: array.memory.clone().unbind(),
        }
    }
}

impl Elements for PythonTensor {
    fn write_elements(&self, axes: &[usize], out: &mut [u8]) {
        let strides = self.strides.clone().unwrap_or_else(|| {
            let mut strides = vec![0; self.shape.len()];
            let mut step = self.item_bytes;
            for (stride, length) in strides.iter_mut().zip(&self.shape).rev() {
                *stride = step as isize;
                step *= (*length).max(1);
            }
            strides
        });
        let axes: Vec<_> = axes
            .iter()
            .map(|&axis| Axis {
                length: self.shape[axis],
                stride: strides[axis],
            })
            .collect();
        // SAFETY: shape and strides are those that the array's owner reported for its memory, which
        // `_owner` and `_memory` keep alive; `out` belongs to a loan.
        unsafe { gather(self.data, &axes, self.item_bytes, out) };
    }
}

/// A NumPy array over a tensor at `data`, which keeps `owner` alive. The type has to be native.
///
/// # Safety
/// The memory has to hold the tensor as long as `owner` lives, and nothing else may use it while Python
/// may write to it.
pub(crate) unsafe fn over<'py>(
    owner: &Bound<'py, PyAny>,
    data: *const u8,
    layout: &TensorLayout,
    access: Access,
) -> PyResult<Bound<'py, PyAny>> {
    let signed = |numbers: &[usize]| -> Vec<isize> {
        numbers.iter().map(|&number| number as isize).collect()
    };
    let Some(type_number) = type_number(layout.dtype()) else {
        let text = format!("NumPy has no type {}", layout.dtype());
        return Err(exception(owner.py(), "SampleError", text));
    };
    let elements = numpy_api::Elements {
        data: data.cast_mut(),
        type_number,
        shape: &signed(layout.shape()),
        strides: &signed(&layout.strides()),
        is_writeable: access == Access::ReadWrite,
    };
    // SAFETY: as this function's.
    unsafe { numpy_api::array(owner, &elements) }
}

/// A read-only NumPy array over the elements in `buffer`, which it keeps alive.
pub(crate) fn view_of<'py>(
    py: Python<'py>,
    layout: TensorLayout,
    buffer: Buffer,
) -> PyResult<Bound<'py, PyAny>> {
    assert!(
        layout.payload_bytes() <= buffer.len(),
        "the layout was checked to fit its elements"
    );
    let data = buffer.as_ptr();
    let memory = Bound::new(py, BufferMemory { _buffer: buffer })?;
    let over = |layout: &TensorLayout| {
        // SAFETY: the buffer has the layout's bytes, checked above, lives in `memory`, and never
        // changes.
        unsafe { over(memory.as_any(), data, layout, Access::ReadOnly) }
    };
    if is_native(layout.dtype()) {
        return over(&layout);
    }
    let flat = TensorLayout::contiguous(DType::U8, &[layout.payload_bytes()]);
    let flat = flat.expect("the elements are in memory, so their size fits");
    custom_over(&over(&flat)?, &layout)
}

/// A buffer's memory. The array over it keeps this object, and with it the sample's block, as its base.
#[pyclass(frozen, module = "nervure._native")]
struct BufferMemory {
    _buffer: Buffer,
}

/// Whether the view is one-dimensional and of plain bytes.
pub(crate) fn is_of_bytes(view: &Bound<'_, PyMemoryView>) -> bool {
    let format = view
        .getattr("format")
        .and_then(|format| format.extract::<String>());
    let dimensions = view
        .getattr("ndim")
        .and_then(|count| count.extract::<usize>());
    format.is_ok_and(|format| format == "B") && dimensions.is_ok_and(|count| count == 1)
}

/// Whether the value is an array of Python objects (`dtype=object`).
pub(crate) fn is_of_objects(value: &Bound<'_, PyAny>) -> bool {
    let kind = value
        .getattr("dtype")
        .and_then(|dtype| dtype.getattr("kind")?.extract::<char>());
    kind.is_ok_and(|kind| kind == 'O')
}

/// Whether NumPy's interface has a code for the type. Other types need [`custom_over`].
pub(crate) fn is_native(dtype: &DType) -> bool {
    type_number(dtype).is_some()
}

/// A NumPy array of a type without a code in the interface, over its flat bytes.
pub(crate) fn custom_over<'py>(
    bytes: &Bound<'py, PyAny>,
    layout: &TensorLayout,
) -> PyResult<Bound<'py, PyAny>> {
    static CUSTOM_ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let (dtype, strides) = (layout.dtype(), layout.strides().to_vec());
    CUSTOM_ARRAY
        .import(bytes.py(), "nervure._numpy", "custom_array")?
        .call1((
            bytes,
            dtype.numpy_name(),
            dtype.item_bytes(),
            pyo3::types::PyTuple::new(bytes.py(), layout.shape())?,
            pyo3::types::PyTuple::new(bytes.py(), strides)?,
        ))
}

/// The element type for any argument that `numpy.dtype()` accepts.
pub(crate) fn dtype_from_python(given: &Bound<'_, PyAny>) -> PyResult<DType> {
    /// Short names of native types by what NumPy takes for them: `uint8`, `np.uint8`, dtypes.
    static KNOWN: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let py = given.py();
    let native = |name: &Bound<'_, PyAny>| DType::from_numpy_name(name.extract().ok()?);
    // The names of native types need no import of NumPy.
    if let Some(dtype) = native(given) {
        return Ok(dtype);
    }
    let known = KNOWN.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    // An object without a hash has no short name.
    if let Ok(Some(name)) = known.get_item(given)
        && let Some(dtype) = native(&name)
    {
        return Ok(dtype);
    }
    let dtype = py.import("numpy")?.getattr("dtype")?.call1((given,))?;
    let kind = dtype.getattr("kind")?.extract::<char>()?;
    let found = named_dtype(&dtype, kind as u8)?;
    // NumPy reads an attribute of other objects, which may change.
    let is_constant =
        given.is_instance_of::<PyString>() || dtype.is(given) || dtype.getattr("type")?.is(given);
    if is_constant && is_native(&found) && known.len() < MAX_KNOWN_DTYPES {
        known.set_item(given, found.numpy_name())?;
    }
    Ok(found)
}

/// Entries of the table of known types: several times the names that NumPy has for native ones.
const MAX_KNOWN_DTYPES: usize = 256;

/// NumPy's `PyArrayInterface`.
#[repr(C)]
struct ArrayStruct {
    two: c_int,
    dimensions: c_int,
    typekind: c_char,
    item_bytes: c_int,
    flags: c_int,
    shape: *const isize,
    strides: *const isize,
    data: *mut c_void,
    descr: *mut ffi::PyObject,
}

const C_CONTIGUOUS: c_int = 0x1;
const NOT_SWAPPED: c_int = 0x200;

fn dtype(value: &Bound<'_, PyAny>, interface: &ArrayStruct) -> PyResult<DType> {
    let kind = interface.typekind as u8;
    let plain = match (kind, interface.item_bytes) {
        (b'b', 1) => DType::Bool,
        (b'i', 1) => DType::I8,
        (b'i', 2) => DType::I16,
        (b'i', 4) => DType::I32,
        (b'i', 8) => DType::I64,
        (b'u', 1) => DType::U8,
        (b'u', 2) => DType::U16,
        (b'u', 4) => DType::U32,
        (b'u', 8) => DType::U64,
        (b'f', 2) => DType::F16,
        (b'f', 4) => DType::F32,
        (b'f', 8) => DType::F64,
        (b'c', 8) => DType::C64,
        (b'c', 16) => DType::C128,
        _ => return named_dtype(&value.getattr("dtype")?, kind),
    };
    if interface.flags & NOT_SWAPPED == 0 && interface.item_bytes > 1 {
        return named_dtype(&value.getattr("dtype")?, kind);
    }
    Ok(plain)
}

/// The element type by the name that `nervure._numpy` gives it.
fn named_dtype(dtype: &Bound<'_, PyAny>, kind: u8) -> PyResult<DType> {
    static DTYPE_NAME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = dtype.py();
    if kind == b'O' {
        let text = "arrays of Python objects (dtype=object) cannot be shared between processes: give the array a \
                    type, e.g. array.astype(float), or send a list";
        return Err(exception(py, "NotSendable", text));
    }
    let name = DTYPE_NAME
        .import(py, "nervure._numpy", "dtype_name")?
        .call1((dtype,))?;
    let (name, item_bytes): (String, u32) = name.extract()?;
    if let Some(dtype) = DType::from_numpy_name(&name) {
        return Ok(dtype);
    }
    if name.len() > DType::MAX_NAME_BYTES {
        let text = format!(
            "the description of the dtype takes {} bytes, the limit is {}",
            name.len(),
            DType::MAX_NAME_BYTES
        );
        return Err(exception(py, "NotSendable", text));
    }
    Ok(DType::Custom {
        name: name.into(),
        item_bytes,
    })
}

/// An axis of an array. The stride is in bytes.
#[derive(Clone, Copy)]
struct Axis {
    length: usize,
    stride: isize,
}

/// Copies elements into `out` without gaps, the last axis fastest.
///
/// # Safety
/// Every element that the axes reach from `data` must be readable, and none of them may lie in
/// `out`.
unsafe fn gather(data: *const u8, axes: &[Axis], item_bytes: usize, out: &mut [u8]) {
    let elements: usize = axes.iter().map(|axis| axis.length).product();
    assert_eq!(
        elements * item_bytes,
        out.len(),
        "`out` has the size of all elements"
    );
    if out.is_empty() {
        return;
    }
    // Adjacent axes without a gap between them are merged into one.
    let mut merged: Vec<Axis> = Vec::with_capacity(axes.len());
    for &axis in axes.iter().filter(|axis| axis.length > 1) {
        match merged.last_mut() {
            Some(outer) if outer.stride == axis.stride * axis.length as isize => {
                *outer = Axis {
                    length: outer.length * axis.length,
                    stride: axis.stride,
                };
            }
            _ => merged.push(axis),
        }
    }
    let mut run_bytes = item_bytes;
    if let Some(inner) = merged.pop_if(|inner| inner.stride == item_bytes as isize) {
        run_bytes *= inner.length;
    }
    let out = out.as_mut_ptr();
    // SAFETY: the caller guarantees the reads; `out` has the size of all runs, checked above.
    unsafe {
        match run_bytes {
            1 => copy_runs::<1>(data, &merged, out),
            2 => copy_runs::<2>(data, &merged, out),
            4 => copy_runs::<4>(data, &merged, out),
            8 => copy_runs::<8>(data, &merged, out),
            _ => copy_long_runs(data, &merged, out, run_bytes),
        };
    }
}

/// Copies runs of `BYTES` bytes. Returns the end of the copied bytes.
///
/// # Safety
/// As [`copy_long_runs`].
unsafe fn copy_runs<const BYTES: usize>(from: *const u8, axes: &[Axis], to: *mut u8) -> *mut u8 {
    // SAFETY: guaranteed by the caller. An array of bytes needs no alignment.
    unsafe {
        match axes {
            [] => {
                to.cast::<[u8; BYTES]>()
                    .write(from.cast::<[u8; BYTES]>().read());
                to.add(BYTES)
            }
            [axis] => {
                for index in 0..axis.length {
                    let from = from
                        .offset(index as isize * axis.stride)
                        .cast::<[u8; BYTES]>();
                    to.add(index * BYTES)
                        .cast::<[u8; BYTES]>()
                        .write(from.read());
                }
                to.add(axis.length * BYTES)
            }
            [axis, inner @ ..] => (0..axis.length).fold(to, |to, index| {
                copy_runs::<BYTES>(from.offset(index as isize * axis.stride), inner, to)
            }),
        }
    }
}

/// Copies runs of `run_bytes` bytes. Returns the end of the copied bytes.
///
/// # Safety
/// Every run that the axes reach must be readable, and `to` must have room for all of them outside
/// that memory.
unsafe fn copy_long_runs(from: *const u8, axes: &[Axis], to: *mut u8, run_bytes: usize) -> *mut u8 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let Some((axis, inner)) = axes.split_first() else {
            to.copy_from_nonoverlapping(from, run_bytes);
            return to.add(run_bytes);
        };
        (0..axis.length).fold(to, |to, index| {
            copy_long_runs(
                from.offset(index as isize * axis.stride),
                inner,
                to,
                run_bytes,
            )
        })
    }
}
