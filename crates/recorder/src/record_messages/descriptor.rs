//! The description of records as messages of Protocol Buffers, for types that Foxglove has no message
//! for: fields have their names, numbers their type, lists and tensors are repeated.
//!
//! It is proto2, where every field may be absent.

use nervure_message::record::{ColumnKind, RecordColumns};
use nervure_message::{DType, TypeName};
use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use prost_reflect::prost_types::{
    DescriptorProto, FieldDescriptorProto, FieldOptions, FileDescriptorProto, FileDescriptorSet,
};
use prost_reflect::{DescriptorPool, MessageDescriptor};

/// The number of the field with the stamp.
pub(super) const STAMP: u32 = 1;
/// The number of the field with the frame.
pub(super) const FRAME: u32 = 2;
/// The number of the first field of the record itself.
pub(super) const FIRST_FIELD: u32 = 3;
/// Numbers from here on are reserved by Protocol Buffers.
const NUMBER_LIMIT: u32 = 19_000;
const TIMESTAMP_FILE: &str = "google/protobuf/timestamp.proto";
/// The only field of the message for a list in a list.
const ITEMS: [&str; 2] = ["items", "items_message"];

/// Describes the records of these columns; `None` if they have too many fields.
pub(super) fn describe(
    type_name: Option<&str>,
    columns: &RecordColumns,
) -> Option<(FileDescriptorSet, MessageDescriptor)> {
    let type_name: Option<TypeName> = type_name.and_then(|name| name.parse().ok());
    let (package, name) = match &type_name {
        Some(name) => (name.namespace(), name.name()),
        None => ("nervure", "Record"),
    };
    let full_name = format!("{package}.{name}");
    let mut message = record(columns, 0, name, &format!(".{full_name}"), FIRST_FIELD)?;
    let stamp = FieldDescriptorProto {
        type_name: Some(".google.protobuf.Timestamp".to_owned()),
        ..field("timestamp", STAMP, Label::Optional, Type::Message)
    };
    for header in [
        stamp,
        field("frame_id", FRAME, Label::Optional, Type::String),
    ] {
        // A record may have a field of this name.
        if message.field.iter().all(|known| known.name != header.name) {
            message.field.insert(0, header);
        }
    }
    let timestamp = DescriptorPool::global().get_file_by_name(TIMESTAMP_FILE)?;
    let file = FileDescriptorProto {
        name: Some(format!("{package}/{name}.proto")),
        package: Some(package.to_owned()),
        dependency: vec![TIMESTAMP_FILE.to_owned()],
        message_type: vec![message],
        ..FileDescriptorProto::default()
    };
    let set = FileDescriptorSet {
        file: vec![timestamp.file_descriptor_proto().clone(), file],
    };
    let pool = DescriptorPool::from_file_descriptor_set(set.clone()).ok()?;
    Some((set, pool.get_message_by_name(&full_name)?))
}

/// A message for the records in a column. The n-th field has the n-th number from `first` on.
fn record(
    columns: &RecordColumns,
    column: usize,
    name: &str,
    full_name: &str,
    first: u32,
) -> Option<DescriptorProto> {
    let mut message = DescriptorProto {
        name: Some(name.to_owned()),
        ..DescriptorProto::default()
    };
    let mut names = Names::default();
    let children: Vec<(usize, String)> = columns
        .children(column)
        .map(|child| (child, names.unique(columns.column(child).name())))
        .collect();
    for (number, (child, name)) in (first..).zip(children) {
        if number >= NUMBER_LIMIT {
            return None;
        }
        // Fields and messages in a message share their names.
        let nested = names.unique(&format!("{name}_message"));
        add_field(
            &mut message,
            columns,
            child,
            [&name, &nested],
            full_name,
            number,
        )?;
    }
    Some(message)
}

/// Adds the field for a column, with the message that it needs. Columns that Protocol Buffers cannot
/// express, and those of nulls, get no field.
fn add_field(
    message: &mut DescriptorProto,
    columns: &RecordColumns,
    column: usize,
    [name, nested]: [&str; 2],
    within: &str,
    number: u32,
) -> Option<()> {
    let (label, one) = match columns.column(column).kind() {
        ColumnKind::List => (Label::Repeated, column + 1),
        ColumnKind::Tensor { .. } => (Label::Repeated, column),
        _ => (Label::Optional, column),
    };
    let full_name = format!("{within}.{nested}");
    let (field_type, described) = match columns.column(one).kind() {
        ColumnKind::Bool => (Type::Bool, None),
        ColumnKind::Number(dtype) => (number_type(dtype)?, None),
        ColumnKind::Tensor { dtype, .. } if one == column => match number_type(dtype) {
            Some(number) => (number, None),
            None => return Some(()),
        },
        ColumnKind::Text => (Type::String, None),
        ColumnKind::Bytes => (Type::Bytes, None),
        ColumnKind::Record => {
            let described = record(columns, one, nested, &full_name, 1)?;
            (Type::Message, Some(described))
        }
        ColumnKind::List | ColumnKind::Tensor { .. } => {
            let mut list = DescriptorProto {
                name: Some(nested.to_owned()),
                ..DescriptorProto::default()
            };
            add_field(&mut list, columns, one, ITEMS, &full_name, 1)?;
            (Type::Message, Some(list))
        }
        ColumnKind::Null | ColumnKind::Other(_) => return Some(()),
    };
    let is_packed = matches!(label, Label::Repeated)
        && !matches!(field_type, Type::String | Type::Bytes | Type::Message);
    message.field.push(FieldDescriptorProto {
        type_name: described.is_some().then_some(full_name),
        options: is_packed.then(|| FieldOptions {
            packed: Some(true),
            ..FieldOptions::default()
        }),
        ..field(name, number, label, field_type)
    });
    message.nested_type.extend(described);
    Some(())
}

fn field(name: &str, number: u32, label: Label, field_type: Type) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        // Without it `a_b` and `aB` would be one name in JSON.
        json_name: Some(name.to_owned()),
        number: i32::try_from(number).ok(),
        label: Some(label.into()),
        r#type: Some(field_type.into()),
        ..FieldDescriptorProto::default()
    }
}

/// The type for numbers; `None` for elements that are no real numbers.
fn number_type(dtype: &DType) -> Option<Type> {
    Some(match dtype {
        DType::Bool => Type::Bool,
        DType::I8 | DType::I16 | DType::I32 => Type::Int32,
        DType::U8 | DType::U16 | DType::U32 => Type::Uint32,
        DType::I64 => Type::Int64,
        DType::U64 => Type::Uint64,
        DType::F16 | DType::Bf16 | DType::F32 => Type::Float,
        DType::F64 => Type::Double,
        DType::C64 | DType::C128 | DType::Custom { .. } => return None,
    })
}

/// Names of fields in a message.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    /// The name with letters, digits and `_` only, and with a number if it occurs already.
    fn unique(&mut self, name: &str) -> String {
        let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let mut plain: String = name.chars().map(allowed).collect();
        if !plain.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
            plain.insert(0, '_');
        }
        let numbered = (2..).map(|number| format!("{plain}_{number}"));
        let mut candidates = std::iter::once(plain.clone()).chain(numbered);
        let unique = candidates.find(|candidate| !self.0.contains(candidate));
        let unique = unique.expect("numbers do not end");
        self.0.push(unique.clone());
        unique
    }
}
