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

/// Ends of the names of files that a folder may hold.
const EXTENSIONS: [&str; 4] = [".mcap", ".db3", ".mcap.zstd", ".db3.zstd"];

/// The files of a folder.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Files {
    /// In order.
    pub(crate) paths: Vec<PathBuf>,
    /// Files that the bag lists or the folder holds, but that are not read.
    pub(crate) left_out: Vec<String>,
    /// Why `metadata.yaml` was not used.
    pub(crate) note: Option<String>,
}

/// The files of a bag. Without a usable `metadata.yaml`, which a recorder writes at its end, those
/// in the folder.
pub(crate) fn files(folder: &Path) -> Result<Files, ReadError> {
    let path = folder.join(METADATA);
    let (listed, defect) = match read_metadata(&path)? {
        None => (Vec::new(), format!("it has no {METADATA}")),
        Some(Err(what)) => (Vec::new(), format!("its {METADATA} cannot be used: {what}")),
        Some(Ok(metadata)) => {
            let compression = metadata.compression_format.as_str();
            if !matches!(compression, "" | "zstd") {
                return Err(ReadError::NotBag {
                    path,
                    what: format!("it is compressed with {compression:?}, only zstd is read"),
                });
            }
            let defect = format!("its {METADATA} names no file that is in the folder");
            (metadata.files, defect)
        }
    };
    let here = recordings(folder).map_err(|source| ReadError::Io {
        path: folder.to_owned(),
        source,
    })?;
    let mut files = Files::default();
    for name in &listed {
        match file_of(folder, name) {
            Some(path) => files.paths.push(path),
            None => files.left_out.push(format!(
                "{} names {name:?}, which is not in the folder",
                path.display()
            )),
        }
    }
    if files.paths.is_empty() {
        if here.is_empty() {
            return Err(ReadError::NotBag {
                path: folder.to_owned(),
                what: format!("{defect}, and the folder has no recordings (.mcap, .db3)"),
            });
        }
        let name = |path: Option<&PathBuf>| {
            let name = path.and_then(|path| path.file_name()).unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        files.note = Some(format!(
            "{}: {defect}; its files are read in the order of their names, {} to {}",
            folder.display(),
            name(here.first()),
            name(here.last())
        ));
        files.paths = here;
        return Ok(files);
    }
    let not_listed = here
        .iter()
        .filter(|path| !files.paths.iter().any(|listed| is_same(listed, path)));
    let texts = not_listed.map(|path| {
        format!(
            "{} is not listed in {METADATA}, and not read",
            path.display()
        )
    });
    files.left_out.extend(texts);
    Ok(files)
}

/// `None` if there is no such file, an error if it cannot be used.
fn read_metadata(path: &Path) -> Result<Option<Result<Metadata, String>>, ReadError> {
    let io = |source| ReadError::Io {
        path: path.to_owned(),
        source,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    let mut text = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(io)?;
    if text.len() as u64 > MAX_BYTES {
        return Ok(Some(Err(format!("it has more than {MAX_BYTES} bytes"))));
    }
    let text = String::from_utf8(text).map_err(|error| error.to_string());
    let metadata = text.and_then(|text| Metadata::parse(&text));
    Ok(Some(metadata.and_then(
        |metadata| match metadata.files.is_empty() {
            true => Err("`relative_file_paths` is missing or empty".to_owned()),
            false => Ok(metadata),
        },
    )))
}

/// The recordings in a folder, in the order of their names: `bag_2` before `bag_10`.
fn recordings(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if EXTENSIONS.iter().any(|end| name.ends_with(end)) && entry.path().is_file() {
            names.push((name, entry.path()));
        }
    }
    names.sort_by(|(one, _), (other, _)| natural_key(one).cmp(&natural_key(other)));
    Ok(names.into_iter().map(|(_, path)| path).collect())
}

/// Texts and the numbers that follow them. A number is its digits, compared by their count first.
fn natural_key(name: &str) -> Vec<(&str, usize, &str)> {
    let mut key = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let is_digit = |c: char| c.is_ascii_digit();
        let (text, numbered) = rest.split_at(rest.find(is_digit).unwrap_or(rest.len()));
        let end = numbered.find(|c| !is_digit(c)).unwrap_or(numbered.len());
        let digits = numbered[..end].trim_start_matches('0');
        key.push((text, digits.len(), digits));
        rest = &numbered[end..];
    }
    key
}

/// Bags of early versions include the name of the folder. Files outside of the folder are refused.
fn file_of(folder: &Path, name: &str) -> Option<PathBuf> {
    let path = folder.join(Path::new(name).file_name()?);
    [path.clone(), packed(&path)]
        .into_iter()
        .find(|path| path.is_file())
}

/// Whether two paths name the same file, one of them perhaps compressed.
fn is_same(one: &Path, other: &Path) -> bool {
    one == other || packed(one) == other || one == packed(other)
}

fn packed(path: &Path) -> PathBuf {
    let mut packed = path.to_owned().into_os_string();
    packed.push(".zstd");
    PathBuf::from(packed)
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
        assert_eq!(file_of(folder.path(), "/etc/hostname"), None);
        assert_eq!(file_of(folder.path(), ".."), None);
    }

    #[test]
    fn names_with_numbers_are_in_the_order_of_the_numbers() {
        let sorted = [
            "a", "a_0.db3", "a_2.db3", "a_10.db3", "a_10_1", "a_010_2", "b_1",
        ];
        let mut names = sorted;
        names.reverse();
        names.sort_by(|one, other| natural_key(one).cmp(&natural_key(other)));
        assert_eq!(names, sorted);
    }
}
