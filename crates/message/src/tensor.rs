//! Tensors: elements of one type in any number of dimensions.

use std::ops::Deref;

use smallvec::SmallVec;

use crate::dtype::{DType, Element};
use crate::view_error::ViewError;
use crate::wire::{DecodeError, Head, Reader, put_bytes, put_number};

/// One number per dimension.
pub(crate) type Dimensions = SmallVec<[usize; 6]>;

/// The placement of a tensor's elements in the payload. Invariant: shape and strides stay within
/// [`TensorLayout::payload_bytes`], which fits in `isize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorLayout {
    dtype: DType,
    shape: Dimensions,
    /// In bytes; `None` for C order: the last dimension varies fastest, without gaps.
    strides: Option<Dimensions>,
    payload_bytes: usize,
}

/// Why a shape, strides or data are not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// More dimensions than NumPy supports.
    #[error(
        "a tensor has at most {} dimensions, got {found}",
        TensorLayout::MAX_DIMENSIONS
    )]
    Dimensions {
        /// Number of dimensions requested.
        found: usize,
    },
    /// The number of strides differs from the number of dimensions.
    #[error("expected one stride for each of {dimensions} dimensions, got {strides}")]
    Strides {
        /// Number of dimensions of the shape.
        dimensions: usize,
        /// Number of strides given.
        strides: usize,
    },
    /// The tensor exceeds the address space.
    #[error("a tensor of shape {shape:?} and {item_bytes} bytes an element does not fit in memory")]
    TooLarge {
        /// The requested shape.
        shape: Vec<usize>,
        /// Size of one element, in bytes.
        item_bytes: usize,
    },
    /// The length of the data does not match the layout.
    #[error("a tensor of type {dtype} and shape {shape:?} takes {expected} bytes, got {found}")]
    Data {
        /// Type of the elements.
        dtype: DType,
        /// Shape of the tensor.
        shape: Vec<usize>,
        /// Length required by the layout, in bytes.
        expected: usize,
        /// Length given, in bytes.
        found: usize,
    },
}

impl TensorLayout {
    /// Limit on the number of dimensions; the same as NumPy's.
    pub const MAX_DIMENSIONS: usize = 64;

    /// A tensor in C order: the last dimension varies fastest, without gaps.
    ///
    /// # Errors
    /// If there are too many dimensions or the size overflows.
    pub fn contiguous(dtype: DType, shape: &[usize]) -> Result<Self, TensorError> {
        Self::new(dtype, shape.into(), None)
    }

    /// A tensor with the given strides, in bytes. Element `[0, 0, ..]` is the first of the payload,
    /// so strides are never negative. A stride of 0 repeats elements.
    ///
    /// # Errors
    /// If there are too many dimensions, the lengths differ or the size overflows.
    pub fn strided(dtype: DType, shape: &[usize], strides: &[usize]) -> Result<Self, TensorError> {
        if shape.len() != strides.len() {
            return Err(TensorError::Strides {
                dimensions: shape.len(),
                strides: strides.len(),
            });
        }
        Self::new(dtype, shape.into(), Some(strides.into()))
    }

    /// A layout without gaps that keeps the memory order of the axes with the given strides (in
    /// bytes, any sign): C order for a C array, Fortran order for a Fortran array, channels last
    /// for a transposed image. A copy to this layout is one pass, and the receiver sees the memory
    /// order of the sender.
    ///
    /// # Errors
    /// If there are too many dimensions, the lengths differ or the size overflows.
    pub fn packed_like(
        dtype: DType,
        shape: &[usize],
        strides: &[isize],
    ) -> Result<Self, TensorError> {
        if shape.len() != strides.len() {
            return Err(TensorError::Strides {
                dimensions: shape.len(),
                strides: strides.len(),
            });
        }
        let contiguous = Self::contiguous(dtype, shape)?;
        let mut packed: Dimensions = shape.into();
        let mut step = contiguous.dtype.item_bytes();
        for axis in slowest_first(strides.len(), |axis| strides[axis].unsigned_abs())
            .into_iter()
            .rev()
        {
            packed[axis] = step;
            step *= shape[axis].max(1);
        }
        Self::new(contiguous.dtype, contiguous.shape, Some(packed))
    }

    /// Type of the elements.
    pub fn dtype(&self) -> &DType {
        &self.dtype
    }

    /// Length of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Distance between neighbours along each dimension, in bytes.
    pub fn strides(&self) -> impl Deref<Target = [usize]> + use<> {
        self.strides
            .clone()
            .unwrap_or_else(|| c_strides(&self.dtype, &self.shape))
    }

    /// As [`Self::strides`]; `None` for C order.
    pub fn explicit_strides(&self) -> Option<&[usize]> {
        self.strides.as_deref()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Whether the elements are in C order without gaps, so that the payload is a slice of them.
    pub fn is_contiguous(&self) -> bool {
        self.strides.is_none()
    }

    /// The axes in memory order, slowest first. Ascending for C order.
    pub fn axes_in_memory(&self) -> SmallVec<[usize; 6]> {
        match &self.strides {
            None => (0..self.shape.len()).collect(),
            Some(strides) => slowest_first(strides.len(), |axis| strides[axis]),
        }
    }

    /// The byte offset of each element, in C order.
    pub fn places(&self) -> impl Iterator<Item = usize> + use<> {
        let (shape, strides) = (self.shape.clone(), self.strides());
        let mut index: Dimensions = shape.iter().map(|_| 0).collect();
        let mut place = 0;
        (0..self.len()).map(move |_| {
            let current = place;
            for axis in (0..shape.len()).rev() {
                index[axis] += 1;
                place += strides[axis];
                if index[axis] < shape[axis] {
                    break;
                }
                place -= strides[axis] * shape[axis];
                index[axis] = 0;
            }
            current
        })
    }

    /// Length from the first element to the end of the last, in bytes.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    fn new(
        dtype: DType,
        shape: Dimensions,
        strides: Option<Dimensions>,
    ) -> Result<Self, TensorError> {
        if shape.len() > Self::MAX_DIMENSIONS {
            return Err(TensorError::Dimensions { found: shape.len() });
        }
        // The product over all dimensions that are not empty bounds each stride computed later, and
        // the size that a reader without overflow checks (NumPy) computes.
        let item_bytes = dtype.item_bytes();
        let too_large = || TensorError::TooLarge {
            shape: shape.to_vec(),
            item_bytes,
        };
        let mut total = item_bytes.max(1);
        for &length in shape.iter().filter(|&&length| length > 0) {
            let product = total
                .checked_mul(length)
                .filter(|&total| isize::try_from(total).is_ok());
            total = product.ok_or_else(too_large)?;
        }
        let strides = strides.filter(|strides| !is_c_order(&dtype, &shape, strides));
        let span = match &strides {
            _ if shape.contains(&0) => 0,
            None => total / item_bytes.max(1) * item_bytes,
            Some(strides) => span(&shape, strides, item_bytes).ok_or_else(too_large)?,
        };
        Ok(Self {
            dtype,
            shape,
            strides,
            payload_bytes: span,
        })
    }

    pub(crate) fn write(&self, head: &mut Head) {
        head.push(self.dtype.code());
        if let DType::Custom { name, item_bytes } = &self.dtype {
            put_bytes(head, name.as_bytes());
            put_number(head, u64::from(*item_bytes));
        }
        head.push(self.shape.len() as u8 | if self.strides.is_some() { STRIDED } else { 0 });
        for &number in self.shape.iter().chain(self.strides.iter().flatten()) {
            put_number(head, number as u64);
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let dtype = match reader.byte("type of tensor elements")? {
            DType::CUSTOM => custom_type(reader)?,
            code => DType::from_code(code).ok_or(DecodeError::Code {
                what: "type of tensor elements",
                code: code.into(),
            })?,
        };
        let dimensions = reader.byte("dimensions of the tensor")?;
        let mut numbers = || -> Result<Dimensions, DecodeError> {
            (0..dimensions & !STRIDED)
                .map(|_| reader.size("shape or stride of the tensor"))
                .collect()
        };
        let shape = numbers()?;
        let strides = if dimensions & STRIDED != 0 {
            Some(numbers()?)
        } else {
            None
        };
        Self::new(dtype, shape, strides).map_err(|error| DecodeError::Invalid {
            what: "tensor",
            reason: error.to_string(),
        })
    }
}

/// A layout and its bytes: a tensor to be sent, or one in a received record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor<'a> {
    layout: TensorLayout,
    bytes: &'a [u8],
}

impl<'a> Tensor<'a> {
    /// A tensor of `elements` in C order.
    ///
    /// # Errors
    /// If the number of elements does not match the shape.
    pub fn new<T: Element>(elements: &'a [T], shape: &[usize]) -> Result<Self, TensorError> {
        Self::from_bytes(
            TensorLayout::contiguous(T::DTYPE, shape)?,
            bytemuck::cast_slice(elements),
        )
    }

    /// A tensor of bytes with the given layout.
    ///
    /// # Errors
    /// If the number of bytes does not match the layout.
    pub fn from_bytes(layout: TensorLayout, bytes: &'a [u8]) -> Result<Self, TensorError> {
        if bytes.len() != layout.payload_bytes {
            let TensorLayout {
                dtype,
                shape,
                payload_bytes: expected,
                ..
            } = layout;
            return Err(TensorError::Data {
                dtype,
                shape: shape.to_vec(),
                expected,
                found: bytes.len(),
            });
        }
        Ok(Self { layout, bytes })
    }

    /// The placement of its elements.
    pub fn layout(&self) -> &TensorLayout {
        &self.layout
    }

    /// The bytes of the elements.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The elements in C order, in place.
    ///
    /// # Errors
    /// If it is not a tensor of `T` in C order.
    pub fn as_slice<T: Element + bytemuck::AnyBitPattern>(&self) -> Result<&'a [T], ViewError> {
        elements(&self.layout, self.bytes)
    }
}

/// A received tensor: a layout, and a payload that is long enough for it.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    layout: &'a TensorLayout,
    bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// Returns `None` if the payload is too short for the layout.
    pub(crate) fn new(layout: &'a TensorLayout, payload: &'a [u8]) -> Option<Self> {
        Some(Self {
            layout,
            bytes: payload.get(..layout.payload_bytes)?,
        })
    }

    /// The bytes of the elements.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The elements in C order, in place.
    ///
    /// # Errors
    /// If it is not a tensor of `T` in C order.
    pub fn as_slice<T: Element + bytemuck::AnyBitPattern>(&self) -> Result<&'a [T], ViewError> {
        elements(self.layout, self.bytes)
    }
}

impl Deref for TensorView<'_> {
    type Target = TensorLayout;

    fn deref(&self) -> &TensorLayout {
        self.layout
    }
}

fn elements<'a, T: Element + bytemuck::AnyBitPattern>(
    layout: &TensorLayout,
    bytes: &'a [u8],
) -> Result<&'a [T], ViewError> {
    if layout.dtype != T::DTYPE {
        return Err(ViewError::ElementType {
            expected: T::DTYPE,
            found: layout.dtype.clone(),
        });
    }
    if !layout.is_contiguous() {
        return Err(ViewError::Strides {
            shape: layout.shape.to_vec(),
            strides: layout.strides().to_vec(),
        });
    }
    bytemuck::try_cast_slice(bytes).map_err(|_| ViewError::Alignment { dtype: T::DTYPE })
}

const STRIDED: u8 = 0x80;

fn custom_type(reader: &mut Reader<'_>) -> Result<DType, DecodeError> {
    let name = reader.text("name of a custom tensor type")?;
    if name.len() > DType::MAX_NAME_BYTES {
        return Err(DecodeError::Limit {
            what: "length of a custom tensor type's name",
            found: name.len() as u64,
            limit: DType::MAX_NAME_BYTES as u64,
        });
    }
    let item_bytes = reader.number("bytes of a tensor element")?;
    let item_bytes = u32::try_from(item_bytes).map_err(|_| DecodeError::Limit {
        what: "bytes of a tensor element",
        found: item_bytes,
        limit: u32::MAX.into(),
    })?;
    Ok(DType::Custom {
        name: name.into(),
        item_bytes,
    })
}

/// Of axes with equal strides, the first counts as the slowest.
fn slowest_first(dimensions: usize, stride: impl Fn(usize) -> usize) -> Dimensions {
    let mut axes: Dimensions = (0..dimensions).collect();
    axes.sort_by_key(|&axis| std::cmp::Reverse(stride(axis)));
    axes
}

fn c_strides(dtype: &DType, shape: &[usize]) -> Dimensions {
    let mut strides: Dimensions = shape.into();
    let mut step = dtype.item_bytes();
    for (stride, length) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        step *= (*length).max(1);
    }
    strides
}

/// The stride of a dimension of length 1, or of an empty tensor, is never used. It may have any
/// value.
fn is_c_order(dtype: &DType, shape: &[usize], strides: &[usize]) -> bool {
    let expected = c_strides(dtype, shape);
    shape.contains(&0)
        || (0..shape.len()).all(|axis| shape[axis] == 1 || strides[axis] == expected[axis])
}

fn span(shape: &[usize], strides: &[usize], item_bytes: usize) -> Option<usize> {
    let mut span = item_bytes;
    for (length, stride) in shape.iter().zip(strides) {
        span = span.checked_add((length - 1).checked_mul(*stride)?)?;
    }
    isize::try_from(span).is_ok().then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(layout: &TensorLayout) -> usize {
        let mut head = Head::new();
        layout.write(&mut head);
        let mut reader = Reader::new(&head);
        assert_eq!(&TensorLayout::read(&mut reader).unwrap(), layout);
        reader.finish("tensor").unwrap();
        head.len()
    }

    #[test]
    fn c_order_is_recognised_and_needs_no_strides() {
        let layout = TensorLayout::strided(DType::U8, &[540, 1, 960, 3], &[2880, 7, 3, 1]).unwrap();
        assert!(layout.is_contiguous());
        assert_eq!(&layout.strides()[..], [2880, 2880, 3, 1]);
        assert_eq!(layout.payload_bytes(), 540 * 960 * 3);
        assert!(round_trip(&layout) < 10);
    }

    #[test]
    fn the_order_of_axes_is_kept() {
        let fortran = TensorLayout::packed_like(DType::F32, &[3, 4], &[4, 12]).unwrap();
        assert_eq!(&fortran.strides()[..], [4, 12]);
        let channels_first_view =
            TensorLayout::packed_like(DType::U8, &[3, 4, 6], &[1, 18, 3]).unwrap();
        assert_eq!(&channels_first_view.strides()[..], [1, 18, 3]);
        let every_second_backwards =
            TensorLayout::packed_like(DType::I16, &[5, 4], &[-32, 4]).unwrap();
        assert!(every_second_backwards.is_contiguous());
        for layout in [fortran, channels_first_view, every_second_backwards] {
            assert_eq!(
                layout.payload_bytes(),
                layout.len() * layout.dtype().item_bytes()
            );
            round_trip(&layout);
        }
    }

    #[test]
    fn a_stride_of_zero_repeats() {
        let layout = TensorLayout::strided(DType::F64, &[1000, 2], &[0, 8]).unwrap();
        assert_eq!((layout.payload_bytes(), layout.len()), (16, 2000));
        round_trip(&layout);
    }

    #[test]
    fn custom_types_and_empty_shapes_round_trip() {
        let structured = DType::Custom {
            name: "[('x', '<f4'), ('label', '<U3')]".into(),
            item_bytes: 16,
        };
        round_trip(&TensorLayout::contiguous(structured, &[7]).unwrap());
        round_trip(
            &TensorLayout::contiguous(
                DType::Custom {
                    name: "|S0".into(),
                    item_bytes: 0,
                },
                &[9],
            )
            .unwrap(),
        );
        let empty = TensorLayout::contiguous(DType::F32, &[3, 0, 5]).unwrap();
        assert_eq!((empty.payload_bytes(), empty.len()), (0, 0));
        round_trip(&empty);
        let point = TensorLayout::contiguous(DType::F32, &[]).unwrap();
        assert_eq!((point.payload_bytes(), point.len()), (4, 1));
        round_trip(&point);
    }

    #[test]
    fn sizes_beyond_memory_are_refused() {
        let refused = |layout: Result<TensorLayout, TensorError>| layout.unwrap_err().to_string();
        let huge = refused(TensorLayout::contiguous(DType::U8, &[1 << 40, 1 << 40]));
        assert!(huge.contains("does not fit in memory"), "{huge}");
        refused(TensorLayout::contiguous(DType::U8, &[0, 1 << 40, 1 << 40]));
        refused(TensorLayout::strided(DType::U8, &[2, 2], &[usize::MAX, 1]));
        refused(TensorLayout::strided(
            DType::U8,
            &[1 << 33, 1 << 33],
            &[0, 0],
        ));
        refused(TensorLayout::contiguous(DType::U8, &[1; 65]));
        refused(TensorLayout::strided(DType::U8, &[1, 2], &[1]));
    }

    #[test]
    fn data_must_match_its_shape() {
        let error = Tensor::new(&[1.0_f32; 5], &[2, 3]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a tensor of type f4 and shape [2, 3] takes 24 bytes, got 20"
        );
    }

    proptest! {
        #[test]
        fn decoded_layouts_stay_within_their_payload(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let Ok(layout) = TensorLayout::read(&mut Reader::new(&bytes)) else { return Ok(()) };
            if !layout.is_empty() {
                let last: usize =
                    layout.shape().iter().zip(layout.strides().iter()).map(|(length, stride)| (length - 1) * stride).sum();
                prop_assert_eq!(last + layout.dtype().item_bytes(), layout.payload_bytes());
            }
            round_trip(&layout);
        }
    }
}
