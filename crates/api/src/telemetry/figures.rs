//! Metrics in OTLP.
//!
//! Names follow OpenTelemetry's conventions: the unit is a field of its own. A receiver that writes
//! them for Prometheus, by OpenTelemetry's rules, ends with the names of `/metrics`.

use serde_json::{Value as Json, json};

use super::otlp::{attributes, object, scope};
use crate::{
    families::{Family, Kind, Value, buckets, seconds},
    snapshot::Snapshot,
};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
pub const CUMULATIVE: u32 = 2;

/// Units at the end of a name of Prometheus, longest first, and in OTLP (UCUM).
const UNITS: [(&str, &str); 4] = [
    ("_bytes_per_second", "By/s"),
    ("_seconds", "s"),
    ("_bytes", "By"),
    ("_ratio", "1"),
];

/// A message for `/v1/metrics`, with a metric of the sender's own.
pub fn metrics(snapshot: &Snapshot, own: Json, resource: &Json, now: u64) -> Json {
    let mut metrics = vec![own];
    let taken: Result<(), std::convert::Infallible> = snapshot.each_family(|family| {
        metrics.push(metric(&family, now));
        Ok(())
    });
    let Ok(()) = taken;
    let scoped = json!({ "scope": scope(), "metrics": metrics });
    json!({ "resourceMetrics": [{ "resource": resource, "scopeMetrics": [scoped] }] })
}

/// The metric of a family, read at `now`.
fn metric(family: &Family<'_>, now: u64) -> Json {
    let (name, unit) = name_and_unit(family.name);
    let points: Vec<Json> = family
        .metrics
        .iter()
        .map(|(labels, value)| {
            let mut point = point(value);
            point["timeUnixNano"] = json!(now.to_string());
            point["attributes"] = attributes(labels.iter().copied());
            point
        })
        .collect();
    let (kind, data) = match family.kind {
        Kind::Gauge => ("gauge", json!({ "dataPoints": points })),
        Kind::Counter => (
            "sum",
            json!({
                "dataPoints": points,
                "aggregationTemporality": CUMULATIVE,
                "isMonotonic": true,
            }),
        ),
        Kind::Histogram => (
            "histogram",
            json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE }),
        ),
    };
    let mut metric = object(kind, data);
    metric["name"] = json!(name);
    metric["description"] = json!(family.help);
    metric["unit"] = json!(unit);
    metric
}

/// Integers of 64 bits are texts in JSON.
fn point(value: &Value<'_>) -> Json {
    match value {
        Value::Count(count) => json!({ "asInt": count.to_string() }),
        Value::Gauge(value) | Value::SecondsTotal(value) => json!({ "asDouble": value }),
        Value::Latency(histogram) => {
            let buckets = buckets(histogram);
            let bounds: Vec<f64> = buckets.iter().map(|(end, _)| *end).collect();
            let counts: Vec<String> = buckets.iter().map(|(_, count)| count.to_string()).collect();
            json!({
                "count": histogram.count().to_string(),
                "sum": seconds(histogram.sum_nanos()),
                // The last bucket has no end.
                "explicitBounds": bounds[..bounds.len() - 1],
                "bucketCounts": counts,
            })
        }
    }
}

/// `nervure_edge_latency_seconds` is `nervure.edge.latency` in s.
fn name_and_unit(name: &str) -> (String, &'static str) {
    let mut units = UNITS.iter();
    let known = units.find_map(|&(suffix, unit)| Some((name.strip_suffix(suffix)?, unit)));
    let (name, unit) = known.unwrap_or((name, ""));
    (name.replacen('_', ".", 2), unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_unit_apart() {
        for (name, expected, unit) in [
            ("nervure_edge_latency_seconds", "nervure.edge.latency", "s"),
            ("nervure_edge_lost_samples", "nervure.edge.lost_samples", ""),
            (
                "nervure_link_rate_bytes_per_second",
                "nervure.link.rate",
                "By/s",
            ),
            ("nervure_link_loss_ratio", "nervure.link.loss", "1"),
            ("nervure_daemon_up", "nervure.daemon.up", ""),
        ] {
            assert_eq!(name_and_unit(name), (expected.to_owned(), unit));
        }
    }
}
