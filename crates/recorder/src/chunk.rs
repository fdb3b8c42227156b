//! Unpacking chunks. The unpacked size that a chunk claims is used as a limit, never to allocate in
//! advance.

use std::borrow::Cow;
use std::io::{self, Read};

use crate::record::counted;

/// Length of the times, size and checksum.
const FIXED_BYTES: usize = 28;
/// Memory that is allocated at most before anything is unpacked.
const INITIAL_CAPACITY_BYTES: usize = 4 << 20;

/// Returns the records in a chunk, given the content of the chunk's own record.
pub(crate) fn unpack(content: &[u8], max_bytes: usize) -> Result<Cow<'_, [u8]>, String> {
    let (fixed, rest) = content
        .split_at_checked(FIXED_BYTES)
        .ok_or("the chunk is too short")?;
    let claimed = u64::from_le_bytes(fixed[16..24].try_into().expect("eight bytes"));
    let checksum = u32::from_le_bytes(fixed[24..].try_into().expect("four bytes"));
    let (compression, rest) =
        counted(rest).ok_or("the name of its compression is longer than the chunk")?;
    let (length, rest) = rest.split_first_chunk().ok_or("the chunk is too short")?;
    let length = u64::from_le_bytes(*length);
    let packed = usize::try_from(length)
        .ok()
        .and_then(|length| rest.get(..length));
    let packed = packed
        .ok_or_else(|| format!("its records take {length} bytes, {} are there", rest.len()))?;
    let claimed = usize::try_from(claimed)
        .ok()
        .filter(|&claimed| claimed <= max_bytes);
    let claimed = claimed.ok_or_else(|| format!("it unpacks to more than {max_bytes} bytes"))?;
    let records = match compression {
        b"" => Cow::Borrowed(packed),
        b"lz4" => Cow::Owned(read_all(
            lz4::Decoder::new(packed).map_err(|error| error.to_string())?,
            claimed,
        )?),
        b"zstd" => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(packed)
                .map_err(|error| error.to_string())?;
            Cow::Owned(read_all(decoder, claimed)?)
        }
        other => {
            return Err(format!(
                "it is compressed with {:?}, only zstd and lz4 are read; `mcap compress --compression zstd` makes \
                 a file that is",
                String::from_utf8_lossy(&other[..other.len().min(40)])
            ));
        }
    };
    if records.len() != claimed {
        return Err(format!(
            "it unpacks to {} bytes, expected {claimed}",
            records.len()
        ));
    }
    // Writers that compute no checksum write 0.
    if checksum != 0 && crc32fast::hash(&records) != checksum {
        return Err("its checksum is wrong".to_owned());
    }
    Ok(records)
}

/// Unpacks everything, up to one byte more than the `claimed` size.
fn read_all(decoder: impl Read, claimed: usize) -> Result<Vec<u8>, String> {
    let mut records = Vec::with_capacity(claimed.min(INITIAL_CAPACITY_BYTES));
    // The additional byte shows whether the content is longer than claimed.
    let read = decoder.take(claimed as u64 + 1).read_to_end(&mut records);
    read.map_err(|error: io::Error| format!("it cannot be unpacked: {error}"))?;
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(compression: &[u8], claimed: u64, checksum: u32, packed: &[u8]) -> Vec<u8> {
        let mut content = vec![0; 16];
        content.extend_from_slice(&claimed.to_le_bytes());
        content.extend_from_slice(&checksum.to_le_bytes());
        content.extend_from_slice(&(compression.len() as u32).to_le_bytes());
        content.extend_from_slice(compression);
        content.extend_from_slice(&(packed.len() as u64).to_le_bytes());
        content.extend_from_slice(packed);
        content
    }

    /// A frame of zstd with a single block, which repeats one byte: RFC 8878, 3.1.1.
    fn repeated(byte: u8, count: u32) -> Vec<u8> {
        const SINGLE_SEGMENT_FOUR_BYTE_SIZE: u8 = 0b1010_0000;
        const LAST_BLOCK_RLE: u32 = 0b011;
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, SINGLE_SEGMENT_FOUR_BYTE_SIZE];
        frame.extend_from_slice(&count.to_le_bytes());
        frame.extend_from_slice(&(count << 3 | LAST_BLOCK_RLE).to_le_bytes()[..3]);
        frame.push(byte);
        frame
    }

    #[test]
    fn each_compression_is_unpacked() {
        assert_eq!(
            unpack(&chunk(b"", 3, 0, b"abc"), 10).unwrap().as_ref(),
            b"abc"
        );
        assert_eq!(
            unpack(&chunk(b"zstd", 9, 0, &repeated(7, 9)), 10)
                .unwrap()
                .as_ref(),
            [7; 9]
        );
        let mut encoder = lz4::EncoderBuilder::new().build(Vec::new()).unwrap();
        io::Write::write_all(&mut encoder, b"abcabcabc").unwrap();
        let (packed, end) = encoder.finish();
        end.unwrap();
        let checksum = crc32fast::hash(b"abcabcabc");
        assert_eq!(
            unpack(&chunk(b"lz4", 9, checksum, &packed), 10)
                .unwrap()
                .as_ref(),
            b"abcabcabc"
        );
    }

    #[test]
    fn claimed_sizes_are_checked_against_the_content() {
        for (content, expected) in [
            (
                chunk(b"", 4, 0, b"abc"),
                "it unpacks to 3 bytes, expected 4",
            ),
            (chunk(b"", 3, 1, b"abc"), "its checksum is wrong"),
            (chunk(b"", 11, 0, b"abc"), "more than 10 bytes"),
            (
                chunk(b"zstd", 8, 0, &repeated(7, 9)),
                "it unpacks to 9 bytes, expected 8",
            ),
            (chunk(b"zstd", 8, 0, b"nonsense"), "agic"),
            (chunk(b"lz4", 8, 0, b"nonsense"), "cannot be unpacked"),
            (
                chunk(b"br", 3, 0, b"abc"),
                "compressed with \"br\", only zstd and lz4 are read",
            ),
            (
                chunk(b"", 3, 0, b"abc")[..40].to_vec(),
                "take 3 bytes, 0 are there",
            ),
            (vec![0; 20], "too short"),
        ] {
            let error = unpack(&content, 10).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
