//! Pause and resume.

use std::time::Duration;

use nervure_protocol::cli_to_keeper::Message;

use super::{World, drop_oldest, node};
use crate::{
    machine::{End, Event, Pulse, Signal},
    plan::RestartPolicy::{Never, OnFailure},
};

fn kinds(world: &World, node: usize) -> Vec<&str> {
    let events = world.processes[node].events.iter();
    events.map(|(kind, ..)| kind.as_str()).collect()
}

#[test]
fn nodes_are_notified_of_a_pause_once_and_one_that_starts_meanwhile_too() {
    let nodes = vec![node("source", OnFailure), node("sink", Never)];
    let mut world = World::running(nodes, &[drop_oldest(0, 1)]);
    let guest = world.guest(1, &["source/out0"]);
    world.rung.clear();
    for _ in 0..2 {
        world.order_by_run(Message::Pause);
    }
    assert_eq!(kinds(&world, 0), ["PAUSE"]);
    assert_eq!(kinds(&world, 1), ["PAUSE"]);
    assert_eq!(kinds(&world, guest), [""; 0], "it only looks");
    assert_eq!((&*world.pauses, &*world.rung), (&[true][..], &[0, 1][..]));
    // It is started again as usual, and does not begin to work.
    world.exit(0, End::Code(1));
    world.advance(Duration::from_secs(1));
    world.hello(0);
    assert_eq!(kinds(&world, 0), ["PAUSE"]);
    for _ in 0..2 {
        world.order_by_run(Message::Resume);
    }
    assert_eq!(kinds(&world, 0), ["PAUSE", "RESUME"]);
    assert_eq!(world.pauses, [true, false]);
    // A paused dataflow is stopped as usual.
    world.order_by_run(Message::Pause);
    world.stop();
    let own = &world.processes[..2];
    assert!(own.iter().all(|process| process.stop.is_some()));
}

#[test]
fn no_watchdog_ends_a_node_of_a_paused_dataflow() {
    let mut late = node("late", Never);
    late.settings.startup_timeout = Some(Duration::from_secs(1));
    let mut still = node("still", Never);
    still.settings.health_check_timeout = Some(Duration::from_secs(1));
    let mut world = World::new(vec![late, still], &[drop_oldest(0, 1)]);
    world.give(Event::Launch);
    world.hello(1);
    world.processes[1].pulse = Pulse {
        beats: 1,
        is_waiting: false,
    };
    world.advance(Duration::from_millis(900));
    world.order_by_run(Message::Pause);
    world.advance(Duration::from_secs(1000));
    assert_eq!(world.signals, []);
    world.order_by_run(Message::Resume);
    // The rest of its startup timeout goes on; a sign of life is awaited for the whole timeout.
    world.advance(Duration::from_millis(99));
    assert_eq!(world.signals, []);
    world.advance(Duration::from_millis(1));
    assert_eq!(world.signals, [(0, Signal::Stacks)]);
    world.advance(Duration::from_millis(1500));
    assert!(
        world.signals.contains(&(1, Signal::Stacks)),
        "{:?}",
        world.signals
    );
}
