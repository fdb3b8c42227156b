//! Stand-ins of other machines, which come back with their daemon.

use std::time::Duration;

use nervure_protocol::{
    node_to_keeper::Message,
    wiring::{ClientSpec, Return},
};

use super::{World, block, drop_oldest, node, world::TOKEN, world::remote};
use crate::{
    machine::{End, Event},
    plan::{NodePlan, RestartPolicy::Never},
};

/// A camera, and the stand-in of its consumers on another machine.
fn camera_and_stand_in(camera: NodePlan) -> World {
    let mut world = World::new(vec![camera, remote("edge:camera")], &[block(0, 1)]);
    world.give(Event::Launch);
    world.hello(0);
    assert!(!world.is_ready, "the start waits for the daemon");
    world.join(1, "edge:camera", TOKEN).unwrap();
    assert!(world.is_ready);
    world
}

#[test]
fn a_producer_waits_for_the_next_daemon_which_inherits_the_queue() {
    let mut world = camera_and_stand_in(node("camera", Never));
    let (edge, _) = world.output(0).unwrap();
    assert_eq!(world.input(1), Some(edge));
    world.give(Event::ClientGone { client: 1 });
    assert_eq!(world.output(0), Some((edge, true)), "it is suspended");
    world.advance(Duration::from_secs(1000));
    world.join(2, "edge:camera", TOKEN).unwrap();
    assert_eq!(world.output(0), Some((edge, false)));
    assert_eq!(world.input(1), Some(edge));
}

#[test]
fn a_producer_that_begins_again_meanwhile_has_a_queue_behind_that_of_its_last_process() {
    let mut world = camera_and_stand_in(node("camera", crate::plan::RestartPolicy::OnFailure));
    let (before, _) = world.output(0).unwrap();
    world.give(Event::ClientGone { client: 1 });
    world.exit(0, End::Code(1));
    world.advance(Duration::from_secs(1));
    world.hello(0);
    let (after, is_suspended) = world.output(0).unwrap();
    assert!(is_suspended && after != before);
    world.join(2, "edge:camera", TOKEN).unwrap();
    let seen: Vec<_> = world.processes[1].edges_seen.iter().collect();
    assert_eq!(seen, [&before, &after]);
    assert_eq!(world.output(0), Some((after, false)));
}

#[test]
fn the_dataflow_ends_when_the_other_machine_has_what_was_sent() {
    let mut world = camera_and_stand_in(node("camera", Never));
    world.give(Event::ClientGone { client: 1 });
    world.exit(0, End::Code(0));
    world.advance(Duration::from_secs(1000));
    assert!(!world.is_finished, "the daemon is away");
    world.join(2, "edge:camera", TOKEN).unwrap();
    world.advance(Duration::from_secs(1000));
    assert!(!world.is_finished && world.processes[1].runs, "it sends");
    world.message(1, Message::Goodbye { cut_short: false });
    assert!(world.is_finished);
}

#[test]
fn a_stop_waits_for_no_daemon() {
    let mut world = camera_and_stand_in(node("camera", Never));
    world.give(Event::ClientGone { client: 1 });
    world.stop();
    assert!(world.output(0).is_none() && world.processes[0].stop.is_some());
    world.exit(0, End::Code(0));
    assert!(world.is_finished);
}

/// They fail, and are not made when the daemon is back.
#[test]
fn calls_do_not_wait_for_the_daemon() {
    let mut client = node("camera", Never);
    client.clients.push(ClientSpec {
        name: "zoom".to_owned(),
        service: "lens/zoom".to_owned(),
        output: 0,
        input: 0,
        feedback: None,
    });
    let mut world = camera_and_stand_in(client);
    world.give(Event::ClientGone { client: 1 });
    assert!(world.output(0).is_none());
}

#[test]
fn other_queues_do_not_wait_for_the_daemon() {
    let nodes = vec![node("camera", Never), remote("edge:camera")];
    let mut world = World::new(nodes, &[drop_oldest(0, 1)]);
    world.give(Event::Launch);
    world.hello(0);
    world.join(1, "edge:camera", TOKEN).unwrap();
    world.give(Event::ClientGone { client: 1 });
    assert!(world.output(0).is_none());
    assert_eq!(
        world.processes[0].awaited[&0],
        Return::Certain,
        "they count"
    );
    world.join(2, "edge:camera", TOKEN).unwrap();
    assert!(!world.processes[0].awaited.contains_key(&0));
    world.give(Event::ClientGone { client: 2 });
    world.exit(0, End::Code(0));
    assert!(world.is_finished);
}
