//! Columns: values of one type, collected one by one.

use smallvec::SmallVec;

use crate::dtype::DType;
use crate::tensor::TensorLayout;

/// Values of one type, including nulls. `T` holds the elements of a tensor.
///
/// Integers become floats if the column has floats, and unsigned if it has integers above
/// `i64::MAX`.
#[derive(Debug)]
pub struct Column<T> {
    pub(super) length: usize,
    /// Indices of the nulls, ascending.
    pub(super) nulls: Vec<usize>,
    pub(super) values: Values<T>,
}

#[derive(Debug)]
pub(super) enum Values<T> {
    /// Only nulls so far.
    Unknown,
    Bool(Vec<bool>),
    Integer(Vec<i64>),
    Unsigned(Vec<u64>),
    Float(Vec<f64>),
    Text(Variable),
    Bytes(Variable),
    List {
        ends: Vec<i64>,
        items: Box<Column<T>>,
    },
    Fields(FieldColumns<T>),
    Tensors(Tensors<T>),
}

/// Concatenated texts or bytes.
#[derive(Debug)]
pub(super) struct Variable {
    pub(super) ends: Vec<i64>,
    pub(super) bytes: Vec<u8>,
}

/// The columns of a struct.
#[derive(Debug)]
pub struct FieldColumns<T> {
    pub(super) columns: Vec<(String, Column<T>)>,
    rows: usize,
    /// The column after the last one used: rows usually have their fields in the same order.
    next: usize,
}

/// Tensors of one element type and one number of dimensions.
#[derive(Debug)]
pub(super) struct Tensors<T> {
    pub(super) dtype: DType,
    /// The axes in memory order, slowest first.
    pub(super) axes: SmallVec<[usize; 6]>,
    /// End of each tensor, in elements.
    pub(super) ends: Vec<i32>,
    /// In memory order.
    pub(super) shapes: Vec<i32>,
    /// The elements and their size in bytes.
    pub(super) tensors: Vec<(T, usize)>,
}

/// The type of a value, as far as it must be the same within a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only nulls.
    Null,
    /// A truth value.
    Bool,
    /// An integer.
    Integer,
    /// A floating-point number.
    Float,
    /// UTF-8 text.
    Text,
    /// Bytes.
    Bytes,
    /// A list.
    List,
    /// Named fields.
    Fields,
    /// A tensor with this element type and number of dimensions.
    Tensor(DType, usize),
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Null => "nothing",
            Self::Bool => "a truth value",
            Self::Integer | Self::Float => "a number",
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::List => "a list",
            Self::Fields => "a map",
            Self::Tensor(dtype, dimensions) => {
                return write!(f, "a tensor of {dtype} with {dimensions} dimensions");
            }
        })
    }
}

/// Why a value cannot be added to a column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    /// The value is of another type than the ones before.
    #[error(
        "the elements of a list, and what maps of a list have under one key, must be of one type: {found} stands beside {first}"
    )]
    Mixed {
        /// Type of the values before.
        first: Kind,
        /// Type of the value.
        found: Kind,
    },
    /// The integers do not fit a common 64-bit type.
    #[error("a list cannot mix negative integers and integers above {}", i64::MAX)]
    Integers,
    /// The struct has the field already.
    #[error("the field {name:?} is given twice")]
    Repeated {
        /// Name of the field.
        name: String,
    },
    /// Arrow counts the elements and lengths of tensors in 31 bits.
    #[error(
        "the tensors have {elements} elements together, the limit is {}: send larger tensors separately",
        i32::MAX
    )]
    Elements {
        /// Number of elements, or the length of a dimension if that alone is too large.
        elements: usize,
    },
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Self {
            length: 0,
            nulls: Vec::new(),
            values: Values::Unknown,
        }
    }
}

impl<T> Column<T> {
    /// Number of values.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The type of the values.
    pub fn kind(&self) -> Kind {
        self.values.kind()
    }

    /// The items of all lists in the column; an empty column if it has no lists.
    pub(super) fn into_items(self) -> Self {
        if let Values::List { items, .. } = self.values {
            *items
        } else {
            Self::default()
        }
    }

    /// The only text of the column; `None` if it has other values.
    pub(super) fn into_text(self) -> Option<String> {
        let Values::Text(texts) = self.values else {
            return None;
        };
        String::from_utf8(texts.bytes)
            .ok()
            .filter(|_| self.length == 1)
    }

    /// Appends a null.
    pub fn push_null(&mut self) {
        self.values.push_default();
        self.nulls.push(self.length);
        self.length += 1;
    }

    /// Appends a truth value.
    ///
    /// # Errors
    /// If the values before are of another type.
    pub fn push_bool(&mut self, value: bool) -> Result<(), ColumnError> {
        match self.values_of(Kind::Bool, || Values::Bool(Vec::new()))? {
            Values::Bool(values) => values.push(value),
            values => return Err(values.mixed(Kind::Bool)),
        }
        self.length += 1;
        Ok(())
    }

    /// Appends an integer.
    ///
    /// # Errors
    /// If the values before are not numbers, or do not fit a common 64-bit type with it.
    pub fn push_integer(&mut self, value: i64) -> Result<(), ColumnError> {
        // Fast path: long lists are mostly of numbers.
        if let Values::Integer(values) = &mut self.values {
            values.push(value);
            self.length += 1;
            return Ok(());
        }
        match self.values_of(Kind::Integer, || Values::Integer(Vec::new()))? {
            Values::Integer(values) => values.push(value),
            Values::Unsigned(values) => {
                values.push(value.try_into().map_err(|_| ColumnError::Integers)?)
            }
            Values::Float(values) => values.push(value as f64),
            values => return Err(values.mixed(Kind::Integer)),
        }
        self.length += 1;
        Ok(())
    }

    /// Appends an integer that may be above `i64::MAX`.
    ///
    /// # Errors
    /// If the values before are not numbers, or do not fit a common 64-bit type with it.
    pub fn push_unsigned(&mut self, value: u64) -> Result<(), ColumnError> {
        if let Ok(value) = i64::try_from(value) {
            return self.push_integer(value);
        }
        let values = self.values_of(Kind::Integer, || Values::Unsigned(Vec::new()))?;
        if let Values::Integer(integers) = values {
            let unsigned = integers
                .iter()
                .map(|&value| u64::try_from(value))
                .collect::<Result<_, _>>();
            *values = Values::Unsigned(unsigned.map_err(|_| ColumnError::Integers)?);
        }
        match values {
            Values::Unsigned(values) => values.push(value),
            Values::Float(values) => values.push(value as f64),
            values => return Err(values.mixed(Kind::Integer)),
        }
        self.length += 1;
        Ok(())
    }

    /// Appends a floating-point number.
    ///
    /// # Errors
    /// If the values before are not numbers.
    pub fn push_float(&mut self, value: f64) -> Result<(), ColumnError> {
        if let Values::Float(values) = &mut self.values {
            values.push(value);
            self.length += 1;
            return Ok(());
        }
        let values = self.values_of(Kind::Float, || Values::Float(Vec::new()))?;
        match values {
            Values::Integer(integers) => {
                *values = Values::Float(integers.iter().map(|&value| value as f64).collect());
            }
            Values::Unsigned(integers) => {
                *values = Values::Float(integers.iter().map(|&value| value as f64).collect());
            }
            _ => {}
        }
        match values {
            Values::Float(values) => values.push(value),
            values => return Err(values.mixed(Kind::Float)),
        }
        self.length += 1;
        Ok(())
    }

    /// Appends text.
    ///
    /// # Errors
    /// If the values before are of another type.
    pub fn push_text(&mut self, value: &str) -> Result<(), ColumnError> {
        match self.values_of(Kind::Text, || Values::Text(Variable::default()))? {
            Values::Text(values) => values.push(value.as_bytes()),
            values => return Err(values.mixed(Kind::Text)),
        }
        self.length += 1;
        Ok(())
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// If the values before are of another type.
    pub fn push_bytes(&mut self, value: &[u8]) -> Result<(), ColumnError> {
        match self.values_of(Kind::Bytes, || Values::Bytes(Variable::default()))? {
            Values::Bytes(values) => values.push(value),
            values => return Err(values.mixed(Kind::Bytes)),
        }
        self.length += 1;
        Ok(())
    }

    /// Begins a list and returns the column for its items. [`Self::end_list`] ends the list.
    ///
    /// # Errors
    /// If the values before are of another type.
    pub fn begin_list(&mut self) -> Result<&mut Self, ColumnError> {
        match self.values_of(Kind::List, || Values::List {
            ends: vec![0],
            items: Box::default(),
        })? {
            Values::List { items, .. } => Ok(items),
            values => Err(values.mixed(Kind::List)),
        }
    }

    /// Ends the innermost open list.
    ///
    /// # Panics
    /// If there is no open list.
    pub fn end_list(&mut self) {
        let Values::List { ends, items } = &mut self.values else {
            panic!("there is no open list")
        };
        ends.push(items.length as i64);
        self.length += 1;
    }

    /// Begins a struct and returns the columns for its fields. [`Self::end_fields`] ends the
    /// struct.
    ///
    /// # Errors
    /// If the values before are of another type.
    pub fn begin_fields(&mut self) -> Result<&mut FieldColumns<T>, ColumnError> {
        let no_fields = || {
            Values::Fields(FieldColumns {
                columns: Vec::new(),
                rows: 0,
                next: 0,
            })
        };
        match self.values_of(Kind::Fields, no_fields)? {
            Values::Fields(fields) => Ok(fields),
            values => Err(values.mixed(Kind::Fields)),
        }
    }

    /// Ends the open struct. Fields without a value become null.
    ///
    /// # Panics
    /// If there is no open struct.
    pub fn end_fields(&mut self) {
        let Values::Fields(fields) = &mut self.values else {
            panic!("there is no open struct")
        };
        fields.end_row();
        self.length += 1;
    }

    /// Appends a tensor with elements placed as in `layout`. The first tensor of a column
    /// determines the memory order of the axes, in which all later ones are written.
    ///
    /// # Errors
    /// If the values before are not tensors of the same element type and number of dimensions, or
    /// the tensors have too many elements in total.
    pub fn push_tensor(&mut self, layout: &TensorLayout, elements: T) -> Result<(), ColumnError> {
        let kind = Kind::Tensor(layout.dtype().clone(), layout.shape().len());
        match self.values_of(kind.clone(), || Values::Tensors(Tensors::new(layout)))? {
            Values::Tensors(tensors) => tensors.push(layout, elements)?,
            values => return Err(values.mixed(kind)),
        }
        self.length += 1;
        Ok(())
    }

    /// The values, if they are of the given kind or can become so.
    fn values_of(
        &mut self,
        kind: Kind,
        empty: impl FnOnce() -> Values<T>,
    ) -> Result<&mut Values<T>, ColumnError> {
        if let Values::Unknown = self.values {
            self.values = empty();
            (0..self.length).for_each(|_| self.values.push_default());
            return Ok(&mut self.values);
        }
        let first = self.values.kind();
        let is_number = |kind: &Kind| matches!(kind, Kind::Integer | Kind::Float);
        if first == kind || (is_number(&first) && is_number(&kind)) {
            return Ok(&mut self.values);
        }
        Err(ColumnError::Mixed { first, found: kind })
    }
}

impl<T> Values<T> {
    fn kind(&self) -> Kind {
        match self {
            Self::Unknown => Kind::Null,
            Self::Bool(_) => Kind::Bool,
            Self::Integer(_) | Self::Unsigned(_) => Kind::Integer,
            Self::Float(_) => Kind::Float,
            Self::Text(_) => Kind::Text,
            Self::Bytes(_) => Kind::Bytes,
            Self::List { .. } => Kind::List,
            Self::Fields(_) => Kind::Fields,
            Self::Tensors(tensors) => Kind::Tensor(tensors.dtype.clone(), tensors.axes.len()),
        }
    }

    fn mixed(&self, found: Kind) -> ColumnError {
        ColumnError::Mixed {
            first: self.kind(),
            found,
        }
    }

    /// Appends the value that takes the place of a null.
    fn push_default(&mut self) {
        match self {
            Self::Unknown => {}
            Self::Bool(values) => values.push(false),
            Self::Integer(values) => values.push(0),
            Self::Unsigned(values) => values.push(0),
            Self::Float(values) => values.push(0.0),
            Self::Text(values) | Self::Bytes(values) => values.push(&[]),
            Self::List { ends, .. } => ends.push(ends.last().copied().unwrap_or(0)),
            Self::Fields(fields) => fields.end_row(),
            Self::Tensors(tensors) => tensors.push_default(),
        }
    }
}

impl Default for Variable {
    fn default() -> Self {
        Self {
            ends: vec![0],
            bytes: Vec::new(),
        }
    }
}

impl Variable {
    fn push(&mut self, added: &[u8]) {
        self.bytes.extend_from_slice(added);
        self.ends.push(self.bytes.len() as i64);
    }
}

impl<T> FieldColumns<T> {
    /// The column of a field in the open struct.
    ///
    /// # Errors
    /// If the field has a value already.
    pub fn field(&mut self, name: &str) -> Result<&mut Column<T>, ColumnError> {
        let is_next = self
            .columns
            .get(self.next)
            .is_some_and(|(known, _)| known == name);
        let known = if is_next {
            Some(self.next)
        } else {
            self.columns.iter().position(|(known, _)| known == name)
        };
        let index = known.unwrap_or_else(|| {
            let mut column = Column::default();
            (0..self.rows).for_each(|_| column.push_null());
            self.columns.push((name.to_owned(), column));
            self.columns.len() - 1
        });
        self.next = index + 1;
        let column = &mut self.columns[index].1;
        if column.length > self.rows {
            return Err(ColumnError::Repeated {
                name: name.to_owned(),
            });
        }
        Ok(column)
    }

    fn end_row(&mut self) {
        self.rows += 1;
        self.next = 0;
        for (_, column) in self
            .columns
            .iter_mut()
            .filter(|(_, column)| column.length < self.rows)
        {
            column.push_null();
        }
    }
}

impl<T> Tensors<T> {
    fn new(layout: &TensorLayout) -> Self {
        let axes = layout.axes_in_memory();
        Self {
            dtype: layout.dtype().clone(),
            axes,
            ends: vec![0],
            shapes: Vec::new(),
            tensors: Vec::new(),
        }
    }

    fn push(&mut self, layout: &TensorLayout, elements: T) -> Result<(), ColumnError> {
        let narrow = |number: usize| {
            i32::try_from(number).map_err(|_| ColumnError::Elements { elements: number })
        };
        let before = self.ends.last().copied().unwrap_or(0) as usize;
        let end = narrow(before.saturating_add(layout.len()))?;
        let shape: SmallVec<[i32; 6]> = self
            .axes
            .iter()
            .map(|&axis| narrow(layout.shape()[axis]))
            .collect::<Result<_, _>>()?;
        self.ends.push(end);
        self.shapes.extend_from_slice(&shape);
        self.tensors
            .push((elements, layout.len() * layout.dtype().item_bytes()));
        Ok(())
    }

    fn push_default(&mut self) {
        self.ends.push(self.ends.last().copied().unwrap_or(0));
        self.shapes.resize(self.shapes.len() + self.axes.len(), 0);
    }
}
