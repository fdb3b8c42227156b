//! Memory that a node fills in place.
//!
//! What has been published belongs to its readers, so nobody may write to it any more. NumPy can take that right from an
//! array, but not from the views that were made of it before. They are found by their common base: `root` is an array
//! that nobody sees; `array`, and every view of it, refer to `root`. So while `root` is referred to by more than this
//! loan and `array`, views are alive, and publication is refused.

use crate::array::{self, Access};
use crate::error::exception;
use crate::sending::{Given, in_slices};
use nervure_node::message::{DType, TensorLayout};
use nervure_node::{Mapped, Wait};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::sync::{Mutex, PoisonError};

/// Memory of an output for one value: fill `array`, which is then sent at the end of the `with` block. An exception
/// inside the block discards it.
#[pyclass(frozen, module = "nervure")]
pub(crate) struct Loan {
    state: Mutex<Option<Filling>>,
    root: Py<PyAny>,
    array: Py<PyAny>,
}

struct Filling {
    /// Boxed, because Python does not align objects as a loan needs.
    loan: Box<nervure_node::Loan>,
    /// What the array lies in, where that is not the loan itself.
    private: Option<Py<LoanMemory>>,
    given: Given,
    wait: Wait,
}

impl Loan {
    pub(crate) fn new(
        py: Python<'_>,
        mut loan: nervure_node::Loan,
        layout: &TensorLayout,
        given: Given,
        wait: Wait,
    ) -> PyResult<Self> {
        let plain = array::is_plain(layout.dtype());
        let exported = if plain { layout.clone() } else { flat(layout) };
        let mapped = loan.mapped();
        let is_private = mapped.is_none();
        let payload = loan.payload_mut();
        assert_eq!(
            payload.len(),
            layout.payload_bytes(),
            "the loan has the size that was asked for"
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
        let root = array::over(memory.as_any())?;
        let array = if plain {
            root.call_method0("view")?
        } else {
            array::custom_over(&root, layout)?
        };
        Ok(Self {
            state: Mutex::new(Some(Filling {
                loan: Box::new(loan),
                private,
                given,
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

    /// Makes the arrays read-only. Their owner is no buffer, so NumPy will not make them writeable again.
    fn seal(&self, py: Python<'_>) -> PyResult<()> {
        self.root.call_method1(py, "setflags", (false,))?;
        self.array.call_method1(py, "setflags", (false,))?;
        Ok(())
    }

    /// Views of `array`, apart from itself.
    fn live_views(&self, py: Python<'_>) -> usize {
        const OWN: isize = 2;
        // SAFETY: the object is alive, because this loan refers to it.
        let references = unsafe { ffi::Py_REFCNT(self.root.bind(py).as_ptr()) };
        (references - OWN).max(0) as usize
    }
}

#[pymethods]
impl Loan {
    /// The memory, writeable until it is sent or discarded.
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

    /// Sends it, as the end of the `with` block does.
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
            loan, given, wait, ..
        } = filling;
        let mut unsent = Some(loan);
        let attempt = |wait| {
            let loan = unsent
                .take()
                .expect("a loan that was not sent for lack of room is given back");
            loan.send_once(&given.envelope(), wait)
                .map_err(|(again, cause)| {
                    unsent = again;
                    cause
                })
        };
        in_slices(py, wait, attempt)
            .map(drop)
            .map_err(|error| error.raise(py))
    }

    /// Gives the memory back unsent.
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

/// A loan's memory as NumPy asks for it. It stays mapped, though no longer the loan's, as long as an array refers to it.
#[pyclass(frozen, module = "nervure._native")]
struct LoanMemory {
    data: *mut u8,
    layout: TensorLayout,
    _owner: Owner,
}

/// What keeps the memory.
enum Owner {
    Block(#[expect(dead_code, reason = "it is there to be dropped")] Mapped),
    /// A small payload has no block, and moves about until it is sent. Words, for their alignment.
    Private(#[expect(dead_code, reason = "used through `data`")] Box<[u128]>),
}

// SAFETY: the pointer is only handed on to NumPy, whose arrays are used under Python's rules for threads.
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
            "the loan has the size that was asked for"
        );
        // SAFETY: the memory has that many bytes, checked above, and is another than the payload.
        unsafe { std::ptr::copy_nonoverlapping(self.data, payload.as_mut_ptr(), payload.len()) };
    }
}

#[pymethods]
impl LoanMemory {
    #[getter]
    fn __array_struct__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        array::export(py, self.data, &self.layout, Access::ReadWrite)
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
