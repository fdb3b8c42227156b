//! Figures as text.

pub use nervure_protocol::nanos::elapsed;

/// `1 node`, `2 nodes`.
pub fn count(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// `850 ns`, `12.3 us`, `4.56 ms`, `1.23 s`: three significant digits.
pub fn latency(nanos: Option<u64>) -> String {
    let Some(nanos) = nanos else {
        return "-".to_owned();
    };
    let nanos = nanos as f64;
    match nanos {
        0.0..1e3 => format!("{nanos:.0} ns"),
        1e3..1e6 => three_digits(nanos / 1e3, "us"),
        1e6..1e9 => three_digits(nanos / 1e6, "ms"),
        _ => three_digits(nanos / 1e9, "s"),
    }
}

/// `25.0`, `1.2k`, `3.4M`.
pub fn rate(per_second: f64) -> String {
    match per_second {
        0.0..1e4 => digits(per_second),
        1e4..1e7 => format!("{}k", digits(per_second / 1e3)),
        _ => format!("{}M", digits(per_second / 1e6)),
    }
}

/// `850 B/s`, `12.3 kB/s`, `4.56 MB/s`, `1.23 GB/s`: powers of 1000.
pub fn bandwidth(bytes_per_second: f64) -> String {
    match bytes_per_second {
        ..1e3 => format!("{bytes_per_second:.0} B/s"),
        1e3..1e6 => three_digits(bytes_per_second / 1e3, "kB/s"),
        1e6..1e9 => three_digits(bytes_per_second / 1e6, "MB/s"),
        _ => three_digits(bytes_per_second / 1e9, "GB/s"),
    }
}

/// Megabytes per second.
pub fn megabytes(bytes_per_second: f64) -> String {
    digits(bytes_per_second / 1e6)
}

fn three_digits(value: f64, unit: &str) -> String {
    format!("{} {unit}", digits(value))
}

fn digits(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        0.0..9.995 => format!("{value:.2}"),
        9.995..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(latency(None), "-");
        assert_eq!(latency(Some(850)), "850 ns");
        assert_eq!(latency(Some(12_345)), "12.3 us");
        assert_eq!(latency(Some(1_999_000_000)), "2.00 s");
        assert_eq!(rate(0.0), "0");
        assert_eq!(rate(24.99), "25.0");
        assert_eq!(rate(1_234_567.0), "1235k");
        assert_eq!(megabytes(38_880_000.0), "38.9");
        assert_eq!(bandwidth(0.0), "0 B/s");
        assert_eq!(bandwidth(850.0), "850 B/s");
        assert_eq!(bandwidth(12_345.0), "12.3 kB/s");
        assert_eq!(bandwidth(38_880_000.0), "38.9 MB/s");
        assert_eq!(bandwidth(1.234e9), "1.23 GB/s");
    }
}
