//! The elements of a tensor as a flat list, for types of serde that have lists instead of tensors.

use std::borrow::Cow;
use std::marker::PhantomData;

use half::{bf16, f16};
use serde::de::{self, DeserializeSeed, IntoDeserializer, SeqAccess};

use super::plan::Elements;
use crate::dtype::DType;
use crate::tensor::{Tensor, TensorLayout};

/// Elements in C order: those of `[[1, 2], [3, 4]]` are 1, 2, 3, 4.
pub(super) struct FlatTensor<'de, E> {
    dtype: DType,
    bytes: Cow<'de, [u8]>,
    next_byte: usize,
    error: PhantomData<E>,
}

impl<'de, E: de::Error> FlatTensor<'de, E> {
    pub(super) fn new(layout: TensorLayout, bytes: &'de [u8]) -> Result<Self, E> {
        let dtype = layout.dtype().clone();
        let bytes = match layout.is_contiguous() {
            true => Cow::Borrowed(&bytes[..layout.payload_bytes()]),
            false => {
                let axes: Vec<usize> = (0..layout.shape().len()).collect();
                let mut ordered = vec![0; layout.len() * dtype.item_bytes()];
                let tensor = Tensor::from_bytes(layout, bytes).map_err(E::custom)?;
                tensor.write_elements(&axes, &mut ordered);
                Cow::Owned(ordered)
            }
        };
        Ok(Self {
            dtype,
            bytes,
            next_byte: 0,
            error: PhantomData,
        })
    }

    fn no_numbers(&self) -> E {
        E::custom(format!("expected a list, found a tensor of {}", self.dtype))
    }

    fn take<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.bytes[self.next_byte..][..N]);
        bytes
    }
}

impl<'de, E: de::Error> SeqAccess<'de> for FlatTensor<'de, E> {
    type Error = E;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, E> {
        if self.next_byte == self.bytes.len() {
            return Ok(None);
        }
        macro_rules! element {
            ($number:ty) => {
                seed.deserialize(<$number>::from_le_bytes(self.take()).into_deserializer())
            };
        }
        let element = match self.dtype {
            DType::Bool => seed.deserialize((self.take() != [0_u8]).into_deserializer()),
            DType::I8 => element!(i8),
            DType::I16 => element!(i16),
            DType::I32 => element!(i32),
            DType::I64 => element!(i64),
            DType::U8 => element!(u8),
            DType::U16 => element!(u16),
            DType::U32 => element!(u32),
            DType::U64 => element!(u64),
            DType::F16 => {
                seed.deserialize(f16::from_le_bytes(self.take()).to_f32().into_deserializer())
            }
            DType::Bf16 => seed.deserialize(
                bf16::from_le_bytes(self.take())
                    .to_f32()
                    .into_deserializer(),
            ),
            DType::F32 => element!(f32),
            DType::F64 => element!(f64),
            DType::C64 | DType::C128 | DType::Custom { .. } => return Err(self.no_numbers()),
        };
        self.next_byte += self.dtype.item_bytes();
        element.map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        (self.bytes.len() - self.next_byte).checked_div(self.dtype.item_bytes())
    }
}
