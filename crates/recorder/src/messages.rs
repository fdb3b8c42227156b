//! The messages of a recording, in the order of time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::channel::{Channel, Channels, Message};
use crate::read_error::ReadError;
use crate::recording::Recording;

/// The messages of a recording by their time, and of one channel in the order of the file, even where the system's clock
/// was set back meanwhile. Messages wait to be brought into order up to the bytes of the largest chunk; beyond them the
/// order is that of the file.
///
/// A part that is damaged is an error, and the iteration goes on behind it.
pub struct Messages<'a> {
    recording: &'a Recording,
    wanted: Box<dyn Fn(&Channel) -> bool + 'a>,
    channels: Vec<Channels>,
    next_piece: usize,
    /// The earliest time in each piece and all that follow it.
    earliest: Vec<u64>,
    /// The latest time of each channel.
    latest: HashMap<(usize, u16), u64>,
    held: BinaryHeap<Reverse<Held>>,
    held_bytes: usize,
    read: u64,
}

impl std::fmt::Debug for Messages<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Messages")
            .field("recording", &self.recording)
            .finish_non_exhaustive()
    }
}

struct Held {
    time: u64,
    /// Position in the file.
    place: u64,
    message: Message,
}

impl Recording {
    /// All messages.
    pub fn messages(&self) -> Messages<'_> {
        self.messages_of(|_| true)
    }

    /// The messages of some channels.
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
            held: BinaryHeap::new(),
            held_bytes: 0,
            read: 0,
        }
    }
}

impl Messages<'_> {
    fn read_piece(&mut self) -> Result<(), ReadError> {
        let Self {
            recording,
            wanted,
            channels,
            next_piece,
            latest,
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
            let latest = latest.entry(id).or_insert(0);
            *latest = header.log_time.max(*latest);
            *held_bytes += data.len();
            let message = Message {
                channel: channel.clone(),
                sequence: header.sequence,
                log_time: header.log_time,
                data: data.to_vec(),
            };
            held.push(Reverse(Held {
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
        while self.needs_more() {
            if let Err(error) = self.read_piece() {
                return Some(Err(error));
            }
        }
        let Reverse(Held { message, .. }) = self.held.pop()?;
        self.held_bytes -= message.data.len();
        Some(Ok(message))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time, self.place).cmp(&(other.time, other.place))
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Held {}
