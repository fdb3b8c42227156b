//! What `send_output_raw` of dora's API returns: shared memory under Python's buffer protocol.
//!
//! A view that is alive while the value is sent could change it later, so views are counted. Python
//! counts the views of an object only in its buffer slots. The stable ABI names them from 3.11 on,
//! and this module is built for 3.10, so the type of the buffer is made from a spec here. (CPython
//! accepts the slots in a spec since 3.9.)

use crate::sending::{Failure, SendOptions, in_slices};
use nervure_node::binding::{self, Mapped};
use nervure_node::{Loan, SendError, Wait};
use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyMemoryView, PyType};
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared memory for one value of bytes: fill it, then send it, or leave the `with` block.
#[pyclass(frozen, name = "SampleHandler", module = "dora")]
pub(crate) struct PyDoraSample {
    memory: Arc<Memory>,
    options: SendOptions,
    buffer: PyOnceLock<Py<PyAny>>,
}

/// The memory of a sample, for its handler and for its buffer, whichever lives longer.
struct Memory {
    /// `None` once it is sent.
    loan: Mutex<Option<Box<Loan>>>,
    start: *mut u8,
    bytes: usize,
    /// Whether it was sent or dropped: then there are no new views.
    is_over: AtomicBool,
    /// Views of the buffer that were not released.
    views: AtomicIsize,
    storage: Storage,
}

enum Storage {
    Block(#[expect(dead_code, reason = "held for its drop")] Mapped),
    /// A small payload moves with its loan, so it is copied when it is sent. `u128` for the
    /// alignment.
    Private(#[expect(dead_code, reason = "used through `start`")] Box<[u128]>),
}

// SAFETY: the memory is only passed on to Python, whose buffers are used under Python's rules for
// threads; `storage` keeps it valid.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl PyDoraSample {
    pub(crate) fn new(mut loan: Loan, options: SendOptions) -> Self {
        let mapped = binding::mapped(&loan);
        let payload = loan.payload_mut();
        let bytes = payload.len();
        let (start, storage) = match mapped {
            Some(mapped) => (payload.as_mut_ptr(), Storage::Block(mapped)),
            None => {
                // At least one word, so that `start` points to memory.
                let count = bytes.div_ceil(size_of::<u128>()).max(1);
                let mut words = vec![0_u128; count].into_boxed_slice();
                (words.as_mut_ptr().cast(), Storage::Private(words))
            }
        };
        Self {
            memory: Arc::new(Memory {
                loan: Mutex::new(Some(Box::new(loan))),
                start,
                bytes,
                is_over: AtomicBool::new(false),
                views: AtomicIsize::new(0),
                storage,
            }),
            options,
            buffer: PyOnceLock::new(),
        }
    }
}

impl Memory {
    fn loan(&self) -> MutexGuard<'_, Option<Box<Loan>>> {
        self.loan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the loan, filled, if no view of it is alive.
    fn take_filled(&self) -> PyResult<Box<Loan>> {
        let mut slot = self.loan();
        if slot.is_none() {
            return Err(PyRuntimeError::new_err("Sample has already been sent"));
        }
        let views = self.views.load(Ordering::Acquire);
        if views > 0 {
            return Err(PyRuntimeError::new_err(format!(
                "Cannot send: {views} buffer view(s) are still open. Release memoryviews and arrays of the buffer first"
            )));
        }
        self.is_over.store(true, Ordering::Release);
        let mut loan = slot.take().expect("checked above");
        if let Storage::Private(_) = self.storage {
            let payload = loan.payload_mut();
            assert_eq!(payload.len(), self.bytes, "the loan keeps its size");
            // SAFETY: both have `bytes` bytes, and do not overlap: one is an allocation of its own.
            // No view can be written to any more.
            unsafe { ptr::copy_nonoverlapping(self.start, payload.as_mut_ptr(), self.bytes) };
        }
        Ok(loan)
    }
}

impl Drop for PyDoraSample {
    fn drop(&mut self) {
        self.memory.is_over.store(true, Ordering::Release);
    }
}

#[pymethods]
impl PyDoraSample {
    /// The memory, as an object with the buffer protocol.
    fn as_buffer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.memory.is_over.load(Ordering::Acquire) {
            let text = "Cannot access the buffer: the sample has already been sent";
            return Err(PyRuntimeError::new_err(text));
        }
        let buffer = self
            .buffer
            .get_or_try_init(py, || new_buffer(py, self.memory.clone()))?;
        Ok(buffer.bind(py).clone())
    }

    /// The memory. Release the view before the value is sent.
    fn as_memoryview<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(&self.as_buffer(py)?)
    }

    /// Sends the value. Views of its memory have to be released before.
    fn send(&self, py: Python<'_>) -> PyResult<()> {
        let mut unsent = Some(self.memory.take_filled()?);
        let attempt = |wait| {
            let loan = unsent
                .take()
                .expect("a loan that was not sent for lack of room is returned");
            binding::send_loan_once(*loan, &self.options.envelope(), wait).map_err(
                |(again, cause)| {
                    unsent = again;
                    cause
                },
            )
        };
        match in_slices(py, Wait::Forever, attempt) {
            // The dataflow stops: the next event is STOP.
            Ok(_) | Err(Failure::Send(SendError::Stopped)) => Ok(()),
            Err(error) => Err(error.raise(py)),
        }
    }

    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.as_buffer(py)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let _ = (value, traceback);
        if kind.is_none() {
            self.send(py)?;
        }
        Ok(false)
    }
}

/// An instance of the type that [`buffer_type`] makes.
#[repr(C)]
struct BufferObject {
    head: ffi::PyObject,
    /// From `Arc::into_raw`; null in an instance that Python made.
    memory: *const Memory,
}

/// `Py_buffer`, whose layout is part of the stable ABI.
#[repr(C)]
struct View {
    buf: *mut c_void,
    obj: *mut ffi::PyObject,
    len: ffi::Py_ssize_t,
    itemsize: ffi::Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

fn new_buffer(py: Python<'_>, memory: Arc<Memory>) -> PyResult<Py<PyAny>> {
    let class = buffer_type(py)?;
    // SAFETY: the type is alive, and its instances have the size of `BufferObject`.
    let object = unsafe { ffi::PyType_GenericAlloc(class.as_ptr().cast(), 0) };
    // SAFETY: a new reference, or null with an exception set.
    let owned = unsafe { Bound::from_owned_ptr_or_err(py, object) }?;
    // SAFETY: as above; nothing else has seen the object.
    unsafe { (*object.cast::<BufferObject>()).memory = Arc::into_raw(memory) };
    Ok(owned.unbind())
}

fn buffer_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    /// Slots of `object.h` since Python 3.9.
    const GET_BUFFER: c_int = 1;
    const RELEASE_BUFFER: c_int = 2;
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let make = || {
        let slot = |slot, pfunc| ffi::PyType_Slot { slot, pfunc };
        let mut slots = [
            slot(GET_BUFFER, get_buffer as *mut c_void),
            slot(RELEASE_BUFFER, release_buffer as *mut c_void),
            slot(ffi::Py_tp_dealloc, deallocate as *mut c_void),
            slot(0, ptr::null_mut()),
        ];
        let mut spec = ffi::PyType_Spec {
            name: c"dora.SampleBuffer".as_ptr(),
            basicsize: size_of::<BufferObject>() as c_int,
            itemsize: 0,
            flags: ffi::Py_TPFLAGS_DEFAULT as _,
            slots: slots.as_mut_ptr(),
        };
        // SAFETY: the spec and its slots outlive the call, and the name is static. The functions
        // have the signatures of their slots.
        let class = unsafe { ffi::PyType_FromSpec(&mut spec) };
        // SAFETY: a new reference, or null with an exception set.
        let class = unsafe { Bound::from_owned_ptr_or_err(py, class) }?;
        PyResult::Ok(class.cast_into::<PyType>()?.unbind())
    };
    Ok(TYPE.get_or_try_init(py, make)?.bind(py))
}

unsafe extern "C" fn get_buffer(
    object: *mut ffi::PyObject,
    view: *mut View,
    flags: c_int,
) -> c_int {
    const WITH_FORMAT: c_int = 0x4;
    const WITH_SHAPE: c_int = 0x8;
    const WITH_STRIDES: c_int = 0x10 | WITH_SHAPE;
    // SAFETY: Python calls this with an instance of the type, and with the GIL held. `memory` is
    // null, or alive as long as the object.
    let (py, memory) = unsafe {
        let memory = (*object.cast::<BufferObject>()).memory;
        (Python::assume_attached(), memory.as_ref())
    };
    let Some(memory) = memory.filter(|memory| !memory.is_over.load(Ordering::Acquire)) else {
        // SAFETY: the slot's contract: `obj` is null on failure.
        unsafe { (*view).obj = ptr::null_mut() };
        let text = "Cannot acquire a view of the buffer: the sample was sent or dropped";
        PyBufferError::new_err(text).restore(py);
        return -1;
    };
    memory.views.fetch_add(1, Ordering::AcqRel);
    // SAFETY: Python passes a view to fill. It refers to its own fields, as CPython's views of
    // plain memory do, and holds a reference to the object, which keeps the memory.
    unsafe {
        ffi::Py_INCREF(object);
        (*view).obj = object;
        (*view).buf = memory.start.cast();
        (*view).len = memory.bytes as ffi::Py_ssize_t;
        (*view).itemsize = 1;
        (*view).readonly = 0;
        (*view).ndim = 1;
        let asks = |what| flags & what == what;
        let given = |asked, pointer| if asked { pointer } else { ptr::null_mut() };
        (*view).format = match asks(WITH_FORMAT) {
            true => c"B".as_ptr().cast_mut(),
            false => ptr::null_mut(),
        };
        (*view).shape = given(asks(WITH_SHAPE), &raw mut (*view).len);
        (*view).strides = given(asks(WITH_STRIDES), &raw mut (*view).itemsize);
        (*view).suboffsets = ptr::null_mut();
        (*view).internal = ptr::null_mut();
    }
    0
}

unsafe extern "C" fn release_buffer(object: *mut ffi::PyObject, _view: *mut View) {
    // SAFETY: Python calls this with an object of which it has acquired a view, so `memory` is not
    // null.
    let memory = unsafe { &*(*object.cast::<BufferObject>()).memory };
    memory.views.fetch_sub(1, Ordering::AcqRel);
}

unsafe extern "C" fn deallocate(object: *mut ffi::PyObject) {
    // SAFETY: Python calls this once, when no reference is left: the reference of `Arc::into_raw`
    // ends here. An instance holds a reference to its heap type.
    unsafe {
        let memory = (*object.cast::<BufferObject>()).memory;
        if !memory.is_null() {
            drop(Arc::from_raw(memory));
        }
        let class = ffi::Py_TYPE(object);
        let free = ffi::PyType_GetSlot(class, ffi::Py_tp_free);
        let free: ffi::freefunc = std::mem::transmute(free);
        free(object.cast());
        ffi::Py_DECREF(class.cast());
    }
}
