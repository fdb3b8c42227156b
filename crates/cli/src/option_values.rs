//! Values of options on the command line, and their parsers.

use std::time::Duration;

use clap::ValueEnum;
use nervure_protocol::report::Level;

/// When a recording continues in a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Before the file would exceed this size, in bytes.
    Bytes(u64),
    /// When the file has this age.
    Period(Duration),
}

/// The speed of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Multiple of the recorded speed.
    Times(f64),
    /// As fast as possible.
    Max,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogLevel {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

impl From<LogLevel> for Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Trace => Self::Trace,
            LogLevel::Debug => Self::Debug,
            LogLevel::Info => Self::Info,
            LogLevel::Warn => Self::Warn,
            LogLevel::Error => Self::Error,
        }
    }
}

pub fn parse_rate(text: &str) -> Result<Rate, String> {
    match text.parse() {
        _ if text == "max" => Ok(Rate::Max),
        Ok(times) if (0.001..=1000.0).contains(&times) => Ok(Rate::Times(times)),
        _ => Err("expected a number from 0.001 to 1000, or `max`".to_owned()),
    }
}

pub fn parse_rename(text: &str) -> Result<(String, String), String> {
    let parts = text
        .split_once('=')
        .filter(|(topic, name)| !topic.is_empty() && name.contains('/'));
    let (topic, name) =
        parts.ok_or("expected `TOPIC=NODE/OUTPUT`, such as `/front/image_raw=camera/image`")?;
    Ok((topic.to_owned(), name.to_owned()))
}

/// Parses a size of at least 1 MB or a duration of at least 1 s, with its unit.
pub fn parse_split(text: &str) -> Result<Split, String> {
    const SMALLEST: u64 = 1_000_000;
    match (
        nervure_dataflow::parse_size(text),
        nervure_dataflow::parse_duration(text),
    ) {
        (Ok(bytes), _) if bytes < SMALLEST => Err("expected at least `1MB`".to_owned()),
        (_, Ok(period)) if period < Duration::from_secs(1) => {
            Err("expected at least `1s`".to_owned())
        }
        (Ok(bytes), _) => Ok(Split::Bytes(bytes)),
        (_, Ok(period)) => Ok(Split::Period(period)),
        _ => Err("expected a size such as `1GB`, or a duration such as `10min`".to_owned()),
    }
}

/// Parses a size with its unit, as in a dataflow file.
pub fn parse_size(text: &str) -> Result<u64, String> {
    nervure_dataflow::parse_size(text).map_err(|error| {
        format!("it {error}; expected a number and its unit, such as `500MB` or `20GB`")
    })
}

/// Parses a duration with its unit, as in a dataflow file.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    nervure_dataflow::parse_duration(text).map_err(|error| {
        format!("it {error}; expected a number and its unit, such as `500us`, `15ms`, `2s`, `10min` or `1h`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_dataflow_files() {
        assert_eq!(parse_duration("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(parse_duration("10min"), Ok(Duration::from_secs(600)));
        let refused = parse_duration("10").unwrap_err();
        assert_eq!(
            refused,
            "it has no unit (ns, us, µs, ms, s, min, h); expected a number and its unit, such as `500us`, `15ms`, `2s`, \
             `10min` or `1h`"
        );
    }
}
