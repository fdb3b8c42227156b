//! `nervure replay`: runs a dataflow in which a node that plays a recording replaces others.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::ExitCode,
};

use nervure_dataflow::{
    Dataflow, Edge, InputQueue, Node, NodeSettings, Output, Program, QueuePolicy, Source,
    UnansweredClient,
};
use nervure_keeper::plan::ClockPlan;
use nervure_launch::Overrides;
use nervure_protocol::{
    did_you_mean,
    wiring::{Policy, absolute_output},
};
use nervure_recorder::{DefinitionOrigin, Overview, PlayOptions, Recording, played_name};

use crate::{
    failure::Failure,
    info,
    player::PlayerSettings,
    record::{
        arguments::{Played, Rate, ReplayArguments},
        selection,
    },
    run::{self, Replay},
    source,
};

/// The id of the node that plays; gets a number if a node of the dataflow has that id.
const PLAYER: &str = "replay";

/// Plays a recording, alone or in a dataflow.
pub fn replay(arguments: &ReplayArguments) -> Result<ExitCode, Failure> {
    if arguments.playing.clock && arguments.playing.rate == Rate::Max {
        return Err(Failure::invalid(
            "`--clock` does not work with `--rate max`: the clock needs a fixed rate",
        )
        .hint("use a number, such as `--rate 10`"));
    }
    let Played {
        recordings,
        dataflow: file,
    } = arguments.played()?;
    let recording = info::open(&recordings, &arguments.playing.definitions)?;
    let overview = recording.overview();
    let options = selection::options(&arguments.playing, &overview)?;
    let topics: BTreeSet<&str> = options
        .topics
        .iter()
        .flatten()
        .map(|topic| played_name(topic, &options.renamed))
        .collect();
    report_damage(&recording, &overview);
    let player = player(&recordings, &arguments.playing.definitions, &options)?;
    let dataflow = match &file {
        Some((file, overrides)) => {
            let dataflow = source::read(file, overrides)?;
            let replaced =
                select_replaced(&dataflow, &topics, arguments, recording.name(), || {
                    recorded(&overview, &options.renamed)
                })?;
            check_overrides(overrides, &dataflow, &replaced)?;
            report_replaced(&dataflow, &replaced, &topics);
            let mut dataflow = replace(dataflow, &replaced, player)?;
            require_programs(&dataflow, file)?;
            if !arguments.lossy {
                make_lossless(&mut dataflow);
            }
            dataflow
        }
        None => alone(&topics, player),
    };
    let first = overview.times.map_or(0, |(first, _)| first);
    // The player is the first node.
    let clock = arguments.playing.clock.then_some(ClockPlan {
        node: 0,
        origin_utc_nanos: first.max(*options.window.start()).cast_signed(),
    });
    let player = dataflow.nodes[0].id.clone();
    let file = file.and_then(|(file, _)| file.canonicalize().ok());
    run::run_replay(dataflow, file, &arguments.options, Replay { player, clock })
}

/// Fails if a program of the dataflow is not built. The programs of replaced nodes may be missing.
fn require_programs(dataflow: &Dataflow, file: &Path) -> Result<(), Failure> {
    let not_built = dataflow.nodes.iter().filter(|node| !node.is_built);
    let places: Vec<_> = not_built
        .map(|node| format!("that of `{}` ({}:{})", node.id, file.display(), node.line))
        .collect();
    match places.as_slice() {
        [] => Ok(()),
        places => Err(
            Failure::invalid(format!("programs are not built: {}", places.join(", ")))
                .hint(format!("`nervure build {}`", file.display())),
        ),
    }
}

fn report_damage(recording: &Recording, overview: &Overview) {
    let notes = recording.notes().iter().cloned();
    for line in notes.chain(info::damages(recording, overview)) {
        note!("{line}");
    }
    let of_humble = overview
        .topics
        .iter()
        .filter(|topic| topic.definitions.contains(&DefinitionOrigin::Humble));
    let of_humble: Vec<_> = of_humble.map(|topic| topic.topic.as_str()).collect();
    if !of_humble.is_empty() {
        note!(
            "the recording has no definitions of the messages of {}: those of ROS 2 Humble are used; \
             `--definitions FOLDER` reads others",
            of_humble.join(", ")
        );
    }
}

/// Refuses parameters of nodes that the recording replaces.
fn check_overrides(
    overrides: &Overrides,
    dataflow: &Dataflow,
    replaced: &BTreeSet<usize>,
) -> Result<(), Failure> {
    for node in replaced.iter().map(|&index| &dataflow.nodes[index]) {
        if let Some(param) = overrides.param_of(dataflow, node) {
            let text = format!("`{param}` has no effect");
            return Err(Failure::invalid(text)
                .because(format!("`{}` is replaced by the recording", node.id)));
        }
    }
    Ok(())
}

fn report_replaced(dataflow: &Dataflow, replaced: &BTreeSet<usize>, topics: &BTreeSet<&str>) {
    for &index in replaced {
        let node = &dataflow.nodes[index];
        let (played, silent): (Vec<_>, Vec<_>) = node
            .outputs
            .iter()
            .map(|output| topic(node, output))
            .partition(|name| topics.contains(name.as_str()));
        let mut text = format!(
            "`{}` is replaced by the recording of {}",
            node.id,
            played.join(", ")
        );
        if !silent.is_empty() {
            text += &format!(
                "; {} is not in the recording, and sends nothing",
                silent.join(", ")
            );
        }
        note!("{text}");
    }
}

/// Indices of the nodes that the recording replaces: recorded sources, and nodes of `--replace`.
fn select_replaced(
    dataflow: &Dataflow,
    topics: &BTreeSet<&str>,
    arguments: &ReplayArguments,
    recording: &str,
    recorded: impl Fn() -> Vec<String>,
) -> Result<BTreeSet<usize>, Failure> {
    let is_recorded = |node: &Node| {
        node.outputs
            .iter()
            .any(|output| topics.contains(topic(node, output).as_str()))
    };
    let is_source = |node: &Node| {
        node.inputs
            .iter()
            .all(|input| matches!(input.source, Source::Timer { .. }))
    };
    let nodes = dataflow.nodes.iter().enumerate();
    let mut replaced: BTreeSet<usize> = nodes
        .filter(|(_, node)| is_source(node) && is_recorded(node))
        .map(|(index, _)| index)
        .collect();
    for name in &arguments.replace {
        let found = dataflow.nodes.iter().position(|node| node.id == *name);
        let index = found.ok_or_else(|| {
            let known = dataflow.nodes.iter().map(|node| node.id.as_str());
            Failure::invalid(format!(
                "`--replace {name}`: the dataflow has no node `{name}`"
            ))
            .hint(did_you_mean(name, "its nodes are", known))
        })?;
        if !is_recorded(&dataflow.nodes[index]) {
            let failure = format!("`--replace {name}`: no output of the node is in {recording}");
            return Err(Failure::invalid(failure).hint("`nervure info` shows its topics"));
        }
        replaced.insert(index);
    }
    if replaced.is_empty() {
        let replaceable: Vec<_> = dataflow
            .nodes
            .iter()
            .filter(|node| is_recorded(node))
            .map(|node| node.id.as_str())
            .collect();
        let sources = dataflow.nodes.iter().filter(|node| is_source(node));
        let sent: Vec<_> = sources
            .flat_map(|node| node.outputs.iter().map(|output| topic(node, output)))
            .collect();
        let failure = Failure::invalid(format!(
            "{recording} has no topic of a source of the dataflow `{}`",
            dataflow.name
        ));
        return Err(match replaceable.as_slice() {
            [] => failure.hint(match sent.as_slice() {
                [] => format!("the recording has {}; the dataflow has no sources", recorded().join(", ")),
                [first, ..] => format!(
                    "the recording has {}; the sources send {}: `--rename TOPIC={first}` plays a topic as that output",
                    recorded().join(", "),
                    sent.join(", ")
                ),
            }),
            nodes => {
                failure.hint(format!("name nodes to replace: `--replace {}`", nodes.join(" --replace ")))
            }
        });
    }
    Ok(replaced)
}

/// The topics of a recording, with the new names of `--rename`.
fn recorded(overview: &Overview, renamed: &BTreeMap<String, String>) -> Vec<String> {
    let name = |topic: &str| match renamed.get(topic) {
        Some(played) => format!("{topic} (played as {played})"),
        None => topic.to_owned(),
    };
    overview
        .topics
        .iter()
        .map(|topic| name(&topic.topic))
        .collect()
}

fn topic(node: &Node, output: &Output) -> String {
    nervure_protocol::wiring::topic(&node.id, &output.name)
}

/// A node without inputs and outputs that plays the recordings.
fn player(
    recordings: &[PathBuf],
    definitions: &[PathBuf],
    options: &PlayOptions,
) -> Result<Node, Failure> {
    let failed = |error| Failure::internal("cannot find this program").because(error);
    let absolute = |paths: &[PathBuf]| -> Result<Vec<PathBuf>, Failure> {
        let paths = paths.iter().map(std::path::absolute);
        paths.collect::<Result<_, _>>().map_err(failed)
    };
    let settings = PlayerSettings::new(absolute(recordings)?, absolute(definitions)?, options);
    let settings = serde_json::to_string(&settings)
        .map_err(|error| Failure::invalid(format!("the name of a recording: {error}")))?;
    let args = vec!["__player".to_owned(), settings];
    Ok(Node {
        machine: None,
        stops_on_partition: false,
        id: PLAYER.to_owned(),
        name: None,
        description: None,
        program: Program::Executable(std::env::current_exe().map_err(failed)?),
        is_built: true,
        settings: NodeSettings {
            args,
            ..NodeSettings::default()
        },
        build: None,
        git: None,
        inputs: Vec::new(),
        outputs: Vec::new(),
        types: BTreeMap::new(),
        services: Vec::new(),
        clients: Vec::new(),
        shared_memory: None,
        line: 0,
    })
}

/// A dataflow of the player alone, for observers.
fn alone(topics: &BTreeSet<&str>, mut player: Node) -> Dataflow {
    player.outputs = topics
        .iter()
        .map(|topic| output(absolute_output(topic)))
        .collect();
    Dataflow {
        machines: Vec::new(),
        labels: BTreeMap::new(),
        resources: BTreeMap::new(),
        static_transforms: Vec::new(),
        name: PLAYER.to_owned(),
        directory: PathBuf::from("/"),
        env: BTreeMap::new(),
        nodes: vec![player],
        edges: Vec::new(),
    }
}

fn output(name: String) -> Output {
    Output {
        name,
        history: 0,
        type_name: None,
        line: 0,
    }
}

/// The dataflow with the player as its first node, without the replaced nodes. The player sends
/// their topics.
fn replace(
    dataflow: Dataflow,
    replaced: &BTreeSet<usize>,
    mut player: Node,
) -> Result<Dataflow, Failure> {
    let taken = |id: &str| {
        dataflow
            .nodes
            .iter()
            .enumerate()
            .any(|(index, node)| node.id == id && !replaced.contains(&index))
    };
    let mut number = 1;
    while taken(&player.id) {
        number += 1;
        player.id = format!("{PLAYER}-{number}");
    }
    dataflow.replace(replaced, player).map_err(|UnansweredClient { client, server, service }| {
        Failure::invalid(format!(
            "`{client}` calls the service `{service}` of `{server}`, and a recording cannot answer"
        ))
        .hint(format!("replace `{client}` too, with `--replace {client}`, or leave `{server}` as it is"))
    })
}

/// Makes producers wait on every edge, so that each sample is received. Edges of a loop keep their policy: their nodes would wait for each other.
fn make_lossless(dataflow: &mut Dataflow) {
    let reaches = |from: usize, to: usize| {
        let mut seen = BTreeSet::from([from]);
        let mut open = vec![from];
        while let Some(node) = open.pop() {
            if node == to {
                return true;
            }
            let next = dataflow
                .edges
                .iter()
                .filter(|edge| edge.from.node == node)
                .map(|edge| edge.to.node);
            open.extend(next.filter(|&node| seen.insert(node)));
        }
        false
    };
    let straight: Vec<Edge> = dataflow
        .edges
        .iter()
        .filter(|edge| !reaches(edge.to.node, edge.from.node))
        .copied()
        .collect();
    for edge in straight {
        let queue = &mut dataflow.nodes[edge.to.node].inputs[edge.to.input].queue;
        *queue = InputQueue {
            policy: QueuePolicy::Edge(Policy::Block),
            ..*queue
        };
    }
}
