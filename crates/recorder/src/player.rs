//! Playing a recording: a node that publishes what was recorded.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use nervure_node::{
    Envelope, Event, Events, Handle, Node, Publisher, SendError, Wait, monotonic_nanos,
};

use crate::channel::{Channel, Message};
use crate::overview::Damages;
use crate::pace::{Anchor, Pace};
use crate::read_error::ReadError;
use crate::recorded::SampleChannel;
use crate::recording::Recording;

/// Messages that are read ahead of the one that is played.
const READ_AHEAD: usize = 32;
/// Later than this is told.
const LATE: Duration = Duration::from_millis(100);
/// The clock is held up by what holds the player up longer than this.
const CLOCK_PATIENCE: Duration = Duration::from_millis(5);
/// From the last message of a round to the first of the next, on a clock that goes on.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(100);
/// Between two lines that tell of lateness.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// How a recording is played.
#[derive(Clone, Debug)]
pub struct PlayOptions {
    /// Seconds of the recording a second; `None` for as fast as its receivers allow.
    pub rate: Option<f64>,
    /// Whether it begins anew at its end, until it is stopped.
    pub repeat: bool,
    /// Whether the dataflow's clock reads the time of the recording. It needs a rate. The clock stands still while a full
    /// queue holds the player up, and goes on through all rounds: from the second on, stamps are shifted with it.
    pub drives_clock: bool,
    /// What topics of the recording are called here, where that is not as in the recording.
    pub renamed: BTreeMap<String, String>,
}

impl Default for PlayOptions {
    fn default() -> Self {
        Self {
            rate: Some(1.0),
            repeat: false,
            drives_clock: false,
            renamed: BTreeMap::new(),
        }
    }
}

/// How a recording was played.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlayReport {
    /// Samples that were published.
    pub samples: u64,
    /// Rounds that were begun.
    pub rounds: u64,
    /// How late a sample was at most; `None` where nothing has a time, because it goes as fast as possible.
    pub latest: Option<Duration>,
    /// How long full queues kept the player waiting, by consumer (`node/input`).
    pub waited: HashMap<String, Duration>,
    /// Messages that could not be published, by topic, with the first reason; none where all of the topic cannot be, which
    /// was told.
    pub skipped: HashMap<String, (u64, String)>,
    /// Parts of the file that could not be read. The first are named as they are met.
    pub damaged: u64,
    /// Whether it was stopped before its end.
    pub is_stopped: bool,
}

/// Why a recording cannot be played on.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// Sending failed.
    #[error("cannot publish {topic}: {source}")]
    Send {
        /// The topic.
        topic: String,
        /// Why.
        source: SendError,
    },
    /// The system has no thread for reading ahead.
    #[error("cannot start the thread that reads ahead: {0}")]
    Thread(#[from] std::io::Error),
}

/// What a topic of a recording is called in a dataflow: topics of ROS begin with a slash.
pub fn played_name<'a>(topic: &'a str, renamed: &'a BTreeMap<String, String>) -> &'a str {
    renamed
        .get(topic)
        .map_or(topic.strip_prefix('/').unwrap_or(topic), String::as_str)
}

/// Publishes what a recording holds for the outputs of `node`, which have the names of its topics ([`played_name`]), in the
/// order of time.
///
/// `say` is told, at most once a second, what the player cannot keep up with.
///
/// # Errors
/// [`PlayError`]; damage of the file is none, but in the report.
pub fn play(
    node: Node,
    recording: &Recording,
    options: &PlayOptions,
    say: &mut dyn FnMut(&str),
) -> Result<PlayReport, PlayError> {
    let (handle, events) = node.split();
    let outputs: Vec<String> = handle.outputs().map(str::to_owned).collect();
    let mut player = Player {
        handle,
        events,
        pace: Pace::new(options.rate),
        clock: options.rate.filter(|_| options.drives_clock),
        shift: 0,
        times: None,
        renamed: &options.renamed,
        tracks: HashMap::new(),
        report: PlayReport::default(),
        damages: Damages::default(),
        told: 0,
        say,
    };
    while !player.report.is_stopped {
        player.report.rounds += 1;
        let before = player.report.samples;
        thread::scope(|scope| {
            let (sender, receiver) = sync_channel(READ_AHEAD);
            let wanted = |channel: &Channel| {
                let name = played_name(&channel.topic, &options.renamed);
                outputs.iter().any(|output| output == name)
            };
            thread::Builder::new()
                .name("nervure-read".to_owned())
                .spawn_scoped(scope, move || read_ahead(recording, wanted, &sender))?;
            player.play_round(&receiver)
        })?;
        if !options.repeat || player.report.samples == before {
            break;
        }
        player.begin_next_round();
    }
    Ok(player.report)
}

/// Ends when nobody receives any more.
fn read_ahead(
    recording: &Recording,
    wanted: impl Fn(&Channel) -> bool,
    sender: &SyncSender<Result<Message, ReadError>>,
) {
    for message in recording.messages_of(wanted) {
        if sender.send(message).is_err() {
            return;
        }
    }
}

struct Player<'a> {
    handle: Handle,
    events: Events,
    pace: Pace,
    /// The rate of the clock, if this drives it.
    clock: Option<f64>,
    /// Nanoseconds that are added to the times of this round.
    shift: u64,
    /// The first and the last time of the recording that were played.
    times: Option<(u64, u64)>,
    /// What topics are called here.
    renamed: &'a BTreeMap<String, String>,
    /// How the messages of a channel are read and where they go, by the channel's address.
    tracks: HashMap<*const Channel, Track>,
    report: PlayReport,
    damages: Damages,
    /// When lateness was told last, in nanoseconds of CLOCK_MONOTONIC.
    told: u64,
    say: &'a mut dyn FnMut(&str),
}

struct Track {
    /// `None` when they cannot be played, which was told.
    samples: Option<SampleChannel>,
    publisher: Publisher,
    /// Keeps its address from being used by another.
    _channel: Arc<Channel>,
}

impl Player<'_> {
    fn play_round(
        &mut self,
        messages: &Receiver<Result<Message, ReadError>>,
    ) -> Result<(), PlayError> {
        while let Some(message) = self.next(messages) {
            let message = match message {
                Ok(message) => message,
                Err(error) => {
                    if self.damages.add(error.to_string()) {
                        (self.say)(&error.to_string());
                    }
                    self.report.damaged = self.damages.count();
                    continue;
                }
            };
            let is_first = self.times.is_none();
            let (first, last) = self.times.unwrap_or((message.log_time, message.log_time));
            self.times = Some((first.min(message.log_time), last.max(message.log_time)));
            let time = message.log_time.saturating_add(self.shift);
            let now = monotonic_nanos();
            let due = self.pace.due(time, now);
            if is_first {
                self.set_clock(Anchor { time, mono: now });
            }
            if self.wait_until(due) {
                self.report.is_stopped = true;
                break;
            }
            if !self.publish(&message, due)? {
                self.report.is_stopped = true;
                break;
            }
        }
        self.tracks.clear();
        Ok(())
    }

    /// The next message. The clock waits with the player for one that is not read yet.
    fn next(
        &mut self,
        messages: &Receiver<Result<Message, ReadError>>,
    ) -> Option<Result<Message, ReadError>> {
        match messages.recv_timeout(CLOCK_PATIENCE) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                let held = hold_clock(&self.handle, &self.pace, self.clock);
                let message = messages.recv().ok();
                release_clock(&self.handle, &mut self.pace, held);
                message
            }
        }
    }

    /// True when the dataflow stops meanwhile.
    fn wait_until(&mut self, due: u64) -> bool {
        loop {
            let left = Duration::from_nanos(due.saturating_sub(monotonic_nanos()));
            let event = if left.is_zero() {
                self.events.try_next()
            } else {
                self.events.next_timeout(left)
            };
            match event {
                Some(Event::Stop { .. }) => return true,
                Some(_) => {}
                None if monotonic_nanos() >= due => return self.handle.is_stopping(),
                None if self.handle.is_stopping() => return true,
                None => {}
            }
        }
    }

    /// False when the dataflow stops.
    fn publish(&mut self, message: &Message, due: u64) -> Result<bool, PlayError> {
        let topic = &message.channel.topic;
        let track = match self.tracks.entry(Arc::as_ptr(&message.channel)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let samples = SampleChannel::new(&message.channel)
                    .inspect_err(|reason| (self.say)(&format!("{topic} is not played: {reason}")))
                    .ok();
                let output = played_name(topic, self.renamed);
                let publisher = self
                    .handle
                    .output(output)
                    .expect("only topics that are outputs are read");
                place.insert(Track {
                    samples,
                    publisher,
                    _channel: message.channel.clone(),
                })
            }
        };
        let sample = match &track.samples {
            Some(samples) => samples.sample(message).map_err(|error| error.to_string()),
            None => Err(String::new()),
        };
        let sample = match sample {
            Ok(sample) => sample,
            Err(reason) => {
                let skipped = &mut self.report.skipped;
                skipped.entry(topic.clone()).or_insert((0, reason)).0 += 1;
                return Ok(true);
            }
        };
        let header = sample.header();
        let mut envelope = Envelope::new()
            .stamp(header.stamp.saturating_add_unsigned(self.shift))
            .metadata(sample.metadata())
            .correlation_id(header.correlation_id)
            .trace_id(header.trace_id);
        if let Some(frame) = sample.frame() {
            envelope = envelope.frame(frame);
        }
        let mut slowest = None;
        let result = match track.publisher.send_with(&sample, &envelope, Wait::Never) {
            Err(SendError::WouldBlock { consumer }) => {
                let began = monotonic_nanos();
                let patience = Wait::Until(began + CLOCK_PATIENCE.as_nanos() as u64);
                let mut result = track.publisher.send_with(&sample, &envelope, patience);
                if let Err(SendError::TimedOut { .. }) = result {
                    let held = hold_clock(&self.handle, &self.pace, self.clock);
                    result = track.publisher.send_with(&sample, &envelope, Wait::Forever);
                    release_clock(&self.handle, &mut self.pace, held);
                }
                let waited = Duration::from_nanos(monotonic_nanos() - began);
                *self.report.waited.entry(consumer.clone()).or_default() += waited;
                slowest = Some(consumer);
                result
            }
            result => result,
        };
        match result {
            Ok(_) => self.report.samples += 1,
            Err(SendError::Stopped) => return Ok(false),
            Err(source) => {
                return Err(PlayError::Send {
                    topic: topic.clone(),
                    source,
                });
            }
        }
        self.account(due, slowest.as_deref());
        Ok(true)
    }

    fn set_clock(&self, anchor: Anchor) {
        if let Some(rate) = self.clock {
            self.handle
                .drive_clock(anchor.time as i64, anchor.mono, rate);
        }
    }

    /// A clock does not go back, so that its rounds follow each other in time.
    fn begin_next_round(&mut self) {
        if self.clock.is_some() {
            let (first, last) = self.times.unwrap_or_default();
            self.shift = self
                .shift
                .saturating_add(last - first + BETWEEN_ROUNDS.as_nanos() as u64);
        } else {
            self.pace.restart();
        }
    }

    fn account(&mut self, due: u64, slowest: Option<&str>) {
        let now = monotonic_nanos();
        if !self.pace.has_rate() {
            return;
        }
        let late = Duration::from_nanos(now.saturating_sub(due));
        self.report.latest = self.report.latest.max(Some(late));
        if late > LATE && now - self.told > TELL_EVERY.as_nanos() as u64 {
            self.told = now;
            let millis = late.as_millis();
            (self.say)(&match slowest {
                Some(consumer) => {
                    format!("{millis} ms behind the recording: {consumer} does not keep up")
                }
                None => format!(
                    "{millis} ms behind the recording: it cannot be read and published so fast"
                ),
            });
        }
    }
}

/// The clock stands still at the time of the recording that is reached. Returns its rate, if there is a clock.
fn hold_clock(handle: &Handle, pace: &Pace, rate: Option<f64>) -> Option<f64> {
    let now = monotonic_nanos();
    let (time, rate) = (pace.time_at(now)?, rate?);
    handle.drive_clock(time as i64, now, 0.0);
    Some(rate)
}

/// The clock runs on from where it stands, which is a little further than where it was to be held.
fn release_clock(handle: &Handle, pace: &mut Pace, held: Option<f64>) {
    if let Some(rate) = held {
        let time = handle.now();
        let anchor = Anchor {
            time: time.cast_unsigned(),
            mono: monotonic_nanos(),
        };
        pace.resume(anchor);
        handle.drive_clock(time, anchor.mono, rate);
    }
}
