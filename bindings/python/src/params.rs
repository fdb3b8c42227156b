//! Values of parameters as Python objects.

use nervure_node::ParamValue;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

pub(crate) fn to_object<'py>(py: Python<'py>, value: &ParamValue) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        ParamValue::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        ParamValue::Number(number) => match number.as_i64() {
            Some(integer) => integer.into_pyobject(py)?.into_any(),
            None => number
                .as_f64()
                .unwrap_or(f64::NAN)
                .into_pyobject(py)?
                .into_any(),
        },
        ParamValue::String(text) => PyString::new(py, text).into_any(),
        ParamValue::Array(items) => {
            let items = items
                .iter()
                .map(|item| to_object(py, item))
                .collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items)?.into_any()
        }
        // Parameters have no such values.
        ParamValue::Null | ParamValue::Object(_) => py.None().into_bound(py),
    })
}
