//! Folders of bags of ROS 2: `metadata.yaml` and the files that it lists.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use saphyr_parser::{Event, Parser, ScalarStyle};

use crate::read_error::ReadError;

const METADATA: &str = "metadata.yaml";
/// Largest `metadata.yaml` that is read, in bytes.
const MAX_BYTES: u64 = 16 << 20;
const MAX_DEPTH: usize = 64;

/// The files of a bag, in order.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let path = folder.join(METADATA);
    let io = |source| ReadError::Io {
        path: path.clone(),
        source,
    };
    let file = File::open(&path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ReadError::NotBag {
            path: folder.to_owned(),
            what: format!(
                "the folder has no {METADATA}; `ros2 bag reindex` writes it, and a single file of it can be given instead"
            ),
        },
        _ => io(source),
    })?;
    let mut text = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(io)?;
    let not_bag = |what: String| ReadError::NotBag {
        path: path.clone(),
        what,
    };
    if text.len() as u64 > MAX_BYTES {
        return Err(not_bag(format!("it has more than {MAX_BYTES} bytes")));
    }
    let text = String::from_utf8(text).map_err(|error| not_bag(error.to_string()))?;
    let metadata = Metadata::parse(&text).map_err(not_bag)?;
    if !matches!(metadata.compression_format.as_str(), "" | "zstd") {
        let what = format!(
            "it is compressed with {:?}, only zstd is read",
            metadata.compression_format
        );
        return Err(not_bag(what));
    }
    if metadata.files.is_empty() {
        return Err(not_bag(
            "it names no files: `relative_file_paths` is missing or empty".to_owned(),
        ));
    }
    metadata
        .files
        .iter()
        .map(|name| file_of(folder, name).map_err(not_bag))
        .collect()
}

/// Bags of early versions include the name of the folder. Files outside of the folder are refused.
fn file_of(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let own = Path::new(name)
        .file_name()
        .ok_or_else(|| format!("it names {name:?}, which is not a file name"))?;
    let path = folder.join(own);
    let mut packed = path.clone().into_os_string();
    packed.push(".zstd");
    let packed = PathBuf::from(packed);
    match (path.is_file(), packed.is_file()) {
        (true, _) => Ok(path),
        (false, true) => Ok(packed),
        (false, false) => Err(format!("it names {name:?}, which is not in the folder")),
    }
}

/// The fields of `metadata.yaml` that are used.
#[derive(Debug, Default, PartialEq)]
struct Metadata {
    files: Vec<String>,
    compression_format: String,
}

impl Metadata {
    /// Reads scalars at known places only. Aliases have no value.
    fn parse(text: &str) -> Result<Self, String> {
        let mut metadata = Self::default();
        // The current key of each open collection; `None` for lists.
        let mut open: Vec<Option<Key>> = Vec::new();
        for event in Parser::new_from_str(text) {
            let (event, _) = event.map_err(|error| error.to_string())?;
            match event {
                Event::MappingStart(..) => open.push(Some(Key::default())),
                Event::SequenceStart(..) => open.push(None),
                Event::MappingEnd | Event::SequenceEnd => {
                    open.pop();
                    value_ends(&mut open);
                }
                Event::Scalar(text, style, ..) => {
                    if let Some(Some(key)) = open.last_mut()
                        && !key.is_read
                    {
                        *key = Key {
                            text: text.into_owned(),
                            is_read: true,
                        };
                        continue;
                    }
                    let is_null =
                        style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null");
                    if !is_null {
                        metadata.take(&open, &text);
                    }
                    value_ends(&mut open);
                }
                Event::Alias(..) => value_ends(&mut open),
                _ => {}
            }
            if open.len() > MAX_DEPTH {
                return Err(format!("it is nested more than {MAX_DEPTH} deep"));
            }
        }
        Ok(metadata)
    }

    fn take(&mut self, open: &[Option<Key>], text: &str) {
        let path: Vec<&str> = open
            .iter()
            .map(|key| key.as_ref().map_or("-", |key| &key.text))
            .collect();
        match path.as_slice() {
            ["rosbag2_bagfile_information", "relative_file_paths", "-"] => {
                self.files.push(text.to_owned())
            }
            ["rosbag2_bagfile_information", "compression_format"] => {
                text.clone_into(&mut self.compression_format)
            }
            _ => {}
        }
    }
}

#[derive(Debug, Default)]
struct Key {
    text: String,
    /// Whether the key has been read, so that its value comes next.
    is_read: bool,
}

/// After a value in a mapping comes a key. A key that is itself a collection counts as a key
/// without name.
fn value_ends(open: &mut [Option<Key>]) {
    if let Some(Some(key)) = open.last_mut() {
        *key = Key {
            text: String::new(),
            is_read: !key.is_read,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_compression_are_read() {
        let text = "rosbag2_bagfile_information:\n  compression_format: zstd\n  duration: {nanoseconds: 1}\n  files:\n  \
                    - path: other.db3\n  relative_file_paths:\n  - bag_0.db3\n  - \"bag_1.db3\"\n  version: 9\n";
        let metadata = Metadata::parse(text).unwrap();
        assert_eq!(metadata.files, ["bag_0.db3", "bag_1.db3"]);
        assert_eq!(metadata.compression_format, "zstd");
    }

    #[test]
    fn malicious_metadata_is_refused_or_ignored() {
        assert_eq!(Metadata::parse("").unwrap(), Metadata::default());
        assert_eq!(
            Metadata::parse("a: &a [x]\nb: *a\n? [c]\n: d").unwrap(),
            Metadata::default()
        );
        let nested = "[".repeat(10_000);
        assert!(Metadata::parse(&nested).is_err());
        assert!(Metadata::parse("a: [").is_err());
    }

    #[test]
    fn files_outside_of_the_folder_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("passwd"), "").unwrap();
        let found = file_of(folder.path(), "../../etc/passwd").unwrap();
        assert_eq!(found, folder.path().join("passwd"));
        assert!(
            file_of(folder.path(), "/etc/hostname")
                .unwrap_err()
                .contains("not in the folder")
        );
        assert!(
            file_of(folder.path(), "..")
                .unwrap_err()
                .contains("not a file name")
        );
    }
}
