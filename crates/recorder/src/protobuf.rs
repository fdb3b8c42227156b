//! The part of Protocol Buffers that recording needs: appending fields, and describing messages.
//!
//! A library (prost, and `foxglove` on top of it) needs the payload in a structure of its own
//! first, which is a copy of every image, and brings a tree of crates for five wire types.

/// Wire type of fixed32.
const FIXED32: u32 = 5;
/// Wire type of fixed64.
const FIXED64: u32 = 1;
/// Wire type of everything with a length prefix.
const LENGTH: u32 = 2;
/// Wire type of varints.
const VARINT: u32 = 0;

pub(crate) const SECOND_NANOS: i64 = 1_000_000_000;

/// Appends an integer, boolean or enum, in LEB128.
pub(crate) fn put_varint(out: &mut Vec<u8>, field: u32, value: u64) {
    put_tag(out, field, VARINT);
    put_number(out, value);
}

/// Appends a `fixed32`.
pub(crate) fn put_fixed32(out: &mut Vec<u8>, field: u32, value: u32) {
    put_tag(out, field, FIXED32);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a `double`.
pub(crate) fn put_double(out: &mut Vec<u8>, field: u32, value: f64) {
    put_tag(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends text, bytes, a message or a packed list.
pub(crate) fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_length(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends what precedes `bytes` bytes of text, bytes, a message or a packed list.
pub(crate) fn put_length(out: &mut Vec<u8>, field: u32, bytes: usize) {
    put_tag(out, field, LENGTH);
    put_number(out, bytes as u64);
}

/// Appends a packed list of varints.
pub(crate) fn put_packed(out: &mut Vec<u8>, field: u32, values: &[usize]) {
    let mut packed = Vec::with_capacity(values.len() * 2);
    values
        .iter()
        .for_each(|&value| put_number(&mut packed, value as u64));
    put_bytes(out, field, &packed);
}

/// Appends a `google.protobuf.Timestamp`.
pub(crate) fn put_timestamp(out: &mut Vec<u8>, field: u32, nanos_since_epoch: i64) {
    let mut timestamp = Vec::with_capacity(20);
    put_varint(
        &mut timestamp,
        1,
        nanos_since_epoch.div_euclid(SECOND_NANOS).cast_unsigned(),
    );
    put_varint(
        &mut timestamp,
        2,
        nanos_since_epoch.rem_euclid(SECOND_NANOS).cast_unsigned(),
    );
    put_bytes(out, field, &timestamp);
}

fn put_tag(out: &mut Vec<u8>, field: u32, wire_type: u32) {
    put_number(out, u64::from(field << 3 | wire_type));
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The type of a described field: its code in `FieldDescriptorProto.Type`, and for a message its
/// name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldType {
    Double,
    Int32,
    Int64,
    UInt64,
    Fixed64,
    SFixed64,
    Fixed32,
    SFixed32,
    Float,
    Bool,
    Text,
    Bytes,
    Timestamp,
}

impl FieldType {
    fn code(self) -> u64 {
        match self {
            Self::Double => 1,
            Self::Float => 2,
            Self::Int64 => 3,
            Self::UInt64 => 4,
            Self::Int32 => 5,
            Self::Fixed64 => 6,
            Self::Fixed32 => 7,
            Self::Bool => 8,
            Self::Text => 9,
            Self::Timestamp => 11,
            Self::Bytes => 12,
            Self::SFixed32 => 15,
            Self::SFixed64 => 16,
        }
    }
}

/// A field of a described message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) number: u32,
    pub(crate) field_type: FieldType,
    pub(crate) is_repeated: bool,
}

/// The `FileDescriptorSet` of one proto3 message, which a recording stores as its schema. Includes
/// `google.protobuf.Timestamp`.
pub(crate) fn file_descriptor_set(package: &str, message: &str, fields: &[Field]) -> Vec<u8> {
    let timestamp = file(
        "google/protobuf/timestamp.proto",
        "google.protobuf",
        &[],
        "Timestamp",
        &[
            Field {
                name: "seconds",
                number: 1,
                field_type: FieldType::Int64,
                is_repeated: false,
            },
            Field {
                name: "nanos",
                number: 2,
                field_type: FieldType::Int32,
                is_repeated: false,
            },
        ],
    );
    let own = file(
        &format!("{package}/{message}.proto"),
        package,
        &["google/protobuf/timestamp.proto"],
        message,
        fields,
    );
    let mut set = Vec::new();
    put_bytes(&mut set, 1, &timestamp);
    put_bytes(&mut set, 1, &own);
    set
}

/// A `FileDescriptorProto`.
fn file(
    name: &str,
    package: &str,
    dependencies: &[&str],
    message: &str,
    fields: &[Field],
) -> Vec<u8> {
    let mut described = Vec::new();
    put_bytes(&mut described, 1, message.as_bytes());
    for field in fields {
        put_bytes(&mut described, 2, &field_descriptor(field));
    }
    let mut file = Vec::new();
    put_bytes(&mut file, 1, name.as_bytes());
    put_bytes(&mut file, 2, package.as_bytes());
    for dependency in dependencies {
        put_bytes(&mut file, 3, dependency.as_bytes());
    }
    put_bytes(&mut file, 4, &described);
    put_bytes(&mut file, 12, b"proto3");
    file
}

/// A `FieldDescriptorProto`. Repeated numbers are packed, as in proto3.
fn field_descriptor(field: &Field) -> Vec<u8> {
    const OPTIONAL: u64 = 1;
    const REPEATED: u64 = 3;
    let mut out = Vec::new();
    put_bytes(&mut out, 1, field.name.as_bytes());
    put_varint(&mut out, 3, field.number.into());
    put_varint(
        &mut out,
        4,
        if field.is_repeated {
            REPEATED
        } else {
            OPTIONAL
        },
    );
    put_varint(&mut out, 5, field.field_type.code());
    if matches!(field.field_type, FieldType::Timestamp) {
        put_bytes(&mut out, 6, b".google.protobuf.Timestamp");
    }
    out
}
