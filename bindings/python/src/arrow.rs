//! Arrow arrays in and out, through Arrow's PyCapsule interface. Nothing is copied on the way to
//! Python; on the way out, the copy into shared memory is the only one.
//!
//! <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>

use crate::array;
use crate::classes::{RecordClass, Target};
use crate::error::{chain, exception};
use crate::objects;
use arrow_data::ArrayData;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Field};
use nervure_arrow_import::import_array;
use nervure_node::message::record::number_dtype;
use nervure_node::message::{Layout, Schema, TensorColumn, TensorLayout};
use nervure_node::{Sample, SampleError};
use pyo3::exceptions::PyModuleNotFoundError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyTuple};
use std::ffi::CStr;
use std::fmt::Display;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// Reads Arrow's arrays, record batches, chunked arrays and tables; `None` for other objects.
pub(crate) fn import(value: &Bound<'_, PyAny>) -> PyResult<Option<(ArrayData, Schema)>> {
    let py = value.py();
    if let Some(export) = value.getattr_opt(pyo3::intern!(py, "__arrow_c_array__"))? {
        // Only the schema distinguishes a record batch from an array of structs.
        let is_record_batch = value.getattr_opt(pyo3::intern!(py, "schema"))?.is_some();
        return import_capsules(&export.call0()?, is_record_batch).map(Some);
    }
    if value
        .getattr_opt(pyo3::intern!(py, "__arrow_c_stream__"))?
        .is_some()
    {
        let whole = py
            .import("nervure._arrow")?
            .getattr("in_one_piece")?
            .call1((value,))?;
        return import(&whole);
    }
    Ok(None)
}

/// Reads an Arrow array; a record batch as an array of structs. `None` for other objects.
pub(crate) fn import_only_array(value: &Bound<'_, PyAny>) -> PyResult<Option<(ArrayData, Schema)>> {
    let export = value.getattr_opt(pyo3::intern!(value.py(), "__arrow_c_array__"))?;
    export
        .map(|export| import_capsules(&export.call0()?, false))
        .transpose()
}

/// The sample as it was sent: a list or dict, with records as `records` says, otherwise a pyarrow array
/// or record batch.
pub(crate) fn to_object<'py>(
    py: Python<'py>,
    sample: &Sample,
    records: &Target,
) -> PyResult<Bound<'py, PyAny>> {
    let (array, schema) = read(py, sample)?;
    if let Some(schema) = &schema
        && let Some(object) = objects::from_array(py, &array, schema, records)?
    {
        return Ok(object);
    }
    exported(
        py,
        array,
        schema,
        "event.object is a pyarrow array, as it was sent",
    )
}

/// The record as an object of a dataclass.
pub(crate) fn to_dataclass<'py>(
    py: Python<'py>,
    sample: &Sample,
    class: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let records = Target::Class(RecordClass::checked(class)?);
    let found = match sample.layout() {
        Ok(Layout::Array(_)) => {
            let (array, schema) = read(py, sample)?;
            let kind = schema.as_ref().and_then(objects::python_kind);
            let is_record =
                kind == Some("dict") && matches!(array.data_type(), DataType::Struct(_));
            if let Some(schema) = schema.as_ref().filter(|_| is_record)
                && let Some(object) = objects::from_array(py, &array, schema, &records)?
            {
                return Ok(object);
            }
            format!(
                "{} of {}",
                kind.unwrap_or("an Arrow array"),
                array.data_type()
            )
        }
        Ok(other) => other.kind_name().to_owned(),
        Err(error) => return Err(crate::error::sample_error(py, &error)),
    };
    let text = format!("expected one record: a dict, dataclass or struct, found {found}");
    Err(exception(py, "SampleError", text))
}

/// The sample as a pyarrow array or record batch.
pub(crate) fn to_pyarrow<'py>(py: Python<'py>, sample: &Sample) -> PyResult<Bound<'py, PyAny>> {
    let (array, schema) = read(py, sample)?;
    exported(py, array, schema, "event.value is a pyarrow array")
}

/// The sample as a pyarrow array; a record batch as an array of structs.
pub(crate) fn to_pyarrow_array<'py>(
    py: Python<'py>,
    sample: &Sample,
) -> PyResult<Bound<'py, PyAny>> {
    /// What `pyarrow.array` calls for an object with `__arrow_c_array__`, after several other
    /// attempts.
    static FROM_CAPSULES: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();
    let (array, schema) = read(py, sample)?;
    let field = match &schema {
        Some(schema) => schema.root().clone(),
        None => Field::new("", array.data_type().clone(), false),
    };
    let exported = Exported { array, field };
    let from_capsules = FROM_CAPSULES.get_or_try_init(py, || {
        let class = py.import("pyarrow")?.getattr("Array")?;
        let found = class.getattr_opt("_import_from_c_capsule")?;
        PyResult::Ok(found.map(Bound::unbind))
    });
    let needs_pyarrow = |error| without_pyarrow(py, error, "event[\"value\"] is a pyarrow array");
    match from_capsules.map_err(needs_pyarrow)? {
        Some(from_capsules) => from_capsules.bind(py).call1(exported.capsules(py)?),
        None => py
            .import("pyarrow")?
            .getattr("array")?
            .call1((Bound::new(py, exported)?,)),
    }
}

/// The elements as a NumPy array: in place for numbers without nulls, otherwise converted by
/// pyarrow.
pub(crate) fn to_numpy<'py>(py: Python<'py>, sample: &Sample) -> PyResult<Bound<'py, PyAny>> {
    let (array, schema) = read(py, sample)?;
    let kind = schema.as_ref().and_then(objects::python_kind);
    let is_list_of_arrays = schema.as_ref().is_some_and(|schema| {
        TensorColumn::new(schema.root(), &array).is_ok_and(|tensors| tensors.is_some())
    });
    if kind == Some("dict") || is_list_of_arrays {
        let what = if is_list_of_arrays {
            "a list of arrays"
        } else {
            "a dict"
        };
        let text = format!(
            "the value is {what}, not an array: use event.object; arrays in it are NumPy arrays"
        );
        return Err(exception(py, "SampleError", text));
    }
    let dtype =
        number_dtype(array.data_type()).filter(|_| array.null_count() == 0 && array.offset() == 0);
    if let Some((dtype, [elements, ..])) = dtype.zip(Some(array.buffers())) {
        let layout = TensorLayout::contiguous(dtype, &[array.len()]);
        let layout = layout.map_err(|error| exception(py, "SampleError", error))?;
        return array::view_of(py, layout, elements.clone());
    }
    let value = exported(
        py,
        array,
        schema,
        "event.numpy() of an Arrow array that is more than numbers needs pyarrow",
    )?;
    py.import("nervure._arrow")?
        .getattr("to_numpy")?
        .call1((value,))
}

fn read(py: Python<'_>, sample: &Sample) -> PyResult<(ArrayData, Option<Schema>)> {
    let error = |error: SampleError| crate::error::sample_error(py, &error);
    Ok((
        sample.array().map_err(error)?,
        sample.schema().map_err(error)?,
    ))
}

/// The array in pyarrow. `wanted` is for the message if pyarrow is not installed.
fn exported<'py>(
    py: Python<'py>,
    array: ArrayData,
    schema: Option<Schema>,
    wanted: &str,
) -> PyResult<Bound<'py, PyAny>> {
    static ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static RECORD_BATCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let (field, is_record_batch) = match &schema {
        Some(schema) => (schema.root().clone(), schema.is_record_batch()),
        None => (Field::new("", array.data_type().clone(), false), false),
    };
    let exported = Bound::new(py, Exported { array, field })?;
    let convert = if is_record_batch {
        RECORD_BATCH.import(py, "pyarrow", "record_batch")
    } else {
        ARRAY.import(py, "pyarrow", "array")
    };
    convert
        .map_err(|error| without_pyarrow(py, error, wanted))?
        .call1((exported,))
}

/// Adds what to do to the error of a missing pyarrow, which only Arrow values need.
fn without_pyarrow(py: Python<'_>, error: PyErr, wanted: &str) -> PyErr {
    if !error.is_instance_of::<PyModuleNotFoundError>(py) {
        return error;
    }
    PyModuleNotFoundError::new_err(format!(
        "{wanted}, and pyarrow is not installed: pip install pyarrow. Without it: event.object for what was sent as \
         a list, dict or dataclass, event.numpy() for arrays, event.text, event.bytes"
    ))
}

/// An array that is exported to another library.
#[pyclass(frozen, module = "nervure._native")]
struct Exported {
    array: ArrayData,
    field: Field,
}

#[pymethods]
impl Exported {
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        // By the interface, the requested schema is a hint that may be ignored.
        let _ = requested_schema;
        self.capsules(py)
    }
}

impl Exported {
    /// Capsules of the schema and of the array.
    fn capsules<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let schema = FFI_ArrowSchema::try_from(&self.field)
            .map_err(|error| exception(py, "SampleError", chain(&error)))?;
        let schema = PyCapsule::new_with_value(py, schema, SCHEMA)?;
        let array = PyCapsule::new_with_value(py, FFI_ArrowArray::new(&self.array), ARRAY)?;
        PyTuple::new(py, [schema, array])
    }
}

fn import_capsules(
    pair: &Bound<'_, PyAny>,
    is_record_batch: bool,
) -> PyResult<(ArrayData, Schema)> {
    let py = pair.py();
    let refused = |error: &dyn Display| exception(py, "NotSendable", error);
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = pair.extract()?;
    let schema = schema
        .pointer_checked(Some(SCHEMA))?
        .cast::<FFI_ArrowSchema>();
    // SAFETY: a capsule with this name holds an `ArrowSchema`, and lives until the end of this
    // function.
    let field = Field::try_from(unsafe { schema.as_ref() }).map_err(|error| refused(&error))?;
    let array = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: a capsule with this name holds an `ArrowArray`, which a consumer may move out of it.
    let array = unsafe { FFI_ArrowArray::from_raw(array.as_ptr()) };
    if array.is_released() {
        return Err(refused(
            &"the Arrow array was already moved to another consumer",
        ));
    }
    // SAFETY: the exporting library guarantees that the array has the type of its schema.
    let array = unsafe { import_array(array, field.data_type()) };
    let array = array.map_err(|error| refused(&error))?;
    let schema = match field.data_type() {
        DataType::Struct(columns) if is_record_batch => Schema::record_batch(
            &arrow_schema::Schema::new_with_metadata(columns.clone(), field.metadata().clone()),
        ),
        _ => Schema::array(field),
    };
    Ok((array, schema.map_err(|error| refused(&error))?))
}
