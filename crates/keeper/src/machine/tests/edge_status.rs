//! Edges that cannot be attached, or were cut.

use nervure_protocol::{
    VERSIONS, cli_to_keeper, keeper_to_cli,
    node_to_keeper::{EdgeStatus, Message},
    report::Report,
    wiring::EdgeState,
};

use super::{World, block, drop_oldest, node};
use crate::{
    machine::{End, Signal},
    plan::RestartPolicy::{Never, OnFailure},
};

const CAUSE: &str = "out of file descriptors (limit 36)";

fn report(world: &mut World, node: usize, edge: u32, state: EdgeState) {
    let cause = if state == EdgeState::Working {
        String::new()
    } else {
        CAUSE.to_owned()
    };
    world.message(node, Message::EdgeStatus(EdgeStatus { edge, state, cause }));
}

fn source_and_sink() -> World {
    World::running(
        vec![node("source", Never), node("sink", Never)],
        &[block(0, 1)],
    )
}

#[test]
fn an_edge_that_waits_is_reported_until_it_works() {
    let mut world = source_and_sink();
    let edge = world.input(1).unwrap();
    report(&mut world, 1, edge, EdgeState::Waiting);
    report(&mut world, 1, edge, EdgeState::Working);
    let reported: Vec<_> = world
        .edge_reports
        .iter()
        .map(|status| (status.state, &*status.cause))
        .collect();
    let cause = format!("node `sink`: {CAUSE}");
    assert_eq!(
        reported,
        [(EdgeState::Waiting, &*cause), (EdgeState::Working, "")]
    );
    assert_eq!(world.edge_reports[0].topic, "source/out0");
    assert_eq!(world.edge_reports[0].input, "sink/in0");
    let line = &world.log[world.log.len() - 2];
    assert_eq!(
        line,
        &format!("Warn Some(1) the edge `source/out0` -> `sink/in0` waits: {CAUSE}")
    );
    assert!(world.signals.is_empty());
}

#[test]
fn a_node_that_cannot_attach_its_edge_fails_and_the_edge_and_cause_are_named() {
    let mut world = source_and_sink();
    let edge = world.input(1).unwrap();
    report(&mut world, 0, edge, EdgeState::Failed);
    assert_eq!(world.signals, [(0, Signal::Kill)]);
    world.exit(0, End::Signal(9));
    let ended = &world.ended[0];
    assert!(ended.failed);
    let why = format!(
        "killed by the keeper, because it cannot attach the edge `source/out0` -> `sink/in0`: {CAUSE}"
    );
    assert_eq!(ended.reason, why);
}

#[test]
fn its_restart_policy_decides() {
    let mut world = World::running(
        vec![node("source", OnFailure), node("sink", Never)],
        &[drop_oldest(0, 1)],
    );
    let edge = world.input(1).unwrap();
    report(&mut world, 0, edge, EdgeState::Failed);
    world.exit(0, End::Signal(9));
    assert!(world.ended[0].restarts);
    world.advance(std::time::Duration::from_secs(1));
    world.hello(0);
    assert!(world.output(0).is_some() && world.output(0).map(|(edge, _)| edge) == world.input(1));
}

#[test]
fn the_status_of_an_edge_that_is_gone_is_ignored() {
    let mut world = source_and_sink();
    let edge = world.input(1).unwrap();
    world.exit(1, End::Code(0));
    report(&mut world, 0, edge, EdgeState::Failed);
    assert!(world.signals.is_empty() && world.edge_reports.is_empty());
}

#[test]
fn a_node_that_reports_on_an_edge_of_others_is_killed() {
    let nodes = vec![
        node("source", Never),
        node("sink", Never),
        node("other", Never),
    ];
    let mut world = World::running(nodes, &[block(0, 1), drop_oldest(0, 2)]);
    let edge = world.input(1).unwrap();
    report(&mut world, 2, edge, EdgeState::Waiting);
    assert_eq!(world.signals, [(2, Signal::Kill)]);
}

#[test]
fn an_observer_that_a_node_cannot_attach_is_disconnected_and_the_node_lives() {
    let mut world = source_and_sink();
    let guest = world.guest(1, &["source/out0"]);
    let edge = *world.processes[guest].inputs.keys().next().unwrap();
    report(&mut world, 0, edge, EdgeState::Waiting);
    report(&mut world, 0, edge, EdgeState::Failed);
    assert!(world.signals.is_empty() && !world.processes[guest].runs);
    assert!(
        world.edge_reports.is_empty(),
        "observers are no part of the dataflow"
    );
    let is_status = |report: &Report| matches!(report, Report::EdgeStatus(_));
    assert!(world.guest_reports.iter().any(is_status));
    assert!(
        world
            .log
            .iter()
            .any(|line| line.contains("node `source` cannot attach the edge"))
    );
}

#[test]
fn an_edge_that_its_consumer_cut_is_reported_and_does_not_block_the_producer() {
    let mut world = source_and_sink();
    let edge = world.input(1).unwrap();
    world.message(
        1,
        Message::Misbehaviour {
            edge,
            what: "a descriptor beyond its block".to_owned(),
        },
    );
    assert_eq!(
        world.output(0),
        None,
        "a producer would wait for room for ever"
    );
    let [report] = &world.edge_reports[..] else {
        panic!("{:?}", world.edge_reports)
    };
    assert_eq!(report.state, EdgeState::Failed);
    assert!(report.cause.contains("`source`") && report.cause.contains("beyond its block"));
    world.exit(0, End::Code(0));
    assert!(
        world.processes[1].over.contains(&0),
        "the consumer is notified that the producer has ended"
    );
}

/// The content of the queue may be from the process before it.
#[test]
fn a_consumer_that_inherits_its_edge_blames_its_own_node_too() {
    let mut world = World::running(
        vec![node("source", Never), node("sink", OnFailure)],
        &[block(0, 1)],
    );
    world.exit(1, End::Signal(9));
    world.advance(std::time::Duration::from_secs(1));
    world.hello(1);
    let edge = world.input(1).unwrap();
    let what = "the ring's counters are 9 apart".to_owned();
    world.message(1, Message::Misbehaviour { edge, what });
    let cause = &world.edge_reports[0].cause;
    let begin =
        "node `source` or an earlier process of `sink` broke the rules of the edge to `sink/in0`";
    assert!(cause.starts_with(begin), "{cause}");
}

#[test]
fn an_edge_that_its_producer_cut_is_reported() {
    let mut world = source_and_sink();
    let edge = world.input(1).unwrap();
    world.message(
        0,
        Message::Misbehaviour {
            edge,
            what: "a wild tail".to_owned(),
        },
    );
    assert_eq!(world.edge_reports[0].state, EdgeState::Failed);
    assert!(world.edge_reports[0].cause.contains("`sink`"));
}

/// The states of the edges in the snapshot that a client gets.
fn snapshot(world: &mut World, client: usize) -> Vec<EdgeState> {
    let hello = cli_to_keeper::Hello {
        versions: VERSIONS,
        program: "test".to_owned(),
    };
    world.ask(client, cli_to_keeper::Message::Hello(hello));
    let watch = cli_to_keeper::Watch {
        logs: false,
        follow: false,
        without_observers: false,
    };
    world.ask(client, cli_to_keeper::Message::Watch(watch));
    let state = |reply: &keeper_to_cli::Message| match reply {
        keeper_to_cli::Message::Report {
            report: Report::EdgeStatus(status),
        } => Some(status.state),
        _ => None,
    };
    world.replies[&client].iter().filter_map(state).collect()
}

#[test]
fn a_later_snapshot_shows_the_state_of_edges() {
    let mut world = source_and_sink();
    let edge = world.input(1).unwrap();
    assert_eq!(snapshot(&mut world, 1), []);
    report(&mut world, 1, edge, EdgeState::Waiting);
    assert_eq!(snapshot(&mut world, 2), [EdgeState::Waiting]);
    report(&mut world, 1, edge, EdgeState::Working);
    assert_eq!(snapshot(&mut world, 3), []);
    world.message(
        1,
        Message::Misbehaviour {
            edge,
            what: "noise".to_owned(),
        },
    );
    assert_eq!(snapshot(&mut world, 4), [EdgeState::Failed]);
}

#[test]
fn the_status_of_an_edge_is_cleared_with_the_next_process() {
    let mut world = World::running(
        vec![node("source", OnFailure), node("sink", Never)],
        &[drop_oldest(0, 1)],
    );
    let edge = world.input(1).unwrap();
    report(&mut world, 0, edge, EdgeState::Waiting);
    world.exit(0, End::Signal(9));
    world.advance(std::time::Duration::from_secs(1));
    world.hello(0);
    assert_eq!(snapshot(&mut world, 1), []);
}
