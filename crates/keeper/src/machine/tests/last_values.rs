//! Last values, which consumers get when a node fails.

use std::time::Duration;

use nervure_protocol::node_to_keeper;
use serde_json::json;

use super::{World, block, drop_oldest, node};
use crate::{
    machine::{End, Event},
    plan::{
        LastValueSpec,
        RestartPolicy::{self, Never, OnFailure},
    },
};

const KILLED: End = End::Signal(9);

/// A planner with two outputs, of which the first has a last value, and their sinks.
fn planner_and_sinks(policy: RestartPolicy) -> World {
    let mut planner = node("planner", policy);
    planner.settings.on_failure = vec![LastValueSpec {
        output: 0,
        value: json!({"speed": 0.0}),
    }];
    let nodes = vec![planner, node("motor", Never), node("log", Never)];
    World::new(nodes, &[drop_oldest(0, 1), drop_oldest(0, 2)])
}

fn running(policy: RestartPolicy) -> World {
    let mut world = planner_and_sinks(policy);
    world.give(Event::Launch);
    (0..3).for_each(|node| world.hello(node));
    world
}

fn at(incarnation: u32) -> (u32, u32, serde_json::Value) {
    (0, incarnation, json!({"speed": 0.0}))
}

#[test]
fn each_failure_sends_it_once_to_the_consumers_of_that_output() {
    let mut world = running(OnFailure);
    for incarnation in 0..3 {
        world.exit(0, KILLED);
        assert_eq!(
            world.processes[1].last_values,
            (0..=incarnation).map(at).collect::<Vec<_>>()
        );
        world.advance(Duration::from_secs(1));
        world.hello(0);
    }
    assert!(world.processes[2].last_values.is_empty());
    world.exit(0, KILLED);
    assert_eq!(
        world.processes[1].last_values.len(),
        4,
        "also when no restart follows"
    );
    assert!(world.processes[1].over.contains(&0));
}

#[test]
fn an_end_in_order_sends_nothing() {
    let mut world = running(Never);
    world.exit(0, End::Code(0));
    assert!(world.processes[1].last_values.is_empty() && world.processes[1].over.contains(&0));
    let mut world = running(Never);
    world.end_run();
    world.exit(0, KILLED);
    assert!(
        world.processes[1].last_values.is_empty(),
        "the dataflow stops"
    );
}

#[test]
fn a_goodbye_before_a_failure_does_not_lose_it() {
    // A Python program that ends by an exception drops its node before it exits.
    let mut world = running(Never);
    world.message(0, node_to_keeper::Message::Goodbye { cut_short: false });
    assert!(world.input(1).is_none() && world.processes[1].over.is_empty());
    assert!(world.input(2).is_none());
    world.exit(0, End::Code(1));
    assert_eq!(world.processes[1].last_values, [at(0)]);
    assert!(world.processes[1].over.contains(&0) && world.processes[2].over.contains(&0));
}

#[test]
fn a_consumer_that_connects_while_the_node_is_down_gets_it() {
    let mut world = planner_and_sinks(OnFailure);
    world.give(Event::Launch);
    world.hello(0);
    world.exit(0, KILLED);
    world.hello(1);
    assert_eq!(world.processes[1].last_values, [at(0)]);
    world.advance(Duration::from_secs(1));
    world.hello(0);
    world.hello(2);
    assert_eq!(world.processes[1].last_values.len(), 1);
}

#[test]
fn it_follows_the_samples_that_wait_for_a_consumer_that_restarts() {
    let mut planner = node("planner", Never);
    planner.settings.on_failure = vec![LastValueSpec {
        output: 0,
        value: json!({"speed": 0.0}),
    }];
    let mut world = World::running(vec![planner, node("motor", OnFailure)], &[block(0, 1)]);
    world.exit(1, KILLED);
    world.exit(0, KILLED);
    world.advance(Duration::from_secs(1));
    world.hello(1);
    assert_eq!(world.processes[1].last_values, [at(0)]);
    assert_eq!(
        world.processes[1].edges_seen.len(),
        2,
        "what waited, and the end"
    );
    assert!(world.processes[1].over.contains(&0));
}

#[test]
fn a_program_that_cannot_be_started_failed_too() {
    let mut world = planner_and_sinks(Never);
    world.give(Event::Launch);
    world.hello(1);
    world.processes[0].runs = false;
    world.give(Event::NotStarted {
        node: 0,
        reason: "it does not exist".to_owned(),
    });
    assert_eq!(world.processes[1].last_values, [at(0)]);
}
