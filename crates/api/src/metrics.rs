//! The figures in the text format of Prometheus, which ends the names of counters with `_total`.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet, prometheus_text},
    metrics::MetricType,
    registry::Registry,
};

use crate::{
    families::{Family, Kind, Value, buckets, seconds},
    snapshot::Snapshot,
};

/// The text for Prometheus.
pub fn text(snapshot: Snapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)?;
    Ok(text)
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.each_family(|family| encode(&family, &mut encoder))
    }
}

fn encode(family: &Family<'_>, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let metric_type = match family.kind {
        Kind::Gauge => MetricType::Gauge,
        Kind::Counter => MetricType::Counter,
        Kind::Histogram => MetricType::Histogram,
    };
    let mut encoder = encoder.encode_descriptor(family.name, family.help, None, metric_type)?;
    for (labels, value) in &family.metrics {
        let mut metric = encoder.encode_family(labels)?;
        match value {
            Value::Gauge(value) => metric.encode_gauge(value)?,
            Value::Count(count) => metric.encode_counter::<NoLabelSet, _, u64>(count, None)?,
            Value::SecondsTotal(value) => {
                metric.encode_counter::<NoLabelSet, _, u64>(value, None)?;
            }
            Value::Latency(histogram) => metric.encode_histogram::<NoLabelSet>(
                seconds(histogram.sum_nanos()),
                histogram.count(),
                &buckets(histogram),
                None,
            )?,
        }
    }
    Ok(())
}
