//! The hash by which ROS 2 compares types: RIHS01 of REP 2016 (`rosidl_generator_type_description`).
//!
//! It is the SHA-256 of the type's description as JSON, in the form of Python's `json.dumps`. Names of
//! fields and their types count; constants, defaults and comments do not.

use std::collections::BTreeMap;
use std::fmt::Write;

use ring::digest::{SHA256, digest};

use crate::definition::{Definition, Kind, Number};

/// The hash of a type; `None` for types that ROS 2 cannot describe (lists of lists, from IDL).
pub fn rihs01(definition: &Definition) -> Option<String> {
    let mut known = BTreeMap::new();
    describe(definition, &mut known)?;
    let own = known.remove(&type_name(&definition.name))?;
    let others: Vec<String> = known.into_values().collect();
    let json = format!(
        r#"{{"type_description": {own}, "referenced_type_descriptions": [{}]}}"#,
        others.join(", ")
    );
    let mut hash = "RIHS01_".to_owned();
    for byte in digest(&SHA256, json.as_bytes()).as_ref() {
        let _ = write!(hash, "{byte:02x}");
    }
    Some(hash)
}

/// Adds the descriptions of a type and those in it, by name.
fn describe(definition: &Definition, known: &mut BTreeMap<String, String>) -> Option<()> {
    let name = type_name(&definition.name);
    if known.contains_key(&name) {
        return Some(());
    }
    let mut fields = Vec::new();
    for field in &definition.fields {
        fields.push(described_field(&field.name, &field.kind, known)?);
    }
    if fields.is_empty() {
        let kind = Kind::Number(Number::U8);
        fields.push(described_field(
            "structure_needs_at_least_one_member",
            &kind,
            known,
        )?);
    }
    let description = format!(
        r#"{{"type_name": "{name}", "fields": [{}]}}"#,
        fields.join(", ")
    );
    known.insert(name, description);
    Some(())
}

fn described_field(
    name: &str,
    kind: &Kind,
    known: &mut BTreeMap<String, String>,
) -> Option<String> {
    const ARRAY: u32 = 48;
    const BOUNDED_SEQUENCE: u32 = 96;
    const SEQUENCE: u32 = 144;
    let (item, offset, capacity) = match kind {
        Kind::Array(item, count) => (&**item, ARRAY, *count),
        Kind::Sequence(item, Some(most)) => (&**item, BOUNDED_SEQUENCE, *most),
        Kind::Sequence(item, None) => (&**item, SEQUENCE, 0),
        plain => (plain, 0, 0),
    };
    let (code, most_bytes, nested) = match item {
        Kind::Message(message) => {
            describe(message, known)?;
            (1, 0, type_name(&message.name))
        }
        Kind::Number(number) => (code_of(*number), 0, String::new()),
        Kind::Bool => (15, 0, String::new()),
        Kind::Text(None) => (17, 0, String::new()),
        Kind::Text(Some(most)) => (21, *most, String::new()),
        Kind::Array(..) | Kind::Sequence(..) => return None,
    };
    Some(format!(
        r#"{{"name": "{name}", "type": {{"type_id": {}, "capacity": {capacity}, "string_capacity": {most_bytes}, "nested_type_name": "{nested}"}}}}"#,
        code + offset
    ))
}

/// The constants of `type_description_interfaces/FieldType`.
fn code_of(number: Number) -> u32 {
    match number {
        Number::I8 => 2,
        Number::U8 => 3,
        Number::I16 => 4,
        Number::U16 => 5,
        Number::I32 => 6,
        Number::U32 => 7,
        Number::I64 => 8,
        Number::U64 => 9,
        Number::F32 => 10,
        Number::F64 => 11,
        Number::Char => 13,
        Number::Byte => 16,
    }
}

/// `package/msg/Name`
fn type_name(plain: &str) -> String {
    match plain.split_once('/') {
        Some((package, name)) if !name.contains('/') => format!("{package}/msg/{name}"),
        _ => plain.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Library, Sections, humble};

    /// Name and hash of each type, by `rosbags` 0.11.9.
    const EXPECTED: &str = include_str!("../ros/rihs01.txt");
    /// Two types in it that ROS does not have, for bounds and kinds of numbers that its types lack.
    const OTHERS: [(&str, &[u8]); 2] = [
        (
            "test_msgs/Bounds",
            b"string<=10 name\nstring<=4[] labels\nstring<=4[<=3] few\nstring<=4[2] pair\nuint8[<=3] small\n\
              byte[4] raw\nchar[] letters\nbool[] flags\ngeometry_msgs/Pose[<=2] poses\n",
        ),
        (
            "test_msgs/Numbers",
            b"int8 a\nuint8 b\nint16 c\nuint16 d\nint32 e\nuint32 f\nint64 g\nuint64 h\nfloat32 i\n\
              float64 j\nbool k\nbyte l\nchar m\nstring n\n",
        ),
    ];

    #[test]
    fn hashes_are_those_of_another_implementation() {
        let mut others = Sections::default();
        for (name, text) in OTHERS {
            others.add_file(Format::Message, name, name, text).unwrap();
        }
        let sources = [&others, humble()];
        let mut hashed = Vec::new();
        for line in EXPECTED.lines().filter(|line| !line.starts_with('#')) {
            let (name, expected) = line.split_once(' ').unwrap();
            let definition = Library::new(&sources).definition(name).unwrap();
            assert_eq!(rihs01(&definition).as_deref(), Some(expected), "{name}");
            hashed.push(name);
        }
        let own = humble()
            .names()
            .into_iter()
            .filter(|name| !name.contains("/srv/"));
        let all: Vec<&str> = own.chain(OTHERS.iter().map(|(name, _)| *name)).collect();
        assert_eq!(hashed, all);
    }

    #[test]
    fn lists_of_lists_have_no_hash() {
        let mut sections = Sections::default();
        let text = b"module a { module msg { struct B { sequence<sequence<long>> c; }; }; };";
        sections
            .add_file(Format::Idl, "a/B", "a.idl", text)
            .unwrap();
        let definition = Library::new(&[&sections]).definition("a/B").unwrap();
        assert_eq!(rihs01(&definition), None);
    }
}
