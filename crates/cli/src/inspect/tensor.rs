//! Reads the numbers of a tensor, computes statistics, and writes files.

use std::io::{self, Write};

use half::{bf16, f16};
use nervure_node::message::{DType, TensorLayout};

/// Statistics of the finite numbers of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    pub not_finite: u64,
}

impl Statistics {
    /// `None` without a finite number.
    pub fn of(numbers: impl Iterator<Item = f64>) -> Option<Self> {
        let (mut min, mut max, mut sum) = (f64::INFINITY, f64::NEG_INFINITY, 0.0);
        let (mut count, mut not_finite) = (0u64, 0u64);
        for number in numbers {
            if number.is_finite() {
                (min, max, sum, count) =
                    (min.min(number), max.max(number), sum + number, count + 1);
            } else {
                not_finite += 1;
            }
        }
        (count > 0).then(|| Self {
            min,
            max,
            mean: sum / count as f64,
            not_finite,
        })
    }
}

/// The elements of a tensor in C order; `None` if they are not real numbers.
pub fn elements<'a>(
    layout: &'a TensorLayout,
    payload: &'a [u8],
) -> Option<impl Iterator<Item = f64> + 'a> {
    let read = reader(layout.dtype())?;
    Some(layout.places().map(move |place| read(&payload[place..])))
}

/// `uint8` for `u1`.
pub fn readable_name(dtype: &DType) -> &str {
    match dtype {
        DType::Bool => "bool",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "uint8",
        DType::U16 => "uint16",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
        DType::F16 => "float16",
        DType::Bf16 => "bfloat16",
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::C64 => "complex64",
        DType::C128 => "complex128",
        DType::Custom { name, .. } => name,
    }
}

/// The bytes of a tensor in C order.
pub fn packed(layout: &TensorLayout, payload: &[u8]) -> Vec<u8> {
    let item_bytes = layout.dtype().item_bytes();
    if layout.is_contiguous() {
        return payload[..layout.len() * item_bytes].to_vec();
    }
    layout
        .places()
        .flat_map(|place| payload[place..place + item_bytes].iter().copied())
        .collect()
}

/// Writes a tensor as NumPy does (format version 1.0, `numpy.lib.format`).
pub fn write_npy(out: &mut impl Write, layout: &TensorLayout, payload: &[u8]) -> io::Result<()> {
    let descr = match layout.dtype() {
        DType::Bool | DType::I8 | DType::U8 => format!("'|{}'", layout.dtype().numpy_name()),
        // NumPy has no bfloat16: 2 opaque bytes.
        DType::Bf16 => "'|V2'".to_owned(),
        DType::Custom { name, .. } if name.starts_with('[') => name.to_string(),
        DType::Custom { name, .. } => format!("'{name}'"),
        plain => format!("'<{}'", plain.numpy_name()),
    };
    let shape: String = layout
        .shape()
        .iter()
        .map(|length| format!("{length},"))
        .collect();
    let mut header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': ({shape}), }}");
    const BEFORE: usize = 10;
    let padded = (BEFORE + header.len() + 1).next_multiple_of(64);
    header.push_str(&" ".repeat(padded - BEFORE - header.len() - 1));
    header.push('\n');
    let length =
        u16::try_from(header.len()).map_err(|_| io::Error::other("the shape is too long"))?;
    out.write_all(b"\x93NUMPY\x01\x00")?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    out.write_all(&packed(layout, payload))
}

/// Writes an image with 8 bits per channel. With `is_bgr` the first channel is blue.
pub fn write_png(
    out: impl Write,
    layout: &TensorLayout,
    payload: &[u8],
    is_bgr: bool,
) -> io::Result<()> {
    let (height, width, channels) = match *layout.shape() {
        [height, width] => (height, width, 1),
        [height, width, channels] => (height, width, channels),
        _ => return Err(io::Error::other("it is no image")),
    };
    let colour = match channels {
        1 => png::ColorType::Grayscale,
        2 => png::ColorType::GrayscaleAlpha,
        3 => png::ColorType::Rgb,
        _ => png::ColorType::Rgba,
    };
    let size = |length: usize| u32::try_from(length).map_err(io::Error::other);
    let mut pixels = packed(layout, payload);
    if is_bgr && channels >= 3 {
        for pixel in pixels.chunks_exact_mut(channels) {
            pixel.swap(0, 2);
        }
    }
    let mut encoder = png::Encoder::new(out, size(width)?, size(height)?);
    encoder.set_color(colour);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    Ok(writer.finish()?)
}

fn reader(dtype: &DType) -> Option<fn(&[u8]) -> f64> {
    macro_rules! native {
        ($type:ty, $to:expr) => {
            |bytes: &[u8]| {
                let mut own = [0; size_of::<$type>()];
                own.copy_from_slice(&bytes[..size_of::<$type>()]);
                let to: fn($type) -> f64 = $to;
                to(<$type>::from_le_bytes(own))
            }
        };
    }
    Some(match dtype {
        DType::Bool | DType::U8 => native!(u8, f64::from),
        DType::I8 => native!(i8, f64::from),
        DType::I16 => native!(i16, f64::from),
        DType::I32 => native!(i32, f64::from),
        DType::I64 => native!(i64, |value| value as f64),
        DType::U16 => native!(u16, f64::from),
        DType::U32 => native!(u32, f64::from),
        DType::U64 => native!(u64, |value| value as f64),
        DType::F16 => native!(f16, f64::from),
        DType::Bf16 => native!(bf16, f64::from),
        DType::F32 => native!(f32, f64::from),
        DType::F64 => native!(f64, f64::from),
        DType::C64 | DType::C128 | DType::Custom { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_in_c_order_whatever_the_strides() {
        // A 2x3 matrix whose columns lie one after the other.
        let layout = TensorLayout::strided(DType::U8, &[2, 3], &[1, 2]).unwrap();
        let payload = [0, 3, 1, 4, 2, 5];
        assert_eq!(
            elements(&layout, &payload).unwrap().collect::<Vec<_>>(),
            [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        );
        assert_eq!(packed(&layout, &payload), [0, 1, 2, 3, 4, 5]);
        let halves: Vec<u8> = [f16::from_f32(1.5), f16::from_f32(-2.0)]
            .iter()
            .flat_map(|h| h.to_le_bytes())
            .collect();
        let layout = TensorLayout::contiguous(DType::F16, &[2]).unwrap();
        assert_eq!(
            elements(&layout, &halves).unwrap().collect::<Vec<_>>(),
            [1.5, -2.0]
        );
    }

    #[test]
    fn npy_is_what_numpy_writes() {
        let layout = TensorLayout::contiguous(DType::F32, &[2]).unwrap();
        let mut out = Vec::new();
        write_npy(&mut out, &layout, &[0; 8]).unwrap();
        assert_eq!(out.len(), 128 + 8);
        let text = String::from_utf8_lossy(&out[10..128]);
        assert!(
            text.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } "),
            "{text}"
        );
        assert!(text.ends_with('\n'));
    }

    #[test]
    fn png_holds_the_pixels_in_their_order() {
        let layout = TensorLayout::contiguous(DType::U8, &[1, 2, 3]).unwrap();
        let mut out = Vec::new();
        write_png(&mut out, &layout, &[1, 2, 3, 4, 5, 6], true).unwrap();
        let mut reader = png::Decoder::new(io::Cursor::new(out)).read_info().unwrap();
        let mut pixels = [0; 6];
        reader.next_frame(&mut pixels).unwrap();
        assert_eq!(pixels, [3, 2, 1, 6, 5, 4]);
    }
}
