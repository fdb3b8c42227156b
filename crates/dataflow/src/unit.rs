//! Durations and sizes with units.

use std::time::Duration;

/// Longest duration that a file can ask for.
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

/// dora's spelling: its KB is 1024 bytes. So is everybody's who writes a buffer size.
const SIZE_UNITS: &[(&str, u64)] = &[
    ("b", 1),
    ("kb", 1 << 10),
    ("kib", 1 << 10),
    ("mb", 1 << 20),
    ("mib", 1 << 20),
    ("gb", 1 << 30),
    ("gib", 1 << 30),
    ("tb", 1 << 40),
    ("tib", 1 << 40),
];

/// `15ms`, `2s`, `1.5min`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let nanos = parse_amount(text, DURATION_UNITS, |unit| unit.to_owned())?;
    if nanos > MAX_DURATION.as_nanos() as f64 {
        return Err("is longer than a year".to_owned());
    }
    Ok(Duration::from_nanos(nanos.round() as u64))
}

/// Seconds, as dora writes durations.
pub(crate) fn seconds(seconds: f64) -> Result<Duration, String> {
    if seconds < 0.0 {
        return Err("is negative".to_owned());
    }
    if seconds.is_nan() {
        return Err("is not a number".to_owned());
    }
    if seconds > MAX_DURATION.as_secs_f64() {
        return Err("is longer than a year".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// `512MB`, `1.5GiB`, in bytes. KB, MB and GB count by 1024, as in dora.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let bytes = parse_amount(text, SIZE_UNITS, str::to_ascii_lowercase)?;
    // Beyond this, floats no longer hold every byte count; and it is more than any machine has.
    if bytes > (1_u64 << 50) as f64 {
        return Err("is more memory than any machine has".to_owned());
    }
    Ok(bytes.round() as u64)
}

fn parse_amount(text: &str, units: &[(&str, u64)], fold: impl Fn(&str) -> String) -> Result<f64, String> {
    let text = text.trim();
    let digits =
        text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (amount, unit) = (&text[..digits], text[digits..].trim_start());
    let known = || units.iter().map(|(unit, _)| *unit).collect::<Vec<_>>().join(", ");
    if unit.is_empty() && !amount.is_empty() {
        return Err(format!("has no unit ({})", known()));
    }
    let amount: f64 = amount.parse().map_err(|_| "does not begin with a number".to_owned())?;
    let factor = units.iter().find(|(name, _)| *name == fold(unit)).map(|(_, factor)| *factor);
    let factor = factor.ok_or_else(|| format!("has none of the units {}", known()))?;
    Ok(amount * factor as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_carry_units() {
        assert_eq!(parse_duration("15ms"), Ok(Duration::from_millis(15)));
        assert_eq!(parse_duration("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2min"), Ok(Duration::from_secs(120)));
        for text in ["", "5", "ms", "5 parsecs", "-1s", "1..5s", "99999999h", "1e3s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(seconds(0.25), Ok(Duration::from_millis(250)));
        for value in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(seconds(value).is_err(), "{value}");
        }
    }

    #[test]
    fn sizes_count_by_1024() {
        assert_eq!(parse_size("64MB"), Ok(64 << 20));
        assert_eq!(parse_size("1.5 kb"), Ok(1536));
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        for text in ["64", "MB", "9999999TB", "12 apples", "-1MB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
