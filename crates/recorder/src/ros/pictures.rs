//! `sensor_msgs/Image` and `sensor_msgs/CompressedImage`.

use std::borrow::Cow;

use nervure_message::{DType, Layout, Metadata, TensorLayout};

use super::content::{Content, MessageError, RosHeader, short_text};
use nervure_types::cdr::Reader;

/// Fields of `sensor_msgs/Image`, in the order in which they are read here.
pub(crate) const IMAGE_FIELDS: [(&str, &str); 7] = [
    ("header", "std_msgs/Header"),
    ("height", "uint32"),
    ("width", "uint32"),
    ("encoding", "string"),
    ("is_bigendian", "uint8"),
    ("step", "uint32"),
    ("data", "uint8[]"),
];

/// Fields of `sensor_msgs/CompressedImage`, in the order in which they are read here.
pub(crate) const COMPRESSED_FIELDS: [(&str, &str); 3] = [
    ("header", "std_msgs/Header"),
    ("format", "string"),
    ("data", "uint8[]"),
];

/// The fields of an image.
pub(crate) struct Picture<'a> {
    pub(crate) header: RosHeader,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) encoding: String,
    pub(crate) is_big_endian: bool,
    /// Bytes of a row. Rows may have padding.
    pub(crate) step: usize,
    pub(crate) data: &'a [u8],
}

impl<'a> Picture<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, MessageError> {
        let header = RosHeader::read(reader)?;
        let (height, width) = (reader.u32()? as usize, reader.u32()? as usize);
        Ok(Self {
            header,
            height,
            width,
            encoding: short_text(reader.text()?, "encoding")?,
            is_big_endian: reader.u8()? != 0,
            step: reader.u32()? as usize,
            data: reader.byte_sequence()?,
        })
    }

    /// A tensor of height x width, or height x width x channels.
    pub(crate) fn content(self) -> Result<Content<'a>, MessageError> {
        let Self {
            header,
            height,
            width,
            encoding,
            is_big_endian,
            step,
            data,
        } = self;
        let mut metadata = Metadata::new();
        metadata.insert("encoding", encoding.clone());
        let Some((dtype, channels)) = pixels(&encoding) else {
            // An unknown encoding: the bytes as they are, for the receiver to interpret.
            for (name, value) in [("height", height), ("width", width), ("step", step)] {
                metadata.insert(name, value as i64);
            }
            let layout = Layout::Tensor(TensorLayout::contiguous(DType::U8, &[data.len()])?);
            return Ok(Content {
                header,
                layout,
                metadata,
                payload: Cow::Borrowed(data),
            });
        };
        let item_bytes = dtype.item_bytes();
        let row_bytes = width.saturating_mul(channels).saturating_mul(item_bytes);
        if step < row_bytes {
            return Err(MessageError::Image(format!(
                "{width} pixels of {encoding} do not fit its step of {step} bytes"
            )));
        }
        let layout = match channels {
            1 => TensorLayout::strided(dtype, &[height, width], &[step, item_bytes])?,
            _ => {
                let strides = [step, channels * item_bytes, item_bytes];
                TensorLayout::strided(dtype, &[height, width, channels], &strides)?
            }
        };
        let Some(data) = data.get(..layout.payload_bytes()) else {
            let wanted = layout.payload_bytes();
            return Err(MessageError::Image(format!(
                "it has {} bytes of {wanted} that its size asks for",
                data.len()
            )));
        };
        let mut payload = Cow::Borrowed(data);
        if is_big_endian && item_bytes > 1 && !data.is_empty() {
            // With an odd step, rows are not aligned to elements. Each row is reversed separately.
            for row in payload.to_mut().chunks_mut(step) {
                row.chunks_exact_mut(item_bytes).for_each(<[u8]>::reverse);
            }
        }
        Ok(Content {
            header,
            layout: Layout::Tensor(layout),
            metadata,
            payload,
        })
    }
}

/// The bytes of a JPEG, PNG or other `format`.
pub(crate) fn compressed_content(
    header: RosHeader,
    format: String,
    data: Cow<'_, [u8]>,
) -> Content<'_> {
    Content {
        header,
        layout: Layout::Bytes,
        metadata: [("format", format)].into_iter().collect(),
        payload: data,
    }
}

pub(crate) fn compressed<'a>(reader: &mut Reader<'a>) -> Result<Content<'a>, MessageError> {
    let header = RosHeader::read(reader)?;
    let format = short_text(reader.text()?, "format")?;
    let data = Cow::Borrowed(reader.byte_sequence()?);
    Ok(compressed_content(header, format, data))
}

/// Type and number of the values of a pixel, by the names of `sensor_msgs/image_encodings.hpp`;
/// `None` for encodings whose pixels are not contiguous.
fn pixels(encoding: &str) -> Option<(DType, usize)> {
    Some(match encoding {
        "mono8" | "bayer_rggb8" | "bayer_bggr8" | "bayer_gbrg8" | "bayer_grbg8" => (DType::U8, 1),
        "mono16" | "bayer_rggb16" | "bayer_bggr16" | "bayer_gbrg16" | "bayer_grbg16" => {
            (DType::U16, 1)
        }
        "rgb8" | "bgr8" => (DType::U8, 3),
        "rgba8" | "bgra8" => (DType::U8, 4),
        "rgb16" | "bgr16" => (DType::U16, 3),
        "rgba16" | "bgra16" => (DType::U16, 4),
        "uyvy" | "yuyv" | "yuv422" | "yuv422_yuy2" => (DType::U8, 2),
        // `32FC1`: bits, kind, number of channels (1 by default).
        _ => {
            let (dtype, channels) = encoding.split_once('C')?;
            let dtype = match dtype {
                "8U" => DType::U8,
                "8S" => DType::I8,
                "16U" => DType::U16,
                "16S" => DType::I16,
                "32S" => DType::I32,
                "32F" => DType::F32,
                "64F" => DType::F64,
                _ => return None,
            };
            const MOST_CHANNELS: usize = 512;
            let channels = if channels.is_empty() {
                1
            } else {
                channels.parse().ok()?
            };
            if !(1..=MOST_CHANNELS).contains(&channels) {
                return None;
            }
            (dtype, channels)
        }
    })
}
