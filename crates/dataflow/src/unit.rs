//! Parses durations and sizes with units, in dataflow files and on the command line.

use std::time::Duration;

/// Longest duration: a year.
const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 3600);

const DURATION_UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60 * 1_000_000_000),
    ("h", 3600 * 1_000_000_000),
];

/// Without `i` powers of 1000, with `i` powers of 1024 (IEC 80000-13). Case does not matter.
const SIZE_UNITS: &[(&str, u64)] = &[
    ("b", 1),
    ("kb", 1_000),
    ("kib", 1 << 10),
    ("mb", 1_000_000),
    ("mib", 1 << 20),
    ("gb", 1_000_000_000),
    ("gib", 1 << 30),
    ("tb", 1_000_000_000_000),
    ("tib", 1 << 40),
];

/// Why a text is not a duration or size. The message continues a sentence that begins with the
/// text: "`5` has no unit".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text does not begin with a number.
    #[error("does not begin with a number")]
    NoNumber,
    /// A number without a unit.
    #[error("has no unit ({known})")]
    NoUnit {
        /// The known units, separated by commas.
        known: String,
    },
    /// A number with an unknown unit.
    #[error("has none of the units {known}")]
    UnknownUnit {
        /// The known units, separated by commas.
        known: String,
    },
    /// A negative duration.
    #[error("is negative")]
    Negative,
    /// NaN instead of a number of seconds.
    #[error("is not a number")]
    NotANumber,
    /// A duration above the limit.
    #[error("is longer than a year")]
    TooLong,
    /// A size above the limit.
    #[error("is more memory than any machine has")]
    TooLarge,
}

/// Reads a duration with its unit: `500us`, `15ms`, `2s`, `1.5min`, `1h`.
///
/// # Errors
/// If the number or the unit is missing, or the duration is longer than a year.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let nanos = parse_amount(text, DURATION_UNITS, |unit| unit.to_owned())?;
    if nanos > MAX_DURATION.as_nanos() as f64 {
        return Err(UnitError::TooLong);
    }
    Ok(Duration::from_nanos(nanos.round() as u64))
}

/// A duration in seconds, as dora writes it.
pub(crate) fn seconds(seconds: f64) -> Result<Duration, UnitError> {
    if seconds < 0.0 {
        return Err(UnitError::Negative);
    }
    if seconds.is_nan() {
        return Err(UnitError::NotANumber);
    }
    if seconds > MAX_DURATION.as_secs_f64() {
        return Err(UnitError::TooLong);
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Reads a size with its unit, in bytes: `512MB` is 512 times 10^6, `1.5GiB` 1.5 times 2^30.
///
/// # Errors
/// If the number or the unit is missing, or the size is more than 2^50 bytes.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let bytes = parse_amount(text, SIZE_UNITS, str::to_ascii_lowercase)?;
    // 2^53 is where floats stop being exact; 2^50 is already more memory than any machine has.
    if bytes > (1_u64 << 50) as f64 {
        return Err(UnitError::TooLarge);
    }
    Ok(bytes.round() as u64)
}

fn parse_amount(
    text: &str,
    units: &[(&str, u64)],
    fold: impl Fn(&str) -> String,
) -> Result<f64, UnitError> {
    let text = text.trim();
    let digits = text
        .find(|character: char| !character.is_ascii_digit() && character != '.')
        .unwrap_or(text.len());
    let (amount, unit) = (&text[..digits], text[digits..].trim_start());
    let known = || {
        units
            .iter()
            .map(|(unit, _)| *unit)
            .collect::<Vec<_>>()
            .join(", ")
    };
    if unit.is_empty() && !amount.is_empty() {
        return Err(UnitError::NoUnit { known: known() });
    }
    let amount: f64 = amount.parse().map_err(|_| UnitError::NoNumber)?;
    let factor = units
        .iter()
        .find(|(name, _)| *name == fold(unit))
        .map(|(_, factor)| *factor);
    let factor = factor.ok_or_else(|| UnitError::UnknownUnit { known: known() })?;
    Ok(amount * factor as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_carry_units() {
        assert_eq!(parse_duration("15ms"), Ok(Duration::from_millis(15)));
        assert_eq!(parse_duration("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(parse_duration("2min"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("0.5h"), Ok(Duration::from_secs(1800)));
        for text in [
            "",
            "5",
            "ms",
            "5 parsecs",
            "-1s",
            "1..5s",
            "99999999h",
            "1e3s",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(seconds(0.25), Ok(Duration::from_millis(250)));
        for value in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(seconds(value).is_err(), "{value}");
        }
    }

    #[test]
    fn sizes_count_by_1000_and_with_an_i_by_1024() {
        assert_eq!(parse_size("64MB"), Ok(64_000_000));
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("1.5 kb"), Ok(1500));
        assert_eq!(parse_size("1TB"), Ok(1_000_000_000_000));
        assert_eq!(parse_size("2gib"), Ok(2 << 30));
        for text in ["64", "MB", "9999999TB", "12 apples", "-1MB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
