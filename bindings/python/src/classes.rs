//! Dataclasses that records become: those of the standard types, and a program's own.

use crate::error::exception;
use nervure_node::Handle;
use nervure_node::binding::is_standard_record;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyType};

/// A dataclass with the parts that a record needs.
#[pyclass(frozen, module = "nervure._native")]
pub(crate) struct RecordClass {
    class: Py<PyType>,
    fields: Vec<ClassField>,
}

/// A field of a dataclass.
pub(crate) struct ClassField {
    pub(crate) name: Py<PyString>,
    pub(crate) is_required: bool,
    pub(crate) records: Target,
    /// The annotation, for messages.
    pub(crate) annotation: String,
}

/// The objects that records become.
pub(crate) enum Target {
    Dict,
    Class(Py<PyAny>),
    /// No object: a field takes no records.
    Nothing,
}

impl ClassField {
    /// Whether the field may have these values: records where its annotation names a class or `dict`, and no
    /// others where it names a class.
    pub(crate) fn takes(&self, are_records: bool) -> bool {
        match self.records {
            Target::Class(_) => are_records,
            Target::Dict => true,
            Target::Nothing => !are_records,
        }
    }
}

impl RecordClass {
    /// The parts of a dataclass.
    ///
    /// # Errors
    /// `TypeError` for another object.
    pub(crate) fn of<'py>(class: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        static KNOWN: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
        let py = class.py();
        let known = KNOWN.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
        if let Some(found) = known.get_item(class)? {
            return Ok(found.cast_into::<Self>()?);
        }
        let made = Bound::new(py, Self::new(class)?)?;
        known.set_item(class, &made)?;
        Ok(made)
    }

    /// The class itself, if it is a dataclass.
    ///
    /// # Errors
    /// `TypeError` for another object.
    pub(crate) fn checked(class: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        Self::of(class)?;
        Ok(class.clone().unbind())
    }

    fn new(class: &Bound<'_, PyAny>) -> PyResult<Self> {
        static FIELDS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = class.py();
        let declared = FIELDS
            .import(py, "nervure._records", "fields_of")?
            .call1((class,))?;
        let mut fields = Vec::new();
        for field in declared.try_iter()? {
            let (name, is_required, records, annotation) =
                field?
                    .extract::<(Bound<'_, PyString>, bool, Option<Bound<'_, PyAny>>, String)>()?;
            let records = match records {
                None => Target::Nothing,
                Some(records) if records.is(py.get_type::<PyDict>()) => Target::Dict,
                Some(records) => Target::Class(records.unbind()),
            };
            fields.push(ClassField {
                name: name.unbind(),
                is_required,
                records,
                annotation,
            });
        }
        Ok(Self {
            class: class.clone().cast_into::<PyType>()?.unbind(),
            fields,
        })
    }

    pub(crate) fn fields(&self) -> &[ClassField] {
        &self.fields
    }

    /// The error of a record that the class cannot take.
    pub(crate) fn misfit(&self, py: Python<'_>, field: &ClassField, found: &str) -> PyErr {
        let (name, annotation) = (field.name.bind(py), &field.annotation);
        let class = self.class.bind(py).name();
        let class = class.map_or_else(|_| "?".to_owned(), |class| class.to_string());
        let text = format!("`{class}.{name}`: expected `{annotation}`, found {found}");
        exception(py, "SampleError", text)
    }

    /// An object with these values of its fields.
    pub(crate) fn make<'py>(&self, values: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        self.class.bind(values.py()).call((), Some(values))
    }
}

/// The objects that the records of an input become: of the dataclass of its type, if that is a standard one.
pub(crate) fn of_input(py: Python<'_>, handle: &Handle, input: &str) -> PyResult<Target> {
    static KNOWN: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let Some(name) = handle.type_of(input) else {
        return Ok(Target::Dict);
    };
    let known = KNOWN.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    let class = match known.get_item(name)? {
        Some(class) => class,
        None => {
            let class = match is_standard_record(name) {
                true => py
                    .import("nervure._records")?
                    .getattr("standard")?
                    .call1((name,))?,
                false => py.None().into_bound(py),
            };
            known.set_item(name, &class)?;
            class
        }
    };
    Ok(match class.is_none() {
        true => Target::Dict,
        false => Target::Class(class.unbind()),
    })
}

/// Loads the classes of a node's inputs, so that the first samples do not wait for them.
pub(crate) fn load(py: Python<'_>, handle: &Handle) -> PyResult<()> {
    for input in handle.inputs() {
        if let Target::Class(class) = of_input(py, handle, input)? {
            RecordClass::of(class.bind(py))?;
        }
    }
    Ok(())
}
