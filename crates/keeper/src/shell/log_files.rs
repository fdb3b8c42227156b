//! The log files of a run: one per node, with one JSON record per line.

use std::{
    fs::{File, rename},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nervure_protocol::report::{Level, LogRecord};
use nervure_shm::utc_nanos;

use crate::log_space;

/// Rotated files that are kept per node; the oldest is overwritten.
const MAX_ROTATED_FILES: u32 = 3;

/// Pause after a failed write.
pub const RETRY_PERIOD: Duration = Duration::from_secs(5);

/// The log of one node: `<node>.jsonl`, and older parts as `<node>~1.jsonl`, `<node>~2.jsonl` ..
/// `~` is in no node's name.
#[derive(Debug)]
pub struct LogFile {
    folder: PathBuf,
    name: String,
    max_bytes: u64,
    /// Opened with the first record.
    file: Option<File>,
    bytes: u64,
    /// The file ends with a part of a record.
    has_torn_line: bool,
    losses: Losses,
}

/// Lines that could not be written.
#[derive(Debug, Default)]
struct Losses {
    lines: u64,
    cause: String,
    /// When to retry after a failed write.
    retry_at: Option<Instant>,
}

/// A notice about a log file, for people.
pub type Notice = String;

impl LogFile {
    /// A log that has no file yet. A file is rotated once it has `max_bytes`.
    pub fn new(folder: &Path, name: &str, max_bytes: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            name: name.to_owned(),
            max_bytes,
            file: None,
            bytes: 0,
            has_torn_line: false,
            losses: Losses::default(),
        }
    }

    /// Appends records, each a line with its newline. After a failure, records are counted as lost
    /// until a retry succeeds, every [`RETRY_PERIOD`].
    pub fn write(&mut self, lines: &[Vec<u8>], now: Instant) -> Option<Notice> {
        if self.losses.retry_at.is_some_and(|at| now < at) {
            self.losses.lines += lines.len() as u64;
            return None;
        }
        let had_failed = self.losses.retry_at.is_some();
        let mut text = self.loss_record();
        let has_loss_record = !text.is_empty();
        text.extend(lines.iter().flatten());
        match self.append(&text) {
            Ok(()) => {
                let losses = std::mem::take(&mut self.losses);
                (losses.lines > 0).then(|| {
                    let again = if had_failed {
                        "; it is written again"
                    } else {
                        ""
                    };
                    self.lost_text(&losses) + again
                })
            }
            Err((error, whole)) => {
                let mut whole = text[..whole].iter().filter(|&&byte| byte == b'\n').count();
                if has_loss_record && whole > 0 {
                    self.losses.lines = 0;
                    whole -= 1;
                }
                self.losses.lines += (lines.len() - whole) as u64;
                self.losses.cause = error.to_string();
                self.losses.retry_at = Some(now + RETRY_PERIOD);
                (!had_failed).then(|| {
                    let path = self.path(0);
                    format!(
                        "{} cannot be written ({error}); tried again every {RETRY_PERIOD:?}",
                        path.display()
                    )
                })
            }
        }
    }

    /// Counts lines that were dropped because the disk was too slow.
    pub fn lose(&mut self, lines: u64) {
        self.losses.lines += lines;
        if self.losses.retry_at.is_none() {
            self.losses.cause = "the disk was too slow for them".to_owned();
        }
    }

    /// Writes the number of lost lines and the cause, and returns it as a notice, if any were lost.
    pub fn finish(&mut self, now: Instant) -> Option<Notice> {
        if self.losses.lines == 0 {
            return None;
        }
        self.losses.retry_at = None;
        let notice = self.lost_text(&self.losses);
        self.write(&[], now);
        Some(notice)
    }

    fn lost_text(&self, losses: &Losses) -> Notice {
        format!(
            "{} lines are not in the log of `{}`: {}",
            losses.lines, self.name, losses.cause
        )
    }

    /// The record that replaces lost lines; empty when there are none.
    fn loss_record(&self) -> Vec<u8> {
        let Losses { lines, cause, .. } = &self.losses;
        if *lines == 0 {
            return Vec::new();
        }
        let (node, stream) = (self.name.clone(), "keeper".to_owned());
        let text = format!("{lines} lines before this one were not written: {cause}");
        line_of(&LogRecord {
            utc_nanos: utc_nanos(),
            node,
            level: Level::Warn,
            stream,
            text,
        })
    }

    /// After a failure, the second value is the number of bytes of whole lines that were written.
    fn append(&mut self, text: &[u8]) -> Result<(), (io::Error, usize)> {
        self.open().map_err(|error| (error, 0))?;
        let file = self.file.as_mut().expect("it is open");
        let mut written = 0;
        let result = loop {
            match file.write(&text[written..]) {
                Ok(0) => break Ok(()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        let Err(error) = result else {
            self.bytes += written as u64;
            return Ok(());
        };
        let whole = text[..written]
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |end| end + 1);
        self.bytes += whole as u64;
        self.has_torn_line = written > whole && file.set_len(self.bytes).is_err();
        // It is opened again for the retry: its folder may have been moved, or its disk mounted
        // again.
        self.file = None;
        Err((error, whole))
    }

    fn open(&mut self) -> io::Result<()> {
        if self.file.is_some() && self.bytes >= self.max_bytes {
            self.rotate()?;
        }
        if self.file.is_none() {
            let mut file = log_space::open_file(&self.path(0))?;
            if self.has_torn_line {
                file.write_all(b"\n")?;
                self.has_torn_line = false;
            }
            self.bytes = file.metadata()?.len();
            self.file = Some(file);
        }
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file = None;
        for number in (0..MAX_ROTATED_FILES).rev() {
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
        self.folder.join(if number == 0 {
            format!("{name}.jsonl")
        } else {
            format!("{name}~{number}.jsonl")
        })
    }
}

/// A record as a line of a file.
pub fn line_of(record: &LogRecord) -> Vec<u8> {
    let mut line = serde_json::to_vec(record).expect("a record has text keys only");
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn record(text: &str) -> Vec<u8> {
        let (node, stream) = ("camera".to_owned(), "stdout".to_owned());
        line_of(&LogRecord {
            utc_nanos: 1,
            node,
            level: Level::Info,
            stream,
            text: text.to_owned(),
        })
    }

    fn texts(file: &Path) -> Vec<String> {
        let text = fs::read_to_string(file).unwrap();
        text.lines()
            .map(|line| serde_json::from_str::<LogRecord>(line).unwrap().text)
            .collect()
    }

    #[test]
    fn full_files_are_rotated_and_the_oldest_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogFile::new(folder.path(), "camera", 1);
        for text in ["a", "b", "c", "d", "e", "f"] {
            assert_eq!(log.write(&[record(text)], Instant::now()), None);
        }
        let files = [
            "camera.jsonl",
            "camera~1.jsonl",
            "camera~2.jsonl",
            "camera~3.jsonl",
        ];
        let texts = files.map(|name| texts(&folder.path().join(name)).concat());
        assert_eq!(texts, ["f", "e", "d", "c"]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn rotated_files_cannot_be_taken_for_logs_of_another_node() {
        let folder = tempfile::tempdir().unwrap();
        let mut other = LogFile::new(folder.path(), "loud.1", 1000);
        assert_eq!(other.write(&[record("other")], Instant::now()), None);
        let mut loud = LogFile::new(folder.path(), "loud", 1);
        for text in ["a", "b"] {
            assert_eq!(loud.write(&[record(text)], Instant::now()), None);
        }
        assert_eq!(texts(&folder.path().join("loud.1.jsonl")), ["other"]);
    }

    #[test]
    fn a_failed_write_is_retried_and_lost_lines_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("gone");
        let mut log = LogFile::new(&gone, "camera", 1000);
        let begin = Instant::now();
        let notice = log.write(&[record("a"), record("b")], begin).unwrap();
        let file = gone.join("camera.jsonl");
        assert_eq!(
            notice,
            format!(
                "{} cannot be written (No such file or directory (os error 2)); tried again every 5s",
                file.display()
            )
        );
        fs::create_dir(&gone).unwrap();
        assert_eq!(
            log.write(&[record("c")], begin + RETRY_PERIOD / 2),
            None,
            "not yet"
        );
        assert!(!file.exists());
        let notice = log.write(&[record("d")], begin + RETRY_PERIOD).unwrap();
        let cause = "No such file or directory (os error 2)";
        assert_eq!(
            notice,
            format!("3 lines are not in the log of `camera`: {cause}; it is written again")
        );
        assert_eq!(
            texts(&file),
            [
                format!("3 lines before this one were not written: {cause}"),
                "d".to_owned()
            ]
        );
        assert_eq!(log.finish(begin), None);
    }

    #[test]
    fn a_log_that_stays_unwritable_is_reported_once_and_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogFile::new(folder.path(), "camera", 1000);
        // Every write fails with ENOSPC.
        symlink("/dev/full", folder.path().join("camera.jsonl")).unwrap();
        let begin = Instant::now();
        let notice = log.write(&[record("a")], begin).unwrap();
        assert!(
            notice.contains("cannot be written (No space left on device"),
            "{notice}"
        );
        for seconds in 1..20 {
            assert_eq!(
                log.write(&[record("b")], begin + Duration::from_secs(seconds)),
                None
            );
        }
        let notice = log.finish(begin).unwrap();
        assert_eq!(
            notice,
            "20 lines are not in the log of `camera`: No space left on device (os error 28)"
        );
    }

    #[test]
    fn lines_that_come_too_fast_are_replaced_by_their_number() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogFile::new(folder.path(), "camera", 1000);
        log.write(&[record("a")], Instant::now());
        log.lose(7);
        let notice = log.finish(Instant::now()).unwrap();
        assert_eq!(
            notice,
            "7 lines are not in the log of `camera`: the disk was too slow for them"
        );
        let said = "7 lines before this one were not written: the disk was too slow for them";
        assert_eq!(texts(&folder.path().join("camera.jsonl")), ["a", said]);
    }
}
