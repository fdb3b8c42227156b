//! The keeper's side of a socket over which it reports to a client. The queue never blocks, and its
//! length is bounded.

use std::{collections::BTreeMap, rc::Rc, time::Duration};

use nervure_protocol::{
    ProtocolError, encode, keeper_to_cli,
    report::{Level, LogRecord, Report},
};
use nervure_shm::{Seqpacket, utc_nanos};
use rustix::fd::OwnedFd;

use super::outbox::Outbox;

/// Queue length in messages from which log records are not sent: they are in the log files.
const MAX_WAITING: usize = 1000;

/// Queue length in messages at which a client is disconnected.
const MAX_BEHIND: usize = 4000;

/// How often the log records that were not sent are summed up.
const SUMMARY_PERIOD: Duration = Duration::from_secs(1);

/// A queue of reports and its socket.
#[derive(Debug, Default)]
pub struct ReportLink {
    /// `None` once the other end is closed.
    socket: Option<Seqpacket>,
    reader: Reader,
    outbox: Outbox,
    /// Messages of the snapshot that a client asked for, which do not count towards [`MAX_BEHIND`].
    allowance: usize,
    /// Log records not sent, per node.
    unsent: BTreeMap<String, u64>,
    /// When to report them.
    summary_at: Option<Duration>,
}

/// The other end, on which it depends what happens to one that does not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reader {
    /// The client that has started the keeper. It gets every report that is no log record: a
    /// blocked terminal does not end a dataflow.
    Starter,
    /// Any other client, which is disconnected.
    #[default]
    Client,
}

impl ReportLink {
    /// A link with nothing to send.
    pub fn new(socket: Seqpacket, reader: Reader) -> Self {
        Self {
            socket: Some(socket),
            reader,
            ..Self::default()
        }
    }

    /// The socket, while the other end lives.
    pub fn socket(&self) -> Option<&Seqpacket> {
        self.socket.as_ref()
    }

    /// Returns the socket, and the messages that wait to be sent.
    pub fn into_parts(self) -> (Option<Seqpacket>, Outbox) {
        (self.socket, self.outbox)
    }

    /// True for a client that does not read.
    pub fn is_behind(&self) -> bool {
        self.reader == Reader::Client && self.outbox.len() > MAX_BEHIND + self.allowance
    }

    /// True while a message waits to be sent.
    pub fn is_waiting(&self) -> bool {
        self.outbox.len() > 0 || self.summary_at.is_some()
    }

    /// When to flush again.
    pub fn deadline(&self) -> Option<Duration> {
        self.outbox
            .deadline()
            .into_iter()
            .chain(self.summary_at)
            .min()
    }

    /// Sends the summary of omitted log records with the next flush.
    pub fn sum_up_now(&mut self, now: Duration) {
        self.summary_at = self.summary_at.map(|_| now);
    }

    /// Queues an answer to a client.
    pub fn answer(&mut self, message: &keeper_to_cli::Message, descriptor: Option<Rc<OwnedFd>>) {
        self.allowance += 1;
        self.push(encode(message), descriptor);
    }

    /// Queues a report.
    pub fn send(&mut self, message: &Report, descriptor: Option<Rc<OwnedFd>>, now: Duration) {
        if self.socket.is_none() {
            return;
        }
        match message {
            // The keeper's own records are few, and must not be missed.
            Report::Log(record)
                if record.stream != "keeper" && self.outbox.len() >= MAX_WAITING =>
            {
                *self.unsent.entry(record.node.clone()).or_default() += 1;
                self.summary_at.get_or_insert(now + SUMMARY_PERIOD);
            }
            _ => self.push_report(message, descriptor),
        }
    }

    /// Sends messages while the socket has room.
    pub fn flush(&mut self, now: Duration, utc_nanos: i64) {
        if self.summary_at.is_some_and(|at| at <= now) {
            self.summary_at = None;
            let text = unsent_text(&std::mem::take(&mut self.unsent));
            let (node, stream) = ("nervure".to_owned(), "keeper".to_owned());
            let record = LogRecord {
                utc_nanos,
                node,
                level: Level::Warn,
                stream,
                text,
            };
            self.push_report(&Report::Log(record), None);
        }
        if let Some(socket) = &self.socket {
            // A closed socket is noticed where messages are received.
            let _ = self.outbox.flush(socket, now);
            self.allowance = self.allowance.min(self.outbox.len());
        }
    }

    fn push_report(&mut self, message: &Report, descriptor: Option<Rc<OwnedFd>>) {
        let report = message.clone();
        let bytes = encode(&keeper_to_cli::Message::Report { report });
        self.push(bytes, descriptor);
    }

    fn push(&mut self, bytes: Result<Vec<u8>, ProtocolError>, descriptor: Option<Rc<OwnedFd>>) {
        match bytes {
            Ok(bytes) => self.outbox.push(bytes, descriptor.into_iter().collect()),
            Err(error) => self.push_report(&unsendable(&error), None),
        }
    }
}

/// The report in the place of one that is too long for a message.
fn unsendable(error: &ProtocolError) -> Report {
    Report::Log(LogRecord {
        utc_nanos: utc_nanos(),
        node: "nervure".to_owned(),
        level: Level::Error,
        stream: "keeper".to_owned(),
        text: format!("a report is not sent: {error}"),
    })
}

/// One line for all nodes together.
fn unsent_text(unsent: &BTreeMap<String, u64>) -> String {
    let lines: u64 = unsent.values().sum();
    let (node, most) = unsent
        .iter()
        .max_by_key(|(_, count)| **count)
        .expect("there is a node with unsent lines");
    match unsent.len() {
        1 => format!(
            "{lines} lines of node `{node}` came too fast to be shown; its log file has them"
        ),
        nodes => format!(
            "{lines} lines of {nodes} nodes came too fast to be shown, {most} of them of node `{node}`; the log files have them"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nervure_protocol::{MAX_MESSAGE_BYTES, decode};
    use nervure_shm::Received;

    fn line(text: &str) -> Report {
        let (node, stream) = ("camera".to_owned(), "stdout".to_owned());
        Report::Log(LogRecord {
            utc_nanos: 0,
            node,
            level: Level::Info,
            stream,
            text: text.to_owned(),
        })
    }

    fn receive_all(socket: &Seqpacket) -> Vec<Report> {
        let mut buffer = Vec::with_capacity(MAX_MESSAGE_BYTES);
        std::iter::from_fn(|| match socket.receive(&mut buffer) {
            Ok(Received::Packet(_)) => match decode(&buffer).unwrap() {
                keeper_to_cli::Message::Report { report } => Some(report),
                other => panic!("{other:?}"),
            },
            _ => None,
        })
        .collect()
    }

    #[test]
    fn log_records_of_a_flood_are_counted_and_other_messages_overtake_them() {
        let (keeper, run) = Seqpacket::pair().unwrap();
        let mut link = ReportLink::new(keeper, Reader::Starter);
        let flood = 10 * MAX_WAITING;
        for number in 0..flood {
            link.send(&line(&number.to_string()), None, Duration::ZERO);
            link.flush(Duration::ZERO, 0);
        }
        link.send(&Report::Ready, None, Duration::ZERO);
        assert_eq!(link.summary_at, Some(SUMMARY_PERIOD));
        let mut seen = receive_all(&run);
        let mut now = SUMMARY_PERIOD;
        while link.is_waiting() {
            now += Duration::from_secs(1);
            link.flush(now, 0);
            seen.extend(receive_all(&run));
        }
        assert!(seen.contains(&Report::Ready));
        let lines = seen
            .iter()
            .filter(|message| matches!(message, Report::Log(r) if r.stream == "stdout"))
            .count();
        assert!(lines >= MAX_WAITING);
        let summary = seen.iter().find_map(|message| match message {
            Report::Log(record) if record.stream == "keeper" => Some(record.text.clone()),
            _ => None,
        });
        let text = summary.expect("a summary");
        assert!(
            text.starts_with(&format!("{} lines of node `camera`", flood - lines)),
            "{text}"
        );
    }

    #[test]
    fn a_client_that_does_not_read_is_behind_only_after_its_snapshot() {
        let (keeper, client) = Seqpacket::pair().unwrap();
        let mut link = ReportLink::new(keeper, Reader::Client);
        for _ in 0..2 * MAX_BEHIND {
            link.answer(&keeper_to_cli::Message::Done, None);
        }
        link.flush(Duration::ZERO, 0);
        assert!(!link.is_behind(), "the snapshot does not count");
        for _ in 0..=MAX_BEHIND {
            link.send(&Report::Ready, None, Duration::ZERO);
        }
        assert!(link.is_behind());
        drop(client);
    }

    #[test]
    fn nothing_waits_for_a_closed_socket_whose_end_can_still_be_received() {
        let (keeper, run) = Seqpacket::pair().unwrap();
        let mut link = ReportLink::new(keeper, Reader::Starter);
        drop(run);
        link.send(&Report::Ready, None, Duration::ZERO);
        link.flush(Duration::ZERO, 0);
        assert!(!link.is_waiting());
        let end = link
            .socket()
            .unwrap()
            .receive(&mut Vec::with_capacity(16))
            .unwrap();
        assert!(matches!(end, Received::Closed));
    }
}
