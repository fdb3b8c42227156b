//! File names of consecutive recordings.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Placeholders in the name of a recording.
const TIME: &str = "{time}";
const NAME: &str = "{name}";
/// Fewest digits of a file's number.
const DIGITS: usize = 4;

/// The names of a recorder's files, given by a pattern such as `/data/{name}-{time}.mcap`. `{time}`
/// stands for the time at which the recorder began, `{name}` for the dataflow. Numbers go before
/// the extension: `run-0002.mcap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileNames {
    folder: PathBuf,
    before_time: String,
    /// The name after the time; `None` if the pattern has no time.
    after_time: Option<String>,
    /// Includes its dot; may be empty.
    extension: String,
}

/// Time and number in a file name. Sorts by age, provided that the clock was right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileKey {
    /// In the form of [`is_time`]; empty if the pattern has none.
    pub time: String,
    /// 1 for a file without a number.
    pub number: u32,
}

/// Why a pattern cannot be used for recordings.
#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    /// An unknown placeholder.
    #[error("`{placeholder}` in the name `{pattern}` is not known: expected `{TIME}` or `{NAME}`")]
    Unknown {
        /// The pattern.
        pattern: String,
        /// The unknown placeholder.
        placeholder: String,
    },
    /// A placeholder in the folder.
    #[error("the folder of `{pattern}` has a placeholder: expected in the file's name only")]
    Folder {
        /// The pattern.
        pattern: String,
    },
    /// The time occurs more than once.
    #[error("`{pattern}` has more than one `{TIME}`")]
    Times {
        /// The pattern.
        pattern: String,
    },
    /// The pattern has no file name.
    #[error("`{pattern}` names no file")]
    NoFile {
        /// The pattern.
        pattern: String,
    },
    /// The pattern is not UTF-8.
    #[error("the name of a recording is not UTF-8: {pattern}")]
    NotText {
        /// The pattern, with invalid parts replaced.
        pattern: String,
    },
}

impl FileNames {
    /// Parses a pattern.
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn parse(pattern: &Path, dataflow: &str) -> Result<Self, PatternError> {
        let shown = || pattern.display().to_string();
        let text = pattern
            .to_str()
            .ok_or_else(|| PatternError::NotText { pattern: shown() })?;
        let name = pattern.file_name().and_then(|name| name.to_str());
        let name = name
            .filter(|_| !text.ends_with('/'))
            .ok_or_else(|| PatternError::NoFile { pattern: shown() })?;
        let folder = pattern.parent().unwrap_or(Path::new(""));
        if placeholders(&folder.to_string_lossy()).next().is_some() {
            return Err(PatternError::Folder { pattern: shown() });
        }
        if let Some(unknown) = placeholders(name).find(|found| ![TIME, NAME].contains(found)) {
            return Err(PatternError::Unknown {
                pattern: shown(),
                placeholder: unknown.to_owned(),
            });
        }
        let name = name.replace(NAME, &dataflow.replace(['/', '\0'], "_"));
        let (before, after) = match name.split_once(TIME) {
            None => (name.as_str(), None),
            Some((_, after)) if after.contains(TIME) => {
                return Err(PatternError::Times { pattern: shown() });
            }
            Some((before, after)) => (before, Some(after)),
        };
        let (rest, extension) = split_extension(after.unwrap_or(before), after.is_some());
        Ok(Self {
            folder: folder.to_owned(),
            before_time: if after.is_some() { before } else { rest }.to_owned(),
            after_time: after.map(|_| rest.to_owned()),
            extension: extension.to_owned(),
        })
    }

    /// Whether recorders that begin at different times get different names.
    pub fn has_time(&self) -> bool {
        self.after_time.is_some()
    }

    /// The path for a time, with a number unless it is `None`.
    pub fn path(&self, time: &str, number: Option<u32>) -> PathBuf {
        let Self {
            folder,
            before_time,
            after_time,
            extension,
        } = self;
        let time = after_time
            .as_ref()
            .map(|after| format!("{time}{after}"))
            .unwrap_or_default();
        let number = number
            .map(|number| format!("-{number:0DIGITS$}"))
            .unwrap_or_default();
        folder.join(format!("{before_time}{time}{number}{extension}"))
    }

    /// The existing files of this pattern, of any time and number, oldest first. Only regular
    /// files, no links.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn existing(&self) -> io::Result<Vec<(FileKey, PathBuf)>> {
        let folder = if self.folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &self.folder
        };
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let key = entry.file_name().to_str().and_then(|name| self.read(name));
            if let Some(key) = key
                && entry.file_type()?.is_file()
            {
                found.push((key, self.folder.join(entry.file_name())));
            }
        }
        found.sort();
        Ok(found)
    }

    /// Time and number in a file name; `None` unless it matches the pattern.
    fn read(&self, name: &str) -> Option<FileKey> {
        let rest = name
            .strip_prefix(&self.before_time)?
            .strip_suffix(&self.extension)?;
        let (time, rest) = match &self.after_time {
            None => ("", rest),
            Some(after) => {
                let (time, rest) = rest.split_at_checked(TIME_BYTES)?;
                (
                    time,
                    rest.strip_prefix(after.as_str())
                        .filter(|_| is_time(time))?,
                )
            }
        };
        let number = match rest.strip_prefix('-') {
            None if rest.is_empty() => 1,
            Some(digits)
                if digits.len() >= DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                digits.parse().ok()?
            }
            _ => return None,
        };
        Some(FileKey {
            time: time.to_owned(),
            number,
        })
    }
}

const TIME_BYTES: usize = "20260131T235959Z".len();

/// Whether a text is a time as in the names of recordings: `20260131T235959Z`.
pub fn is_time(text: &str) -> bool {
    text.len() == TIME_BYTES
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        })
}

/// The texts in braces, including the braces.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('{')
        .map(|(at, _)| match text[at..].find('}') {
            Some(end) => &text[at..=at + end],
            None => &text[at..],
        })
}

/// Splits off the extension with its dot. The first dot of a hidden file does not count.
fn split_extension(text: &str, follows_time: bool) -> (&str, &str) {
    match text.rfind('.') {
        Some(at) if at > 0 || follows_time => text.split_at(at),
        _ => (text, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: &str = "20260131T235959Z";

    fn names(pattern: &str) -> FileNames {
        FileNames::parse(Path::new(pattern), "drive").unwrap()
    }

    #[test]
    fn patterns_become_names() {
        for (pattern, number, expected) in [
            ("run.mcap", None, "run.mcap"),
            ("run.mcap", Some(2), "run-0002.mcap"),
            (
                "/data/run-{time}.mcap",
                Some(12345),
                "/data/run-20260131T235959Z-12345.mcap",
            ),
            (
                "a/{name}_{time}_x.y.mcap",
                Some(1),
                "a/drive_20260131T235959Z_x.y-0001.mcap",
            ),
            ("{time}", None, "20260131T235959Z"),
            ("{time}.mcap", Some(7), "20260131T235959Z-0007.mcap"),
            (".hidden", Some(7), ".hidden-0007"),
        ] {
            assert_eq!(names(pattern).path(T, number), Path::new(expected));
            let file = Path::new(expected).file_name().unwrap().to_str().unwrap();
            let key = names(pattern).read(file).unwrap();
            assert_eq!(key.number, number.unwrap_or(1));
            assert_eq!(key.time, if names(pattern).has_time() { T } else { "" });
        }
    }

    #[test]
    fn other_names_do_not_match_the_pattern() {
        for (pattern, name) in [
            ("run.mcap", "run-1.mcap"),
            ("run.mcap", "run-0001x.mcap"),
            ("run.mcap", "run-0001.mcap.bak"),
            ("run.mcap", "run-backup.mcap"),
            ("run.mcap", "other.mcap"),
            ("run.mcap", "run-99999999999.mcap"),
            ("run-{time}.mcap", "run-.mcap"),
            ("run-{time}.mcap", "run-20260131T235959.mcap"),
            ("run-{time}.mcap", "run-20260131T235959Z-old.mcap"),
            ("run-{time}.mcap", "run-0001.mcap"),
            ("{time}.mcap", "2026013ä235959Z.mcap"),
        ] {
            assert_eq!(names(pattern).read(name), None, "{name}");
        }
    }

    #[test]
    fn errors_name_the_mistake() {
        for (pattern, expected) in [
            ("run-{date}.mcap", "`{date}` in the name"),
            ("run-{time.mcap", "`{time.mcap` in the name"),
            ("{time}/run.mcap", "the folder of"),
            ("{time}-{time}.mcap", "more than one `{time}`"),
            ("data/", "names no file"),
            ("..", "names no file"),
        ] {
            let error = FileNames::parse(Path::new(pattern), "drive")
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn only_files_of_the_pattern_are_found_oldest_first() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "run-0010.mcap",
            "run-0002.mcap",
            "run.mcap",
            "run-x.mcap",
            "other.mcap",
        ] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::create_dir(folder.path().join("run-0003.mcap")).unwrap();
        std::os::unix::fs::symlink("other.mcap", folder.path().join("run-0004.mcap")).unwrap();
        let names = FileNames::parse(&folder.path().join("run.mcap"), "drive").unwrap();
        let found = names.existing().unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|(_, path)| path.file_name().unwrap().to_str().unwrap())
            .collect();
        assert_eq!(found, ["run.mcap", "run-0002.mcap", "run-0010.mcap"]);
    }
}
