//! Points in time as text.

/// `2026-01-31 23:59:59 +01:00`, in the time zone of the host, or of `TZ` in the environment.
#[cfg(feature = "record")]
pub fn local_time(utc_nanos: i64) -> String {
    timestamp(utc_nanos)
        .to_zoned_datetime(jiff::tz::TimeZone::system())
        .strftime("%Y-%m-%d %H:%M:%S %:z")
        .to_string()
}

/// `2026-01-31T23:59:59.123456789Z`
pub fn utc_date_time(utc_nanos: i64) -> String {
    timestamp(utc_nanos).to_string()
}

/// `23:59:59.123`
pub fn utc_time(utc_nanos: i64) -> String {
    timestamp(utc_nanos).strftime("%H:%M:%S%.3f").to_string()
}

fn timestamp(utc_nanos: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_nanosecond(utc_nanos.into())
        .expect("64 bits of nanoseconds are 292 years")
}
