//! What can be sent.

use crate::array::ArraySample;
use crate::dtype::Element;
use crate::layout::{Layout, Scalar};
use crate::metadata::{EncodedMetadata, Metadata, MetadataError};
use crate::schema::Schema;
use crate::tensor::{Tensor, TensorLayout};
use crate::wire::{DecodeError, Head, Reader};

/// A value that can be sent: it knows its layout, its size, and how to write itself into the memory that the receiver
/// will read.
pub trait Encode {
    /// How the payload will have to be read.
    fn layout(&self) -> Layout;

    /// Bytes of the payload.
    fn payload_bytes(&self) -> usize;

    /// Writes the payload.
    ///
    /// # Panics
    /// When `payload` is not of [`Self::payload_bytes`].
    fn write(&self, payload: &mut [u8]);

    /// The schema that the receiver needs to read the payload, if it needs one.
    fn schema(&self) -> Option<&Schema> {
        None
    }
}

/// The head of a sample: its layout, then its metadata.
///
/// # Errors
/// When the metadata is larger than its limits.
pub fn encode_head<V: Encode + ?Sized>(value: &V, metadata: &Metadata) -> Result<Head, MetadataError> {
    let mut head = Head::new();
    value.layout().write(&mut head);
    metadata.write(&mut head)?;
    Ok(head)
}

/// Takes a head apart. It must lie in private memory: what was checked here must not change.
///
/// # Errors
/// When the bytes are no head.
pub fn decode_head(head: &[u8]) -> Result<(Layout, EncodedMetadata<'_>), DecodeError> {
    let mut reader = Reader::new(head);
    let layout = Layout::read(&mut reader)?;
    Ok((layout, EncodedMetadata::new(reader.rest())))
}

impl<V: Encode + ?Sized> Encode for &V {
    fn layout(&self) -> Layout {
        (**self).layout()
    }

    fn payload_bytes(&self) -> usize {
        (**self).payload_bytes()
    }

    fn write(&self, payload: &mut [u8]) {
        (**self).write(payload);
    }

    fn schema(&self) -> Option<&Schema> {
        (**self).schema()
    }
}

impl Encode for [u8] {
    fn layout(&self) -> Layout {
        Layout::Bytes
    }

    fn payload_bytes(&self) -> usize {
        self.len()
    }

    fn write(&self, payload: &mut [u8]) {
        payload.copy_from_slice(self);
    }
}

impl Encode for str {
    fn layout(&self) -> Layout {
        Layout::Text
    }

    fn payload_bytes(&self) -> usize {
        self.len()
    }

    fn write(&self, payload: &mut [u8]) {
        payload.copy_from_slice(self.as_bytes());
    }
}

impl Encode for Scalar {
    fn layout(&self) -> Layout {
        Layout::Scalar(*self)
    }

    fn payload_bytes(&self) -> usize {
        0
    }

    fn write(&self, payload: &mut [u8]) {
        assert!(payload.is_empty(), "a scalar lies in the head");
    }
}

impl Encode for Tensor<'_> {
    fn layout(&self) -> Layout {
        Layout::Tensor(Tensor::layout(self).clone())
    }

    fn payload_bytes(&self) -> usize {
        self.bytes().len()
    }

    fn write(&self, payload: &mut [u8]) {
        payload.copy_from_slice(self.bytes());
    }
}

impl Encode for ArraySample<'_> {
    fn layout(&self) -> Layout {
        Layout::Array(self.plan().layout().clone())
    }

    fn payload_bytes(&self) -> usize {
        self.plan().payload_bytes()
    }

    fn write(&self, payload: &mut [u8]) {
        self.plan().write(payload);
    }

    fn schema(&self) -> Option<&Schema> {
        Some(ArraySample::schema(self))
    }
}

macro_rules! encode_as {
    ($($type:ty => |$value:ident| $encoded:expr),* $(,)?) => {$(
        impl Encode for $type {
            fn layout(&self) -> Layout {
                let $value = self;
                Encode::layout(&$encoded)
            }

            fn payload_bytes(&self) -> usize {
                let $value = self;
                Encode::payload_bytes(&$encoded)
            }

            fn write(&self, payload: &mut [u8]) {
                let $value = self;
                Encode::write(&$encoded, payload);
            }
        }
    )*};
}

encode_as! {
    Vec<u8> => |value| value.as_slice(),
    String => |value| value.as_str(),
    bool => |value| Scalar::Bool(*value),
    i8 => |value| Scalar::Integer((*value).into()),
    i16 => |value| Scalar::Integer((*value).into()),
    i32 => |value| Scalar::Integer((*value).into()),
    i64 => |value| Scalar::Integer(*value),
    u8 => |value| Scalar::Integer((*value).into()),
    u16 => |value| Scalar::Integer((*value).into()),
    u32 => |value| Scalar::Integer((*value).into()),
    u64 => |value| i64::try_from(*value).map_or(Scalar::Unsigned(*value), Scalar::Integer),
    f32 => |value| Scalar::Float((*value).into()),
    f64 => |value| Scalar::Float(*value),
}

/// Slices of numbers are tensors of one dimension. (A slice of `u8` is bytes.)
macro_rules! encode_slices {
    ($($type:ty),*) => {$(
        impl Encode for [$type] {
            fn layout(&self) -> Layout {
                let layout = TensorLayout::contiguous(<$type>::DTYPE, &[self.len()]);
                Layout::Tensor(layout.expect("the slice is in memory, so its size fits"))
            }

            fn payload_bytes(&self) -> usize {
                size_of_val(self)
            }

            fn write(&self, payload: &mut [u8]) {
                payload.copy_from_slice(bytemuck::cast_slice(self));
            }
        }

        encode_as! { Vec<$type> => |value| value.as_slice() }
    )*};
}

encode_slices!(bool, i8, i16, i32, i64, u16, u32, u64, half::f16, half::bf16, f32, f64);
