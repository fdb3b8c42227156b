//! Values that are sent or were received.

use std::ffi::{c_uint, c_void};
use std::ptr;

use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::Field;
use arrow_schema::ffi::FFI_ArrowSchema;
use nervure_arrow_import::import_array;
use nervure_node::message::{ArraySample, Layout, Scalar, Schema, TensorLayout};
use nervure_node::{Encode, Tensor as ElementTensor};

use crate::builder::Builder;
use crate::dtype::{Dtype, dtype_of, plain_dtype};
use crate::layout::{Shape, TypeLayout};
use crate::pointers;
use crate::status::Failure;
use crate::structs::StructSample;

/// Kind of a value: which member of the union in `nervure_value` it has.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `bytes`: sender and receiver agree on their meaning.
    Bytes = 0,
    /// `bytes`: a text in UTF-8, without a NUL at its end.
    Text = 1,
    /// `boolean`.
    Bool = 2,
    /// `integer`.
    Integer = 3,
    /// `unsigned_integer`: an integer above INT64_MAX.
    Unsigned = 4,
    /// `number`.
    Float = 5,
    /// `tensor`: an image, a point cloud, a matrix.
    Tensor = 6,
    /// `arrow`: an array of the Arrow C data interface. Records are received as this kind: see `nervure_record_open`.
    Arrow = 7,
    /// `structure`: a struct of the program, which is sent as a record.
    #[expect(dead_code, reason = "programs make it")]
    Struct = 8,
    /// `builder`: a record.
    Builder = 9,
}

/// Bytes, or a text.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// The first byte. It may be NULL if `size` is 0.
    pub data: *const c_void,
    /// Number of bytes.
    pub size: usize,
}

/// Elements of one type in any number of dimensions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// The first element.
    pub data: *const c_void,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Size of an element in bytes. Set in received values, ignored in sent ones.
    pub item_size: usize,
    /// Number of dimensions; at most 64.
    pub dimensions: usize,
    /// Length of each dimension.
    pub shape: *const usize,
    /// Distance between neighbours along each dimension, in bytes; NULL for C order, in which the last dimension varies
    /// fastest, without gaps.
    pub strides: *const usize,
}

/// Structs of the Arrow C data interface: https://arrow.apache.org/docs/format/CDataInterface.html. They are moved to
/// the function that sends them, also if it fails.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Arrow {
    /// The array.
    pub array: *mut FFI_ArrowArray,
    /// Its type.
    pub schema: *mut FFI_ArrowSchema,
}

/// A struct of the program.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Structure {
    /// Its type.
    pub layout: *const TypeLayout,
    /// The struct.
    pub data: *const c_void,
}

/// The member that `nervure_value.kind` names.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Content {
    /// Bytes, or a text.
    pub bytes: Bytes,
    /// A truth value.
    pub boolean: bool,
    /// An integer.
    pub integer: i64,
    /// An integer above INT64_MAX.
    pub unsigned_integer: u64,
    /// A floating-point number.
    pub number: f64,
    /// A tensor.
    pub tensor: Tensor,
    /// An Arrow array.
    pub arrow: Arrow,
    /// A struct of the program.
    pub structure: Structure,
    /// A record.
    pub builder: *const Builder,
}

/// A value to send, or a received one. It points to its data, and does not own them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Value {
    /// Which member of `as` it has.
    pub kind: Kind,
    /// The value.
    pub r#as: Content,
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Value")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Kind {
    /// The value, in the words of users.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Text => "text",
            Self::Bool => "a truth value",
            Self::Integer | Self::Unsigned => "an integer",
            Self::Float => "a floating-point number",
            Self::Tensor => "a tensor",
            Self::Arrow => "an Arrow array",
            Self::Struct | Self::Builder => "a record",
        }
    }
}

impl Value {
    /// Checks a value from C, whose kind and type of elements may be any number.
    ///
    /// # Safety
    /// `value` is null, or points to a value that lives as long as the result is used.
    pub(crate) unsafe fn checked<'a>(value: *const Self) -> Result<&'a Self, Failure> {
        if value.is_null() {
            return Err(Failure::argument("the value is NULL"));
        }
        // SAFETY: not null, so the numbers can be read: as numbers, before they are taken for variants.
        unsafe {
            let kind = (&raw const (*value).kind).cast::<c_uint>().read();
            if kind > Kind::Builder as c_uint {
                return Err(Failure::argument(format!("a value has no kind {kind}")));
            }
            if kind == Kind::Tensor as c_uint {
                let dtype = (&raw const (*value).r#as.tensor.dtype).cast::<c_uint>();
                plain_dtype(dtype.read())?;
            }
            Ok(&*value)
        }
    }

    pub(crate) fn bytes(kind: Kind, bytes: &[u8]) -> Self {
        let bytes = Bytes {
            data: bytes.as_ptr().cast(),
            size: bytes.len(),
        };
        Self {
            kind,
            r#as: Content { bytes },
        }
    }

    pub(crate) fn scalar(scalar: Scalar) -> Self {
        let (kind, content) = match scalar {
            Scalar::Bool(boolean) => (Kind::Bool, Content { boolean }),
            Scalar::Integer(integer) => (Kind::Integer, Content { integer }),
            Scalar::Unsigned(unsigned_integer) => (Kind::Unsigned, Content { unsigned_integer }),
            Scalar::Float(number) => (Kind::Float, Content { number }),
        };
        Self {
            kind,
            r#as: content,
        }
    }

    pub(crate) fn arrow() -> Self {
        let arrow = Arrow {
            array: ptr::null_mut(),
            schema: ptr::null_mut(),
        };
        Self {
            kind: Kind::Arrow,
            r#as: Content { arrow },
        }
    }

    pub(crate) fn tensor(layout: &TensorLayout, data: &[u8]) -> Self {
        let tensor = Tensor {
            data: data.as_ptr().cast(),
            dtype: dtype_of(layout.dtype()),
            item_size: layout.dtype().item_bytes(),
            dimensions: layout.shape().len(),
            shape: layout.shape().as_ptr(),
            strides: layout
                .explicit_strides()
                .map_or(ptr::null(), <[usize]>::as_ptr),
        };
        Self {
            kind: Kind::Tensor,
            r#as: Content { tensor },
        }
    }

    /// Reads the value.
    ///
    /// # Safety
    /// The kind names the union's member, whose pointers are null or valid for the sizes that it gives.
    pub(crate) unsafe fn decode<R>(
        &self,
        use_it: impl FnOnce(&dyn Encode) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        // SAFETY: the caller promises that the kind names the member.
        unsafe {
            match self.kind {
                Kind::Bytes => use_it(&self.as_bytes()?),
                Kind::Text => use_it(&self.as_text()?),
                Kind::Bool => use_it(&Scalar::Bool(self.r#as.boolean)),
                Kind::Integer => use_it(&Scalar::Integer(self.r#as.integer)),
                Kind::Unsigned => use_it(&Scalar::Unsigned(self.r#as.unsigned_integer)),
                Kind::Float => use_it(&Scalar::Float(self.r#as.number)),
                Kind::Tensor => {
                    let (layout, data) = self.as_tensor()?;
                    let tensor = ElementTensor::from_bytes(layout, data);
                    use_it(&tensor.map_err(|error| Failure::argument(error.to_string()))?)
                }
                Kind::Arrow => {
                    let array = pointers::exclusive(self.r#as.arrow.array, "array")?;
                    let schema = pointers::exclusive(self.r#as.arrow.schema, "schema")?;
                    // The caller keeps structures that are marked as released, as after a move.
                    let array = std::mem::replace(array, FFI_ArrowArray::empty());
                    let schema = std::mem::replace(schema, FFI_ArrowSchema::empty());
                    if array.is_released() {
                        return Err(Failure::argument("the array is released"));
                    }
                    let field = Field::try_from(&schema).map_err(arrow_failure)?;
                    let array = import_array(array, field.data_type()).map_err(arrow_failure)?;
                    let schema = Schema::array(field);
                    let schema = schema.map_err(|error| Failure::argument(error.to_string()))?;
                    let sample = ArraySample::new(&array, &schema);
                    use_it(&sample.map_err(|error| Failure::argument(error.to_string()))?)
                }
                Kind::Struct => {
                    let Structure { layout, data } = self.r#as.structure;
                    let layout = pointers::shared(layout, "layout")?;
                    let data = pointers::shared(data.cast::<u8>(), "struct")?;
                    use_it(&StructSample::new(Shape(layout), data)?)
                }
                Kind::Builder => use_it(&pointers::shared(self.r#as.builder, "builder")?.sample()?),
            }
        }
    }

    /// The value's layout and length in bytes, for a loan. Its data are not read.
    ///
    /// # Safety
    /// As [`Self::decode`], but for the data.
    pub(crate) unsafe fn layout(&self) -> Result<(Layout, usize), Failure> {
        // SAFETY: the caller promises that the kind names the member.
        unsafe {
            match self.kind {
                Kind::Bytes => Ok((Layout::Bytes, self.r#as.bytes.size)),
                Kind::Text => Ok((Layout::Text, self.r#as.bytes.size)),
                Kind::Tensor => {
                    let layout = self.r#as.tensor.layout()?;
                    let bytes = layout.payload_bytes();
                    Ok((Layout::Tensor(layout), bytes))
                }
                _ => Err(Failure::argument(
                    "memory can be borrowed for bytes, a text or a tensor; send others as they are",
                )),
            }
        }
    }

    /// # Safety
    /// As [`Self::decode`].
    pub(crate) unsafe fn as_bytes(&self) -> Result<&[u8], Failure> {
        // SAFETY: the kind names the member.
        unsafe { pointers::bytes(self.r#as.bytes.data, self.r#as.bytes.size, "data") }
    }

    /// # Safety
    /// As [`Self::decode`].
    pub(crate) unsafe fn as_tensor(&self) -> Result<(TensorLayout, &[u8]), Failure> {
        // SAFETY: the kind names the member.
        unsafe {
            let tensor = &self.r#as.tensor;
            let layout = tensor.layout()?;
            let data = pointers::bytes(tensor.data, layout.payload_bytes(), "tensor")?;
            Ok((layout, data))
        }
    }

    /// # Safety
    /// As [`Self::decode`].
    pub(crate) unsafe fn as_text(&self) -> Result<&str, Failure> {
        // SAFETY: the kind names the member.
        std::str::from_utf8(unsafe { self.as_bytes() }?)
            .map_err(|error| Failure::argument(format!("the text is not UTF-8: {error}")))
    }
}

impl Tensor {
    /// # Safety
    /// The pointers are null, or point to as many numbers as there are dimensions.
    unsafe fn layout(&self) -> Result<TensorLayout, Failure> {
        let count = self.dimensions;
        if count > TensorLayout::MAX_DIMENSIONS {
            return Err(Failure::argument(format!(
                "a tensor has at most {} dimensions, this has {count}",
                TensorLayout::MAX_DIMENSIONS
            )));
        }
        let numbers = |start: *const usize| match count {
            0 => &[],
            // SAFETY: not null, so it points to as many numbers.
            _ => unsafe { std::slice::from_raw_parts(start, count) },
        };
        if self.shape.is_null() && count > 0 {
            return Err(Failure::argument("the tensor's shape is NULL"));
        }
        let dtype = plain_dtype(self.dtype as c_uint)?;
        let layout = match self.strides.is_null() {
            true => TensorLayout::contiguous(dtype, numbers(self.shape)),
            false => TensorLayout::strided(dtype, numbers(self.shape), numbers(self.strides)),
        };
        layout.map_err(|error| Failure::argument(error.to_string()))
    }
}

fn arrow_failure(error: arrow_schema::ArrowError) -> Failure {
    Failure::argument(format!("the Arrow array cannot be read: {error}"))
}
