//! A thread that finishes and deletes the files of a series, so that the recorder keeps receiving.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rustix::fs::{FlockOperation, flock};

use crate::names::FileNames;
use crate::recorder::{RecordError, Recorder, Report};

/// The end reason that is written into each file but the last.
const SPLIT_REASON: &str = "the recording goes on in the next file";

enum Job {
    FinishFile(Box<Recorder>),
    Prune { current: PathBuf, max_bytes: u64 },
}

/// The result of a job.
#[derive(Debug)]
pub(crate) enum Finding {
    Finished(Report, Option<RecordError>),
    Deleted(PathBuf),
    Problem(String),
}

#[derive(Debug)]
pub(crate) struct Housekeeper {
    jobs: Option<Sender<Job>>,
    findings: Receiver<Finding>,
    thread: Option<JoinHandle<()>>,
}

impl Housekeeper {
    pub(crate) fn start(names: FileNames) -> io::Result<Self> {
        let (jobs, job_receiver) = channel();
        let (sender, findings) = channel();
        let thread = std::thread::Builder::new().name("nervure-files".to_owned());
        let thread = thread.spawn(move || serve(&names, &job_receiver, &sender))?;
        Ok(Self {
            jobs: Some(jobs),
            findings,
            thread: Some(thread),
        })
    }

    /// Queues writing the rest of a file and its index.
    pub(crate) fn finish_file(&self, recorder: Recorder) {
        self.send(Job::FinishFile(Box::new(recorder)));
    }

    /// Queues deleting the oldest files while the total size exceeds `max_bytes`. The current file
    /// is kept.
    pub(crate) fn prune(&self, current: PathBuf, max_bytes: u64) {
        self.send(Job::Prune { current, max_bytes });
    }

    /// Results of the finished jobs.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        self.findings.try_iter().collect()
    }

    fn send(&self, job: Job) {
        let jobs = self.jobs.as_ref().expect("jobs are taken until the end");
        jobs.send(job)
            .expect("the thread ends when there are no more jobs");
    }

    /// Waits until all jobs are done. No jobs can be queued afterwards.
    pub(crate) fn join(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            thread
                .join()
                .expect("the thread of the files does not panic");
        }
    }
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        self.join();
    }
}

fn serve(names: &FileNames, jobs: &Receiver<Job>, findings: &Sender<Finding>) {
    let send = |finding| {
        // The receiver is gone if the series was dropped.
        let _ = findings.send(finding);
    };
    for job in jobs {
        match job {
            Job::FinishFile(recorder) => {
                let (report, failure) = recorder.finish(SPLIT_REASON);
                send(Finding::Finished(report, failure));
            }
            Job::Prune { current, max_bytes } => {
                if let Err(error) = prune(names, &current, max_bytes, &send) {
                    send(Finding::Problem(format!(
                        "the oldest recordings cannot be deleted: {error}"
                    )));
                }
            }
        }
    }
}

fn prune(
    names: &FileNames,
    current: &Path,
    max_bytes: u64,
    send: &impl Fn(Finding),
) -> io::Result<()> {
    let mut files = Vec::new();
    for (_, path) in names.existing()? {
        match path.symlink_metadata() {
            Ok(metadata) => files.push((path, metadata.len())),
            // Another recorder of the series has deleted it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let mut total: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    for (path, bytes) in files {
        if total <= max_bytes {
            break;
        }
        if path != current && is_finished_recording(&path)? {
            match std::fs::remove_file(&path) {
                Ok(()) => send(Finding::Deleted(path)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            total -= bytes;
        }
    }
    Ok(())
}

/// Whether a file is a recording that no recorder is writing.
fn is_finished_recording(path: &Path) -> io::Result<bool> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut magic = [0; mcap::MAGIC.len()];
    match file.read_exact(&mut magic) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        result => result?,
    }
    let is_written = flock(&file, FlockOperation::NonBlockingLockExclusive)
        == Err(rustix::io::Errno::WOULDBLOCK);
    Ok(magic == *mcap::MAGIC && !is_written)
}
