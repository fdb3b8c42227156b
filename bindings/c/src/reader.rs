//! Reads records into structs of the program. A schema is compared with a struct once, which gives a [`Reader`].

use nervure_node::message::record::Elements;
use nervure_node::message::record::{
    ColumnKind, Items, RecordColumns, RecordValue, RecordView, number,
};
use nervure_node::message::{DType, Scalar, Tensor, TensorLayout};

use crate::dtype::Dtype;
use crate::layout::{LayoutKind, Shape};
use crate::misread::Misread;

/// How a column is read into a type of the program.
#[derive(Debug)]
pub(crate) enum Reader {
    Number {
        column: usize,
        shape: Shape,
    },
    Text {
        column: usize,
        shape: Shape,
    },
    Record {
        column: usize,
        shape: Shape,
        fields: Box<[Field]>,
    },
    Items {
        column: usize,
        shape: Shape,
        /// `None` if all items are null.
        item: Option<Box<Self>>,
    },
    Optional {
        shape: Shape,
        /// The column, and how its values are read; `None` if the record has no such values.
        value: Option<(usize, Box<Self>)>,
    },
}

#[derive(Debug)]
pub(crate) struct Field {
    name: &'static str,
    offset: usize,
    reader: Reader,
}

impl Reader {
    /// Compares a column with a type.
    pub(crate) fn new(
        columns: &RecordColumns,
        column: usize,
        shape: Shape,
    ) -> Result<Self, Misread> {
        let kind = columns.column(column).kind();
        let wrong = || Misread::new(format!("`{}`", shape.name()), kind.to_string());
        match shape.kind() {
            LayoutKind::Number if is_number(kind, shape) => Ok(Self::Number { column, shape }),
            LayoutKind::Text if *kind == ColumnKind::Text => Ok(Self::Text { column, shape }),
            LayoutKind::Record if *kind == ColumnKind::Record => {
                let fields = shape.fields().iter().map(|field| {
                    let (name, shape) = (field.name(), field.shape());
                    let reader = match columns.field(column, name) {
                        Some(found) => Self::new(columns, found, shape),
                        None if shape.kind() == LayoutKind::Optional => {
                            Ok(Self::Optional { shape, value: None })
                        }
                        None => Err(Misread::new(format!("`{}`", shape.name()), "no such field")),
                    };
                    let reader = reader.map_err(|misread| misread.in_field(name))?;
                    Ok(Field {
                        name,
                        offset: field.offset,
                        reader,
                    })
                });
                let fields = fields.collect::<Result<_, Misread>>()?;
                Ok(Self::Record {
                    column,
                    shape,
                    fields,
                })
            }
            LayoutKind::Array | LayoutKind::List => Self::items(columns, column, shape),
            LayoutKind::Optional => {
                let value = match kind {
                    ColumnKind::Null => None,
                    _ => Some((column, Box::new(Self::new(columns, column, shape.item())?))),
                };
                Ok(Self::Optional { shape, value })
            }
            LayoutKind::Number | LayoutKind::Text | LayoutKind::Record => Err(wrong()),
        }
    }

    /// Compares a column with a list or array.
    fn items(columns: &RecordColumns, column: usize, shape: Shape) -> Result<Self, Misread> {
        let kind = columns.column(column).kind();
        let item = match kind {
            ColumnKind::List => match columns.column(column + 1).kind() {
                ColumnKind::Null => None,
                _ => {
                    let item = Self::new(columns, column + 1, shape.item());
                    Some(item.map_err(Misread::in_items)?)
                }
            },
            ColumnKind::Tensor { dtype, .. } if takes(shape.item(), dtype) => None,
            ColumnKind::Bytes if takes(shape.item(), &DType::U8) => None,
            _ => {
                return Err(Misread::new(
                    format!("`{}`", shape.name()),
                    kind.to_string(),
                ));
            }
        };
        Ok(Self::Items {
            column,
            shape,
            item: item.map(Box::new),
        })
    }
}

fn is_number(kind: &ColumnKind, shape: Shape) -> bool {
    match kind {
        ColumnKind::Bool => shape.dtype() == DType::Bool,
        ColumnKind::Number(found) => takes(shape, found),
        _ => false,
    }
}

/// Whether a number of the program may have numbers of this type: integers, or also floating-point numbers.
fn takes(shape: Shape, found: &DType) -> bool {
    let is_float =
        |dtype: &DType| matches!(dtype, DType::F16 | DType::Bf16 | DType::F32 | DType::F64);
    let is_other = matches!(found, DType::C64 | DType::C128 | DType::Custom { .. });
    let expected = shape.dtype();
    if shape.kind() != LayoutKind::Number || is_other {
        return false;
    }
    match expected == DType::Bool || *found == DType::Bool {
        true => expected == *found,
        false => is_float(&expected) || !is_float(found),
    }
}

/// A record that is read, once.
pub(crate) struct Reading<'a> {
    view: RecordView<'a>,
    /// The number of values, items and bytes that may still be read: lists of a hostile record may overlap.
    left: usize,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(view: RecordView<'a>) -> Self {
        Self {
            view,
            left: view.weight(),
        }
    }

    /// Reads the value of a row.
    ///
    /// # Safety
    /// `place` points to a value of the reader's type.
    pub(crate) unsafe fn read(
        &mut self,
        reader: &Reader,
        row: usize,
        place: *mut u8,
    ) -> Result<(), Misread> {
        // SAFETY: the caller's promise, and places of fields and items are within that of the whole.
        unsafe {
            match reader {
                Reader::Number { column, shape } => match self.view.scalar(*column, row) {
                    Some(scalar) => store(scalar, *shape, place),
                    None => Err(null(*shape)),
                },
                Reader::Text { column, shape } => match self.view.value(*column, row)? {
                    RecordValue::Text(text) => self.text(text, *shape, place),
                    _ => Err(null(*shape)),
                },
                Reader::Record {
                    column,
                    shape,
                    fields,
                } => {
                    if self.view.is_null(*column, row) {
                        return Err(null(*shape));
                    }
                    fields.iter().try_for_each(|field| {
                        let read = self.read(&field.reader, row, place.add(field.offset));
                        read.map_err(|misread| misread.in_field(field.name))
                    })
                }
                Reader::Items {
                    column,
                    shape,
                    item,
                } => {
                    let value = self.view.value(*column, row)?;
                    self.items(value, *shape, item.as_deref(), place)
                }
                Reader::Optional { shape, value } => {
                    let found = value
                        .as_ref()
                        .filter(|(column, _)| !self.view.is_null(*column, row));
                    let memory = shape.resize(place, found.is_some().into());
                    match found {
                        None => Ok(()),
                        Some(_) if memory.is_null() => Err(Misread::memory()),
                        Some((_, reader)) => self.read(reader, row, memory),
                    }
                }
            }
        }
    }

    /// # Safety
    /// As [`Self::read`].
    unsafe fn text(&mut self, text: &[u8], shape: Shape, place: *mut u8) -> Result<(), Misread> {
        self.take(text.len())?;
        // SAFETY: the place is that of a text, and has room for as many bytes afterwards.
        let copied = unsafe {
            let memory = shape.resize(place, text.len());
            if text.is_empty() {
                return Ok(());
            }
            if memory.is_null() {
                return Err(Misread::memory());
            }
            std::ptr::copy_nonoverlapping(text.as_ptr(), memory, text.len());
            std::slice::from_raw_parts(memory, text.len())
        };
        match std::str::from_utf8(copied) {
            Ok(_) => Ok(()),
            Err(error) => Err(Misread::new(
                "`string`",
                format!("a text that is not UTF-8: {error}"),
            )),
        }
    }

    /// # Safety
    /// As [`Self::read`].
    unsafe fn items(
        &mut self,
        value: RecordValue<'_>,
        shape: Shape,
        item: Option<&Reader>,
        place: *mut u8,
    ) -> Result<(), Misread> {
        let layout;
        let bytes;
        match (value, item) {
            (RecordValue::List(found), Some(item)) => {
                // SAFETY: the caller's promise.
                return unsafe { self.each(found, shape, item, place) };
            }
            (RecordValue::List(found), None) if found.rows.is_empty() => {
                layout = TensorLayout::contiguous(DType::U8, &[0]);
                bytes = &[][..];
            }
            (RecordValue::List(_), None) => {
                return Err(Misread::new(
                    format!("`{}`", shape.name()),
                    "a list of nulls",
                ));
            }
            (RecordValue::Bytes(found), _) => {
                layout = TensorLayout::contiguous(DType::U8, &[found.len()]);
                bytes = found;
            }
            (RecordValue::Tensor(found, elements), _) => {
                layout = Ok(found);
                bytes = elements;
            }
            _ => return Err(null(shape)),
        }
        let layout = layout.expect("the length of bytes in memory fits");
        // SAFETY: the caller's promise.
        unsafe { self.elements(&layout, bytes, shape, place) }
    }

    /// Reads the items of a list.
    ///
    /// # Safety
    /// As [`Self::read`].
    unsafe fn each(
        &mut self,
        items: Items,
        shape: Shape,
        reader: &Reader,
        place: *mut u8,
    ) -> Result<(), Misread> {
        // SAFETY: the caller's promise.
        let first = unsafe { self.room(items.rows.len(), shape, place)? };
        let size = shape.item().0.size;
        for (index, row) in items.rows.enumerate() {
            // SAFETY: there is room for as many items.
            let read = unsafe { self.read(reader, row, first.add(index * size)) };
            read.map_err(|misread| misread.in_item(index))?;
        }
        Ok(())
    }

    /// Reads the elements of a tensor in C order.
    ///
    /// # Safety
    /// As [`Self::read`].
    unsafe fn elements(
        &mut self,
        layout: &TensorLayout,
        bytes: &[u8],
        shape: Shape,
        place: *mut u8,
    ) -> Result<(), Misread> {
        let count = layout.len();
        // SAFETY: the caller's promise.
        let first = unsafe { self.room(count, shape, place)? };
        let ordered;
        let bytes = match layout.is_contiguous() {
            true => bytes,
            false => {
                ordered = in_c_order(layout, bytes)?;
                &ordered
            }
        };
        let (dtype, item) = (layout.dtype(), shape.item());
        if *dtype == item.dtype() && *dtype != DType::Bool {
            // SAFETY: there is room for as many numbers, of this type.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), first, count * item.0.size) };
            return Ok(());
        }
        for index in 0..count {
            let scalar = number(dtype, bytes, index).ok_or_else(|| null(item))?;
            // SAFETY: there is room for as many numbers.
            let stored = unsafe { store(scalar, item, first.add(index * item.0.size)) };
            stored.map_err(|misread| misread.in_item(index))?;
        }
        Ok(())
    }

    /// Makes room for items, and returns the first.
    ///
    /// # Safety
    /// As [`Self::read`].
    unsafe fn room(
        &mut self,
        count: usize,
        shape: Shape,
        place: *mut u8,
    ) -> Result<*mut u8, Misread> {
        self.take(count)?;
        if shape.kind() == LayoutKind::Array {
            let expected = shape.0.count;
            return match count == expected {
                true => Ok(place),
                false => Err(Misread::new(
                    format!("{expected} items (`{}`)", shape.name()),
                    count.to_string(),
                )),
            };
        }
        // SAFETY: the caller's promise.
        match unsafe { shape.resize(place, count) } {
            memory if memory.is_null() && count > 0 => Err(Misread::memory()),
            memory => Ok(memory),
        }
    }

    fn take(&mut self, count: usize) -> Result<(), Misread> {
        let overlap = || Misread::new("values that do not overlap", "a damaged sample");
        self.left = self.left.checked_sub(count).ok_or_else(overlap)?;
        Ok(())
    }
}

fn null(shape: Shape) -> Misread {
    Misread::new(format!("`{}`", shape.name()), "null")
}

fn in_c_order(layout: &TensorLayout, bytes: &[u8]) -> Result<Vec<u8>, Misread> {
    let axes: Vec<usize> = (0..layout.shape().len()).collect();
    let mut ordered = vec![0; layout.len() * layout.dtype().item_bytes()];
    let tensor = Tensor::from_bytes(layout.clone(), bytes);
    let tensor = tensor.map_err(|error| Misread::new("a tensor", error.to_string()))?;
    tensor.write_elements(&axes, &mut ordered);
    Ok(ordered)
}

/// Stores a number as the type of the program.
///
/// # Safety
/// `place` points to a number of this type.
pub(crate) unsafe fn store(scalar: Scalar, shape: Shape, place: *mut u8) -> Result<(), Misread> {
    let wrong = |found: &dyn std::fmt::Display| {
        Misread::new(format!("`{}`", shape.name()), found.to_string())
    };
    macro_rules! put {
        ($value:expr) => {{
            // SAFETY: the caller's promise.
            unsafe { std::ptr::write_unaligned(place.cast(), $value) };
            Ok(())
        }};
    }
    macro_rules! integer {
        ($number:ty) => {
            match scalar {
                Scalar::Integer(value) => {
                    put!(<$number>::try_from(value).map_err(|_| wrong(&value))?)
                }
                Scalar::Unsigned(value) => {
                    put!(<$number>::try_from(value).map_err(|_| wrong(&value))?)
                }
                Scalar::Float(_) => Err(wrong(&"a floating-point number")),
                Scalar::Bool(_) => Err(wrong(&"a truth value")),
            }
        };
    }
    let float = || match scalar {
        Scalar::Float(value) => Ok(value),
        Scalar::Integer(value) => Ok(value as f64),
        Scalar::Unsigned(value) => Ok(value as f64),
        Scalar::Bool(_) => Err(wrong(&"a truth value")),
    };
    match shape.0.dtype {
        Dtype::F64 => put!(float()?),
        Dtype::F32 => put!(float()? as f32),
        Dtype::I8 => integer!(i8),
        Dtype::I16 => integer!(i16),
        Dtype::I32 => integer!(i32),
        Dtype::I64 => integer!(i64),
        Dtype::U8 => integer!(u8),
        Dtype::U16 => integer!(u16),
        Dtype::U32 => integer!(u32),
        Dtype::U64 => integer!(u64),
        Dtype::Bool => match scalar {
            Scalar::Bool(value) => put!(value),
            _ => Err(wrong(&"a number")),
        },
        Dtype::F16 | Dtype::Bf16 | Dtype::C64 | Dtype::C128 | Dtype::Custom => {
            Err(wrong(&"a type of the program that records do not have"))
        }
    }
}
