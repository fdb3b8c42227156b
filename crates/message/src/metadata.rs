//! The small typed map that is sent along with a value.

use crate::wire::{DecodeError, Head, Reader, put_bytes, put_number};

/// A value of the metadata map.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A truth value.
    Bool(bool),
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list of integers.
    Integers(Vec<i64>),
    /// A list of floating-point numbers.
    Floats(Vec<f64>),
    /// A list of texts.
    Texts(Vec<String>),
}

/// A small map from text to [`Value`], in order of insertion. It is meant for labels and
/// parameters. Data belongs in the payload, hence the limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
}

/// Why a metadata map cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// The map has too many entries.
    #[error("metadata has {found} entries, the limit is {}", Metadata::MAX_ENTRIES)]
    Entries {
        /// Number of entries.
        found: usize,
    },
    /// The encoded map is too large.
    #[error(
        "metadata takes {found} bytes, the limit is {}; send data as the payload",
        Metadata::MAX_BYTES
    )]
    Bytes {
        /// Length of the encoded map, in bytes.
        found: usize,
    },
}

impl Metadata {
    /// Limit on the number of entries.
    pub const MAX_ENTRIES: usize = 256;
    /// Limit on the encoded map, in bytes.
    pub const MAX_BYTES: usize = 64 << 10;

    /// An empty map. Does not allocate.
    pub const fn new() -> Self {
        Self {
            entries: Vec::new(),
        }
    }

    /// Sets `key` and returns its previous value.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        let (key, value) = (key.into(), value.into());
        match self.entries.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => Some(std::mem::replace(old, value)),
            None => {
                self.entries.push((key, value));
                None
            }
        }
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries
            .iter()
            .find(|(known, _)| known == key)
            .map(|(_, value)| value)
    }

    /// Removes `key` and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let index = self.entries.iter().position(|(known, _)| known == key)?;
        Some(self.entries.remove(index).1)
    }

    /// Iterates over the entries in order of insertion.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries
            .iter()
            .map(|(key, value)| (key.as_str(), value))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends the map to `head`. An empty map takes no bytes.
    ///
    /// # Errors
    /// If the map exceeds its limits; `head` is then unchanged.
    pub fn write(&self, head: &mut Head) -> Result<(), MetadataError> {
        if self.is_empty() {
            return Ok(());
        }
        if self.len() > Self::MAX_ENTRIES {
            return Err(MetadataError::Entries { found: self.len() });
        }
        let start = head.len();
        put_number(head, self.len() as u64);
        for (key, value) in &self.entries {
            put_bytes(head, key.as_bytes());
            put_value(head, value);
        }
        let found = head.len() - start;
        if found > Self::MAX_BYTES {
            head.truncate(start);
            return Err(MetadataError::Bytes { found });
        }
        Ok(())
    }
}

impl<K: Into<String>, V: Into<Value>> FromIterator<(K, V)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut metadata = Self::new();
        for (key, value) in entries {
            metadata.insert(key, value);
        }
        metadata
    }
}

/// An encoded map. It is decoded on demand, since most consumers do not use it.
#[derive(Clone, Copy, Debug)]
pub struct EncodedMetadata<'a> {
    bytes: &'a [u8],
}

impl<'a> EncodedMetadata<'a> {
    /// Wraps bytes that [`Metadata::write`] appended.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The encoded bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Decodes the map from untrusted bytes.
    ///
    /// # Errors
    /// If the bytes are not a map within its limits.
    pub fn decode(&self) -> Result<Metadata, DecodeError> {
        let limit = Metadata::MAX_BYTES;
        if self.bytes.len() > limit {
            let found = self.bytes.len() as u64;
            return Err(DecodeError::Limit {
                what: "metadata bytes",
                found,
                limit: limit as u64,
            });
        }
        let mut metadata = Metadata::new();
        if self.is_empty() {
            return Ok(metadata);
        }
        let mut reader = Reader::new(self.bytes);
        for _ in 0..reader.count("metadata entries", Metadata::MAX_ENTRIES)? {
            let key = reader.text("metadata key")?;
            let value = value(&mut reader)?;
            if metadata.insert(key, value).is_some() {
                let reason = format!("the key {key:?} appears twice");
                return Err(DecodeError::Invalid {
                    what: "metadata",
                    reason,
                });
            }
        }
        reader.finish("metadata")?;
        Ok(metadata)
    }
}

fn put_value(out: &mut Head, value: &Value) {
    match value {
        Value::Bool(value) => out.extend_from_slice(&[0, u8::from(*value)]),
        Value::Integer(value) => put_tagged(out, 1, &value.to_le_bytes()),
        Value::Float(value) => put_tagged(out, 2, &value.to_le_bytes()),
        Value::Text(value) => {
            out.push(3);
            put_bytes(out, value.as_bytes());
        }
        Value::Bytes(value) => {
            out.push(4);
            put_bytes(out, value);
        }
        Value::Integers(values) => {
            put_list(out, 5, values, |out, value| out.extend(value.to_le_bytes()))
        }
        Value::Floats(values) => {
            put_list(out, 6, values, |out, value| out.extend(value.to_le_bytes()))
        }
        Value::Texts(values) => put_list(out, 7, values, |out, value| {
            put_bytes(out, value.as_bytes())
        }),
    }
}

fn put_tagged(out: &mut Head, tag: u8, bytes: &[u8]) {
    out.push(tag);
    out.extend_from_slice(bytes);
}

fn put_list<T>(out: &mut Head, tag: u8, values: &[T], put: impl Fn(&mut Head, &T)) {
    out.push(tag);
    put_number(out, values.len() as u64);
    values.iter().for_each(|value| put(out, value));
}

fn value(reader: &mut Reader<'_>) -> Result<Value, DecodeError> {
    const WHAT: &str = "metadata value";
    let integer = |reader: &mut Reader<'_>| Ok(i64::from_le_bytes(reader.array(WHAT)?));
    let float = |reader: &mut Reader<'_>| Ok(f64::from_le_bytes(reader.array(WHAT)?));
    let text = |reader: &mut Reader<'_>| Ok(reader.text(WHAT)?.to_owned());
    Ok(match reader.byte(WHAT)? {
        0 => match reader.byte(WHAT)? {
            0 => Value::Bool(false),
            1 => Value::Bool(true),
            code => {
                return Err(DecodeError::Code {
                    what: "truth value",
                    code: code.into(),
                });
            }
        },
        1 => Value::Integer(integer(reader)?),
        2 => Value::Float(float(reader)?),
        3 => Value::Text(text(reader)?),
        4 => Value::Bytes(reader.bytes(WHAT)?.to_vec()),
        5 => Value::Integers(list(reader, integer)?),
        6 => Value::Floats(list(reader, float)?),
        7 => Value::Texts(list(reader, text)?),
        code => {
            return Err(DecodeError::Code {
                what: "type of metadata value",
                code: code.into(),
            });
        }
    })
}

fn list<'a, T>(
    reader: &mut Reader<'a>,
    item: impl Fn(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = reader.count("metadata list", Metadata::MAX_BYTES)?;
    (0..count).map(|_| item(reader)).collect()
}

macro_rules! value_from {
    ($($type:ty => |$value:ident| $build:expr),* $(,)?) => {$(
        impl From<$type> for Value {
            fn from($value: $type) -> Self {
                $build
            }
        }
    )*};
}

value_from! {
    bool => |value| Self::Bool(value),
    i32 => |value| Self::Integer(value.into()),
    i64 => |value| Self::Integer(value),
    u32 => |value| Self::Integer(value.into()),
    f32 => |value| Self::Float(value.into()),
    f64 => |value| Self::Float(value),
    &str => |value| Self::Text(value.to_owned()),
    String => |value| Self::Text(value),
    &[u8] => |value| Self::Bytes(value.to_vec()),
    Vec<u8> => |value| Self::Bytes(value),
    Vec<i64> => |value| Self::Integers(value),
    Vec<f64> => |value| Self::Floats(value),
    Vec<String> => |value| Self::Texts(value),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(metadata: &Metadata) -> Head {
        let mut head = Head::new();
        metadata.write(&mut head).unwrap();
        head
    }

    fn values() -> impl Strategy<Value = Value> {
        let text = || proptest::collection::vec(any::<char>(), 0..12).prop_map(String::from_iter);
        prop_oneof![
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Integer),
            (-1e300..1e300).prop_map(Value::Float),
            text().prop_map(Value::Text),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(Value::Bytes),
            proptest::collection::vec(any::<i64>(), 0..6).prop_map(Value::Integers),
            proptest::collection::vec(-1e9..1e9, 0..6).prop_map(Value::Floats),
            proptest::collection::vec(text(), 0..6).prop_map(Value::Texts),
        ]
    }

    fn maps() -> impl Strategy<Value = Metadata> {
        proptest::collection::vec((0..20_u32, values()), 0..10).prop_map(|entries| {
            entries
                .into_iter()
                .map(|(key, value)| (format!("key {key}"), value))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn maps_round_trip(metadata in maps()) {
            prop_assert_eq!(EncodedMetadata::new(&encoded(&metadata)).decode().unwrap(), metadata);
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = EncodedMetadata::new(&bytes).decode();
        }

        #[test]
        fn a_damaged_map_is_decoded_or_refused(metadata in maps(), at: prop::sample::Index, byte: u8) {
            let mut bytes = encoded(&metadata);
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let _ = EncodedMetadata::new(&bytes).decode();
        }
    }

    #[test]
    fn an_empty_map_takes_no_bytes() {
        assert!(encoded(&Metadata::new()).is_empty());
    }

    #[test]
    fn a_key_that_is_set_again_keeps_its_position() {
        let mut metadata: Metadata = [("a", 1), ("b", 2)].into_iter().collect();
        assert_eq!(metadata.insert("a", "one"), Some(Value::Integer(1)));
        let keys: Vec<_> = metadata.iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["a", "b"]);
        assert_eq!(metadata.remove("a"), Some(Value::Text("one".into())));
        assert_eq!(metadata.get("a"), None);
    }

    #[test]
    fn both_sides_enforce_the_limits() {
        let mut head = Head::new();
        let many: Metadata = (0..300).map(|key| (key.to_string(), true)).collect();
        assert_eq!(
            many.write(&mut head),
            Err(MetadataError::Entries { found: 300 })
        );
        let large: Metadata = [("image", vec![0_u8; 70_000])].into_iter().collect();
        assert!(matches!(
            large.write(&mut head),
            Err(MetadataError::Bytes { .. })
        ));
        assert!(head.is_empty());
        assert!(EncodedMetadata::new(&vec![1; 70_000]).decode().is_err());
    }

    #[test]
    fn a_key_that_appears_twice_is_refused() {
        let twice = [2, 1, b'k', 0, 1, 1, b'k', 0, 0];
        let error = EncodedMetadata::new(&twice).decode().unwrap_err();
        assert_eq!(error.to_string(), "metadata: the key \"k\" appears twice");
    }
}
