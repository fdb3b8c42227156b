//! Messages of OTLP in their JSON encoding, which every receiver of OTLP over HTTP understands: the
//! specification has it beside protobuf, and it needs no crate.
//!
//! The SDK of OpenTelemetry measures its own process. Its instruments cannot take over the figures
//! of other processes, such as histograms. The tests read the messages with the types of the crate
//! `opentelemetry-proto`.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

/// The resource of all messages: this host.
pub fn resource() -> Value {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let all = [
        ("service.name", "nervure"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("host.name", host.trim()),
    ];
    json!({ "attributes": attributes(all) })
}

/// The instrumentation scope of the metrics or spans.
pub fn scope() -> Value {
    json!({ "name": "nervure", "version": env!("CARGO_PKG_VERSION") })
}

/// Attributes with text.
pub fn attributes<'a>(all: impl IntoIterator<Item = (&'static str, &'a str)>) -> Value {
    let attribute = |(key, value)| json!({ "key": key, "value": { "stringValue": value } });
    all.into_iter().map(attribute).collect()
}

/// An object of one field whose name is not known before.
pub fn object(key: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(key.to_owned(), value)]))
}

/// Nanoseconds since the Unix epoch.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}
