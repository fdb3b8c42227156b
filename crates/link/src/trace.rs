//! The trace of a session: the sender's view of the path and its decisions, for diagnosis in the
//! field. Turned off, it costs a comparison for each feedback.
//!
//! A record is a line of JSON in the manner of qlog (draft-ietf-quic-qlog-main-schema): `time` in
//! milliseconds on the link's clock, `peer`, `name`, and the `data` of that name.

use std::{
    collections::VecDeque,
    fmt::Write,
    time::{Duration, Instant},
};

use crate::{carrier::PublicKey, rate::Status, wire::feedback::Feedback};

/// The most records that wait to be taken; then further ones are counted only.
const WAITING_MAX: usize = 4096;

/// A record of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The time since the trace began.
    pub time: Duration,
    /// The event.
    pub event: TraceEvent,
}

/// Subject of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum TraceEvent {
    /// The carrier has a connection to the peer.
    Connected,
    /// Feedback arrived, and the rate was decided on.
    Feedback(FeedbackRecord),
    /// The phase of the rate has changed.
    Phase {
        /// The phase before.
        from: Phase,
        /// The phase now.
        to: Phase,
        /// The time since the last feedback.
        silence: Duration,
        /// Bytes in flight.
        in_flight_bytes: u64,
    },
    /// The peer has lost its state, and a new session begins.
    PeerLost {
        /// Number of samples in flight.
        unconfirmed: u64,
    },
    /// The peer broke the protocol.
    Violation(String),
    /// This number of records is missing here: they were not taken in time.
    Missing(u64),
}

/// Feedback, the resulting view of the path, and the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeedbackRecord {
    /// The number of the feedback.
    pub number: u64,
    /// The highest packet number that arrived.
    pub highest_packet: u64,
    /// Packets that arrived in the session.
    pub packets: u64,
    /// Packets that arrived with a congestion mark.
    pub congestion_marks: u64,
    /// Estimates of the path.
    pub path: Status,
    /// The rate before, in bytes per second.
    pub bytes_per_second_before: f64,
    /// Since the last such record.
    pub since: Sent,
}

/// Packets sent in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Data packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of these, packets that were sent although the window was full, or on a silent path.
    pub probes: u64,
    /// Number of times that the rate or the window held a packet back.
    pub waits: u64,
}

/// The phase of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The rate is being found.
    Starting,
    /// The rate follows the path.
    Steady,
    /// Nothing comes back: only probes are sent.
    Silent,
}

impl Phase {
    fn of(path: &Status) -> Self {
        match (path.silent, path.starting) {
            (true, _) => Self::Silent,
            (false, true) => Self::Starting,
            (false, false) => Self::Steady,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Steady => "steady",
            Self::Silent => "silent",
        }
    }
}

impl Record {
    /// Appends the record as a line.
    pub fn write_line(&self, peer: &PublicKey, out: &mut String) {
        let millis = self.time.as_secs_f64() * 1e3;
        let (name, data) = self.event.name_and_data();
        writeln!(
            out,
            r#"{{"time":{millis:.3},"peer":"{peer}","name":"{name}","data":{{{data}}}}}"#
        )
        .expect("a string takes all");
    }
}

impl TraceEvent {
    fn name_and_data(&self) -> (&'static str, String) {
        match self {
            Self::Connected => ("connected", String::new()),
            Self::Feedback(feedback) => ("feedback", feedback.data()),
            Self::Phase {
                from,
                to,
                silence,
                in_flight_bytes,
            } => (
                "phase",
                format!(
                    r#""from":"{}","to":"{}","silence_ms":{:.3},"in_flight_bytes":{in_flight_bytes}"#,
                    from.name(),
                    to.name(),
                    millis(*silence)
                ),
            ),
            Self::PeerLost { unconfirmed } => {
                ("peer_lost", format!(r#""unconfirmed":{unconfirmed}"#))
            }
            Self::Violation(why) => (
                "violation",
                format!(r#""why":"{}""#, why.replace(['"', '\\'], "'")),
            ),
            Self::Missing(records) => ("missing", format!(r#""records":{records}"#)),
        }
    }
}

impl FeedbackRecord {
    fn data(&self) -> String {
        let path = &self.path;
        let (before, rate) = (self.bytes_per_second_before, path.bytes_per_second);
        let decision = match rate.total_cmp(&before) {
            std::cmp::Ordering::Less => "lower",
            std::cmp::Ordering::Equal => "keep",
            std::cmp::Ordering::Greater => "raise",
        };
        format!(
            concat!(
                r#""number":{},"highest_packet":{},"packets":{},"congestion_marks":{},"#,
                r#""rtt_ms":{:.3},"base_rtt_ms":{:.3},"queue_ms":{:.3},"loss":{:.5},"#,
                r#""bottleneck_bytes_per_second":{:.0},"in_flight_bytes":{},"phase":"{}","#,
                r#""decision":"{}","bytes_per_second_before":{:.0},"bytes_per_second":{:.0},"#,
                r#""sent_packets":{},"sent_bytes":{},"probes":{},"waits":{}"#
            ),
            self.number,
            self.highest_packet,
            self.packets,
            self.congestion_marks,
            millis(path.rtt),
            millis(path.base_rtt),
            millis(path.queue_delay),
            path.loss,
            path.bottleneck_bytes_per_second,
            path.in_flight_bytes,
            Phase::of(path).name(),
            decision,
            before,
            rate,
            self.since.packets,
            self.since.bytes,
            self.since.probes,
            self.since.waits,
        )
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Makes the records of a session.
#[derive(Debug)]
pub(crate) struct Trace {
    began: Instant,
    phase: Phase,
    sent: Sent,
    records: VecDeque<Record>,
    missing: u64,
}

impl Trace {
    pub(crate) fn new(began: Instant) -> Self {
        Self {
            began,
            phase: Phase::Starting,
            sent: Sent::default(),
            records: VecDeque::new(),
            missing: 0,
        }
    }

    pub(crate) fn record(&mut self, now: Instant, event: TraceEvent) {
        if self.records.len() >= WAITING_MAX {
            self.missing += 1;
            return;
        }
        let time = now.saturating_duration_since(self.began);
        let missing = std::mem::take(&mut self.missing);
        if missing > 0 {
            let event = TraceEvent::Missing(missing);
            self.records.push_back(Record { time, event });
        }
        self.records.push_back(Record { time, event });
    }

    pub(crate) fn on_feedback(
        &mut self,
        now: Instant,
        feedback: &Feedback,
        path: Status,
        bytes_per_second_before: f64,
    ) {
        let since = std::mem::take(&mut self.sent);
        let record = FeedbackRecord {
            number: feedback.number,
            highest_packet: feedback.highest_packet,
            packets: feedback.packets,
            congestion_marks: feedback.congestion_marks,
            path,
            bytes_per_second_before,
            since,
        };
        self.record(now, TraceEvent::Feedback(record));
    }

    /// Notes the phase, and records a change.
    pub(crate) fn on_path(&mut self, now: Instant, path: &Status, silence: Duration) {
        let to = Phase::of(path);
        let from = std::mem::replace(&mut self.phase, to);
        if from != to {
            let in_flight_bytes = path.in_flight_bytes;
            let event = TraceEvent::Phase {
                from,
                to,
                silence,
                in_flight_bytes,
            };
            self.record(now, event);
        }
    }

    pub(crate) fn on_sent(&mut self, bytes: usize, is_probe: bool) {
        self.sent.packets += 1;
        self.sent.bytes += bytes as u64;
        self.sent.probes += u64::from(is_probe);
    }

    pub(crate) fn on_wait(&mut self) {
        self.sent.waits += 1;
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = Record> {
        self.records.drain(..)
    }
}
