//! The counters of one node, in a page of their own that supervisors map read-only.
//!
//! A row has one writer at a time (the holder of an output's lock, or the inbox), so counting is a
//! load and a store.
//!
//! Accounting of an edge: published = `sent` + `dropped_newest` + `missed_held` + `missed_memory` +
//! `missed_control` + `missed_away`, and sent = received + `lost` + queued + `dropped_oldest` +
//! `dropped_away` + `undelivered`. Of the received samples, a consumer held `lost_in_crash` when it
//! died.

use crate::atomics::{AtomicU64, Ordering::Relaxed};
use crate::counter_rows::{
    CountersError, INPUT_WORDS, InputCounters, InputRow, OUTPUT_WORDS, OutputCounters, OutputRow,
    add, check_values, copy,
};
use crate::histogram::BUCKETS;
use crate::pages::{COUNTERS_MAGIC, create_page, has_head, map_page};
use crate::sys::{self, Mapping, Sharing};
use rustix::fd::{AsFd, OwnedFd};
use std::io;

const HEADER_BYTES: usize = 64;
/// Offsets in the first line, behind its constants: see [`CountersPage::beat`],
/// [`CountersPage::sleeps_until`], [`CountersPage::waiting`].
const BEATS: usize = 32;
const SLEEPS_UNTIL: usize = 40;
const WAITING: usize = 48;
/// Maximum number of output rows, and of input rows, in a counters page.
pub const MAX_COUNTER_ROWS: u32 = 1 << 16;

/// The counters of one node.
#[derive(Debug)]
pub struct CountersPage {
    mapping: Mapping,
    output_rows: usize,
    input_rows: usize,
}

impl CountersPage {
    fn inputs_offset(output_rows: usize) -> usize {
        HEADER_BYTES + output_rows * OUTPUT_WORDS * size_of::<u64>()
    }

    fn bytes(output_rows: usize, input_rows: usize) -> usize {
        Self::inputs_offset(output_rows) + input_rows * (INPUT_WORDS + BUCKETS) * size_of::<u64>()
    }

    /// Makes a page with rows for `output_rows` edges of outputs and `input_rows` inputs.
    /// Supervisors get a descriptor from [`crate::read_only`].
    ///
    /// # Errors
    /// If memory or descriptors run out.
    pub fn create(output_rows: u32, input_rows: u32) -> io::Result<OwnedFd> {
        let bytes = Self::bytes(output_rows as usize, input_rows as usize);
        let sizes = [u64::from(output_rows), u64::from(input_rows)];
        Ok(create_page(
            "nervure-counters",
            COUNTERS_MAGIC,
            sizes,
            bytes,
            Sharing::OneWriter,
        )?
        .1)
    }

    /// As [`CountersPage::create`], for the next process of a node: starts from the counts in
    /// `earlier`, the page of the previous process. Held blocks start at zero: their holder is
    /// gone. Unreadable rows start at zero, too. `left_behind` has inputs whose queue is gone with
    /// the producer, and the number of samples in it.
    ///
    /// # Errors
    /// As [`CountersPage::create`].
    pub fn create_after(
        output_rows: u32,
        input_rows: u32,
        earlier: &Self,
        left_behind: &[(u32, u64)],
    ) -> io::Result<OwnedFd> {
        let bytes = Self::bytes(output_rows as usize, input_rows as usize);
        let sizes = [u64::from(output_rows), u64::from(input_rows)];
        let (mapping, fd) = create_page(
            "nervure-counters",
            COUNTERS_MAGIC,
            sizes,
            bytes,
            Sharing::OneWriter,
        )?;
        let page = Self {
            mapping,
            output_rows: output_rows as usize,
            input_rows: input_rows as usize,
        };
        let rows = |page: &Self| {
            (
                0..page.output_rows().min(output_rows),
                0..page.input_rows().min(input_rows),
            )
        };
        let (outputs, inputs) = rows(earlier);
        for row in outputs.filter(|&row| earlier.read_output(row).is_ok()) {
            if let (Some(from), Some(to)) = (earlier.output_row(row), page.output_row(row)) {
                copy(from.0, to.0);
            }
        }
        for row in inputs.filter(|&row| earlier.read_input(row).is_ok()) {
            if let (Some(from), Some(to)) = (earlier.input_row(row), page.input_row(row)) {
                copy(from.counters, to.counters);
                copy(from.buckets, to.buckets);
                to.counters[InputRow::HELD].store(0, Relaxed);
            }
        }
        for &(row, samples) in left_behind {
            if let Some(row) = page.input_row(row) {
                add(&row.counters[InputRow::LOST], samples);
            }
        }
        Ok(fd)
    }

    /// Maps a received page, for its node (`writable`) or for a supervisor. Once the node has
    /// mapped it, no other process can map it writable, through whatever descriptor.
    ///
    /// # Errors
    /// `InvalidData` if it is no counters page or of another version; `PermissionDenied` for a
    /// second writer.
    pub fn map(fd: &OwnedFd, writable: bool) -> io::Result<Self> {
        let (mapping, [outputs, inputs]) = map_page(
            "counters page",
            COUNTERS_MAGIC,
            fd,
            writable,
            |[outputs, inputs]| {
                (outputs.max(inputs) <= u64::from(MAX_COUNTER_ROWS))
                    .then(|| Self::bytes(outputs as usize, inputs as usize))
            },
        )?;
        if writable {
            sys::seal(fd.as_fd(), Sharing::ReadOnly)?;
        }
        Ok(Self {
            mapping,
            output_rows: outputs as usize,
            input_rows: inputs as usize,
        })
    }

    /// Number of rows for edges of outputs.
    pub fn output_rows(&self) -> u32 {
        self.output_rows as u32
    }

    /// Number of rows for inputs.
    pub fn input_rows(&self) -> u32 {
        self.input_rows as u32
    }

    fn beats_word(&self) -> &AtomicU64 {
        // SAFETY: an atomic, within the header, which every page has.
        unsafe { self.mapping.at(BEATS) }
    }

    fn sleeps_until_word(&self) -> &AtomicU64 {
        // SAFETY: an atomic, within the header, which every page has.
        unsafe { self.mapping.at(SLEEPS_UNTIL) }
    }

    fn waiting_word(&self) -> &AtomicU64 {
        // SAFETY: an atomic, within the header, which every page has.
        unsafe { self.mapping.at(WAITING) }
    }

    /// Counts a heartbeat of the node. Two threads at the same time may count one.
    #[inline]
    pub fn beat(&self) {
        add(self.beats_word(), 1);
    }

    /// Heartbeats so far.
    pub fn beats(&self) -> u64 {
        self.beats_word().load(Relaxed)
    }

    /// Publishes until when the node sleeps at most, in nanoseconds of CLOCK_MONOTONIC; `None` if
    /// it is awake.
    #[inline]
    pub(crate) fn set_sleeps_until(&self, at: Option<u64>) {
        self.sleeps_until_word().store(at.unwrap_or(0), Relaxed);
    }

    /// Until when the node sleeps at most, in nanoseconds of CLOCK_MONOTONIC; `None` if it is
    /// awake.
    pub fn sleeps_until(&self) -> Option<u64> {
        Some(self.sleeps_until_word().load(Relaxed)).filter(|&at| at != 0)
    }

    pub(crate) fn set_waiting(&self, threads: u32) {
        self.waiting_word().store(u64::from(threads), Relaxed);
    }

    /// Number of threads of the node that wait for room in the queue of a `block` edge.
    pub fn waiting(&self) -> u64 {
        self.waiting_word().load(Relaxed)
    }

    fn words(&self) -> &[AtomicU64] {
        let words =
            (Self::bytes(self.output_rows, self.input_rows) - HEADER_BYTES) / size_of::<u64>();
        // SAFETY: atomics, within the page: `create_after` made it that long, or `map` checked it.
        unsafe { self.mapping.slice_at(HEADER_BYTES, words) }
    }

    pub(crate) fn output_row(&self, row: u32) -> Option<OutputRow<'_>> {
        let row = row as usize;
        (row < self.output_rows)
            .then(|| OutputRow(&self.words()[row * OUTPUT_WORDS..(row + 1) * OUTPUT_WORDS]))
    }

    pub(crate) fn input_row(&self, row: u32) -> Option<InputRow<'_>> {
        let (row, width) = (row as usize, INPUT_WORDS + BUCKETS);
        (row < self.input_rows).then(|| {
            let start = self.output_rows * OUTPUT_WORDS + row * width;
            let (counters, buckets) = self.words()[start..start + width].split_at(INPUT_WORDS);
            InputRow { counters, buckets }
        })
    }

    /// Counts received samples of an input that the node does not use.
    pub fn count_unused(&self, input: u32, samples: u64) {
        self.input_row(input).inspect(|row| row.unused(samples));
    }

    /// Counts that the node was notified of a stale input.
    pub fn count_stale(&self, input: u32) {
        self.input_row(input).inspect(InputRow::stale);
    }

    /// Counts that the node handled an event of `input` `overrun_nanos` after its deadline.
    pub fn count_missed_deadline(&self, input: u32, overrun_nanos: u64) {
        self.input_row(input)
            .inspect(|row| row.missed_deadline(overrun_nanos));
    }

    /// Counters of output row `row`, for a reader outside the node.
    ///
    /// # Errors
    /// If the node has overwritten them.
    pub fn read_output(&self, row: u32) -> Result<OutputCounters, CountersError> {
        self.check_head()?;
        let missing = CountersError::Row {
            row,
            rows: self.output_rows(),
        };
        let row = self.output_row(row).ok_or(missing)?;
        check_values(row.0)?;
        Ok(row.read())
    }

    /// Counters of input `row`, for a reader outside the node.
    ///
    /// # Errors
    /// If the node has overwritten them.
    pub fn read_input(&self, row: u32) -> Result<InputCounters, CountersError> {
        self.check_head()?;
        let missing = CountersError::Row {
            row,
            rows: self.input_rows(),
        };
        let row = self.input_row(row).ok_or(missing)?;
        check_values(row.counters)?;
        check_values(row.buckets)?;
        Ok(row.read())
    }

    /// Checks that the page still begins with its constants.
    ///
    /// # Errors
    /// If the node has overwritten them.
    pub fn check_head(&self) -> Result<(), CountersError> {
        let sizes = [self.output_rows as u64, self.input_rows as u64];
        if has_head(&self.mapping, COUNTERS_MAGIC, sizes) {
            Ok(())
        } else {
            Err(CountersError::Head)
        }
    }

    /// Counters of output row `row`; zeros beyond the last row.
    pub fn output(&self, row: u32) -> OutputCounters {
        self.output_row(row)
            .map(|row| row.read())
            .unwrap_or_default()
    }

    /// Counters of input `row`; zeros beyond the last row.
    pub fn input(&self, row: u32) -> InputCounters {
        self.input_row(row)
            .map(|row| row.read())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter_rows::{MAX_COUNT, OutputCounter};
    use crate::histogram::{BUCKETS, Histogram};

    #[test]
    fn rows_are_separate_and_a_supervisor_reads_what_the_node_wrote() {
        let fd = CountersPage::create(2, 2).unwrap();
        let node = CountersPage::map(&fd, true).unwrap();
        let supervisor = CountersPage::map(
            &crate::sys::read_only(rustix::fd::AsFd::as_fd(&fd)).unwrap(),
            false,
        )
        .unwrap();
        node.output_row(1)
            .unwrap()
            .add(OutputCounter::DroppedNewest, 3);
        node.input_row(0).unwrap().received(100, 20_000);
        node.input_row(0).unwrap().received(100, 80_000);
        node.count_stale(0);
        node.count_missed_deadline(0, 700);
        node.count_missed_deadline(0, 500);
        node.input_row(1).unwrap().hold();
        assert!(node.output_row(2).is_none() && node.input_row(2).is_none());
        assert_eq!(supervisor.output(0), OutputCounters::default());
        assert_eq!(supervisor.output(1).dropped_newest, 3);
        assert_eq!(supervisor.output(1).lost(), 3);
        let input = supervisor.input(0);
        assert_eq!((input.received, input.bytes, input.held), (2, 200, 0));
        assert_eq!(
            (input.stale, input.deadlines_missed, input.max_overrun_nanos),
            (1, 2, 700)
        );
        assert_eq!(
            (input.latency.count(), input.latency.max_nanos()),
            (2, 80_000)
        );
        assert!((20_000..23_000).contains(&input.latency.quantile(0.5).unwrap()));
        assert_eq!(input.latency.quantile(1.0), Some(80_000));
        assert_eq!(supervisor.input(1).held, 1);
        assert_eq!((supervisor.beats(), supervisor.sleeps_until()), (0, None));
        node.beat();
        node.set_sleeps_until(Some(7));
        assert_eq!(
            (supervisor.beats(), supervisor.sleeps_until()),
            (1, Some(7))
        );
        assert_eq!(supervisor.output(0), OutputCounters::default());
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn the_next_process_continues_the_counts_of_the_last_but_holds_nothing() {
        let first = CountersPage::create(2, 1).unwrap();
        let node = CountersPage::map(&first, true).unwrap();
        node.output_row(1).unwrap().add(OutputCounter::Sent, 5);
        node.input_row(0).unwrap().received(100, 20_000);
        node.input_row(0).unwrap().hold();
        let second =
            CountersPage::create_after(2, 1, &CountersPage::map(&first, false).unwrap(), &[(0, 3)])
                .unwrap();
        let next = CountersPage::map(&second, true).unwrap();
        next.output_row(1).unwrap().add(OutputCounter::Sent, 2);
        next.input_row(0).unwrap().received(100, 80_000);
        let input = next.input(0);
        assert_eq!((next.output(1).sent, input.received, input.held), (7, 2, 0));
        assert_eq!(input.lost, 3, "left behind in the queue");
        assert_eq!(
            (input.latency.count(), input.latency.max_nanos()),
            (2, 80_000)
        );
        next.output_row(1).unwrap().clear();
        assert_eq!(next.output(1), OutputCounters::default());
        assert_eq!(
            node.output(1).sent,
            5,
            "the page of the last process is unchanged"
        );
    }

    #[test]
    fn overwritten_counters_are_neither_read_nor_continued() {
        let fd = CountersPage::create(2, 1).unwrap();
        let node = CountersPage::map(&fd, true).unwrap();
        let supervisor = CountersPage::map(&fd, false).unwrap();
        node.output_row(0).unwrap().add(OutputCounter::Sent, 5);
        node.output_row(1)
            .unwrap()
            .add(OutputCounter::Sent, u64::MAX);
        node.input_row(0).unwrap().buckets[3].store(MAX_COUNT + 1, Relaxed);
        assert_eq!(supervisor.read_output(0).unwrap().sent, 5, "a valid row");
        assert_eq!(
            supervisor.read_output(1),
            Err(CountersError::Value { value: u64::MAX })
        );
        assert_eq!(
            supervisor.read_input(0),
            Err(CountersError::Value {
                value: MAX_COUNT + 1
            })
        );
        assert_eq!(
            supervisor.read_output(2),
            Err(CountersError::Row { row: 2, rows: 2 })
        );
        let next = CountersPage::create_after(2, 1, &supervisor, &[]).unwrap();
        let next = CountersPage::map(&next, false).unwrap();
        assert_eq!(
            (
                next.output(0).sent,
                next.output(1).sent,
                next.input(0).latency.count()
            ),
            (5, 0, 0)
        );
        // SAFETY: an atomic, within the head.
        unsafe { node.mapping.at::<AtomicU64>(16) }.store(1 << 40, Relaxed);
        assert_eq!(supervisor.read_output(0), Err(CountersError::Head));
        assert_eq!(supervisor.read_input(0), Err(CountersError::Head));
        assert!(CountersPage::map(&fd, false).is_err());
        let next = CountersPage::create_after(2, 1, &supervisor, &[]).unwrap();
        assert_eq!(CountersPage::map(&next, false).unwrap().output(0).sent, 0);
    }

    #[test]
    fn sums_of_counters_do_not_overflow() {
        let counters = OutputCounters {
            sent: u64::MAX,
            dropped_oldest: 2,
            dropped_newest: u64::MAX,
            ..Default::default()
        };
        assert_eq!(
            (counters.published(), counters.lost()),
            (u64::MAX, u64::MAX)
        );
        let mut latency = Histogram::of([u64::MAX; BUCKETS], u64::MAX);
        latency.merge(&latency.clone());
        assert_eq!(latency.count(), u64::MAX);
        assert!(latency.quantile(0.99).is_some());
    }

    #[test]
    fn a_supervisors_descriptor_is_read_only() {
        let fd = CountersPage::create(1, 1).unwrap();
        let read_only = crate::sys::read_only(rustix::fd::AsFd::as_fd(&fd)).unwrap();
        assert!(CountersPage::map(&read_only, true).is_err());
    }
}
