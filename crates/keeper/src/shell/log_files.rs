//! The log files of a run: one per node, one JSON record a line.

use std::{
    fs::{File, OpenOptions, rename},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use nervure_protocol::keeper_to_run::LogRecord;

/// A log file of this size is set aside, and a new one begun.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Files of a node that are set aside at most; the oldest is overwritten.
const OLD_FILES: u32 = 3;

/// The log of one node: `<node>.jsonl`, and older parts as `<node>.1.jsonl`, `<node>.2.jsonl` ..
#[derive(Debug)]
pub struct LogFile {
    folder: PathBuf,
    name: String,
    max_bytes: u64,
    /// Opened with the first record.
    file: Option<BufWriter<File>>,
    bytes: u64,
    has_failed: bool,
}

impl LogFile {
    /// A log that has no file yet.
    pub fn new(folder: &Path, node: &str) -> Self {
        let (folder, name) = (folder.to_owned(), node.to_owned());
        Self { folder, name, max_bytes: MAX_FILE_BYTES, file: None, bytes: 0, has_failed: false }
    }

    /// Appends a record.
    ///
    /// # Errors
    /// The first failure to write; the log is given up then, and later records are not written.
    pub fn write(&mut self, record: &LogRecord) -> io::Result<()> {
        if self.has_failed {
            return Ok(());
        }
        self.try_write(record).inspect_err(|_| self.has_failed = true)
    }

    /// Hands what was written to the kernel.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.file {
            Some(file) if !self.has_failed => file.flush().inspect_err(|_| self.has_failed = true),
            _ => Ok(()),
        }
    }

    fn try_write(&mut self, record: &LogRecord) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        if self.bytes >= self.max_bytes {
            self.rotate()?;
        }
        if self.file.is_none() {
            let file = OpenOptions::new().create(true).append(true).open(self.path(0))?;
            self.bytes = file.metadata()?.len();
            self.file = Some(BufWriter::new(file));
        }
        let file = self.file.as_mut().expect("it was opened above");
        file.write_all(&line)?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        if let Some(mut file) = self.file.take() {
            file.flush()?;
        }
        for number in (0..OLD_FILES).rev() {
            match rename(self.path(number), self.path(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.bytes = 0;
        Ok(())
    }

    fn path(&self, number: u32) -> PathBuf {
        let name = &self.name;
        self.folder.join(if number == 0 { format!("{name}.jsonl") } else { format!("{name}.{number}.jsonl") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nervure_protocol::keeper_to_run::Level;

    fn record(text: &str) -> LogRecord {
        LogRecord {
            utc_nanos: 1,
            node: "camera".to_owned(),
            level: Level::Info,
            stream: "stdout".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn full_files_are_set_aside_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogFile::new(folder.path(), "camera");
        log.max_bytes = 1;
        for text in ["a", "b", "c", "d", "e", "f"] {
            log.write(&record(text)).unwrap();
        }
        log.flush().unwrap();
        let text = |name: &str| {
            let line = std::fs::read_to_string(folder.path().join(name)).unwrap();
            serde_json::from_str::<LogRecord>(&line).unwrap().text
        };
        let files = ["camera.jsonl", "camera.1.jsonl", "camera.2.jsonl", "camera.3.jsonl"];
        assert_eq!(files.map(text), ["f", "e", "d", "c"]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn a_folder_that_vanished_is_one_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogFile::new(&folder.path().join("gone"), "camera");
        assert!(log.write(&record("a")).is_err());
        assert!(log.write(&record("b")).is_ok() && log.flush().is_ok());
    }
}
