//! Hints from the counters of a running dataflow, over a window of time.

use std::{collections::BTreeSet, time::Duration};

use nervure_protocol::{
    keeper_to_cli::NodeDeclared,
    wiring::{self, Source},
};

use super::hint::{Hint, Place, megabytes, unread};
use crate::{
    State,
    edges::{Edge, Edges, Totals, Unreadable},
    losses::{self, Remedy},
    remedies::{self, Setting, rounded},
};

/// Share of published samples above which losses count as permanent.
const MIN_LOST_SHARE: f64 = 0.01;

/// Share of time that a producer must wait for a consumer to harm its other consumers.
const MIN_BLOCKED_SHARE: f64 = 0.05;

/// Memory of a full queue, in bytes, from which it counts as deep.
const DEEP_QUEUE_BYTES: f64 = 256e6;

/// Queue depth from which a queue of images counts as deep, and the least size of an image in
/// bytes.
const DEEP_QUEUE_SAMPLES: u32 = 100;
const MIN_IMAGE_BYTES: f64 = 65_536.0;

/// Missing samples in a row above which `expect_every` counts as too long.
const MAX_MISSING_SAMPLES: f64 = 10.0;

/// The shortest `expect_every` of a file.
const MIN_EXPECTATION: Duration = Duration::from_micros(100);

/// All hints from the last two readings of the counters.
pub fn hints(state: &State) -> Vec<Hint> {
    let nodes: Vec<_> = state
        .nodes
        .values()
        .map(|node| &node.declared)
        .filter(|node| !node.observer)
        .collect();
    hints_of(&nodes, &state.edges)
}

fn hints_of(nodes: &[&NodeDeclared], edges: &Edges) -> Vec<Hint> {
    let mut hints = Vec::new();
    let measured: Vec<EdgeMeasurement> = edges
        .iter()
        .filter_map(|edge| EdgeMeasurement::of(edge, nodes))
        .collect();
    for edge in &measured {
        let found = [
            edge.takes_nothing(),
            edge.slow_consumer(),
            edge.holds_samples(),
            edge.memory_used_up(),
            edge.deep_queue(),
            edge.stalls(&measured),
            edge.stale(),
            edge.loosely_expected(),
        ];
        hints.extend(found.into_iter().flatten());
    }
    hints.extend(unread_outputs(nodes));
    hints.extend(edges.unreadable().map(unreadable_counters));
    hints
}

fn unreadable_counters(Unreadable { node, why }: &Unreadable) -> Hint {
    Hint {
        code: "unreadable-counters",
        about: node.clone(),
        what: format!("its counters are not readable: {why}; there are no figures of its edges"),
        remedy: Remedy::action(format!(
            "no setting: `{node}` overwrites memory; `nervure node restart {node}` starts new counters from zero"
        )),
        place: Place::Node(node.clone()),
    }
}

fn unread_outputs(nodes: &[&NodeDeclared]) -> impl Iterator<Item = Hint> {
    let read: BTreeSet<&str> = nodes
        .iter()
        .flat_map(|node| &node.inputs)
        .filter_map(|input| match &input.source {
            Source::Output { topic } => Some(topic.as_str()),
            Source::Timer { .. } => None,
        })
        .collect();
    let outputs = nodes
        .iter()
        .flat_map(|node| node.outputs.iter().map(|output| (&node.id, &output.name)));
    let is_unread = |node: &str, output: &str| {
        !output.contains('~') && !read.contains(wiring::topic(node, output).as_str())
    };
    let unread_ones: Vec<_> = outputs
        .filter(|(node, output)| is_unread(node, output))
        .collect();
    unread_ones
        .into_iter()
        .map(|(node, output)| unread(node, output))
}

/// An edge, with its counters at the begin and the end of the window.
struct EdgeMeasurement<'a> {
    edge: &'a Edge,
    first: &'a Totals,
    last: &'a Totals,
    seconds: f64,
    /// The producing node.
    producer: &'a str,
    /// The consuming node, and its input.
    consumer: &'a str,
    input: &'a str,
    expect_every: Option<Duration>,
}

impl<'a> EdgeMeasurement<'a> {
    /// `None` for edges of observers and services, and for edges without a measurement.
    fn of(edge: &'a Edge, nodes: &[&'a NodeDeclared]) -> Option<Self> {
        let (first, last, time) = edge.span()?;
        let (consumer, input) = edge.input.split_once('/')?;
        let producer = edge.topic.split('/').next()?;
        let is_service = input.contains('~') || edge.topic.contains('~');
        let is_known = edge.has_output() && edge.has_input();
        if edge.observer || is_service || time.is_zero() || !is_known {
            return None;
        }
        let spec = nodes
            .iter()
            .find(|node| node.id == consumer)?
            .inputs
            .iter()
            .find(|it| it.name == input);
        let expect_every = spec
            .and_then(|spec| spec.expect_every_nanos)
            .map(Duration::from_nanos);
        Some(Self {
            edge,
            first,
            last,
            seconds: time.as_secs_f64(),
            producer,
            consumer,
            input,
            expect_every,
        })
    }

    /// The increase of a counter per second.
    fn rate(&self, counter: impl Fn(&Totals) -> u64) -> f64 {
        counter(self.last).saturating_sub(counter(self.first)) as f64 / self.seconds
    }

    fn published_hz(&self) -> f64 {
        self.rate(|totals| totals.output.published())
    }

    /// Mean size of a sample in bytes.
    fn sample_bytes(&self) -> f64 {
        let output = &self.last.output;
        if output.sent == 0 {
            0.0
        } else {
            output.bytes as f64 / output.sent as f64
        }
    }

    fn hint(&self, code: &'static str, what: String, remedy: Remedy) -> Option<Hint> {
        let place = Place::Input {
            node: self.consumer.to_owned(),
            input: self.input.to_owned(),
        };
        Some(Hint {
            code,
            about: self.edge.name(),
            what,
            remedy,
            place,
        })
    }

    fn takes_nothing(&self) -> Option<Hint> {
        let (what, remedy) = losses::takes_nothing(self.edge)?;
        let queued = crate::format::count(self.last.queued() as usize, "sample");
        self.hint(
            "takes-nothing",
            format!("{what}, and {queued} wait for it"),
            Remedy::action(remedy),
        )
    }

    fn slow_consumer(&self) -> Option<Hint> {
        let lost = self.rate(|totals| totals.output.dropped_oldest + totals.output.dropped_newest);
        if self.edge.is_latest()
            || self.edge.activity().took_nothing_for().is_some()
            || lost <= MIN_LOST_SHARE * self.published_hz()
        {
            return None;
        }
        let what = format!(
            "{:.1} samples/s arrive and {:.1} are taken: {lost:.1} per second are lost",
            self.published_hz(),
            self.rate(|totals| totals.input.received)
        );
        let (latest, longer) = (Setting::Latest, Setting::longer_queue(self.edge));
        let block = Setting::block(self.edge);
        let or_block = block.as_ref().map_or_else(String::new, |block| {
            format!(", {block} where the producer may wait")
        });
        let text = format!(
            "{latest} where only the newest counts{or_block}; {longer} only puts the loss off"
        );
        let settings = [latest, longer].into_iter().chain(block).collect();
        self.hint("slow-consumer", what, Remedy::with(text, settings))
    }

    fn holds_samples(&self) -> Option<Hint> {
        let max_held = self.edge.queue.max_held;
        let missed = self.rate(|totals| totals.output.missed_held);
        let kept = self.first.input.held.min(self.last.input.held);
        // Samples in the queue count against the limit as well.
        let is_near = kept * 4 >= u64::from(max_held) * 3;
        if missed == 0.0 && !is_near {
            return None;
        }
        let memory = megabytes(kept as f64 * self.sample_bytes());
        let and_misses = if missed > 0.0 {
            format!(", and missed {missed:.1} a second for it")
        } else {
            String::new()
        };
        let what = format!(
            "`{}` keeps {kept} samples ({memory}) of at most {max_held}{and_misses}",
            self.consumer
        );
        let setting = Setting::MaxHeld { now: max_held };
        let text = format!(
            "copy what the node keeps (`copied()` of events in Python, of samples in Rust), or {setting}"
        );
        self.hint("keeps-samples", what, Remedy::with(text, vec![setting]))
    }

    fn memory_used_up(&self) -> Option<Hint> {
        let missed = self.rate(|totals| totals.output.missed_memory);
        let place = Place::Node(self.producer.to_owned());
        let setting = Setting::SharedMemory {
            node: self.producer.to_owned(),
        };
        (missed > 0.0).then(|| Hint {
            code: "memory-used-up",
            about: self.edge.name(),
            what: format!(
                "{missed:.1} a second are lost because the shared memory of `{}` is used up: `nervure holders {}` says \
                 by whom",
                self.producer, self.edge.topic
            ),
            remedy: Remedy::with(format!("{setting}, or shorter queues"), vec![setting]),
            place,
        })
    }

    fn deep_queue(&self) -> Option<Hint> {
        let (depth, bytes) = (self.edge.queue.depth, self.sample_bytes());
        let total = f64::from(depth) * bytes;
        let is_deep =
            total >= DEEP_QUEUE_BYTES || depth >= DEEP_QUEUE_SAMPLES && bytes >= MIN_IMAGE_BYTES;
        // A queue of one cannot be shorter.
        if depth == 1 || !is_deep {
            return None;
        }
        let age = match self.published_hz() {
            hz if hz > 0.0 => format!(
                ", and the last of them would be {:.1} s old",
                f64::from(depth) / hz
            ),
            _ => String::new(),
        };
        let what = format!(
            "{depth} samples of {} may wait here: {} of the memory of `{}`{age}",
            megabytes(bytes),
            megabytes(total),
            self.producer
        );
        self.hint("deep-queue", what, Remedy::for_deep_queue(depth))
    }

    /// A producer that waits for one consumer sends nothing to its other consumers.
    fn stalls(&self, all: &[EdgeMeasurement<'_>]) -> Option<Hint> {
        let share = self.rate(|totals| totals.output.blocked_nanos) / 1e9;
        let is_sibling = |other: &&EdgeMeasurement<'_>| {
            other.producer == self.producer
                && other.edge.input != self.edge.input
                && !other.edge.is_lossless()
        };
        let siblings: Vec<_> = all
            .iter()
            .filter(is_sibling)
            .map(|other| other.edge.consumer_name())
            .collect();
        if share < MIN_BLOCKED_SHARE || siblings.is_empty() {
            return None;
        }
        let what = format!(
            "`{}` waits {:.0} % of the time for `{}`, and meanwhile sends nothing to {}",
            self.producer,
            share.min(1.0) * 100.0,
            self.edge.input,
            siblings.join(", ")
        );
        let mut settings = vec![Setting::DropOldest, Setting::Latest];
        let (any, longer) = (
            remedies::any_of(&settings),
            Setting::longer_queue(self.edge),
        );
        let text = format!("{any} on this input, or {longer} where it is slow only at times");
        settings.push(longer);
        self.hint("stalls-others", what, Remedy::with(text, settings))
    }

    fn stale(&self) -> Option<Hint> {
        let expected = self.expect_every?;
        let times = self.last.input.stale.saturating_sub(self.first.input.stale);
        let what = format!(
            "it was stale {} within {:.1} s: {:.1} a second come, and `expect_every` is {}",
            crate::format::count(times as usize, "time"),
            self.seconds,
            self.published_hz(),
            rounded(expected)
        );
        let setting = Setting::ExpectEvery(expected.saturating_mul(2));
        let text = format!("a producer that keeps its rate, or a longer pause such as {setting}");
        if times > 0 {
            self.hint("stale-input", what, Remedy::with(text, vec![setting]))
        } else {
            None
        }
    }

    fn loosely_expected(&self) -> Option<Hint> {
        let expected = self.expect_every?;
        let missing = self.published_hz() * expected.as_secs_f64();
        let period = Duration::from_secs_f64(1.0 / self.published_hz().max(1e-9));
        let what = format!(
            "{:.1} samples/s arrive, and `expect_every` is {}: {missing:.0} may be missing in a row before the \
             node gets `STALE`",
            self.published_hz(),
            rounded(expected)
        );
        let setting = Setting::ExpectEvery((period * 3).max(MIN_EXPECTATION));
        let text = format!("{setting}, say: three times as long as from one to the next");
        if missing > MAX_MISSING_SAMPLES {
            self.hint("loose-expectation", what, Remedy::with(text, vec![setting]))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::remedies::files;
    use nervure_protocol::wiring::{InputSpec, OutputSpec, Policy, Queue};
    use nervure_shm::{InputCounters, OutputCounters};

    const CAMERA: (&str, &str) = ("camera/image", "detector/image");

    fn queue(policy: Policy, depth: u32) -> Queue {
        Queue {
            policy,
            depth,
            max_held: depth + 8,
        }
    }

    fn node(id: &str, outputs: &[&str], inputs: &[(&str, &str, Option<Duration>)]) -> NodeDeclared {
        let output = |name: &&str| OutputSpec {
            name: (*name).to_owned(),
            history: 0,
            blocks: 64,
            type_name: None,
        };
        let input = |(name, topic, every): &(&str, &str, Option<Duration>)| InputSpec {
            name: (*name).to_owned(),
            source: Source::Output {
                topic: (*topic).to_owned(),
            },
            queue: None,
            type_name: None,
            expect_every_nanos: every.map(|every| every.as_nanos() as u64),
            history: 0,
        };
        NodeDeclared {
            node: 0,
            id: id.to_owned(),
            program: String::new(),
            file_says: None,
            observer: false,
            attached: None,
            dynamic: false,
            remote: None,
            not_done: None,
            outputs: outputs.iter().map(output).collect(),
            inputs: inputs.iter().map(input).collect(),
            services: Vec::new(),
            clients: Vec::new(),
        }
    }

    fn graph(every: Option<Duration>) -> Vec<NodeDeclared> {
        vec![
            node("camera", &["image"], &[]),
            node("detector", &["boxes"], &[("image", "camera/image", every)]),
            node(
                "display",
                &[],
                &[
                    ("image", "camera/image", None),
                    ("boxes", "detector/boxes", None),
                ],
            ),
        ]
    }

    /// The hints for one edge with these counts within two seconds.
    fn hints_for(
        queue: Queue,
        every: Option<Duration>,
        output: OutputCounters,
        input: InputCounters,
    ) -> Vec<String> {
        let mut edges = Edges::fake(vec![(CAMERA.0, CAMERA.1, queue)]);
        edges.set_fake(
            0,
            Duration::from_secs(5),
            OutputCounters::default(),
            InputCounters {
                held: input.held,
                ..InputCounters::default()
            },
        );
        edges.set_fake(0, Duration::from_secs(7), output, input);
        let nodes = graph(every);
        let hints = hints_of(&nodes.iter().collect::<Vec<_>>(), &edges);
        assert!(
            hints
                .iter()
                .all(|hint| hint.about == "camera/image -> detector/image"),
            "{hints:?}"
        );
        hints
            .into_iter()
            .map(|hint| format!("{}: {}", hint.code, hint.what))
            .collect()
    }

    fn sent(sent: u64, sample_bytes: u64) -> OutputCounters {
        OutputCounters {
            sent,
            bytes: sent * sample_bytes,
            ..OutputCounters::default()
        }
    }

    fn received(received: u64) -> InputCounters {
        InputCounters {
            received,
            ..InputCounters::default()
        }
    }

    #[test]
    fn each_setting_that_a_hint_names_is_one_that_validate_accepts() {
        let mut tried: BTreeMap<&str, usize> = BTreeMap::new();
        for (consumer, file) in files::all() {
            let Some(of_file) = files::queue_of(&file) else {
                continue;
            };
            // Periods of 20 us and of a tenth of a second, 1 MB each.
            for (sent_samples, expected) in [(100_000, 10_000), (20, 4_000_000)] {
                let every = Some(Duration::from_micros(expected));
                let input = format!("{consumer}/in");
                let mut edges = Edges::fake(vec![
                    ("cam/out", &input, of_file),
                    ("cam/out", "display/in", queue(Policy::DropOldest, 10)),
                ]);
                let counted = OutputCounters {
                    dropped_oldest: 15,
                    missed_held: 15,
                    missed_memory: 15,
                    blocked_nanos: u64::from(of_file.policy.is_lossless()) * 1_000_000_000,
                    ..sent(sent_samples, 1_000_000)
                };
                let stale = InputCounters {
                    stale: 3,
                    ..received(10)
                };
                let nothing = || (OutputCounters::default(), InputCounters::default());
                for (edge, (output, input)) in [(0, (counted, stale)), (1, nothing())] {
                    let (no_output, no_input) = nothing();
                    edges.set_fake(edge, Duration::ZERO, no_output, no_input);
                    edges.set_fake(edge, Duration::from_secs(2), output, input);
                }
                let nodes = [
                    node(consumer, &[], &[("in", "cam/out", every)]),
                    node("cam", &["out"], &[]),
                    node("display", &[], &[("in", "cam/out", None)]),
                ];
                for hint in hints_of(&nodes.iter().collect::<Vec<_>>(), &edges) {
                    *tried.entry(hint.code).or_default() += files::check(&hint.remedy, &file);
                }
            }
        }
        let expected = [
            "deep-queue",
            "keeps-samples",
            "loose-expectation",
            "memory-used-up",
            "slow-consumer",
            "stale-input",
            "stalls-others",
        ];
        let named: Vec<_> = tried.iter().filter(|(_, count)| **count > 0).collect();
        assert_eq!(
            named.iter().map(|(code, _)| **code).collect::<Vec<_>>(),
            expected,
            "{tried:?}"
        );
    }

    #[test]
    fn a_working_edge_gets_no_hints() {
        let every = Some(Duration::from_millis(200));
        assert!(
            hints_for(
                queue(Policy::DropOldest, 10),
                every,
                sent(50, 1_000_000),
                received(50)
            )
            .is_empty()
        );
    }

    #[test]
    fn a_consumer_that_is_too_slow_is_measured() {
        let output = OutputCounters {
            dropped_oldest: 32,
            ..sent(50, 1000)
        };
        assert_eq!(
            hints_for(queue(Policy::DropOldest, 2), None, output, received(18)),
            ["slow-consumer: 25.0 samples/s arrive and 9.0 are taken: 16.0 per second are lost"]
        );
        assert!(
            hints_for(queue(Policy::DropOldest, 1), None, output, received(18)).is_empty(),
            "`latest`"
        );
    }

    #[test]
    fn deep_queues_are_those_of_large_samples() {
        assert_eq!(
            hints_for(
                queue(Policy::DropOldest, 1000),
                None,
                sent(50, 691_200),
                received(50)
            ),
            [
                "deep-queue: 1000 samples of 691.2 kB may wait here: 691.2 MB of the memory of `camera`, and the last of them \
              would be 40.0 s old"
            ]
        );
        assert!(
            hints_for(
                queue(Policy::DropOldest, 1000),
                None,
                sent(50, 100),
                received(50)
            )
            .is_empty()
        );
    }

    #[test]
    fn a_consumer_that_keeps_samples_is_named() {
        let output = OutputCounters {
            missed_held: 20,
            ..sent(30, 1_000_000)
        };
        let input = InputCounters {
            held: 18,
            ..received(30)
        };
        assert_eq!(
            hints_for(queue(Policy::DropOldest, 10), None, output, input.clone()),
            [
                "keeps-samples: `detector` keeps 18 samples (18.0 MB) of at most 18, and missed 10.0 a second for it"
            ]
        );
        let quiet = hints_for(
            queue(Policy::DropOldest, 10),
            None,
            sent(30, 1_000_000),
            InputCounters { held: 14, ..input },
        );
        assert_eq!(
            quiet,
            ["keeps-samples: `detector` keeps 14 samples (14.0 MB) of at most 18"]
        );
    }

    #[test]
    fn a_producer_that_waits_for_one_consumer_stalls_the_others() {
        let mut edges = Edges::fake(vec![
            (CAMERA.0, CAMERA.1, queue(Policy::Block, 4)),
            (CAMERA.0, "display/image", queue(Policy::DropOldest, 10)),
        ]);
        let waited = OutputCounters {
            blocked_nanos: 1_200_000_000,
            ..sent(20, 100)
        };
        for (edge, output) in [(0, waited), (1, sent(20, 100))] {
            edges.set_fake(
                edge,
                Duration::ZERO,
                OutputCounters::default(),
                InputCounters::default(),
            );
            edges.set_fake(edge, Duration::from_secs(2), output, received(20));
        }
        let nodes = graph(None);
        let hints = hints_of(&nodes.iter().collect::<Vec<_>>(), &edges);
        let [hint] = &hints[..] else {
            panic!("{hints:?}")
        };
        assert_eq!(
            (hint.code, &*hint.what),
            (
                "stalls-others",
                "`camera` waits 60 % of the time for `detector/image`, and meanwhile sends nothing to display/image"
            )
        );
        assert_eq!(
            hint.place,
            Place::Input {
                node: "detector".to_owned(),
                input: "image".to_owned()
            }
        );
    }

    #[test]
    fn expectations_are_compared_with_the_rate() {
        let every = |millis| Some(Duration::from_millis(millis));
        let input = InputCounters {
            stale: 3,
            ..received(10)
        };
        assert_eq!(
            hints_for(
                queue(Policy::DropOldest, 10),
                every(100),
                sent(10, 100),
                input
            ),
            [
                "stale-input: it was stale 3 times within 2.0 s: 5.0 a second come, and `expect_every` is 100ms"
            ]
        );
        assert_eq!(
            hints_for(
                queue(Policy::DropOldest, 10),
                every(2000),
                sent(50, 100),
                received(50)
            ),
            [
                "loose-expectation: 25.0 samples/s arrive, and `expect_every` is 2s: 50 may be missing in a row before the node gets `STALE`"
            ]
        );
    }

    #[test]
    fn unread_outputs_are_found_without_figures() {
        let nodes = [
            node("camera", &["image", "debug"], &[]),
            node("display", &[], &[("image", "camera/image", None)]),
        ];
        let hints = hints_of(&nodes.iter().collect::<Vec<_>>(), &Edges::default());
        let [hint] = &hints[..] else {
            panic!("{hints:?}")
        };
        assert_eq!((hint.code, &*hint.about), ("unread-output", "camera/debug"));
    }
}
