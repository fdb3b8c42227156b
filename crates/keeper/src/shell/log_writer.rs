//! Writes the logs from a thread of its own: a disk that hangs must not stop the keeper.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, Write},
    os::unix::net::UnixStream,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use super::log_files::{LogFile, Notice};
use crate::log_space::{self, LogSpace};

/// Queue limit in bytes; further lines are dropped and counted.
const MAX_WAITING_BYTES: usize = 16 << 20;

/// Bytes per write to a file: the unit of progress.
const WRITE_BYTES: usize = 256 << 10;

/// A disk without progress for this long is reported.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// At the end of the run, lines are given up when the disk makes no progress for this long.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// How often dropped lines are reported.
const LOSS_PERIOD: Duration = Duration::from_secs(1);

/// The logs of a run, by number.
#[derive(Debug)]
pub struct Logs {
    shared: Arc<Shared>,
    /// Readable when there are notices.
    bell: UnixStream,
    /// The writer's last known progress, and since when it has not changed while lines wait.
    progress: Option<(u64, Duration)>,
    has_reported_stall: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    news: Condvar,
    /// Number of writes, failed ones included.
    progress: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<(usize, Vec<u8>)>,
    /// Bytes of `lines`, and of the lines that are being written.
    bytes: usize,
    unwritten_lines: u64,
    /// Number of lines dropped for lack of room, by log.
    lost: BTreeMap<usize, u64>,
    /// The same, dropped earlier: to be reported behind the lines that are being written.
    lost_before: BTreeMap<usize, u64>,
    notices: Vec<Notice>,
    /// No line follows.
    is_closed: bool,
    /// The writer has ended.
    is_done: bool,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Logs {
    /// Starts the writer of these logs.
    ///
    /// # Errors
    /// When threads or descriptors run out.
    pub fn new(files: Vec<LogFile>, space: Option<LogSpace>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ringer.set_nonblocking(true)?;
        let writer = Writer {
            shared: Arc::clone(&shared),
            ringer,
            files,
            space,
        };
        thread::Builder::new()
            .name("logs".to_owned())
            .spawn(move || writer.run())?;
        Ok(Self {
            shared,
            bell,
            progress: None,
            has_reported_stall: false,
        })
    }

    /// Readable when there are notices.
    pub fn bell(&self) -> &UnixStream {
        &self.bell
    }

    /// Queues a line of a log. Never waits for the disk.
    pub fn push(&self, log: usize, line: Vec<u8>) {
        let mut queue = self.shared.queue();
        let is_news = queue.lines.is_empty();
        if queue.bytes + line.len() > MAX_WAITING_BYTES {
            *queue.lost.entry(log).or_default() += 1;
        } else {
            queue.bytes += line.len();
            queue.unwritten_lines += 1;
            queue.lines.push_back((log, line));
        }
        if is_news {
            self.shared.news.notify_all();
        }
    }

    /// Notices since the last call.
    pub fn notices(&mut self, now: Duration) -> Vec<Notice> {
        let mut queue = self.shared.queue();
        let mut notices = std::mem::take(&mut queue.notices);
        let progress = self.shared.progress.load(Relaxed);
        match self.progress {
            _ if queue.bytes == 0 => {
                self.progress = None;
                self.has_reported_stall = false;
            }
            Some((last, since)) if progress == last => {
                if now - since >= STALL_TIMEOUT && !self.has_reported_stall {
                    self.has_reported_stall = true;
                    notices.push(format!(
                        "the disk has taken no log lines for {STALL_TIMEOUT:?}; up to 16 MiB of them wait, later ones are lost and counted"
                    ));
                }
            }
            _ => {
                self.progress = Some((progress, now));
                self.has_reported_stall = false;
            }
        }
        notices
    }

    /// When to call [`Self::notices`] if the bell does not ring before.
    pub fn deadline(&self) -> Option<Duration> {
        let is_waiting = self.shared.queue().bytes > 0 && !self.has_reported_stall;
        // Lines that no call has seen yet are to be seen at once.
        let due = |(_, since)| since + STALL_TIMEOUT;
        is_waiting.then(|| self.progress.map_or(Duration::ZERO, due))
    }

    /// Waits until everything is written, as long as the disk makes progress. Returns the last
    /// notices.
    pub fn finish(&mut self) -> Vec<Notice> {
        let mut queue = self.shared.queue();
        queue.is_closed = true;
        self.shared.news.notify_all();
        let mut progress = (self.shared.progress.load(Relaxed), Instant::now());
        while !queue.is_done {
            let (guard, _) = self
                .shared
                .news
                .wait_timeout(queue, FINISH_TIMEOUT / 4)
                .unwrap_or_else(PoisonError::into_inner);
            queue = guard;
            let now = self.shared.progress.load(Relaxed);
            if now != progress.0 {
                progress = (now, Instant::now());
            } else if !queue.is_done && progress.1.elapsed() >= FINISH_TIMEOUT {
                let lost = queue.lost.values().chain(queue.lost_before.values());
                let lines = queue.unwritten_lines + lost.sum::<u64>();
                queue.notices.push(format!(
                    "{lines} lines are not in the log files: the disk takes nothing"
                ));
                break;
            }
        }
        std::mem::take(&mut queue.notices)
    }
}

/// The state of the writing thread.
struct Writer {
    shared: Arc<Shared>,
    ringer: UnixStream,
    files: Vec<LogFile>,
    space: Option<LogSpace>,
}

impl Writer {
    fn run(mut self) {
        let mut sum_up_at = Instant::now();
        loop {
            let (lines, is_closed) = self.next(sum_up_at);
            let is_empty = lines.is_empty();
            self.write(lines);
            let lost = std::mem::take(&mut self.shared.queue().lost_before);
            if !lost.is_empty() {
                sum_up_at = Instant::now() + LOSS_PERIOD;
                self.report_lost(lost);
            }
            if is_closed && is_empty {
                break;
            }
        }
        let now = Instant::now();
        let notices: Vec<_> = self
            .files
            .iter_mut()
            .filter_map(|file| file.finish(now))
            .collect();
        if let Some(space) = &self.space {
            log_space::end(space.own());
        }
        let mut queue = self.shared.queue();
        queue.notices.extend(notices);
        queue.is_done = true;
        self.shared.news.notify_all();
    }

    /// Waits for lines, or until dropped lines are to be reported. Returns the lines, and true when
    /// no others follow.
    fn next(&self, sum_up_at: Instant) -> (Vec<(usize, Vec<u8>)>, bool) {
        let mut queue = self.shared.queue();
        loop {
            let is_due = !queue.lost.is_empty() && (queue.is_closed || Instant::now() >= sum_up_at);
            if is_due {
                queue.lost_before = std::mem::take(&mut queue.lost);
            }
            if !queue.lines.is_empty() || queue.is_closed || is_due {
                return (queue.lines.drain(..).collect(), queue.is_closed);
            }
            queue = if queue.lost.is_empty() {
                self.shared
                    .news
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner)
            } else {
                let left = sum_up_at.saturating_duration_since(Instant::now());
                self.shared
                    .news
                    .wait_timeout(queue, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            };
        }
    }

    /// Writes each log's lines in order, at most [`WRITE_BYTES`] at a time.
    fn write(&mut self, lines: Vec<(usize, Vec<u8>)>) {
        let mut by_log: BTreeMap<usize, Vec<Vec<u8>>> = BTreeMap::new();
        for (log, line) in lines {
            by_log.entry(log).or_default().push(line);
        }
        for (log, lines) in by_log {
            let mut rest = &lines[..];
            while !rest.is_empty() {
                let mut bytes = 0;
                let is_within = |line: &&Vec<u8>| {
                    bytes += line.len();
                    bytes <= WRITE_BYTES
                };
                let (piece, others) =
                    rest.split_at(rest.iter().take_while(is_within).count().max(1));
                rest = others;
                let notice = self.files[log].write(piece, Instant::now());
                self.written(piece, notice);
            }
        }
    }

    fn written(&mut self, piece: &[Vec<u8>], notice: Option<Notice>) {
        let bytes = piece.iter().map(Vec::len).sum::<usize>();
        self.shared.progress.fetch_add(1, Relaxed);
        let mut queue = self.shared.queue();
        queue.bytes -= bytes;
        queue.unwritten_lines -= piece.len() as u64;
        drop(queue);
        let trimmed = self
            .space
            .as_mut()
            .and_then(|space| space.written(bytes as u64).err());
        let trimmed = trimmed.map(|error| format!("old logs cannot be removed: {error}"));
        for notice in notice.into_iter().chain(trimmed) {
            self.notify(notice);
        }
    }

    fn report_lost(&mut self, lost: BTreeMap<usize, u64>) {
        for (log, lines) in lost {
            self.files[log].lose(lines);
            if let Some(notice) = self.files[log].write(&[], Instant::now()) {
                self.notify(notice);
            }
        }
    }

    fn notify(&self, notice: Notice) {
        self.shared.queue().notices.push(notice);
        // A full pipe already wakes the reader.
        let _ = (&self.ringer).write(b"!");
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, process::Command};

    use super::*;

    fn logs(folder: &Path) -> Logs {
        let files = ["camera", "nervure"].map(|name| LogFile::new(folder, name, 1 << 30));
        Logs::new(files.into(), None).unwrap()
    }

    #[test]
    fn every_line_is_in_its_file_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let mut logs = logs(folder.path());
        let line = |number: usize| format!("{number}\n").into_bytes();
        for number in 0..10_000 {
            logs.push(number % 2, line(number));
        }
        assert_eq!(logs.finish(), [""; 0]);
        for (log, name) in ["camera.jsonl", "nervure.jsonl"].iter().enumerate() {
            let expected: Vec<u8> = (0..10_000)
                .filter(|number| number % 2 == log)
                .flat_map(line)
                .collect();
            assert_eq!(fs::read(folder.path().join(name)).unwrap(), expected);
        }
    }

    #[test]
    fn a_disk_that_hangs_costs_lines_and_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        // Opening a FIFO blocks until there is a reader.
        let file = folder.path().join("camera.jsonl");
        assert!(
            Command::new("mkfifo")
                .arg(&file)
                .status()
                .unwrap()
                .success()
        );
        let mut logs = logs(folder.path());
        let line = vec![b'x'; 1 << 20];
        for _ in 0..20 {
            logs.push(0, line.clone());
        }
        assert_eq!(logs.notices(Duration::ZERO), [""; 0]);
        assert_eq!(logs.deadline(), Some(STALL_TIMEOUT));
        let stall = "the disk has taken no log lines for 5s; up to 16 MiB of them wait, later ones are lost and counted";
        assert_eq!(logs.notices(STALL_TIMEOUT), [stall]);
        assert_eq!(
            (logs.notices(2 * STALL_TIMEOUT), logs.deadline()),
            (Vec::new(), None),
            "it is reported once"
        );
        assert_eq!(
            logs.finish(),
            ["20 lines are not in the log files: the disk takes nothing"]
        );
        // Now the thread can write, and ends.
        let read = fs::read(&file).unwrap();
        assert!(read.starts_with(&vec![b'x'; 16 << 20]));
    }

    #[test]
    fn a_stall_counts_from_the_first_line_that_waits() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("camera.jsonl");
        let made = Command::new("mkfifo").arg(&file).status().unwrap();
        assert!(made.success());
        let mut logs = logs(folder.path());
        assert_eq!(logs.notices(Duration::ZERO), [""; 0]);
        assert_eq!(logs.deadline(), None);
        logs.push(0, b"after a quiet hour\n".to_vec());
        let hour = Duration::from_secs(3600);
        assert_eq!(logs.deadline(), Some(Duration::ZERO));
        assert_eq!(logs.notices(hour), [""; 0]);
        assert_eq!(logs.deadline(), Some(hour + STALL_TIMEOUT));
        assert_eq!(logs.notices(hour + STALL_TIMEOUT).len(), 1);
        let reader = thread::spawn(move || fs::read(file).unwrap());
        assert_eq!(logs.finish(), [""; 0]);
        drop(logs);
        assert_eq!(reader.join().unwrap(), b"after a quiet hour\n");
    }

    #[test]
    fn lines_that_come_too_fast_are_summed_up() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("camera.jsonl");
        assert!(
            Command::new("mkfifo")
                .arg(&file)
                .status()
                .unwrap()
                .success()
        );
        let mut logs = logs(folder.path());
        for _ in 0..20 {
            logs.push(0, [vec![b'x'; (1 << 20) - 1], vec![b'\n']].concat());
        }
        let reader = thread::spawn(move || fs::read(file).unwrap());
        let notices = logs.finish();
        assert_eq!(
            notices,
            ["4 lines are not in the log of `camera`: the disk was too slow for them"]
        );
        let read = String::from_utf8(reader.join().unwrap()).unwrap();
        let last = read.lines().last().unwrap();
        assert!(
            last.contains("4 lines before this one were not written: the disk was too slow"),
            "{last}"
        );
    }
}
