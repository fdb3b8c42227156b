//! MCAP records from untrusted files.

use mcap::records::{Record, op};

/// Parses a record after checking that its texts lie within it. The `mcap` crate allocates the
/// length that a text claims, up to 4 GiB, before it checks whether the text is there.
pub(crate) fn parse(code: u8, content: &[u8]) -> Result<Record<'_>, String> {
    let fields: &[Field] = match code {
        op::HEADER => &[Field::Text, Field::Text],
        op::SCHEMA => &[Field::Bytes(2), Field::Text, Field::Text, Field::Text],
        op::CHANNEL => &[Field::Bytes(4), Field::Text, Field::Text, Field::TextMap],
        op::METADATA => &[Field::Text, Field::TextMap],
        _ => &[],
    };
    let mut rest = content;
    for field in fields {
        rest = field
            .skip(rest)
            .ok_or("a text or map in it is longer than the record")?;
    }
    mcap::parse_record(code, content).map_err(|error| error.to_string())
}

/// A field of a record. Length-prefixed bytes have the encoding of a text.
enum Field {
    Bytes(usize),
    Text,
    TextMap,
}

impl Field {
    /// Returns the bytes after the field; `None` if it reaches beyond the end.
    fn skip<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(count) => bytes.get(*count..),
            Self::Text => Some(counted(bytes)?.1),
            Self::TextMap => {
                let (mut texts, rest) = counted(bytes)?;
                while !texts.is_empty() {
                    texts = counted(texts)?.1;
                }
                Some(rest)
            }
        }
    }
}

/// Splits off length-prefixed bytes. Returns them and the rest.
pub(crate) fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*count) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &[u8]) -> Vec<u8> {
        [&(text.len() as u32).to_le_bytes(), text].concat()
    }

    #[test]
    fn texts_within_the_record_are_read() {
        let map = text(&[text(b"key"), text(b"value")].concat());
        let Ok(Record::Metadata(metadata)) = parse(op::METADATA, &[text(b"name"), map].concat())
        else {
            panic!("expected metadata");
        };
        assert_eq!(
            (metadata.name.as_str(), metadata.metadata["key"].as_str()),
            ("name", "value")
        );
    }

    #[test]
    fn lengths_beyond_the_record_are_refused_before_allocation() {
        let huge = u32::MAX.to_le_bytes().to_vec();
        let short_map = [text(b"name"), text(&[text(b"key"), huge.clone()].concat())].concat();
        for (code, content) in [
            (op::HEADER, huge.clone()),
            (
                op::SCHEMA,
                [vec![1, 0], text(b"name"), huge.clone()].concat(),
            ),
            (op::CHANNEL, [vec![1, 0, 1, 0], huge.clone()].concat()),
            (op::METADATA, short_map),
            (op::METADATA, [text(b"name"), huge].concat()),
        ] {
            let error = parse(code, &content).unwrap_err();
            assert!(error.contains("longer than the record"), "{error}");
        }
    }
}
