//! Shared memory that a node fills in place.
//!
//! A published sample belongs to its receivers, so the sender must not write to it any more. NumPy
//! can make an array read-only, but not the views that were made of it before. Views are found by
//! their common base: `root` is an array that user code never sees, and `array` and every view of
//! it refer to `root`. So while `root` has more references than by this loan and by `array`,
//! there are views, and publication is refused.

use crate::array::{self, Access};
use crate::error::exception;
use crate::sending::{SendOptions, in_slices};
use nervure_node::binding::{self, Mapped};
use nervure_node::message::{DType, TensorLayout};
use nervure_node::{Loan, Wait};
use pyo3::ffi;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// Shared memory of an output for one value. Fill `array`; it is sent at the end of the `with`
/// block. An exception inside the block discards it.
#[pyclass(frozen, name = "Loan", module = "nervure")]
pub(crate) struct PyLoan {
    state: Mutex<Option<Filling>>,
    root: Py<PyAny>,
    array: Py<PyAny>,
}

struct Filling {
    /// Boxed, because Python does not align objects as strictly as a loan needs.
    loan: Box<Loan>,
    /// The memory of the array, if that is not the loan's own.
    private: Option<Py<LoanMemory>>,
    options: SendOptions,
    wait: Wait,
}

impl PyLoan {
    pub(crate) fn new(
        py: Python<'_>,
        mut loan: Loan,
        layout: &TensorLayout,
        options: SendOptions,
        wait: Wait,
    ) -> PyResult<Self> {
        let is_native = array::is_native(layout.dtype());
        let exported = if is_native {
            layout.clone()
        } else {
            flat(layout)
        };
        let mapped = binding::mapped(&loan);
        let is_private = mapped.is_none();
        let payload = loan.payload_mut();
        assert_eq!(
            payload.len(),
            layout.payload_bytes(),
            "the loan has the requested size"
        );
        let memory = match mapped {
            Some(mapped) => LoanMemory {
                data: payload.as_mut_ptr(),
                layout: exported,
                _owner: Owner::Block(mapped),
            },
            None => LoanMemory::private(exported),
        };
        let memory = Bound::new(py, memory)?;
        let private = is_private.then(|| memory.clone().unbind());
        let (data, exported) = {
            let memory = memory.get();
            (memory.data, &memory.layout)
        };
        // SAFETY: the memory has the size of the payload and its layout, and belongs to the owner.
        // The loan does not use it before the array is given back.
        let root = unsafe { array::over(memory.as_any(), data, exported, Access::ReadWrite) }?;
        let array = if is_native {
            root.call_method0("view")?
        } else {
            array::custom_over(&root, layout)?
        };
        Ok(Self {
            state: Mutex::new(Some(Filling {
                loan: Box::new(loan),
                private,
                options,
                wait,
            })),
            root: root.unbind(),
            array: array.unbind(),
        })
    }

    fn take(&self) -> Option<Filling> {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn put_back(&self, filling: Filling) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(filling);
    }

    /// Makes the arrays read-only. Their owner has no buffer interface, so NumPy cannot make them
    /// writeable again.
    fn seal(&self, py: Python<'_>) -> PyResult<()> {
        self.root.call_method1(py, "setflags", (false,))?;
        self.array.call_method1(py, "setflags", (false,))?;
        Ok(())
    }

    /// The number of views of `array`.
    fn live_views(&self, py: Python<'_>) -> usize {
        /// References of this loan and of `array`.
        const OWN_REFERENCES: isize = 2;
        // SAFETY: the object is alive, because this loan holds a reference to it.
        let references = unsafe { ffi::Py_REFCNT(self.root.bind(py).as_ptr()) };
        (references - OWN_REFERENCES).max(0) as usize
    }
}

#[pymethods]
impl PyLoan {
    /// The memory as an array, writeable until it is sent or discarded.
    #[getter]
    fn array(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if self
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_none()
        {
            return Err(over(py));
        }
        Ok(self.array.clone_ref(py))
    }

    /// Sends the array, as the end of the `with` block does.
    fn send(&self, py: Python<'_>) -> PyResult<()> {
        let mut filling = self.take().ok_or_else(|| over(py))?;
        let views = self.live_views(py);
        if views > 0 {
            self.put_back(filling);
            let text = format!(
                "the loan cannot be sent: {views} writeable view(s) of its array are still alive (a slice, a \
                 reshape, ..), and what is sent must not change any more. Delete them before the end of the with \
                 block, or send a copy with node.send"
            );
            return Err(exception(py, "LoanError", text));
        }
        self.seal(py)?;
        if let Some(memory) = filling.private.take() {
            memory.get().copy_to(filling.loan.payload_mut());
        }
        let Filling {
            loan,
            options,
            wait,
            ..
        } = filling;
        let mut unsent = Some(loan);
        let attempt = |wait| {
            let loan = unsent
                .take()
                .expect("a loan that was not sent for lack of room is returned");
            binding::send_loan_once(*loan, &options.envelope(), wait).map_err(|(again, cause)| {
                unsent = again;
                cause
            })
        };
        in_slices(py, wait, attempt)
            .map(drop)
            .map_err(|error| error.raise(py))
    }

    /// Returns the memory without sending it.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        match self.take() {
            Some(_) => self.seal(py),
            None => Ok(()),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind, value, traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let _ = (value, traceback);
        let is_over = self
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_none();
        if is_over {
            return Ok(false);
        }
        if kind.is_none() {
            let sent = self.send(py);
            self.discard(py)?;
            sent?;
        } else {
            self.discard(py)?;
        }
        Ok(false)
    }
}

/// A loan's memory. It stays mapped as long as an array refers to it,
/// also after the end of the loan.
#[pyclass(frozen, module = "nervure._native")]
struct LoanMemory {
    data: *mut u8,
    layout: TensorLayout,
    _owner: Owner,
}

/// The owner of the memory.
enum Owner {
    Block(#[expect(dead_code, reason = "held for its drop")] Mapped),
    /// A small payload has no block, and moves with its loan. So it is filled here and copied when
    /// it is sent. `u128` for the alignment.
    Private(#[expect(dead_code, reason = "used through `data`")] Box<[u128]>),
}

// SAFETY: the pointer is only passed on to NumPy, whose arrays are used under Python's rules for
// threads.
unsafe impl Send for LoanMemory {}
// SAFETY: as above.
unsafe impl Sync for LoanMemory {}

impl LoanMemory {
    fn private(layout: TensorLayout) -> Self {
        let mut words =
            vec![0; layout.payload_bytes().div_ceil(size_of::<u128>())].into_boxed_slice();
        Self {
            data: words.as_mut_ptr().cast(),
            layout,
            _owner: Owner::Private(words),
        }
    }

    fn copy_to(&self, payload: &mut [u8]) {
        assert!(
            payload.len() <= self.layout.payload_bytes(),
            "the loan has the requested size"
        );
        // SAFETY: the memory has at least `payload.len()` bytes, checked above, and does not
        // overlap the payload: it is a separate allocation.
        unsafe { std::ptr::copy_nonoverlapping(self.data, payload.as_mut_ptr(), payload.len()) };
    }
}

fn flat(layout: &TensorLayout) -> TensorLayout {
    TensorLayout::contiguous(DType::U8, &[layout.payload_bytes()])
        .expect("the layout fits memory, so do its bytes")
}

fn over(py: Python<'_>) -> PyErr {
    exception(
        py,
        "LoanError",
        "the loan is over: it was sent or discarded",
    )
}
