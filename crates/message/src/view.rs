//! Received values.

use arrow_buffer::{BooleanBuffer, Buffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};
use bytes::Bytes;

use crate::array::{self, ArrayError};
use crate::dtype::{DType, Element};
use crate::layout::{Layout, Scalar};
use crate::schema::Schema;
use crate::tensor::TensorView;
use crate::view_error::ViewError;

/// A received value: a decoded layout over a payload that the sender may still alter. Altering the
/// payload changes the numbers in views of it, but never breaks memory safety.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    layout: &'a Layout,
    payload: &'a [u8],
}

/// Wraps a payload in an Arrow buffer that keeps `owner` alive. Does not copy.
pub fn payload_buffer<O: AsRef<[u8]> + Send + 'static>(owner: O) -> Buffer {
    Buffer::from(Bytes::from_owner(owner))
}

impl<'a> View<'a> {
    /// Checks that the payload is long enough for the layout.
    ///
    /// # Errors
    /// If the payload is too short for its layout.
    pub fn new(layout: &'a Layout, payload: &'a [u8]) -> Result<Self, ViewError> {
        match layout {
            Layout::Tensor(tensor) if tensor.payload_bytes() > payload.len() => {
                Err(ViewError::PayloadBytes {
                    described: tensor.payload_bytes(),
                    found: payload.len(),
                })
            }
            _ => Ok(Self { layout, payload }),
        }
    }

    /// The layout of the payload.
    pub fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// The bytes of the payload, of any kind.
    pub fn bytes(&self) -> &'a [u8] {
        self.payload
    }

    /// The text. Copies it, because the sender could alter the payload after the check for UTF-8.
    ///
    /// # Errors
    /// If the sample is not text, or not UTF-8.
    pub fn text(&self) -> Result<String, ViewError> {
        match self.layout {
            Layout::Text => Ok(String::from_utf8(std::hint::black_box(
                self.payload.to_vec(),
            ))?),
            _ => Err(self.kind_error("text")),
        }
    }

    /// The number or truth value.
    ///
    /// # Errors
    /// If the sample is not a scalar.
    pub fn scalar(&self) -> Result<Scalar, ViewError> {
        match self.layout {
            Layout::Scalar(scalar) => Ok(*scalar),
            _ => Err(self.kind_error("a scalar")),
        }
    }

    /// The tensor, in place.
    ///
    /// # Errors
    /// If the sample is not a tensor.
    pub fn tensor(&self) -> Result<TensorView<'a>, ViewError> {
        match self.layout {
            Layout::Tensor(layout) => {
                TensorView::new(layout, self.payload).ok_or(ViewError::PayloadBytes {
                    described: layout.payload_bytes(),
                    found: self.payload.len(),
                })
            }
            _ => Err(self.kind_error("a tensor")),
        }
    }

    /// The elements of a tensor in C order, in place.
    ///
    /// # Errors
    /// If the sample is not a tensor of `T` in C order.
    pub fn as_slice<T: Element + bytemuck::AnyBitPattern>(&self) -> Result<&'a [T], ViewError> {
        self.tensor()?.as_slice()
    }

    /// Converts any kind of value to an Arrow array. A tensor becomes its elements in C order,
    /// bytes an array of `UInt8`, text and scalars an array of length 1. Element types that Arrow
    /// lacks become `FixedSizeBinary`. The array keeps `payload` alive, which must be the buffer
    /// over [`Self::bytes`] ([`payload_buffer`]).
    ///
    /// # Errors
    /// If the array is not valid, its schema is not given, or a tensor is not in C order.
    pub fn array(&self, schema: Option<&Schema>, payload: &Buffer) -> Result<ArrayData, ViewError> {
        if payload.len() != self.payload.len() {
            return Err(ViewError::PayloadBytes {
                described: self.payload.len(),
                found: payload.len(),
            });
        }
        match self.layout {
            Layout::Bytes => plain_array(DataType::UInt8, self.payload.len(), payload.clone()),
            Layout::Text => {
                let text = self.text()?;
                let (data_type, offsets) = match i32::try_from(text.len()) {
                    Ok(length) => (DataType::Utf8, Buffer::from_vec(vec![0, length])),
                    Err(_) => (
                        DataType::LargeUtf8,
                        Buffer::from_vec(vec![0, text.len() as i64]),
                    ),
                };
                let array = ArrayData::builder(data_type).len(1).add_buffer(offsets);
                Ok(array
                    .add_buffer(Buffer::from_vec(text.into_bytes()))
                    .build()
                    .map_err(ArrayError::from)?)
            }
            Layout::Scalar(Scalar::Bool(value)) => {
                let bits = BooleanBuffer::from(vec![*value]).into_inner();
                plain_array(DataType::Boolean, 1, bits)
            }
            Layout::Scalar(Scalar::Integer(value)) => {
                plain_array(DataType::Int64, 1, Buffer::from_vec(vec![*value]))
            }
            Layout::Scalar(Scalar::Unsigned(value)) => {
                plain_array(DataType::UInt64, 1, Buffer::from_vec(vec![*value]))
            }
            Layout::Scalar(Scalar::Float(value)) => {
                plain_array(DataType::Float64, 1, Buffer::from_vec(vec![*value]))
            }
            Layout::Tensor(_) => self.tensor_array(payload),
            Layout::Array(layout) => {
                let schema = schema.ok_or(ViewError::SchemaMissing)?;
                Ok(array::read(layout, schema, payload)?)
            }
        }
    }

    fn tensor_array(&self, payload: &Buffer) -> Result<ArrayData, ViewError> {
        let tensor = self.tensor()?;
        self.contiguous(&tensor)?;
        if *tensor.dtype() == DType::Bool {
            let bits =
                BooleanBuffer::collect_bool(tensor.len(), |index| tensor.bytes()[index] != 0);
            return plain_array(DataType::Boolean, tensor.len(), bits.into_inner());
        }
        let values = payload.slice_with_length(0, tensor.payload_bytes());
        plain_array(arrow_type(tensor.dtype())?, tensor.len(), values)
    }

    fn contiguous(&self, tensor: &TensorView<'_>) -> Result<(), ViewError> {
        if tensor.is_contiguous() {
            return Ok(());
        }
        Err(ViewError::Strides {
            shape: tensor.shape().to_vec(),
            strides: tensor.strides().to_vec(),
        })
    }

    fn kind_error(&self, expected: &'static str) -> ViewError {
        ViewError::Kind {
            expected,
            found: self.layout.kind_name(),
        }
    }
}

/// An array without nulls in one buffer. Copies the buffer if it is not aligned for the type.
fn plain_array(data_type: DataType, length: usize, values: Buffer) -> Result<ArrayData, ViewError> {
    let array = ArrayData::builder(data_type)
        .len(length)
        .add_buffer(values)
        .align_buffers(true);
    Ok(array.build().map_err(ArrayError::from)?)
}

fn arrow_type(dtype: &DType) -> Result<DataType, ArrayError> {
    Ok(match dtype {
        DType::Bool => DataType::Boolean,
        DType::I8 => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::U8 => DataType::UInt8,
        DType::U16 => DataType::UInt16,
        DType::U32 => DataType::UInt32,
        DType::U64 => DataType::UInt64,
        DType::F16 => DataType::Float16,
        DType::F32 => DataType::Float32,
        DType::F64 => DataType::Float64,
        DType::Bf16 | DType::C64 | DType::C128 | DType::Custom { .. } => {
            let bytes = i32::try_from(dtype.item_bytes());
            DataType::FixedSizeBinary(bytes.map_err(|_| {
                ArrowError::InvalidArgumentError(format!(
                    "{dtype} has elements too large for Arrow"
                ))
            })?)
        }
    })
}
