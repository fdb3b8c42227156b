//! NumPy's C API, which makes an array over memory without a call of Python. NumPy is not linked: it
//! exports a table of its functions, whose places do not change
//! (<https://numpy.org/doc/stable/reference/c-api/array.html>, `numpy_api.py` in its sources).

use nervure_node::message::DType;
use pyo3::exceptions::PyModuleNotFoundError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCapsule;
use std::ffi::{c_int, c_void};

/// Places in the table.
const ARRAY_TYPE: usize = 2;
const DESCR_FROM_TYPE: usize = 45;
const NEW_FROM_DESCR: usize = 94;
const SET_BASE_OBJECT: usize = 282;

/// `NPY_ARRAY_WRITEABLE`. NumPy finds out about order and alignment itself.
const WRITEABLE: c_int = 0x400;

type DescrFromType = unsafe extern "C" fn(c_int) -> *mut ffi::PyObject;
type SetBaseObject = unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> c_int;
type NewFromDescr = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *mut ffi::PyObject,
    c_int,
    *const isize,
    *const isize,
    *mut c_void,
    c_int,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// The functions that are used.
struct Api {
    array_type: *mut ffi::PyObject,
    descr_from_type: DescrFromType,
    new_from_descr: NewFromDescr,
    set_base_object: SetBaseObject,
}

// SAFETY: functions and the type of arrays, which live as long as the process; they are used with the
// interpreter attached.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

impl Api {
    fn get(py: Python<'_>) -> PyResult<&'static Self> {
        static API: PyOnceLock<Api> = PyOnceLock::new();
        API.get_or_try_init(py, || Self::load(py))
    }

    fn load(py: Python<'_>) -> PyResult<Self> {
        // The name in NumPy 2, then in NumPy 1. Another error is passed on, as Ctrl-C during the import.
        let module = match py.import("numpy._core._multiarray_umath") {
            Err(error) if error.is_instance_of::<PyModuleNotFoundError>(py) => {
                py.import("numpy.core._multiarray_umath")
            }
            found => found,
        }?;
        let capsule = module.getattr("_ARRAY_API")?.cast_into::<PyCapsule>()?;
        // SAFETY: the capsule is valid; NumPy gives it no name.
        let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null()) };
        if table.is_null() {
            return Err(PyErr::fetch(py));
        }
        let table = table.cast::<*mut c_void>();
        // SAFETY: the table is longer than the largest place in each NumPy since 1.7, and at these
        // places are the type of arrays and functions of these types.
        unsafe {
            Ok(Self {
                array_type: table.add(ARRAY_TYPE).read().cast(),
                descr_from_type: std::mem::transmute::<*mut c_void, DescrFromType>(
                    table.add(DESCR_FROM_TYPE).read(),
                ),
                new_from_descr: std::mem::transmute::<*mut c_void, NewFromDescr>(
                    table.add(NEW_FROM_DESCR).read(),
                ),
                set_base_object: std::mem::transmute::<*mut c_void, SetBaseObject>(
                    table.add(SET_BASE_OBJECT).read(),
                ),
            })
        }
    }
}

/// NumPy's number of a type (`NPY_TYPES`); `None` for types without one.
pub(crate) fn type_number(dtype: &DType) -> Option<c_int> {
    Some(match dtype {
        DType::Bool => 0,
        DType::I8 => 1,
        DType::U8 => 2,
        DType::I16 => 3,
        DType::U16 => 4,
        DType::I32 => 5,
        DType::U32 => 6,
        // `long`, which has 64 bits on Linux.
        DType::I64 => 7,
        DType::U64 => 8,
        DType::F32 => 11,
        DType::F64 => 12,
        DType::C64 => 14,
        DType::C128 => 15,
        DType::F16 => 23,
        DType::Bf16 | DType::Custom { .. } => return None,
    })
}

/// Elements in memory: where they are, their type, and lengths and strides (in bytes) of the axes.
pub(crate) struct Elements<'a> {
    pub(crate) data: *mut u8,
    pub(crate) type_number: c_int,
    pub(crate) shape: &'a [isize],
    pub(crate) strides: &'a [isize],
    pub(crate) is_writeable: bool,
}

/// An array over memory, which keeps `owner` alive as its base.
///
/// # Safety
/// The elements must stay readable, and writeable if so described, as long as `owner` lives.
pub(crate) unsafe fn array<'py>(
    owner: &Bound<'py, PyAny>,
    elements: &Elements<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = owner.py();
    let api = Api::get(py)?;
    assert_eq!(
        elements.shape.len(),
        elements.strides.len(),
        "one for each axis"
    );
    // SAFETY: returns a new reference, or NULL and an exception.
    let descr = unsafe { (api.descr_from_type)(elements.type_number) };
    if descr.is_null() {
        return Err(PyErr::fetch(py));
    }
    let flags = if elements.is_writeable { WRITEABLE } else { 0 };
    // SAFETY: takes over `descr`, also when it fails; copies shape and strides, which have the length
    // that is given; the caller vouches for the memory.
    let made = unsafe {
        (api.new_from_descr)(
            api.array_type,
            descr,
            elements.shape.len() as c_int,
            elements.shape.as_ptr(),
            elements.strides.as_ptr(),
            elements.data.cast(),
            flags,
            std::ptr::null_mut(),
        )
    };
    // SAFETY: a new reference, or NULL and an exception.
    let array = unsafe { Bound::from_owned_ptr_or_err(py, made) }?;
    // SAFETY: takes over the reference to the owner, also when it fails.
    match unsafe { (api.set_base_object)(array.as_ptr(), owner.clone().into_ptr()) } {
        0 => Ok(array),
        _ => Err(PyErr::fetch(py)),
    }
}
