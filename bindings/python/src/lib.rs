//! The native half of the Python package `nervure`.
//!
//! Everything that a node does per event happens here, before control returns to Python. NumPy and
//! pyarrow are imported when a value is first requested in one of their types. Rare work that is
//! simpler in Python is in private modules of the package, which are called from here.

#![expect(
    unsafe_code,
    reason = "NumPy's array interface and Arrow's C data interface are structs of pointers"
)]

mod array;
mod arrow;
mod calls;
mod classes;
mod dora;
mod dora_node;
mod dora_sample;
mod error;
mod event;
mod goals;
mod host;
mod loan;
mod metadata;
mod node;
mod numpy_api;
mod objects;
mod observer;
mod outgoing;
mod params;
mod receiving;
mod refusal;
mod sending;
mod signals;
mod transforms;

/// The native half of the package `nervure`: see `_native.pyi`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::dora_node::{dora_close_output, dora_event, dora_follow, dora_rest};
    #[pymodule_export]
    use crate::event::PyEvent;
    #[pymodule_export]
    use crate::goals::{begin_goal, cancel_goal, goal_state, take_answer, wait_for_progress};
    #[pymodule_export]
    use crate::host::{prepare_thread, set_host};
    #[pymodule_export]
    use crate::loan::PyLoan;
    #[pymodule_export]
    use crate::node::PyNode;
    #[pymodule_export]
    use crate::observer::{PyObserver, observe};
    #[pymodule_export]
    use crate::transforms::lookup_transform;

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python's packages use")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    // For nervure._stacks and nervure._host
    #[pymodule_export]
    const _CONTROL_FD_VARIABLE: &str = nervure_node::CONTROL_FD_VARIABLE;
    #[pymodule_export]
    const _HOST_FD_VARIABLE: &str = nervure_node::binding::HOST_FD_VARIABLE;
    #[pymodule_export]
    const _STACKS_SIGNAL: i32 = nervure_node::STACKS_SIGNAL;
}
