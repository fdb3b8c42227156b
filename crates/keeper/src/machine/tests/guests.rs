//! Clients, and guests among them.

use nervure_protocol::{
    VERSIONS, VersionRange,
    cli_to_keeper::{Hello, Message, Observe, Watch},
    keeper_to_cli::{DataflowState, Message as Answer},
    node_to_keeper,
    report::Report,
    wiring::Policy,
};

use super::{World, block, drop_oldest, node};
use crate::{
    machine::{End, Event, MAX_GUESTS},
    plan::{
        OBSERVERS_PER_OUTPUT, Ready,
        RestartPolicy::{Always, Never, OnFailure},
    },
};

fn hello(program: &str) -> Message {
    Message::Hello(Hello {
        versions: VERSIONS,
        program: program.to_owned(),
    })
}

fn observe(topics: &[&str]) -> Message {
    Message::Observe(Observe {
        topics: topics.iter().map(ToString::to_string).collect(),
        depth: 3,
    })
}

fn reason(answer: Answer) -> String {
    match answer {
        Answer::Refused(refused) => refused.reason,
        other => panic!("not refused: {other:?}"),
    }
}

fn camera() -> World {
    World::running(
        vec![node("camera", OnFailure), node("sink", Never)],
        &[block(0, 1)],
    )
}

#[test]
fn a_guest_is_wired_as_a_node_and_leaves_nothing_behind() {
    let mut world = camera();
    let guest = world.guest(7, &["camera/out0"]);
    let (edge, attach) = world.processes[guest].inputs.first_key_value().unwrap();
    let (output, suspended) = &world.processes[0].outputs[edge];
    assert_eq!(
        (&*attach.producer, &*output.consumer),
        ("camera/out0", "test@1007/camera/out0")
    );
    assert_eq!(
        (
            output.queue.policy,
            output.queue.depth,
            output.queue.max_held
        ),
        (Policy::DropOldest, 3, 5)
    );
    assert!(!suspended && output.clear_counters && output.gives_way && output.counters_row == 1);
    assert!(world.processes[guest].has_started);
    world.give(Event::ClientGone { client: 7 });
    assert_eq!(world.processes[0].outputs.len(), 1, "the sink's");
    assert_eq!(world.machine.plan().edges.len(), 1);
    assert!(!world.processes[guest].runs && !world.is_finished);
    let reports: Vec<_> = world
        .guest_reports
        .iter()
        .map(std::mem::discriminant)
        .collect();
    assert_eq!(
        reports.len(),
        3,
        "started, wired, ended: {:?}",
        world.guest_reports
    );
}

#[test]
fn places_rows_and_names_are_used_again() {
    let mut world = camera();
    let (first, second) = (
        world.guest(1, &["camera/out0"]),
        world.guest(2, &["camera/out0"]),
    );
    world.give(Event::ClientGone { client: 1 });
    assert_eq!(world.guest(3, &["camera/out0"]), first);
    let rows: Vec<_> = world.processes[0]
        .outputs
        .values()
        .map(|(attach, _)| (attach.counters_row, &*attach.consumer))
        .collect();
    assert_eq!(
        rows,
        [
            (0, "sink/in0"),
            (2, "test@1002/camera/out0"),
            (1, "test@1003/camera/out0")
        ]
    );
    let incarnation = |node: usize| {
        world
            .guest_reports
            .iter()
            .rev()
            .find_map(|report| match report {
                Report::NodeStarted(started) if started.node as usize == node => {
                    Some(started.incarnation)
                }
                _ => None,
            })
    };
    assert_eq!(
        (incarnation(first), incarnation(second)),
        (Some(1), Some(0))
    );
}

#[test]
fn a_producer_is_still_observed_after_its_restart() {
    let mut world = camera();
    let guest = world.guest(1, &["camera/out0"]);
    let before = *world.processes[guest].inputs.keys().next().unwrap();
    world.exit(0, End::Code(1));
    assert!(world.processes[guest].inputs.is_empty() && world.processes[guest].over.is_empty());
    world.advance(std::time::Duration::from_secs(1));
    world.hello(0);
    let (after, attach) = world.processes[guest].inputs.first_key_value().unwrap();
    assert!(*after > before && attach.incarnation == 1);
    let row = &world.processes[0].outputs[after].0;
    assert!(
        !row.clear_counters,
        "what the guest has missed before stays counted"
    );
    let kinds: Vec<_> = world.processes[guest]
        .events
        .iter()
        .map(|(kind, ..)| kind.as_str())
        .collect();
    assert_eq!(kinds, ["NODE_FAILED", "NODE_RESTARTED"]);
}

#[test]
fn a_guest_is_notified_of_an_end_and_neither_start_nor_end_waits_for_it() {
    let mut manual = node("manual", Never);
    manual.settings.ready = Ready::Manual;
    let mut world = World::new(vec![node("camera", Never), manual], &[drop_oldest(0, 1)]);
    world.give(Event::Launch);
    world.hello(0);
    let guest = world.guest(1, &["camera/out0"]);
    assert!(!world.processes[guest].has_started);
    world.hello(1);
    world.message(1, node_to_keeper::Message::Ready);
    assert!(world.is_ready && world.processes[guest].has_started);
    world.exit(0, End::Code(0));
    assert!(world.processes[guest].over.contains(&0));
    let late = world.guest(2, &["camera/out0"]);
    assert!(
        world.processes[late].over.contains(&0),
        "it is notified at once"
    );
    world.exit(1, End::Code(0));
    assert!(world.is_finished && world.processes[guest].stop.is_none());
}

#[test]
fn a_guest_that_says_goodbye_or_breaks_the_protocol_is_disconnected() {
    let mut world = camera();
    let guest = world.guest(1, &["camera/out0"]);
    world.message(guest, node_to_keeper::Message::Goodbye { cut_short: false });
    assert!(!world.replies.contains_key(&1) && !world.processes[guest].runs);
    let guest = world.guest(2, &["camera/out0"]);
    world.give(Event::Misbehaved {
        node: guest,
        what: "noise".to_owned(),
    });
    assert!(!world.replies.contains_key(&2) && world.signals.is_empty());
    assert!(
        world
            .log
            .iter()
            .any(|line| line.contains("`test@1002`: cut off, because it broke")),
        "{:?}",
        world.log
    );
}

#[test]
fn what_cannot_be_observed_is_refused_with_a_reason() {
    let mut world = camera();
    assert_eq!(
        reason(world.ask(1, observe(&["camera/out0"]))),
        "the first message was not Hello"
    );
    world.ask(1, hello("x"));
    assert_eq!(
        reason(world.ask(1, observe(&["camera/image"]))),
        "there is no topic `camera/image`"
    );
    assert_eq!(reason(world.ask(1, observe(&[]))), "no topic was named");
    assert!(reason(world.ask(1, observe(&["camera/out0", "camera/out0"]))).contains("twice"));
    let old = Hello {
        versions: VersionRange { min: 9, max: 9 },
        program: "x".to_owned(),
    };
    assert!(reason(world.ask(2, Message::Hello(old))).contains("version"));
    for client in 0..OBSERVERS_PER_OUTPUT as usize {
        world.guest(10 + client, &["camera/out0"]);
    }
    assert!(reason(world.ask(1, observe(&["camera/out0"]))).contains("16 observers already"));
    world.give(Event::ClientGone { client: 10 });
    assert!(matches!(
        world.ask(1, observe(&["camera/out0"])),
        Answer::Observing { .. }
    ));
}

#[test]
fn the_number_of_observers_is_limited() {
    let edges = [drop_oldest(0, 1), drop_oldest(0, 1), drop_oldest(0, 1)];
    let mut world = World::running(vec![node("camera", Always), node("sink", Never)], &edges);
    world.machine.limit_guest_edges(2);
    world.guest(1, &["camera/out0", "camera/out1"]);
    world.ask(2, hello("x"));
    assert!(
        reason(world.ask(2, observe(&["camera/out2"]))).contains("file descriptors for 2 observed")
    );
    world.machine.limit_guest_edges(1000);
    for client in 10..10 + MAX_GUESTS - 1 {
        world.guest(
            client,
            &[["camera/out0", "camera/out1", "camera/out2"][client % 3]],
        );
    }
    assert!(reason(world.ask(2, observe(&["camera/out2"]))).contains("32 observers already"));
}

#[test]
fn a_late_client_gets_a_snapshot_of_the_whole_state() {
    let mut world = World::running(
        vec![
            node("camera", OnFailure),
            node("sink", Never),
            node("tool", Never),
        ],
        &[drop_oldest(0, 1)],
    );
    world.exit(2, End::Code(1));
    world.guest(1, &["camera/out0"]);
    let Answer::Welcome(welcome) = world.ask(2, hello("top")) else {
        panic!()
    };
    assert_eq!(
        (welcome.state, welcome.nodes, welcome.running),
        (DataflowState::Running, 3, 2)
    );
    assert_eq!(welcome.observers, 1);
    world.ask(
        2,
        Message::Watch(Watch {
            logs: true,
            follow: true,
            without_observers: false,
        }),
    );
    let received = &world.replies[&2][1..];
    let count =
        |test: &dyn Fn(&Answer) -> bool| received.iter().filter(|answer| test(answer)).count();
    let reports = |test: fn(&Report) -> bool| {
        count(&|answer| matches!(answer, Answer::Report { report } if test(report)))
    };
    assert_eq!(
        count(&|answer| matches!(answer, Answer::NodeDeclared(_))),
        4
    );
    assert_eq!(
        reports(|report| matches!(report, Report::NodeStarted(_))),
        4
    );
    assert_eq!(
        reports(|report| matches!(report, Report::EdgeWired(wired) if !wired.observer)),
        1
    );
    assert_eq!(
        reports(|report| matches!(report, Report::EdgeWired(wired) if wired.observer)),
        1
    );
    assert_eq!(
        reports(|report| matches!(report, Report::NodeEnded(ended) if ended.id == "tool")),
        1
    );
    assert_eq!(received.last(), Some(&Answer::SnapshotComplete));
    assert!(world.followers.contains(&2));
}
