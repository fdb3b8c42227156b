//! Why a recording, or a part of it, cannot be read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file has another format.
    #[error("{} is not a recording: {found}", path.display())]
    NotRecording {
        /// Path of the file.
        path: PathBuf,
        /// Description of its first bytes.
        found: String,
    },
    /// A bag that cannot be read.
    #[error("{}: {what}", path.display())]
    NotBag {
        /// Path of the bag or of one of its files.
        path: PathBuf,
        /// The defect.
        what: String,
    },
    /// A part of a SQLite file is damaged.
    #[error("{}, messages {first} to {last}: {what}; {lost}", path.display())]
    DamagedRows {
        /// Path of the file.
        path: PathBuf,
        /// Row number of the first message of the part.
        first: i64,
        /// Row number of the last message of the part.
        last: i64,
        /// The defect.
        what: String,
        /// Loss that the defect causes.
        lost: Lost,
    },
    /// Compressed messages that cannot be unpacked.
    #[error("{}: messages cannot be unpacked: {what}; {lost}", path.display())]
    Packed {
        /// Path of the file.
        path: PathBuf,
        /// The defect of the first of them.
        what: String,
        /// The number of such messages.
        lost: Lost,
    },
    /// A part of an MCAP file is damaged.
    #[error("{}, at byte {offset}: {what}; {lost}", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Offset of the part, in bytes.
        offset: u64,
        /// The defect.
        what: String,
        /// Loss that the defect causes.
        lost: Lost,
    },
}

/// The extent of the loss by a damaged part, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Number of messages; `None` if unknown.
    pub messages: Option<u64>,
    /// Time between the first and the last of them, in nanoseconds; `None` if unknown.
    pub nanos: Option<u64>,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self
            .nanos
            .map(|nanos| format!("{:.1} s", nanos as f64 / 1e9));
        match (self.messages, seconds) {
            (None, None) => f.write_str("an unknown number of messages is lost"),
            (None, Some(seconds)) => write!(f, "the messages of {seconds} are lost"),
            (Some(messages), None) => write!(f, "{messages} messages are lost"),
            (Some(messages), Some(seconds)) => {
                write!(f, "{messages} messages of {seconds} are lost")
            }
        }
    }
}

/// The end of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The file has all data of its writer.
    Complete,
    /// A recorder is writing it. The data after `at` is not complete yet.
    Growing {
        /// Length of the complete part, in bytes.
        at: u64,
    },
    /// Its recorder was killed, or the file was cut. The data after `at` cannot be read.
    CutShort {
        /// Length of the complete part, in bytes.
        at: u64,
        /// Description of the bytes after the complete part.
        what: String,
    },
}

/// A file that was cut short.
#[derive(Clone, Copy, Debug)]
pub struct CutShort<'a> {
    /// Path of the file.
    pub path: &'a Path,
    /// Length of the complete part, in bytes.
    pub at: u64,
    /// Description of the bytes after the complete part.
    pub what: &'a str,
    /// Length of the part that cannot be read, in bytes.
    pub unreadable_bytes: u64,
}
