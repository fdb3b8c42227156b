//! Values of options on the command line, and their parsers.

use std::time::Duration;

use clap::ValueEnum;
use nervure_protocol::report::Level;

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

/// Parses a size with its unit, as in a dataflow file.
#[cfg(any(feature = "fleet", feature = "record"))]
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

/// A rate in Hz, up to that of the fastest timer.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    const EXPECTED: &str = "expected a rate in Hz above 0 and up to 1000, such as `10` or `0.5`";
    let rate: f64 = text.parse().map_err(|_| EXPECTED.to_owned())?;
    match rate > 0.0 && rate <= 1000.0 {
        true => Ok(rate),
        false => Err(EXPECTED.to_owned()),
    }
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
