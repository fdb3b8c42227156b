//! Files and messages that `rosbag2` compressed with zstd.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use ruzstd::decoding::StreamingDecoder;
use tempfile::NamedTempFile;

use crate::read_error::ReadError;

/// First bytes of every zstd frame.
pub(crate) const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// A file may unpack to `MAX_RATIO` times its length plus `ALLOWANCE_BYTES`. Real messages of robots
/// stay far below this ratio; the allowance is for small files.
const MAX_RATIO: u64 = 100;
const ALLOWANCE_BYTES: u64 = 64 << 20;
const BUFFER_BYTES: usize = 1 << 20;

/// Unpacks a file into a temporary file, which is deleted on drop.
pub(crate) fn unpack_file(path: &Path) -> Result<NamedTempFile, ReadError> {
    let io = |source| ReadError::Io {
        path: path.to_owned(),
        source,
    };
    let packed = File::open(path).map_err(io)?;
    let bytes = packed.metadata().map_err(io)?.len();
    let limit = bytes
        .saturating_mul(MAX_RATIO)
        .saturating_add(ALLOWANCE_BYTES);
    let unpacked =
        NamedTempFile::with_prefix("nervure-bag-").map_err(|error| cannot_unpack(path, &error))?;
    let mut packed = BufReader::with_capacity(BUFFER_BYTES, packed);
    let written = unpack_frames(&mut packed, limit, unpacked.as_file());
    let written = written.map_err(|error| cannot_unpack(path, &error))?;
    if written > limit {
        let what = format!(
            "it unpacks to more than {limit} bytes, which is {MAX_RATIO} times its length and {} MiB",
            ALLOWANCE_BYTES >> 20
        );
        return Err(ReadError::NotBag {
            path: path.to_owned(),
            what,
        });
    }
    Ok(unpacked)
}

/// Unpacks all frames of the file. Stops one byte after the limit.
fn unpack_frames(packed: &mut BufReader<File>, limit: u64, unpacked: &File) -> io::Result<u64> {
    use std::io::BufRead;
    let mut unpacked = BufWriter::with_capacity(BUFFER_BYTES, unpacked);
    let mut written = 0;
    while written <= limit && !packed.fill_buf()?.is_empty() {
        let decoder = StreamingDecoder::new(&mut *packed).map_err(io::Error::other)?;
        written += io::copy(&mut decoder.take(limit + 1 - written), &mut unpacked)?;
    }
    unpacked.flush()?;
    Ok(written)
}

fn cannot_unpack(path: &Path, error: &io::Error) -> ReadError {
    let folder = std::env::temp_dir();
    let what = format!(
        "it cannot be unpacked into {}, the folder for temporary files: {error}",
        folder.display()
    );
    ReadError::NotBag {
        path: path.to_owned(),
        what,
    }
}

/// Unpacks a message to at most `max_bytes`.
pub(crate) fn unpack_message(packed: &[u8], max_bytes: usize) -> Result<Vec<u8>, String> {
    let decoder = StreamingDecoder::new(packed).map_err(|error| error.to_string())?;
    let mut unpacked = Vec::new();
    let limit = max_bytes as u64;
    decoder
        .take(limit + 1)
        .read_to_end(&mut unpacked)
        .map_err(|error| error.to_string())?;
    match unpacked.len() as u64 > limit {
        true => Err(format!("it unpacks to more than {max_bytes} bytes")),
        false => Ok(unpacked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with a single block that repeats one byte: RFC 8878, 3.1.1.
    fn repeated(byte: u8, count: u32) -> Vec<u8> {
        const SINGLE_SEGMENT_FOUR_BYTE_SIZE: u8 = 0b1010_0000;
        const LAST_BLOCK_RLE: u32 = 0b011;
        let mut frame = MAGIC.to_vec();
        frame.push(SINGLE_SEGMENT_FOUR_BYTE_SIZE);
        frame.extend_from_slice(&count.to_le_bytes());
        frame.extend_from_slice(&(count << 3 | LAST_BLOCK_RLE).to_le_bytes()[..3]);
        frame.push(byte);
        frame
    }

    #[test]
    fn messages_are_unpacked_up_to_the_limit() {
        let packed = repeated(7, 1000);
        assert_eq!(unpack_message(&packed, 1000).unwrap(), vec![7; 1000]);
        assert!(
            unpack_message(&packed, 999)
                .unwrap_err()
                .contains("more than 999 bytes")
        );
        assert!(unpack_message(&packed[..6], 1000).is_err());
    }

    #[test]
    fn files_are_unpacked_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bag.db3.zstd");
        let frames = [repeated(1, 1000), repeated(2, 500)].concat();
        std::fs::write(&path, &frames).unwrap();
        let unpacked = std::fs::read(unpack_file(&path).unwrap().path()).unwrap();
        assert_eq!(unpacked, [vec![1; 1000], vec![2; 500]].concat());
        // 600 blocks of 128 KiB, the largest size of a block, packed into 7 KB.
        std::fs::write(&path, repeated(1, 128 << 10).repeat(600)).unwrap();
        let error = unpack_file(&path).unwrap_err().to_string();
        assert!(
            error.contains("100 times its length and 64 MiB") && error.contains("bag.db3.zstd"),
            "{error}"
        );
        std::fs::write(&path, &frames[..frames.len() - 3]).unwrap();
        assert!(
            unpack_file(&path)
                .unwrap_err()
                .to_string()
                .contains("cannot be unpacked")
        );
    }
}
