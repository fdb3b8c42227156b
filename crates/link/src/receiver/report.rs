//! Time and content of the feedback to the sender.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use smallvec::SmallVec;

use super::{
    cost,
    ranges::{ClosedIds, Reports},
};
use crate::window::PacketWindow;
use crate::wire::data::ReportInterval;
use crate::wire::feedback::{CLOSED_MAX, ClosedRange, Feedback, PROGRESS_MAX, Progress};

/// After this number of packets per millisecond of the interval that the sender asks for, feedback
/// is due at once.
const PACKETS_PER_MILLI: u32 = 24;
/// The interval before the sender has asked for another.
const FIRST_INTERVAL: Duration = Duration::from_millis(1);
/// If no packet follows on a path with loss, feedback is repeated after this time: with little
/// traffic a lost feedback would be missed.
const REPEAT_AFTER: Duration = Duration::from_millis(2);
const REPEATS_AT_LITTLE_LOSS: u8 = 1;
const REPEATS_AT_MUCH_LOSS: u8 = 3;
/// Thresholds of little and of much loss.
const LITTLE_LOSS: f64 = 0.02;
const MUCH_LOSS: f64 = 0.15;
/// Number of feedbacks that report a change of a block's progress, as some may be lost.
const REPEATS: u8 = 3;
/// Number of feedbacks whose closed ranges are remembered.
const HISTORY: usize = 64;

/// The cost of the progress of a block.
pub(super) const PROGRESS_ENTRY: u64 = cost::entry(size_of::<((u64, u16), (u16, u8))>());
/// The cost of an empty history.
pub(super) const HISTORY_COST: u64 =
    cost::allocation(HISTORY * size_of::<(u64, Vec<ClosedRange>)>());

#[derive(Debug)]
pub(crate) struct Reporter {
    number: u64,
    /// The time between two feedbacks that the sender asks for.
    interval: Duration,
    reported_at: Option<Instant>,
    arrived: Option<Instant>,
    packets: u64,
    bytes: u64,
    congestion_marks: u64,
    unreported: u32,
    repeats_left: u8,
    due: Option<Instant>,
    /// A transmission was closed since the application began to take a sample.
    has_closed: bool,
    /// Changed blocks: their number of symbols, and how often to report it yet.
    progress: BTreeMap<(u64, u16), (u16, u8)>,
    history: VecDeque<(u64, Vec<ClosedRange>)>,
    /// Bytes of the history.
    history_bytes: u64,
}

impl Default for Reporter {
    fn default() -> Self {
        Self {
            number: 0,
            interval: FIRST_INTERVAL,
            reported_at: None,
            arrived: None,
            packets: 0,
            bytes: 0,
            congestion_marks: 0,
            unreported: 0,
            repeats_left: 0,
            due: None,
            has_closed: false,
            progress: BTreeMap::new(),
            history: VecDeque::with_capacity(HISTORY),
            history_bytes: 0,
        }
    }
}

impl Reporter {
    /// Notes a received packet. The newest sets the interval of feedback.
    pub(super) fn on_packet(
        &mut self,
        now: Instant,
        interval: Option<ReportInterval>,
        bytes: usize,
        is_marked: bool,
    ) {
        self.packets += 1;
        self.bytes += bytes as u64;
        self.congestion_marks += u64::from(is_marked);
        if let Some(interval) = interval {
            self.arrived = Some(now);
            self.interval = interval.duration();
        }
        self.unreported += 1;
        self.repeats_left = u8::MAX;
        let many =
            self.unreported as u128 >= u128::from(PACKETS_PER_MILLI) * self.interval.as_millis();
        let due = if many { now } else { self.next_at(now) };
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
    }

    /// When the next feedback may go: an interval after the last, at once after a pause.
    fn next_at(&self, now: Instant) -> Instant {
        self.reported_at
            .map_or(now, |last| now.max(last + self.interval))
    }

    pub(super) fn on_progress(&mut self, id: u64, block: u16, symbols: u16) {
        self.progress.insert((id, block), (symbols, REPEATS));
    }

    /// Notes that the application begins to take a sample.
    pub(super) fn begin_taking(&mut self) {
        self.has_closed = false;
    }

    pub(super) fn on_closed(&mut self, id: u64) {
        self.has_closed = true;
        while let Some((key, _)) = self.progress.range((id, 0)..=(id, u16::MAX)).next() {
            let key = *key;
            self.progress.remove(&key);
        }
    }

    /// Takes an acknowledged feedback off the history, and returns the closed ranges that it
    /// reported.
    pub(super) fn acknowledged(&mut self, number: u64) -> Option<Vec<ClosedRange>> {
        let place = self.history.iter().position(|(sent, _)| *sent == number)?;
        let mut found = None;
        for (_, closed) in self.history.drain(..=place) {
            self.history_bytes -= history_bytes(&closed);
            found = Some(closed);
        }
        found
    }

    /// When the next feedback is due after this one, if no packet arrives. The sender has sent
    /// `highest` packets.
    fn next_due(&mut self, now: Instant, highest: u64) -> Option<Instant> {
        if self.repeats_left == u8::MAX {
            let loss = 1.0 - self.packets as f64 / highest.max(1) as f64;
            self.repeats_left = match loss {
                LITTLE_LOSS..MUCH_LOSS => REPEATS_AT_LITTLE_LOSS,
                MUCH_LOSS.. => REPEATS_AT_MUCH_LOSS,
                _ => 0,
            };
        }
        self.repeats_left = self.repeats_left.checked_sub(1)?;
        Some(now + REPEAT_AFTER.max(self.interval))
    }

    /// Feedback is due, if any was sent: the last one may be lost.
    pub(crate) fn report_again(&mut self, now: Instant) {
        if self.reported_at.is_some() {
            self.due = Some(now);
            self.repeats_left = u8::MAX;
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The application took a sample: feedback is due if that closed a transmission.
    pub(super) fn report_closed(&mut self, now: Instant) {
        if std::mem::take(&mut self.has_closed) {
            let next = self.next_at(now);
            self.due = Some(self.due.map_or(next, |due| due.min(next)));
        }
    }

    /// The feedback that is due now. The caller sets the session and the incarnation.
    pub(super) fn next_feedback(
        &mut self,
        now: Instant,
        start: Instant,
        packets: &PacketWindow,
        closed: &ClosedIds,
        reports: &mut Reports,
    ) -> Option<Feedback> {
        self.due.filter(|due| *due <= now)?;
        let arrived = self.arrived.unwrap_or(now);
        self.number += 1;
        (self.unreported, self.reported_at) = (0, Some(now));
        self.due = self.next_due(now, packets.highest);
        Some(Feedback {
            session: 0,
            incarnation: 0,
            number: self.number,
            highest_packet: packets.highest,
            packets: self.packets,
            bytes: self.bytes,
            congestion_marks: self.congestion_marks,
            arrived_micros: micros(arrived.saturating_duration_since(start)),
            held_micros: micros(now.saturating_duration_since(arrived)),
            floor: closed.floor(),
            closed: reports.next(CLOSED_MAX),
            progress: self.next_progress(),
        })
    }

    /// Remembers the closed ranges of a feedback that was sent, as far as `room` bytes allow.
    pub(super) fn on_sent(&mut self, feedback: Feedback, room: u64) {
        if feedback.closed.is_empty() {
            return;
        }
        let bytes = history_bytes(&feedback.closed);
        if self.history.len() == HISTORY
            && let Some((_, closed)) = self.history.pop_front()
        {
            self.history_bytes -= history_bytes(&closed);
        }
        if bytes <= room {
            self.history_bytes += bytes;
            self.history.push_back((feedback.number, feedback.closed));
        }
    }

    /// Bytes of the feedbacks that are remembered.
    pub(super) fn history_bytes(&self) -> u64 {
        self.history_bytes
    }

    /// The progress to report: each change is repeated a few times.
    fn next_progress(&mut self) -> Vec<Progress> {
        let mut progress = Vec::new();
        let mut reported = SmallVec::<[(u64, u16); 16]>::new();
        for ((id, block), (symbols, repeats)) in self.progress.iter_mut().take(PROGRESS_MAX) {
            progress.push(Progress {
                transmit_id: *id,
                block: *block,
                symbols: *symbols,
            });
            *repeats -= 1;
            if *repeats == 0 {
                reported.push((*id, *block));
            }
        }
        for block in reported {
            self.progress.remove(&block);
        }
        progress
    }
}

fn history_bytes(closed: &Vec<ClosedRange>) -> u64 {
    cost::allocation(closed.capacity() * size_of::<ClosedRange>())
}

/// Microseconds, modulo 2^32.
fn micros(duration: Duration) -> u32 {
    duration.as_micros() as u32
}
