//! Durations as whole nanoseconds in JSON. Use with `#[serde(with = ..)]`, on fields named
//! `*_nanos`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Nanoseconds of a duration; durations of more than 584 years become the largest number.
#[must_use]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Writes a duration as nanoseconds.
///
/// # Errors
/// Errors of the serializer.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(nanos(*duration))
}

/// Reads nanoseconds.
///
/// # Errors
/// If the value is not a whole number within `u64`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_nanos)
}

/// The same for durations that may be absent, as `null`.
pub mod optional {
    use super::{Deserialize, Deserializer, Duration, Serializer, nanos};

    /// Writes nanoseconds, or `null`.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => serializer.serialize_u64(nanos(*duration)),
            None => serializer.serialize_none(),
        }
    }

    /// Reads nanoseconds, or `null`.
    ///
    /// # Errors
    /// If the value is neither `null` nor a whole number within `u64`.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Option::<u64>::deserialize(deserializer).map(|nanos| nanos.map(Duration::from_nanos))
    }
}
