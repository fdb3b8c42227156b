//! Durations as whole nanoseconds in JSON, and as text in messages. Use with `#[serde(with = ..)]`,
//! on fields named `*_nanos`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Nanoseconds of a duration; durations of more than 584 years become the largest number.
#[must_use]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// `12.3 s`, `1 min 05 s`, `2 h 03 min`, for messages.
#[must_use]
pub fn elapsed(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_units_of_people() {
        assert_eq!(elapsed(Duration::from_millis(12_340)), "12.3 s");
        assert_eq!(elapsed(Duration::from_secs(65)), "1 min 05 s");
        assert_eq!(elapsed(Duration::from_secs(3_725)), "1 h 02 min");
    }
}
