//! The messages of a recording, in order of time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::RangeInclusive;

use crate::channel::{Channel, Channels, Message};
use crate::read_error::ReadError;
use crate::recording::Recording;

/// Threads of a recorder may write messages of a channel out of the order of their times, by less
/// than this. A clock that is slewed rather than set does not go back at all.
const MAX_JITTER_NANOS: u64 = 1_000_000_000;

/// Iterates over the messages of a recording in order of [`Message::time`]. Messages of one channel
/// stay in file order: where one is earlier than the one before, the clock was set back while
/// recording, and the messages that follow in the file are shifted. Messages are held back for
/// sorting up to the size of the largest chunk; beyond that they come in file order.
///
/// A damaged part yields an error, and the iteration continues after it.
pub struct Messages<'a> {
    recording: &'a Recording,
    wanted: Box<dyn Fn(&Channel) -> bool + 'a>,
    channels: Vec<Channels>,
    next_piece: usize,
    /// Earliest log time in each piece and all pieces that follow it.
    earliest: Vec<u64>,
    /// Latest time of each channel so far.
    latest: HashMap<(usize, u16), u64>,
    /// The clock of each file.
    clocks: Vec<FileClock>,
    held: BinaryHeap<Reverse<HeldMessage>>,
    held_bytes: usize,
    read: u64,
    /// First and last time of the messages that are wanted.
    window: RangeInclusive<u64>,
}

impl std::fmt::Debug for Messages<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Messages")
            .field("recording", &self.recording)
            .finish_non_exhaustive()
    }
}

/// The clock of a recorder, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct FileClock {
    /// Time by which it was set back so far.
    set_back: u64,
    /// Latest time of all channels so far.
    latest: u64,
}

struct HeldMessage {
    time: u64,
    /// Position in file order.
    place: u64,
    message: Message,
}

impl Recording {
    /// Iterates over all messages.
    pub fn messages(&self) -> Messages<'_> {
        self.messages_of(|_| true)
    }

    /// Iterates over the messages of the channels for which `wanted` is true.
    pub fn messages_of<'a>(&'a self, wanted: impl Fn(&Channel) -> bool + 'a) -> Messages<'a> {
        let mut earliest: Vec<u64> = (0..self.pieces())
            .map(|piece| self.start_of(piece))
            .collect();
        for piece in (1..earliest.len()).rev() {
            earliest[piece - 1] = earliest[piece - 1].min(earliest[piece]);
        }
        Messages {
            recording: self,
            wanted: Box::new(wanted),
            channels: self.channels(),
            next_piece: 0,
            earliest,
            latest: HashMap::new(),
            clocks: vec![FileClock::default(); self.channels().len()],
            held: BinaryHeap::new(),
            held_bytes: 0,
            read: 0,
            window: 0..=u64::MAX,
        }
    }
}

impl Messages<'_> {
    /// Only the messages with these times.
    pub fn within(mut self, window: RangeInclusive<u64>) -> Self {
        self.window = window;
        self
    }

    /// The next message, wanted or not.
    fn next_message(&mut self) -> Option<Result<Message, ReadError>> {
        while self.needs_more() {
            if let Err(error) = self.read_piece() {
                return Some(Err(error));
            }
        }
        let Reverse(HeldMessage { message, .. }) = self.held.pop()?;
        self.held_bytes -= message.data.len();
        Some(Ok(message))
    }

    fn read_piece(&mut self) -> Result<(), ReadError> {
        let Self {
            recording,
            wanted,
            channels,
            next_piece,
            latest,
            clocks,
            held,
            held_bytes,
            read,
            ..
        } = self;
        let piece = *next_piece;
        *next_piece += 1;
        recording.read(piece, channels, |id, channel, header, data| {
            if !wanted(channel) {
                return;
            }
            let (latest, clock) = (latest.entry(id).or_insert(0), &mut clocks[id.0]);
            let mut time = header.log_time.saturating_add(clock.set_back);
            if latest.saturating_sub(time) > MAX_JITTER_NANOS {
                clock.set_back += clock.latest - time;
                time = clock.latest;
            }
            *latest = time.max(*latest);
            clock.latest = time.max(clock.latest);
            *held_bytes += data.len();
            let message = Message {
                channel: channel.clone(),
                sequence: header.sequence,
                log_time: header.log_time,
                set_back: clock.set_back,
                data: data.to_vec(),
            };
            held.push(Reverse(HeldMessage {
                time: *latest,
                place: *read,
                message,
            }));
            *read += 1;
        })
    }

    fn needs_more(&self) -> bool {
        let Some(earliest) = self.earliest.get(self.next_piece) else {
            return false;
        };
        match self.held.peek() {
            None => true,
            Some(Reverse(first)) => {
                *earliest <= first.time && self.held_bytes <= self.recording.max_held_bytes()
            }
        }
    }
}

impl Iterator for Messages<'_> {
    type Item = Result<Message, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_message()? {
                Ok(message) if message.time() < *self.window.start() => {}
                Ok(message) if message.time() > *self.window.end() => return None,
                message => return Some(message),
            }
        }
    }
}

impl Ord for HeldMessage {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time, self.place).cmp(&(other.time, other.place))
    }
}

impl PartialOrd for HeldMessage {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for HeldMessage {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for HeldMessage {}
