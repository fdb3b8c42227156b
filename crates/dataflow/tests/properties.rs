//! Properties of all inputs: no panic, places within the file, and graphs that survive a round trip
//! through YAML.

mod support;

use std::collections::BTreeSet;
use std::fmt::Write;

use nervure_dataflow::{Dataflow, InputQueue, QueuePolicy, Report, Source};
use nervure_protocol::wiring::Policy;
use proptest::prelude::*;
use support::parse;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        check_report(&parse("f.yml", &bytes));
    }

    #[test]
    fn no_yaml_like_text_panics(text in "([a-z]{1,5}|nodes|id|path|inputs|outputs|: |- |\n|  |\\{|\\}|\\[|\\]|,|&a|\\*a|\"|'|!|#|\t|ä|\\$\\{|/|@|\\||>|1|-1|~){0,60}") {
        check_report(&parse("f.yml", text.as_bytes()));
    }

    /// A valid file with random damage.
    #[test]
    fn no_damaged_file_panics(
        file in prop::sample::select(FILES.to_vec()),
        at in any::<prop::sample::Index>(),
        removed in 0_usize..40,
        inserted in "\\PC{0,12}|[\\x00-\\x20]{0,4}",
    ) {
        let characters: Vec<char> = file.chars().collect();
        let at = at.index(characters.len());
        let rest = characters.iter().skip(at + removed);
        let text: String = characters[..at].iter().copied().chain(inserted.chars()).chain(rest.copied()).collect();
        check_report(&parse("f.yml", text.as_bytes()));
    }

    #[test]
    fn graphs_survive_a_round_trip(graph in graph()) {
        let text = to_yaml(&graph);
        let report = parse("generated.yml", text.as_bytes());
        prop_assert!(!report.has_errors(), "{}\n{text}", report.render(false));
        let dataflow = report.dataflow.unwrap();
        prop_assert_eq!(from_dataflow(&dataflow), graph);
        let inputs = dataflow.nodes.iter().flat_map(|node| &node.inputs);
        let connected = inputs.filter(|input| matches!(input.source, Source::Output { .. })).count();
        prop_assert_eq!(dataflow.edges.len(), connected);
    }
}

const FILES: &[&str] = &[
    include_str!("good/every-key.yml"),
    include_str!("good/dora.yml"),
    include_str!("good/aliases.yml"),
    include_str!("bad/hostile-names.yml"),
    include_str!("bad/deadlock.yml"),
    include_str!("bad/wrong-types.yml"),
];

fn check_report(report: &Report) {
    assert_eq!(report.has_errors(), report.dataflow.is_none());
    let text = report.source.text();
    for location in report
        .diagnostics
        .iter()
        .filter_map(|diagnostic| diagnostic.location.as_ref())
    {
        assert!(
            text.get(location.span.start..location.span.end).is_some(),
            "{location:?}"
        );
        assert!(
            location.line >= 1 && location.line <= text.split('\n').count(),
            "{location:?}"
        );
    }
    let rendered = report.render(false);
    assert_eq!(rendered.is_empty(), report.diagnostics.is_empty());
    assert!(!rendered.contains('\u{1b}'));
    serde_json::to_string(report).unwrap();
}

/// A graph in the form of the test: outputs per node, and inputs with their sources.
#[derive(Debug, Clone, PartialEq)]
struct Graph {
    nodes: Vec<GraphNode>,
}

#[derive(Debug, Clone, PartialEq)]
struct GraphNode {
    id: String,
    outputs: Vec<(String, u32)>,
    inputs: Vec<(String, Source, InputQueue)>,
    args: Vec<String>,
}

/// Nodes with outputs, whose inputs choose among the outputs of all nodes.
fn graph() -> impl Strategy<Value = Graph> {
    let name = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,10}";
    let names = |range| prop::collection::btree_set(name, range);
    let nodes = prop::collection::vec(
        (names(1..4), prop::collection::vec(0_u32..1000, 0..2)),
        1..8,
    );
    let inputs = prop::collection::vec(
        (any::<prop::sample::Index>(), name, source_choice(), queue()),
        0..20,
    );
    let args = prop::collection::vec("\\PC{0,8}", 0..4);
    (names(8..9), nodes, inputs, args).prop_filter_map(
        "reserved id",
        |(ids, nodes, inputs, args)| {
            let reserved = ["nervure", "dora"];
            if ids.iter().any(|id| reserved.contains(&id.as_str())) {
                return None;
            }
            let node = |(id, (outputs, histories)): (String, Ports)| {
                let history = histories.first().copied().unwrap_or(0);
                let outputs = outputs.into_iter().map(|name| (name, history)).collect();
                GraphNode {
                    id,
                    outputs,
                    inputs: Vec::new(),
                    args: args.clone(),
                }
            };
            let mut graph = Graph {
                nodes: ids.into_iter().zip(nodes).map(node).collect(),
            };
            for (consumer, name, (producer, output, period_nanos), queue) in inputs {
                let producer = producer.index(graph.nodes.len());
                let consumer = consumer.index(graph.nodes.len());
                let output = output.index(graph.nodes[producer].outputs.len());
                let (source, queue) = match period_nanos {
                    Some(period_nanos) => (Source::Timer { period_nanos }, InputQueue::LATEST),
                    None => (
                        Source::Output {
                            node: producer,
                            output,
                        },
                        queue,
                    ),
                };
                let blocks_itself = queue.policy.on_edge().is_lossless() && producer == consumer;
                let node = &mut graph.nodes[consumer];
                if !blocks_itself && !node.inputs.iter().any(|(known, ..)| *known == name) {
                    node.inputs.push((name, source, queue));
                }
            }
            Some(graph)
        },
    )
}

/// Names of outputs, and their history.
type Ports = (BTreeSet<String>, Vec<u32>);
type SourceChoice = (prop::sample::Index, prop::sample::Index, Option<u64>);

fn source_choice() -> impl Strategy<Value = SourceChoice> {
    let period = prop::option::weighted(0.3, (1_u64..10_000).prop_map(|millis| millis * 1_000_000));
    (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        period,
    )
}

fn queue() -> impl Strategy<Value = InputQueue> {
    let mut policies = Policy::ALL.map(QueuePolicy::Edge).to_vec();
    policies.push(QueuePolicy::Latest);
    (prop::sample::select(policies), 1_u32..1000, 1_u32..100).prop_map(|(policy, depth, beyond)| {
        let depth = match policy {
            QueuePolicy::Latest => 1,
            QueuePolicy::Edge(_) => depth,
        };
        InputQueue {
            policy,
            depth,
            max_held: depth + beyond,
        }
    })
}

fn to_yaml(graph: &Graph) -> String {
    let mut text = String::from("nodes:\n");
    for node in &graph.nodes {
        let quoted = |text: &str| serde_json::to_string(text).unwrap();
        let args: Vec<String> = node
            .args
            .iter()
            .map(|argument| quoted(&argument.replace('$', "$$")))
            .collect();
        writeln!(
            text,
            "  - id: {}\n    path: camera.py\n    args: [{}]",
            quoted(&node.id),
            args.join(", ")
        )
        .unwrap();
        writeln!(text, "    outputs:").unwrap();
        for (name, history) in &node.outputs {
            writeln!(text, "      {}: {{history: {history}}}", quoted(name)).unwrap();
        }
        writeln!(text, "    inputs:").unwrap();
        for (name, source, queue) in &node.inputs {
            let (source, options) = match *source {
                Source::Timer { period_nanos } => (
                    format!("nervure/timer/millis/{}", period_nanos / 1_000_000),
                    String::new(),
                ),
                Source::Output { node, output } => {
                    let node = &graph.nodes[node];
                    (
                        format!("{}/{}", node.id, node.outputs[output].0),
                        options(queue),
                    )
                }
            };
            writeln!(
                text,
                "      {}: {{source: {}{options}}}",
                quoted(name),
                quoted(&source)
            )
            .unwrap();
        }
    }
    text
}

fn options(queue: &InputQueue) -> String {
    let size = if queue.policy == QueuePolicy::Latest {
        String::new()
    } else {
        format!(", queue_size: {}", queue.depth)
    };
    format!(
        ", queue_policy: {}{size}, max_held: {}",
        queue.policy, queue.max_held
    )
}

fn from_dataflow(dataflow: &Dataflow) -> Graph {
    let nodes = dataflow.nodes.iter().map(|node| GraphNode {
        id: node.id.clone(),
        outputs: node
            .outputs
            .iter()
            .map(|output| (output.name.clone(), output.history))
            .collect(),
        inputs: node
            .inputs
            .iter()
            .map(|input| (input.name.clone(), input.source, input.queue))
            .collect(),
        args: node.settings.args.clone(),
    });
    Graph {
        nodes: nodes.collect(),
    }
}
