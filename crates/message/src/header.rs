//! The fixed header of every sample.

/// Where a payload lies. A slot for device memory, whose descriptor will travel beside the sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryKind {
    /// Memory of the host, mapped by the consumer.
    #[default]
    Host,
    /// A kind that this build does not know: the payload cannot be read here.
    Unknown(u8),
}

/// What every sample carries, whatever its payload.
///
/// Latency is computed from `publish_mono` and only within one `boot_id`; the age of a sample is counted from
/// `stamp`; a lifespan from publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Number of the sample within its output and incarnation, from 0, without gaps at the producer.
    pub sequence: u64,
    /// How often the producer had been restarted. A restart begins a new sequence; without it loss counts lie.
    pub incarnation: u32,
    /// Where the payload lies.
    pub memory_kind: MemoryKind,
    /// When the world was as the payload says, in nanoseconds since the Unix epoch; set by the source.
    pub stamp: i64,
    /// When the sample was published, in nanoseconds of CLOCK_MONOTONIC.
    pub publish_mono: u64,
    /// When the sample was published, in nanoseconds since the Unix epoch.
    pub publish_utc: i64,
    /// The boot whose monotonic clock `publish_mono` reads.
    pub boot_id: u64,
    /// The schema of the payload, 0 where the head alone describes it.
    pub schema_id: u64,
    /// Ties an answer to its question; 0 for none.
    pub correlation_id: u64,
    /// Trace that the sample belongs to (W3C trace context's trace-id); 0 for none.
    pub trace_id: u128,
    /// Interned name of the coordinate frame; 0 for none.
    pub frame_id: u64,
}

impl Header {
    /// The sequence of a sample that its producer did not send: it has no number.
    pub const NO_SEQUENCE: u64 = u64::MAX;
    /// Words of [`Header::to_words`].
    pub const WORDS: usize = 11;

    /// The header as native-endian words, for shared memory of one host.
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

    /// The inverse of [`Header::to_words`]. Every word is valid: nothing here can be hostile.
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
    fn words_keep_every_field() {
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
