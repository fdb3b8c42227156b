//! The counters of a run's streams, in a file that outlives the daemon: the last report of a run covers all
//! its time.
//!
//! Each count is written at once, without waiting for the disk, so that it survives the death of the
//! daemon. After a power failure the run begins again, and older counts suffice.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use nervure_link::sender::SendCounters;

/// Name of the file, in the folder of a run.
const FILE: &str = "streams";
/// Numbers of a stream in the file.
const NUMBERS: usize = 12;
const BYTES: usize = NUMBERS * 8;

/// Counts of the samples of a topic, by outcome.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub link: SendCounters,
    /// Dropped in the queue before the link, which did not take them in time.
    pub queue: u64,
    /// Waited for the link when the run ended.
    pub unsent: u64,
    /// Could not be encoded, sent or published.
    pub failed: u64,
    /// Not confirmed yet, for a stream whose samples are. They are still in the queue of their producer.
    pub not_taken: u64,
}

impl Counted {
    /// The sum of the counts of two daemons.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            link: self.link + other.link,
            queue: self.queue + other.queue,
            unsent: self.unsent + other.unsent,
            failed: self.failed + other.failed,
            not_taken: self.not_taken + other.not_taken,
        }
    }
}

/// The file, and its counts of each stream when it was opened.
#[derive(Debug)]
pub(crate) struct Totals {
    file: Option<File>,
    before: Vec<Counted>,
}

impl Totals {
    /// Opens the file of a run with this number of streams. Without it, the counts are of this daemon
    /// alone.
    pub fn open(folder: &Path, streams: usize) -> Self {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(folder.join(FILE));
        let file = file
            .inspect_err(|error| tracing::warn!("the counts of samples are not kept: {error}"))
            .ok();
        let read = |at: usize| {
            let mut bytes = [0; BYTES];
            let read = file.as_ref()?.read_exact_at(&mut bytes, offset(at));
            read.is_ok().then(|| decode(&bytes))
        };
        Self {
            before: (0..streams)
                .map(|at| read(at).unwrap_or_default())
                .collect(),
            file,
        }
    }

    /// The counts of a stream over the whole run. `counted` are those of this daemon.
    pub fn whole(&self, at: usize, counted: &Counted) -> Counted {
        self.before[at].plus(counted)
    }

    /// Writes the counts of a stream. `counted` are those of this daemon.
    pub fn write(&self, at: usize, counted: &Counted) {
        if let Some(file) = &self.file {
            // A full disk: the file has its length after the first counts, and the next may succeed.
            let _ = file.write_all_at(&encode(self.whole(at, counted)), offset(at));
        }
    }
}

fn offset(at: usize) -> u64 {
    (at * BYTES) as u64
}

/// The counts in the file, in their order.
fn numbers(counted: &mut Counted) -> [&mut u64; NUMBERS] {
    let Counted {
        link,
        queue,
        unsent,
        failed,
        not_taken,
    } = counted;
    [
        &mut link.accepted,
        &mut link.delivered,
        &mut link.overwritten,
        &mut link.expired,
        &mut link.superseded,
        &mut link.incomplete,
        &mut link.refused,
        &mut link.unconfirmed,
        queue,
        unsent,
        failed,
        not_taken,
    ]
}

fn encode(mut counted: Counted) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let places = bytes.as_chunks_mut::<8>().0;
    for (place, number) in places.iter_mut().zip(numbers(&mut counted)) {
        *place = number.to_le_bytes();
    }
    bytes
}

/// Decodes the counts of a daemon that is gone: its samples in flight are unconfirmed. Samples that are
/// still in the queue of their producer are counted again.
fn decode(bytes: &[u8; BYTES]) -> Counted {
    let mut counted = Counted::default();
    for (number, place) in numbers(&mut counted).into_iter().zip(bytes.as_chunks().0) {
        *number = u64::from_le_bytes(*place);
    }
    let not_taken = std::mem::take(&mut counted.not_taken);
    let link = &mut counted.link;
    link.accepted = link.accepted.saturating_sub(not_taken);
    let known = [
        link.delivered,
        link.overwritten,
        link.expired,
        link.superseded,
        link.incomplete,
        link.refused,
        link.unconfirmed,
    ];
    link.unconfirmed += link.accepted.saturating_sub(known.iter().sum());
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_returns_from_the_file() {
        let mut counted = Counted::default();
        for (at, number) in numbers(&mut counted).into_iter().enumerate() {
            *number = 1 << at;
        }
        // More than its outcomes together.
        counted.link.accepted = 1 << NUMBERS;
        let in_flight = counted.link.accepted - counted.not_taken - 0b1111_1110;
        let mut read = decode(&encode(counted));
        assert_eq!(
            read.link.unconfirmed,
            counted.link.unconfirmed + in_flight,
            "in flight"
        );
        read.link.unconfirmed = counted.link.unconfirmed;
        read.link.accepted += counted.not_taken;
        read.not_taken = counted.not_taken;
        assert_eq!(
            numbers(&mut read).map(|it| *it),
            numbers(&mut counted).map(|it| *it)
        );
    }

    #[test]
    fn the_next_daemon_counts_on_and_what_was_in_flight_is_unconfirmed() {
        let folder = tempfile::tempdir().expect("a folder for a test");
        let link = |accepted, delivered, held| SendCounters {
            accepted,
            delivered,
            held,
            ..SendCounters::default()
        };
        let counted = |link| Counted {
            link,
            ..Counted::default()
        };
        let first = Totals::open(folder.path(), 2);
        first.write(1, &counted(link(10, 7, 3)));
        let second = Totals::open(folder.path(), 2);
        let whole = second.whole(1, &counted(link(5, 5, 0)));
        let SendCounters {
            accepted,
            delivered,
            unconfirmed,
            ..
        } = whole.link;
        assert_eq!((accepted, delivered, unconfirmed), (15, 12, 3));
        assert_eq!(second.whole(0, &Counted::default()).link.accepted, 0);
        // Samples that stay with their producer until they are confirmed.
        let kept = Counted {
            not_taken: 3,
            ..counted(link(5, 2, 0))
        };
        second.write(0, &kept);
        let third = Totals::open(folder.path(), 2);
        let whole = third.whole(0, &Counted::default());
        let SendCounters {
            accepted,
            delivered,
            unconfirmed,
            ..
        } = whole.link;
        assert_eq!((accepted, delivered, unconfirmed), (2, 2, 0));
    }
}
