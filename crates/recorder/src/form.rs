//! The form of a sample in a message: how viewers display it.
//!
//! One rule for all forms: the message contains the payload once and unchanged, at a place where
//! the form has room for bytes. Numbers appear as numbers because a packed list in Protocol Buffers
//! is a little-endian array.

mod points;

use nervure_message::array::ArrayLayout;
use nervure_message::{DType, Layout, Scalar, TensorLayout, Value};

use crate::arrow_ipc;
use crate::declared_type::DeclaredType;
use crate::envelope::RecordedEnvelope;
use crate::protobuf as proto;
use crate::record_messages::is_record;
use crate::sample::IncomingSample;

/// The field that carries the envelope in every message of Protocol Buffers, far above the field
/// numbers of Foxglove's messages. Viewers skip fields that are not in their schema.
const ENVELOPE_FIELD: u32 = 50_001;
/// The field that carries the payload of a record, whose values are in the fields before.
const PAYLOAD_FIELD: u32 = 50_000;
/// A message of Protocol Buffers has at most 2 GiB.
const MAX_PROTOBUF_PAYLOAD_BYTES: usize = 1 << 30;
/// Smallest width and height, in pixels, from which an untyped tensor of bytes counts as an image.
const MIN_IMAGE_SIDE: usize = 16;

/// The form of a sample. Samples of one form and topic share a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// `foxglove.RawImage`
    RawImage,
    /// `foxglove.CompressedImage`
    CompressedImage,
    /// `foxglove.PointCloud`
    PointCloud,
    /// `foxglove.Log`
    Log,
    /// `nervure.Float32Tensor` and the like: numbers that can be plotted.
    Numbers(Number),
    /// `nervure.Tensor`: elements for which Protocol Buffers has no array type.
    Tensor,
    /// `nervure.Float64` and the like.
    Scalar(ScalarType),
    /// `nervure.Bytes`
    Bytes,
    /// The message of Foxglove for the type of a record, or one with its fields.
    Record,
    /// A record batch of Arrow IPC.
    Arrow,
    /// Readable by Nervure only: the payload, then the envelope.
    Opaque,
}

/// A number type with arrays in Protocol Buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Number {
    F32,
    F64,
    I32,
    I64,
    U32,
    U64,
}

/// The type of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ScalarType {
    Bool,
    Float64,
    Int64,
    UInt64,
}

impl Form {
    /// The form of a sample, given the declared type of its output.
    pub(crate) fn of(
        sample: &IncomingSample<'_>,
        layout: &Layout,
        declared: &DeclaredType,
    ) -> Self {
        if sample.payload.len() > MAX_PROTOBUF_PAYLOAD_BYTES {
            return Self::Opaque;
        }
        match layout {
            Layout::Bytes if compressed_format(sample.payload).is_some() => Self::CompressedImage,
            Layout::Bytes => Self::Bytes,
            // Text in Protocol Buffers must be UTF-8, which the text of a sample may not be.
            Layout::Text if std::str::from_utf8(sample.payload).is_ok() => Self::Log,
            Layout::Text => Self::Bytes,
            Layout::Scalar(Scalar::Bool(_)) => Self::Scalar(ScalarType::Bool),
            Layout::Scalar(Scalar::Integer(_)) => Self::Scalar(ScalarType::Int64),
            Layout::Scalar(Scalar::Unsigned(_)) => Self::Scalar(ScalarType::UInt64),
            Layout::Scalar(Scalar::Float(_)) => Self::Scalar(ScalarType::Float64),
            Layout::Tensor(tensor) if tensor.payload_bytes() != sample.payload.len() => {
                Self::Opaque
            }
            Layout::Tensor(tensor) => Self::of_tensor(tensor, declared),
            Layout::Array(array) => match &sample.schema {
                Some(schema) if is_record(schema, array) => Self::Record,
                _ => Self::of_array(sample, array),
            },
        }
    }

    /// The form of an array that is no record.
    pub(crate) fn of_array(sample: &IncomingSample<'_>, array: &ArrayLayout) -> Self {
        let placement = sample
            .schema
            .as_ref()
            .and_then(|schema| arrow_ipc::placement(schema, array, sample.payload.len()));
        match placement {
            Some(_) => Self::Arrow,
            None => Self::Opaque,
        }
    }

    fn of_tensor(tensor: &TensorLayout, declared: &DeclaredType) -> Self {
        if declared.is_shown_as("foxglove.PointCloud") && points::fields(tensor, None).is_some() {
            return Self::PointCloud;
        }
        match image_encodings(tensor) {
            Some(_) if declared.is_shown_as("foxglove.RawImage") => return Self::RawImage,
            Some(_)
                if declared.name.is_none()
                    && *tensor.dtype() == DType::U8
                    && looks_like_image(tensor) =>
            {
                return Self::RawImage;
            }
            _ => {}
        }
        let number = match tensor.dtype() {
            DType::F32 => Number::F32,
            DType::F64 => Number::F64,
            DType::I32 => Number::I32,
            DType::I64 => Number::I64,
            DType::U32 => Number::U32,
            DType::U64 => Number::U64,
            _ => return Self::Tensor,
        };
        if tensor.is_contiguous() {
            Self::Numbers(number)
        } else {
            Self::Tensor
        }
    }

    /// The encoding of the channel's messages.
    pub(crate) fn message_encoding(self) -> &'static str {
        match self {
            Self::Arrow => "arrow",
            Self::Opaque => OPAQUE_ENCODING,
            _ => "protobuf",
        }
    }

    /// Writes the message.
    /// `record` has the fields of the message for a record.
    pub(crate) fn write(
        self,
        message: &mut Vec<u8>,
        sample: &IncomingSample<'_>,
        layout: &Layout,
        topic: &str,
        record: &[u8],
    ) {
        let envelope = RecordedEnvelope {
            header: sample.header,
            frame: sample.frame.as_deref().unwrap_or_default(),
            head: sample.head,
        };
        message.clear();
        message.reserve(sample.payload.len() + envelope.bytes() + 512);
        match (self, layout, &sample.schema) {
            (Self::Opaque, ..) => put_payload(message, sample, &envelope, |_| {}),
            (Self::Arrow, Layout::Array(array), Some(schema)) => {
                let placement = arrow_ipc::placement(schema, array, sample.payload.len());
                let placement = placement.expect("the form was chosen because there is one");
                // Body and envelope together are whole words.
                let padding = (sample.payload.len() + envelope.bytes()).next_multiple_of(8)
                    - (sample.payload.len() + envelope.bytes());
                let body_bytes = sample.payload.len() + padding + envelope.bytes();
                message.extend(arrow_ipc::before_body(
                    schema,
                    &placement,
                    sample.payload,
                    body_bytes,
                ));
                put_payload(message, sample, &envelope, |message| {
                    message.extend(&[0; 8][..padding])
                });
            }
            _ => {
                match self {
                    Self::Record => {
                        message.extend_from_slice(record);
                        proto::put_length(message, PAYLOAD_FIELD, sample.payload.len());
                    }
                    _ => self.write_before(message, sample, layout, topic),
                }
                put_payload(message, sample, &envelope, |message| {
                    proto::put_length(message, ENVELOPE_FIELD, envelope.bytes());
                });
            }
        }
    }

    /// Writes everything that precedes the payload, which is the last known field of the message.
    fn write_before(
        self,
        out: &mut Vec<u8>,
        sample: &IncomingSample<'_>,
        layout: &Layout,
        topic: &str,
    ) {
        let frame = sample.frame.as_deref().unwrap_or_default().as_bytes();
        proto::put_timestamp(out, 1, sample.header.stamp);
        let payload_field = match (self, layout) {
            (Self::RawImage, Layout::Tensor(tensor)) => {
                put_image(out, tensor, sample);
                proto::put_bytes(out, 7, frame);
                6
            }
            (Self::CompressedImage, _) => {
                let format = compressed_format(sample.payload).unwrap_or_default();
                proto::put_bytes(out, 3, format.as_bytes());
                proto::put_bytes(out, 4, frame);
                2
            }
            (Self::PointCloud, Layout::Tensor(tensor)) => {
                proto::put_bytes(out, 2, frame);
                points::put(out, tensor, sample);
                6
            }
            (Self::Log, _) => {
                const INFO: u64 = 2;
                proto::put_varint(out, 2, INFO);
                proto::put_bytes(out, 4, topic.as_bytes());
                3
            }
            (Self::Numbers(_), Layout::Tensor(tensor)) => {
                proto::put_bytes(out, 2, frame);
                proto::put_packed(out, 3, tensor.shape());
                4
            }
            (Self::Tensor, Layout::Tensor(tensor)) => {
                proto::put_bytes(out, 2, frame);
                proto::put_bytes(out, 3, tensor.dtype().numpy_name().as_bytes());
                proto::put_packed(out, 4, tensor.shape());
                proto::put_packed(out, 5, &tensor.strides());
                6
            }
            (Self::Scalar(_), Layout::Scalar(scalar)) => {
                proto::put_bytes(out, 2, frame);
                match scalar {
                    Scalar::Bool(value) => proto::put_varint(out, 3, (*value).into()),
                    Scalar::Integer(value) => proto::put_varint(out, 3, value.cast_unsigned()),
                    Scalar::Unsigned(value) => proto::put_varint(out, 3, *value),
                    Scalar::Float(value) => proto::put_double(out, 3, *value),
                }
                // The value is in the head; the payload is empty.
                return;
            }
            _ => {
                proto::put_bytes(out, 2, frame);
                3
            }
        };
        proto::put_length(out, payload_field, sample.payload.len());
    }
}

/// Writes the payload, the bytes between, and the envelope.
fn put_payload(
    message: &mut Vec<u8>,
    sample: &IncomingSample<'_>,
    envelope: &RecordedEnvelope<'_>,
    put_between: impl FnOnce(&mut Vec<u8>),
) {
    let payload_start = message.len();
    message.extend_from_slice(sample.payload);
    put_between(message);
    envelope.write(message, payload_start, sample.payload.len());
}

/// Encoding of messages that only Nervure reads.
pub(crate) const OPAQUE_ENCODING: &str = "nervure";

/// Foxglove's names for the pixels of a tensor that can be an image. The usual meaning is first;
/// metadata may select another.
fn image_encodings(tensor: &TensorLayout) -> Option<&'static [&'static str]> {
    let fits = tensor.is_contiguous()
        && tensor
            .shape()
            .iter()
            .all(|&side| u32::try_from(side).is_ok())
        && u32::try_from(tensor.payload_bytes()).is_ok();
    if !fits || tensor.is_empty() {
        return None;
    }
    match (tensor.dtype(), tensor.shape()) {
        (DType::U8, [_, _] | [_, _, 1]) => Some(&[
            "mono8",
            "8UC1",
            "bayer_rggb8",
            "bayer_bggr8",
            "bayer_gbrg8",
            "bayer_grbg8",
        ]),
        (DType::U8, [_, _, 2]) => Some(&["uyvy", "yuyv", "yuv422", "yuv422_yuy2"]),
        (DType::U8, [_, _, 3]) => Some(&["rgb8", "bgr8", "8UC3"]),
        (DType::U8, [_, _, 4]) => Some(&["rgba8", "bgra8"]),
        (DType::U16, [_, _] | [_, _, 1]) => Some(&["mono16", "16UC1"]),
        (DType::F32, [_, _] | [_, _, 1]) => Some(&["32FC1"]),
        _ => None,
    }
}

/// Whether an untyped tensor of bytes is more likely to be an image than a table.
fn looks_like_image(tensor: &TensorLayout) -> bool {
    let channels = tensor.shape().get(2).copied().unwrap_or(1);
    channels != 2
        && tensor.shape()[..2]
            .iter()
            .all(|&side| side >= MIN_IMAGE_SIDE)
}

fn put_image(out: &mut Vec<u8>, tensor: &TensorLayout, sample: &IncomingSample<'_>) {
    let (height, width) = (tensor.shape()[0], tensor.shape()[1]);
    let encodings = image_encodings(tensor).unwrap_or(&["8UC1"]);
    // The encoding named in the metadata is used if the pixels can have it.
    let named = match sample.metadata_value("encoding") {
        Some(Value::Text(name)) => encodings
            .iter()
            .find(|known| known.eq_ignore_ascii_case(&name))
            .copied(),
        _ => None,
    };
    proto::put_fixed32(out, 2, width as u32);
    proto::put_fixed32(out, 3, height as u32);
    proto::put_bytes(out, 4, named.unwrap_or(encodings[0]).as_bytes());
    proto::put_fixed32(out, 5, (tensor.payload_bytes() / height) as u32);
}

/// The format of a compressed image, from its first bytes.
fn compressed_format(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xff, 0xd8, 0xff, ..] => Some("jpeg"),
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some("png"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("webp"),
        _ => None,
    }
}
