//! Recordings in a series of files: a new file begins by size or age, and the oldest are deleted.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::housekeeper::{Finding, Housekeeper};
use crate::names::FileNames;
use crate::recorder::{RecordError, Recorder, RecorderOptions, Report, TopicId};
use crate::sample::IncomingSample;

/// Interval at which the total size of the files is checked against the limit.
const PRUNE_PERIOD: Duration = Duration::from_secs(2);
/// Pause after a next file could not be created.
const RETRY_PERIOD: Duration = Duration::from_secs(10);
/// File numbers to try for a new file, in case other recorders take them at the same time.
const MAX_TRIES: u32 = 1000;

/// Options of a series of recordings.
#[derive(Clone, Debug, Default)]
pub struct SeriesOptions {
    /// Options of each file.
    pub recorder: RecorderOptions,
    /// Largest size of a file, in bytes, without its index. A new file begins before it would be
    /// exceeded.
    pub split_bytes: Option<u64>,
    /// Age at which a file ends and a new one begins.
    pub split_period: Option<Duration>,
    /// Total size, in bytes, of all files of the pattern. Beyond it the oldest are deleted. No file
    /// grows beyond half of it.
    pub max_disk_bytes: Option<u64>,
    /// Whether to continue with the next file number if a file of that name exists.
    pub goes_on: bool,
}

/// Events of the files of a series, to be reported to the user.
#[derive(Debug, PartialEq, Eq)]
pub enum Notice {
    /// The name was taken, so the recording is in a file with the next number.
    GoesOn {
        /// The file that existed already.
        taken: PathBuf,
        /// The file that is being written.
        path: PathBuf,
    },
    /// A next file has begun.
    NextFile(PathBuf),
    /// A file was deleted to stay within the limit.
    Deleted(PathBuf),
    /// A file could not be created or deleted. The text gives the error.
    Problem(String),
}

/// Writes samples into one file after another.
#[derive(Debug)]
pub struct Series {
    names: FileNames,
    options: SeriesOptions,
    time: String,
    number: u32,
    recorder: Recorder,
    file_began: Instant,
    may_split_after: Option<Instant>,
    next_prune: Instant,
    housekeeper: Housekeeper,
    /// Report on the finished files.
    finished: Report,
    files: Vec<PathBuf>,
    failure: Option<RecordError>,
    /// Number of files that the housekeeper has yet to finish.
    unfinished: usize,
    notices: Vec<Notice>,
    last_problem: String,
}

/// Result of a series.
#[derive(Debug)]
pub struct SeriesReport {
    /// The files that were written, in order. With a limit, the first ones may have been deleted.
    pub files: Vec<PathBuf>,
    /// Report on all files together.
    pub report: Report,
    /// Why some samples could not be written.
    pub failure: Option<RecordError>,
    /// Events since the last [`Series::take_notices`].
    pub notices: Vec<Notice>,
}

impl Series {
    /// Begins a recording. `time` replaces `{time}` in file names, in the form of
    /// [`crate::is_time`].
    ///
    /// # Errors
    /// [`RecordError::Create`].
    pub fn create(
        names: FileNames,
        time: String,
        options: SeriesOptions,
        now: Instant,
    ) -> Result<Self, RecordError> {
        let is_split = options.split_bytes.is_some() || options.split_period.is_some();
        let plain = names.path(&time, None);
        let mut notices = Vec::new();
        let first = match is_split {
            true => Err(1),
            false => match Recorder::create(&plain, options.recorder.clone()) {
                Err(error) if error.is_taken() && options.goes_on => Err(2),
                result => Ok(result?),
            },
        };
        let (recorder, number) = match first {
            Ok(recorder) => (recorder, 1),
            Err(least) => {
                let create = |path: &Path| Recorder::create(path, options.recorder.clone());
                create_next(&names, &time, least, create)?
            }
        };
        if !is_split && recorder.path() != plain {
            notices.push(Notice::GoesOn {
                taken: plain,
                path: recorder.path().to_owned(),
            });
        }
        let housekeeper =
            Housekeeper::start(names.clone()).map_err(|source| RecordError::Create {
                path: recorder.path().to_owned(),
                source,
            })?;
        Ok(Self {
            files: vec![recorder.path().to_owned()],
            names,
            options,
            time,
            number,
            recorder,
            file_began: now,
            may_split_after: None,
            next_prune: now,
            housekeeper,
            finished: Report::default(),
            failure: None,
            unfinished: 0,
            notices,
            last_problem: String::new(),
        })
    }

    /// Path of the file that is being written.
    pub fn path(&self) -> &Path {
        self.recorder.path()
    }

    /// Adds a topic, with its declared type if there is one. Each file begins with the last
    /// `history` samples of the topic.
    pub fn add_topic(&mut self, name: &str, type_name: Option<&str>, history: u32) -> TopicId {
        let topic = self.recorder.add_topic(name, type_name);
        if self.is_split() {
            self.recorder.keep_last(topic, history);
        }
        topic
    }

    /// Records at most `hz` samples of a topic per second; see [`Recorder::throttle`].
    pub fn throttle(&mut self, topic: TopicId, hz: f64) {
        self.recorder.throttle(topic, hz);
    }

    /// Records a sample; see [`Recorder::record`].
    ///
    /// # Errors
    /// [`RecordError::Format`] for more than 65,535 channels.
    pub fn record(
        &mut self,
        topic: TopicId,
        sample: &IncomingSample<'_>,
        now: Instant,
    ) -> Result<(), RecordError> {
        self.split_if_due(sample.payload.len() as u64, now);
        self.recorder.record(topic, sample, now)?;
        self.prune(now);
        Ok(())
    }

    /// Closes chunks and files that have become old. Call it at [`Self::deadline`] even if no
    /// sample arrives.
    ///
    /// # Errors
    /// See [`Self::record`].
    pub fn tick(&mut self, now: Instant) -> Result<(), RecordError> {
        self.split_if_due(0, now);
        self.recorder.tick(now)?;
        self.prune(now);
        Ok(())
    }

    /// The next time at which [`Self::tick`] has work to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.recorder.deadline()
    }

    /// Why recording has stopped, such as a full disk. From then on samples count as lost.
    pub fn disk_failure(&self) -> Option<String> {
        self.recorder.disk_failure()
    }

    /// Report on all files so far.
    pub fn report(&mut self) -> Report {
        let mut report = self.finished.clone();
        report.add(&self.recorder.report());
        report
    }

    /// The events since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.take_findings();
        std::mem::take(&mut self.notices)
    }

    /// Ends the recording.
    pub fn finish(mut self, reason: &str) -> SeriesReport {
        let (last, failure) = self.recorder.finish(reason);
        let (mut report, mut first_failure) = (self.finished, self.failure);
        self.housekeeper.join();
        for finding in self.housekeeper.findings() {
            match finding {
                Finding::Finished(earlier, failure) => {
                    report.add(&earlier);
                    first_failure = first_failure.or(failure);
                }
                Finding::Deleted(path) => self.notices.push(Notice::Deleted(path)),
                Finding::Problem(text) => self.notices.push(Notice::Problem(text)),
            }
        }
        report.add(&last);
        let failure = first_failure.or(failure);
        SeriesReport {
            files: self.files,
            report,
            failure,
            notices: self.notices,
        }
    }

    fn is_split(&self) -> bool {
        self.options.split_bytes.is_some() || self.options.split_period.is_some()
    }

    fn split_if_due(&mut self, more: u64, now: Instant) {
        let half = self
            .options
            .max_disk_bytes
            .filter(|_| self.is_split())
            .map(|bytes| bytes / 2);
        let limit = self.options.split_bytes.into_iter().chain(half).min();
        let is_large =
            limit.is_some_and(|limit| self.recorder.bytes().saturating_add(more) > limit);
        let is_old = self
            .options
            .split_period
            .is_some_and(|period| now >= self.file_began + period);
        let is_due = (is_large || is_old) && self.recorder.has_samples();
        if !is_due || self.may_split_after.is_some_and(|after| now < after) {
            return;
        }
        self.take_findings();
        // A file may have up to 128 MiB queued for the disk, so at most one other file may be
        // unfinished.
        if self.unfinished > 0 || self.disk_failure().is_some() {
            return;
        }
        let Self {
            names,
            time,
            number,
            recorder,
            ..
        } = self;
        match create_next(names, time, *number + 1, |path| {
            recorder.successor(path, now)
        }) {
            Ok((next, number)) => {
                let before = std::mem::replace(&mut self.recorder, next);
                self.housekeeper.finish_file(before);
                self.unfinished += 1;
                self.number = number;
                self.file_began = now;
                self.may_split_after = None;
                self.files.push(self.recorder.path().to_owned());
                self.notices
                    .push(Notice::NextFile(self.recorder.path().to_owned()));
                self.next_prune = now;
            }
            Err(error) => {
                self.may_split_after = Some(now + RETRY_PERIOD);
                self.problem(format!(
                    "{error}; the recording goes on in {}",
                    self.recorder.path().display()
                ));
            }
        }
    }

    fn prune(&mut self, now: Instant) {
        if let Some(max_bytes) = self.options.max_disk_bytes
            && now >= self.next_prune
        {
            self.next_prune = now + PRUNE_PERIOD;
            self.housekeeper
                .prune(self.recorder.path().to_owned(), max_bytes);
        }
    }

    /// Processes the results of the housekeeper.
    fn take_findings(&mut self) {
        for finding in self.housekeeper.findings() {
            match finding {
                Finding::Finished(report, failure) => {
                    self.unfinished -= 1;
                    self.finished.add(&report);
                    if let Some(failure) = failure {
                        self.problem(failure.to_string());
                        self.failure.get_or_insert(failure);
                    }
                }
                Finding::Deleted(path) => self.notices.push(Notice::Deleted(path)),
                Finding::Problem(text) => self.problem(text),
            }
        }
    }

    /// Reports a problem, but not the same one twice in a row.
    fn problem(&mut self, text: String) {
        if text != self.last_problem {
            self.last_problem.clone_from(&text);
            self.notices.push(Notice::Problem(text));
        }
    }
}

/// Creates a file, with the number after the highest existing one, and at least `least`.
fn create_next(
    names: &FileNames,
    time: &str,
    least: u32,
    mut create: impl FnMut(&Path) -> Result<Recorder, RecordError>,
) -> Result<(Recorder, u32), RecordError> {
    let unreadable = |source| RecordError::Create {
        path: names.path(time, Some(least)),
        source,
    };
    let existing = names.existing().map_err(unreadable)?;
    let highest = existing
        .iter()
        .filter(|(key, _)| key.time == time)
        .map(|(key, _)| key.number)
        .max();
    let mut number = highest.map_or(least, |highest| least.max(highest.saturating_add(1)));
    let mut tries = 0;
    loop {
        match create(&names.path(time, Some(number))) {
            Err(error) if error.is_taken() && tries < MAX_TRIES => {
                tries += 1;
                number += 1;
            }
            result => return Ok((result?, number)),
        }
    }
}
