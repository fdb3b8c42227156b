//! Recordings of samples, in files of MCAP (<https://mcap.dev>).
//!
//! [`Recorder`] writes samples in a form that viewers such as Foxglove display: images are images,
//! and numbers can be plotted. It also keeps everything that is needed to publish the samples again
//! as they were. [`Recording`] reads these files, and MCAP files and ROS 2 bags of other programs,
//! including files that were cut short. docs/reference/recording.md describes the file contents.

mod arrow_ipc;
mod bag;
mod channel;
mod channel_schema;
mod chunk;
mod declared_type;
mod descriptors;
mod disk;
mod envelope;
mod form;
mod gaps;
mod hexadecimal;
mod housekeeper;
mod latched;
mod mcap_file;
mod messages;
mod names;
mod overview;
mod pace;
mod player;
mod playing;
mod proto_messages;
mod protobuf;
mod read_error;
mod record;
mod record_messages;
mod recorded;
mod recorder;
mod recording;
mod ros;
mod sample;
mod series;
mod sqlite_file;
mod storage;
mod throttle;
mod zstd;

pub use channel::{Channel, Message};
pub use envelope::EnvelopeError;
pub use messages::Messages;
pub use names::{FileKey, FileNames, PatternError, is_time};
pub use nervure_types::{DefinitionError, cdr::CdrError};
pub use overview::{Overview, TopicOverview};
pub use player::play;
pub use playing::{PlayError, PlayOptions, PlayReport, played_name};
pub use proto_messages::{ProtoChannelError, ProtoMessageError};
pub use read_error::{CutShort, End, Lost, ReadError};
pub use recorded::{RecordedSample, SampleChannel, SampleReadError};
pub use recorder::{RecordError, Recorder, RecorderOptions, Report, TopicId, TopicReport};
pub use recording::{MAX_CHUNK_BYTES, Recording};
pub use ros::{DefinitionOrigin, Definitions, DefinitionsError, MessageError, RosChannelError};
pub use sample::IncomingSample;
pub use series::{Notice, Series, SeriesOptions, SeriesReport};
