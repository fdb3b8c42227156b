//! Metadata as Python dicts.

use crate::error::{exception, text};
use nervure_node::{Metadata, Value};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

pub(crate) fn to_dict<'py>(py: Python<'py>, metadata: &Metadata) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in metadata.iter() {
        set(&dict, key, value)?;
    }
    Ok(dict)
}

pub(crate) fn set(dict: &Bound<'_, PyDict>, key: &str, value: &Value) -> PyResult<()> {
    let py = dict.py();
    match value {
        Value::Bool(value) => dict.set_item(key, value),
        Value::Integer(value) => dict.set_item(key, value),
        Value::Float(value) => dict.set_item(key, value),
        Value::Text(value) => dict.set_item(key, value),
        Value::Bytes(value) => dict.set_item(key, PyBytes::new(py, value)),
        Value::Integers(values) => dict.set_item(key, PyList::new(py, values)?),
        Value::Floats(values) => dict.set_item(key, PyList::new(py, values)?),
        Value::Texts(values) => dict.set_item(key, PyList::new(py, values)?),
    }
}

pub(crate) fn from_dict(dict: &Bound<'_, PyDict>) -> PyResult<Metadata> {
    let mut metadata = Metadata::new();
    for (key, value) in dict {
        let Ok(name) = key.cast::<PyString>() else {
            return Err(PyTypeError::new_err(format!(
                "keys of metadata are str, got {}",
                described(&key)
            )));
        };
        let name = text(name)?;
        metadata.insert(name, self::value(name, &value)?);
    }
    Ok(metadata)
}

fn value(key: &str, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    // bool before int, because it is a subclass of int.
    if let Ok(value) = given.cast::<PyBool>() {
        return Ok(Value::Bool(value.is_true()));
    }
    if let Ok(value) = given.cast::<PyString>() {
        return Ok(Value::Text(text(value)?.to_owned()));
    }
    if let Ok(value) = given.cast::<PyBytes>() {
        return Ok(Value::Bytes(value.as_bytes().to_vec()));
    }
    if given.is_instance_of::<PyFloat>() {
        return Ok(Value::Float(given.extract()?));
    }
    if given.is_instance_of::<PyInt>() {
        return Ok(Value::Integer(integer(key, given)?));
    }
    if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
        return list(key, given);
    }
    // Numbers of other libraries, such as NumPy.
    if given.hasattr("__index__")? {
        return Ok(Value::Integer(integer(key, given)?));
    }
    given
        .extract()
        .map(Value::Float)
        .map_err(|_| refused(key, given))
}

fn list(key: &str, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    let values: Vec<Value> = given
        .try_iter()?
        .map(|item| value(key, &item?))
        .collect::<PyResult<_>>()?;
    let all = |is: fn(&Value) -> bool| values.iter().all(is);
    if all(|value| matches!(value, Value::Integer(_))) {
        return Ok(Value::Integers(
            values.iter().filter_map(as_integer).collect(),
        ));
    }
    if all(|value| matches!(value, Value::Integer(_) | Value::Float(_))) {
        return Ok(Value::Floats(values.iter().filter_map(as_float).collect()));
    }
    if all(|value| matches!(value, Value::Text(_))) {
        return Ok(Value::Texts(
            values.into_iter().filter_map(into_text).collect(),
        ));
    }
    Err(refused(key, given))
}

fn as_integer(value: &Value) -> Option<i64> {
    if let Value::Integer(value) = value {
        Some(*value)
    } else {
        None
    }
}

fn as_float(value: &Value) -> Option<f64> {
    match value {
        Value::Float(value) => Some(*value),
        Value::Integer(value) => Some(*value as f64),
        _ => None,
    }
}

fn into_text(value: Value) -> Option<String> {
    if let Value::Text(value) = value {
        Some(value)
    } else {
        None
    }
}

fn integer(key: &str, given: &Bound<'_, PyAny>) -> PyResult<i64> {
    given.extract().map_err(|_| {
        let text =
            format!("metadata {key:?}: {given} does not fit 64 bits (signed); send it as str");
        exception(given.py(), "TooLarge", text)
    })
}

fn refused(key: &str, given: &Bound<'_, PyAny>) -> PyErr {
    let text = format!(
        "metadata {key:?} is {}, expected bool, int, float, str, bytes, or a list of int, float or str; \
         send other things as the value",
        described(given)
    );
    PyTypeError::new_err(text)
}

fn described(given: &Bound<'_, PyAny>) -> String {
    let name = given.get_type().name().map(|name| name.to_string());
    name.unwrap_or_else(|_| "an object".to_owned())
}
