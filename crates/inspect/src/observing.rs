//! Samples and figures of topics, wherever their nodes run.
//!
//! A topic that reaches this machine, because a node here consumes it, is observed here: that costs
//! the link nothing. Of others, the other machine sends the newest sample each time that one was
//! taken here, and not before.

use std::{
    collections::BTreeMap,
    fs::File,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use nervure_node::{
    Event, Observer, Sample,
    binding::{PRODUCER_ENDED, SequenceGaps, report_ended_producers},
    remote::{self, Arrival},
    running::{Connection, ConnectionError, DaemonConnection},
};
use nervure_protocol::{
    cli_to_daemon, daemon_to_cli,
    daemon_to_daemon::{Answer, Request, SampleInfo},
};
use rustix::fd::OwnedFd;

use crate::{Error, State, daemon, places::Place, threads, topics::SelectedTopics};

/// A wait without a reason to end it.
const A_WHILE: Duration = Duration::from_secs(3600);

/// A sample or an event of the observed topics.
pub enum Seen {
    /// A sample.
    Sample {
        /// `node/output`.
        topic: String,
        /// The sample.
        sample: Sample,
        /// Samples that were not shown since the last one of this topic.
        missed: u64,
        /// The dataflow's clock on the machine of the sample when it was taken.
        now: i64,
    },
    /// The process that sends a topic has ended, behind its last sample.
    Ended {
        /// `node/output`.
        topic: String,
        /// Whether no other process follows.
        is_last: bool,
    },
    /// A node has failed, or runs again.
    Note(String),
}

/// Samples of topics of one dataflow.
pub struct Observing {
    seen: Receiver<Result<Seen, Error>>,
    /// Bytes that came over the link.
    link_bytes: Arc<AtomicU64>,
    begin: Instant,
    /// The other machines that samples come from.
    machines: Vec<String>,
}

/// Topics by where they can be observed.
pub struct Located {
    /// Topics that are observed on this machine.
    pub here: Vec<String>,
    /// Topics of other machines, by the machine and the keeper.
    pub there: BTreeMap<(String, u32), Vec<String>>,
    /// A connection to the keeper of those that are here.
    pub connection: Option<Connection>,
}

/// Where each topic can be observed.
pub fn locate(selected: SelectedTopics) -> Located {
    let SelectedTopics { state, topics } = selected;
    let is_here = |index: u32| matches!(state.place_of(index), Place::Here(_));
    let mut here = Vec::new();
    let mut there: BTreeMap<_, Vec<String>> = BTreeMap::new();
    let mut part = None;
    for topic in topics {
        // The node itself, or its stand-in.
        let mut producers = state.nodes.iter().filter(|(_, node)| {
            let id = &state.nodes[&topic.node].declared.id;
            let mut outputs = node.declared.outputs.iter();
            node.declared.id == *id && outputs.any(|output| output.name == topic.output.name)
        });
        match (
            producers.find(|(index, _)| is_here(**index)),
            state.place_of(topic.node),
        ) {
            (Some((index, _)), _) => {
                part = Some(State::part_of(*index));
                here.push(topic.name);
            }
            (None, Place::There { machine, keeper }) => {
                let place = (machine.clone(), *keeper);
                there.entry(place).or_default().push(topic.name);
            }
            (None, Place::Here(_)) => {}
        }
    }
    Located {
        here,
        there,
        connection: part.map(|part| state.into_connection_of(part)),
    }
}

impl Observing {
    /// Observes topics. Each queue here holds `depth` samples.
    pub fn open(selected: SelectedTopics, depth: u32, program: &str) -> Result<Self, Error> {
        let located = locate(selected);
        let (sender, seen) = sync_channel(0);
        let link_bytes = Arc::new(AtomicU64::new(0));
        if let Some(connection) = located.connection {
            let observer = Observer::open_through(connection, &located.here, depth)?;
            let sender = sender.clone();
            threads::spawn(move || pass_on_local(observer, &sender))?;
        }
        let mut machines = Vec::new();
        for ((machine, keeper), topics) in located.there {
            let mut daemon = daemon::connect(program)?;
            let request = Request::Observe {
                keeper,
                program: program.to_owned(),
                topics: topics.clone(),
            };
            begin(&mut daemon, &machine, request)?;
            let (sender, link_bytes) = (sender.clone(), Arc::clone(&link_bytes));
            threads::spawn(move || fetch(daemon, &topics, &sender, &link_bytes))?;
            machines.push(machine);
        }
        Ok(Self {
            seen,
            link_bytes,
            begin: Instant::now(),
            machines,
        })
    }

    /// The next sample or note, if one comes before `deadline`.
    ///
    /// # Errors
    /// [`RecvTimeoutError::Disconnected`] when the dataflow has ended on all machines.
    pub fn next_until(
        &mut self,
        deadline: Instant,
    ) -> Result<Result<Seen, Error>, RecvTimeoutError> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.seen.recv_timeout(left)
    }

    /// The bytes that came over the link, as a text, if samples come from other machines.
    pub fn cost(&self) -> Option<String> {
        let bytes = self.link_bytes.load(Ordering::Relaxed);
        let rate = bytes as f64 / self.begin.elapsed().as_secs_f64().max(1e-3);
        (!self.machines.is_empty()).then(|| {
            format!(
                "{:.1} kB over the link from {}, {:.1} kB/s",
                bytes as f64 / 1e3,
                self.machines.join(", "),
                rate / 1e3
            )
        })
    }
}

/// Samples and notes, until the dataflow has ended on all machines.
impl Iterator for Observing {
    type Item = Result<Seen, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.seen.recv().ok()
    }
}

/// Sends a request to another machine, and awaits that it observes.
pub fn begin(daemon: &mut DaemonConnection, machine: &str, request: Request) -> Result<(), Error> {
    daemon.send(&cli_to_daemon::Message::Ask {
        machine: machine.to_owned(),
        request,
    })?;
    loop {
        match next_answer(daemon)? {
            (Answer::Observing, _) => return Ok(()),
            (Answer::Cost(_), _) => {}
            (other, _) => {
                return Err(ConnectionError::Unexpected(format!("{other:?}")).into());
            }
        }
    }
}

/// The next answer of another machine. The daemon reports a silent machine.
pub fn next_answer(daemon: &mut DaemonConnection) -> Result<(Answer, Option<OwnedFd>), Error> {
    loop {
        match daemon.receive_until(Instant::now() + A_WHILE)? {
            Some((daemon_to_cli::Message::Answer { answer }, descriptor)) => {
                return Ok((answer, descriptor));
            }
            Some((other, _)) => {
                return Err(ConnectionError::Unexpected(format!("{other:?}")).into());
            }
            None => {}
        }
    }
}

fn pass_on_local(mut observer: Observer, sender: &SyncSender<Result<Seen, Error>>) {
    let mut gaps = SequenceGaps::default();
    report_ended_producers(observer.events());
    while let Some(event) = observer.next() {
        let seen = match event {
            Event::Input { id, sample } => Seen::Sample {
                missed: gaps.record(&id, sample.header()),
                topic: id.to_string(),
                sample,
                now: observer.now(),
            },
            Event::InputClosed { id } => Seen::Ended {
                topic: id.to_string(),
                is_last: true,
            },
            Event::Other { kind, inputs, .. } if kind == PRODUCER_ENDED => Seen::Ended {
                topic: inputs.into_iter().next().unwrap_or_default(),
                is_last: false,
            },
            Event::NodeFailed { node, reason, .. } => {
                Seen::Note(format!("node `{node}` failed: {reason}"))
            }
            Event::NodeRestarted { node, .. } => Seen::Note(format!("node `{node}` runs again")),
            _ => continue,
        };
        if sender.send(Ok(seen)).is_err() {
            return;
        }
    }
}

/// Fetches a sample whenever the last one was taken.
fn fetch(
    mut daemon: DaemonConnection,
    topics: &[String],
    sender: &SyncSender<Result<Seen, Error>>,
    link_bytes: &AtomicU64,
) {
    loop {
        if let Err(error) = daemon.send(&cli_to_daemon::Message::Next) {
            drop(sender.send(Err(error.into())));
            return;
        }
        let seen = loop {
            match next_answer(&mut daemon) {
                Ok((Answer::Sample(info), Some(descriptor))) => {
                    break received(info, &File::from(descriptor), topics, link_bytes);
                }
                Ok((Answer::Ended { topic: None }, _)) => return,
                Ok((Answer::Ended { topic: Some(topic) }, _)) => {
                    let is_last = true;
                    if sender.send(Ok(Seen::Ended { topic, is_last })).is_err() {
                        return;
                    }
                }
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        let is_last = seen.is_err();
        if sender.send(seen).is_err() || is_last {
            return;
        }
    }
}

/// The sample in a file, as it came over the link.
fn received(
    info: SampleInfo,
    file: &File,
    topics: &[String],
    link_bytes: &AtomicU64,
) -> Result<Seen, Error> {
    let damaged = |error: &dyn std::fmt::Display| Error::Sample(error.to_string().into());
    let length = file.metadata().map_err(|error| damaged(&error))?.len();
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)
        .map_err(|error| damaged(&error))?;
    link_bytes.fetch_add(length, Ordering::Relaxed);
    let topic = topics.get(info.topic as usize);
    let topic = topic.ok_or_else(|| damaged(&format!("there is no topic {}", info.topic)))?;
    match remote::decode(&bytes).map_err(|error| damaged(&error))? {
        Arrival::Sample(arrived) => {
            let sample = arrived
                .to_sample(info.incarnation, info.sequence, info.latency_nanos)
                .map_err(|error| damaged(&error))?;
            Ok(Seen::Sample {
                topic: topic.clone(),
                sample,
                missed: info.missed,
                now: info.now_utc_nanos,
            })
        }
        Arrival::EndOfProcess => Err(damaged(&"it is the end of a process")),
    }
}
