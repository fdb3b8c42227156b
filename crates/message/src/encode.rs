//! Values that can be sent.

use crate::array::ArraySample;
use crate::dtype::Element;
use crate::layout::{Layout, Scalar};
use crate::metadata::{EncodedMetadata, Metadata, MetadataError};
use crate::schema::Schema;
use crate::tensor::{Tensor, TensorLayout};
use crate::wire::{DecodeError, Head, Reader};

/// A value that can be sent. It knows its layout and size, and writes itself into the memory that
/// the receiver reads.
pub trait Encode {
    /// The layout of the payload.
    fn layout(&self) -> Layout;

    /// Length of the payload, in bytes.
    fn payload_bytes(&self) -> usize;

    /// Writes the payload.
    ///
    /// # Panics
    /// If the length of `payload` is not [`Self::payload_bytes`].
    fn write(&self, payload: &mut [u8]);

    /// The schema that the receiver needs to read the payload; `None` if it needs none.
    fn schema(&self) -> Option<&Schema> {
        None
    }
}

/// Encodes the head of a sample: its layout, then its metadata.
///
/// # Errors
/// If the metadata exceeds its limits.
pub fn encode_head<V: Encode + ?Sized>(
    value: &V,
    metadata: &Metadata,
) -> Result<Head, MetadataError> {
    let mut head = Head::new();
    value.layout().write(&mut head);
    metadata.write(&mut head)?;
    Ok(head)
}

/// Decodes a head. The bytes must be in private memory, as a peer could alter shared memory after
/// the checks.
///
/// # Errors
/// If the bytes are not a valid head.
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
                Layout::Tensor(layout.expect("the size of a slice in memory cannot overflow"))
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

encode_slices!(
    bool,
    i8,
    i16,
    i32,
    i64,
    u16,
    u32,
    u64,
    half::f16,
    half::bf16,
    f32,
    f64
);

#[cfg(test)]
mod tests {
    use arrow_buffer::Buffer;
    use arrow_data::ArrayData;
    use arrow_schema::DataType;
    use half::f16;
    use proptest::prelude::*;

    use super::*;
    use crate::dtype::DType;
    use crate::view::{View, payload_buffer};
    use crate::view_error::ViewError;

    /// A value as received.
    struct Arrived {
        layout: Layout,
        payload: Buffer,
    }

    impl Arrived {
        fn view(&self) -> View<'_> {
            View::new(&self.layout, &self.payload).unwrap()
        }

        fn array(&self) -> Result<ArrayData, ViewError> {
            self.view().array(None, &self.payload)
        }
    }

    fn send<V: Encode + ?Sized>(value: &V) -> Arrived {
        let head = encode_head(value, &Metadata::new()).unwrap();
        let (layout, metadata) = decode_head(&head).unwrap();
        assert!(metadata.is_empty());
        let mut payload = vec![0_u64; value.payload_bytes().div_ceil(8)];
        let bytes = &mut bytemuck::cast_slice_mut(&mut payload)[..value.payload_bytes()];
        value.write(bytes);
        let payload = Buffer::from_vec(payload).slice_with_length(0, value.payload_bytes());
        Arrived {
            layout,
            payload: payload_buffer(payload),
        }
    }

    fn head_bytes<V: Encode + ?Sized>(value: &V) -> usize {
        encode_head(value, &Metadata::new()).unwrap().len()
    }

    #[test]
    fn heads_are_small() {
        assert_eq!(head_bytes("text"), 1);
        assert_eq!(head_bytes(&[0_u8; 9][..]), 1);
        assert_eq!(head_bytes(&1.5), 9);
        let image = vec![0_u8; 540 * 960 * 3];
        assert_eq!(head_bytes(&Tensor::new(&image, &[540, 960, 3]).unwrap()), 8);
    }

    #[test]
    fn every_kind_round_trips() {
        assert_eq!(send(&vec![1_u8, 2, 3]).view().bytes(), [1, 2, 3]);
        assert_eq!(send("Grüße").view().text().unwrap(), "Grüße");
        assert_eq!(send(&true).view().scalar().unwrap(), Scalar::Bool(true));
        assert_eq!(send(&-7_i16).view().scalar().unwrap(), Scalar::Integer(-7));
        assert_eq!(send(&7_u64).view().scalar().unwrap(), Scalar::Integer(7));
        assert_eq!(
            send(&u64::MAX).view().scalar().unwrap(),
            Scalar::Unsigned(u64::MAX)
        );
        assert_eq!(
            send(&0.25_f32).view().scalar().unwrap(),
            Scalar::Float(0.25)
        );
        assert_eq!(
            send(&vec![1.5_f64, 2.5]).view().as_slice::<f64>().unwrap(),
            [1.5, 2.5]
        );
        let halves = [f16::from_f32(0.5); 3];
        assert_eq!(send(&halves[..]).view().as_slice::<f16>().unwrap(), halves);
    }

    #[test]
    fn every_kind_can_be_read_as_an_arrow_array() {
        let arrays = [
            (send(&[1_u8, 2][..]), DataType::UInt8, 2),
            (send("text"), DataType::Utf8, 1),
            (send(&true), DataType::Boolean, 1),
            (send(&3_i8), DataType::Int64, 1),
            (send(&u64::MAX), DataType::UInt64, 1),
            (send(&1.0_f32), DataType::Float64, 1),
            (send(&[1_i16, 2, 3][..]), DataType::Int16, 3),
            (send(&[true, false][..]), DataType::Boolean, 2),
            (
                send(&[half::bf16::ZERO; 4][..]),
                DataType::FixedSizeBinary(2),
                4,
            ),
        ];
        for (arrived, data_type, length) in arrays {
            let array = arrived.array().unwrap();
            array.validate_full().unwrap();
            assert_eq!((array.data_type(), array.len()), (&data_type, length));
        }
        let numbers = send(&[0.5_f32; 100][..]);
        let array = numbers.array().unwrap();
        assert_eq!(
            array.buffers()[0].as_ptr(),
            numbers.payload.as_ptr(),
            "numbers are not copied"
        );
    }

    #[test]
    fn arrow_arrays_need_their_schema() {
        let schema = Schema::of_type(DataType::Int32).unwrap();
        let array = ArrayData::builder(DataType::Int32)
            .len(2)
            .add_buffer(Buffer::from_vec(vec![1, 2]));
        let array = array.build().unwrap();
        let sample = ArraySample::new(&array, &schema).unwrap();
        assert_eq!(Encode::schema(&sample).map(Schema::id), Some(schema.id()));
        let arrived = send(&sample);
        assert_eq!(
            arrived
                .view()
                .array(Some(&schema), &arrived.payload)
                .unwrap(),
            array
        );
        let error = arrived.array().unwrap_err();
        assert!(matches!(error, ViewError::SchemaMissing));
    }

    #[test]
    fn other_kinds_than_the_sent_one_are_refused_by_name() {
        let refused = |error: ViewError| error.to_string();
        assert_eq!(
            refused(send("text").view().tensor().unwrap_err()),
            "expected a tensor, the sample is text"
        );
        assert_eq!(
            refused(send(&1).view().text().unwrap_err()),
            "expected text, the sample is a scalar"
        );
        let floats = send(&[1.0_f32][..]);
        let error = refused(floats.view().as_slice::<u8>().unwrap_err());
        assert_eq!(error, "expected elements of type u1, the tensor has f4");
        let layout = TensorLayout::strided(DType::U8, &[2, 2], &[1, 2]).unwrap();
        let fortran = send(&Tensor::from_bytes(layout, &[1, 2, 3, 4]).unwrap());
        let error = refused(fortran.view().as_slice::<u8>().unwrap_err());
        assert_eq!(
            error,
            "the tensor of shape [2, 2] has strides [1, 2] (bytes) and is not a slice in C order"
        );
        let text = Layout::Text;
        assert!(matches!(
            View::new(&text, &[0xff]).unwrap().text(),
            Err(ViewError::Utf8(_))
        ));
        let tensor = Layout::Tensor(TensorLayout::contiguous(DType::U8, &[5]).unwrap());
        assert!(matches!(
            View::new(&tensor, &[0; 4]),
            Err(ViewError::PayloadBytes {
                described: 5,
                found: 4
            })
        ));
    }

    #[test]
    fn the_error_names_the_version_of_a_newer_head() {
        let error = decode_head(&[0x20]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "head is written in version 2, this build reads version 1"
        );
        assert_eq!(
            decode_head(&[0x1f]).unwrap_err().to_string(),
            "15 is not a known kind of payload"
        );
    }

    proptest! {
        #[test]
        fn any_head_over_any_payload_is_viewed_or_refused(
            mut head in proptest::collection::vec(any::<u8>(), 1..60),
            payload in proptest::collection::vec(any::<u8>(), 0..60),
            kind in 0..8_u8,
        ) {
            head[0] = 0x10 | kind;
            let Ok((layout, metadata)) = decode_head(&head) else { return Ok(()) };
            let _ = metadata.decode();
            let payload = payload_buffer(payload);
            let Ok(view) = View::new(&layout, &payload) else { return Ok(()) };
            let schema = Schema::of_type(DataType::Utf8).unwrap();
            if let Ok(array) = view.array(Some(&schema), &payload) {
                array.validate_full().unwrap();
            }
        }
    }
}
