//! Types of tensor elements.

use std::fmt;
use std::sync::Arc;

use half::{bf16, f16};

/// The type of a tensor's elements. Always little-endian, like NumPy's types on the hosts that
/// Nervure runs on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names give kind and bits")]
pub enum DType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    Bf16,
    F32,
    F64,
    /// Complex number of two `f32`.
    C64,
    /// Complex number of two `f64`.
    C128,
    /// Any other type of fixed width. NumPy's datetimes, fixed-width text and structured types are
    /// named by `dtype.str` or `dtype.descr`. Nervure copies the bytes and does not interpret them.
    Custom {
        /// Name of the type.
        name: Arc<str>,
        /// Size of one element, in bytes.
        item_bytes: u32,
    },
}

/// The plain types: code in heads, size in bytes, and NumPy's name (`bf16` comes from `ml_dtypes`).
static PLAIN: [(DType, u8, usize, &str); 15] = [
    (DType::Bool, 0, 1, "b1"),
    (DType::I8, 1, 1, "i1"),
    (DType::I16, 2, 2, "i2"),
    (DType::I32, 3, 4, "i4"),
    (DType::I64, 4, 8, "i8"),
    (DType::U8, 5, 1, "u1"),
    (DType::U16, 6, 2, "u2"),
    (DType::U32, 7, 4, "u4"),
    (DType::U64, 8, 8, "u8"),
    (DType::F16, 9, 2, "f2"),
    (DType::Bf16, 10, 2, "bfloat16"),
    (DType::F32, 11, 4, "f4"),
    (DType::F64, 12, 8, "f8"),
    (DType::C64, 13, 8, "c8"),
    (DType::C128, 14, 16, "c16"),
];

impl DType {
    /// Limit on the name of a custom type, in bytes.
    pub const MAX_NAME_BYTES: usize = 16 << 10;

    /// Size of one element, in bytes.
    pub fn item_bytes(&self) -> usize {
        match self {
            Self::Custom { item_bytes, .. } => *item_bytes as usize,
            plain => PLAIN[plain.code() as usize].2,
        }
    }

    /// The type with NumPy's name, with or without a byte order mark (`u1`, `<f4`, `|b1`). `None`
    /// unless the name is that of a plain little-endian type.
    pub fn from_numpy_name(name: &str) -> Option<Self> {
        let bare = name.strip_prefix(['<', '|', '=']).unwrap_or(name);
        PLAIN
            .iter()
            .find(|(.., known)| *known == bare)
            .map(|(dtype, ..)| dtype.clone())
    }

    /// NumPy's name of the type, without a byte order mark.
    pub fn numpy_name(&self) -> &str {
        match self {
            Self::Custom { name, .. } => name,
            plain => PLAIN[plain.code() as usize].3,
        }
    }

    /// Code of the type in a head: its row in [`PLAIN`], or [`Self::CUSTOM`].
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Bool => 0,
            Self::I8 => 1,
            Self::I16 => 2,
            Self::I32 => 3,
            Self::I64 => 4,
            Self::U8 => 5,
            Self::U16 => 6,
            Self::U32 => 7,
            Self::U64 => 8,
            Self::F16 => 9,
            Self::Bf16 => 10,
            Self::F32 => 11,
            Self::F64 => 12,
            Self::C64 => 13,
            Self::C128 => 14,
            Self::Custom { .. } => Self::CUSTOM,
        }
    }

    pub(crate) const CUSTOM: u8 = 255;

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        PLAIN.get(code as usize).map(|(dtype, ..)| dtype.clone())
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.numpy_name())
    }
}

/// A Rust type that can be an element of a tensor.
pub trait Element: bytemuck::NoUninit {
    /// The corresponding element type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($type:ty => $dtype:ident),* $(,)?) => {$(
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements! {
    bool => Bool, i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    f16 => F16, bf16 => Bf16, f32 => F32, f64 => F64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_rows_of_the_table() {
        for (row, (dtype, code, item_bytes, name)) in PLAIN.iter().enumerate() {
            assert_eq!((dtype.code(), *code), (row as u8, row as u8));
            assert_eq!(DType::from_code(*code).as_ref(), Some(dtype));
            assert_eq!(dtype.item_bytes(), *item_bytes);
            assert_eq!(DType::from_numpy_name(name).as_ref(), Some(dtype));
        }
    }

    #[test]
    fn byte_order_marks_are_parsed() {
        assert_eq!(DType::from_numpy_name("<f4"), Some(DType::F32));
        assert_eq!(DType::from_numpy_name("|u1"), Some(DType::U8));
        assert_eq!(DType::from_numpy_name(">f4"), None);
        assert_eq!(DType::from_numpy_name("<M8[ns]"), None);
    }
}
