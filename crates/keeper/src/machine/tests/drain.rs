//! A dataflow that drains: sources end first, and others after all queued samples.

use std::time::Duration;

use nervure_protocol::graph::TransformsSpec;

use super::{World, block, drop_oldest, node, world::dynamic};
use crate::{
    machine::{End, Signal},
    plan::RestartPolicy::{Always, Never, OnFailure},
};

const EXIT_0: End = End::Code(0);
const KILLED: End = End::Signal(9);

fn is_asked_to_drain(world: &World, node: usize) -> bool {
    world.processes[node].stop_when_drained.is_some()
}

#[test]
fn sources_end_first_and_each_other_node_behind_its_producers() {
    let nodes = ["source", "filter", "sink"].map(|id| node(id, Always));
    let mut world = World::running(nodes.to_vec(), &[block(0, 1), drop_oldest(1, 2)]);
    world.drain(None);
    assert!(world.processes[0].stop.is_some());
    assert!(!is_asked_to_drain(&world, 1) && !is_asked_to_drain(&world, 2));
    world.exit(0, EXIT_0);
    assert!(is_asked_to_drain(&world, 1) && world.processes[1].stop.is_none());
    assert!(!is_asked_to_drain(&world, 2));
    world.exit(1, EXIT_0);
    assert!(is_asked_to_drain(&world, 2));
    world.exit(2, EXIT_0);
    assert!(world.is_finished && world.ended.iter().all(|ended| !ended.restarts));
}

#[test]
fn a_consumer_that_dies_while_it_drains_is_started_again_for_what_is_queued() {
    let nodes = vec![node("source", Never), node("sink", OnFailure)];
    let mut world = World::running(nodes, &[block(0, 1)]);
    world.drain(Some(60_000));
    world.exit(0, EXIT_0);
    assert!(is_asked_to_drain(&world, 1));
    world.exit(1, KILLED);
    world.advance(Duration::from_secs(1));
    assert!(!is_asked_to_drain(&world, 1), "it has not connected");
    world.hello(1);
    assert!(is_asked_to_drain(&world, 1));
    world.exit(1, EXIT_0);
    assert!(world.is_finished);
}

#[test]
fn an_ordinary_stop_follows_when_the_time_is_over() {
    let nodes = vec![node("source", Never), node("sink", Never)];
    let mut world = World::running(nodes, &[block(0, 1)]);
    world.drain(Some(2000));
    world.exit(0, EXIT_0);
    world.advance(Duration::from_millis(1999));
    assert!(world.processes[1].stop.is_none());
    world.advance(Duration::from_millis(1));
    assert!(world.processes[1].stop.is_some());
    let named = |line: &String| line.contains("not drained in time: `sink`");
    assert!(world.log.iter().any(named), "{:?}", world.log);
    world.advance(Duration::from_secs(5));
    assert_eq!(world.signals, [(1, Signal::Terminate)]);
}

#[test]
fn nodes_of_a_loop_do_not_wait_for_each_other() {
    let nodes = ["source", "planner", "control"].map(|id| node(id, Never));
    let edges = [block(0, 1), drop_oldest(1, 2), drop_oldest(2, 1)];
    let mut world = World::running(nodes.to_vec(), &edges);
    world.drain(None);
    assert!(!is_asked_to_drain(&world, 1) && !is_asked_to_drain(&world, 2));
    world.exit(0, EXIT_0);
    assert!(is_asked_to_drain(&world, 1) && is_asked_to_drain(&world, 2));
}

#[test]
fn a_node_that_never_joined_is_not_waited_for() {
    let nodes = vec![node("source", Never), dynamic("plot")];
    let mut world = World::running(nodes, &[drop_oldest(0, 1)]);
    world.drain(None);
    world.exit(0, EXIT_0);
    assert!(world.is_finished);
}

#[test]
fn transforms_are_no_reason_to_wait_nor_a_loop() {
    let mut nodes = ["source", "filter", "sink"]
        .map(|id| node(id, Never))
        .to_vec();
    // The second input of each brings transforms: of the sink to the filter, and of the filter to the source.
    for (node, input) in [(0, 0), (1, 1)] {
        nodes[node].settings.transforms = Some(TransformsSpec {
            inputs: vec![input],
            fixed: Vec::new(),
        });
    }
    let edges = [
        block(0, 1),
        block(1, 2),
        drop_oldest(2, 1),
        drop_oldest(1, 0),
    ];
    let mut world = World::running(nodes, &edges);
    world.drain(None);
    assert!(world.processes[0].stop.is_some());
    assert!(!is_asked_to_drain(&world, 1) && !is_asked_to_drain(&world, 2));
    world.exit(0, EXIT_0);
    assert!(is_asked_to_drain(&world, 1) && !is_asked_to_drain(&world, 2));
    world.exit(1, EXIT_0);
    assert!(is_asked_to_drain(&world, 2));
    world.exit(2, EXIT_0);
    assert!(world.is_finished);
}
