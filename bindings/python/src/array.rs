//! NumPy arrays in and out, through NumPy's array interface (`__array_struct__`). Nothing is
//! copied, and NumPy is neither linked nor imported to read an array.
//!
//! The buffer protocol would also work, but is part of Python's stable ABI only since 3.11.
//! <https://numpy.org/doc/stable/reference/arrays.interface.html#c-struct-access>

use crate::error::exception;
use arrow_buffer::Buffer;
use nervure_node::message::record::Elements;
use nervure_node::message::{DType, TensorLayout};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyMemoryView};
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

/// A NumPy array over `memory`, an object whose `__array_struct__` was made by [`export`]. The
/// array keeps the object alive.
pub(crate) fn over<'py>(memory: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static AS_ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    AS_ARRAY
        .import(memory.py(), "numpy", "asarray")?
        .call1((memory,))
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
    if is_native(layout.dtype()) {
        return over(Bound::new(py, BufferMemory { buffer, layout })?.as_any());
    }
    let flat = TensorLayout::contiguous(DType::U8, &[buffer.len()]);
    let flat = flat.expect("the elements are in memory, so their size fits");
    custom_over(
        &over(
            Bound::new(
                py,
                BufferMemory {
                    buffer,
                    layout: flat,
                },
            )?
            .as_any(),
        )?,
        &layout,
    )
}

/// A buffer's memory under NumPy's array interface. NumPy keeps this object, and with it the
/// sample's block, as the base of the array.
#[pyclass(frozen, module = "nervure._native")]
struct BufferMemory {
    buffer: Buffer,
    layout: TensorLayout,
}

#[pymethods]
impl BufferMemory {
    #[getter]
    fn __array_struct__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        export(py, self.buffer.as_ptr(), &self.layout, Access::ReadOnly)
    }
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
    typekind(dtype).is_some()
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
    let py = given.py();
    // The names of native types need no import of NumPy.
    if let Ok(name) = given.extract::<&str>()
        && let Some(dtype) = DType::from_numpy_name(name)
    {
        return Ok(dtype);
    }
    let dtype = py.import("numpy")?.getattr("dtype")?.call1((given,))?;
    let kind = dtype.getattr("kind")?.extract::<char>()?;
    named_dtype(&dtype, kind as u8)
}

/// The value of `__array_struct__` for a tensor at `data`. The memory has to stay valid as long as
/// the object that has this attribute.
pub(crate) fn export<'py>(
    py: Python<'py>,
    data: *const u8,
    layout: &TensorLayout,
    access: Access,
) -> PyResult<Bound<'py, PyCapsule>> {
    let signed = |numbers: &[usize]| {
        numbers
            .iter()
            .map(|&number| number as isize)
            .collect::<Box<[_]>>()
    };
    let (shape, strides) = (signed(layout.shape()), signed(&layout.strides()));
    let Some(kind) = typekind(layout.dtype()) else {
        return Err(exception(
            py,
            "SampleError",
            format!("NumPy has no type {}", layout.dtype()),
        ));
    };
    let writeable = if access == Access::ReadWrite {
        WRITEABLE
    } else {
        0
    };
    let exported = Box::new(Exported {
        interface: ArrayStruct {
            two: 2,
            dimensions: shape.len() as c_int,
            typekind: kind as c_char,
            item_bytes: layout.dtype().item_bytes() as c_int,
            flags: ALIGNED | NOT_SWAPPED | writeable,
            shape: shape.as_ptr(),
            strides: strides.as_ptr(),
            data: data.cast_mut().cast(),
            descr: std::ptr::null_mut(),
        },
        _shape: shape,
        _strides: strides,
    });
    let pointer = Box::into_raw(exported);
    // SAFETY: NumPy expects an unnamed capsule that points to the interface, which is the first
    // field of the box. The capsule's destructor frees the box; without a capsule it is freed here.
    unsafe {
        let capsule = ffi::PyCapsule_New(pointer.cast(), std::ptr::null(), Some(free_exported));
        match Bound::from_owned_ptr_or_err(py, capsule) {
            Ok(capsule) => Ok(capsule.cast_into_unchecked()),
            Err(error) => {
                drop(Box::from_raw(pointer));
                Err(error)
            }
        }
    }
}

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
const ALIGNED: c_int = 0x100;
const NOT_SWAPPED: c_int = 0x200;
const WRITEABLE: c_int = 0x400;

#[repr(C)]
struct Exported {
    interface: ArrayStruct,
    _shape: Box<[isize]>,
    _strides: Box<[isize]>,
}

unsafe extern "C" fn free_exported(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule was made by `export`, is unnamed, and is destroyed now, so the box in it
    // has no other owner.
    unsafe {
        let pointer = ffi::PyCapsule_GetPointer(capsule, std::ptr::null());
        drop(Box::from_raw(pointer.cast::<Exported>()));
    }
}

fn typekind(dtype: &DType) -> Option<u8> {
    Some(match dtype {
        DType::Bool => b'b',
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => b'i',
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => b'u',
        DType::F16 | DType::F32 | DType::F64 => b'f',
        DType::C64 | DType::C128 => b'c',
        DType::Bf16 | DType::Custom { .. } => return None,
    })
}

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
