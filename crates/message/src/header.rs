//! The fixed header of every sample.

/// The memory of a payload. Reserved for device memory, whose descriptor will be sent along with
/// the sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryKind {
    /// Host memory, mapped by the consumer.
    #[default]
    Host,
    /// A kind that this build cannot read.
    Unknown(u8),
}

/// The properties of every sample, for any payload.
///
/// Latency is computed from `publish_mono`, and only within one `boot_id`. The age of a sample
/// counts from `stamp`, its lifespan from publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Sequence number within the output and incarnation, from 0. A producer leaves no gaps.
    pub sequence: u64,
    /// Number of restarts of the producer. A restart begins a new sequence; without this number,
    /// loss counts would be wrong.
    pub incarnation: u32,
    /// The memory that the payload lies in.
    pub memory_kind: MemoryKind,
    /// Time at which the payload was true of the world, in nanoseconds since the Unix epoch. Set by
    /// the source.
    pub stamp: i64,
    /// Time of publication, in nanoseconds of CLOCK_MONOTONIC.
    pub publish_mono: u64,
    /// Time of publication, in nanoseconds since the Unix epoch.
    pub publish_utc: i64,
    /// Identifies the boot to whose monotonic clock `publish_mono` refers.
    pub boot_id: u64,
    /// Id of the payload's schema; 0 if the head alone describes the payload.
    pub schema_id: u64,
    /// Relates a response to its request; 0 for none.
    pub correlation_id: u64,
    /// Id of the trace that the sample belongs to (`trace-id` of W3C Trace Context); 0 for none.
    pub trace_id: u128,
    /// Id of the interned name of the coordinate frame; 0 for none.
    pub frame_id: u64,
}

/// Where a sample was first published, and when. No two samples of an output have the same origin,
/// and a later one of the same boot has a greater time. So a sample that crosses a link again is
/// known by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// A hash of the boot id of the producer's machine; not 0.
    pub boot: u32,
    /// Time of publication, in nanoseconds of that machine's CLOCK_MONOTONIC.
    pub published: u64,
}

impl Origin {
    /// Whether a sample of this origin was published no later than `last`, in the same boot.
    pub fn is_covered_by(self, last: Self) -> bool {
        self.boot == last.boot && self.published <= last.published
    }
}

impl Header {
    /// The sequence number of a sample without one, because its producer did not send it.
    pub const NO_SEQUENCE: u64 = u64::MAX;
    /// Number of words of [`Header::to_words`].
    pub const WORDS: usize = 11;

    /// The origin of a sample that its producer published.
    pub fn origin(&self) -> Origin {
        let folded = (self.boot_id ^ self.boot_id >> 32) as u32;
        Origin {
            boot: folded.max(1),
            published: self.publish_mono,
        }
    }

    /// Encodes the header as native-endian words, for shared memory of one host.
    pub fn to_words(&self) -> [u64; Self::WORDS] {
        let kind = match self.memory_kind {
            MemoryKind::Host => 0,
            MemoryKind::Unknown(kind) => kind,
        };
        [
            self.sequence,
            u64::from(self.incarnation) | u64::from(kind) << 32,
            self.stamp.cast_unsigned(),
            self.publish_mono,
            self.publish_utc.cast_unsigned(),
            self.boot_id,
            self.schema_id,
            self.correlation_id,
            self.trace_id as u64,
            (self.trace_id >> 64) as u64,
            self.frame_id,
        ]
    }

    /// The inverse of [`Header::to_words`]. Any words are a valid header.
    pub fn from_words(words: &[u64; Self::WORDS]) -> Self {
        Self {
            sequence: words[0],
            incarnation: words[1] as u32,
            memory_kind: match (words[1] >> 32) as u8 {
                0 => MemoryKind::Host,
                kind => MemoryKind::Unknown(kind),
            },
            stamp: words[2].cast_signed(),
            publish_mono: words[3],
            publish_utc: words[4].cast_signed(),
            boot_id: words[5],
            schema_id: words[6],
            correlation_id: words[7],
            trace_id: u128::from(words[8]) | u128::from(words[9]) << 64,
            frame_id: words[10],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip_every_field() {
        let header = Header {
            sequence: 1 << 60,
            incarnation: u32::MAX,
            memory_kind: MemoryKind::Unknown(9),
            stamp: -5,
            publish_mono: 7,
            publish_utc: i64::MIN,
            boot_id: 11,
            schema_id: u64::MAX,
            correlation_id: 13,
            trace_id: u128::MAX - 1,
            frame_id: 3,
        };
        assert_eq!(Header::from_words(&header.to_words()), header);
    }
}
