//! Nodes that are stopped, started and restarted by hand.

use std::time::Duration;

use nervure_protocol::{
    VERSIONS,
    cli_to_keeper::{Hello, Message, NodeOrder},
    keeper_to_cli::Message as Answer,
    node_to_keeper,
};

use super::{World, block, drop_oldest, node};
use crate::{
    machine::{End, Event, STARTER, Signal},
    plan::{
        NodePlan, Program,
        RestartPolicy::{Always, Never, OnFailure},
    },
};

fn order(world: &mut World, node: &str, order: NodeOrder) -> Result<(), String> {
    let hello = Hello {
        versions: VERSIONS,
        program: "node".to_owned(),
    };
    if !world.replies.contains_key(&1) {
        world.ask(1, Message::Hello(hello));
    }
    match world.ask(
        1,
        Message::Node {
            node: node.to_owned(),
            order,
        },
    ) {
        Answer::Done => Ok(()),
        Answer::Refused(refused) => Err(refused.reason),
        other => panic!("{other:?}"),
    }
}

/// A node of a test in the process `robot`.
fn component(id: &str) -> NodePlan {
    let mut plan = node(id, Always);
    plan.program = Program::Component("libnode.so".into());
    plan.settings.process = Some("robot".to_owned());
    plan
}

#[test]
fn a_component_that_is_unloaded_ends_as_by_itself_and_its_edges_open_with_the_next_load() {
    let mut world = World::running(
        vec![component("camera"), component("filter"), component("sink")],
        &[block(0, 1), block(1, 2)],
    );
    order(&mut world, "filter", NodeOrder::Unload).unwrap();
    assert_eq!(
        world.processes[1].stop.as_deref(),
        Some("unloaded by `node@1001`")
    );
    world.exit(1, End::Code(0));
    let ended = world.ended.last().unwrap();
    assert!(
        !ended.failed && !ended.restarts && ended.reason.contains("unloaded by hand"),
        "{ended:?}"
    );
    assert!(
        !world.processes[2].over.is_empty(),
        "the sink's input closes"
    );
    world.advance(Duration::from_secs(1000));
    assert!(world.processes[0].runs && world.processes[2].runs && !world.processes[1].runs);
    assert_eq!(
        order(&mut world, "filter", NodeOrder::Unload),
        Err("node `filter` does not run".to_owned())
    );
    world.processes[2].may_reopen = true;
    order(&mut world, "filter", NodeOrder::Load).unwrap();
    world.hello(1);
    assert_eq!(world.output(0).map(|(edge, _)| edge), world.input(1));
    assert_eq!(
        order(&mut world, "filter", NodeOrder::Load),
        Err("node `filter` runs already".to_owned())
    );
}

#[test]
fn a_program_is_neither_loaded_nor_unloaded() {
    let mut world = two();
    for load in [NodeOrder::Load, NodeOrder::Unload] {
        assert_eq!(
            order(&mut world, "camera", load),
            Err("node `camera` is a program of its own".to_owned())
        );
    }
}

fn two() -> World {
    World::running(
        vec![node("camera", Never), node("sink", OnFailure)],
        &[drop_oldest(0, 1)],
    )
}

#[test]
fn a_node_that_is_stopped_is_held_until_it_is_started() {
    let mut world = two();
    order(&mut world, "camera", NodeOrder::Stop).unwrap();
    assert_eq!(
        world.processes[0].stop.as_deref(),
        Some("stopped by `node@1001`")
    );
    world.exit(0, End::Code(0));
    let ended = world.ended.last().unwrap();
    assert!(
        !ended.failed && !ended.restarts && ended.reason.contains("stopped by hand"),
        "{ended:?}"
    );
    assert!(
        world.processes[1].over.is_empty() && world.input(1).is_none(),
        "the sink's input stays open"
    );
    world.advance(Duration::from_secs(1000));
    assert!(!world.processes[0].runs && !world.is_finished);
    assert_eq!(
        order(&mut world, "camera", NodeOrder::Stop),
        Err("node `camera` does not run".to_owned())
    );
    order(&mut world, "camera", NodeOrder::Start).unwrap();
    world.hello(0);
    assert_eq!(world.output(0).map(|(edge, _)| edge), world.input(1));
    assert!(world.processes[0].has_started);
    assert_eq!(
        order(&mut world, "camera", NodeOrder::Start),
        Err("node `camera` runs already".to_owned())
    );
}

#[test]
fn the_next_process_of_a_node_that_had_ended_closes_its_own_edge_alone() {
    let mut world = World::running(
        vec![node("camera", Never), node("sink", Never)],
        &[block(0, 1)],
    );
    // Its samples wait in the sink's queue.
    world.exit(0, End::Code(0));
    assert!(world.processes[1].over.contains(&0));
    world.processes[1].may_reopen = true;
    order(&mut world, "camera", NodeOrder::Start).unwrap();
    world.hello(0);
    let opened = world.input(1);
    assert_eq!(world.output(0).map(|(edge, _)| edge), opened);
    assert!(opened.is_some() && world.processes[1].over.is_empty());
    world.message(0, node_to_keeper::Message::CloseOutput { output: 0 });
    assert!(world.processes[1].over.contains(&0) && world.input(1).is_none());
}

#[test]
fn a_restart_is_at_once_and_no_failure_whatever_the_code() {
    let mut world = World::running(
        vec![node("camera", Never), node("sink", Never)],
        &[block(0, 1)],
    );
    order(&mut world, "sink", NodeOrder::Restart).unwrap();
    world.exit(1, End::Signal(15));
    assert!(world.processes[1].runs, "started again at once");
    assert!(!world.ended[0].failed && world.ended[0].restarts);
    assert!(
        world.output(0).unwrap().1,
        "what waits in a lossless edge is for the next process"
    );
    world.hello(1);
    assert_eq!(world.output(0), world.input(1).map(|edge| (edge, false)));
}

#[test]
fn a_node_that_exits_with_an_error_when_it_is_stopped_by_hand_has_failed() {
    let mut world = two();
    order(&mut world, "sink", NodeOrder::Stop).unwrap();
    world.exit(1, End::Code(1));
    let ended = world.ended.last().unwrap();
    assert!(ended.failed && !ended.restarts, "{ended:?}");
    assert_eq!(world.processes[0].events, []);

    order(&mut world, "sink", NodeOrder::Start).unwrap();
    world.hello(1);
    order(&mut world, "sink", NodeOrder::Restart).unwrap();
    world.exit(1, End::Code(1));
    let ended = world.ended.last().unwrap();
    assert!(!ended.failed && ended.restarts, "another process follows");
}

#[test]
fn a_node_that_says_goodbye_when_it_is_restarted_by_hand_loses_nothing() {
    let nodes = vec![
        node("camera", Never),
        node("relay", Never),
        node("sink", Never),
    ];
    let mut world = World::running(nodes, &[block(0, 1), block(1, 2)]);
    order(&mut world, "relay", NodeOrder::Restart).unwrap();
    world.message(1, node_to_keeper::Message::Goodbye { cut_short: false });
    assert_eq!(
        world.output(0).map(|(_, suspended)| suspended),
        Some(false),
        "until it has ended"
    );
    assert!(
        world.processes[2].over.is_empty(),
        "its next process will send"
    );
    world.exit(1, End::Code(0));
    assert!(
        world.output(0).unwrap().1,
        "what waits is for its next process"
    );
    world.hello(1);
    assert_eq!(world.output(0).map(|(edge, _)| edge), world.input(1));
    assert_eq!(world.output(1).map(|(edge, _)| edge), world.input(2));
}

#[test]
fn a_node_that_does_not_end_is_terminated_and_killed() {
    let mut world = two();
    order(&mut world, "camera", NodeOrder::Stop).unwrap();
    world.advance(Duration::from_secs(5));
    assert_eq!(world.signals, [(0, Signal::Terminate)]);
    world.advance(Duration::from_secs(2));
    assert_eq!(world.signals, [(0, Signal::Terminate), (0, Signal::Kill)]);
    world.exit(0, End::Signal(9));
    assert!(!world.ended[0].failed);
    world.advance(Duration::from_secs(10));
    assert_eq!(world.signals.len(), 2);
}

#[test]
fn a_node_that_waits_for_its_restart_can_be_held_or_started_now() {
    let mut world = two();
    world.exit(1, End::Code(1));
    order(&mut world, "sink", NodeOrder::Stop).unwrap();
    world.advance(Duration::from_secs(100));
    assert!(!world.processes[1].runs);
    order(&mut world, "sink", NodeOrder::Start).unwrap();
    assert!(world.processes[1].runs);
    world.hello(1);
    world.exit(1, End::Code(1));
    order(&mut world, "sink", NodeOrder::Restart).unwrap();
    assert!(world.processes[1].runs, "without the pause");
}

#[test]
fn a_node_that_had_ended_for_good_is_wired_again() {
    let mut world = two();
    world.exit(0, End::Code(1));
    assert!(world.processes[1].over.contains(&0));
    order(&mut world, "camera", NodeOrder::Start).unwrap();
    world.processes[1].may_reopen = true;
    world.hello(0);
    assert_eq!(world.output(0).map(|(edge, _)| edge), world.input(1));
    world.exit(0, End::Code(0));
    assert!(
        world.processes[1].over.contains(&0),
        "it is notified of this end, too"
    );
}

#[test]
fn a_dataflow_that_stops_refuses_orders_and_does_not_wait_for_held_nodes() {
    let mut world = two();
    order(&mut world, "camera", NodeOrder::Stop).unwrap();
    world.exit(0, End::Code(0));
    assert_eq!(
        order(&mut world, "sun", NodeOrder::Stop),
        Err("there is no node `sun`".to_owned())
    );
    assert_eq!(
        world.ask(
            1,
            Message::Stop {
                reason: "by hand".to_owned()
            }
        ),
        Answer::Done
    );
    assert_eq!(
        order(&mut world, "camera", NodeOrder::Start),
        Err("the dataflow is stopping".to_owned())
    );
    world.exit(1, End::Code(0));
    assert!(world.is_finished);
}

#[test]
fn no_process_starts_before_the_launch_and_run_follows_from_then_on() {
    let mut world = World::new(
        vec![node("camera", Never), node("sink", Never)],
        &[drop_oldest(0, 1)],
    );
    world.follow_as_run();
    assert!(world.followers.contains(&STARTER));
    assert!(world.processes.iter().all(|process| !process.runs));
    assert_eq!(world.machine.deadline(), None);
    world.give(Event::Launch);
    assert!(world.processes.iter().all(|process| process.runs));
}

#[test]
fn an_order_of_run_is_not_logged_as_that_of_another_client() {
    let by_client = |world: &World| {
        let is_by_client = |line: &&String| line.contains("the dataflow is stopped by");
        world.log.iter().filter(is_by_client).count()
    };
    let mut world = two();
    world.stop();
    assert_eq!(by_client(&world), 0);
    let mut world = two();
    order(&mut world, "camera", NodeOrder::Stop).unwrap();
    let reason = "by hand".to_owned();
    world.ask(1, Message::Stop { reason });
    assert_eq!(by_client(&world), 1);
}

#[test]
fn run_that_is_gone_ends_the_dataflow_unless_it_is_detached() {
    let mut world = two();
    world.end_run();
    assert!(world.processes[1].stop.is_some());
    let mut world = World::detached(
        vec![node("camera", Never), node("sink", Never)],
        &[drop_oldest(0, 1)],
    );
    world.end_run();
    assert!(world.processes[1].stop.is_none());
    order(&mut world, "camera", NodeOrder::Stop).unwrap();
}

#[test]
fn a_held_node_starts_by_an_order_and_no_sample_for_it_is_lost() {
    let mut sink = node("sink", OnFailure);
    sink.settings.held = true;
    let mut world = World::running(vec![node("camera", Never), sink], &[block(0, 1)]);
    assert!(!world.processes[1].runs);
    assert!(world.output(0).unwrap().1, "the producer waits for it");
    order(&mut world, "sink", NodeOrder::Stop).unwrap_err();
    order(&mut world, "sink", NodeOrder::Start).unwrap();
    assert!(world.processes[1].runs);
    world.hello(1);
    assert_eq!(world.output(0), world.input(1).map(|edge| (edge, false)));
    world.exit(1, End::Code(1));
    world.advance(Duration::from_secs(1));
    assert!(world.processes[1].runs, "by its policy");
}
