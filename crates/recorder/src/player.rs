//! Playing a recording: a node that publishes the recorded samples.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use nervure_node::binding::{active_nanos, is_paused};
use nervure_node::{
    Envelope, Event, Events, Handle, Node, Publisher, SendError, Wait, absolute_output,
    monotonic_nanos,
};

use crate::channel::{Channel, Message};
use crate::messages::Messages;
use crate::overview::Damages;
use crate::pace::{Anchor, Pace};
use crate::playing::{PlayError, PlayOptions, PlayReport, played_name};
use crate::read_error::ReadError;
use crate::recorded::SampleChannel;
use crate::recording::Recording;
use crate::throttle::Throttle;

/// Number of messages that are read ahead.
const READ_AHEAD: usize = 32;
/// Lateness is reported from here on.
const LATE_THRESHOLD: Duration = Duration::from_millis(100);
/// Delays longer than this also stop the dataflow's clock.
const CLOCK_HOLD_DELAY: Duration = Duration::from_millis(5);
/// Clock time between the last message of a round and the first of the next, if the player drives
/// the clock.
const ROUND_GAP: Duration = Duration::from_millis(100);
/// Waits from here on are reported.
const LONG_WAIT: Duration = Duration::from_secs(10);
/// Gaps from here on are taken for a step of the recorder's clock.
const CLOCK_GAP: Duration = Duration::from_secs(24 * 60 * 60);
/// Shortest time between two reports of lateness.
const LATE_REPORT_PERIOD: Duration = Duration::from_secs(1);

/// Publishes the recorded messages on those outputs of `node` that are named after their topic
/// ([`played_name`], [`absolute_output`]), in order of time.
///
/// Calls `say` with messages for the user. Delays are reported at most once a second.
///
/// # Errors
/// [`PlayError`]. Damage of the file is not an error but counted in the report.
pub fn play(
    node: Node,
    recording: &Recording,
    options: &PlayOptions,
    say: &mut dyn FnMut(&str),
) -> Result<PlayReport, PlayError> {
    let (handle, events) = node.split();
    let outputs: Vec<String> = handle.outputs().map(str::to_owned).collect();
    let mut player = Player {
        recording,
        handle,
        events,
        pace: Pace::new(options.rate),
        clock: options.rate.filter(|_| options.drives_clock),
        shift: 0,
        times: None,
        set_back: 0,
        renamed: &options.renamed,
        tracks: HashMap::new(),
        throttles: HashMap::new(),
        report: PlayReport::default(),
        damages: Damages::default(),
        last_late_report: 0,
        say,
    };
    while !player.report.is_stopped {
        player.report.rounds += 1;
        let before = player.report.samples;
        player.throttles = throttles(options);
        thread::scope(|scope| {
            let (sender, receiver) = sync_channel(READ_AHEAD);
            let wanted = |channel: &Channel| {
                let name = absolute_output(played_name(&channel.topic, &options.renamed));
                options.wants(&channel.topic) && outputs.contains(&name)
            };
            thread::Builder::new()
                .name("nervure-read".to_owned())
                .spawn_scoped(scope, move || {
                    let messages = recording.messages_of(wanted).within(options.window.clone());
                    read_ahead(messages, &sender);
                })?;
            player.play_round(&receiver)
        })?;
        if !options.repeat || player.report.samples == before {
            break;
        }
        player.begin_next_round();
    }
    Ok(player.report)
}

fn throttles(options: &PlayOptions) -> HashMap<String, Throttle> {
    let limits = options.most_hz.iter();
    limits
        .map(|(topic, hz)| (topic.clone(), Throttle::new(*hz)))
        .collect()
}

/// Ends when the receiver is gone.
fn read_ahead(messages: Messages<'_>, sender: &SyncSender<Result<Message, ReadError>>) {
    for message in messages {
        if sender.send(message).is_err() {
            return;
        }
    }
}

struct Player<'a> {
    recording: &'a Recording,
    handle: Handle,
    events: Events,
    pace: Pace,
    /// Rate of the clock; `None` unless the player drives it.
    clock: Option<f64>,
    /// Nanoseconds that are added to the log times of this round.
    shift: u64,
    /// First and last time played so far, in nanoseconds since the Unix epoch.
    times: Option<(u64, u64)>,
    /// Time by which the clock was set back, as already reported.
    set_back: u64,
    /// Names of topics in this dataflow.
    renamed: &'a BTreeMap<String, String>,
    /// Reader and output of messages, by the address of their channel.
    tracks: HashMap<*const Channel, Track>,
    /// By recorded topic.
    throttles: HashMap<String, Throttle>,
    report: PlayReport,
    damages: Damages,
    /// When lateness was last reported, by [`active_nanos`].
    last_late_report: u64,
    say: &'a mut dyn FnMut(&str),
}

struct Track {
    /// `None` if messages of the channel cannot be played, which was reported.
    samples: Option<SampleChannel>,
    publisher: Publisher,
    /// Keeps the channel alive, so that its address stays unique.
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
            if let Some(throttle) = self.throttles.get_mut(&message.channel.topic)
                && !throttle.takes(message.time())
            {
                continue;
            }
            let is_first = self.times.is_none();
            let time = message.time();
            let (first, last) = self.times.unwrap_or((time, time));
            self.times = Some((first.min(time), last.max(time)));
            let due = self
                .pace
                .due(time.saturating_add(self.shift), active_nanos(&self.handle));
            self.report_clock(&message, time.saturating_sub(last), due);
            let time = time.saturating_add(self.shift);
            if is_first {
                self.set_clock(time);
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

    /// Reports steps of the recorder's clock, and long waits. `gap` is the time since the message
    /// before, in nanoseconds.
    fn report_clock(&mut self, message: &Message, gap: u64, due: u64) {
        if message.set_back > self.set_back {
            (self.say)(&format!(
                "the clock was set back by {} while recording: the times that follow are shifted",
                lasting(message.set_back - self.set_back)
            ));
            self.set_back = message.set_back;
        }
        let wait = due.saturating_sub(active_nanos(&self.handle));
        if u128::from(wait) < LONG_WAIT.as_nanos() {
            return;
        }
        let cause = match u128::from(gap) > CLOCK_GAP.as_nanos() {
            true => "; the clock was probably set while recording",
            false => "",
        };
        (self.say)(&format!(
            "nothing was recorded for {}: the next sample follows in {}{cause}",
            lasting(gap),
            lasting(wait)
        ));
    }

    /// Returns the next message. If it has not been read yet, the clock is held meanwhile.
    fn next(
        &mut self,
        messages: &Receiver<Result<Message, ReadError>>,
    ) -> Option<Result<Message, ReadError>> {
        match messages.recv_timeout(CLOCK_HOLD_DELAY) {
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

    /// Waits until `due`, and until a pause is over. Returns true if the dataflow stops meanwhile.
    fn wait_until(&mut self, due: u64) -> bool {
        loop {
            let left = due.saturating_sub(active_nanos(&self.handle));
            let event = if is_paused(&self.handle) {
                self.events.next()
            } else if left == 0 {
                self.events.try_next()
            } else {
                self.events.next_timeout(Duration::from_nanos(left))
            };
            match event {
                Some(Event::Stop { .. }) => return true,
                Some(_) => {}
                None if self.handle.is_stopping() => return true,
                None if active_nanos(&self.handle) >= due => return false,
                None => {}
            }
        }
    }

    /// Publishes a message. Returns false if the dataflow stops.
    fn publish(&mut self, message: &Message, due: u64) -> Result<bool, PlayError> {
        let topic = &message.channel.topic;
        let shift = self.stamp_shift(message);
        let track = match self.tracks.entry(Arc::as_ptr(&message.channel)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let samples = self
                    .recording
                    .samples_of(&message.channel)
                    .inspect_err(|reason| (self.say)(&format!("{topic} is not played: {reason}")))
                    .ok();
                let output = absolute_output(played_name(topic, self.renamed));
                let publisher = self
                    .handle
                    .output(&output)
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
            .stamp(header.stamp.saturating_add_unsigned(shift))
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
                let patience = Wait::Until(began + CLOCK_HOLD_DELAY.as_nanos() as u64);
                let mut result = track.publisher.send_with(&sample, &envelope, patience);
                if let Err(SendError::TimedOut { .. } | SendError::Paused) = result {
                    let held = hold_clock(&self.handle, &self.pace, self.clock);
                    result = track.publisher.send_with(&sample, &envelope, Wait::Forever);
                    release_clock(&self.handle, &mut self.pace, held);
                }
                let waited = Duration::from_nanos(monotonic_nanos() - began);
                *self.report.waited.entry(consumer.clone()).or_default() += waited;
                slowest = Some(consumer);
                result
            }
            // The pause has begun just now.
            Err(SendError::Paused) => {
                let publisher = &track.publisher;
                publisher.send_with(&sample, &envelope, Wait::Forever)
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

    /// Shift of stamps. With a clock, stamps move as far as log times, so that ages stay the same.
    fn stamp_shift(&self, message: &Message) -> u64 {
        let set_back = match self.clock {
            Some(_) => message.set_back,
            None => 0,
        };
        self.shift.saturating_add(set_back)
    }

    fn set_clock(&self, time: u64) {
        if let Some(rate) = self.clock {
            self.handle
                .drive_clock(time as i64, monotonic_nanos(), rate);
        }
    }

    /// Prepares the next round. A clock cannot go back, so with a clock the log times of the round
    /// are shifted.
    fn begin_next_round(&mut self) {
        if self.clock.is_some() {
            let (first, last) = self.times.unwrap_or_default();
            self.shift = self
                .shift
                .saturating_add(last - first + ROUND_GAP.as_nanos() as u64);
        } else {
            self.pace.restart();
        }
    }

    fn account(&mut self, due: u64, slowest: Option<&str>) {
        let now = active_nanos(&self.handle);
        if !self.pace.has_rate() {
            return;
        }
        let late = Duration::from_nanos(now.saturating_sub(due));
        self.report.latest = self.report.latest.max(Some(late));
        if late > LATE_THRESHOLD
            && now - self.last_late_report > LATE_REPORT_PERIOD.as_nanos() as u64
        {
            self.last_late_report = now;
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

/// A duration for users, in the largest unit in which it is at least two.
fn lasting(nanos: u64) -> String {
    const UNITS: [(f64, &str); 3] = [(86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes")];
    let seconds = nanos as f64 / 1e9;
    match UNITS.iter().find(|(unit, _)| seconds >= 2.0 * unit) {
        Some((unit, name)) => format!("{:.1} {name}", seconds / unit),
        None => format!("{seconds:.1} seconds"),
    }
}

/// Stops the clock at the current time of the recording. Returns its rate, if the player drives a
/// clock.
fn hold_clock(handle: &Handle, pace: &Pace, rate: Option<f64>) -> Option<f64> {
    let (time, rate) = (pace.time_at(active_nanos(handle))?, rate?);
    handle.drive_clock(time as i64, monotonic_nanos(), 0.0);
    Some(rate)
}

/// Lets the clock continue from its current time, which is slightly later than the time at which it
/// was to be held.
fn release_clock(handle: &Handle, pace: &mut Pace, held: Option<f64>) {
    if let Some(rate) = held {
        let time = handle.now();
        let anchor = Anchor {
            time: time.cast_unsigned(),
            at: active_nanos(handle),
        };
        pace.resume(anchor);
        handle.drive_clock(time, monotonic_nanos(), rate);
    }
}
