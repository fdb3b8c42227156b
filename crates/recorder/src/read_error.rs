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
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no recording: {found}", path.display())]
    NotRecording {
        /// The file.
        path: PathBuf,
        /// What it begins with.
        found: String,
    },
    /// A bag that cannot be read.
    #[error("{}: {what}", path.display())]
    NotBag {
        /// The bag.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A part of a file of SQLite is damaged.
    #[error("{}, messages {first} to {last}: {what}; {lost}", path.display())]
    DamagedRows {
        /// The file.
        path: PathBuf,
        /// Number of the part's first message.
        first: i64,
        /// Number of its last message.
        last: i64,
        /// What is wrong.
        what: String,
        /// What cannot be read because of it.
        lost: Lost,
    },
    /// Messages that cannot be unpacked.
    #[error("{}: messages cannot be unpacked: {what}; {lost}", path.display())]
    Packed {
        /// The file.
        path: PathBuf,
        /// What is wrong with the first of them.
        what: String,
        /// How many they are.
        lost: Lost,
    },
    /// A part of it is damaged.
    #[error("{}, at byte {offset}: {what}; {lost}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the part begins.
        offset: u64,
        /// What is wrong.
        what: String,
        /// What cannot be read because of it.
        lost: Lost,
    },
}

/// What cannot be read of a damaged part, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Messages.
    pub messages: Option<u64>,
    /// Time between the first and the last of them.
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

/// How the file ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Complete,
    /// A recorder writes it: what follows `at` is not whole yet.
    Growing {
        /// Bytes that are complete.
        at: u64,
    },
    /// Its recorder was killed, or it was cut: what follows `at` cannot be read.
    CutShort {
        /// Bytes that are complete.
        at: u64,
        /// What was found there.
        what: String,
    },
}

/// What cannot be read at the end of a file.
#[derive(Clone, Copy, Debug)]
pub struct CutShort<'a> {
    /// The file.
    pub path: &'a Path,
    /// Bytes that are complete.
    pub at: u64,
    /// What was found there.
    pub what: &'a str,
    /// Bytes that cannot be read.
    pub unreadable_bytes: u64,
}
