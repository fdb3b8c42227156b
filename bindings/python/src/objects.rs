//! Python lists and dicts as Arrow arrays, and back.
//!
//! pyarrow could do both, but costs a tenth of a second and tens of megabytes when it is first imported, which a node
//! that sends a dict now and then should not pay, nor its queue overflow meanwhile.
//!
//! A list is an array of its elements; a dict is an array of one struct. Elements must be of one type, where integers
//! become floats beside floats, and `None` is a null of any type.

use crate::error::{chain, exception};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Fields};
use nervure_node::message::{PYTHON_KIND, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::collections::HashMap;
use std::sync::Arc;

/// How deeply lists and dicts may nest: a little less than schemas may.
const MAX_DEPTH: usize = 28;

/// The array for a list, tuple or dict; `None` for other objects.
pub(crate) fn to_array(value: &Bound<'_, PyAny>) -> PyResult<Option<(ArrayData, Schema)>> {
    let mut column = Column::default();
    let kind = if value.is_instance_of::<PyDict>() {
        column.push(value, MAX_DEPTH).map(|()| "dict")
    } else if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        value.try_iter()?.try_for_each(|item| column.push(&item?, MAX_DEPTH)).map(|()| "list")
    } else {
        return Ok(None);
    };
    let refused = |error: &dyn std::error::Error| exception(value.py(), "NotSendable", chain(error));
    let kind = kind?;
    let array = column.build().map_err(|error| refused(&error))?;
    let field = Field::new("", array.data_type().clone(), true);
    let field = field.with_metadata(HashMap::from([(PYTHON_KIND.to_owned(), kind.to_owned())]));
    let schema = Schema::array(field).map_err(|error| refused(&error))?;
    Ok(Some((array, schema)))
}

/// The list or dict that the array was made of; `None` where it was not made by [`to_array`].
pub(crate) fn from_array<'py>(
    py: Python<'py>,
    array: &ArrayData,
    schema: &Schema,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match schema.root().metadata().get(PYTHON_KIND).map(String::as_str) {
        Some("list") => items(py, array, 0, array.len()),
        Some("dict") if array.len() == 1 => element(py, array, 0),
        _ => Ok(None),
    }
}

/// Values of one type.
#[derive(Default)]
struct Column {
    /// Whether each is there, `None` apart.
    valid: Vec<bool>,
    values: Values,
}

#[derive(Default)]
enum Values {
    /// Nothing but nulls so far.
    #[default]
    Unknown,
    Bool(Vec<bool>),
    Integer(Vec<i64>),
    Unsigned(Vec<u64>),
    Float(Vec<f64>),
    Text {
        ends: Vec<i64>,
        bytes: Vec<u8>,
    },
    Bytes {
        ends: Vec<i64>,
        bytes: Vec<u8>,
    },
    List {
        ends: Vec<i64>,
        items: Box<Column>,
    },
    Struct(Vec<(String, Column)>),
}

impl Column {
    /// Appends an object.
    fn push(&mut self, value: &Bound<'_, PyAny>, depth_left: usize) -> PyResult<()> {
        if value.is_none() {
            self.push_null();
            return Ok(());
        }
        let Some(depth_left) = depth_left.checked_sub(1) else {
            let text = format!("the value nests more than {MAX_DEPTH} lists and dicts, or contains itself");
            return Err(exception(value.py(), "NotSendable", text));
        };
        if let Values::Unknown = self.values {
            self.values = Values::of(value)?;
            (0..self.valid.len()).for_each(|_| self.values.push_default());
        }
        if self.values.push(value, depth_left)? {
            self.valid.push(true);
            return Ok(());
        }
        // NumPy's arrays and scalars, and others' that are made after them.
        if let Some(to_list) = value.getattr_opt(pyo3::intern!(value.py(), "tolist"))? {
            return self.push(&to_list.call0()?, depth_left);
        }
        Err(mixed(&self.values, value))
    }

    fn push_null(&mut self) {
        self.values.push_default();
        self.valid.push(false);
    }

    fn build(self) -> Result<ArrayData, arrow_schema::ArrowError> {
        let length = self.valid.len();
        let (data_type, buffers, children) = self.values.build(length)?;
        let nulls = NullBuffer::new(BooleanBuffer::from(self.valid));
        let is_null_type = data_type == DataType::Null;
        let mut array = ArrayData::builder(data_type).len(length).buffers(buffers).child_data(children);
        if !is_null_type && nulls.null_count() > 0 {
            array = array.nulls(Some(nulls));
        }
        array.build()
    }
}

impl Values {
    /// No values yet, of the type that fits the object.
    fn of(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let first = || vec![0];
        Ok(if value.is_instance_of::<PyBool>() {
            Self::Bool(Vec::new())
        } else if value.is_instance_of::<PyInt>() {
            Self::Integer(Vec::new())
        } else if value.is_instance_of::<PyFloat>() {
            Self::Float(Vec::new())
        } else if value.is_instance_of::<PyString>() {
            Self::Text { ends: first(), bytes: Vec::new() }
        } else if value.is_instance_of::<PyBytes>() {
            Self::Bytes { ends: first(), bytes: Vec::new() }
        } else if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
            Self::List { ends: first(), items: Box::default() }
        } else if value.is_instance_of::<PyDict>() {
            Self::Struct(Vec::new())
        } else if let Some(to_list) = value.getattr_opt(pyo3::intern!(value.py(), "tolist"))? {
            let list = to_list.call0()?;
            return if list.get_type().is(value.get_type()) {
                Err(unsendable(value))
            } else {
                Self::of(&list)
            };
        } else {
            return Err(unsendable(value));
        })
    }

    /// Appends an object. False where it is of another type.
    fn push(&mut self, value: &Bound<'_, PyAny>, depth_left: usize) -> PyResult<bool> {
        let is_number = value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>();
        match self {
            Self::Unknown => return Ok(false),
            Self::Bool(values) => match value.cast::<PyBool>() {
                Ok(value) => values.push(value.is_true()),
                Err(_) => return Ok(false),
            },
            Self::Integer(values) if is_number => match value.extract() {
                Ok(value) => values.push(value),
                Err(_) => return self.widen(value, depth_left),
            },
            Self::Integer(_) if value.is_instance_of::<PyFloat>() => return self.widen(value, depth_left),
            Self::Unsigned(values) if is_number => values.push(value.extract().map_err(|_| too_wide(value))?),
            Self::Float(values) if is_number || value.is_instance_of::<PyFloat>() => {
                values.push(value.extract()?);
            }
            Self::Text { ends, bytes } => match value.cast::<PyString>() {
                Ok(text) => append(ends, bytes, text.to_str()?.as_bytes()),
                Err(_) => return Ok(false),
            },
            Self::Bytes { ends, bytes } => match value.cast::<PyBytes>() {
                Ok(added) => append(ends, bytes, added.as_bytes()),
                Err(_) => return Ok(false),
            },
            Self::List { ends, items } => {
                if !value.is_instance_of::<PyList>() && !value.is_instance_of::<PyTuple>() {
                    return Ok(false);
                }
                for item in value.try_iter()? {
                    items.push(&item?, depth_left)?;
                }
                ends.push(items.valid.len() as i64);
            }
            Self::Struct(fields) => match value.cast::<PyDict>() {
                Ok(dict) => push_fields(fields, dict, depth_left)?,
                Err(_) => return Ok(false),
            },
            Self::Integer(_) | Self::Unsigned(_) | Self::Float(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Makes integers into what holds them and the number as well: unsigned ones, or floats.
    fn widen(&mut self, value: &Bound<'_, PyAny>, depth_left: usize) -> PyResult<bool> {
        let Self::Integer(values) = self else { return Ok(false) };
        *self = if value.is_instance_of::<PyFloat>() {
            Self::Float(values.iter().map(|&value| value as f64).collect())
        } else {
            let unsigned = values.iter().map(|&value| u64::try_from(value)).collect::<Result<_, _>>();
            Self::Unsigned(unsigned.map_err(|_| too_wide(value))?)
        };
        self.push(value, depth_left)
    }

    /// Appends what stands in the place of a null.
    fn push_default(&mut self) {
        match self {
            Self::Unknown => {}
            Self::Bool(values) => values.push(false),
            Self::Integer(values) => values.push(0),
            Self::Unsigned(values) => values.push(0),
            Self::Float(values) => values.push(0.0),
            Self::Text { ends, .. } | Self::Bytes { ends, .. } | Self::List { ends, .. } => {
                ends.push(ends.last().copied().unwrap_or(0));
            }
            Self::Struct(fields) => fields.iter_mut().for_each(|(_, column)| column.push_null()),
        }
    }

    /// Type, buffers and children of an array of so many.
    fn build(
        self,
        length: usize,
    ) -> Result<(DataType, Vec<Buffer>, Vec<ArrayData>), arrow_schema::ArrowError> {
        Ok(match self {
            Self::Unknown => (DataType::Null, vec![], vec![]),
            Self::Bool(values) => (DataType::Boolean, vec![BooleanBuffer::from(values).into_inner()], vec![]),
            Self::Integer(values) => (DataType::Int64, vec![Buffer::from_vec(values)], vec![]),
            Self::Unsigned(values) => (DataType::UInt64, vec![Buffer::from_vec(values)], vec![]),
            Self::Float(values) => (DataType::Float64, vec![Buffer::from_vec(values)], vec![]),
            Self::Text { ends, bytes } => {
                (DataType::LargeUtf8, vec![Buffer::from_vec(ends), Buffer::from_vec(bytes)], vec![])
            }
            Self::Bytes { ends, bytes } => {
                (DataType::LargeBinary, vec![Buffer::from_vec(ends), Buffer::from_vec(bytes)], vec![])
            }
            Self::List { ends, items } => {
                let items = items.build()?;
                let field = Field::new("item", items.data_type().clone(), true);
                (DataType::LargeList(Arc::new(field)), vec![Buffer::from_vec(ends)], vec![items])
            }
            Self::Struct(fields) => {
                let (mut types, mut children) = (Vec::new(), Vec::new());
                for (name, column) in fields {
                    let child = column.build()?;
                    debug_assert_eq!(child.len(), length, "each field has a value a row");
                    types.push(Field::new(name, child.data_type().clone(), true));
                    children.push(child);
                }
                (DataType::Struct(Fields::from(types)), vec![], children)
            }
        })
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Unknown => "None",
            Self::Bool(_) => "bool",
            Self::Integer(_) | Self::Unsigned(_) => "int",
            Self::Float(_) => "float",
            Self::Text { .. } => "str",
            Self::Bytes { .. } => "bytes",
            Self::List { .. } => "list",
            Self::Struct(_) => "dict",
        }
    }
}

/// Appends a row. Fields that it lacks are null in it, and those that it is the first to have are null before.
fn push_fields(
    fields: &mut Vec<(String, Column)>,
    dict: &Bound<'_, PyDict>,
    depth_left: usize,
) -> PyResult<()> {
    let rows = fields.first().map(|(_, column)| column.valid.len());
    for (key, value) in dict {
        let Ok(key) = key.cast::<PyString>() else {
            let text = format!("keys of a dict that is sent are str, got {}", type_name(&key));
            return Err(exception(dict.py(), "NotSendable", text));
        };
        let key = key.to_str()?;
        let index = fields.iter().position(|(known, _)| known == key).unwrap_or_else(|| {
            let mut column = Column::default();
            (0..rows.unwrap_or(0)).for_each(|_| column.push_null());
            fields.push((key.to_owned(), column));
            fields.len() - 1
        });
        fields[index].1.push(&value, depth_left)?;
    }
    let rows = rows.unwrap_or(0) + 1;
    for (_, column) in fields.iter_mut().filter(|(_, column)| column.valid.len() < rows) {
        column.push_null();
    }
    Ok(())
}

fn append(ends: &mut Vec<i64>, bytes: &mut Vec<u8>, added: &[u8]) {
    bytes.extend_from_slice(added);
    ends.push(bytes.len() as i64);
}

/// An element as a Python object; `None` where the array is of a type that [`to_array`] does not make.
fn element<'py>(py: Python<'py>, array: &ArrayData, index: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
    if array.is_null(index) || *array.data_type() == DataType::Null {
        return Ok(Some(py.None().into_bound(py)));
    }
    Ok(Some(match array.data_type() {
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
        DataType::LargeBinary => PyBytes::new(py, &array.buffers()[1][range(array, index)]).into_any(),
        DataType::LargeList(_) => {
            let range = range(array, index);
            return items(py, &array.child_data()[0], range.start, range.end);
        }
        DataType::Struct(fields) => {
            let dict = PyDict::new(py);
            for (field, column) in fields.iter().zip(array.child_data()) {
                let Some(value) = element(py, column, index)? else { return Ok(None) };
                dict.set_item(field.name(), value)?;
            }
            dict.into_any()
        }
        _ => return Ok(None),
    }))
}

fn items<'py>(
    py: Python<'py>,
    array: &ArrayData,
    start: usize,
    end: usize,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let list = PyList::empty(py);
    for index in start..end {
        let Some(item) = element(py, array, index)? else { return Ok(None) };
        list.append(item)?;
    }
    Ok(Some(list.into_any()))
}

/// Offsets were validated when the array was read; they lie in private memory.
fn range(array: &ArrayData, index: usize) -> std::ops::Range<usize> {
    let ends = array.buffer::<i64>(0);
    ends[index] as usize..ends[index + 1] as usize
}

fn mixed(values: &Values, value: &Bound<'_, PyAny>) -> PyErr {
    let text = format!(
        "the elements of a list, and what dicts of a list have under one key, must be of one type (None apart): \
         {} stands beside {}",
        type_name(value),
        values.name()
    );
    exception(value.py(), "NotSendable", text)
}

fn unsendable(value: &Bound<'_, PyAny>) -> PyErr {
    let text = format!(
        "a list or dict that is sent holds bool, int, float, str, bytes, None, and lists and dicts of those; got {}",
        type_name(value)
    );
    exception(value.py(), "NotSendable", text)
}

fn too_wide(value: &Bound<'_, PyAny>) -> PyErr {
    exception(
        value.py(),
        "NotSendable",
        format!("the integers of a list do not fit 64 bits together: {value}"),
    )
}

fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().fully_qualified_name().map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}
