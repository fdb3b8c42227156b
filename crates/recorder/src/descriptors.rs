//! The schemas of Protocol Buffers messages, as `FileDescriptorSet`s.

use crate::arrow_ipc;
use crate::channel_schema::{ChannelSchema, foxglove};
use crate::form::{Form, Number, ScalarType};
use crate::protobuf::{Field, FieldType, file_descriptor_set};
use crate::sample::IncomingSample;

impl Form {
    /// The schema of the channel for samples like this one; `None` if it has none.
    pub(crate) fn schema(self, sample: &IncomingSample<'_>) -> Option<ChannelSchema> {
        let (name, encoding, data) = match (self, &sample.schema) {
            (Self::Arrow, Some(schema)) => ("arrow".to_owned(), "arrow", arrow_ipc::schema(schema)),
            _ => {
                let (name, descriptors) = descriptors(self)?;
                (name, "protobuf", descriptors)
            }
        };
        Some(ChannelSchema {
            name,
            encoding,
            data,
        })
    }
}

/// Name and descriptors of a form's messages; `None` if the form is not Protocol Buffers.
fn descriptors(form: Form) -> Option<(String, Vec<u8>)> {
    let own = |message: &str, fields: &[Field]| {
        let fields = [HEADER.as_slice(), fields].concat();
        Some((
            format!("nervure.{message}"),
            file_descriptor_set("nervure", message, &fields),
        ))
    };
    let shown = |message: &str| Some((message.to_owned(), foxglove(message)?.to_vec()));
    match form {
        Form::RawImage => shown("foxglove.RawImage"),
        Form::CompressedImage => shown("foxglove.CompressedImage"),
        Form::PointCloud => shown("foxglove.PointCloud"),
        Form::Log => shown("foxglove.Log"),
        Form::Numbers(number) => {
            let (message, field_type) = match number {
                Number::F32 => ("Float32Tensor", FieldType::Float),
                Number::F64 => ("Float64Tensor", FieldType::Double),
                Number::I32 => ("Int32Tensor", FieldType::SFixed32),
                Number::I64 => ("Int64Tensor", FieldType::SFixed64),
                Number::U32 => ("UInt32Tensor", FieldType::Fixed32),
                Number::U64 => ("UInt64Tensor", FieldType::Fixed64),
            };
            own(
                message,
                &[
                    repeated("shape", 3, FieldType::UInt64),
                    repeated("data", 4, field_type),
                ],
            )
        }
        Form::Tensor => own(
            "Tensor",
            &[
                single("dtype", 3, FieldType::Text),
                repeated("shape", 4, FieldType::UInt64),
                repeated("strides", 5, FieldType::UInt64),
                single("data", 6, FieldType::Bytes),
            ],
        ),
        Form::Scalar(scalar) => {
            let (message, field_type) = match scalar {
                ScalarType::Bool => ("Bool", FieldType::Bool),
                ScalarType::Float64 => ("Float64", FieldType::Double),
                ScalarType::Int64 => ("Int64", FieldType::Int64),
                ScalarType::UInt64 => ("UInt64", FieldType::UInt64),
            };
            own(message, &[single("value", 3, field_type)])
        }
        Form::Bytes => own("Bytes", &[single("data", 3, FieldType::Bytes)]),
        Form::Record | Form::Arrow | Form::Opaque => None,
    }
}

/// First fields of all messages of package `nervure`.
const HEADER: [Field; 2] = [
    single("timestamp", 1, FieldType::Timestamp),
    single("frame_id", 2, FieldType::Text),
];

const fn single(name: &'static str, number: u32, field_type: FieldType) -> Field {
    Field {
        name,
        number,
        field_type,
        is_repeated: false,
    }
}

const fn repeated(name: &'static str, number: u32, field_type: FieldType) -> Field {
    Field {
        name,
        number,
        field_type,
        is_repeated: true,
    }
}
