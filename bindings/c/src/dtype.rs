//! Types of numbers.

use std::ffi::c_uint;

use nervure_node::message::DType;

use crate::status::Failure;

/// Type of a tensor's elements, little-endian.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    Bool = 0,
    I8 = 1,
    I16 = 2,
    I32 = 3,
    I64 = 4,
    U8 = 5,
    U16 = 6,
    U32 = 7,
    U64 = 8,
    F16 = 9,
    Bf16 = 10,
    F32 = 11,
    F64 = 12,
    /// Complex number of two 32-bit floats.
    C64 = 13,
    /// Complex number of two 64-bit floats.
    C128 = 14,
    /// A type of another language, for example a structured type of NumPy. It can be received, and not be sent.
    Custom = 255,
}

impl Dtype {
    pub(crate) fn is_integer(self) -> bool {
        (Self::I8 as c_uint..=Self::U64 as c_uint).contains(&(self as c_uint))
    }
}

const PLAIN: [(DType, Dtype); 15] = [
    (DType::Bool, Dtype::Bool),
    (DType::I8, Dtype::I8),
    (DType::I16, Dtype::I16),
    (DType::I32, Dtype::I32),
    (DType::I64, Dtype::I64),
    (DType::U8, Dtype::U8),
    (DType::U16, Dtype::U16),
    (DType::U32, Dtype::U32),
    (DType::U64, Dtype::U64),
    (DType::F16, Dtype::F16),
    (DType::Bf16, Dtype::Bf16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
    (DType::C64, Dtype::C64),
    (DType::C128, Dtype::C128),
];

pub(crate) fn plain_dtype(code: c_uint) -> Result<DType, Failure> {
    let known = PLAIN
        .into_iter()
        .find(|(_, known)| *known as c_uint == code);
    known.map(|(dtype, _)| dtype).ok_or_else(|| {
        Failure::argument(format!(
            "elements of type {code} cannot be sent: see `nervure_dtype`"
        ))
    })
}

/// The type of elements that a program has named.
pub(crate) fn dtype_from(dtype: Dtype) -> DType {
    let known = PLAIN.into_iter().find(|(_, known)| *known == dtype);
    known.map_or(DType::C128, |(dtype, _)| dtype)
}

pub(crate) fn dtype_of(dtype: &DType) -> Dtype {
    let known = PLAIN.iter().find(|(known, _)| known == dtype);
    known.map_or(Dtype::Custom, |(_, dtype)| *dtype)
}

/// Returns the size of an element in bytes; 0 for `NERVURE_DTYPE_CUSTOM`, whose size is in the tensor.
#[unsafe(no_mangle)]
pub extern "C" fn nervure_dtype_size(dtype: c_uint) -> usize {
    plain_dtype(dtype).map_or(0, |dtype| dtype.item_bytes())
}
