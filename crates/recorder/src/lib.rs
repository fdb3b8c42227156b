//! Recordings of samples, in files of MCAP (<https://mcap.dev>).
//!
//! [`Recorder`] writes samples so that others can look at them (Foxglove and whatever else reads MCAP: images are images,
//! numbers can be plotted) and so that they can be sent again as they were: [`Recording`] reads such files, and those of
//! others, however they end. docs/reference/recording.md says what is in the file.

mod arrow_ipc;
mod chunk;
mod descriptors;
mod disk;
mod envelope;
mod form;
mod gaps;
mod hexadecimal;
mod messages;
mod overview;
mod pace;
mod player;
mod protobuf;
mod record;
mod recorded;
mod recorder;
mod recording;
mod ros;
mod sample;

pub use envelope::EnvelopeError;
pub use messages::Messages;
pub use overview::{Overview, TopicOverview};
pub use player::{PlayError, PlayOptions, PlayReport, play, played_name};
pub use recorded::{RecordedSample, SampleChannel, SampleReadError};
pub use recorder::{RecordError, Recorder, RecorderOptions, Report, TopicId, TopicReport};
pub use recording::{Channel, End, MAX_CHUNK_BYTES, Message, ReadError, Recording};
pub use ros::{CdrError, DefinitionError, MessageError, RosChannelError};
pub use sample::Incoming;
