//! Python lists, dicts and dataclasses as records, and back.
//!
//! pyarrow could do both, but its first import takes a tenth of a second and tens of megabytes. A
//! node that sends a dict now and then should not pay for that, and its queue should not overflow
//! meanwhile.
//!
//! A list is an array of its elements; a dict or dataclass is an array of one struct. All elements
//! must have one type. Integers beside floats become floats, and `None` is a null of any type.
//! NumPy arrays are tensors: they are copied once, into the memory that the receiver views.

use crate::array::{self, ForeignArray, PythonTensor};
use crate::classes::{RecordClass, Target};
use crate::error::{chain, exception, text};
use crate::metadata;
use crate::refusal::{Refusal, Step, type_name};
use arrow_buffer::BooleanBuffer;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Fields};
use nervure_node::Metadata;
use nervure_node::message::{
    Column, DType, PYTHON_KIND, Record, Schema, TensorColumn, record::Kind,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTuple,
    PyType,
};

/// Limit of nested lists and dicts, a little below the limit of schemas.
const MAX_DEPTH: usize = 28;

/// The record for a list, tuple or dict; `None` for other objects.
pub(crate) fn to_record(value: &Bound<'_, PyAny>) -> PyResult<Option<Record<PythonTensor>>> {
    if value.is_instance_of::<PyDict>() {
        record("dict", value, |column| push(column, value, MAX_DEPTH)).map(Some)
    } else if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        record("list", value, |column| push_items(column, value, MAX_DEPTH)).map(Some)
    } else {
        Ok(None)
    }
}

/// The record for a dataclass; `None` for other objects.
pub(crate) fn dataclass_to_record(
    value: &Bound<'_, PyAny>,
) -> PyResult<Option<Record<PythonTensor>>> {
    if !is_dataclass(value)? {
        return Ok(None);
    }
    record("dict", value, |column| {
        push_dataclass(column, value, MAX_DEPTH)
    })
    .map(Some)
}

/// The field of a dataclass that is a whole sample, such as the pixels of an image, and its other fields, which
/// are metadata; `None` for other objects.
pub(crate) fn payload<'py>(
    value: &Bound<'py, PyAny>,
) -> PyResult<Option<(Bound<'py, PyAny>, Metadata)>> {
    if !is_dataclass(value)? {
        return Ok(None);
    }
    let py = value.py();
    let name = pyo3::intern!(py, "__nervure_payload__");
    let Some(payload) = value.get_type().getattr_opt(name)? else {
        return Ok(None);
    };
    let payload = payload.cast_into::<PyString>()?;
    let others = PyDict::new(py);
    for name in field_names(value)? {
        let other = value.getattr(&name)?;
        if text(&name)? != text(&payload)? && !other.is_none() {
            others.set_item(name, other)?;
        }
    }
    Ok(Some((
        value.getattr(payload)?,
        metadata::from_dict(&others)?,
    )))
}

/// The names of the fields of a dataclass.
fn field_names<'py>(value: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyString>>> {
    static FIELDS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = value.py();
    let declared = FIELDS
        .import(py, "dataclasses", "fields")?
        .call1((value,))?;
    let name = |field: PyResult<Bound<'py, PyAny>>| {
        let name = field?.getattr(pyo3::intern!(py, "name"))?;
        Ok(name.cast_into::<PyString>()?)
    };
    declared.try_iter()?.map(name).collect()
}

/// The list or dict that the array was made from, with records as `records` says; `None` if it was made
/// from something else.
pub(crate) fn from_array<'py>(
    py: Python<'py>,
    array: &ArrayData,
    schema: &Schema,
    records: &Target,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(kind) = python_kind(schema) else {
        return Ok(None);
    };
    let Some(objects) = Objects::new(py, schema.root(), array, records)? else {
        return Ok(None);
    };
    match kind {
        "list" => objects.list(py, 0..array.len()).map(Some),
        "dict" if array.len() == 1 => objects.get(py, 0).map(Some),
        _ => Ok(None),
    }
}

/// `list` or `dict`, if the array was made from one.
pub(crate) fn python_kind(schema: &Schema) -> Option<&str> {
    schema
        .root()
        .metadata()
        .get(PYTHON_KIND)
        .map(String::as_str)
}

fn record(
    kind: &str,
    value: &Bound<'_, PyAny>,
    fill: impl FnOnce(&mut Column<PythonTensor>) -> Result<(), Refusal>,
) -> PyResult<Record<PythonTensor>> {
    let mut column = Column::default();
    fill(&mut column).map_err(|refusal| refusal.raise(value.py()))?;
    Record::new(column, kind).map_err(|error| exception(value.py(), "NotSendable", chain(&error)))
}

/// Appends an object.
fn push(
    column: &mut Column<PythonTensor>,
    value: &Bound<'_, PyAny>,
    depth_left: usize,
) -> Result<(), Refusal> {
    if value.is_none() {
        column.push_null();
        return Ok(());
    }
    let depth_left = depth_left
        .checked_sub(1)
        .ok_or_else(|| Refusal::too_deep(MAX_DEPTH))?;
    if let Ok(value) = value.cast::<PyBool>() {
        column.push_bool(value.is_true())?;
    } else if let Ok(value) = value.cast::<PyInt>() {
        push_integer(column, value)?;
    } else if let Ok(value) = value.cast::<PyFloat>() {
        column.push_float(value.value())?;
    } else if let Ok(value) = value.cast::<PyString>() {
        column.push_text(text(value)?)?;
    } else if let Ok(value) = value.cast::<PyBytes>() {
        column.push_bytes(value.as_bytes())?;
    } else if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        push_items(column.begin_list()?, value, depth_left)?;
        column.end_list();
    } else if let Ok(dict) = value.cast::<PyDict>() {
        push_dict(column, dict, depth_left)?;
    } else {
        push_other(column, value, depth_left)?;
    }
    Ok(())
}

fn push_items(
    items: &mut Column<PythonTensor>,
    list: &Bound<'_, PyAny>,
    depth_left: usize,
) -> Result<(), Refusal> {
    for (index, item) in list.try_iter()?.enumerate() {
        push(items, &item?, depth_left).map_err(|refusal| refusal.within(Step::Index(index)))?;
    }
    Ok(())
}

fn push_dict(
    column: &mut Column<PythonTensor>,
    dict: &Bound<'_, PyDict>,
    depth_left: usize,
) -> Result<(), Refusal> {
    let fields = column.begin_fields()?;
    for (key, value) in dict {
        let Ok(key) = key.cast::<PyString>() else {
            return Err(Refusal::text(format!(
                "keys of a dict that is sent are str, got {} (hint: {{str(key): ..}})",
                type_name(&key)
            )));
        };
        let key = text(key)?;
        let pushed = fields.field(key).map_err(Refusal::from);
        let pushed = pushed.and_then(|column| push(column, &value, depth_left));
        pushed.map_err(|refusal| refusal.within(Step::Key(key.to_owned())))?;
    }
    column.end_fields();
    Ok(())
}

fn push_dataclass(
    column: &mut Column<PythonTensor>,
    value: &Bound<'_, PyAny>,
    depth_left: usize,
) -> Result<(), Refusal> {
    let fields = column.begin_fields()?;
    for name in field_names(value)? {
        let name_text = text(&name)?;
        let pushed = fields.field(name_text).map_err(Refusal::from);
        let pushed = pushed.and_then(|column| push(column, &value.getattr(&name)?, depth_left));
        pushed.map_err(|refusal| refusal.within(Step::Attribute(name_text.to_owned())))?;
    }
    column.end_fields();
    Ok(())
}

fn push_integer(
    column: &mut Column<PythonTensor>,
    value: &Bound<'_, PyInt>,
) -> Result<(), Refusal> {
    if let Ok(value) = value.extract::<i64>() {
        column.push_integer(value)?;
    } else if let Ok(value) = value.extract::<u64>() {
        column.push_unsigned(value)?;
    } else if column.kind() == Kind::Float {
        column.push_float(value.extract()?)?;
    } else {
        return Err(Refusal::text(format!(
            "the integer {value} does not fit 64 bits; send it as str"
        )));
    }
    Ok(())
}

/// Appends an object that is of none of Python's own types.
fn push_other(
    column: &mut Column<PythonTensor>,
    value: &Bound<'_, PyAny>,
    depth_left: usize,
) -> Result<(), Refusal> {
    if let Ok(bytes) = value.cast::<PyByteArray>() {
        return Ok(column.push_bytes(&bytes.to_vec())?);
    }
    if let Ok(view) = value.cast::<PyMemoryView>()
        && array::is_of_bytes(view)
    {
        let bytes = view
            .call_method0("tobytes")?
            .cast_into::<PyBytes>()
            .map_err(PyErr::from)?;
        return Ok(column.push_bytes(bytes.as_bytes())?);
    }
    match ForeignArray::read(value) {
        Ok(Some(found)) if is_number(value, &found)? => {
            return push(column, &value.call_method0("item")?, depth_left);
        }
        Ok(Some(found)) => return push_array(column, value, &found),
        Ok(None) if is_dataclass(value)? => return push_dataclass(column, value, depth_left),
        Ok(None) => {}
        Err(error) if !array::is_of_objects(value) => return Err(error.into()),
        Err(_) => {}
    }
    let converted = value
        .py()
        .import("nervure._numpy")?
        .getattr("inside")?
        .call1((value,))?;
    if let Some(found) = ForeignArray::read(&converted)? {
        return push_array(column, &converted, &found);
    }
    push(column, &converted, depth_left)
}

fn push_array(
    column: &mut Column<PythonTensor>,
    value: &Bound<'_, PyAny>,
    found: &ForeignArray<'_>,
) -> Result<(), Refusal> {
    let layout = found.packed_layout().map_err(Refusal::text)?;
    Ok(column.push_tensor(&layout, PythonTensor::new(found, value))?)
}

/// Whether the value is a NumPy scalar with an equivalent in Python. It is then sent as a number,
/// and not as a tensor.
fn is_number(value: &Bound<'_, PyAny>, found: &ForeignArray<'_>) -> PyResult<bool> {
    static GENERIC: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let is_real = !matches!(
        found.dtype,
        DType::Bf16 | DType::C64 | DType::C128 | DType::Custom { .. }
    );
    if !found.shape.is_empty() || !is_real {
        return Ok(false);
    }
    value.is_instance(GENERIC.import(value.py(), "numpy", "generic")?)
}

fn is_dataclass(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if value.is_instance_of::<PyType>() {
        return Ok(false);
    }
    Ok(value
        .get_type()
        .getattr_opt(pyo3::intern!(value.py(), "__dataclass_fields__"))?
        .is_some())
}

/// The values of an array as Python objects.
enum Objects<'a, 'py> {
    Primitive(&'a ArrayData),
    List {
        lists: &'a ArrayData,
        items: Box<Self>,
    },
    Records {
        rows: &'a ArrayData,
        columns: Vec<(Bound<'py, PyString>, Self)>,
        /// The class that they become.
        class: Option<Bound<'py, RecordClass>>,
    },
    Arrays(TensorColumn<'a>),
}

impl<'a, 'py> Objects<'a, 'py> {
    /// `None` if the array has a type that [`to_record`] does not make.
    fn new(
        py: Python<'py>,
        field: &Field,
        array: &'a ArrayData,
        records: &Target,
    ) -> PyResult<Option<Self>> {
        let damaged = |error| exception(py, "SampleError", chain(&error));
        if let Some(tensors) = TensorColumn::new(field, array).map_err(damaged)? {
            return Ok(Some(Self::Arrays(tensors)));
        }
        Ok(match array.data_type() {
            DataType::Null
            | DataType::Boolean
            | DataType::Int64
            | DataType::UInt64
            | DataType::Float64
            | DataType::LargeUtf8
            | DataType::LargeBinary => Some(Self::Primitive(array)),
            DataType::LargeList(item) => {
                Self::new(py, item, &array.child_data()[0], records)?.map(|items| Self::List {
                    lists: array,
                    items: Box::new(items),
                })
            }
            DataType::Struct(fields) => match records {
                Target::Class(class) => {
                    Self::instances(py, RecordClass::of(class.bind(py))?, fields, array)?
                }
                Target::Dict | Target::Nothing => Self::dicts(py, fields, array)?,
            },
            _ => None,
        })
    }

    fn dicts(py: Python<'py>, fields: &Fields, rows: &'a ArrayData) -> PyResult<Option<Self>> {
        let mut columns = Vec::with_capacity(fields.len());
        for (field, column) in fields.iter().zip(rows.child_data()) {
            let Some(column) = Self::new(py, field, column, &Target::Dict)? else {
                return Ok(None);
            };
            columns.push((PyString::new(py, field.name()), column));
        }
        Ok(Some(Self::Records {
            rows,
            columns,
            class: None,
        }))
    }

    /// Fields that the class does not have are those of a newer version of the type.
    fn instances(
        py: Python<'py>,
        class: Bound<'py, RecordClass>,
        fields: &Fields,
        rows: &'a ArrayData,
    ) -> PyResult<Option<Self>> {
        let mut columns = Vec::with_capacity(fields.len());
        for wanted in class.get().fields() {
            let name = wanted.name.bind(py);
            let Some((index, field)) = fields.find(name.to_str()?) else {
                if wanted.is_required {
                    return Err(class.get().misfit(py, wanted, "no such field"));
                }
                continue;
            };
            let column = &rows.child_data()[index];
            let Some(column) = Self::new(py, field, column, &wanted.records)? else {
                return Ok(None);
            };
            if let Some(items) = column.items()
                && !wanted.takes(matches!(items, Self::Records { .. }))
            {
                return Err(class.get().misfit(py, wanted, &items.shown()));
            }
            columns.push((name.clone(), column));
        }
        Ok(Some(Self::Records {
            rows,
            columns,
            class: Some(class),
        }))
    }

    /// The values, or those in lists; `None` for nulls.
    fn items(&self) -> Option<&Self> {
        match self {
            Self::Primitive(array) if *array.data_type() == DataType::Null => None,
            Self::List { items, .. } => items.items(),
            items => Some(items),
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Primitive(array) => array.data_type().to_string(),
            Self::List { .. } => "a list".to_owned(),
            Self::Records { .. } => "a record".to_owned(),
            Self::Arrays(_) => "an array".to_owned(),
        }
    }

    fn get(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        let none = || Ok(py.None().into_bound(py));
        match self {
            Self::Primitive(array) => primitive(py, array, index),
            Self::List { lists, .. } if lists.is_null(index) => none(),
            Self::List { lists, items } => items.list(py, range(lists, index)),
            Self::Records { rows, .. } if rows.is_null(index) => none(),
            Self::Records { columns, class, .. } => {
                let values = PyDict::new(py);
                for (name, column) in columns {
                    values.set_item(name, column.get(py, index)?)?;
                }
                match class {
                    Some(class) => class.get().make(&values),
                    None => Ok(values.into_any()),
                }
            }
            Self::Arrays(tensors) => {
                let tensor = tensors.get(index);
                match tensor.map_err(|error| exception(py, "SampleError", chain(&error)))? {
                    Some(tensor) => array::view_of(py, tensor.layout, tensor.elements),
                    None => none(),
                }
            }
        }
    }

    fn list(&self, py: Python<'py>, range: std::ops::Range<usize>) -> PyResult<Bound<'py, PyAny>> {
        let list = PyList::empty(py);
        for index in range {
            list.append(self.get(py, index)?)?;
        }
        Ok(list.into_any())
    }
}

fn primitive<'py>(py: Python<'py>, array: &ArrayData, index: usize) -> PyResult<Bound<'py, PyAny>> {
    if array.is_null(index) {
        return Ok(py.None().into_bound(py));
    }
    Ok(match array.data_type() {
        DataType::Boolean => {
            let bits = BooleanBuffer::new(array.buffers()[0].clone(), array.offset(), array.len());
            PyBool::new(py, bits.value(index)).to_owned().into_any()
        }
        DataType::Int64 => array.buffer::<i64>(0)[index].into_pyobject(py)?.into_any(),
        DataType::UInt64 => array.buffer::<u64>(0)[index].into_pyobject(py)?.into_any(),
        DataType::Float64 => array.buffer::<f64>(0)[index].into_pyobject(py)?.into_any(),
        DataType::LargeUtf8 => {
            let text = std::str::from_utf8(&array.buffers()[1][range(array, index)]);
            let text = text.map_err(|error| exception(py, "SampleError", error))?;
            PyString::new(py, text).into_any()
        }
        DataType::LargeBinary => {
            PyBytes::new(py, &array.buffers()[1][range(array, index)]).into_any()
        }
        _ => py.None().into_bound(py),
    })
}

/// The bytes or items of one element. The offsets lie in private memory, and were validated when
/// the array was read.
fn range(array: &ArrayData, index: usize) -> std::ops::Range<usize> {
    let ends = array.buffer::<i64>(0);
    ends[index] as usize..ends[index + 1] as usize
}
