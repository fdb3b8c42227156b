//! Start, restart, stop and end.

use std::time::Duration;

use nervure_protocol::{VersionRange, cli_to_keeper, node_to_keeper};

use super::{World, block, drop_oldest, node};
use crate::{
    machine::{End, Event, Pulse, Signal},
    plan::{
        ClockPlan, Ready,
        RestartPolicy::{Always, Never, OnFailure},
    },
};

const EXIT_0: End = End::Code(0);
const EXIT_1: End = End::Code(1);

#[test]
fn all_nodes_start_when_the_last_is_ready() {
    let mut slow = node("slow", Never);
    slow.settings.ready = Ready::Manual;
    let mut world = World::new(
        vec![node("source", Never), slow, node("tool", Never)],
        &[drop_oldest(0, 1)],
    );
    world.give(Event::Launch);
    world.hello(0);
    world.hello(1);
    assert!(!world.processes[0].has_started && !world.is_ready);
    world.message(1, node_to_keeper::Message::Ready);
    assert!(world.processes[0].has_started && world.processes[1].has_started && world.is_ready);
    // A program without inputs and outputs never has to connect, and may.
    world.hello(2);
    assert!(world.processes[2].has_started);
}

#[test]
fn nodes_that_delay_the_start_are_named_every_five_seconds() {
    let mut manual = node("manual", Never);
    manual.settings.ready = Ready::Manual;
    let mut world = World::new(vec![node("source", Never), manual], &[drop_oldest(0, 1)]);
    world.give(Event::Launch);
    world.hello(1);
    world.advance(Duration::from_secs(11));
    let warnings: Vec<_> = world
        .log
        .iter()
        .filter(|line| line.starts_with("Warn"))
        .collect();
    assert_eq!(warnings.len(), 2);
    assert!(
        warnings[0].contains("`source` has not connected"),
        "{}",
        warnings[0]
    );
    assert!(
        warnings[0].contains("`manual` has not called `ready()`"),
        "{}",
        warnings[0]
    );
}

#[test]
fn a_node_that_dies_before_it_connects_does_not_hold_the_others_up() {
    let mut world = World::new(
        vec![node("source", Never), node("sink", Never)],
        &[drop_oldest(0, 1)],
    );
    world.give(Event::Launch);
    world.hello(1);
    assert!(!world.is_ready);
    world.exit(0, EXIT_1);
    assert!(world.is_ready);
    assert!(
        world.processes[1].over.contains(&0),
        "the sink knows that no sample will follow"
    );
    world.exit(1, EXIT_0);
    assert!(world.is_finished);
    assert!(world.ended[0].failed && !world.ended[1].failed);
}

#[test]
fn a_node_that_ends_without_having_connected_is_reported() {
    // The tool has no inputs and outputs: it need not connect.
    let mut world = World::new(
        vec![
            node("source", Never),
            node("sink", Never),
            node("tool", Never),
        ],
        &[drop_oldest(0, 1)],
    );
    world.give(Event::Launch);
    world.hello(1);
    world.exit(0, EXIT_0);
    world.exit(1, EXIT_0);
    world.exit(2, EXIT_0);
    let warnings: Vec<_> = world
        .log
        .iter()
        .filter(|line| line.starts_with("Warn"))
        .collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("it ended without having connected"),
        "{}",
        warnings[0]
    );
    assert!(!world.ended[0].failed);
}

#[test]
fn a_program_that_cannot_be_started_fails_alone() {
    let mut world = World::new(
        vec![node("source", OnFailure), node("sink", Never)],
        &[drop_oldest(0, 1)],
    );
    world.give(Event::Launch);
    world.processes[0].runs = false;
    world.give(Event::NotStarted {
        node: 0,
        reason: "`nothing` does not exist".to_owned(),
    });
    world.hello(1);
    assert!(world.is_ready && world.processes[1].over.contains(&0));
    assert_eq!(
        world.ended[0].reason,
        "could not be started: `nothing` does not exist"
    );
    assert!(world.ended[0].failed && !world.ended[0].restarts);
}

#[test]
fn a_failing_node_is_started_again_until_its_restarts_are_spent() {
    let mut world = World::running(
        vec![node("source", OnFailure), node("sink", Never)],
        &[drop_oldest(0, 1)],
    );
    for (incarnation, pause) in [(1, 100), (2, 200), (3, 400)] {
        world.exit(0, EXIT_1);
        world.advance(Duration::from_millis(pause - 1));
        assert!(!world.processes[0].runs);
        world.advance(Duration::from_millis(1));
        assert!(world.processes[0].runs);
        world.hello(0);
        assert!(world.processes[0].has_started, "the dataflow runs already");
        assert_eq!(world.ended.last().unwrap().incarnation, incarnation - 1);
    }
    world.exit(0, End::Signal(11));
    world.advance(Duration::from_secs(100));
    assert!(!world.processes[0].runs);
    let last = world.ended.last().unwrap();
    assert!(
        last.failed && !last.restarts && last.reason.contains("SIGSEGV"),
        "{}",
        last.reason
    );
    assert!(
        last.reason.contains("3 restarts are spent"),
        "{}",
        last.reason
    );
    let kinds: Vec<_> = world.processes[1]
        .events
        .iter()
        .map(|(kind, ..)| kind.as_str())
        .collect();
    let (failed, restarted) = ("NODE_FAILED", "NODE_RESTARTED");
    assert_eq!(
        kinds,
        [
            failed, restarted, failed, restarted, failed, restarted, failed
        ]
    );
    assert_eq!(world.processes[1].events[0].2, ["in0"]);
    assert!(world.processes[1].over.contains(&0));
}

#[test]
fn a_neighbour_upstream_is_notified_of_a_failure_too() {
    let mut world = World::running(
        vec![node("source", Never), node("sink", Never)],
        &[drop_oldest(0, 1)],
    );
    world.exit(1, EXIT_1);
    assert_eq!(
        world.processes[0].events,
        [("NODE_FAILED".to_owned(), "sink".to_owned(), Vec::new())]
    );
    assert_eq!(
        world.rung,
        [0],
        "it may wait for room, or not have been woken"
    );
}

#[test]
fn always_means_until_all_inputs_have_ended() {
    let mut world = World::running(
        vec![node("source", Never), node("sink", Always)],
        &[drop_oldest(0, 1)],
    );
    world.exit(1, EXIT_0);
    world.advance(Duration::from_secs(1));
    world.hello(1);
    assert!(world.processes[1].has_started);
    world.exit(0, EXIT_0);
    world.exit(1, EXIT_0);
    assert!(world.is_finished);
    assert!(world.ended.iter().all(|ended| !ended.failed));
}

fn watched(startup: Option<u64>, health: Option<u64>) -> World {
    let mut plan = node("planner", OnFailure);
    plan.settings.startup_timeout = startup.map(Duration::from_millis);
    plan.settings.health_check_timeout = health.map(Duration::from_millis);
    let mut world = World::new(vec![plan, node("sink", Never)], &[drop_oldest(0, 1)]);
    world.give(Event::Launch);
    world.hello(1);
    world
}

#[test]
fn a_node_that_does_not_connect_in_time_is_killed_and_started_again() {
    let mut world = watched(Some(1000), None);
    world.advance(Duration::from_millis(999));
    assert_eq!(world.signals, []);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.signals, [(0, Signal::Stacks), (0, Signal::Kill)]);
    world.exit(0, End::Signal(9));
    let ended = &world.ended[0];
    assert!(ended.failed && ended.restarts, "{ended:?}");
    assert!(
        ended
            .reason
            .contains("it has not connected within 1s (`startup_timeout`); starts again in")
    );
    world.advance(Duration::from_millis(100));
    world.hello(0);
    world.advance(Duration::from_secs(100));
    assert_eq!(world.signals.len(), 2, "it connected in time");
}

#[test]
fn ready_is_a_part_of_the_start() {
    let mut plan = node("planner", Never);
    plan.settings.startup_timeout = Some(Duration::from_secs(1));
    plan.settings.ready = Ready::Manual;
    let mut world = World::new(vec![plan, node("sink", Never)], &[drop_oldest(0, 1)]);
    world.give(Event::Launch);
    world.hello(0);
    world.advance(Duration::from_secs(2));
    world.exit(0, End::Signal(9));
    assert!(
        world.ended[0]
            .reason
            .contains("it has not called `ready()` within 1s")
    );
}

#[test]
fn a_node_that_hangs_is_examined_and_killed_and_one_that_works_or_waits_is_not() {
    let mut world = watched(None, Some(1000));
    world.hello(0);
    for beats in 0..20 {
        world.processes[0].pulse = Pulse {
            beats,
            is_waiting: false,
        };
        world.advance(Duration::from_millis(900));
    }
    world.processes[0].pulse.is_waiting = true;
    world.advance(Duration::from_secs(100));
    assert_eq!(world.signals, []);
    world.processes[0].pulse.is_waiting = false;
    world.advance(Duration::from_millis(1500));
    assert_eq!(world.signals, [(0, Signal::Stacks)]);
    let last = world.log.last().unwrap();
    assert!(
        last.contains("it hangs: no sign of life for 1.0s (`health_check_timeout` is 1s)"),
        "{last}"
    );
    world.advance(Duration::from_millis(300));
    assert_eq!(world.signals, [(0, Signal::Stacks), (0, Signal::Kill)]);
    world.exit(0, End::Signal(9));
    assert_eq!(world.processes[1].events[0].0, "NODE_FAILED");
    assert!(world.ended[0].failed && world.ended[0].restarts);
}

#[test]
fn a_node_that_stops_or_has_left_has_no_health_checks() {
    let leave: [fn(&mut World); 2] = [World::stop, |world| {
        world.message(0, node_to_keeper::Message::Goodbye { cut_short: false })
    }];
    for leave in leave {
        let mut world = watched(None, Some(100));
        world.hello(0);
        leave(&mut world);
        world.advance(Duration::from_secs(2));
        assert!(world.signals.is_empty(), "{:?}", world.signals);
    }
}

#[test]
fn stop_is_followed_by_sigterm_and_sigkill() {
    let mut world = World::running(
        vec![node("good", Never), node("deaf", Never)],
        &[drop_oldest(0, 1)],
    );
    world.stop();
    assert!(
        world
            .processes
            .iter()
            .all(|process| process.stop.as_deref() == Some("test"))
    );
    world.exit(0, EXIT_0);
    world.advance(Duration::from_millis(4999));
    assert_eq!(world.signals, []);
    world.advance(Duration::from_millis(1));
    assert_eq!(world.signals, [(1, Signal::Terminate)]);
    world.advance(Duration::from_secs(2));
    assert_eq!(world.signals, [(1, Signal::Terminate), (1, Signal::Kill)]);
    world.exit(1, End::Signal(9));
    assert!(world.is_finished);
    let failed: Vec<_> = world
        .ended
        .iter()
        .filter(|ended| ended.failed)
        .map(|ended| &*ended.reason)
        .collect();
    assert_eq!(failed, ["it did not end within 5s of Stop, and was killed"]);
    let blame = world
        .log
        .iter()
        .filter(|line| line.starts_with("Warn Some(1) has not ended within"))
        .count();
    assert_eq!(blame, 2);
}

#[test]
fn a_node_that_exits_with_an_error_after_stop_has_failed() {
    let nodes = ["recorder", "camera", "slow", "sink"].map(|id| node(id, OnFailure));
    let mut world = World::running(nodes.into(), &[drop_oldest(1, 0), drop_oldest(2, 3)]);
    world.stop();
    world.exit(0, EXIT_1);
    let ended = &world.ended[0];
    assert!(ended.failed && !ended.restarts, "{ended:?}");
    assert_eq!(ended.reason, "exited with code 1 after Stop");
    let of_camera = &world.processes[1].events;
    assert_eq!(*of_camera, [], "the dataflow ends: nothing to react to");
    world.exit(1, EXIT_0);
    assert!(!world.ended[1].failed);
    world.advance(Duration::from_secs(5));
    assert_eq!(
        world.signals,
        [(2, Signal::Terminate), (3, Signal::Terminate)]
    );
    world.exit(2, End::Signal(15));
    assert!(!world.ended[2].failed, "ended by the keeper's SIGTERM");
    world.exit(3, End::Code(143));
    assert!(!world.ended[3].failed, "it handles SIGTERM");
    assert!(world.is_finished);
}

#[test]
fn a_node_that_ends_with_the_error_of_a_call_that_stop_cut_short_has_not_failed() {
    let mut world = World::running(
        vec![node("source", Never), node("sink", Never)],
        &[block(0, 1)],
    );
    world.stop();
    world.message(0, node_to_keeper::Message::Goodbye { cut_short: true });
    world.exit(0, EXIT_1);
    assert!(!world.ended[0].failed, "{:?}", world.ended[0]);
}

#[test]
fn a_node_that_has_not_connected_when_the_dataflow_stops_may_exit_with_any_code() {
    let mut world = World::new(
        vec![node("source", Never), node("sink", Never)],
        &[block(0, 1)],
    );
    world.give(Event::Launch);
    world.stop();
    world.exit(0, EXIT_1);
    assert!(!world.ended[0].failed, "it got SIGTERM");
}

#[test]
fn a_node_that_exits_with_an_error_when_its_inputs_have_ended_stays_down() {
    let mut recorder = node("recorder", OnFailure);
    recorder.settings.restart.max_restarts = None;
    let mut world = World::running(vec![node("camera", Never), recorder], &[drop_oldest(0, 1)]);
    world.exit(0, EXIT_0);
    world.exit(1, EXIT_1);
    let last = world.ended.last().unwrap();
    assert!(last.failed && !last.restarts, "{last:?}");
    assert_eq!(
        last.reason,
        "exited with code 1; not started again: all its inputs have ended"
    );
    assert!(world.is_finished);
    world.advance(Duration::from_secs(100));
    assert!(!world.processes[1].runs);
}

#[test]
fn a_node_is_started_again_when_its_inputs_have_ended_where_there_may_be_something_to_do() {
    let timed = |mut plan: crate::plan::NodePlan| {
        plan.inputs.push(nervure_protocol::wiring::InputSpec {
            name: "tick".to_owned(),
            source: nervure_protocol::wiring::Source::Timer { period_nanos: 1 },
            queue: None,
            type_name: None,
            expect_every_nanos: None,
            history: 0,
        });
        plan
    };
    // A timer, samples that may wait in a `block` edge, and a crash.
    let cases = [
        (timed(node("control", OnFailure)), drop_oldest(0, 1), EXIT_1),
        (node("sink", OnFailure), block(0, 1), EXIT_1),
        (node("sink", OnFailure), drop_oldest(0, 1), End::Signal(11)),
    ];
    for (consumer, edge, end) in cases {
        let mut world = World::running(vec![node("source", Never), consumer], &[edge]);
        world.exit(0, EXIT_0);
        world.exit(1, end);
        assert!(world.ended.last().unwrap().restarts, "{edge:?} {end}");
    }
}

#[test]
fn a_node_that_never_connected_gets_sigterm_at_once() {
    let mut world = World::new(
        vec![node("source", Never), node("sink", Never)],
        &[drop_oldest(0, 1)],
    );
    world.give(Event::Launch);
    world.hello(0);
    world.end_run();
    assert!(world.processes[0].stop.is_some());
    assert_eq!(world.signals, [(1, Signal::Terminate)]);
    world.hello(1);
    assert!(
        world.processes[1]
            .refused
            .as_ref()
            .unwrap()
            .contains("stopping")
    );
}

#[test]
fn a_stop_overtakes_a_restart() {
    let mut world = World::running(
        vec![node("source", OnFailure), node("sink", Never)],
        &[block(0, 1)],
    );
    world.exit(0, EXIT_1);
    assert!(world.ended[0].restarts);
    world.stop();
    world.exit(1, EXIT_0);
    assert!(world.is_finished);
    let last = &world.ended[1];
    assert!(last.id == "source" && last.failed && !last.restarts);
    let before = &world.ended[0].reason;
    assert!(
        before.starts_with("exited with code 1; starts again in "),
        "{before}"
    );
    assert_eq!(
        last.reason,
        format!("{before}; it does not, because the dataflow stops")
    );
    world.advance(Duration::from_secs(10));
    assert!(!world.processes[0].runs);
}

#[test]
fn kill_does_not_wait() {
    let mut world = World::running(
        vec![node("source", Always), node("sink", Never)],
        &[block(0, 1)],
    );
    world.order_by_run(cli_to_keeper::Message::Kill);
    assert_eq!(world.signals, [(0, Signal::Kill), (1, Signal::Kill)]);
    world.exit(0, End::Signal(9));
    world.exit(1, End::Signal(9));
    assert!(world.is_finished && world.machine.deadline().is_none());
}

#[test]
fn a_node_of_another_version_is_refused_with_the_reason() {
    let mut world = World::new(
        vec![node("old", Never), node("sink", Never)],
        &[drop_oldest(0, 1)],
    );
    world.give(Event::Launch);
    let versions = VersionRange { min: 90, max: 91 };
    let (language, library) = ("python".to_owned(), "9.1".to_owned());
    world.processes[0].said_hello = true;
    world.message(
        0,
        node_to_keeper::Message::Hello(node_to_keeper::Hello {
            versions,
            language,
            library,
        }),
    );
    let reason = world.processes[0].refused.clone().unwrap();
    assert!(
        reason.contains("version") && reason.contains("90 to 91") && reason.contains("python 9.1"),
        "{reason}"
    );
    world.advance(Duration::from_secs(2));
    assert_eq!(world.signals, [(0, Signal::Kill)]);
}

#[test]
fn a_node_that_breaks_the_control_protocol_is_killed_and_named() {
    let strange: [fn(&mut World); 3] = [
        |world| {
            world.give(Event::Misbehaved {
                node: 0,
                what: "malformed".to_owned(),
            })
        },
        |world| world.hello(0),
        |world| {
            world.exit(0, EXIT_1);
            world.advance(Duration::from_secs(1));
            world.message(0, node_to_keeper::Message::Ready);
        },
    ];
    for misbehave in strange {
        let mut world = World::running(
            vec![node("evil", OnFailure), node("sink", Never)],
            &[drop_oldest(0, 1)],
        );
        misbehave(&mut world);
        assert_eq!(world.signals, [(0, Signal::Kill)]);
        world.exit(0, End::Signal(9));
        let reason = &world.ended.last().unwrap().reason;
        assert!(reason.contains("broke the control protocol"), "{reason}");
        assert!(world.ended.last().unwrap().failed);
    }
}

#[test]
fn a_node_whose_edges_cannot_be_sent_is_killed_and_named() {
    let mut world = World::running(
        vec![node("huge", Never), node("sink", Never)],
        &[drop_oldest(0, 1)],
    );
    world.give(Event::Undeliverable {
        node: 0,
        why: "message of 200000 bytes".to_owned(),
    });
    assert_eq!(world.signals, [(0, Signal::Kill)]);
    world.exit(0, End::Signal(9));
    assert!(world.ended[0].failed && world.ended[0].reason.contains("200000 bytes"));
}

#[test]
fn a_report_of_misbehaviour_names_the_peer() {
    let mut world = World::running(
        vec![node("source", Never), node("sink", Never)],
        &[drop_oldest(0, 1)],
    );
    let (edge, what) = (
        world.input(1).unwrap(),
        "a descriptor beyond its block".to_owned(),
    );
    world.message(1, node_to_keeper::Message::Misbehaviour { edge, what });
    let line = world.log.last().unwrap();
    assert!(
        line.contains("`source`") && line.contains("beyond its block"),
        "{line}"
    );
    world.message(
        1,
        node_to_keeper::Message::Misbehaviour {
            edge: 999,
            what: "x".to_owned(),
        },
    );
}

#[test]
fn a_report_of_an_overwritten_wake_page_names_the_nodes_that_can_write_to_it() {
    let nodes = ["source", "stranger", "sink", "helper"].map(|id| node(id, Never));
    let mut world = World::running(nodes.into(), &[drop_oldest(0, 2), drop_oldest(2, 3)]);
    let overwritten = || node_to_keeper::Message::WakePageOverwritten {
        what: "a word changed".to_owned(),
    };
    world.message(2, overwritten());
    let line = world.log.last().unwrap();
    assert!(
        line.contains("Some(2)") && line.contains("a word changed"),
        "{line}"
    );
    assert!(
        line.contains("these, and the node itself, can write to it: `source`, `helper`;"),
        "{line}"
    );
    world.message(3, overwritten());
    let line = world.log.last().unwrap();
    assert!(
        line.contains("only `sink` and the node itself can write to it"),
        "{line}"
    );
    assert!(world.signals.is_empty(), "no node is killed without proof");
}

#[test]
fn only_the_node_that_drives_the_clock_sets_it() {
    let clock = node_to_keeper::Clock {
        runs: true,
        origin_utc_nanos: 7,
        base_mono: 1,
        rate_millionths: 2_000_000,
    };
    let drives = ClockPlan {
        node: 0,
        origin_utc_nanos: 0,
    };
    let nodes = vec![node("player", Never), node("sink", Never)];
    let mut world = World::with_clock(nodes, &[drop_oldest(0, 1)], drives);
    world.rung.clear();
    world.message(0, node_to_keeper::Message::Clock(clock));
    assert_eq!(
        (world.clocks.as_slice(), world.rung.as_slice()),
        (&[clock][..], &[0, 1][..])
    );
    world.message(1, node_to_keeper::Message::Clock(clock));
    assert_eq!(world.clocks.len(), 1);
    assert_eq!(world.signals, [(1, Signal::Kill)]);
}
