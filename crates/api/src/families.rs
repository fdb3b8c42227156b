//! The figures as families of metrics, for every format. Names and units follow the
//! conventions of Prometheus: base units at the end of the name.

use nervure_protocol::daemon_to_daemon::StreamReport;
use nervure_shm::Histogram;

use crate::snapshot::{
    DataflowFigures, EdgeFigures, MachineFigures, NodeFigures, RunningFigures, Snapshot,
};

/// Octaves of the latency with a bucket of their own: up to 8.6 s. Longer ones are in `+Inf`.
const LATENCY_BUCKETS: usize = 21;

/// Names and values of labels.
pub type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Metrics of one name.
pub struct Family<'a> {
    /// Without the suffix `_total` of a counter.
    pub name: &'static str,
    pub help: &'static str,
    pub kind: Kind,
    pub metrics: Vec<(Labels<'a>, Value<'a>)>,
}

/// Kind of the values of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Gauge,
    Counter,
    Histogram,
}

pub enum Value<'a> {
    Count(u64),
    SecondsTotal(f64),
    Gauge(f64),
    Latency(&'a Histogram),
}

impl Snapshot {
    /// Passes each family that has metrics to `take`, until that fails.
    pub fn each_family<E>(
        &self,
        mut take: impl FnMut(Family<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut families = Families(&mut take);
        families.gauge(
            "nervure_build_info",
            "Version of this nervure",
            [(vec![("version", env!("CARGO_PKG_VERSION"))], 1.0)],
        )?;
        self.machine_families(&mut families)?;
        self.dataflow_families(&mut families)?;
        self.node_families(&mut families)?;
        self.edge_families(&mut families)?;
        self.stream_families(&mut families)
    }

    fn machine_families<E>(&self, families: &mut Families<'_, E>) -> Result<(), E> {
        let flag = |is_so: bool| f64::from(u8::from(is_so));
        families.gauge(
            "nervure_daemon_up",
            "Whether the daemon of this machine, which belongs to a fleet, answers",
            self.daemon.iter().map(|&is_up| (Vec::new(), flag(is_up))),
        )?;
        let machines = || self.machines.iter();
        let label = |machine: &'_ MachineFigures| machine.name.clone();
        let named: Vec<(String, &MachineFigures)> = machines()
            .map(|machine| (label(machine), machine))
            .collect();
        families.gauge(
            "nervure_machine_reachable",
            "Whether another machine of the fleet can be reached from this one",
            named.iter().map(|(name, machine)| {
                (vec![("machine", name.as_str())], flag(machine.is_reachable))
            }),
        )?;
        let clocks = || {
            let clocks = self.clocks.iter();
            clocks.map(|(name, clock)| (vec![("machine", name.as_str())], clock))
        };
        families.gauge(
            "nervure_machine_clock_offset_seconds",
            "How far the clock of a machine is ahead of that of the coordinator's machine",
            clocks().map(|(labels, clock)| (labels, clock.offset_nanos as f64 / 1e9)),
        )?;
        families.gauge(
            "nervure_machine_clock_offset_error_seconds",
            "How far the offset of the clock may be wrong",
            clocks().map(|(labels, clock)| (labels, seconds(clock.error_nanos))),
        )?;
        let links = || {
            let links = named.iter();
            links.filter_map(|(name, machine)| {
                Some((vec![("machine", name.as_str())], machine.link?))
            })
        };
        families.gauge(
            "nervure_link_round_trip_seconds",
            "Smoothed round-trip time of the link to a machine",
            links().map(|(labels, link)| (labels, seconds(link.round_trip_nanos))),
        )?;
        families.gauge(
            "nervure_link_queue_delay_seconds",
            "One-way delay of the link to a machine above its smallest value",
            links().map(|(labels, link)| (labels, seconds(link.queue_delay_nanos))),
        )?;
        families.gauge(
            "nervure_link_loss_ratio",
            "Share of the packets to a machine that are lost, smoothed",
            links().map(|(labels, link)| (labels, link.loss)),
        )?;
        families.gauge(
            "nervure_link_rate_bytes_per_second",
            "Rate at which packets may be sent to a machine now",
            links().map(|(labels, link)| (labels, link.bytes_per_second)),
        )?;
        families.gauge(
            "nervure_link_in_flight_bytes",
            "Bytes sent to a machine that it has not reported on",
            links().map(|(labels, link)| (labels, link.in_flight_bytes as f64)),
        )?;
        families.counter(
            "nervure_link_sent_packets",
            "Data packets sent to a machine",
            links().map(|(labels, link)| (labels, link.packets_sent)),
        )?;
        families.counter(
            "nervure_link_sent_bytes",
            "Bytes of datagrams sent to a machine",
            links().map(|(labels, link)| (labels, link.sent_bytes)),
        )?;
        families.counter(
            "nervure_link_received_bytes",
            "Bytes of datagrams received from a machine",
            links().map(|(labels, link)| (labels, link.received_bytes)),
        )
    }

    fn dataflow_families<E>(&self, families: &mut Families<'_, E>) -> Result<(), E> {
        let name = |dataflow: &'_ DataflowFigures| dataflow.name.clone();
        let names: Vec<String> = self.dataflows.iter().map(name).collect();
        let all = || names.iter().map(String::as_str).zip(&self.dataflows);
        families.gauge(
            "nervure_dataflow_up",
            "Whether the keepers of a dataflow answer",
            all().map(|(name, dataflow)| {
                let is_up = dataflow.running.is_some();
                (vec![("dataflow", name)], f64::from(u8::from(is_up)))
            }),
        )?;
        families.gauge(
            "nervure_dataflow_state",
            "1 for the state of a dataflow: starting, running, paused or stopping",
            self.running()
                .map(|(name, running)| (vec![("dataflow", name), ("state", running.state)], 1.0)),
        )?;
        families.gauge(
            "nervure_dataflow_start_time_seconds",
            "When a dataflow was started, in seconds since the Unix epoch",
            self.running().map(|(name, running)| {
                let started = running.started_utc_nanos as f64 / 1e9;
                (vec![("dataflow", name)], started)
            }),
        )?;
        families.gauge(
            "nervure_dataflow_observers",
            "Programs that observe a dataflow",
            self.running()
                .map(|(name, running)| (vec![("dataflow", name)], running.observers as f64)),
        )
    }

    fn node_families<E>(&self, families: &mut Families<'_, E>) -> Result<(), E> {
        let nodes = || {
            let all = self.running();
            all.flat_map(|(name, running)| {
                running
                    .nodes
                    .iter()
                    .map(move |node| (node.labels(name), node))
            })
        };
        let used = || nodes().filter_map(|(labels, node)| Some((labels, node.usage?)));
        families.gauge(
            "nervure_node_state",
            "1 for the state of a node, such as runs, restarts, failed, ended or unreachable",
            nodes().map(|(mut labels, node)| {
                labels.push(("state", node.state));
                (labels, 1.0)
            }),
        )?;
        families.counter(
            "nervure_node_restarts",
            "Restarts of a node",
            nodes()
                .filter(|(_, node)| node.state != "unreachable")
                .map(|(labels, node)| (labels, u64::from(node.restarts))),
        )?;
        families.write(
            "nervure_node_cpu_seconds",
            "CPU time of a node: of its control group, its process, or its thread",
            Kind::Counter,
            used().map(|(labels, usage)| {
                (labels, Value::SecondsTotal(usage.cpu_micros as f64 / 1e6))
            }),
        )?;
        families.gauge(
            "nervure_node_resident_memory_bytes",
            "Resident memory of a node, shared memory included; nodes in one process have the same",
            used().map(|(labels, usage)| (labels, usage.resident_bytes as f64)),
        )?;
        families.gauge(
            "nervure_node_threads",
            "Threads of a node",
            used().map(|(labels, usage)| (labels, usage.threads as f64)),
        )
    }

    fn edge_families<E>(&self, families: &mut Families<'_, E>) -> Result<(), E> {
        let edges = || {
            let all = self.running();
            all.flat_map(|(name, running)| {
                running
                    .edges
                    .iter()
                    .map(move |edge| (edge.labels(name), edge))
            })
        };
        let sent = || edges().filter(|(_, edge)| edge.has_output);
        let received = || edges().filter(|(_, edge)| edge.has_input);
        let both = || sent().filter(|(_, edge)| edge.has_input);
        families.gauge(
            "nervure_edge_readable",
            "Whether the counters of an edge are readable: a node can overwrite its own",
            edges().map(|(labels, edge)| {
                let is_readable = edge.has_output && edge.has_input;
                (labels, f64::from(u8::from(is_readable)))
            }),
        )?;
        families.counter(
            "nervure_edge_published_samples",
            "Samples published for an edge, whether they were queued or lost",
            sent().map(|(labels, edge)| (labels, edge.totals.output.published())),
        )?;
        families.counter(
            "nervure_edge_received_samples",
            "Samples that the consumer has taken from its queue",
            received().map(|(labels, edge)| (labels, edge.totals.input.received)),
        )?;
        families.counter(
            "nervure_edge_received_bytes",
            "Payload bytes of the received samples",
            received().map(|(labels, edge)| (labels, edge.totals.input.bytes)),
        )?;
        families.counter(
            "nervure_edge_lost_samples",
            "Samples that were published and never reached the consumer, by cause",
            edges().flat_map(|(labels, edge)| {
                edge.losses().map(move |(cause, count)| {
                    let mut labels = labels.clone();
                    labels.push(("cause", cause));
                    (labels, count)
                })
            }),
        )?;
        families.counter(
            "nervure_edge_undelivered_samples",
            "Samples that were queued when the consumer left for good; not counted as lost",
            sent().map(|(labels, edge)| (labels, edge.totals.output.undelivered)),
        )?;
        families.gauge(
            "nervure_edge_queued_samples",
            "Samples in the queue",
            both().map(|(labels, edge)| (labels, edge.totals.queued() as f64)),
        )?;
        families.gauge(
            "nervure_edge_queue_size_samples",
            "Samples that the queue can hold",
            edges().map(|(labels, edge)| (labels, f64::from(edge.depth))),
        )?;
        families.gauge(
            "nervure_edge_held_samples",
            "Samples that the consumer views now",
            received().map(|(labels, edge)| (labels, edge.totals.input.held as f64)),
        )?;
        families.counter(
            "nervure_edge_stale",
            "Times that no sample came for as long as the input expects one",
            received().map(|(labels, edge)| (labels, edge.totals.input.stale)),
        )?;
        families.write(
            "nervure_edge_blocked_seconds",
            "Time that the producer has waited for room in the queue",
            Kind::Counter,
            sent().map(|(labels, edge)| {
                (
                    labels,
                    Value::SecondsTotal(seconds(edge.totals.output.blocked_nanos)),
                )
            }),
        )?;
        families.write(
            "nervure_edge_latency_seconds",
            "Time from publication until the consumer took the sample; the sum is exact to 1/16",
            Kind::Histogram,
            received().map(|(labels, edge)| (labels, Value::Latency(&edge.totals.input.latency))),
        )
    }

    fn stream_families<E>(&self, families: &mut Families<'_, E>) -> Result<(), E> {
        let streams = || {
            let all = self.running();
            all.flat_map(|(name, running)| {
                let streams = running.streams.iter();
                streams.map(move |stream| (stream_labels(name, stream), stream))
            })
        };
        families.counter(
            "nervure_stream_sent_samples",
            "Samples of a topic that the link to the machine of its consumers has accepted",
            streams().map(|(labels, stream)| (labels, stream.accepted)),
        )?;
        families.counter(
            "nervure_stream_delivered_samples",
            "Samples of a topic that were delivered to the machine of its consumers",
            streams().map(|(labels, stream)| (labels, stream.delivered)),
        )?;
        families.counter(
            "nervure_stream_lost_samples",
            "Samples of a topic that were lost on the way to another machine, by cause",
            streams().flat_map(|(labels, stream)| {
                stream.lost.iter().map(move |(cause, count)| {
                    let mut labels = labels.clone();
                    labels.push(("cause", cause.name()));
                    (labels, *count)
                })
            }),
        )?;
        families.gauge(
            "nervure_stream_latency_seconds",
            "Quantiles of the time from publication on one machine to that on the other",
            streams().flat_map(|(labels, stream)| {
                let quantiles = stream.latency.iter().flat_map(|latency| {
                    [
                        ("0.5", latency.p50_nanos),
                        ("0.99", latency.p99_nanos),
                        ("1", latency.max_nanos),
                    ]
                });
                quantiles.map(move |(quantile, nanos)| {
                    let mut labels = labels.clone();
                    labels.push(("quantile", quantile));
                    (labels, seconds(nanos))
                })
            }),
        )?;
        families.gauge(
            "nervure_stream_latency_error_seconds",
            "How far the latency may be wrong, since the clocks of the machines are compared over the link",
            streams().filter_map(|(labels, stream)| {
                Some((labels, seconds(stream.latency?.error_nanos)))
            }),
        )
    }

    fn running(&self) -> impl Iterator<Item = (&str, &RunningFigures)> {
        let all = self.dataflows.iter();
        all.filter_map(|dataflow| Some((dataflow.name.as_str(), dataflow.running.as_ref()?)))
    }
}

fn stream_labels<'a>(dataflow: &'a str, stream: &'a StreamReport) -> Labels<'a> {
    vec![
        ("dataflow", dataflow),
        ("machine", stream.machine.as_str()),
        ("topic", stream.topic.as_str()),
    ]
}

impl NodeFigures {
    fn labels<'a>(&'a self, dataflow: &'a str) -> Labels<'a> {
        let mut labels = vec![("dataflow", dataflow)];
        labels.extend((!self.machine.is_empty()).then_some(("machine", self.machine.as_str())));
        labels.push(("node", &self.id));
        labels
    }
}

impl EdgeFigures {
    fn labels<'a>(&'a self, dataflow: &'a str) -> Labels<'a> {
        let mut labels = vec![("dataflow", dataflow)];
        labels.extend((!self.machine.is_empty()).then_some(("machine", self.machine.as_str())));
        labels.extend([("topic", self.topic.as_str()), ("input", &self.input)]);
        labels
    }

    /// The causes have the names of the JSON of `nervure top`. Together they are its `lost`.
    fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let output = &self.totals.output;
        let by_output = [
            ("dropped_oldest", output.dropped_oldest),
            ("dropped_newest", output.dropped_newest),
            ("missed_held", output.missed_held),
            ("missed_memory", output.missed_memory),
            ("missed_control", output.missed_control),
            ("missed_away", output.missed_away),
            ("dropped_away", output.dropped_away),
            ("lost_in_crash", output.lost_in_crash),
        ];
        let by_input = [("lost_with_producer", self.totals.input.lost)];
        let by_output = by_output.into_iter().filter(|_| self.has_output);
        by_output.chain(by_input.into_iter().filter(|_| self.has_input))
    }
}

/// Makes families of metrics. One without metrics is left out.
struct Families<'a, E>(&'a mut dyn FnMut(Family<'_>) -> Result<(), E>);

impl<E> Families<'_, E> {
    fn gauge<'a>(
        &mut self,
        name: &'static str,
        help: &'static str,
        metrics: impl IntoIterator<Item = (Labels<'a>, f64)>,
    ) -> Result<(), E> {
        let metrics = metrics.into_iter();
        let metrics = metrics.map(|(labels, value)| (labels, Value::Gauge(value)));
        self.write(name, help, Kind::Gauge, metrics)
    }

    fn counter<'a>(
        &mut self,
        name: &'static str,
        help: &'static str,
        metrics: impl Iterator<Item = (Labels<'a>, u64)>,
    ) -> Result<(), E> {
        let metrics = metrics.map(|(labels, value)| (labels, Value::Count(value)));
        self.write(name, help, Kind::Counter, metrics)
    }

    fn write<'a>(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: Kind,
        metrics: impl Iterator<Item = (Labels<'a>, Value<'a>)>,
    ) -> Result<(), E> {
        let metrics: Vec<_> = metrics.collect();
        if metrics.is_empty() {
            return Ok(());
        }
        (self.0)(Family {
            name,
            help,
            kind,
            metrics,
        })
    }
}

/// The end of each bucket in seconds, and its count.
pub fn buckets(histogram: &Histogram) -> Vec<(f64, u64)> {
    let octaves: Vec<_> = histogram.octaves().collect();
    let (own, longer) = octaves.split_at(LATENCY_BUCKETS);
    let own = own.iter().map(|&(end, count)| (seconds(end), count));
    let longer = longer
        .iter()
        .fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
    own.chain([(f64::INFINITY, longer)]).collect()
}

/// Nanoseconds in seconds.
pub fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
