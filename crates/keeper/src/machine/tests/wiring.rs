//! The edges after the end of a process.

use std::{collections::BTreeSet, time::Duration};

use nervure_protocol::node_to_keeper;

use super::{World, block, drop_oldest, node};
use crate::{
    machine::{End, Event, Signal},
    plan::RestartPolicy::{Never, OnFailure},
};

const EXIT_0: End = End::Code(0);
const KILLED: End = End::Signal(9);

fn restart(world: &mut World, node: usize) {
    world.exit(node, KILLED);
    world.advance(Duration::from_secs(2));
    world.hello(node);
}

#[test]
fn edges_of_a_pair_share_a_socket_and_each_direction_has_its_own() {
    let edges = [drop_oldest(0, 1), drop_oldest(0, 1), drop_oldest(1, 0)];
    let world = World::running(vec![node("a", Never), node("b", Never)], &edges);
    let outputs = |node: usize| {
        world.processes[node]
            .outputs
            .values()
            .map(|(attach, _)| attach.peer)
    };
    let inputs = |node: usize| {
        world.processes[node]
            .inputs
            .values()
            .map(|attach| attach.peer)
    };
    let all = [
        outputs(0).collect::<BTreeSet<_>>(),
        inputs(1).collect(),
        outputs(1).collect(),
        inputs(0).collect(),
    ];
    assert!(all.iter().all(|peers| peers.len() == 1), "{all:?}");
    assert_eq!(
        all.iter().flatten().collect::<BTreeSet<_>>().len(),
        4,
        "{all:?}"
    );
}

#[test]
fn a_node_may_read_its_own_output() {
    let mut world = World::running(vec![node("loop", OnFailure)], &[drop_oldest(0, 0)]);
    assert_eq!(world.output(0).map(|(edge, _)| edge), world.input(0));
    restart(&mut world, 0);
    assert_eq!(world.output(0).map(|(edge, _)| edge), world.input(0));
    assert!(world.rung.is_empty());
    world.exit(0, EXIT_0);
    assert!(world.is_finished);
}

#[test]
fn a_block_edge_waits_for_its_consumer() {
    let mut world = World::running(
        vec![node("source", Never), node("sink", OnFailure)],
        &[block(0, 1)],
    );
    let edge = world.input(1).unwrap();
    let peer = world.processes[0].outputs[&edge].0.peer;
    world.exit(1, KILLED);
    assert_eq!(world.output(0), Some((edge, true)), "suspended");
    assert_eq!(world.rung, [0]);
    world.advance(Duration::from_secs(1));
    assert_eq!(
        world.output(0),
        Some((edge, true)),
        "its process has not connected"
    );
    world.hello(1);
    assert_eq!(
        (world.output(0), world.input(1)),
        (Some((edge, false)), Some(edge))
    );
    assert_ne!(
        world.processes[0].outputs[&edge].0.peer, peer,
        "another process, another socket"
    );
}

#[test]
fn other_edges_are_replaced_with_their_consumer() {
    let mut world = World::running(
        vec![node("source", Never), node("sink", OnFailure)],
        &[drop_oldest(0, 1)],
    );
    let edge = world.input(1).unwrap();
    world.exit(1, KILLED);
    assert_eq!(world.output(0), None);
    world.advance(Duration::from_secs(1));
    world.hello(1);
    assert_eq!(world.output(0), world.input(1).map(|edge| (edge, false)));
    assert_ne!(world.input(1), Some(edge));
}

#[test]
fn a_block_edge_is_given_up_with_its_consumer() {
    let mut world = World::running(
        vec![node("source", Never), node("sink", OnFailure)],
        &[block(0, 1)],
    );
    for _ in 0..3 {
        restart(&mut world, 1);
    }
    world.exit(1, KILLED);
    assert_eq!(world.output(0), None);
    // Also when the last process never connected.
    let mut world = World::running(
        vec![node("source", Never), node("sink", OnFailure)],
        &[block(0, 1)],
    );
    for _ in 0..4 {
        world.exit(1, KILLED);
        world.advance(Duration::from_secs(2));
    }
    assert_eq!(world.output(0), None);
}

#[test]
fn a_restarted_producer_brings_new_edges() {
    for edges in [[block(0, 1)], [drop_oldest(0, 1)]] {
        let mut world =
            World::running(vec![node("source", OnFailure), node("sink", Never)], &edges);
        let edge = world.input(1).unwrap();
        world.exit(0, KILLED);
        assert_eq!(world.input(1), None, "closed, and not for the last time");
        assert!(world.processes[1].over.is_empty());
        world.advance(Duration::from_secs(1));
        world.hello(0);
        let new = world.input(1).unwrap();
        assert_ne!(new, edge);
        assert_eq!(world.output(0), Some((new, false)));
        assert_eq!(world.processes[1].inputs[&new].incarnation, 1);
    }
}

#[test]
fn restarts_that_are_spent_close_the_input_though_it_had_no_edge_left() {
    let mut world = World::running(
        vec![node("source", OnFailure), node("sink", Never)],
        &[block(0, 1)],
    );
    for _ in 0..4 {
        world.exit(0, KILLED);
        world.advance(Duration::from_secs(2));
    }
    assert!(world.processes[1].over.contains(&0));
}

#[test]
fn samples_of_ended_producers_wait_in_a_block_edge_for_the_consumer() {
    let mut world = World::new(
        vec![node("source", OnFailure), node("sink", Never)],
        &[block(0, 1)],
    );
    world.give(Event::Launch);
    world.hello(0);
    world.exit(0, KILLED);
    world.advance(Duration::from_millis(100));
    world.hello(0);
    world.exit(0, EXIT_0);
    world.hello(1);
    // Both regions were attached to be drained, and only the second was closed for good.
    assert_eq!(world.processes[1].edges_seen.len(), 2);
    assert!(world.processes[1].over.contains(&0));
    assert_eq!(world.input(1), None);
}

#[test]
fn samples_of_an_ended_producer_in_a_block_edge_outlive_the_process_that_drains_it() {
    let mut world = World::running(
        vec![node("source", Never), node("sink", OnFailure)],
        &[block(0, 1)],
    );
    let edge = world.input(1).unwrap();
    world.exit(0, EXIT_0);
    assert!(world.processes[1].over.contains(&0));
    restart(&mut world, 1);
    assert!(
        world.processes[1].edges_seen.contains(&edge),
        "the next process goes on where it ended"
    );
    assert!(world.processes[1].over.contains(&0));
    world.exit(1, EXIT_0);
    assert!(world.is_finished);
}

#[test]
fn both_ends_of_a_block_edge_may_restart_at_once() {
    let mut world = World::running(
        vec![node("source", OnFailure), node("sink", OnFailure)],
        &[block(0, 1)],
    );
    world.exit(1, KILLED);
    world.exit(0, KILLED);
    world.advance(Duration::from_secs(1));
    world.hello(0);
    world.hello(1);
    assert_eq!(world.output(0), world.input(1).map(|edge| (edge, false)));
    assert_eq!(
        world.processes[1]
            .inputs
            .values()
            .next()
            .unwrap()
            .incarnation,
        1
    );
}

#[test]
fn a_producer_that_starts_while_the_consumer_of_its_block_edge_waits_to_be_started_waits_for_it() {
    let nodes = || vec![node("source", OnFailure), node("sink", OnFailure)];
    let mut world = World::running(nodes(), &[block(0, 1), drop_oldest(0, 1)]);
    restart(&mut world, 1);
    world.exit(0, KILLED);
    world.exit(1, KILLED);
    // The pause of the consumer is the longer one: it is its second.
    world.advance(Duration::from_millis(100));
    world.hello(0);
    let outputs: Vec<_> = world.processes[0].outputs.keys().copied().collect();
    assert_eq!(outputs.len(), 1, "the other edge begins with its consumer");
    let peer = world.processes[0].outputs[&outputs[0]].0.peer;
    assert!(
        world.processes[0].outputs[&outputs[0]].1,
        "suspended: the consumer has no doorbell yet"
    );
    world.advance(Duration::from_secs(2));
    world.hello(1);
    assert!(world.processes[1].inputs.contains_key(&outputs[0]));
    let (attached, is_suspended) = &world.processes[0].outputs[&outputs[0]];
    assert!(
        !is_suspended && attached.peer != peer,
        "with the bell and the socket of the new process"
    );
    assert_eq!(
        (
            world.processes[0].outputs.len(),
            world.processes[1].inputs.len()
        ),
        (2, 2)
    );

    // Also at the first start.
    let mut world = World::new(nodes(), &[block(0, 1)]);
    world.give(Event::Launch);
    world.exit(1, KILLED);
    world.hello(0);
    let edge = world.output(0).expect("an edge without a consumer yet");
    world.advance(Duration::from_secs(2));
    world.hello(1);
    assert_eq!(
        (world.input(1), world.output(0)),
        (Some(edge.0), Some((edge.0, false)))
    );
}

#[test]
fn a_node_has_no_edges_after_goodbye_while_its_process_continues() {
    let mut world = World::running(
        vec![
            node("source", Never),
            node("filter", Never),
            node("sink", Never),
        ],
        &[block(0, 1), drop_oldest(1, 2)],
    );
    world.message(1, node_to_keeper::Message::Goodbye { cut_short: false });
    assert_eq!(world.output(0), None, "the source does not wait for it");
    assert!(world.processes[2].over.contains(&0));
    world.exit(1, EXIT_0);
    assert!(!world.ended[0].failed);
    world.end_run();
    world.exit(0, EXIT_0);
    world.exit(2, EXIT_0);
    assert!(world.is_finished);
}

#[test]
fn a_goodbye_before_a_restart_does_not_close_inputs_for_good() {
    let mut world = World::running(
        vec![node("source", OnFailure), node("sink", Never)],
        &[drop_oldest(0, 1)],
    );
    world.message(0, node_to_keeper::Message::Goodbye { cut_short: false });
    assert!(world.input(1).is_none() && world.processes[1].over.is_empty());
    restart(&mut world, 0);
    assert_eq!(world.output(0), world.input(1).map(|edge| (edge, false)));
}

#[test]
fn samples_in_a_block_edge_outlive_a_goodbye_before_a_restart() {
    let nodes = || vec![node("source", Never), node("sink", OnFailure)];
    let mut world = World::running(nodes(), &[block(0, 1)]);
    let edge = world.input(1).unwrap();
    world.message(1, node_to_keeper::Message::Goodbye { cut_short: false });
    assert_eq!(world.output(0), Some((edge, false)));
    restart(&mut world, 1);
    assert_eq!(
        (world.output(0), world.input(1)),
        (Some((edge, false)), Some(edge))
    );

    let mut world = World::running(nodes(), &[block(0, 1)]);
    world.message(1, node_to_keeper::Message::Goodbye { cut_short: false });
    world.exit(1, EXIT_0);
    assert_eq!(
        world.output(0),
        None,
        "the source does not wait: no process follows"
    );
}

#[test]
fn a_closed_output_closes_the_inputs_of_its_consumers_while_the_node_goes_on() {
    let mut world = World::running(
        vec![
            node("source", Never),
            node("a", Never),
            node("b", OnFailure),
        ],
        &[drop_oldest(0, 1), block(0, 2)],
    );
    let close = |output| node_to_keeper::Message::CloseOutput { output };
    world.message(0, close(1));
    assert!(world.processes[1].over.is_empty());
    assert!(world.processes[2].over.contains(&0));
    world.message(0, close(1));
    let kept = world.processes[0].outputs.len();
    assert_eq!(
        kept, 2,
        "the source is notified if a consumer with samples dies"
    );
    // The next process of the consumer gets the queued samples, and then the end.
    restart(&mut world, 2);
    assert!(world.processes[2].over.contains(&0));
    world.exit(0, EXIT_0);
    assert!(world.processes[1].over.contains(&0) && world.input(2).is_none());
}

#[test]
fn a_node_that_closes_an_output_which_it_does_not_have_is_killed() {
    let nodes = vec![node("source", Never), node("sink", Never)];
    let mut world = World::running(nodes, &[drop_oldest(0, 1)]);
    world.message(0, node_to_keeper::Message::CloseOutput { output: 7 });
    assert_eq!(world.signals, [(0, Signal::Kill)]);
}

#[test]
fn the_next_process_of_a_node_with_a_closed_output_feeds_new_consumers_only() {
    let mut world = World::running(
        vec![node("source", OnFailure), node("sink", OnFailure)],
        &[drop_oldest(0, 1)],
    );
    world.message(0, node_to_keeper::Message::CloseOutput { output: 0 });
    restart(&mut world, 0);
    assert!(world.output(0).is_none() && world.input(1).is_none());
    restart(&mut world, 1);
    assert_eq!(world.output(0), world.input(1).map(|edge| (edge, false)));
}
